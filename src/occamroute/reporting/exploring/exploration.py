"""Exploration: an estimate, asked again and again with other budgets, classifiers and prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._money import Amount, exact, money_from_text, rounded_up
from occamroute.errors import BudgetTooSmallError, InvalidInputError
from occamroute.knapsack import Objective
from occamroute.knapsack.frontier import supported_points
from occamroute.planning.estimates import Estimate
from occamroute.planning.frontiers import Frontier
from occamroute.planning.plans import Plan
from occamroute.reporting.exploring.changes import NO_CHANGES, Changes, changed
from occamroute.reporting.exploring.previews import Previews
from occamroute.reporting.exploring.singles import Single, against, best, dearest, singles
from occamroute.reporting.exploring.surroundings import Surroundings

__all__ = ["Exploration", "Scene"]

# Points of a frontier that are drawn, and budgets at which everything is solved for tables and areas.
DRAWN, SWEPT = 240, 24
# Plans and frontiers that are kept: a look at some queries of a plan must not solve it again.
PLANS, SCENES = 8, 12
# Budgets that span more than this are drawn on a logarithmic axis.
WIDE = 12.0


@dataclass(frozen=True, eq=False)
class Scene:
    """What does not depend on the budget: the estimate after some changes, its frontier, each classifier alone."""

    estimate: Estimate
    frontier: Frontier
    reached: FloatArray | None
    singles: tuple[Single, ...]

    @property
    def least(self) -> str:
        """The least budget, as a decimal that pays for it."""
        return str(rounded_up(exact(self.frontier.least)))

    @property
    def most(self) -> float:
        """The budget beyond which nothing is gained."""
        return float(self.frontier.budgets[-1])

    @property
    def wide(self) -> bool:
        """Whether budgets are better drawn on a logarithmic axis."""
        first = float(self.frontier.budgets[0])
        return first > 0.0 and self.most > WIDE * first


@dataclass(frozen=True, eq=False)
class Exploration:
    """An estimate to look at: every number is one of ``Estimate.plan`` or ``Estimate.frontier``.

    ``truth`` (N, M) is what really happens, where it is known: it takes no part in any plan. ``labels`` (N,) are the
    queries' own. ``surroundings`` are the labelled rows that estimates came from, ``previews`` what queries
    look like. ``weights`` (M,) is the extractor's share in each answer, where the estimates are those of combined
    answers. ``about`` says in words what all this was made from.
    """

    estimate: Estimate
    truth: FloatArray | None = None
    labels: Sequence[str | None] | None = None
    surroundings: Surroundings | None = None
    previews: Previews | None = None
    weights: FloatArray | None = None
    penalty: float = 0.0
    objective: Objective = "mean"
    seed: int = 0
    about: dict[str, Any] = field(default_factory=dict)

    def scene(self, changes: Changes = NO_CHANGES) -> Scene:
        """Everything that does not depend on the budget, kept between moves."""
        return self._scenes(changes)  # type: ignore[no-any-return]

    def plan(self, budget: Amount | str, changes: Changes = NO_CHANGES) -> Plan:
        """What ``estimate.plan(budget)`` gives after the changes; a text is the decimal that somebody typed."""
        amount = money_from_text(budget) if isinstance(budget, str) else budget
        return self._plans(changes, amount)  # type: ignore[no-any-return]

    def at(self, budget: Amount | str, changes: Changes = NO_CHANGES) -> dict[str, Any]:
        """The plan in numbers; where none can be made, one sentence and the least budget."""
        scene = self.scene(changes)
        try:
            plan = self.plan(budget, changes)
        except (BudgetTooSmallError, InvalidInputError) as error:
            return {"budget": str(budget), "refused": str(error), "least": scene.least}
        return {
            "budget": str(budget),
            "amount": float(plan.budget),  # digits are not written alike everywhere
            **self._numbers(plan, changes),
            "dearest": against(dearest(scene.singles), plan),
            "best": against(best(scene.singles), plan),
        }

    def frontier(self, changes: Changes = NO_CHANGES) -> dict[str, Any]:
        """The frontier to be drawn: budgets, accuracies, what is reached where that is known; and its ends."""
        scene = self.scene(changes)
        front = scene.frontier
        drawn = _drawn(front.budgets, wide=scene.wide)
        return {
            "budgets": front.budgets[drawn].tolist(),
            "accuracies": front.accuracies[drawn].tolist(),
            "reached": None if scene.reached is None else scene.reached[drawn].tolist(),
            "points": len(front),
            "least": scene.least,
            "most": scene.most,
            "wide": scene.wide,
            "classifiers": [one.summary() for one in scene.singles],
        }

    def sweep(self, changes: Changes = NO_CHANGES, count: int = SWEPT) -> list[dict[str, Any]]:
        """The plan at budgets from the least to the most, each solved."""
        scene = self.scene(changes)
        first, last = float(scene.least), scene.most
        spread = np.geomspace(first, last, count) if scene.wide else np.linspace(first, last, count)
        middle = [float(f"{budget:.4g}") for budget in spread[1:-1]]
        inside = sorted({budget for budget in middle if first < budget < last})
        budgets = [scene.least, *map(repr, inside), *([repr(last)] if last > first else [])]
        return [{"budget": budget, **self._numbers(self.plan(budget, changes), changes)} for budget in budgets]

    def _numbers(self, plan: Plan, changes: Changes) -> dict[str, Any]:
        return {
            "expected_accuracy": plan.expected_accuracy,
            "planned_cost": plan.planned_cost,
            "value": plan.value,
            "bound": plan.bound,
            "gap": plan.gap,
            "price": plan.price,
            "status": plan.status,
            "usage": plan.usage,
            "reached": self.reached(plan, changes),
        }

    def reached(self, plan: Plan, changes: Changes = NO_CHANGES) -> float | None:
        """The share of queries that the plan's classifiers really get right, where that is known."""
        if self.truth is None:
            return None
        columns = self.columns(changes)[plan.choice]
        return float(self.truth[np.arange(len(plan)), columns].mean())

    def columns(self, changes: Changes = NO_CHANGES) -> IntArray:
        """Where the classifiers that are left stand in the estimate as it was given, (M,)."""
        names = self.estimate.names
        return np.array([column for column, name in enumerate(names) if name not in changes.dropped], np.int64)

    @cached_property
    def _scenes(self) -> Any:
        return lru_cache(maxsize=SCENES)(self._scene)

    @cached_property
    def _plans(self) -> Any:
        return lru_cache(maxsize=PLANS)(self._plan)

    def _scene(self, changes: Changes) -> Scene:
        estimate = self.estimate if changes == NO_CHANGES else changed(self.estimate, changes)
        front = estimate.frontier(penalty=self.penalty, seed=self.seed)
        reached = None
        if self.truth is not None:
            points = supported_points(estimate.problem(0, penalty=self.penalty))
            reached = points.totals(self.truth[:, self.columns(changes)]) / len(estimate)
        return Scene(estimate, front, reached, singles(estimate, penalty=self.penalty))

    def _plan(self, changes: Changes, budget: Amount) -> Plan:
        estimate = self.scene(changes).estimate
        plan = estimate.plan(budget, objective=self.objective, penalty=self.penalty, seed=self.seed)
        return plan if self.weights is None else replace(plan, weights=self.weights[self.columns(changes)])


def _drawn(budgets: FloatArray, *, wide: bool) -> IntArray:
    """Which points to draw: spread over the axis, the ends included."""
    if len(budgets) <= DRAWN:
        return np.arange(len(budgets))
    first, last = budgets[0], budgets[-1]
    wanted = np.geomspace(first, last, DRAWN) if wide else np.linspace(first, last, DRAWN)
    return np.unique(np.append(np.minimum(np.searchsorted(budgets, wanted), len(budgets) - 1), [0, len(budgets) - 1]))
