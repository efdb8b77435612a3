"""The price that makes queries like the profile's cost so much each."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute.knapsack import Problem
from occamroute.knapsack.frontier import supported_points

__all__ = ["Price", "Prices", "choose"]

# Scores closer than this are equal: a price is a quotient of the very numbers that it is then multiplied with.
CLOSE = 1e-9
# No answer is worth a unit of money: everybody gets the cheapest.
HIGHEST = 1e30


class Price(NamedTuple):
    """What a unit of money is worth in right answers; ``share`` is how often the dearer of two equals is bought."""

    value: float
    share: float = 0.0


@dataclass(frozen=True, eq=False)
class Prices:
    """The frontier of a profile as a function from money a query to a price.

    ``costs`` (P,) are what a query costs on average at each point of the frontier, rising; ``values`` (P - 1,) the
    price of the way from each to the next, falling; ``accuracies`` (P,) the mean of the estimates there.
    """

    costs: FloatArray
    values: FloatArray
    accuracies: FloatArray = field(repr=False)

    @classmethod
    def of(cls, success: FloatArray, costs: FloatArray) -> Prices:
        """From estimated success (n, M) on rows that the estimator did not see, and costs (M,)."""
        problem = Problem(success, costs, 0)
        points = supported_points(problem)
        mean = problem.units.floats(points.cost) / len(success)
        accuracy = points.values(problem) / len(success)
        # Steps at one price are taken together: which of them come first is chance.
        changes = np.flatnonzero(np.diff(points.price)) + 1
        ends = np.unique(np.concatenate([[0], changes, [points.price.size]]))
        return cls(mean[ends], points.price[ends[1:] - 1] / float(problem.units.size), accuracy[ends])

    def at(self, rate: float) -> Price:
        """The price at which a query costs ``rate`` on average; 0 where everything is affordable."""
        if rate >= self.costs[-1]:
            return Price(0.0)
        if rate <= self.costs[0]:
            return Price(HIGHEST)
        step = int(np.searchsorted(self.costs, rate, side="right")) - 1
        low, high = self.costs[step], self.costs[step + 1]
        return Price(float(self.values[step]), float((rate - low) / (high - low)))

    @cached_property
    def _falling(self) -> FloatArray:
        return -self.values

    def cost_at(self, price: Price) -> float:
        """What a query costs on average at a price."""
        if self.values.size == 0 or price.value > self.values[0]:
            return float(self.costs[0])
        if price.value <= 0.0:
            return float(self.costs[-1])
        # Prices fall: the first step that is no longer dearer is the one that is partly taken.
        step = int(np.searchsorted(self._falling, -price.value, side="left"))
        if step >= self.values.size:
            return float(self.costs[-1])
        if self.values[step] < price.value:
            return float(self.costs[step])
        return float(self.costs[step] + price.share * (self.costs[step + 1] - self.costs[step]))


def choose(success: FloatArray, costs: FloatArray, price: Price, coins: FloatArray) -> IntArray:
    """For each query (N, M) the classifier with the highest ``success - price · cost``, (N,).

    Where several are equal, a coin below the price's share buys the dearest of them, any other the cheapest.
    """
    scores = success - price.value * costs
    equal = scores >= scores.max(axis=-1, keepdims=True) - CLOSE
    dearest = np.where(equal, costs, -np.inf).argmax(axis=-1)
    cheapest = np.where(equal, costs, np.inf).argmin(axis=-1)
    return np.asarray(np.where(coins < price.share, dearest, cheapest))
