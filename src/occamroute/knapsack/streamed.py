"""The exact solver for values that are not held: they are looked at in passes, a block of rows at a time.

The same three stages as in ``exact``. Hull steps are counted by their slope, coarsely and then more finely, until the
few steps around the price can be looked at one by one; a tie at the price is broken by the same keys, found the same
way; and samples of the rows close the gap of the last step. What comes out is the same choice, row for row, in a few
numbers that anyone can apply to a block (``Decision``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, get_args

import numpy as np

from occamroute._arrays import FloatArray, IntArray, cost_array
from occamroute._money import Amount, money
from occamroute.errors import UnknownNameError
from occamroute.knapsack import passes
from occamroute.knapsack._core import Moves
from occamroute.knapsack._grid import common_step
from occamroute.knapsack._kernels import tie_keys
from occamroute.knapsack.exact import fill, moves_of, samples
from occamroute.knapsack.passes import BUCKETS, Decision, Range, Rules
from occamroute.knapsack.problem import Objective, Terms

__all__ = ["Blocks", "LargeProblem", "Streamed", "solve_streamed", "state"]

Result = TypeVar("Result")
# So many steps are looked at one by one.
FEW_STEPS = 1 << 20


class Blocks(Protocol):
    """Values of N rows in blocks, in the order of the rows; but for the last, blocks are of multiples of 2**15 rows."""

    def over(self, look: Callable[[FloatArray, int, Any], Result], about: Any) -> Iterable[Result]:
        """``look(values, start, about)`` of every block, in order; ``look`` is a function of a module."""
        ...


@dataclass(frozen=True, eq=False)
class LargeProblem(Terms):
    """A problem whose values are elsewhere: its terms, and what a survey of the values has found."""

    cost: FloatArray
    budget: Amount
    queries: int
    objective: Objective = "mean"
    overhead: Amount = 0
    largest: float = 0.0
    step: tuple[int, float] | None = None
    reachable: float = -np.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", cost_array(self.cost, options=np.shape(self.cost)[-1], rows=0, name="cost"))
        money(self.budget, "budget")
        money(self.overhead, "overhead")
        if self.objective not in get_args(Objective):
            raise UnknownNameError("objective", self.objective, get_args(Objective))

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries and of options."""
        return self.queries, int(self.cost.shape[0])

    def paid(self, counts: IntArray) -> int:
        """What so many queries for each option cost in whole units, overhead not included."""
        return sum(int(count) * int(cost) for count, cost in zip(counts, self.unit_costs[0], strict=True))


@dataclass(frozen=True)
class Streamed:
    """What was found: a decision for every row, by which rules, and whether it is proved best."""

    decision: Decision
    rules: Rules
    proved: bool


def state(problem: LargeProblem, blocks: Blocks) -> LargeProblem:
    """The problem with what must be known of its values."""
    found = list(blocks.over(passes.survey, None))
    largest = max(abs(bound) for one in found for bound in (one.least, one.greatest))

    def off_grid(denominator: int, allowed: float) -> tuple[float, FloatArray]:
        distances, left = zip(*blocks.over(passes.grid_distances, (denominator, allowed)), strict=True)
        return max(distances), np.concatenate(left)

    step = common_step(np.concatenate([one.sample for one in found])[:: len(found)], largest, off_grid)
    return replace(problem, largest=largest, step=step, reachable=min(one.reachable for one in found))


def solve_streamed(problem: LargeProblem, blocks: Blocks, *, seed: int) -> Streamed:
    """The best choice for a problem that was stated."""
    problem.require()
    rules = Rules(problem.extra, problem.stepped, seed)
    if problem.objective == "min":
        rules = rules._replace(worst=_worst(problem, blocks, rules))
    decision, spent = _greedy(problem, blocks, rules)
    room = problem.spare - spent
    if decision.price * room == 0.0:
        return Streamed(decision, rules, True)
    decision, proved = _filled(problem, blocks, rules, decision, room)
    return Streamed(decision, rules, proved)


def _worst(problem: LargeProblem, blocks: Blocks, rules: Rules) -> float:
    """The largest threshold such that the cheapest options no lower than it fit the budget."""
    cut = _cut(lambda wanted: blocks.over(passes.count_worsts, (rules, wanted)), problem.spare, 0)
    return problem.reachable if cut is None else min(problem.reachable, passes.worst_of(cut.wanted.low))


@dataclass(frozen=True)
class _Cut:
    """The keys among which the first is that does not fit, what all before cost, and how many keys they are."""

    wanted: Range
    spent: int
    number: int


