"""The rows of one pool, ranked by distance."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from occamroute._arrays import FloatArray, IntArray, feature_matrix
from occamroute.executors.local import over_blocks, thread_count
from occamroute.neighbors.boxes import NARROW, Boxes
from occamroute.neighbors.coarse import Coarse
from occamroute.neighbors.inputs import excluded_of, frozen, neighbor_count, queries_of, values_of, weights_of
from occamroute.neighbors.levels import Levels
from occamroute.neighbors.metrics import metric_code
from occamroute.neighbors.tiles import Tiles

__all__ = ["Averager", "PoolAverages", "PoolIndex", "Ranked"]


class Ranked(NamedTuple):
    """The nearest rows of each query, by distance and then by number."""

    distances: FloatArray  # (Q, k)
    rows: IntArray  # (Q, k)


class PoolAverages(NamedTuple):
    """Values averaged with weights by rank."""

    means: FloatArray  # (W, Q, M)
    distance: FloatArray  # (Q,): to the nearest row
    nearest: Ranked  # (Q, show)


class PoolIndex:
    """Ranks all rows by their distance to a query, exactly.

    ``rows`` (n, d) are shared with the caller and must not change.

    >>> index = PoolIndex([[0.0], [1.0], [4.0], [6.0]])
    >>> index.search([[5.0]], 3).rows.tolist()
    [[2, 3, 1]]
    >>> index.average([[5.0]], [[0.0], [1.0], [0.0], [1.0]], [[0.6, 0.4, 0.0]]).means.tolist()
    [[[0.5]]]
    """

    def __init__(self, rows: Any, *, metric: str = "linf", threads: int | None = None) -> None:
        self.metric = metric
        self.threads = threads
        code = metric_code(metric)
        self._rows = feature_matrix(rows, "rows")
        coarse = Coarse(self._rows, code, threads=threads)
        self._order: Boxes | Tiles
        if self._rows.shape[1] <= NARROW:
            self._order = Boxes(self._rows, coarse, threads=threads)
        else:
            picture = (Levels.fitting(self._rows, coarse) if coarse.partial else None) or coarse
            self._order = Tiles(self._rows, picture, threads=threads)

    def search(self, queries: Any, k: int) -> Ranked:
        """The ``k`` nearest rows of each of the queries (Q, d)."""
        queries = queries_of(queries, self._rows.shape[1])
        k = neighbor_count(k, len(self._rows))
        nothing = frozen(np.empty((len(self._rows), 0))), frozen(np.empty((0, k)))
        excluded = excluded_of(None, len(queries), 0)
        return self._ranked(queries, *nothing, excluded, k, np.empty((0, len(queries), 0)), deque())

    def average(self, queries: Any, values: Any, weights: Any, exclude: Any = None, *, show: int = 1) -> PoolAverages:
        """Means of ``values`` (n, M) weighted by rank, for each line of ``weights`` (W, k).

        Rows at equal distance share the weight of the ranks they occupy; a tie that straddles rank k is
        taken in as a whole. What a line leaves of 1 goes to the mean of all values. ``exclude`` (Q,) names
        for each query a row to leave out, or −1. The first ``show`` rows are named too.
        """
        return self.averager(values, weights, show=show).average(queries, exclude)

    def averager(self, values: Any, weights: Any, *, show: int = 1) -> Averager:
        """What :meth:`average` does, made ready once for many calls with the same values and weights."""
        return Averager(self, values, weights, show)

    def _ranked(
        self,
        queries: FloatArray,
        values: FloatArray,
        weights: FloatArray,
        excluded: IntArray,
        show: int,
        means: FloatArray,
        spaces: deque[Any],
    ) -> Ranked:
        """Rank the rows for blocks of queries, give the first ones and add the weighted values to ``means``."""
        found = Ranked(np.empty((len(queries), show)), np.empty((len(queries), show), dtype=np.int64))

        def block(start: int, stop: int) -> None:
            try:
                space: Any = spaces.pop()
            except IndexError:
                space = self._order.space()
            self._order.rank(
                queries[start:stop], excluded, values, weights, start, found.distances, found.rows, means, space
            )
            spaces.append(space)

        # A few queries against wide rows are worth a thread of their own.
        fewest = max(self._order.fewest, -(-len(queries) // thread_count(self.threads)))
        over_blocks(block, len(queries), block=min(self._order.together, fewest), threads=self.threads)
        return found


class Averager:
    """Averages of the same values with the same weights, for queries that come a few at a time.

    >>> index = PoolIndex([[0.0], [1.0], [4.0], [6.0]])
    >>> averager = index.averager([[0.0], [1.0], [0.0], [1.0]], [[0.6, 0.4, 0.0]], show=2)
    >>> found = averager.average([[4.5]])
    >>> found.means.tolist(), found.nearest.rows.tolist()
    ([[[0.4]]], [[2, 3]])

    Every answer has the bits that :meth:`PoolIndex.average` gives, whatever the queries asked with it. Memory
    is kept between calls, for as many threads as there were at once.
    """

    def __init__(self, index: PoolIndex, values: Any, weights: Any, show: int) -> None:
        rows = len(index._rows)
        self._index = index
        self._values = values_of(values, rows)
        self._weights = weights_of(weights, rows)
        self.show = neighbor_count(show, rows, "show")
        self._spaces: deque[Any] = deque()
        self._total = self._values.sum(axis=0)
        # The weight that no rank takes goes to the mean over the pool, without the row left out.
        self._rest = (1.0 - self._weights.sum(axis=1))[:, np.newaxis, np.newaxis]
        further = max(0, self.show - self._weights.shape[1])  # ranks that are shown, and weigh nothing
        self._ranks = frozen(np.pad(self._weights, ((0, 0), (0, further))))

    def average(self, queries: Any, exclude: Any = None) -> PoolAverages:
        """Means for each of the queries (Q, d), as :meth:`PoolIndex.average` explains."""
        index, rows = self._index, len(self._values)
        queries = queries_of(queries, index._rows.shape[1])
        excluded = excluded_of(exclude, len(queries), rows)
        left_out = excluded >= 0
        total = self._total
        if exclude is not None and left_out.any():
            weights_of(self._weights, rows - 1)
            neighbor_count(self.show, rows - 1, "show")
            total = total - np.where(left_out[:, np.newaxis], self._values[excluded], 0.0)
        means = np.zeros((len(self._weights), len(queries), self._values.shape[1]))
        nearest = index._ranked(queries, self._values, self._ranks, excluded, self.show, means, self._spaces)
        means += self._rest * (total / (rows - left_out)[:, np.newaxis])
        return PoolAverages(means, nearest.distances[:, 0], nearest)
