"""Max–min: first raise the worst query as far as the budget allows, then the sum."""

from __future__ import annotations

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.knapsack.problem import Problem

__all__ = ["restrict"]


def restrict(problem: Problem) -> FloatArray:
    """The values with every option below the best reachable worst value at -inf.

    That worst value is the largest threshold such that the cheapest options no lower than it fit the budget.
    One hopeless query sets it: no threshold can be above the best that any single query can reach.
    """
    value, costs = problem.value, problem.extra
    reachable = float(value.max(axis=1).min())
    thresholds = np.unique(value[value <= reachable])
    # The lowest threshold allows everything, and everything's cheapest fits. Halve between it and the top.
    low, high = 0, thresholds.size
    never = np.iinfo(np.int64).max
    while high - low > 1:
        middle = (low + high) // 2
        cheapest = np.where(value >= thresholds[middle], costs, never).min(axis=1)
        if int(cheapest.sum()) <= problem.spare:
            low = middle
        else:
            high = middle
    return np.where(value >= thresholds[low], value, -np.inf)
