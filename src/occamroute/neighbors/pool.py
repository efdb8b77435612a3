"""The rows of one pool, ranked by distance."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from occamroute._arrays import FloatArray, IntArray, feature_matrix
from occamroute.executors.local import over_blocks
from occamroute.neighbors.coarse import Coarse
from occamroute.neighbors.inputs import excluded_of, frozen, neighbor_count, queries_of, values_of, weights_of
from occamroute.neighbors.metrics import metric_code
from occamroute.neighbors.ranking import rank
from occamroute.neighbors.sweep import chunk_count

__all__ = ["PoolAverages", "PoolIndex", "Ranked"]

_TILE = 1024  # rows whose bounds are computed together
_SPACE = 4 << 20  # bytes of bounds that a thread holds
_QUERIES = 8, 112  # the fewest and the most queries in a block


class Ranked(NamedTuple):
    """The nearest rows of each query, by distance and then by number."""

    distances: FloatArray  # (Q, k)
    rows: IntArray  # (Q, k)


class PoolAverages(NamedTuple):
    """Values averaged with weights by rank."""

    means: FloatArray  # (W, Q, M)
    distance: FloatArray  # (Q,): to the nearest row


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
        self._coarse = Coarse(self._rows, code, threads=threads)
        count = len(self._rows)
        pieces = [slice(start, start + _TILE) for start in range(0, count, _TILE)]
        self._columns = self._coarse.columns(self._rows, pieces, min(_TILE, count), threads=threads)

    def search(self, queries: Any, k: int) -> Ranked:
        """The ``k`` nearest rows of each of the queries (Q, d)."""
        queries = queries_of(queries, self._rows.shape[1])
        k = neighbor_count(k, len(self._rows))
        found = Ranked(np.empty((len(queries), k)), np.empty((len(queries), k), dtype=np.int64))
        unused = frozen(np.empty((len(self._rows), 0))), frozen(np.empty((0, k)))
        self._run(queries, *unused, excluded_of(None, len(queries), 0), found, np.empty((0, len(queries), 0)))
        return found

    def average(self, queries: Any, values: Any, weights: Any, exclude: Any = None) -> PoolAverages:
        """Means of ``values`` (n, M) weighted by rank, for each line of ``weights`` (W, k).

        Rows at equal distance share the weight of the ranks they occupy; a tie that straddles rank k is
        taken in as a whole. What a line leaves of 1 goes to the mean of all values. ``exclude`` (Q,) names
        for each query a row to leave out, or −1.
        """
        queries = queries_of(queries, self._rows.shape[1])
        values = values_of(values, len(self._rows))
        excluded = excluded_of(exclude, len(queries), len(self._rows))
        left_out = bool((excluded >= 0).any())
        weights = weights_of(weights, len(self._rows) - left_out)
        nearest = Ranked(np.empty((len(queries), 1)), np.empty((len(queries), 1), dtype=np.int64))
        means = np.zeros((len(weights), len(queries), values.shape[1]))
        self._run(queries, values, weights, excluded, nearest, means)
        # The weight that no rank takes goes to the mean over the pool, without the row left out.
        total = values.sum(axis=0) - np.where(excluded[:, np.newaxis] >= 0, values[excluded], 0.0)
        rest = 1.0 - weights.sum(axis=1)
        means += rest[:, np.newaxis, np.newaxis] * (total / (len(values) - (excluded >= 0))[:, np.newaxis])
        return PoolAverages(means, nearest.distances[:, 0])

    def _run(
        self,
        queries: FloatArray,
        values: FloatArray,
        weights: FloatArray,
        excluded: IntArray,
        found: Ranked,
        means: FloatArray,
    ) -> None:
        """Rank the rows for blocks of queries; fill ``found`` and add the weighted values to ``means``."""
        coarse, columns = self._coarse, self._columns
        tiles, _, size = columns.pictures.shape

        fewest, most = _QUERIES
        together = min(most, max(fewest, _SPACE // (4 * tiles * size)), len(queries))
        scratch = threading.local()  # fresh memory for each block would cost more than its bounds

        def block(start: int, stop: int) -> None:
            prepared = coarse.prepare(queries[start:stop])
            if not hasattr(scratch, "space"):
                scratch.space = np.empty(tiles * together * size, dtype=np.float32)
                scratch.least = np.empty((tiles, chunk_count(size)), dtype=np.float32)
            bounds = scratch.space[: tiles * (stop - start) * size].reshape(tiles, stop - start, size)
            coarse.bounds(prepared, columns, out=bounds)
            rank(
                bounds, prepared, columns, self._rows, coarse.metric, coarse.margin, excluded, values,
                weights, start, found.distances, found.rows, means, scratch.least,
            )  # fmt: skip

        over_blocks(block, len(queries), block=together, threads=self.threads)
