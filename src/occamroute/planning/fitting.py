"""fit and plan: everything chosen on held-out rows of the profile, by what plans really reach there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeVar, overload

import numpy as np

from occamroute._arrays import FloatArray, feature_matrix, generator, seed_number
from occamroute._money import Amount, money, rounded_up
from occamroute._version import __version__
from occamroute.errors import BudgetTooSmallError, InvalidInputError
from occamroute.estimation.base import whole_number
from occamroute.executors import Executor, opened
from occamroute.knapsack import Problem
from occamroute.knapsack.problem import Terms
from occamroute.knapsack.streamed import LargeProblem
from occamroute.part_folders import content_key
from occamroute.planning.candidates import Candidate, candidates, number_of_steps
from occamroute.planning.choosing import Choice, best_choice
from occamroute.planning.estimates import Estimate, charged, chosen_extractor, query_ids
from occamroute.planning.from_folders import FolderMeant, finished_plan, folder_meant, named_out, plan_folder
from occamroute.planning.held_out import Folds
from occamroute.planning.members import Members, Stack
from occamroute.planning.plans import Plan
from occamroute.planning.stored_plans import StoredPlan
from occamroute.profiles import Profile, beside
from occamroute.text_features import are_texts

__all__ = ["Planner", "Progress", "fit", "plan", "text_name"]

Progress = Callable[[int, int], None]
Source = str | os.PathLike[str] | Mapping[str, str] | Mapping[str, os.PathLike[str]]

FEWEST_ROWS = 10


@dataclass(frozen=True, eq=False)
class Planner:
    """Everything fitted on a profile, for any budget; ``n_queries`` is how many queries a budget is for."""

    profile: Profile
    n_queries: int
    seed: int
    folds: Folds = field(repr=False)
    candidates: tuple[Candidate, ...] = field(repr=False)
    _choices: dict[tuple[Fraction, tuple[str | None, ...]], Choice] = field(default_factory=dict, repr=False)
    _members: Members = field(default_factory=lambda: Members(), repr=False)

    def extractor(self, budget: Amount) -> str | None:
        """The name of the features to extract at this budget, or None where they are not worth their cost."""
        sets = _payable(self.profile, tuple(self.profile.feature_sets), budget, self.n_queries, None)
        return self._choose(money(budget) / self.n_queries, sets).candidate.extractor

    def choice(self, budget: Amount, sets: tuple[str, ...], *, queries: int, costs: Any = None) -> Choice:
        """What is best at a budget for so many queries, among the feature sets named; none may be best too."""
        return self._choose(money(budget) / queries, _payable(self.profile, sets, budget, queries, costs))

    def stack(self, choice: Choice) -> Stack:
        """What was chosen as one fitted estimator."""
        return self._members.stack(self.profile, choice.candidate)

    @overload
    def plan(
        self, features: Source, *, budget: Amount, costs: Any = None, ids: None = None,
        executor: str | Executor | None = None, out: str | os.PathLike[str], progress: Progress | None = None,
    ) -> StoredPlan: ...  # fmt: skip

    @overload
    def plan(
        self, features: Any, *, budget: Amount, costs: Any = None, ids: Any = None,
        executor: str | Executor | None = None,
    ) -> Plan: ...  # fmt: skip

    def plan(
        self,
        features: Any,
        *,
        budget: Amount,
        costs: Any = None,
        ids: Any = None,
        executor: str | Executor | None = None,
        out: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> Plan | StoredPlan:
        """The plan for new queries, with an honest expectation of its accuracy.

        ``features`` is an array (N, d), a mapping from extractor to such arrays, or a callable that gives the
        array for an extractor's name and is only called for the one that was chosen. Where the profile has text
        features, the N texts stand for theirs, alone, in a mapping or from a callable. Without features (None) the
        plan is a mixture for as many queries as there are ``ids`` or rows of ``costs``, or as the planner is for.
        ``executor`` is where blocks of queries are worked on: "local", "ray", or an executor; the plan is the same. For
        a folder of Parquet files, which may be larger than memory, the plan is written to the folder ``out`` as it is
        decided.
        """
        meant = folder_meant(features)
        if meant is not None:
            with opened(executor) as workers:
                return self._plan_folder(meant, budget, costs, named_out(out, meant.folder), workers, progress)
        tables, ids = _offered(self.profile, features), None if ids is None else tuple(ids)
        queries = _number_of(tables, ids, costs, self.n_queries)
        sets = _payable(self.profile, _sets(self.profile, tables), budget, queries, costs)
        choice = self._choose(money(budget) / queries, sets)
        with opened(executor) as workers:
            estimate = self._estimate(choice, tables, queries, costs, ids, workers)
        made = estimate.plan(budget, penalty=choice.penalty, seed=self.seed)
        return _with_expectation(made, choice)

    def _plan_folder(
        self,
        meant: FolderMeant,
        budget: Amount,
        costs: Any,
        out: str | os.PathLike[str],
        executor: Executor | None,
        progress: Progress | None,
        asked: str | None = None,
    ) -> StoredPlan:
        """The plan for a folder, which says what it was ``asked`` for."""
        folder = meant.folder
        choice = self.choice(budget, meant.sets(self.profile), queries=len(folder), costs=costs)
        return plan_folder(
            folder, self.profile, choice, self._members, made_from=self._made_from(choice), budget=budget, costs=costs,
            seed=self.seed, expecting=lambda made: _with_expectation(made, choice), out=out, executor=executor,
            progress=progress, asked=asked,
        )  # fmt: skip

    def _choose(self, share: Fraction, sets: tuple[str | None, ...]) -> Choice:
        """The best candidate and penalty at a budget per query, among some feature sets (None: no features)."""
        key = (share, sets)
        if key not in self._choices:
            allowed = [one for one in self.candidates if one.extractor in sets]
            self._choices[key] = best_choice(self.profile, self.folds, allowed, share, seed=self.seed)
        return self._choices[key]

    def _estimate(
        self,
        choice: Choice,
        tables: dict[str, Any],
        queries: int,
        costs: Any,
        ids: Any,
        executor: Executor | None,
    ) -> Estimate:
        candidate, profile = choice.candidate, self.profile
        table = self._table(candidate.extractor, tables, queries)
        success, distance, words = self._members.estimates(profile, candidate, table, executor)
        own_costs, overhead = charged(profile, candidate.extractor, costs, queries)
        return Estimate(
            names=profile.names,
            costs=own_costs,
            success=success,
            sigma=candidate.sigma,
            overhead=overhead,
            distance=distance,
            ids=query_ids(ids, queries),
            made_from={**self._made_from(choice), "estimator": words},
        )

    def _made_from(self, choice: Choice) -> dict[str, Any]:
        """Where an estimate came from, but for the words for its estimator."""
        extractor = choice.candidate.extractor
        paid = self.profile.paid_extractor(extractor)
        return {
            "version": __version__,
            "profile": self.profile.fingerprint,
            "extractor": extractor,
            **({} if paid == extractor else {"paid_extractor": paid}),
            "combined": choice.candidate.combination is not None,
            "seed": self.seed,
            "why": choice.why,
            "candidates": len(self.candidates),
            "held_out_rows": int(self.folds.rows.size),
            "held_out_accuracy": choice.accuracy,
            "held_out_accuracy_of_mixture": choice.others.get("mixture"),
            "held_out_accuracy_of_best": choice.others,
        }

    def _table(self, extractor: str | None, tables: dict[str, Any], queries: int) -> FloatArray:
        """The features to look at; they are extracted only here, if they are not there yet."""
        if extractor is None:
            return np.empty((queries, 0))
        if extractor in self.profile.joined and not isinstance(tables.get(extractor), np.ndarray):
            halves = self.profile.joined[extractor], text_name(self.profile)
            return beside(*(self._table(half, tables, queries) for half in halves))
        table = tables[extractor]
        if callable(table):
            table = _checked(self.profile, extractor, table(extractor))
        if len(table) != queries:
            raise InvalidInputError(f"features of {extractor!r} must have {queries} rows, got {len(table)}.")
        return np.asarray(table)


def fit(
    profile: Profile,
    *,
    budgets: Iterable[Amount],
    n_queries: int,
    combine: bool = True,
    seed: int | np.random.Generator = 0,
    executor: str | Executor | None = None,
    progress: Progress | None = None,
) -> Planner:
    """Everything chosen on held-out rows of the profile, for each of ``budgets`` for ``n_queries`` queries.

    Candidates are no features at all (the best mixture), and for every feature set: the paper's samples with
    several penalties, bagged neighbours with their metric and smoothing, kernel ridge regression, a forest, and a
    stack of them all, more or less of which is believed. Where the profile keeps probabilities and labels,
    answers may be combined with the extractor's (unless ``combine`` is off). What counts is the accuracy that a
    plan made from a candidate reaches, at that budget, on rows that it was not fitted on. Other budgets may be
    planned later. ``executor`` is where estimators are fitted to be judged: "local", "ray", or an executor; what is
    chosen is the same. ``progress(done, total)`` is called as the work goes on.
    """
    _require_profile(profile)
    if not isinstance(budgets, Iterable):
        raise InvalidInputError(f"budgets must be a sequence of amounts, got {budgets!r}.")
    amounts = list(budgets)
    queries = whole_number(n_queries, "n_queries")
    for amount in amounts:
        _payable(profile, tuple(profile.feature_sets), amount, queries, None)
    if len(profile) < FEWEST_ROWS:
        raise InvalidInputError(f"a profile needs at least {FEWEST_ROWS} rows to choose on, got {len(profile)}.")
    if int(profile.blocks.max()) == 0:
        raise InvalidInputError("a profile needs at least 2 groups to choose on, got all rows in one.")
    total = number_of_steps(profile) + len(amounts)
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    number = seed_number(seed)
    folds = Folds.draw(profile, generator(number))
    with opened(executor) as workers:
        found = tuple(candidates(profile, folds, tick, combine=combine, seed=number, executor=workers))
    planner = Planner(profile, queries, number, folds, found)
    for amount in amounts:
        planner.extractor(amount)
        tick()
    return planner


@overload
def plan(
    profile: Profile, features: Source, *, budget: Amount, costs: Any = None, ids: None = None,
    combine: bool = True, seed: int | np.random.Generator = 0, executor: str | Executor | None = None,
    progress: Progress | None = None, out: str | os.PathLike[str],
) -> StoredPlan: ...  # fmt: skip


@overload
def plan(
    profile: Profile, features: Any, *, budget: Amount, costs: Any = None, ids: Any = None, combine: bool = True,
    seed: int | np.random.Generator = 0, executor: str | Executor | None = None, progress: Progress | None = None,
    n_queries: int | None = None,
) -> Plan: ...  # fmt: skip


def plan(
    profile: Profile,
    features: Any,
    *,
    budget: Amount,
    costs: Any = None,
    ids: Any = None,
    combine: bool = True,
    seed: int | np.random.Generator = 0,
    executor: str | Executor | None = None,
    progress: Progress | None = None,
    out: str | os.PathLike[str] | None = None,
    n_queries: int | None = None,
) -> Plan | StoredPlan:
    """The best plan for new queries within a budget, everything chosen on held-out rows of the profile.

    ``features`` (N, d), or a mapping from extractor to such arrays, are of the queries to answer; or a folder of
    Parquet files, larger than memory (or a mapping to it), whose plan is written to the folder ``out``. Where the
    profile has text features, the texts of the queries stand for theirs. Without features (None) the plan is a
    mixture for ``n_queries``, or for as many as there are ``ids`` or rows of ``costs``. The rest is as in ``fit``.
    """
    _require_profile(profile)
    money(budget)
    meant = folder_meant(features)
    if meant is not None:
        return _plan_of_folder(
            profile, meant, budget, out, costs=costs, ids=ids, combine=combine, seed=seed_number(seed),
            executor=executor, progress=progress,
        )  # fmt: skip
    if callable(features):
        raise InvalidInputError("features must be an array or a mapping here: use oc.fit for a callable.")
    tables, ids = _offered(profile, features), None if ids is None else tuple(ids)
    queries = _number_of(tables, ids, costs, n_queries)
    if n_queries not in (None, queries):
        raise InvalidInputError(f"n_queries must be the number of queries, {queries}, or left out, got {n_queries!r}.")
    _payable(profile, _sets(profile, tables), budget, queries, costs)
    query_ids(ids, queries)
    with opened(executor) as workers:
        planner = fit(
            profile, budgets=(), n_queries=queries, combine=combine, seed=seed, executor=workers, progress=progress
        )
        return planner.plan(tables or None, budget=budget, costs=costs, ids=ids, executor=workers)


def _plan_of_folder(
    profile: Profile, meant: FolderMeant, budget: Amount, out: str | os.PathLike[str] | None, *, costs: Any, ids: Any,
    combine: bool, seed: int, executor: str | Executor | None, progress: Progress | None,
) -> StoredPlan:  # fmt: skip
    if ids is not None:
        raise InvalidInputError("ids of queries in a folder are in its files, in a column 'id'.")
    place = named_out(out, meant.folder)
    queries = len(meant.folder)
    _payable(profile, meant.sets(profile), budget, queries, costs)
    # What decides all that is chosen: a plan that was finished for the same is known by it, and nothing is chosen anew.
    own_costs = None if costs is None else np.asarray(costs).tolist()
    asked = content_key([
        __version__, profile.fingerprint, meant.folder.fingerprint, meant.sets(profile), str(money(budget)), own_costs,
        combine, seed,
    ])  # fmt: skip
    finished = finished_plan(place, asked)
    if finished is not None:
        return finished
    with opened(executor) as workers:
        planner = fit(
            profile, budgets=(), n_queries=queries, combine=combine, seed=seed, executor=workers, progress=progress
        )
        return planner._plan_folder(meant, budget, costs, place, workers, progress, asked)


def _require_profile(profile: Any) -> None:
    if not isinstance(profile, Profile):
        raise InvalidInputError(f"a profile is needed to plan from, got {type(profile).__name__}.")


def _offered(profile: Profile, features: Any) -> dict[str, Any]:
    """The feature sets that the caller has, each an array or a callable that gives one; none for no features."""
    if features is None:
        return {}
    if callable(features):
        return dict.fromkeys(profile.stored_sets, features)
    if not isinstance(features, Mapping):
        if are_texts(features):
            features = {text_name(profile): features}
        else:
            features = {chosen_extractor(profile, None, features): features}
    tables = {
        chosen_extractor(profile, name, features): _checked(profile, name, table) for name, table in features.items()
    }
    if not tables:
        raise InvalidInputError("features must hold at least one feature set, got an empty mapping.")
    if len(set(map(len, tables.values()))) != 1:
        raise InvalidInputError("features must have as many rows for every extractor.")
    return tables


def _sets(profile: Profile, tables: Mapping[str, Any]) -> tuple[str, ...]:
    """The feature sets that these tables give, those included that are two of them side by side."""
    text = None if profile.text is None else profile.text.name
    joined = (both for both, own in profile.joined.items() if own in tables and text in tables and both not in tables)
    return (*tables, *joined)


def _number_of(tables: Mapping[str, Any], ids: Any, costs: Any, said: int | None) -> int:
    """How many queries there are: rows of features, or where there are none of ids or costs, or what was said."""
    for table in tables.values():
        if not callable(table):
            return len(table)
    if tables and said is not None:
        return said
    if ids is not None:
        return len(ids)
    if np.ndim(costs) == 2:
        return len(costs)
    if said is None:
        raise InvalidInputError("without features the number of queries is not known: give n_queries.")
    return whole_number(said, "n_queries")


def text_name(profile: Profile) -> str:
    """The name of the profile's text features, which it must have."""
    if profile.text is None:
        raise InvalidInputError("features are texts, and the profile has no text features: make it with texts.")
    return profile.text.name


