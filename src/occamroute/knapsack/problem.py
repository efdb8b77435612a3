"""The multiple-choice knapsack: one option for each query, highest total value, cost within a budget."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from occamroute._arrays import FloatArray, IntArray, cost_array, value_matrix
from occamroute._money import Amount, Units, exact, money, rounded_up, units_for
from occamroute.errors import BudgetTooSmallError, UnknownNameError
from occamroute.knapsack._grid import common_step, far_from_grid
from occamroute.knapsack._price import FEW_ROWS, Hull, all_steps

__all__ = ["Objective", "Problem", "Solution", "Terms", "relative_gap"]

Objective = Literal["mean", "min"]

# What every solver looks at, and no budget changes.
SHARED = ("units", "unit_costs", "extra", "step", "cheapest")


class Terms(ABC):
    """What is asked, but for the values: costs, a budget, and what solvers must know of values that they do not see."""

    cost: FloatArray
    budget: Amount
    objective: Objective
    overhead: Amount

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """The number of queries and of options."""

    @property
    @abstractmethod
    def step(self) -> tuple[int, float] | None:
        """``(q, deviation)`` if every value is a multiple of 1/q but for rounding, else None."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest absolute value."""

    @cached_property
    def units(self) -> Units:
        """The costs in whole units."""
        return units_for(self.cost, queries=self.shape[0], overhead=self.overhead)

    @cached_property
    def unit_costs(self) -> IntArray:
        """The costs in whole units as (1, M) or (N, M)."""
        return np.atleast_2d(self.units.cost)

    @cached_property
    def room(self) -> int:
        """The whole units left for choices once every query's overhead is paid; negative if it cannot be."""
        budget = self.units.floor(exact(self.budget)) - self.units.overhead * self.shape[0]
        # More than the dearest choice for everything buys nothing more, and could overflow.
        return min(budget, int(self.unit_costs.max()) * self.shape[0])

    @cached_property
    def extra(self) -> IntArray:
        """What each option costs above its query's cheapest, in whole units, (1, M) or (N, M).

        Solvers see these alone: huge costs that all options share, or that nobody can pay, hide nothing.
        """
        return np.ascontiguousarray(self.unit_costs - self.unit_costs.min(axis=1, keepdims=True))

    @property
    def spare(self) -> int:
        """The whole units left once every query has its cheapest option; negative if they cannot."""
        return self.room - self.cheapest

    @property
    def stepped(self) -> bool:
        """Whether the values have a common step."""
        return self.step is not None

    @property
    def rounding(self) -> float:
        """A difference between two scores ``value - price · extra cost`` that may be mere rounding.

        Whatever the price, an option that is anywhere near a query's best loses no more than some values' worth to
        its cost, since the query's cheapest option loses nothing.
        """
        return 4e-15 * self.largest

    @property
    def least_gain(self) -> float:
        """What one choice's total is above another's at least, if it is above it by more than rounding."""
        return (1.0 - 1e-6) / self.step[0] if self.step is not None else 4.0 * self.shape[0] * self.rounding

    @property
    def tie(self) -> float:
        """A difference between two choices' totals that counts as none."""
        return self.rounding if self.step is None else 0.5 / self.step[0]

    def total(self, units: int) -> Fraction:
        """An amount of whole units with every query's overhead added, exactly."""
        return (units + self.units.overhead * self.shape[0]) * self.units.size

    @cached_property
    def cheapest(self) -> int:
        """What the cheapest option of every query costs in whole units, overhead not included."""
        least = self.unit_costs.min(axis=1)
        return int(least[0]) * self.shape[0] if least.size == 1 else int(least.sum())

    def cost_of(self, units: int) -> float:
        """The same as a float, which never means more than the budget if the amount is not above it."""
        total = self.total(units)
        amount = float(total)
        while exact(amount) > exact(self.budget) >= total:
            amount = math.nextafter(amount, 0.0)
        return amount

    def require(self) -> None:
        """Raise unless the budget pays for the cheapest option of every query."""
        if self.cheapest > self.room:
            raise BudgetTooSmallError(self.budget, rounded_up(self.total(self.cheapest)))


