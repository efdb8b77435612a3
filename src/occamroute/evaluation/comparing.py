"""compare: methods side by side on queries whose success is known."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, seed_number
from occamroute._money import Amount, exact, money, rounded_up
from occamroute._version import __version__
from occamroute.errors import BudgetTooSmallError, InvalidInputError, UnknownNameError
from occamroute.estimation.base import whole_number
from occamroute.evaluation.baselines import Answered, Setting, checked_methods, make_method
from occamroute.evaluation.labelled_folders import LabelledFolder
from occamroute.evaluation.reports import Report
from occamroute.evaluation.scoring import Scores, decimal, score
from occamroute.executors import Executor, opened
from occamroute.executors.local import one_thread_each
from occamroute.knapsack import Problem
from occamroute.planning.fitting import Progress
from occamroute.profiles import Profile

__all__ = [
    "DEFAULT_METHODS", "Steps", "Terms", "compare", "dearest_of_all", "dearest_total", "described", "usual_shares",
]  # fmt: skip

DEFAULT_METHODS = (
    "single_best", "best_affordable", "mixture", "random", "forest", "forest_regularized", "sampled", "bagged",
    "auto", "oracle",
)  # fmt: skip
SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 0.9, 1.0)
# Where the dearest costs more than this many times the cheapest, budgets are spread logarithmically.
WIDE = 60.0


def compare(
    profile: Profile,
    test: Profile | str | os.PathLike[str] | LabelledFolder,
    *,
    budgets: Iterable[Amount] | None = None,
    methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS,
    reference: str = "mixture",
    extractor: str | None = None,
    seed: int | np.random.Generator = 0,
    seeds: int = 1,
    executor: str | Executor | None = None,
    progress: Progress | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Report:
    """What each method really reaches on ``test``, learning from ``profile`` alone, at each budget for all of it.

    ``methods`` are names, or a mapping from names of the caller's to these or to estimators; the mixture and the
    oracle always take part. ``extractor`` is whose features the baselines look at where the profile has several
    (by default the profile's own, or the cheapest); auto chooses. ``seeds`` repeats everything that draws with so
    many seeds from ``seed`` on and averages. Every measured number comes with an interval of 90 %: differences from
    the ``reference`` and the like by paired bootstrap over the queries, accuracies by Wilson's. Without
    ``budgets``, a range of shares of always using the dearest is taken. ``executor`` is where methods are at work:
    "local" (one after the other), "ray" (side by side), or an executor; only ``seconds`` differ.

    ``test`` may be a folder of saved profiles, larger than memory: methods reach the same there, but that auto combines
    no answers. Differences then have intervals from the normal distribution that resamples come to. Estimates are kept
    in the folder ``out`` until the end, so that the same call goes on where an interrupted one stopped; without it in
    a temporary one.
    """
    named = checked_methods(methods)
    if reference not in named:
        raise UnknownNameError("reference", reference, named)
    seeds = whole_number(seeds, "seeds")
    if isinstance(test, str | os.PathLike):
        test = LabelledFolder.at(test)
    if isinstance(test, LabelledFolder):
        from occamroute.evaluation.large_comparing import compare_folder

        return compare_folder(
            profile, test, budgets=budgets, named=named, reference=reference, extractor=extractor,
            seed=seed_number(seed), seeds=seeds, executor=executor, progress=progress, out=out,
        )  # fmt: skip
    if out is not None:
        raise InvalidInputError("out is for estimates of a folder of queries: those of a profile are not kept.")
    terms = Terms.of(profile, test, budgets=budgets, extractor=extractor)
    amounts, full = terms.budgets, terms.full
    setting = Setting(terms.profile, test, amounts, terms.extractor, seed_number(seed), terms.costs)
    with opened(executor) as workers:
        outcomes = _outcomes(named, setting, seeds, workers, progress)
    results = {label: _by_budget([outcomes[label, offset] for offset in range(seeds)]) for label in named}
    seconds = {label: sum(outcomes[label, offset].seconds for offset in range(seeds)) for label in named}
    if not any(results.values()):
        raise BudgetTooSmallError(Decimal(decimal(max(amounts))), rounded_up(_least(test)))
    scores = score(results, setting, full, reference)
    about = described(
        profile, test, terms, scores, accuracy=test.accuracy, reference=reference, seed=setting.seed, seeds=seeds,
        seconds=seconds,
    )  # fmt: skip
    return Report(scores.rows, about)


@dataclass(frozen=True, eq=False)
class Terms:
    """What a comparison is about, but for the test queries' rows.

    ``profile`` is the one to learn from, with what extraction costs for the test queries; ``budgets`` are for all of
    them, ``full`` is what always using the dearest costs; ``extractor`` is whose features the baselines look at.
    ``costs`` are the queries' own where they are not the profile's.
    """

    profile: Profile
    budgets: list[Fraction]
    full: Fraction
    extractor: str
    costs: FloatArray | None

    @classmethod
    def of(
        cls, profile: Profile, test: Profile, *, budgets: Iterable[Amount] | None, extractor: str | None,
        queries: int | None = None,
    ) -> Terms:  # fmt: skip
        """Those for the rows of ``test``, or for so many queries of which it is one; checked."""
        _check(profile, test)
        priced, number = _at_prices_of(profile, test), len(test) if queries is None else queries
        full = exact(float(test.mean_costs.max())) * number
        amounts = _budgets(budgets, profile, full)
        return cls(priced, amounts, full, baseline_extractor(priced, test, extractor), _own_costs(profile, test))


def described(
    profile: Profile, test: Profile | LabelledFolder, terms: Terms, scores: Scores, *, accuracy: FloatArray,
    reference: str, seed: int, seeds: int, seconds: dict[str, float],
) -> dict[str, Any]:  # fmt: skip
    """What a report says about itself; ``accuracy`` (M,) is each classifier's on the test queries."""
    costs = test.mean_costs
    dearest = dearest_of_all(costs, accuracy)
    return {
        "version": __version__,
        "profile": profile.fingerprint,
        "test": test.fingerprint,
        "names": list(profile.names),
        "n_profile": len(profile),
        "n_queries": len(test),
        "reference": reference,
        "extractor": terms.extractor,
        "seed": seed,
        "seeds": seeds,
        "dearest": profile.names[dearest],
        "dearest_accuracy": float(accuracy[dearest]),
        "dearest_cost": float(rounded_up(terms.full)),
        "accuracies": accuracy.tolist(),
        "accuracy_intervals": scores.classifiers,
        "cost_shares": (costs / (costs.max() or 1.0)).tolist(),
        "averages": scores.averages,
        "calibration": scores.calibration,
        "seconds": seconds,
    }


def dearest_of_all(costs: FloatArray, accuracy: FloatArray) -> int:
    """The classifier that costs most; of equally dear ones the most accurate."""
    return int(np.lexsort((accuracy, costs))[-1])


def usual_shares(profile: Profile) -> tuple[float, ...]:
    """Budgets worth looking at, as shares of always using the dearest: spread logarithmically where costs are."""
    costs = profile.mean_costs
    cheapest = float(costs[costs > 0.0].min()) if (costs > 0.0).any() else 1.0
    if float(costs.max()) <= WIDE * cheapest:
        return SHARES
    least = max(1.3 * cheapest / float(costs.max()), 1e-6)
    spread = [float(f"{share:.3g}") for share in np.geomspace(least, 1.0, 10)]
    return (*spread[:-1], 1.0)


def dearest_total(test: Profile | LabelledFolder) -> Fraction:
    """What always using the dearest classifier would cost for the test queries."""
    return exact(float(test.mean_costs.max())) * len(test)


def baseline_extractor(profile: Profile, test: Profile, extractor: str | None) -> str:
    """Whose features the baselines look at: the one asked for, the profile's own, or the cheapest."""
    known = [name for name in profile.feature_sets if name in test.feature_sets]
    if not known:
        raise InvalidInputError(
            f"the test queries have none of the profile's feature sets ({', '.join(profile.feature_sets)})."
        )
    if extractor is None:
        extractor = profile.extractor if profile.extractor in known else None
    if extractor is None:
        extractor = min(known, key=lambda name: exact(profile.extraction_costs[name]))
    if extractor not in known:
        raise UnknownNameError("extractor", extractor, known)
    return extractor


def _check(profile: Profile, test: Profile) -> None:
    if not (isinstance(profile, Profile) and isinstance(test, Profile)):
        raise InvalidInputError("compare needs two profiles: one to learn from and one to judge on.")
    if profile.names != test.names:
        raise InvalidInputError(
            f"both profiles must have the same classifiers, got {', '.join(profile.names)} and {', '.join(test.names)}."
        )
    if profile.text is not None and test.text is not None and profile.text.fingerprint != test.text.fingerprint:
        raise InvalidInputError(
            "text features of the two profiles differ: make the test profile with text=profile.text, too."
        )
    for name, table in profile.feature_sets.items():
        columns = test.feature_sets[name].shape[1] if name in test.feature_sets else table.shape[1]
        if columns != table.shape[1]:
            raise InvalidInputError(
                f"features of {name!r} must have the profile's {table.shape[1]} columns, got {columns}."
            )


def _own_costs(profile: Profile, test: Profile) -> FloatArray | None:
    """The test queries' costs where they are not those of the profile."""
    same = test.costs.shape == profile.costs.shape == profile.mean_costs.shape and np.array_equal(
        test.costs, profile.costs
    )
    return None if same else test.costs


def _budgets(budgets: Iterable[Amount] | None, profile: Profile, full: Fraction) -> list[Fraction]:
    if budgets is None:
        return sorted({exact(share) * full for share in usual_shares(profile)})
    if not isinstance(budgets, Iterable):
        raise InvalidInputError(f"budgets must be a sequence of amounts, got {budgets!r}.")
    amounts = [money(budget) for budget in budgets]
    if not amounts:
        raise InvalidInputError("budgets must not be empty.")
    return sorted(set(amounts))


def _at_prices_of(profile: Profile, test: Profile) -> Profile:
    """The profile with what extraction costs for the test queries, where that is something else."""
    prices = {name: test.extractor_cost.get(name, cost) for name, cost in profile.extractor_cost.items()}
    same = all(exact(prices[name]) == exact(cost) for name, cost in profile.extractor_cost.items())
    return profile if same else replace(profile, extractor_cost=prices)


def _least(test: Profile) -> Fraction:
    """The least that answering every query costs."""
    problem = Problem(np.zeros(test.success.shape), test.costs, 0)
    return problem.total(problem.cheapest)


@dataclass
class Steps:
    """Progress of methods that are each a step, one of which may report its own."""

    total: int
    progress: Progress | None
    done: int = 0
    scale: int = 100

    def within(self, done: int, total: int) -> None:
        """So much of the present method is done."""
        if self.progress is not None:
            self.progress(self.scale * self.done + self.scale * done // max(1, total), self.scale * self.total)

    def finish(self) -> None:
        """The present method is done."""
        self.done += 1
        self.within(0, 1)


@dataclass(frozen=True)
class _Outcome:
    """A method's answers at every budget that it can keep, with one seed, and how long that took."""

    answers: dict[Fraction, Answered]
    seconds: float


def _outcomes(
    named: Mapping[str, Any], setting: Setting, seeds: int, executor: Executor | None, progress: Progress | None
) -> dict[tuple[str, int], _Outcome]:
    """What every method does with every seed."""
    steps = Steps(len(named) * seeds, progress)
    # Auto takes by far the longest: workers begin with it.
    first = sorted(named, key=lambda label: not str(named[label]).startswith("auto"))
    turns = [(label, offset) for label in first for offset in range(seeds)]
    items = [(named[label], offset) for label, offset in turns]
    if executor is None:
        found: Iterator[_Outcome] = map(partial(_outcome, replace(setting, progress=steps.within)), items)
    else:
        found = executor.map(_outcome, setting, items)
    outcomes = {}
    for turn, outcome in zip(turns, found, strict=True):
        outcomes[turn] = outcome
        steps.finish()
    return outcomes


def _outcome(setting: Setting, item: tuple[Any, int]) -> _Outcome:
    method, offset = item
    started = time.perf_counter()
    answers = {}
    # Sums of linear algebra depend on the number of its threads: here it is the same whoever works.
    with one_thread_each():
        answer = make_method(method, replace(setting, seed=setting.seed + offset))
        for budget in setting.budgets:
            with suppress(BudgetTooSmallError):
                answers[budget] = answer(budget)
    return _Outcome(answers, time.perf_counter() - started)


def _by_budget(outcomes: list[_Outcome]) -> dict[Fraction, list[Answered]]:
    """The answers at each budget, one for each seed."""
    found: dict[Fraction, list[Answered]] = {}
    for outcome in outcomes:
        for budget, answered in outcome.answers.items():
            found.setdefault(budget, []).append(answered)
    return found
