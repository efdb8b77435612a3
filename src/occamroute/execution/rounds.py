"""Rounds: buy what the plan asks for, part by part; plan what is left again when the facts differ from it.

Decisions fall only between rounds and depend on nothing but answers and costs. A run that goes on from a journal
therefore decides as the uninterrupted one did. Only where money runs short in the middle of a round does it matter
which calls had ended by then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from occamroute._arrays import BoolArray, FloatArray, IntArray
from occamroute._money import exact
from occamroute.calls.answer_store import SourceAnswers
from occamroute.calls.batch_budget import BatchBudget
from occamroute.calls.buyer import Bought, Buyer
from occamroute.errors import BudgetTooSmallError
from occamroute.execution.tariffs import Tariff
from occamroute.knapsack import Problem, solve_problem

__all__ = ["Rounds", "keep_floors", "spent_on"]

# The first round only finds out what calls really cost; the next is a quarter of the queries, later ones half of what
# is open; never fewer queries than this.
FEWEST = 64
# Where money does not reach: plan with worst cases in place of what is expected, then take the cheapest.
WORST_CASES, CHEAPEST = 1, 2
# What is saved goes into better answers once it is this share of the budget.
WORTH_PLANNING = Fraction(1, 50)


@dataclass
class Rounds:
    """N open queries and M classifiers: ``value`` (N, M) of each, who is to answer (``choice``), who may not.

    ``free`` (N, M) are answers that are already paid. ``richer`` says that more may be spent than was planned with.
    """

    buyer: Buyer
    tariff: Tariff
    value: FloatArray
    choice: IntArray
    free: BoolArray
    budget: Fraction
    margin: Fraction
    seed: int
    richer: bool = False
    answered_by: IntArray = field(init=False)
    barred: BoolArray = field(init=False)
    failures: dict[int, str] = field(default_factory=dict)
    caution: int = 0
    consumed: Fraction = Fraction(0)
    _refused: dict[int, str] = field(default_factory=dict)
    _order: IntArray = field(init=False)
    _planned: FloatArray = field(init=False)
    _paid: FloatArray = field(init=False)
    _rounds: int = 0

    def __post_init__(self) -> None:
        queries, options = self.value.shape
        self.answered_by = np.full(queries, -1)
        self.barred = np.zeros((queries, options), np.bool_)
        self._planned, self._paid = np.zeros(options), np.zeros(options)
        self._order = np.random.default_rng(self.seed).permutation(queries)

    @property
    def names(self) -> tuple[str, ...]:
        """The classifiers."""
        return self.tariff.names[: self.value.shape[1]]

    def run(self) -> None:
        """Buy until every query has an answer or a reason why not."""
        if not self._fits(self._open()):
            self._plan_again()
        while (rows := self._open()).size:
            part = self._part(rows)
            if self._has_others_bought(part):
                self._plan_again()
            self._keep_floors(rows)
            bought = self.buyer.buy(self._wanted(part))
            self._rounds += 1
            progressed = self._absorb(part, bought)
            rows = self._open()
            if rows.size and (not progressed or bought.down or bought.unaffordable or not self._fits(rows)):
                if bought.unaffordable and (not progressed or not self.caution):
                    self.caution += 1
                if self.caution > CHEAPEST:
                    self._give_up(rows)
                else:
                    self._plan_again()

    def _open(self) -> IntArray:
        """The queries without an answer, in the order in which they are bought."""
        left = self.answered_by[self._order] < 0
        rows = self._order[left]
        return rows if not self.failures else rows[[int(row) not in self.failures for row in rows]]

    def _part(self, rows: IntArray) -> IntArray:
        if self.tariff.certain:
            return rows
        shares = (rows.size, 4, 2)
        return rows[: max(FEWEST, -(-rows.size // shares[min(self._rounds, 2)]))]

    def _has_others_bought(self, part: IntArray) -> bool:
        """Whether an interrupted run bought other answers than are to be bought now: all that it bought is then free.

        Only when their turn comes: a run that goes on plans as it did before, and finds later answers where it then
        plans them.
        """
        there = self._bought(part)
        if not (there.any(axis=1) & ~(there | self.free[part])[np.arange(part.size), self.choice[part]]).any():
            return False
        rows = self._open()
        for column, there in enumerate(self._bought(rows).T):
            self._count(column, rows[there])
            self.free[rows[there], column] = True
            self.barred[rows[there], column] = False
        return True

    def _bought(self, rows: IntArray) -> BoolArray:
        """Which answers to these queries are there and were not known to be, (n, M)."""
        there = np.column_stack([self.buyer.store[name].there[rows] for name in self.names])
        return np.asarray(there & ~self.free[rows])

    def _wanted(self, rows: IntArray) -> dict[str, IntArray]:
        chosen = self.choice[rows]
        return {self.names[column]: np.sort(rows[chosen == column]) for column in np.unique(chosen)}

    def _absorb(self, rows: IntArray, bought: Bought) -> bool:
        """Take over what was bought; whether anything came of the round."""
        before = self._open().size
        for column, name in enumerate(self.names):
            mine = rows[self.choice[rows] == column]
            done = mine[self.buyer.store[name].there[mine]]
            self.answered_by[done] = column
            self._count(column, done[~self.free[done, column]])
            for row, reason in bought.failures.get(name, {}).items():
                self._bar(row, column, f"{name} failed: {reason}")
            if name in bought.down:
                self.barred[:, column] |= ~self.free[:, column]
                for row in bought.unasked.get(name, np.empty(0, np.int64)).tolist():
                    self._refused.setdefault(row, f"{name} is down: {bought.down[name]}")
        for row in np.flatnonzero(self.barred.all(axis=1) & (self.answered_by < 0)).tolist():
            self.failures.setdefault(row, self._refused.get(row, "no classifier is left to ask"))
        return self._open().size < before or bool(bought.failures) or bool(bought.unasked)

    def _count(self, column: int, rows: IntArray) -> None:
        """Count what answers cost, and what they were expected to."""
        answers = self.buyer.store[self.names[column]]
        self.consumed += spent_on(self.tariff, self.names[column], answers, rows)
        self._paid[column] += answers.cost_of(rows)
        self._planned[column] += float(self._expected(rows)[:, column].sum())

    def _bar(self, row: int, column: int, reason: str) -> None:
        self.barred[row, column] = True
        before = self._refused.get(row)
        self._refused[row] = reason if before is None or reason in before else f"{before}; {reason}"

    def _expected(self, rows: IntArray, *, worst: bool = False) -> FloatArray:
        """What each classifier is expected to cost on these queries, 0 where it is paid already, (n, M)."""
        table = self.tariff.worst if worst else self.tariff.expected
        table = table[..., : self.value.shape[1]]
        costs = np.array(np.broadcast_to(table, self.value.shape)[rows] if table.ndim == 1 else table[rows])
        return np.where(self.free[rows], 0.0, costs)

    @property
    def _factors(self) -> FloatArray:
        """What classifiers have really cost, calls without an answer included, relative to what was expected, (M,)."""
        known = self._planned > 0.0
        lost = np.array([float(self.buyer.lost.get(name, 0)) for name in self.names])
        return np.where(known, (self._paid + lost) / np.where(known, self._planned, 1.0), 1.0)

    @property
    def left_in_all(self) -> Fraction:
        """The budget without what answers cost and what calls without an answer cost."""
        return self.budget - self.consumed - (self.buyer.budget.spent - self.buyer.store.useful)

    @property
    def left(self) -> Fraction:
        """What may still be planned with."""
        return max(Fraction(0), self.left_in_all - self.margin)

    def reserve(self, name: str, rows: IntArray) -> Fraction:
        """The most that a call can cost; where only time tells, more for a source that was slow so far."""
        amount = self.tariff.reserve(name, rows)
        if self.tariff.sources[name].timed and name in self.names:
            return amount * math.ceil(max(1.0, float(self._factors[self.names.index(name)])))
        return amount

    def _fits(self, rows: IntArray) -> bool:
        """Whether what is left buys what is planned, and is not so much more that planning again is worth it."""
        if bool(self.barred[rows, self.choice[rows]].any()):
            return False
        needed = self._needed(rows)
        if needed > self.left:
            return False
        if self.tariff.certain and not self.richer:
            return True  # costs are as planned: nothing was saved
        return self.left <= needed + WORTH_PLANNING * self.budget or self._best_of_all(rows)

    def _needed(self, rows: IntArray) -> Fraction:
        """What the planned answers are expected to cost; exactly, where costs are certain."""
        total = Fraction(0)
        for column, name in enumerate(self.names):
            mine = rows[(self.choice[rows] == column) & ~self.free[rows, column]]
            fixed = self.tariff.sources[name].fixed
            if fixed is not None:
                total += fixed * mine.size
            elif mine.size:
                total += exact(float(self._expected(mine)[:, column].sum() * self._factors[column]))
        return total

    def _best_of_all(self, rows: IntArray) -> bool:
        """Whether every query already goes where its value is highest."""
        best = np.where(self.barred[rows], -np.inf, self.value[rows]).max(axis=1)
        return bool((self.value[rows, self.choice[rows]] >= best).all())

    def _plan_again(self) -> None:
        """Choose anew for all open queries within what is left."""
        rows = self._open()
        if not rows.size:
            return
        costs = self._expected(rows, worst=self.caution >= WORST_CASES) * self._factors
        barred = self.barred[rows]
        # What may not be asked is worth less than anything, and no cheaper than the rest: it is never chosen.
        value = np.where(barred, self.value.min() - 1.0, self.value[rows])
        costs = np.where(barred, np.where(barred, 0.0, costs).max(axis=1, keepdims=True), costs)
        left = max(Fraction(0), self.left_in_all - (0 if self.caution else self.margin))
        try:
            if self.caution >= CHEAPEST:
                left = Fraction(0)
            chosen = solve_problem(Problem(value, costs, left), seed=self.seed).choice
        except BudgetTooSmallError:
            if self.caution == WORST_CASES:  # not even the cheapest worst cases fit: expect the best
                costs = self._expected(rows) * self._factors
            chosen = np.where(barred, np.inf, costs).argmin(axis=1)  # the cheapest, as long as the money lasts
        self.choice[rows] = chosen

    def _keep_floors(self, rows: IntArray) -> None:
        """Keep for every open query what its cheapest answer can cost, or what it is expected to, if that fits."""
        if self.caution >= CHEAPEST:
            # All take their cheapest now: to keep money for one would only keep it from another.
            self.buyer.budget.keep(None, self.tariff.units.size)
            return
        bought = [self.buyer.store[name].there for name in self.names]
        there = np.column_stack(bought)[rows, self.choice[rows]]  # bought by a run that was interrupted
        tables: list[FloatArray] = []
        for costs in (self._expected(rows, worst=True), self._expected(rows) * self._factors):
            cheapest = np.where(self.barred[rows], np.inf, costs).min(axis=1)
            floors = np.zeros(self.value.shape[0])
            floors[rows] = np.where(there | ~np.isfinite(cheapest), 0.0, cheapest)
            tables.append(floors)
        keep_floors(self.buyer.budget, self.tariff, tables)

    def _give_up(self, rows: IntArray) -> None:
        """Nothing more can be bought: say why."""
        left = float(max(Fraction(0), self.budget - self.buyer.budget.spent))
        reason = f"the budget is used up: {left:.6g} is left, and no answer is sure to cost less"
        for row in rows.tolist():
            before = self._refused.get(row)
            self.failures[row] = reason if before is None else f"{before}; {reason}"


def keep_floors(budget: BatchBudget, tariff: Tariff, tables: Sequence[FloatArray]) -> None:
    """Keep for every query the first of these amounts (n,) that can be kept for all, or nothing.

    The first table are worst cases. Beside others there must be room for one call's worst case, or none could begin.
    """
    unit = tariff.units.size
    for floors in tables:
        whole = np.ceil(floors / float(unit) * (1.0 - 1e-12)).astype(np.int64)
        room = exact(float((tables[0] - floors).max()))
        if budget.left is None or int(whole.sum()) * unit + room <= budget.left:
            budget.keep(whole, unit)
            return
    budget.keep(None, unit)


def spent_on(tariff: Tariff, name: str, bought: SourceAnswers, rows: IntArray) -> Fraction:
    """What a source was paid for these queries; exactly, where it was paid what it asks."""
    fixed = tariff.sources[name].fixed
    if fixed is not None and bool((bought.costs[rows] == float(fixed)).all()):
        return fixed * rows.size
    return exact(bought.cost_of(rows))
