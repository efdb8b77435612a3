"""The exact solver: hulls, price, core search (no integer programme)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute.executors.local import over_blocks
from occamroute.knapsack._core import Moves, Target, search
from occamroute.knapsack._kernels import near_moves
from occamroute.knapsack._price import BLOCK, SAMPLE, Greedy, greedy
from occamroute.knapsack.problem import Problem

__all__ = ["Answer", "score_sums", "solve_exact"]

# Stop the search at this distance to the bound, relative to the value; make little effort from CLOSE on.
ENOUGH = 1e-12
CLOSE = 1e-6
FEW = 1024


@dataclass(frozen=True)
class Answer:
    """What a solver found: a choice, the price in value per whole unit, and whether the choice is proved best."""

    choice: IntArray
    price: float
    proved: bool


def solve_exact(problem: Problem, value: FloatArray, *, seed: int) -> Answer:
    """The best choice for ``value``, which is the problem's own, or that with some options at -inf."""
    hull = problem.hull if value is problem.value else None
    found = greedy(value, problem.extra, problem.spare, stepped=problem.stepped, seed=seed, hull=hull)
    room = problem.spare - found.spent
    if found.price * room == 0.0:
        return Answer(found.choice, found.price, True)
    return _fill(problem, value, found, room, seed)


def score_sums(value: FloatArray, cost: IntArray, choice: IntArray, price: float) -> tuple[float, float]:
    """The sum of the chosen values, and of each query's highest ``value - price · cost``."""

    def block(start: int, stop: int) -> tuple[float, float, float, float]:
        empty = np.empty(0, np.int64)
        _, *sums = near_moves(value, cost, choice, price, -np.inf, start, stop, (empty, empty, np.empty(0)))
        return tuple(sums)

    total, total_low, best, best_low = zip(*over_blocks(block, value.shape[0], block=BLOCK), strict=True)
    return math.fsum(total + total_low), math.fsum(best + best_low)


def _fill(problem: Problem, value: FloatArray, found: Greedy, room: int, seed: int) -> Answer:
    """Fill what the greedy solution leaves of the budget, at first with samples of the queries."""
    cost, price = problem.extra, found.price
    total, best = score_sums(value, cost, found.choice, price)
    enough = max(ENOUGH * abs(total), _above_grid(problem, best + price * problem.spare))
    close = max(CLOSE * abs(total), enough)
    target = Target(enough, close, problem.least_gain, problem.tie, problem.rounding, problem.stepped)
    queries = value.shape[0]
    answer = Answer(found.choice, price, False)
    gap = price * room
    for rows in _samples(problem, seed):
        # A better choice gains at least so much, and so may lose no more than what is then left of the gap.
        moves = _moves(value, cost, found.choice, price, gap - 0.999 * problem.least_gain, rows)
        taken, proved = search(moves, room=room, price=price, target=target, seed=seed)
        left = math.fsum(moves.loss[taken]) + price * (room - int(moves.cost[taken].sum()))
        if left < gap:
            choice = found.choice.copy()
            choice[moves.row[taken]] = moves.option[taken]
            answer, gap = replace(answer, choice=choice), left
        # Whether or not this search has found it: nothing is better than the best so far.
        answer = replace(answer, proved=proved and rows.size == queries)
        if gap <= (enough if rows.size < FEW else close):
            break
    return answer


def _samples(problem: Problem, seed: int) -> Iterator[IntArray]:
    """Rows to look for moves in: samples, then all.

    Where values have a common step the bound can be reached exactly, and a small sample often does.
    """
    queries = problem.shape[0]
    for size in (FEW - 1, SAMPLE):
        if queries > 4 * size and (size == SAMPLE or problem.stepped):
            yield np.sort(np.random.default_rng(seed).choice(queries, size, replace=False))
    yield np.arange(queries)


def _above_grid(problem: Problem, bound: float) -> float:
    """How far a bound is above the highest total that the values' common step allows below it."""
    if problem.step is None:
        return 0.0
    denominator, deviation = problem.step
    return bound - math.floor(bound * denominator + 1e-9) / denominator + 2.0 * deviation * problem.shape[0]


def _moves(value: FloatArray, cost: IntArray, choice: IntArray, price: float, below: float, rows: IntArray) -> Moves:
    """Moves of the listed rows that lose less than ``below``."""
    if rows.size < value.shape[0]:
        cost_part = cost if cost.shape[0] == 1 else cost[rows]
        part = _moves(value[rows], cost_part, choice[rows], price, below, np.arange(rows.size))
        return part._replace(row=rows[part.row])

    def block(start: int, stop: int) -> tuple[IntArray, IntArray, FloatArray]:
        most = (stop - start) * (value.shape[1] - 1)
        found = (np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most))
        count, *_ = near_moves(value, cost, choice, price, below, start, stop, found)
        row, option, loss = (array[:count].copy() for array in found)
        return row, option, loss

    row, option, loss = map(np.concatenate, zip(*over_blocks(block, rows.size, block=BLOCK), strict=True))
    at = 0 if cost.shape[0] == 1 else row
    return Moves(row, option, loss, cost[at, option] - cost[at, choice[row]])
