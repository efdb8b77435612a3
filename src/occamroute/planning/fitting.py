"""fit and plan: everything chosen on held-out rows of the profile, by what plans really reach there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, feature_matrix, generator, name_tuple
from occamroute._money import Amount, money, rounded_up
from occamroute._version import __version__
from occamroute.errors import BudgetTooSmallError, InvalidInputError
from occamroute.estimation.base import whole_number
from occamroute.knapsack import Problem, solve_problem
from occamroute.planning.candidates import Candidate, Folds, candidates, number_of_searches
from occamroute.planning.estimates import Estimate, charged, chosen_extractor, predicted
from occamroute.planning.plans import Plan
from occamroute.profiles import Profile

__all__ = ["Planner", "Progress", "fit", "plan"]

Progress = Callable[[int, int], None]

PENALTIES = (0.0, 0.1, 0.3, 1.0, 3.0)
FEWEST_ROWS = 10
# Normal quantile of a two-sided interval of 90 %.
QUANTILE = 1.6448536269514722


@dataclass(frozen=True)
class Choice:
    """What is best at a budget on held-out rows, and what it honestly reached there.

    ``accuracy`` is cross-fitted: each half of the held-out rows is scored with what the other half would have
    chosen. ``estimated`` is the mean of the chosen estimates there, ``spread`` the standard deviation of a
    single row's success around its estimate.
    """

    candidate: Candidate
    penalty: float
    accuracy: float
    mixture_accuracy: float | None
    estimated: float
    spread: float


@dataclass(frozen=True, eq=False)
class Planner:
    """Everything fitted on a profile, for any budget; ``n_queries`` is how many queries a budget is for."""

    profile: Profile
    n_queries: int
    seed: int
    folds: Folds = field(repr=False)
    candidates: tuple[Candidate, ...] = field(repr=False)
    _choices: dict[tuple[Fraction, tuple[str, ...]], Choice] = field(default_factory=dict, repr=False)
    _fitted: dict[Candidate, Any] = field(default_factory=dict, repr=False)

    def extractor(self, budget: Amount) -> str | None:
        """The name of the features to extract at this budget, or None where they are not worth their cost."""
        return self._choose(money(budget) / self.n_queries, tuple(self.profile.feature_sets)).candidate.extractor

    def plan(self, features: Any, *, budget: Amount, costs: Any = None, ids: Any = None) -> Plan:
        """The plan for new queries, with an honest expectation of its accuracy.

        ``features`` is an array (N, d), a mapping from extractor to such arrays, or a callable that gives the
        array for an extractor's name and is only called for the one that was chosen.
        """
        sets = self._offered(features)
        queries = self._count(features)
        self._require(budget, queries, costs)
        choice = self._choose(money(budget) / queries, sets)
        estimate = self._estimate(choice, features, queries, costs, ids)
        made = estimate.plan(budget, penalty=choice.penalty, seed=self.seed)
        return _with_expectation(made, choice, self.folds.rows.size)

    def _offered(self, features: Any) -> tuple[str, ...]:
        """The feature sets that the caller has."""
        sets = self.profile.feature_sets
        if callable(features):
            return tuple(sets)
        if isinstance(features, Mapping):
            return tuple(chosen_extractor(self.profile, name, features) for name in features)
        return (chosen_extractor(self.profile, None, features),)

    def _count(self, features: Any) -> int:
        if callable(features):
            return self.n_queries
        return len(next(iter(features.values())) if isinstance(features, Mapping) else features)

    def _require(self, budget: Amount, queries: int, costs: Any) -> None:
        """Raise unless some way to answer every query fits the budget."""
        needed = []
        for extractor in (None, *self.profile.feature_sets):
            own, overhead = charged(self.profile, extractor, costs, queries)
            problem = Problem(np.zeros((queries, own.shape[-1])), own, budget, overhead=overhead)
            least = problem.unit_costs.min(axis=1)
            cheapest = int(least.sum()) * (queries if least.size == 1 else 1)
            if cheapest <= problem.room:
                return
            needed.append(problem.total(cheapest))
        raise BudgetTooSmallError(budget, rounded_up(min(needed)))

    def _choose(self, share: Fraction, sets: tuple[str, ...]) -> Choice:
        """The best candidate and penalty at a budget per query, among the feature sets offered."""
        key = (share, sets)
        if key not in self._choices:
            allowed = [one for one in self.candidates if one.extractor is None or one.extractor in sets]
            self._choices[key] = _best(self.profile, self.folds, allowed, share, self.seed)
        return self._choices[key]

    def _estimate(self, choice: Choice, features: Any, queries: int, costs: Any, ids: Any) -> Estimate:
        candidate, profile = choice.candidate, self.profile
        if candidate not in self._fitted:
            pool = profile.feature_sets[candidate.extractor] if candidate.extractor else profile.success
            self._fitted[candidate] = candidate.make(len(profile)).fit(pool, profile.success)
        fitted = self._fitted[candidate]
        table = self._table(candidate.extractor, features, queries)
        success, distance = predicted(fitted, table, len(profile.names))
        own_costs, overhead = charged(profile, candidate.extractor, costs, queries)
        return Estimate(
            names=profile.names,
            costs=own_costs,
            success=success,
            sigma=candidate.sigma,
            overhead=overhead,
            distance=distance,
            ids=() if ids is None else name_tuple(map(str, ids), "ids"),
            made_from={
                "version": __version__,
                "profile": profile.fingerprint,
                "estimator": repr(fitted),
                "extractor": candidate.extractor,
                "seed": self.seed,
                "candidates": len(self.candidates) * len(PENALTIES),
                "held_out_rows": int(self.folds.rows.size),
                "held_out_accuracy": choice.accuracy,
                "held_out_accuracy_of_mixture": choice.mixture_accuracy,
            },
        )

    def _table(self, extractor: str | None, features: Any, queries: int) -> FloatArray:
        if extractor is None:
            return np.empty((queries, 0))
        if callable(features):
            features = features(extractor)
        table = feature_matrix(features[extractor] if isinstance(features, Mapping) else features)
        shape = (queries, self.profile.feature_sets[extractor].shape[1])
        if table.shape != shape:
            raise InvalidInputError(f"features of {extractor!r} must be of shape {shape}, got {table.shape}.")
        return table


def fit(
    profile: Profile,
    *,
    budgets: Iterable[Amount],
    n_queries: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Planner:
    """Everything chosen on held-out rows of the profile, for each of ``budgets`` for ``n_queries`` queries.

    Candidates are no features at all (the best mixture), the paper's samples and bagged neighbours with their
    metric and smoothing, for every feature set, with several penalties, zero included. What counts is the
    accuracy that a plan made from a candidate reaches, at that budget, on rows that it was not fitted on.
    Other budgets may be planned later. ``progress(done, total)`` is called as the work goes on.
    """
    amounts = list(budgets)
    queries = whole_number(n_queries, "n_queries")
    for amount in amounts:
        money(amount)
    if len(profile) < FEWEST_ROWS:
        raise InvalidInputError(f"a profile needs at least {FEWEST_ROWS} rows to choose on, got {len(profile)}.")
    total = number_of_searches(profile) + len(amounts)
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    folds = Folds.draw(profile, generator(seed))
    planner = Planner(profile, queries, seed, folds, tuple(candidates(profile, folds, tick)))
    for amount in amounts:
        planner._require(amount, queries, None)
        planner.extractor(amount)
        tick()
    return planner


def plan(
    profile: Profile,
    features: Any,
    *,
    budget: Amount,
    costs: Any = None,
    ids: Any = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Plan:
    """The best plan for new queries within a budget, everything chosen on held-out rows of the profile.

    ``features`` (N, d), or a mapping from extractor to such arrays, are of the queries to answer.
    """
    money(budget)
    if callable(features):
        raise InvalidInputError("features must be an array or a mapping here: use oc.fit for a callable.")
    tables = features if isinstance(features, Mapping) else {None: features}
    queries = {len(feature_matrix(table)) for table in tables.values()}
    if len(queries) != 1:
        raise InvalidInputError("features must have as many rows for every extractor.")
    planner = fit(profile, budgets=(), n_queries=queries.pop(), seed=seed, progress=progress)
    return planner.plan(features, budget=budget, costs=costs, ids=ids)


def _best(
    profile: Profile, folds: Folds, allowed: Iterable[Candidate], share: Fraction, seed: int
) -> Choice:
    """The candidate and penalty whose plan is right most often on held-out rows."""
    truth = profile.success[folds.rows]
    trials = [
        trial
        for candidate in allowed
        for penalty in (PENALTIES if candidate.extractor else PENALTIES[:1])
        if (trial := _trial(profile, folds, candidate, penalty, share, truth, seed)) is not None
    ]
    outcomes = np.stack([outcome for *_, outcome, _ in trials])
    halves = np.random.default_rng(seed).permutation(truth.shape[0]) % 2 == 0
    best = int(outcomes.mean(axis=1).argmax())
    honest = [
        outcomes[int(outcomes[:, ~half].mean(axis=1).argmax()), half].sum() for half in (halves, ~halves)
    ]
    candidate, penalty, outcome, estimated = trials[best]
    return Choice(
        candidate,
        penalty,
        accuracy=float(sum(honest) / truth.shape[0]),
        mixture_accuracy=next((float(row.mean()) for one, _, row, _ in trials if one.extractor is None), None),
        estimated=float(estimated.mean()),
        spread=float((outcome - estimated).std()),
    )


def _trial(
    profile: Profile, folds: Folds, candidate: Candidate, penalty: float, share: Fraction, truth: FloatArray, seed: int
) -> tuple[Candidate, float, FloatArray, FloatArray] | None:
    """What a plan from this candidate reaches on each held-out row, and what it estimated; None if unaffordable."""
    rows = folds.rows
    costs, overhead = charged(profile, candidate.extractor, None, rows.size)
    value = candidate.success - penalty * candidate.sigma
    problem = Problem(value, costs, share * rows.size, overhead=overhead)
    try:
        choice = solve_problem(problem, seed=seed).choice
    except BudgetTooSmallError:
        return None
    estimated = np.take_along_axis(candidate.success, choice[:, None], axis=1)[:, 0]
    if candidate.extractor is None:
        # Which queries a mixture sends where is chance: score the mixture itself.
        shares = np.bincount(choice, minlength=truth.shape[1]) / rows.size
        return candidate, penalty, truth @ shares, estimated
    return candidate, penalty, np.take_along_axis(truth, choice[:, None], axis=1)[:, 0], estimated


def _with_expectation(made: Plan, choice: Choice, held_out: int) -> Plan:
    """The plan with its estimates' mean corrected by what held-out rows say, and an interval of 90 %."""
    correction = choice.accuracy - choice.estimated
    expected = made.expected_accuracy + correction
    # Noise of the correction itself, and that of so many new queries.
    error = choice.spread * float(np.sqrt(1.0 / held_out + 1.0 / len(made)))
    interval = (max(0.0, expected - QUANTILE * error), min(1.0, expected + QUANTILE * error))
    return replace(
        made,
        expected_accuracy=expected,
        accuracy_interval=interval,
        made_from={**made.made_from, "correction": correction},
    )
