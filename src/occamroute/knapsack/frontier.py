"""The whole frontier of value against cost: one ordering of all hull steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute.knapsack._price import all_steps
from occamroute.knapsack.problem import Problem

__all__ = ["SupportedPoints", "supported_points"]


@dataclass(frozen=True)
class SupportedPoints:
    """Prefixes of the ordered steps; each is the optimum at its own cost.

    ``cost`` (P,) is exact whole units, overhead not included. ``price`` (P,) is the value per unit of the step
    that led there (infinite for the first point, where every query has its cheapest option). ``row``,
    ``source`` and ``target`` (P - 1,) say what each step changes; ``base`` (N,) where all start.
    """

    cost: IntArray
    price: FloatArray
    base: IntArray
    row: IntArray
    source: IntArray
    target: IntArray

    def totals(self, table: FloatArray) -> FloatArray:
        """The sum over queries of ``table`` (N, M) at each point."""
        start = float(np.take_along_axis(table, self.base[:, None], axis=1).sum())
        changes = table[self.row, self.target] - table[self.row, self.source]
        return np.append(start, start + np.cumsum(changes))


def supported_points(problem: Problem) -> SupportedPoints:
    """Every point of the frontier that some price supports; the problem's budget plays no part."""
    rows = np.arange(problem.shape[0])
    cost = problem.unit_costs
    base, steps = all_steps(problem.value, cost, rows)
    order = steps.order()
    start = int(cost[0 if cost.shape[0] == 1 else rows, base].sum())
    return SupportedPoints(
        cost=np.append(start, start + np.cumsum(steps.cost[order])),
        price=np.append(np.inf, steps.ratio[order]),
        base=base,
        row=steps.row[order],
        source=steps.source[order],
        target=steps.target[order],
    )
