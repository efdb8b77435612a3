"""The certificate: why no plan within the budget can be better, checked from first principles.

For any price ``p ≥ 0``, a choice within the budget B is worth at most ``Σ_j max_i (value_ji - p · cost_ji) + p · B``
(Lagrange; cost and budget are counted from each query's cheapest option). The solver states the price at which this
bound is lowest. If all values are multiples of some 1/q, so is every total, and the bound falls to the next multiple.
For the objective ``min``, the worst query cannot reach the next higher value because the cheapest options with such
values cost more than the budget.

What is left between that bound and the value, a search can close: a better choice may only deviate from the best
at the price by options that lose less than what is left, and they are few. A bound equal to the value states that
none of their combinations is better; ``_objection`` goes through them again.

Nothing here calls a solver: ``check`` recomputes cost, value and bound from the problem, the choice and the price.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._money import exact
from occamroute.errors import CertificateError
from occamroute.knapsack._core import LAYER, STATES_FOR_A_PROOF
from occamroute.knapsack.problem import Problem, Terms, relative_gap

__all__ = ["Certificate", "Part", "Parts", "bound_from", "check", "check_parts"]

BLOCK = 1 << 14
# Stated and recomputed numbers are sums of the same terms in another order.
TOLERANCE = 1e-9
# The solver states a proof only if it got by with so many states, at once and in all. It takes the same moves in
# another order from another base: that has been seen to need 1.7 times as many states in all.
MOST_STATES_AT_ONCE, MOST_STATES = 4 * LAYER, 4 * STATES_FOR_A_PROOF
# Why a bound equal to the value is refused.
BETTER = "a better choice within the budget"
TOO_MANY = "more choices that could be better than a proof can rule out"


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


class Part(NamedTuple):
    """Some rows: their values, what options cost in whole units (one row, or one each), and their choice."""

    value: FloatArray
    units: IntArray
    choice: IntArray

    @property
    def extra(self) -> IntArray:
        """What options cost above each query's cheapest."""
        return np.broadcast_to(self.units - self.units.min(axis=1, keepdims=True), self.value.shape)

    def chosen(self, table: Any) -> Any:
        """The entries of a table, of one row or one each, at the choice."""
        return table[0 if table.shape[0] == 1 else np.arange(self.choice.size), self.choice]


# All rows in parts, in their order, as often as they are asked for.
Parts = Callable[[], Iterable[Part]]


def check(problem: Problem, choice: IntArray, stated: Certificate) -> None:
    """Raise ``CertificateError`` unless everything stated follows from the problem, the choice and the price."""
    _check_choice(choice, *problem.shape)

    def parts() -> Iterator[Part]:
        for start in range(0, problem.shape[0], BLOCK):
            here = slice(start, start + BLOCK)
            units = problem.unit_costs if problem.unit_costs.shape[0] == 1 else problem.unit_costs[here]
            yield Part(problem.value[here], units, choice[here])

    check_parts(problem, parts, stated)


def check_parts(problem: Terms, parts: Parts, stated: Certificate) -> None:
    """The same for rows that come in parts."""
    paid, total, worst = _sums(parts)
    if paid > problem.room:
        raise CertificateError("cost", f"at most {problem.budget}", problem.cost_of(paid))
    if problem.cost_of(paid) != stated.cost:
        raise CertificateError("cost", stated.cost, problem.cost_of(paid))
    allowed = parts if problem.objective == "mean" else _allowed(problem, parts, worst)
    price = _price_per_unit(problem, stated.price)
    best, least, most = _at_price(problem, allowed, price)
    if least > problem.spare or (price > 0.0 and most <= problem.spare):
        raise CertificateError("price", stated.price, "another price at which spending meets the budget")
    bound = bound_from(problem, best, price, total)
    proposed = stated.bound if problem.objective == "mean" else stated.mean_bound * problem.shape[0]
    if bound > total and _close(proposed, total) and not _close(proposed, bound):
        objection = _objection(problem, allowed, price, total)
        if objection is not None:
            raise CertificateError("bound", proposed, objection)
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


def _check_choice(choice: IntArray, queries: int, options: int) -> None:
    if not isinstance(choice, np.ndarray):
        raise CertificateError("choice", f"a {type(choice).__name__}", f"an array of {queries} whole numbers")
    if choice.shape != (queries,) or choice.dtype.kind not in "iu":
        raise CertificateError("choice", f"{choice.dtype} of shape {choice.shape}", f"{queries} whole numbers")
    if int(choice.min()) < 0 or int(choice.max()) >= options:
        raise CertificateError("choice", f"option {int(choice.max())}", f"options 0 to {options - 1}")


def _sums(parts: Parts) -> tuple[int, float, float]:
    """What the choice costs in whole units, the sum of its values, and the worst of them."""
    paid, totals, worst = 0, [], math.inf
    for part in parts():
        paid += sum(map(int, part.chosen(part.units)))
        values = part.chosen(part.value)
        totals.append(math.fsum(values))
        worst = min(worst, float(values.min()))
    return paid, math.fsum(totals), worst


def _price_per_unit(problem: Terms, price: float) -> float:
    if not (math.isfinite(price) and price >= 0.0):
        raise CertificateError("price", price, "a finite price ≥ 0")
    return float(exact(price) * problem.units.size)


