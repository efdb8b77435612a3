"""Frontier: the highest expected accuracy at every budget at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._money import Amount, exact, from_text, money, rounded_up
from occamroute.charts.cards import card
from occamroute.charts.pictures import frontier_chart
from occamroute.charts.words import brief
from occamroute.errors import BudgetTooSmallError, InvalidInputError
from occamroute.knapsack import Problem
from occamroute.knapsack.frontier import supported_points
from occamroute.planning.plans import Plan
from occamroute.storage import Parts

__all__ = ["Frontier", "make_frontier"]


@dataclass(frozen=True, eq=False, repr=False)
class Frontier:
    """The supported points of accuracy against budget: each is the optimum at its own cost.

    ``budgets`` (P,) rise, feature extraction included; ``accuracies`` (P,) are mean estimates (never penalised);
    ``prices`` (P,) are what the next unit of money buys in right answers, 0 at the end. Between two points the
    straight line is only an upper bound, which is what ``bound`` gives; ``plan`` gives the optimum itself.
    ``least`` is the least budget, exactly.
    """

    budgets: FloatArray
    accuracies: FloatArray
    prices: FloatArray
    values: FloatArray
    n_queries: int
    least: Amount
    planner: Callable[[Amount], Plan] | None = None

    def __len__(self) -> int:
        return int(self.budgets.size)

    def __repr__(self) -> str:
        ends = f"{self.budgets[0]:.6g} to {self.budgets[-1]:.6g}"
        return f"Frontier({len(self)} points for {self.n_queries} queries, budgets {ends})"

    def _repr_html_(self) -> str:
        facts = [
            ("queries", f"{self.n_queries:,}"),
            ("budgets", f"{brief(float(self.budgets[0]))} to {brief(float(self.budgets[-1]))}"),
            ("supported points", f"{len(self):,}"),
        ]
        picture = frontier_chart(*self.spread(200).points())
        return card("Frontier", facts, picture, note="Means of chosen estimates: optimistic, no interval known.")

    def bound(self, budget: Amount) -> float:
        """No plan within this budget has a higher mean (penalised) value."""
        if money(budget) < exact(self.least):
            raise BudgetTooSmallError(budget, rounded_up(exact(self.least)))
        at = min(int(np.searchsorted(self.budgets, float(budget), side="right")), len(self)) - 1
        if at < 0 or at + 1 == len(self):
            return float(self.values[at])
        # The next unit of money buys no more than the price says, nor all together more than the next point has.
        ahead = self.values[at] + self.prices[at] * (float(budget) - self.budgets[at]) / self.n_queries
        return float(min(ahead, self.values[at + 1]))

    def plan(self, budget: Amount) -> Plan:
        """The same plan as ``Estimate.plan`` at this budget."""
        if self.planner is None:
            raise InvalidInputError(
                "a frontier read from a file holds its points alone: plan with the estimate it came from."
            )
        return self.planner(budget)

    def points(self) -> tuple[FloatArray, FloatArray]:
        """Budgets and accuracies, to be drawn."""
        return self.budgets, self.accuracies

    def spread(self, count: int) -> Frontier:
        """About ``count`` of the points, evenly spread over the budgets, the ends included."""
        wanted = np.linspace(self.budgets[0], self.budgets[-1], count)
        index = np.unique(np.minimum(np.searchsorted(self.budgets, wanted), len(self) - 1))
        return replace(
            self,
            budgets=self.budgets[index],
            accuracies=self.accuracies[index],
            prices=self.prices[index],
            values=self.values[index],
        )

    def rows(self) -> list[dict[str, float]]:
        """The points as dictionaries, for JSON."""
        columns = zip(self.budgets.tolist(), self.accuracies.tolist(), self.prices.tolist(), strict=True)
        return [{"budget": budget, "accuracy": accuracy, "price": price} for budget, accuracy, price in columns]

    def parts(self) -> Parts:
        """The frontier as one table, a row for each point."""
        columns = {
            "budget": self.budgets,
            "accuracy": self.accuracies,
            "price": self.prices,
            "value": self.values,
        }
        return Parts("frontier", columns, {"n_queries": self.n_queries, "least": str(self.least)})

    @classmethod
    def from_parts(cls, parts: Parts) -> Frontier:
        """The frontier that ``parts`` was made of; it no longer plans."""
        columns = parts.columns
        return cls(
            budgets=columns["budget"],
            accuracies=columns["accuracy"],
            prices=columns["price"],
            values=columns["value"],
            n_queries=parts.metadata["n_queries"],
            least=from_text(parts.metadata["least"]),
        )


def make_frontier(problem: Problem, success: FloatArray, planner: Callable[[Amount], Plan]) -> Frontier:
    """The frontier of a problem; its budget plays no part, ``success`` (N, M) is never penalised."""
    points = supported_points(problem)
    queries = problem.shape[0]
    values = points.values(problem) / queries
    same = success is problem.value
    return Frontier(
        budgets=problem.units.floats(points.cost + problem.units.overhead * queries),
        accuracies=values if same else points.totals(success) / queries,
        prices=np.append(points.price, 0.0) / float(problem.units.size),
        values=values,
        n_queries=queries,
        least=problem.total(problem.cheapest),
        planner=planner,
    )
