"""The certificate: why no plan within the budget can be better, checked from first principles.

For any price ``p ≥ 0``, a choice within the budget B is worth at most ``Σ_j max_i (value_ji - p · cost_ji) + p · B``
(Lagrange; cost and budget are counted from each query's cheapest option). The solver states the price at which this
bound is lowest. If all values are multiples of some 1/q, so is every total, and the bound falls to the next multiple.
For the objective ``min``, the worst query cannot reach the next higher value because the cheapest options with such
values cost more than the budget.

What is left between that bound and the value, a search can close: a better choice may only deviate from the best
at the price by options that lose less than what is left, and they are few. A bound equal to the value states that
none of their combinations is better; ``_nothing_better`` goes through them again.

Nothing here calls a solver: ``check`` recomputes cost, value and bound from the problem, the choice and the price.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._money import exact
from occamroute.errors import CertificateError
from occamroute.knapsack.problem import Problem, Terms, relative_gap

__all__ = ["Certificate", "bound_from", "check"]

BLOCK = 1 << 14
# Stated and recomputed numbers are sums of the same terms in another order.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Certificate:
    """What a solution states of itself, in the terms of ``Solution``."""

    value: float
    cost: float
    bound: float
    gap: float
    price: float
    mean_bound: float


def bound_from(problem: Terms, best: float, price: float, value: float) -> float:
    """The bound on the total that the best scores' sum at a price per unit gives, rounded safely up."""
    queries = problem.shape[0]
    slack = queries * problem.rounding
    bound = best + price * problem.spare + slack
    if problem.step is not None:
        denominator, deviation = problem.step
        bound = min(bound, math.floor(bound * denominator + 1e-9) / denominator + deviation * queries + slack)
    # Closer than rounding can tell: the value is its own bound.
    return value if bound <= value + 4.0 * slack + 2.0 * queries * (problem.step or (1, 0.0))[1] else bound


def check(problem: Problem, choice: IntArray, stated: Certificate) -> None:
    """Raise ``CertificateError`` unless everything stated follows from the problem, the choice and the price."""
    _check_choice(problem, choice)
    paid = sum(int(units) for units in _chosen(problem.unit_costs, choice))
    if paid > problem.room:
        raise CertificateError("cost", f"at most {problem.budget}", problem.cost_of(paid))
    if problem.cost_of(paid) != stated.cost:
        raise CertificateError("cost", stated.cost, problem.cost_of(paid))
    chosen = _chosen(problem.value, choice)
    total = math.fsum(chosen)
    worst = float(min(chosen))
    allowed = _allowed(problem, worst)
    price = _price_per_unit(problem, stated.price)
    best, least, most = _at_price(problem, allowed, price)
    if least > problem.spare or (price > 0.0 and most <= problem.spare):
        raise CertificateError("price", stated.price, "another price at which spending meets the budget")
    bound = bound_from(problem, best, price, total)
    proposed = stated.bound if problem.objective == "mean" else stated.mean_bound * problem.shape[0]
    if bound > total and _close(proposed, total) and not _close(proposed, bound):
        if not _nothing_better(problem, allowed, price, total):
            raise CertificateError("bound", proposed, "a better choice within the budget")
        bound = total
    queries = problem.shape[0]
    if problem.objective == "mean":
        _same("value", stated.value, total)
        _same("bound", stated.bound, bound)
    else:
        _same("value", stated.value, worst)
        _same("bound", stated.bound, worst)
    _same("gap", stated.gap, relative_gap(stated.bound, stated.value))
    _same("mean_bound", stated.mean_bound, bound / queries)


def _check_choice(problem: Problem, choice: IntArray) -> None:
    queries, options = problem.shape
    if not isinstance(choice, np.ndarray):
        raise CertificateError("choice", f"a {type(choice).__name__}", f"an array of {queries} whole numbers")
    if choice.shape != (queries,) or choice.dtype.kind not in "iu":
        raise CertificateError("choice", f"{choice.dtype} of shape {choice.shape}", f"{queries} whole numbers")
    if int(choice.min()) < 0 or int(choice.max()) >= options:
        raise CertificateError("choice", f"option {int(choice.max())}", f"options 0 to {options - 1}")


