"""One profile, some budgets: what occamroute's plans really reach beside doing without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from occamroute._money import exact, rounded_up
from occamroute.errors import BudgetTooSmallError
from occamroute.estimation import Mixture
from occamroute.planning.estimates import Estimate, charged, estimate
from occamroute.planning.fitting import Planner, Progress, fit
from occamroute.planning.plans import Plan
from occamroute.profiles import Profile

__all__ = ["Sweep", "SweepRow", "sweep"]


@dataclass(frozen=True)
class SweepRow:
    """What one method really reached: ``budget`` and ``cost_share`` are fractions of always using the dearest."""

    method: str
    budget: float
    accuracy: float
    cost: float
    cost_share: float
    expected_accuracy: float | None = None
    accuracy_interval: tuple[float, float] | None = None
    gap: float | None = None
    chosen: str | None = None
    usage: dict[str, int] | None = None


@dataclass(frozen=True)
class Sweep:
    """All rows, and what each classifier alone would reach and cost."""

    rows: tuple[SweepRow, ...]
    names: tuple[str, ...]
    shares: tuple[float, ...]
    accuracies: tuple[float, ...]
    n_profile: int
    n_queries: int

    def of(self, method: str) -> list[SweepRow]:
        """The rows of one method, by budget."""
        return [row for row in self.rows if row.method == method]


def sweep(
    profile: Profile,
    test: Profile,
    *,
    fractions: Sequence[float],
    seed: int = 0,
    progress: Progress | None = None,
) -> Sweep:
    """Plan ``test`` at fractions of always using the dearest, and look up what the plans really reach.

    The methods: always the cheapest, always the dearest, the best mixture that looks at no features, occamroute,
    and the oracle, which knows each answer beforehand and so bounds them all. Nothing but the oracle sees the
    test rows' success.
    """
    full = exact(float(profile.mean_costs.max())) * len(test)
    budgets = {fraction: exact(fraction) * full for fraction in fractions}
    affordable = [amount for amount in budgets.values() if amount >= _least(profile, len(test))]
    planner = fit(profile, budgets=affordable, n_queries=len(test), seed=seed, progress=progress)
    mixture = estimate(profile, test.features, estimator=Mixture(), seed=seed, extractor=_any_set(profile))
    oracle = _oracle(profile, test)
    rows = [_single(profile, test, "cheapest", int(profile.mean_costs.argmin()), full)]
    for fraction, budget in budgets.items():
        for method, made in _plans(planner, mixture, oracle, test, budget):
            rows.append(_row(method, fraction, made, test, full))
    rows.append(_single(profile, test, "dearest", int(profile.mean_costs.argmax()), full))
    shares = tuple(float(share) for share in profile.mean_costs / profile.mean_costs.max())
    return Sweep(tuple(rows), profile.names, shares, tuple(test.accuracy.tolist()), len(profile), len(test))


def _least(profile: Profile, queries: int) -> Fraction:
    return exact(float(profile.mean_costs.min())) * queries


def _any_set(profile: Profile) -> str:
    return next(iter(profile.feature_sets))


def _oracle(profile: Profile, test: Profile) -> Estimate:
    """True success, and no features to pay for."""
    costs, overhead = charged(profile, None, None, len(test))
    return Estimate(profile.names, costs, test.success, np.zeros(len(profile.names)), overhead)


def _plans(
    planner: Planner, mixture: Estimate, oracle: Estimate, test: Profile, budget: Fraction
) -> Iterable[tuple[str, Plan]]:
    try:
        yield "mixture", mixture.plan(budget, seed=planner.seed)
        yield "occamroute", planner.plan(test.features, budget=budget)
        yield "oracle", oracle.plan(budget, seed=planner.seed)
    except BudgetTooSmallError:
        return


def _row(method: str, fraction: float, made: Plan, test: Profile, full: Fraction) -> SweepRow:
    reached = test.success[np.arange(len(test)), made.choice]
    honest = method == "occamroute"
    return SweepRow(
        method=method,
        budget=fraction,
        accuracy=float(reached.mean()),
        cost=made.planned_cost,
        cost_share=made.planned_cost / float(full),
        expected_accuracy=made.expected_accuracy if honest else None,
        accuracy_interval=made.accuracy_interval if honest else None,
        gap=made.gap,
        chosen=_how(made) if honest else None,
        usage=made.usage,
    )


def _how(made: Plan) -> str:
    """What the planner chose, in a few words."""
    extractor = made.made_from["extractor"]
    if extractor is None:
        return "no features: the best mixture"
    return f"{made.made_from['estimator']} on {extractor}, penalty {made.made_from['penalty']:g}"


def _single(profile: Profile, test: Profile, method: str, column: int, full: Fraction) -> SweepRow:
    share = float(profile.mean_costs[column] / profile.mean_costs.max())
    cost = exact(float(profile.mean_costs[column])) * len(test)
    return SweepRow(
        method=method,
        budget=share,
        accuracy=float(test.success[:, column].mean()),
        cost=float(rounded_up(cost)),
        cost_share=float(cost / full),
        chosen=profile.names[column],
    )
