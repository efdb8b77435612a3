"""The nearest row in each of several groups of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray, feature_matrix
from occamroute._compiled import kernel
from occamroute.executors.local import over_blocks
from occamroute.neighbors.coarse import Coarse, Columns, Piece, Prepared
from occamroute.neighbors.gpu import Device
from occamroute.neighbors.inputs import device_of, frozen, groups_of, queries_of, values_of
from occamroute.neighbors.metrics import distance_within, limit_of, metric_code
from occamroute.neighbors.sweep import chunk_count, least_of_chunks

__all__ = ["Averages", "GroupIndex", "Nearest"]

_BLOCK = 448  # queries that a thread takes through all groups, so that a group stays in the cache
_PAIRS = 224  # queries times groups whose bounds are held at once
_SPACE = 16 << 20  # bytes of bounds that a thread holds at most
_KEPT = 128 << 20  # bytes of columns kept in the index; beyond, they are made anew for each search


@dataclass(frozen=True)
class Nearest:
    """The nearest row of each group for each query."""

    distances: FloatArray  # (Q, K)
    rows: IntArray  # (Q, K): the lowest number among those tied
    ties: IntArray  # (Q, K): how many rows of the group are at exactly that distance


@dataclass(frozen=True)
class Averages:
    """Values averaged over the nearest rows."""

    means: FloatArray  # (Q, M)
    distance: FloatArray  # (Q,): to the nearest row of any group


class GroupIndex:
    """Finds the nearest row in each group, exactly.

    ``rows`` (n, d) are shared with the caller and must not change; ``groups`` (K, s) holds row numbers, and
    a row may be in several groups. ``device`` is "cpu", "cuda", or None for a GPU where there is one and the
    searches are large enough to be worth it; answers have the same bits on both.

    >>> index = GroupIndex([[0.0], [1.0], [4.0], [6.0]], [[0, 1], [2, 3]])
    >>> index.search([[5.0]]).rows.tolist()
    [[1, 2]]
    >>> index.average([[5.0]], [[0.0], [1.0], [0.0], [1.0]]).means.tolist()
    [[0.75]]
    """

    def __init__(
        self, rows: Any, groups: Any, *, metric: str = "linf", threads: int | None = None, device: str | None = None
    ) -> None:
        self.metric = metric
        self.threads = threads
        self.device = device_of(device)
        code = metric_code(metric)
        self._rows = feature_matrix(rows, "rows")
        self._groups = groups_of(groups, len(self._rows))
        self._coarse = Coarse(self._rows, code, threads=threads)
        count, size = self._groups.shape
        group_bytes = 4 * size * self._coarse.height
        keep = count * group_bytes <= max(_KEPT, self._rows.nbytes)
        self._portion = count if keep else max(1, _KEPT // group_bytes)
        self._gpu = Device(self._rows, self._groups, self._coarse, device=self.device, threads=threads)
        self._kept = self._columns(0) if keep and self.device != "cuda" else None

    def search(self, queries: Any) -> Nearest:
        """The nearest row of each group for each of the queries (Q, d)."""
        queries = queries_of(queries, self._rows.shape[1])
        shape = len(queries), len(self._groups)
        distances, numbers, ties = np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.int64)

        def keep(here: tuple[slice, slice], near: Nearest) -> None:
            distances[here], numbers[here], ties[here] = near.distances, near.rows, near.ties

        nothing = frozen(np.empty((len(self._rows), 0)))
        self._run(queries, nothing, np.empty((len(queries), 0)), keep, every=True)
        return Nearest(distances, numbers, ties)

    def average(self, queries: Any, values: Any) -> Averages:
        """The mean over groups of the mean of ``values`` (n, M) over the rows tied for nearest."""
        queries = queries_of(queries, self._rows.shape[1])
        values = values_of(values, len(self._rows))
        sums = np.zeros((len(queries), values.shape[1]))
        distance = np.full(len(queries), np.inf)

        def keep(here: tuple[slice, slice], near: Nearest) -> None:
            distance[here[0]] = np.minimum(distance[here[0]], near.distances.min(axis=1))

        self._run(queries, values, sums, keep, every=False)
        return Averages(sums / len(self._groups), distance)

    def _columns(self, first: int) -> Columns:
        portion = self._groups[first : first + self._portion]
        pieces = [_as_slice(group) for group in portion]
        return self._coarse.columns(self._rows, pieces, portion.shape[1], threads=self.threads)

    def _run(
        self,
        queries: FloatArray,
        values: FloatArray,
        sums: FloatArray,
        keep: Callable[[tuple[slice, slice], Nearest], None],
        *,
        every: bool,
    ) -> None:
        """Give what is found to ``keep``, a block at a time, and add the groups' means to ``sums``.

        Without ``every``, only distances to a query's nearest row of all are needed.
        """

        def keep_found(here: tuple[slice, slice], found: tuple[Any, Any, Any]) -> None:
            keep(here, Nearest(*found))

        if self._gpu.run(queries, values, sums, keep_found, every=every):
            return
        for first in range(0, len(self._groups), self._portion):
            columns = self._kept or self._columns(first)
            groups = self._groups[first : first + self._portion]

            def block(
                start: int, stop: int, first: int = first, columns: Columns = columns, groups: Any = groups
            ) -> None:
                prepared = self._coarse.prepare(queries[start:stop])
                near = self._search_block(prepared, columns, groups, values, sums[start:stop])
                keep((slice(start, stop), slice(first, first + len(groups))), near)

            over_blocks(block, len(queries), block=_BLOCK, threads=self.threads)

    def _search_block(
        self, queries: Prepared, columns: Columns, groups: Any, values: FloatArray, sums: FloatArray
    ) -> Nearest:
        """What a block of queries finds in a portion of the groups."""
        coarse = self._coarse
        shape = len(queries.exact), len(groups)
        near = Nearest(np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.int64))
        size = columns.pictures.shape[2]
        pairs = max(1, min(_PAIRS, _SPACE // (4 * size)))
        few = min(pairs, shape[0])
        several = pairs // few if few == shape[0] else 1  # either way the space used is contiguous
        space = np.empty((several, few, size), dtype=np.float32)
        least = np.empty(chunk_count(size), dtype=np.float32)
        margin = coarse.margin
        for first in range(0, shape[1], several):
            some = slice(first, first + several)
            pieces = columns.of(some)
            for start in range(0, shape[0], few):
                here = slice(start, start + few)
                part = queries.of(here)
                bounds = space[: len(pieces.pictures), : len(part.exact)]
                coarse.bounds(part, pieces, out=bounds)
                pick(
                    bounds, part, pieces, self._rows, groups[some], coarse.metric, margin, values, sums[here],
                    first, near.distances[here], near.rows[here], near.ties[here], least,
                )  # fmt: skip
        return near


def _as_slice(numbers: npt.NDArray[np.int64]) -> Piece:
    """Consecutive row numbers as a slice, which copies nothing."""
    first, size = int(numbers[0]), len(numbers)
    if int(numbers[-1]) - first == size - 1 and bool((np.diff(numbers) == 1).all()):
        return slice(first, first + size)
    return numbers


@kernel()
def pick(
    bounds: Any, queries: Any, columns: Any, rows: Any, groups: Any, metric: int, margin: Any,
    values: Any, sums: Any, first: int, distances: Any, numbers: Any, ties: Any, least: Any,
) -> None:  # fmt: skip
    """Settle in float64 which rows of each group are nearest; add the mean of their values to ``sums``."""
    size = groups.shape[1]
    tied = np.empty(size, np.int64)
    for g in range(groups.shape[0]):
        group, peak, height = groups[g], columns.peaks[g], columns.heights[g]
        for i in range(bounds.shape[1]):
            query, unit, slack, shift = queries.exact[i], queries.unit[i], queries.slack[i], queries.shift[i]
            bound, picture = bounds[g, i], queries.picture[i]
            least_of_chunks(bound, least)
            start = lowest(bound, least)
            best = likely = distance_within(query, rows, group[start], metric, unit, np.inf)
            limit = limit_of(best, margin, slack, shift)
            count = 0
            for chunk in range(least.shape[0]):
                if least[chunk] > limit:
                    continue
                for r in range(chunk, size, least.shape[0]):
                    if bound[r] > limit:
                        continue
                    # Where only some coordinates were taken, most rows show in their own that they are far.
                    if peak.shape[0] > 0 and abs(picture[peak[r]] - height[r]) > limit:
                        continue
                    distance = likely
                    if r != start:
                        distance = distance_within(query, rows, group[r], metric, unit, best)
                    if distance < best:
                        best, count = distance, 0
                        limit = limit_of(best, margin, slack, shift)
                    if distance == best:
                        tied[count] = group[r]
                        count += 1
            number = tied[0]
            for t in range(1, count):
                number = min(number, tied[t])
            distances[i, first + g], numbers[i, first + g], ties[i, first + g] = best, number, count
            for m in range(values.shape[1]):
                total = 0.0
                for t in range(count):
                    total += values[tied[t], m]
                sums[i, m] += total / count


@kernel(fast=True)
def lowest(bound: Any, least: Any) -> int:
    """Where the lowest bound is."""
    value = np.float32(np.inf)
    for chunk in range(least.shape[0]):
        value = min(value, least[chunk])
    for chunk in range(least.shape[0]):
        if least[chunk] == value:
            r = chunk
            while bound[r] != value:
                r += least.shape[0]
            return r
    return 0