def _chosen(table: Any, choice: IntArray) -> Any:
    rows = np.zeros_like(choice) if table.shape[0] == 1 else np.arange(choice.size)
    return table[rows, choice]


def _price_per_unit(problem: Problem, price: float) -> float:
    if not (math.isfinite(price) and price >= 0.0):
        raise CertificateError("price", price, "a finite price ≥ 0")
    return float(exact(price) * problem.units.size)


def _allowed(problem: Problem, worst: float) -> FloatArray:
    """The values that count: all of them, or for ``min`` those no lower than the worst chosen one.

    For ``min``, first make sure that the worst query cannot do better.
    """
    if problem.objective == "mean":
        return problem.value
    higher = problem.value > worst
    if bool(higher.any(axis=1).all()):
        needed = _cheapest(problem, higher)
        if needed <= problem.spare:
            better = float(problem.value[higher].min())
            raise CertificateError("value", worst, f"at least {better}, within the budget")
    return np.where(problem.value >= worst, problem.value, -np.inf)


def _cheapest(problem: Problem, allowed: Any) -> int:
    never = np.iinfo(np.int64).max
    return sum(int(units) for units in np.where(allowed, problem.extra, never).min(axis=1))


def _at_price(problem: Problem, value: FloatArray, price: float) -> tuple[float, int, int]:
    """The sum of the best scores, and the least and most that options with the best score cost."""
    costs = np.broadcast_to(problem.extra, value.shape)
    best_sum: list[float] = []
    least = most = 0
    near = 1000.0 * problem.rounding
    for start in range(0, value.shape[0], BLOCK):
        block = costs[start : start + BLOCK]
        score = value[start : start + BLOCK] - price * block
        best = score.max(axis=1, keepdims=True)
        tied = score >= best - near
        best_sum.append(math.fsum(best[:, 0]))
        least += int(np.where(tied, block, np.iinfo(np.int64).max).min(axis=1).sum())
        most += int(np.where(tied, block, -1).max(axis=1).sum())
    return math.fsum(best_sum), least, most


def _nothing_better(problem: Problem, value: FloatArray, price: float, total: float) -> bool:
    """Whether no choice within the budget is worth more than ``total``, by going through all that could be."""
    costs = np.broadcast_to(problem.extra, value.shape)
    score = value - price * costs
    loss = score.max(axis=1, keepdims=True) - score
    rows = np.arange(value.shape[0])
    base = np.where(loss <= problem.rounding, costs, np.iinfo(np.int64).max).argmin(axis=1)
    room = problem.spare - sum(int(units) for units in costs[rows, base])
    missing = total + problem.least_gain - math.fsum(value[rows, base])
    most_lost = price * room - missing
    loss[rows, base] = np.inf
    near = np.flatnonzero(loss.min(axis=1) <= most_lost)
    # States: (change of cost, change of value) against the base, none of them dominated.
    spent, gained = np.zeros(1, np.int64), np.zeros(1)
    for row in near[np.argsort(loss[near].min(axis=1))]:
        options = np.append(base[row], np.flatnonzero(loss[row] <= most_lost))
        spent = (spent[:, None] + (costs[row, options] - costs[row, base[row]])).reshape(-1)
        gained = (gained[:, None] + (value[row, options] - value[row, base[row]])).reshape(-1)
        order = np.lexsort((-gained, spent))
        spent, gained = spent[order], gained[order]
        before = np.append(-np.inf, np.maximum.accumulate(gained)[:-1])
        kept = (gained > before + problem.tie) & (price * spent - gained <= most_lost)
        spent, gained = spent[kept], gained[kept]
    return not bool(((spent <= room) & (gained >= missing)).any())


def _close(stated: float, found: float) -> bool:
    return math.isclose(stated, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _same(field: str, stated: float, found: float) -> None:
    if not _close(stated, found):
        raise CertificateError(field, stated, found)
