"""The exact solver: hulls, price, core search (no integer programme)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute.executors.local import over_blocks
from occamroute.knapsack._core import Moves, Target, search
from occamroute.knapsack._kernels import near_moves
from occamroute.knapsack._price import BLOCK, SAMPLE, greedy
from occamroute.knapsack.problem import Problem, Terms

__all__ = ["Answer", "Filled", "fill", "moves_of", "samples", "score_sums", "solve_exact"]

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


@dataclass(frozen=True)
class Filled:
    """Rows that take another option than the greedy solution's, and whether nothing better exists."""

    rows: IntArray
    options: IntArray
    proved: bool


MovesBelow = Callable[[float, IntArray | None], Moves]


def solve_exact(problem: Problem, value: FloatArray, *, seed: int) -> Answer:
    """The best choice for ``value``, which is the problem's own, or that with some options at -inf."""
    hull = problem.hull if value is problem.value else None
    found = greedy(value, problem.extra, problem.spare, stepped=problem.stepped, seed=seed, hull=hull)
    room = problem.spare - found.spent
    if found.price * room == 0.0:
        return Answer(found.choice, found.price, True)
    cost, choice, price = problem.extra, found.choice, found.price

    def moves(below: float, rows: IntArray | None) -> Moves:
        return moves_of(value, cost, choice, price, below, rows)

    filled = fill(problem, score_sums(value, cost, choice, price), moves, price, room, seed)
    # A copy though nothing else holds the greedy choice, which `greedy` makes anew: `moves` must not see changes.
    choice = choice.copy()
    choice[filled.rows] = filled.options
    return Answer(choice, price, filled.proved)


def score_sums(value: FloatArray, cost: IntArray, choice: IntArray, price: float) -> tuple[float, float]:
    """The sum of the chosen values, and of each query's highest ``value - price · cost``."""

    def block(start: int, stop: int) -> tuple[float, float, float, float]:
        empty = np.empty(0, np.int64)
        _, *sums = near_moves(value, cost, choice, price, -np.inf, start, stop, (empty, empty, np.empty(0)))
        return tuple(sums)

    total, total_low, best, best_low = zip(*over_blocks(block, value.shape[0], block=BLOCK), strict=True)
    return math.fsum(total + total_low), math.fsum(best + best_low)


def fill(
    problem: Terms, sums: tuple[float, float], moves_below: MovesBelow, price: float, room: int, seed: int
) -> Filled:
    """Fill what the greedy solution leaves of the budget, at first with samples of the queries.

    ``sums`` are its ``score_sums``; ``moves_below`` gives the moves away from it that lose less than so much, of the
    listed rows or of all.
    """
    total, best = sums
    enough = max(ENOUGH * abs(total), _above_grid(problem, best + price * problem.spare))
    close = max(CLOSE * abs(total), enough)
    target = Target(enough, close, problem.least_gain, problem.tie, problem.rounding, problem.stepped)
    filled = Filled(np.empty(0, np.int64), np.empty(0, np.int64), False)
    gap = price * room
    for rows in samples(problem, seed):
        # A better choice gains at least so much, and so may lose no more than what is then left of the gap.
        moves = moves_below(gap - 0.999 * problem.least_gain, rows)
        taken, proved = search(moves, room=room, price=price, target=target, seed=seed)
        left = math.fsum(moves.loss[taken]) + price * (room - int(moves.cost[taken].sum()))
        if left < gap:
            filled, gap = replace(filled, rows=moves.row[taken], options=moves.option[taken]), left
        # Whether or not this search has found it: nothing is better than the best so far.
        filled = replace(filled, proved=proved and rows is None)
        if gap <= (enough if rows is not None and rows.size < FEW else close):
            break
    return filled


def samples(problem: Terms, seed: int) -> Iterator[IntArray | None]:
    """Rows to look for moves in: samples, then all (None).

    Where values have a common step the bound can be reached exactly, and a small sample often does.
    """
    queries = problem.shape[0]
    for size in (FEW - 1, SAMPLE):
        if queries > 4 * size and (size == SAMPLE or problem.stepped):
            yield np.sort(np.random.default_rng(seed).choice(queries, size, replace=False))
    yield None


def _above_grid(problem: Terms, bound: float) -> float:
    """How far a bound is above the highest total that the values' common step allows below it."""
    if problem.step is None:
        return 0.0
    denominator, deviation = problem.step
    return bound - math.floor(bound * denominator + 1e-9) / denominator + 2.0 * deviation * problem.shape[0]


def moves_of(
    value: FloatArray, cost: IntArray, choice: IntArray, price: float, below: float, rows: IntArray | None = None
) -> Moves:
    """Moves of the listed rows, or of all, that lose less than ``below``."""
    if rows is not None:
        cost_part = cost if cost.shape[0] == 1 else cost[rows]
        part = moves_of(value[rows], cost_part, choice[rows], price, below)
        return part._replace(row=rows[part.row])

    def block(start: int, stop: int) -> tuple[IntArray, IntArray, FloatArray]:
        most = (stop - start) * (value.shape[1] - 1)
        found = (np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most))
        count, *_ = near_moves(value, cost, choice, price, below, start, stop, found)
        row, option, loss = (array[:count].copy() for array in found)
        return row, option, loss

    row, option, loss = map(np.concatenate, zip(*over_blocks(block, value.shape[0], block=BLOCK), strict=True))
    at = 0 if cost.shape[0] == 1 else row
    return Moves(row, option, loss, cost[at, option] - cost[at, choice[row]])
