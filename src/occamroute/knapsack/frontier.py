"""The whole frontier of value against cost: one ordering of all hull steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute.knapsack._price import Steps, all_steps
from occamroute.knapsack.problem import Problem

__all__ = ["SupportedPoints", "supported_points"]


@dataclass(frozen=True)
class SupportedPoints:
    """Prefixes of the ordered steps; each is the optimum at its own cost.

    ``cost`` (P,) is exact whole units, overhead not included. ``price`` (P - 1,) is the value per unit of the step
    from each point to the next. ``base`` (N,) is where all start: every query with its cheapest option.
    """

    cost: IntArray
    price: FloatArray
    base: IntArray
    steps: Steps
    order: IntArray

    def totals(self, table: FloatArray) -> FloatArray:
        """The sum over queries of any ``table`` (N, M) at each point."""
        steps = self.steps
        changes = table[steps.row, steps.target] - table[steps.row, steps.source]
        return self._summed(table, changes[self.order])

    def values(self, problem: Problem) -> FloatArray:
        """The same for the values of the problem itself, which the steps know."""
        return self._summed(problem.value, self.price * np.diff(self.cost))

    def _summed(self, table: FloatArray, changes: FloatArray) -> FloatArray:
        start = float(np.take_along_axis(table, self.base[:, None], axis=1).sum())
        return np.append(start, start + np.cumsum(changes))


def supported_points(problem: Problem) -> SupportedPoints:
    """Every point of the frontier that some price supports; the problem's budget plays no part."""
    rows = np.arange(problem.shape[0])
    cost = problem.extra
    base, steps = all_steps(problem.value, cost, rows, stepped=problem.stepped)
    order = steps.order()
    start = problem.cheapest + int(cost[0 if cost.shape[0] == 1 else rows, base].sum())
    return SupportedPoints(
        cost=np.append(start, start + np.cumsum(steps.cost[order])),
        price=steps.ratio[order],
        base=base,
        steps=steps,
        order=order,
    )
