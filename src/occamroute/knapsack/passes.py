"""What one pass over values that are not held finds out, block by block; compact, so that blocks can be anywhere.

Each function looks at the values (b, M) of consecutive rows from ``start`` on, and gives a small summary. Steps are
counted by their key: a 64-bit number by which they are taken, lowest first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray
from occamroute.knapsack._grid import far_from_grid
from occamroute.knapsack._kernels import near_moves, tie_keys
from occamroute.knapsack._price import BLOCK, Steps, all_steps

__all__ = [
    "BUCKETS",
    "Counts",
    "Decision",
    "Keys",
    "Ladder",
    "Part",
    "Range",
    "Rules",
    "Scores",
    "Survey",
    "count_steps",
    "count_ties",
    "count_worsts",
    "decide",
    "gather_steps",
    "gather_ties",
    "grid_distances",
    "ladder",
    "moves",
    "scores",
    "slope_of",
    "survey",
    "worst_of",
]  # fmt: skip

BUCKETS = 1 << 16
# Slopes that are the same but for so many of their last bits count as one: a thousand to every doubling.
ALIKE = np.uint64(42)
SIGN = np.uint64(1) << np.uint64(63)
Keys: TypeAlias = npt.NDArray[np.uint64]


class Rules(NamedTuple):
    """What all passes of one problem know: ``extra`` costs (1, M), whether values are stepped, and the seed.

    Options worth less than ``worst`` may not be chosen.
    """

    extra: IntArray
    stepped: bool
    seed: int
    worst: float = -np.inf

    def allowed(self, values: FloatArray) -> FloatArray:
        """The values, those that may not be chosen at -inf."""
        return values if self.worst == -np.inf else np.where(values >= self.worst, values, -np.inf)


class Range(NamedTuple):
    """Keys from ``low`` on, in buckets of ``2**shift``."""

    low: int
    shift: int

    def buckets(self, keys: Keys) -> tuple[npt.NDArray[np.bool_], IntArray]:
        """Which keys are within the range, and the bucket of each of those."""
        low, shift = np.uint64(self.low), np.uint64(self.shift)
        within = (keys >= low) & ((keys - low) >> shift < np.uint64(BUCKETS))
        return within, ((keys[within] - low) >> shift).astype(np.int64)


class Counts(NamedTuple):
    """Buckets that hold keys, what these cost together, how many they are, and what is spent whatever the price."""

    bucket: IntArray
    cost: IntArray
    number: IntArray
    base: int


class Ladder(NamedTuple):
    """Hull steps by nearly the same slope, the steepest first, and where all rows start.

    ``cost``, ``value`` and ``success`` are what the steps of a key add up to, ``steepest`` the greatest slope of them.
    """

    keys: Keys
    cost: IntArray
    value: FloatArray
    success: FloatArray
    steepest: FloatArray
    base_cost: int
    base_value: float
    base_success: float


class Survey(NamedTuple):
    """The least and the greatest value, the least of the rows' greatest, and a few of the values."""

    least: float
    greatest: float
    reachable: float
    sample: FloatArray


class Part(NamedTuple):
    """Some steps: their ratio, what they cost, their rows."""

    ratio: FloatArray
    cost: IntArray
    row: IntArray


class Scores(NamedTuple):
    """Compensated sums of a choice, as in ``score_sums``, and the values and choices of the rows asked for."""

    sums: tuple[tuple[float, ...], ...]
    values: FloatArray
    choice: IntArray


@dataclass(frozen=True)
class Decision:
    """A choice for every row, in a few numbers: take all steps worth more than ``price`` per unit.

    Of steps worth just that, rows take theirs whose (key, row) is no higher than ``last``; ``rows`` take ``options``
    instead of what follows from that.
    """

    price: float
    last: tuple[int, int] = (-1, -1)
    rows: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    options: IntArray = field(default_factory=lambda: np.empty(0, np.int64))