def _cut(count: Callable[[Range], Iterable[passes.Counts]], room: int, few: int) -> _Cut | None:
    """Where costs no longer fit when keys are taken in their order; None where all do."""
    wanted, spent = Range(0, 48), None
    while True:
        cost, number, base = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.int64), 0
        for one in count(wanted):
            cost[one.bucket] += one.cost
            number[one.bucket] += one.number
            base += one.base
        spent = base if spent is None else spent
        until = spent + np.cumsum(cost)
        if until[-1] <= room:
            return None
        bucket = int(np.searchsorted(until, room, side="right"))
        spent = int(until[bucket]) - int(cost[bucket])
        wanted = Range(wanted.low + (bucket << wanted.shift), wanted.shift)
        if int(number[bucket]) <= few or wanted.shift == 0:
            return _Cut(wanted, spent, int(number[bucket]))
        wanted = wanted._replace(shift=wanted.shift - 16)


def _greedy(problem: LargeProblem, blocks: Blocks, rules: Rules) -> tuple[Decision, int]:
    """The relaxed optimum without its one broken step, and what it costs."""
    cut = _cut(lambda wanted: blocks.over(passes.count_steps, (rules, wanted)), problem.spare, FEW_STEPS)
    if cut is None:
        return Decision(0.0), 0  # at no price, what is left has no worth
    if cut.number > FEW_STEPS:  # all of one slope
        price, spent = passes.slope_of(cut.wanted.low), cut.spent
        return _with_ties(blocks, rules, price, spent, problem.spare)
    steps = _joined(blocks.over(passes.gather_steps, (rules, cut.wanted)))
    order = np.argsort(-steps.ratio, kind="stable")
    fitting = int(np.searchsorted(np.cumsum(steps.cost[order]), problem.spare - cut.spent, side="right"))
    price = float(steps.ratio[order[fitting]])
    spent = cut.spent + int(steps.cost[steps.ratio > price].sum())
    tied = steps.ratio == price
    return _last_taken(rules, price, spent, problem.spare, steps.cost[tied], steps.row[tied])


def _with_ties(blocks: Blocks, rules: Rules, price: float, spent: int, room: int) -> tuple[Decision, int]:
    """Which of very many steps of one slope are taken, in the order of their keys."""
    cut = _cut(lambda wanted: blocks.over(passes.count_ties, (rules, price, wanted)), room - spent, FEW_STEPS)
    if cut is None:  # cannot be: all of them do not fit
        raise ArithmeticError("the steps at the price fit, though they did not")
    tied = _joined(blocks.over(passes.gather_ties, (rules, price, cut.wanted)))
    before = Decision(price, (cut.wanted.low - 1, np.iinfo(np.int64).max))
    decision, spent = _last_taken(rules, price, spent + cut.spent, room, tied.cost, tied.row)
    return (decision if decision.last != (-1, -1) else before), spent


def _last_taken(
    rules: Rules, price: float, spent: int, room: int, cost: IntArray, row: IntArray
) -> tuple[Decision, int]:
    """Steps of one slope taken in the order of their keys, while they fit."""
    keys = tie_keys(row, rules.seed)
    order = np.lexsort((row, keys))
    spending = np.cumsum(cost[order])
    taken = int(np.searchsorted(spending, room - spent, side="right"))
    if taken == 0:
        return Decision(price), spent
    last = order[taken - 1]
    return Decision(price, (int(keys[last]), int(row[last]))), spent + int(spending[taken - 1])


def _joined(parts: Iterable[passes.Part]) -> passes.Part:
    return passes.Part(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _filled(
    problem: LargeProblem, blocks: Blocks, rules: Rules, decision: Decision, room: int
) -> tuple[Decision, bool]:
    """The decision with what fills the rest of the budget, and whether nothing is better."""
    price = decision.price
    # The rows that are looked at first come with the pass that is needed anyway.
    first = next(iter(samples(problem, rules.seed)))
    found = list(blocks.over(passes.scores, (rules, decision, np.empty(0, np.int64) if first is None else first)))
    total, total_low, best, best_low = zip(*(sums for one in found for sums in one.sums), strict=True)
    seen = {} if first is None else {first.size: found}

    def moves_below(below: float, rows: IntArray | None) -> Moves:
        if rows is None:
            parts = zip(*blocks.over(passes.moves, (rules, decision, below)), strict=True)
            rows, values, choice = (np.concatenate(part) for part in parts)
        else:
            looked = seen.pop(rows.size, None) or list(blocks.over(passes.scores, (rules, decision, rows)))
            values = np.concatenate([one.values for one in looked])
            choice = np.concatenate([one.choice for one in looked])
        found = moves_of(values, rules.extra, choice, price, below) if rows.size else NO_MOVES
        return found._replace(row=rows[found.row])

    sums = math.fsum(total + total_low), math.fsum(best + best_low)
    filled = fill(problem, sums, moves_below, price, room, rules.seed)
    order = np.argsort(filled.rows)
    return replace(decision, rows=filled.rows[order], options=filled.options[order]), filled.proved


NO_MOVES = Moves(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))
