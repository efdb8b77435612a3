"""Novelty: whether a query is farther from the labelled rows than these are from each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray, feature_matrix, generator, read_only, row_labels
from occamroute.errors import InvalidInputError
from occamroute.neighbors import METRICS, PoolIndex

__all__ = ["Novelty", "checked_rate", "left_out_distances", "one_of_each"]

# Rows whose distances are looked up: enough for a rate of 0.001, in a second or two.
ROWS = 10_000
# Where rows are too few to tell so rare a thing, new is what is so many times as far as any row is from its nearest.
FAR = 2.0
# Neighbours of rows of large groups that are held at once.
TOGETHER = 4_000_000


@dataclass(frozen=True, eq=False)
class Novelty:
    """How far labelled rows are from their nearest others, and so which distances are out of the ordinary.

    ``distances`` (n,) rise. ``rate`` is the share of ordinary queries that may be called new by mistake.

    The query's p-value is that of full conformal prediction: with the query among them, a row would be at least as
    far from its nearest other exactly if it is so without it. If the query comes from where the rows came from,
    ``p_value`` is at most a with a chance of at most a, on average over what might have been labelled.
    """

    distances: FloatArray = field(repr=False)
    metric: str
    rate: float

    @classmethod
    def of(
        cls,
        features: Any,
        metric: str = "linf",
        *,
        groups: Any = None,
        rate: float = 0.001,
        rows: int = ROWS,
        seed: int | np.random.Generator = 0,
        threads: int | None = None,
    ) -> Novelty:
        """The distances of at most ``rows`` of the labelled rows (n, d) to their nearest others.

        Rows of one group (``Profile.blocks``) are one: they are not each other's neighbours, and one of them,
        drawn at random, counts. Equal rows without a group are queries that really repeat, and stay.
        """
        table = feature_matrix(features)
        chosen = one_of_each(len(table), groups, generator(seed))[:rows]
        distances = left_out_distances(table, metric, groups=groups, rows=chosen, threads=threads)
        return cls(read_only(np.sort(distances)), metric, checked_rate(rate))

    @property
    def threshold(self) -> float:
        """A query that is farther than this from its nearest labelled row is new."""
        count = self.distances.size
        farther = int(self.rate * (count + 1) + 1e-9) - 1
        if farther < 0:
            return FAR * float(self.distances[-1])
        return float(self.distances[max(0, count - 1 - farther)])

    def p_value(self, distance: npt.ArrayLike) -> FloatArray:
        """The share of labelled rows, the query counted among them, that are at least as far from their nearest."""
        count = self.distances.size
        farther = count - np.searchsorted(self.distances, _distances(distance), side="left")
        return np.asarray((farther + 1.0) / (count + 1.0))

    def is_new(self, distance: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether queries at these distances are unlike all labelled rows.

        Ordinary queries are called so at the stated rate. With fewer than 1 / rate - 1 rows no share is as small;
        then it takes a distance of more than twice the largest, and the rate is only known to be below 1 / (n + 1).
        """
        return np.asarray(_distances(distance) > self.threshold)

    def state(self) -> dict[str, Any]:
        """Everything in plain numbers and arrays; ``from_state`` takes it back."""
        return {"distances": self.distances, "metric": self.metric, "rate": self.rate}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Novelty:
        """The novelty that ``state`` was taken of, in this process or another."""
        distances = _distances(state["distances"])
        if distances.ndim != 1 or distances.size == 0 or bool((np.diff(distances) < 0.0).any()):
            raise InvalidInputError(f"distances must rise and not be empty, got shape {distances.shape}.")
        if state["metric"] not in METRICS:
            raise InvalidInputError(f"metric must be one of {', '.join(METRICS)}, got {state['metric']!r}.")
        return cls(read_only(distances), str(state["metric"]), checked_rate(state["rate"]))


def left_out_distances(
    features: Any, metric: str = "linf", *, groups: Any = None, rows: Any = None, threads: int | None = None
) -> FloatArray:
    """The distance of each of some ``rows`` (by default all) to the nearest row of another group, (r,)."""
    table = feature_matrix(features)
    blocks = _blocks(groups, len(table))
    chosen = np.arange(len(table)) if rows is None else np.asarray(rows)
    if int(blocks.max()) == 0:
        what = "rows" if groups is None else "groups"
        raise InvalidInputError(f"distances to other rows need at least 2 {what}, got 1.")
    index = PoolIndex(table, metric=metric, threads=threads)
    if int(blocks.max()) == len(table) - 1:
        return index.average(table[chosen], np.zeros((len(table), 1)), [[1.0]], exclude=chosen).distance
    return _to_other_blocks(index, table, blocks, chosen)


def one_of_each(rows: int, groups: Any, random: np.random.Generator) -> IntArray:
    """One row of each group in random order; all rows where there are no groups."""
    order = random.permutation(rows)
    first = np.unique(_blocks(groups, rows)[order], return_index=True)[1]
    return np.asarray(order[np.sort(first)])


def checked_rate(rate: Any) -> float:
    """A chance of a false alarm, between 0 and 1."""
    number = float(rate) if isinstance(rate, int | float | np.number) else -1.0
    if not 0.0 < number < 1.0:
        raise InvalidInputError(f"rate must be a number between 0 and 1, got {rate!r}.")
    return number


def _to_other_blocks(index: PoolIndex, table: FloatArray, blocks: IntArray, chosen: IntArray) -> FloatArray:
    """Look at ever more neighbours of those rows whose nearest ones are all of their own block."""
    found = np.full(chosen.size, np.inf)
    left, count = np.arange(chosen.size), 2
    while left.size:
        count = min(2 * count, len(table))
        step = max(1, TOGETHER // count)
        for some in (left[start : start + step] for start in range(0, left.size, step)):
            near = index.search(table[chosen[some]], count)
            other = blocks[near.rows] != blocks[chosen[some], None]
            found[some] = np.where(other, near.distances, np.inf).min(axis=1)
        left = left[np.isinf(found[left])]
    return found


def _blocks(groups: Any, rows: int) -> IntArray:
    if groups is None:
        return np.arange(rows)
    return np.asarray(np.unique(row_labels(groups, rows, "groups"), return_inverse=True)[1])


def _distances(value: npt.ArrayLike) -> FloatArray:
    array = np.asarray(value, np.float64)
    if array.size and not bool((array >= 0.0).all()):  # NaN too
        raise InvalidInputError("distances must not be negative or NaN.")
    return array
