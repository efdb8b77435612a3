"""Looking at single queries of a plan: a page of the table, and the receipt of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._money import exact
from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.planning.plans import Plan
from occamroute.reporting.exploring.changes import NO_CHANGES, Changes
from occamroute.reporting.exploring.exploration import Exploration, Scene

__all__ = ["Order", "Search", "queries", "receipt"]

Order = Literal["row", "id", "classifier", "cost", "success", "distance", "reached"]
MOST = 200
# Scores that differ by less are the same but for rounding.
CLOSE = 1e-12


@dataclass(frozen=True)
class Search:
    """Which queries: of a classifier, with a text in their id, label or words; how they are sorted, and which page."""

    classifier: str | None = None
    text: str = ""
    order: Order = "row"
    falling: bool = False
    offset: int = 0
    limit: int = 50

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise UnknownNameError("order", self.order, get_args(Order))
        if self.offset < 0 or not 1 <= self.limit <= MOST:
            raise InvalidInputError(f"a page is 1 to {MOST} queries from 0 on, got {self.limit} from {self.offset}.")


def queries(exploration: Exploration, budget: str, changes: Changes = NO_CHANGES, search: Search | None = None) -> Any:
    """A page of the queries that fit, and how many do."""
    wish = search or Search()
    plan = exploration.plan(budget, changes)
    columns = _columns(exploration, plan, changes)
    found = _found(exploration, plan, wish)
    order = columns.get(wish.order)
    if wish.order != "row" and order is not None:
        found = found[np.argsort(order[found], kind="stable")]
    if wish.falling:
        found = found[::-1]
    page = found[wish.offset : wish.offset + wish.limit]
    lists = {name: column[page].tolist() for name, column in columns.items()}
    labels, previews = exploration.labels, exploration.previews
    rows = [
        {"row": int(row), "label": None if labels is None else labels[row]}
        | ({} if previews is None else previews.short(plan.ids[row]))
        | {name: column[place] for name, column in lists.items()}
        for place, row in enumerate(page)
    ]
    return {"total": int(found.size), "rows": rows}


def receipt(exploration: Exploration, row: int, budget: str, changes: Changes = NO_CHANGES) -> dict[str, Any]:
    """Why a query goes where it goes: every estimate with its cost and score, its neighbours, what would change it."""
    plan, scene = exploration.plan(budget, changes), exploration.scene(changes)
    if not 0 <= row < len(plan):
        raise InvalidInputError(f"queries are numbered from 0 to {len(plan) - 1}, got {row}.")
    problem, chosen = plan.problem, int(plan.choice[row])
    costs = problem.cost if problem.cost.ndim == 1 else problem.cost[row]
    scores = problem.value[row] - plan.price * costs
    surroundings, previews = exploration.surroundings, exploration.previews
    truth = None if exploration.truth is None else exploration.truth[row, exploration.columns(changes)]
    overhead = exact(problem.overhead)
    near = [] if surroundings is None else surroundings.near(row)
    if previews is not None:
        near = [one | previews.short(one["id"]) for one in near]
    return {
        **({} if previews is None else previews.of(plan.ids[row])),
        "row": row,
        "id": plan.ids[row],
        "label": None if exploration.labels is None else exploration.labels[row],
        "classifier": plan.names[chosen],
        "price": plan.price,
        "overhead": float(overhead),
        "sentence": _sentence(plan, scores, chosen),
        "estimates": [
            {
                "classifier": name,
                "success": float(scene.estimate.success[row, option]),
                "cost": float(exact(float(costs[option])) + overhead),
                "score": float(scores[option]),
                "chosen": option == chosen,
                "reached": None if truth is None else float(truth[option]),
            }
            for option, name in enumerate(plan.names)
        ],
        "flips": _flips(scene, plan, costs, row),
        "neighbours": near,
        "features": [] if surroundings is None else surroundings.features(row),
        "distance": None if scene.estimate.distance is None else float(scene.estimate.distance[row]),
    }


def _columns(exploration: Exploration, plan: Plan, changes: Changes) -> dict[str, Any]:
    """Columns (N,) by which the table is shown and sorted."""
    columns: dict[str, Any] = plan.assignment()
    if exploration.estimate.distance is not None:
        columns["distance"] = exploration.estimate.distance
    if exploration.truth is not None:
        columns["reached"] = exploration.truth[np.arange(len(plan)), exploration.columns(changes)[plan.choice]]
    return columns


def _found(exploration: Exploration, plan: Plan, wish: Search) -> IntArray:
    fits = np.ones(len(plan), np.bool_)
    if wish.classifier is not None:
        if wish.classifier not in plan.names:
            raise UnknownNameError("classifier", wish.classifier, plan.names)
        fits &= plan.choice == plan.names.index(wish.classifier)
    if wish.text:
        needle = wish.text.casefold()
        labels, previews = exploration.labels or [None] * len(plan), exploration.previews
        texts = [""] * len(plan) if previews is None else [previews.of(name).get("text", "") for name in plan.ids]
        known = zip(plan.ids, labels, texts, strict=True)
        fits &= np.array([needle in f"{name}\n{label or ''}\n{text}".casefold() for name, label, text in known])
    return np.flatnonzero(fits)


def _sentence(plan: Plan, scores: FloatArray, chosen: int) -> str:
    """Why this one, in words."""
    name, top = plan.names[chosen], int(np.argmax(scores))
    if plan.problem.objective == "min":
        return f"{name} was chosen so that the worst query is as good as the budget allows."
    if plan.price == 0.0:
        return f"Money is not short at this budget: {name} has the highest estimate."
    if scores[chosen] >= scores[top] - CLOSE:
        return f"{name} has the highest score: its estimate less the price of money times what it costs."
    return (
        f"{plan.names[top]} has the highest score; {name} uses up the rest of the budget, "
        f"{scores[top] - scores[chosen]:.2g} below it."
    )


def _flips(scene: Scene, plan: Plan, costs: FloatArray, row: int) -> list[dict[str, Any]] | None:
    """Where other classifiers would take over: above a budget, or below a price of theirs.

    None where nobody knows: a plan for the worst query follows no price alone.
    """
    if plan.problem.objective == "min":
        return None
    value, chosen = plan.problem.value[row], int(plan.choice[row])
    score = float(value[chosen] - plan.price * costs[chosen])
    found = []
    for option, name in enumerate(plan.names):
        better, dearer = float(value[option] - value[chosen]), float(costs[option] - costs[chosen])
        if option == chosen or better <= 0.0:
            continue
        if dearer > 0.0:
            budget = _budget_at(scene, value, costs, better / dearer, option)
            if budget is not None and exact(budget) > exact(plan.budget):
                found.append({"classifier": name, "kind": "budget", "above": budget})
        if plan.price > 0.0:
            limit = (float(value[option]) - score) / plan.price
            if 0.0 < limit < costs[option]:
                found.append({"classifier": name, "kind": "cost", "below": limit})
    return found


def _budget_at(scene: Scene, value: FloatArray, costs: FloatArray, price: float, option: int) -> float | None:
    """The budget at which money becomes so cheap, if the query then goes to that option and to no third one."""
    scores = value - price * costs
    if scores[option] < scores.max() - CLOSE:
        return None
    prices = scene.frontier.prices  # falling; the last is 0
    # The query's own step is taken there, though its ratio may differ from this one by rounding.
    place = int(np.searchsorted(-prices, -price * (1.0 - 1e-9), side="right"))
    return float(scene.frontier.budgets[min(place, len(prices) - 1)])
