"""The price of money: the value per unit of cost of the first step that the budget no longer pays for.

Each query's options form a convex hull of (cost, value); taking all hull steps of all queries by falling value
per cost, while they fit, is the optimum of the relaxed problem but for one step. No full sort is needed: a
sample of the queries brackets the price, and only the few queries that choose differently at the two ends of
the bracket are looked at closely.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from occamroute._arrays import BoolArray, FloatArray, IntArray
from occamroute.executors.local import over_blocks, thread_count
from occamroute.knapsack._kernels import demand, hull_steps, tie_keys

__all__ = ["FEW_ROWS", "Greedy", "Hull", "Steps", "all_steps", "greedy"]

SAMPLE = 1 << 14
BLOCK = 1 << 15
LARGE = 1 << 18
# Up to so many rows are looked at one by one; of more a sample brackets the price.
FEW_ROWS = 2 * SAMPLE


@dataclass(frozen=True)
class Steps:
    """Hull steps of some rows: value per unit, cost in units, and where they lead from and to."""

    ratio: FloatArray
    cost: IntArray
    row: IntArray
    source: IntArray
    target: IntArray

    def order(self) -> IntArray:
        """The steps by falling ratio. A row's own steps fall strictly, so any sort keeps their order.

        Sorting numbers is several times faster than sorting positions, so the last bits of each ratio (a
        positive float sorts like its bits) give way to its position.
        """
        bits = np.uint64(self.ratio.size.bit_length())
        keys = ~self.ratio.view(np.uint64) >> bits << bits | np.arange(self.ratio.size, dtype=np.uint64)
        keys = _sorted(keys)
        order = (keys & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
        ratio = self.ratio[order]
        if (ratio[1:] > ratio[:-1]).any():  # some differ only in the bits that gave way: nearly sorted
            order = order[np.argsort(-ratio, kind="stable")]
        return order

    @cached_property
    def falling(self) -> IntArray:
        """The same, kept: other budgets take the same steps in the same order."""
        return self.order()

    @cached_property
    def spending(self) -> IntArray:
        """What the first steps cost together, for each number of them."""
        return np.cumsum(self.cost[self.falling])


# Every row's option before any step is taken, and the steps from there.
Hull: TypeAlias = tuple[IntArray, Steps]


@dataclass(frozen=True)
class Greedy:
    """The relaxed optimum without its one broken step: what it chooses and costs, and the price."""

    choice: IntArray
    spent: int
    price: float


def greedy(
    value: FloatArray, cost: IntArray, room: int, *, stepped: bool, seed: int, hull: Hull | None = None
) -> Greedy:
    """The greedy solution within ``room`` units, which must pay for the cheapest options.

    ``hull`` is what ``all_steps`` gives for all rows, where that is known already.
    """
    queries = value.shape[0]
    if queries > FEW_ROWS:
        for width in (4.0, 16.0):
            found = _bracketed(value, cost, room, width, stepped, seed)
            if found is not None:
                return found
    rows = np.arange(queries)
    base, steps = hull or all_steps(value, cost, rows, stepped=stepped)
    return _take(steps, base.copy(), _sum(cost, rows, base), room, 0.0, seed)


def all_steps(
    value: FloatArray, cost: IntArray, rows: IntArray, *, stepped: bool, high: float = np.inf, low: float = 0.0
) -> tuple[IntArray, Steps]:
    """The listed rows' options once all steps above ``high`` are taken, and their steps down to ``low``."""
    base = np.empty(rows.size, np.int64)

    # A million queries have some millions of steps: small numbers, since moving them is what takes the time.
    small = np.int16 if value.shape[1] < 2**15 else np.int32

    def block(start: int, stop: int) -> tuple[FloatArray, IntArray, IntArray, IntArray, IntArray]:
        most = (stop - start) * (value.shape[1] - 1)
        ratio, units, place = np.empty(most), np.empty(most, np.int64), np.empty(most, np.int32)
        source, target = np.empty(most, small), np.empty(most, small)
        part = rows[start:stop]
        found = (ratio, units, place, source, target)
        count = hull_steps(value, cost, part, high, low, stepped, base[start:stop], found)
        row = part.astype(np.int32)[place[:count]]
        return ratio[:count], units[:count], row, source[:count], target[:count]

    if rows.size == 0:
        return base, Steps(*block(0, 0))
    blocks = over_blocks(block, rows.size, block=BLOCK)
    return base, Steps(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def _sorted(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The keys, which all differ, sorted: where they are many, in parts between pivots, one for each thread."""
    parts = thread_count() if keys.size > LARGE else 1
    sample = np.sort(keys[:: max(1, keys.size // 4096)])
    pivots = [sample[place * sample.size // parts] for place in range(1, parts)]
    pieces = []
    for pivot in pivots:
        below = keys < pivot
        pieces.append(keys[below])
        keys = keys[~below]
    pieces.append(keys)
    over_blocks(lambda start, stop: pieces[start].sort(), len(pieces), block=1)
    return np.concatenate(pieces)


def _sum(cost: IntArray, rows: IntArray, choice: IntArray) -> int:
    return int(cost[0 if cost.shape[0] == 1 else rows, choice].sum())


def _take(steps: Steps, choice: IntArray, spent: int, room: int, low: float, seed: int) -> Greedy:
    """Take steps by falling ratio while they fit; at the last ratio, in a seeded shuffle of the rows."""
    order = steps.falling
    fitting = int(np.searchsorted(steps.spending, room - spent, side="right"))
    price = low if fitting == order.size else float(steps.ratio[order[fitting]])
    spent += _apply(steps, choice, steps.ratio > price)
    if fitting == order.size:
        return Greedy(choice, spent, price)
    tied = np.flatnonzero(steps.ratio == price)
    tied = tied[np.argsort(tie_keys(steps.row[tied].astype(np.int64), seed), kind="stable")]
    tied = tied[: np.searchsorted(np.cumsum(steps.cost[tied]), room - spent, side="right")]
    spent += _apply(steps, choice, np.sort(tied))
    return Greedy(choice, spent, price)


def _apply(steps: Steps, choice: IntArray, taken: BoolArray | IntArray) -> int:
    # A row's steps stand in their order, and of repeated rows the last assignment stays.
    choice[steps.row[taken]] = steps.target[taken]
    return int(steps.cost[taken].sum())


def _bracketed(value: FloatArray, cost: IntArray, room: int, width: float, stepped: bool, seed: int) -> Greedy | None:
    """The greedy solution by way of a sample's bracket; None if the price is not inside it."""
    high, low = _bracket(value, cost, room, width, seed)
    choice = np.empty(value.shape[0], np.int64)

    def block(start: int, stop: int) -> tuple[int, IntArray]:
        rows = np.empty(stop - start, np.int64)
        spent, count = demand(value, cost, high, low, start, stop, choice, rows)
        return int(spent), rows[:count]

    blocks = over_blocks(block, value.shape[0], block=BLOCK)
    rows = np.concatenate([rows for _, rows in blocks])
    base, steps = all_steps(value, cost, rows, stepped=stepped, high=high, low=low)
    choice[rows] = base
    spent = sum(spent for spent, _ in blocks) + _sum(cost, rows, base)
    inside = spent <= room and (low == 0.0 or spent + int(steps.cost.sum()) > room)
    return _take(steps, choice, spent, room, low, seed) if inside else None


def _bracket(value: FloatArray, cost: IntArray, room: int, width: float, seed: int) -> tuple[float, float]:
    """Two prices, found on a sample of the queries, between which the price almost surely lies."""
    queries = value.shape[0]
    rows = np.random.default_rng(seed).integers(0, queries, SAMPLE)
    base, steps = all_steps(value, cost, rows, stepped=False)
    order = steps.order()
    ratio, step_cost = steps.ratio[order], steps.cost[order].astype(np.float64)
    if not ratio.size:
        return 1.0, 0.0
    base_cost = cost[0 if cost.shape[0] == 1 else rows, base].astype(np.float64)
    spending = base_cost.sum() + np.cumsum(step_cost)
    target = room * (SAMPLE / queries)
    # The sample's spending at a price scatters by about this much around SAMPLE times the mean. Treating the
    # steps as independent overlooks that a dear query takes several: ``width`` leaves room for that.
    scatter = width * float(np.sqrt(base_cost.var() * SAMPLE + np.square(step_cost).sum()))
    upper = int(np.searchsorted(spending, target - scatter))
    lower = int(np.searchsorted(spending, target + scatter))
    high = float(ratio[upper - 1]) if upper > 0 else 2.0 * float(ratio[0])
    return high, float(ratio[lower]) if lower < ratio.size else 0.0
