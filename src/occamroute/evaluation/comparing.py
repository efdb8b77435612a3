"""compare: methods side by side on queries whose success is known."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, generator, seed_number
from occamroute._money import Amount, exact, money, rounded_up
from occamroute._version import __version__
from occamroute.errors import BudgetTooSmallError, InvalidInputError, UnknownNameError
from occamroute.estimation.base import whole_number
from occamroute.evaluation.baselines import Answered, Setting, checked_methods, make_method
from occamroute.evaluation.reports import Report
from occamroute.knapsack import Problem
from occamroute.planning.fitting import Progress
from occamroute.profiles import Profile

__all__ = ["DEFAULT_METHODS", "compare", "usual_shares"]

DEFAULT_METHODS = (
    "single_best", "best_affordable", "mixture", "random", "forest", "forest_regularized", "sampled", "bagged",
    "auto", "oracle",
)  # fmt: skip
RESAMPLES = 1000
SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 0.9, 1.0)
# Where the dearest costs more than this many times the cheapest, budgets are spread logarithmically.
WIDE = 60.0


def compare(
    profile: Profile,
    test: Profile,
    *,
    budgets: Iterable[Amount] | None = None,
    methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS,
    reference: str = "mixture",
    extractor: str | None = None,
    seed: int | np.random.Generator = 0,
    seeds: int = 1,
    progress: Progress | None = None,
) -> Report:
    """What each method really reaches on ``test``, learning from ``profile`` alone, at each budget for all of it.

    ``methods`` are names, or a mapping from names of the caller's to these or to estimators; the mixture and the
    oracle always take part. ``extractor`` is whose features the baselines look at where the profile has several
    (by default the profile's own, or the cheapest); auto chooses. ``seeds`` repeats everything that draws with so
    many seeds from ``seed`` on and averages. Differences from the ``reference`` come with paired bootstrap
    intervals. Without ``budgets``, a range of shares of always using the dearest is taken.
    """
    named = checked_methods(methods)
    if reference not in named:
        raise UnknownNameError("reference", reference, named)
    _check(profile, test)
    priced = _at_prices_of(profile, test)
    full = dearest_total(test)
    amounts = _budgets(budgets, profile, full)
    setting = Setting(
        priced,
        test,
        amounts,
        baseline_extractor(priced, test, extractor),
        seed_number(seed),
        _own_costs(profile, test),
    )
    seeds = whole_number(seeds, "seeds")
    steps = _Steps(len(named) * seeds, progress)
    results, seconds = {}, {}
    for label, method in named.items():
        started = time.perf_counter()
        results[label] = _over_seeds(method, setting, seeds, steps)
        seconds[label] = time.perf_counter() - started
    if not any(results.values()):
        raise BudgetTooSmallError(Decimal(_decimal(max(amounts))), rounded_up(_least(test)))
    dearest = int(test.mean_costs.argmax())
    about = {
        "version": __version__,
        "profile": profile.fingerprint,
        "test": test.fingerprint,
        "names": list(profile.names),
        "n_profile": len(profile),
        "n_queries": len(test),
        "reference": reference,
        "extractor": setting.extractor,
        "seed": setting.seed,
        "seeds": seeds,
        "dearest": profile.names[dearest],
        "dearest_accuracy": float(test.accuracy[dearest]),
        "dearest_cost": float(rounded_up(full)),
        "accuracies": test.accuracy.tolist(),
        "cost_shares": (test.mean_costs / (test.mean_costs.max() or 1.0)).tolist(),
        "seconds": seconds,
    }
    return Report(_rows(results, setting, full, reference), about)


def usual_shares(profile: Profile) -> tuple[float, ...]:
    """Budgets worth looking at, as shares of always using the dearest: spread logarithmically where costs are."""
    costs = profile.mean_costs
    cheapest = float(costs[costs > 0.0].min()) if (costs > 0.0).any() else 1.0
    if float(costs.max()) <= WIDE * cheapest:
        return SHARES
    least = max(1.3 * cheapest / float(costs.max()), 1e-6)
    spread = [float(f"{share:.3g}") for share in np.geomspace(least, 1.0, 10)]
    return (*spread[:-1], 1.0)


def dearest_total(test: Profile) -> Fraction:
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
    prices = {name: test.extraction_costs.get(name, cost) for name, cost in profile.extraction_costs.items()}
    same = all(exact(prices[name]) == exact(cost) for name, cost in profile.extraction_costs.items())
    return profile if same else replace(profile, extractor_cost=prices)


def _least(test: Profile) -> Fraction:
    """The least that answering every query costs."""
    problem = Problem(np.zeros(test.success.shape), test.costs, 0)
    return problem.total(problem.cheapest)


@dataclass
class _Steps:
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


def _over_seeds(method: Any, setting: Setting, seeds: int, steps: _Steps) -> dict[Fraction, list[Answered]]:
    """A method's answers at every budget that it can keep, for each seed."""
    found: dict[Fraction, list[Answered]] = {}
    for offset in range(seeds):
        own = replace(setting, seed=setting.seed + offset, progress=steps.within)
        answer = make_method(method, own)
        for budget in setting.budgets:
            try:
                found.setdefault(budget, []).append(answer(budget))
            except BudgetTooSmallError:
                continue
        steps.finish()
    return {budget: answers for budget, answers in found.items() if answers}


def _rows(
    results: Mapping[str, dict[Fraction, list[Answered]]], setting: Setting, full: Fraction, reference: str
) -> list[dict[str, Any]]:
    rows = []
    for budget in setting.budgets:
        outcomes = {
            label: np.mean([one.outcome for one in found[budget]], axis=0)
            for label, found in results.items()
            if budget in found
        }
        intervals = _intervals(outcomes, reference, setting)
        for label, outcome in outcomes.items():
            row = _row(label, budget, full, results[label][budget], setting)
            if reference in outcomes:
                row["difference"] = float((outcome - outcomes[reference]).mean())
                row["difference_interval"] = intervals[label]
            if "mixture" in outcomes and "oracle" in outcomes:
                row["way_to_oracle"] = _way(outcome, outcomes["mixture"], outcomes["oracle"])
            rows.append(row)
    order = list(results)
    return sorted(rows, key=lambda row: (order.index(row["method"]), row["budget"]))


def _row(label: str, budget: Fraction, full: Fraction, answers: Sequence[Answered], setting: Setting) -> dict[str, Any]:
    accuracies = [float(one.outcome.mean()) for one in answers]
    first = answers[0]
    # The highest bill among the seeds: each of them keeps the budget.
    cost = max(one.cost for one in answers)
    counts = np.mean([np.bincount(one.choice, minlength=len(setting.profile.names)) for one in answers], axis=0)
    usage = [int(count) if float(count).is_integer() else float(count) for count in counts]
    return {
        "method": label,
        "budget": float(budget),
        "budget_share": float(budget / full) if full else 0.0,
        "accuracy": float(np.mean(accuracies)),
        "accuracy_spread": float(np.std(accuracies)),
        "cost": float(cost),
        "exact_cost": _decimal(cost),
        "cost_share": float(cost / full) if full else 0.0,
        "usage": dict(zip(setting.profile.names, usage, strict=True)),
        "extractor": first.extractor,
        "chosen": first.chosen,
        "difference": None,
        "difference_interval": None,
        "way_to_oracle": None,
        "expected_accuracy": first.expected_accuracy,
        "accuracy_interval": first.accuracy_interval,
        "gap": first.gap,
    }


def _decimal(amount: Fraction) -> str:
    """An amount as a decimal with all of its digits: costs are decimals."""
    digits = Context(prec=len(str(amount.numerator)) + amount.denominator.bit_length() + 2)
    return f"{digits.divide(Decimal(amount.numerator), Decimal(amount.denominator)).normalize(digits):f}"


def _way(outcome: FloatArray, mixture: FloatArray, oracle: FloatArray) -> float | None:
    """The share of the way from the mixture to the oracle; None where there is none to go."""
    room = float(oracle.mean() - mixture.mean())
    return float(outcome.mean() - mixture.mean()) / room if room > 1e-12 else None


def _intervals(outcomes: Mapping[str, FloatArray], reference: str, setting: Setting) -> dict[str, tuple[float, float]]:
    """90 % intervals of the mean difference from the reference: queries (or their groups) drawn again and again."""
    if reference not in outcomes:
        return {}
    blocks = setting.test.blocks
    count = int(blocks.max()) + 1
    gains = np.stack([outcome - outcomes[reference] for outcome in outcomes.values()], axis=1)
    sums = np.stack([np.bincount(blocks, weights=column, minlength=count) for column in gains.T], axis=1)
    sizes = np.bincount(blocks, minlength=count).astype(float)
    random = generator(setting.seed)
    means = []
    for start in range(0, RESAMPLES, 50):
        drawn = random.multinomial(count, np.full(count, 1.0 / count), size=min(50, RESAMPLES - start)).astype(float)
        means.append((drawn @ sums) / (drawn @ sizes)[:, None])
    low, high = np.quantile(np.concatenate(means), (0.05, 0.95), axis=0)
    return {label: (float(low[index]), float(high[index])) for index, label in enumerate(outcomes)}