@dataclass(frozen=True, eq=False)
class Problem(Terms):
    """What is to be solved.

    ``value`` (N, M) is any finite numbers, ``cost`` (M,) or (N, M) is ≥ 0, ``budget`` is the total for all N
    queries, and ``overhead`` a fixed cost that each query bears whatever is chosen.
    """

    value: FloatArray
    cost: FloatArray
    budget: Amount
    objective: Objective = "mean"
    overhead: Amount = field(default=0)

    def __post_init__(self) -> None:
        value = value_matrix(self.value)
        cost = cost_array(self.cost, options=value.shape[1], rows=value.shape[0], name="cost")
        money(self.budget, "budget")
        money(self.overhead, "overhead")
        if self.objective not in get_args(Objective):
            raise UnknownNameError("objective", self.objective, get_args(Objective))
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "cost", cost)

    def within(self, budget: Amount) -> Problem:
        """The same problem with another budget; what does not depend on that is made once for both."""
        money(budget, "budget")
        shared = {name: getattr(self, name) for name in (*self.__dataclass_fields__, *SHARED)}
        made = object.__new__(Problem)
        made.__dict__.update(shared | {"budget": budget, "_origin": self.__dict__.get("_origin", self)})
        return made

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries and of options."""
        return self.value.shape[0], self.value.shape[1]

    @cached_property
    def step(self) -> tuple[int, float] | None:
        """``(q, deviation)`` if every value is a multiple of 1/q but for rounding, else None."""
        flat = self.value.reshape(-1)

        def off_grid(denominator: int, allowed: float) -> tuple[float, FloatArray]:
            return far_from_grid(flat, denominator, allowed)

        return common_step(flat[:: max(1, flat.size // 256)], self.largest, off_grid)

    @cached_property
    def largest(self) -> float:
        """The largest absolute value."""
        return max(abs(float(self.value.max())), abs(float(self.value.min())))

    @cached_property
    def hull(self) -> Hull | None:
        """Every query's steps from option to option, which no budget changes; None where they are too many to keep."""
        if self.shape[0] > FEW_ROWS:
            return None
        origin: Problem | None = self.__dict__.get("_origin")
        if origin is not None:
            return origin.hull
        return all_steps(self.value, self.extra, np.arange(self.shape[0]), stepped=self.stepped)

    def paid(self, choice: IntArray) -> int:
        """What a choice costs in whole units, overhead not included."""
        costs = self.unit_costs
        if costs.shape[0] == 1:
            counts = np.bincount(choice, minlength=costs.shape[1])
            return sum(int(count) * int(cost) for count, cost in zip(counts, costs[0], strict=True))
        # A sum of N costs stays below 2**62: that is how the unit was chosen.
        return int(np.take_along_axis(costs, choice[:, None], axis=1).sum())


@dataclass(frozen=True, eq=False)
class Solution:
    """One option for each query, with a certificate that anyone can check.

    ``value`` and ``bound`` are sums over queries; for the objective ``min`` they are the worst query's value,
    and ``mean_bound`` bounds the mean among the plans that reach it. No plan within the budget is above
    ``bound``, which follows from ``price`` alone (``certificate.py``). ``status`` is "optimal" when the search
    proved that no better choice exists, and "within gap" when it stopped at the stated gap.
    """

    choice: IntArray
    value: float
    cost: float
    bound: float
    gap: float
    price: float
    status: Literal["optimal", "within gap"]
    mean_bound: float


def relative_gap(bound: float, value: float) -> float:
    """How far the bound is above the value, relative to the value; 0 when equal."""
    return 0.0 if bound == value else (bound - value) / max(abs(value), 1e-12)
