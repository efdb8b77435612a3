"""Singles: what each classifier would cost and reach if it answered everything by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from occamroute._money import exact
from occamroute.planning.estimates import Estimate
from occamroute.planning.plans import Plan
from occamroute.reporting.exploring.changes import extractor_of

__all__ = ["Single", "against", "best", "dearest", "singles"]


@dataclass(frozen=True)
class Single:
    """One classifier for everything: ``cost`` is for all queries, ``price`` for one call; no features are needed."""

    name: str
    price: float
    cost: Fraction
    accuracy: float
    efficient: bool
    extracts: bool

    def summary(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "name": self.name,
            "price": self.price,
            "cost": float(self.cost),
            "accuracy": self.accuracy,
            "efficient": self.efficient,
            "extracts": self.extracts,
        }


def singles(estimate: Estimate, *, penalty: float = 0.0) -> tuple[Single, ...]:
    """Every classifier by itself; one is efficient if no other is at least as good in both and better in one."""
    problem = estimate.problem(0, penalty=penalty)
    units, queries = problem.unit_costs, len(estimate)
    extractor = extractor_of(estimate)
    totals = []
    for column, name in enumerate(estimate.names):
        whole = int(units[0, column]) * queries if units.shape[0] == 1 else int(units[:, column].sum())
        # The extractor's own answer is free once its call is paid as extraction: by itself it is that call.
        totals.append(problem.total(0) if name == extractor else whole * problem.units.size)
    accuracies = estimate.success.mean(axis=0).tolist()
    efficient = _efficient(totals, accuracies)
    return tuple(
        Single(name, float(total / queries), total, accuracy, column in efficient, name == extractor)
        for column, (name, total, accuracy) in enumerate(zip(estimate.names, totals, accuracies, strict=True))
    )


def dearest(alone: Sequence[Single]) -> Single:
    """The one that costs most; of equals the better."""
    return max(alone, key=lambda one: (one.cost, one.accuracy))


def best(alone: Sequence[Single]) -> Single:
    """The one that is expected to be right most often; of equals the cheaper."""
    return max(alone, key=lambda one: (one.accuracy, -one.cost))


def against(one: Single, plan: Plan) -> dict[str, Any]:
    """What a plan saves against one classifier for everything, and how much more often it is expected to be right."""
    saved = one.cost - exact(plan.planned_cost)
    return {
        "name": one.name,
        "cost": float(one.cost),
        "accuracy": one.accuracy,
        "saved": float(saved),
        "share": float(saved / one.cost) if one.cost else 0.0,
        "difference": plan.expected_accuracy - one.accuracy,
    }


def _efficient(costs: Sequence[Fraction], accuracies: Sequence[float]) -> set[int]:
    """The columns that no other beats; of equals the first."""
    found, highest = set(), -math.inf
    for column in sorted(range(len(costs)), key=lambda one: (costs[one], -accuracies[one], one)):
        if accuracies[column] > highest:
            found.add(column)
            highest = accuracies[column]
    return found