def _allowed(problem: Terms, parts: Parts, worst: float) -> Parts:
    """For ``min``: options no lower than the worst chosen one, once it is sure that the worst cannot do better."""
    needed, better = 0, math.inf
    for part in parts():
        higher = part.value > worst
        if not bool(higher.any(axis=1).all()):
            break
        needed += sum(map(int, np.where(higher, part.extra, np.iinfo(np.int64).max).min(axis=1)))
        better = min(better, float(part.value[higher].min()))
    else:
        if needed <= problem.spare:
            raise CertificateError("value", worst, f"at least {better}, within the budget")

    def allowed() -> Iterator[Part]:
        for part in parts():
            yield part._replace(value=np.where(part.value >= worst, part.value, -np.inf))

    return allowed


def _at_price(problem: Terms, parts: Parts, price: float) -> tuple[float, int, int]:
    """The sum of the best scores, and the least and most that options with the best score cost."""
    best_sum: list[float] = []
    least = most = 0
    near = 1000.0 * problem.rounding
    for part in parts():
        extra = part.extra
        score = part.value - price * extra
        best = score.max(axis=1, keepdims=True)
        tied = score >= best - near
        best_sum.append(math.fsum(best[:, 0]))
        least += int(np.where(tied, extra, np.iinfo(np.int64).max).min(axis=1).sum())
        most += int(np.where(tied, extra, -1).max(axis=1).sum())
    return math.fsum(best_sum), least, most


def _losses(problem: Terms, part: Part, price: float) -> tuple[FloatArray, IntArray]:
    """What each option loses at the price, and the cheapest that loses nothing."""
    score = part.value - price * part.extra
    loss = score.max(axis=1, keepdims=True) - score
    return loss, np.where(loss <= problem.rounding, part.extra, np.iinfo(np.int64).max).argmin(axis=1)


def _objection(problem: Terms, parts: Parts, price: float, total: float) -> str | None:
    """Why it is not proved that no choice within the budget is worth more than ``total``; None if it is.

    The search goes through all combinations of options that could be better, but does no more work than a proof needs.
    """
    spent_at_price, worth_at_price = 0, []
    for part in parts():
        base = part._replace(choice=_losses(problem, part, price)[1])
        spent_at_price += sum(map(int, base.chosen(base.extra)))
        worth_at_price.append(math.fsum(base.chosen(base.value)))
    room = problem.spare - spent_at_price
    missing = total + problem.least_gain - math.fsum(worth_at_price)
    most_lost = price * room - missing
    if room >= 0 and missing <= 0.0:
        return BETTER
    deviations = _deviations(problem, parts, price, most_lost)
    if deviations is None:
        return TOO_MANY
    # States: (change of cost, change of value) against the base, none of them dominated.
    spent, gained, visited = np.zeros(1, np.int64), np.zeros(1), 0
    for costs, values in deviations:
        spent = (spent[:, None] + costs).reshape(-1)
        gained = (gained[:, None] + values).reshape(-1)
        order = np.lexsort((-gained, spent))
        spent, gained = spent[order], gained[order]
        before = np.append(-np.inf, np.maximum.accumulate(gained)[:-1])
        kept = (gained > before + problem.tie) & (price * spent - gained <= most_lost)
        spent, gained = spent[kept], gained[kept]
        # Whether a gain equal to ``missing`` counts makes no difference: ``least_gain`` is below any real difference.
        if bool(((spent <= room) & (gained >= missing)).any()):
            return BETTER
        visited += spent.size
        if spent.size > MOST_STATES_AT_ONCE or visited > MOST_STATES:
            return TOO_MANY
    return None


def _deviations(
    problem: Terms, parts: Parts, price: float, most_lost: float
) -> Iterator[tuple[IntArray, FloatArray]] | None:
    """For each query that could deviate, by the least it loses: its options' changes of cost and of value.

    None if more queries could deviate than a search for a proof looks at.
    """
    found: list[tuple[FloatArray, IntArray, IntArray, FloatArray]] = []
    queries = start = 0
    for part in parts():
        extra = part.extra
        loss, base = _losses(problem, part, price)
        loss[np.arange(base.size), base] = np.inf
        row, option = np.nonzero(loss <= most_lost)
        held = base[row]
        costs, values = extra[row, option] - extra[row, held], part.value[row, option] - part.value[row, held]
        found.append((loss.min(axis=1)[row], start + row, costs, values))
        queries += int(np.unique(row).size)
        if queries > STATES_FOR_A_PROOF:
            return None
        start += base.size
    least, rows, costs, values = map(np.concatenate, zip(*found, strict=True))
    order = np.lexsort((rows, least))
    starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
    # Staying at the base changes nothing.
    pieces = (np.split(table[order], starts)[1:] for table in (costs, values))
    return ((np.append(0, costs), np.append(0.0, values)) for costs, values in zip(*pieces, strict=True))


def _close(stated: float, found: float) -> bool:
    return math.isclose(stated, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _same(field: str, stated: float, found: float) -> None:
    if not _close(stated, found):
        raise CertificateError(field, stated, found)