def _checked(profile: Profile, extractor: str, features: Any) -> FloatArray:
    if profile.text is not None and extractor == profile.text.name and are_texts(features):
        return profile.text.extract(features)
    table = feature_matrix(features, f"features of {extractor!r}")
    columns = profile.feature_sets[extractor].shape[1]
    if table.shape[1] != columns:
        raise InvalidInputError(
            f"features of {extractor!r} must have the profile's {columns} columns, got {table.shape[1]}."
        )
    return table


def _payable(
    profile: Profile, sets: tuple[str, ...], budget: Amount, queries: int, costs: Any
) -> tuple[str | None, ...]:
    """Those of the feature sets offered, and None for no features, with which the budget answers every query."""
    money(budget)
    needed, payable = [], []
    for extractor in (None, *sets):
        own, overhead = charged(profile, extractor, costs, queries)
        problem: Terms = (
            LargeProblem(own, budget, queries, overhead=overhead)
            if own.ndim == 1
            else Problem(np.zeros(own.shape), own, budget, overhead=overhead)
        )
        needed.append(problem.total(problem.cheapest))
        if problem.spare >= 0:
            payable.append(extractor)
    if not payable:
        raise BudgetTooSmallError(budget, rounded_up(min(needed)))
    return tuple(payable)


AnyPlan = TypeVar("AnyPlan", Plan, StoredPlan)


def _with_expectation(made: AnyPlan, choice: Choice) -> AnyPlan:
    """The plan with its estimates' mean corrected by what held-out rows say, and an interval of 90 %."""
    expected, interval = choice.promise(made.expected_accuracy, len(made))
    weights = made.weights if choice.candidate.combination is None else choice.candidate.combination.weights
    return replace(
        made,
        expected_accuracy=expected,
        accuracy_interval=interval,
        weights=weights,
        made_from={**made.made_from, "correction": expected - made.expected_accuracy},
    )