def survey(values: FloatArray, start: int, nothing: None) -> Survey:
    """What must be known of values before any step is counted."""
    flat = values.reshape(-1)
    sample = flat[:: max(1, flat.size // 8)].copy()
    return Survey(float(flat.min()), float(flat.max()), float(values.max(axis=1).min()), sample)


def grid_distances(values: FloatArray, start: int, grid: tuple[int, float]) -> tuple[float, FloatArray]:
    """How far values are from multiples of a step, and some that are too far."""
    worst, left = far_from_grid(values.reshape(-1), *grid)
    return worst, left[:8].copy()


def count_steps(values: FloatArray, start: int, about: tuple[Rules, Range]) -> Counts:
    """Hull steps counted by their slope, the steepest first."""
    rules, wanted = about
    base, steps = _steps(values, rules)
    within, bucket = wanted.buckets(_slope_keys(steps.ratio))
    return _counted(bucket, steps.cost[within], int(rules.extra[0, base].sum()))


def gather_steps(values: FloatArray, start: int, about: tuple[Rules, Range]) -> Part:
    """The steps of the first bucket of a range."""
    rules, wanted = about
    _, steps = _steps(values, rules)
    within, bucket = wanted.buckets(_slope_keys(steps.ratio))
    here = np.flatnonzero(within)[bucket == 0]
    return Part(steps.ratio[here], steps.cost[here], steps.row[here].astype(np.int64) + start)


def count_ties(values: FloatArray, start: int, about: tuple[Rules, float, Range]) -> Counts:
    """Steps of exactly one slope, counted by the keys that break ties."""
    rules, price, wanted = about
    tied = _tied(values, start, rules, price)
    within, bucket = wanted.buckets(tie_keys(tied.row, rules.seed).view(np.uint64))
    return _counted(bucket, tied.cost[within], 0)


def gather_ties(values: FloatArray, start: int, about: tuple[Rules, float, Range]) -> Part:
    """Those of the first bucket of a range."""
    rules, price, wanted = about
    tied = _tied(values, start, rules, price)
    within, bucket = wanted.buckets(tie_keys(tied.row, rules.seed).view(np.uint64))
    here = np.flatnonzero(within)[bucket == 0]
    return Part(tied.ratio[here], tied.cost[here], tied.row[here])


def count_worsts(values: FloatArray, start: int, about: tuple[Rules, Range]) -> Counts:
    """What raising the worst allowed value above each value costs: rows must then leave their cheaper options."""
    rules, wanted = about
    cost = rules.extra[0]
    order = np.argsort(cost, kind="stable")
    best_so_far = np.maximum.accumulate(values[:, order], axis=1)[:, :-1]
    dearer = np.broadcast_to(np.diff(cost[order]), best_so_far.shape)
    within, bucket = wanted.buckets(_value_keys(best_so_far.reshape(-1)))
    return _counted(bucket, dearer.reshape(-1)[within], 0)


def ladder(values: FloatArray, start: int, about: tuple[Rules, FloatArray | None]) -> Ladder:
    """All hull steps summed up by their slope; ``success`` are the values before something was taken off."""
    rules, taken_off = about
    success = values if taken_off is None else values + taken_off
    base, steps = _steps(values, rules)
    keys, inverse = np.unique(_slope_keys(steps.ratio) >> ALIKE, return_inverse=True)
    cost, sums = np.zeros(keys.size, np.int64), np.zeros((2, keys.size))
    steepest = np.zeros(keys.size)
    np.add.at(cost, inverse, steps.cost)
    np.maximum.at(steepest, inverse, steps.ratio)
    for row, table in enumerate((values, success)):
        np.add.at(sums[row], inverse, table[steps.row, steps.target] - table[steps.row, steps.source])
    rows = np.arange(len(values))
    starts = float(values[rows, base].sum()), float(success[rows, base].sum())
    return Ladder(keys, cost, sums[0], sums[1], steepest, int(rules.extra[0, base].sum()), *starts)


def decide(values: FloatArray, start: int, rules: Rules, decision: Decision) -> IntArray:
    """The choice of each row."""
    price = decision.price
    choice, steps = _steps(values, rules, high=price, low=np.nextafter(price, 0.0))
    if steps.ratio.size:
        row = steps.row.astype(np.int64) + start
        key, last = tie_keys(row, rules.seed), decision.last
        taken = (key < last[0]) | ((key == last[0]) & (row <= last[1]))
        choice[steps.row[taken]] = steps.target[taken]
    first, end = np.searchsorted(decision.rows, (start, start + len(values)))
    choice[decision.rows[first:end] - start] = decision.options[first:end]
    return choice


def scores(values: FloatArray, start: int, about: tuple[Rules, Decision, IntArray]) -> Scores:
    """The sums that certify a choice, and what is asked of some rows (sorted)."""
    rules, decision, rows = about
    choice = decide(values, start, rules, decision)
    first, end = np.searchsorted(rows, (start, start + len(values)))
    here = rows[first:end] - start
    return Scores(sums_of(values, rules, choice, decision.price), rules.allowed(values)[here], choice[here])


def sums_of(values: FloatArray, rules: Rules, choice: IntArray, price: float) -> tuple[tuple[float, ...], ...]:
    """The sums of the chosen values and of the best scores, in the portions in which they are added elsewhere."""
    allowed, found = rules.allowed(values), []
    empty = np.empty(0, np.int64)
    for begin in range(0, len(values), BLOCK):
        end = min(begin + BLOCK, len(values))
        _, *sums = near_moves(allowed, rules.extra, choice, price, -np.inf, begin, end, (empty, empty, np.empty(0)))
        found.append(tuple(sums))
    return tuple(found)


def moves(
    values: FloatArray, start: int, about: tuple[Rules, Decision, float]
) -> tuple[IntArray, FloatArray, IntArray]:
    """Rows with an option that loses little against the choice, their values and choices."""
    rules, decision, below = about
    allowed, choice = rules.allowed(values), decide(values, start, rules, decision)
    score = allowed - decision.price * rules.extra
    loss = np.take_along_axis(score, choice[:, None], axis=1) - score
    np.put_along_axis(loss, choice[:, None], np.inf, axis=1)
    rows = np.flatnonzero(loss.min(axis=1) < below)
    return rows + start, allowed[rows], choice[rows]


def slope_of(key: int) -> float:
    """The slope that a key stands for."""
    return float((~np.array([key], np.uint64)).view(np.float64)[0])


def worst_of(key: int) -> float:
    """The value that a key stands for."""
    bits = np.array([key], np.uint64)
    return float((bits ^ SIGN if key >= int(SIGN) else ~bits).view(np.float64)[0])


def _steps(values: FloatArray, rules: Rules, *, high: float = np.inf, low: float = 0.0) -> tuple[IntArray, Steps]:
    return all_steps(
        rules.allowed(values), rules.extra, np.arange(len(values)), stepped=rules.stepped, high=high, low=low
    )


def _tied(values: FloatArray, start: int, rules: Rules, price: float) -> Part:
    _, steps = _steps(values, rules, high=price, low=float(np.nextafter(price, 0.0)))
    return Part(steps.ratio, steps.cost, steps.row.astype(np.int64) + start)


def _slope_keys(ratio: FloatArray) -> Keys:
    """Positive floats sort like their bits; the steepest come first."""
    return ~np.ascontiguousarray(ratio, np.float64).view(np.uint64)


def _value_keys(value: FloatArray) -> Keys:
    """Floats of either sign in their order, the lowest first; 0 has no sign."""
    bits = (np.ascontiguousarray(value, np.float64) + 0.0).view(np.uint64)
    return np.where(bits >= SIGN, ~bits, bits | SIGN)


def _counted(bucket: IntArray, cost: IntArray, base: int) -> Counts:
    total = np.zeros(BUCKETS, np.int64)
    np.add.at(total, bucket, cost)
    number = np.bincount(bucket, minlength=BUCKETS)
    used = np.flatnonzero(number)
    return Counts(used, total[used], number[used], base)
