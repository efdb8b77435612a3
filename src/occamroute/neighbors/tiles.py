"""Rows in the order given, some of them at a time: every query looks at all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray
from occamroute.neighbors.coarse import Coarse
from occamroute.neighbors.levels import Levels
from occamroute.neighbors.ranking import Space, rank, space_for
from occamroute.neighbors.sweep import chunk_count

__all__ = ["Tiles"]

_TILE = 1024  # rows whose bounds are computed together
_SPACE = 4 << 20  # bytes of bounds that a thread holds
_QUERIES = 8, 112  # the fewest and the most queries in a block, where there are enough of them
_FEWEST = 2  # queries that a thread is started for


class Scratch(NamedTuple):
    """Memory that a thread keeps."""

    bounds: npt.NDArray[Any]
    least: npt.NDArray[Any]  # (tiles, C): of the bounds' dtype
    chunks: npt.NDArray[np.int64]  # (C,)
    space: Space


class Tiles:
    """All rows (n, d) in tiles, with their picture."""

    fewest = _FEWEST

    def __init__(self, rows: FloatArray, picture: Coarse | Levels, *, threads: int | None) -> None:
        self._rows, self._picture = rows, picture
        largest = min(_TILE, len(rows))
        pieces = [slice(start, start + _TILE) for start in range(0, len(rows), _TILE)]
        self._columns = picture.columns(rows, pieces, largest, threads=threads)
        self._shape = len(pieces), -(-largest // picture.lanes) * picture.lanes
        fewest, most = _QUERIES
        bytes_each = np.dtype(picture.dtype).itemsize * self._shape[0] * self._shape[1]
        # Queries ranked together: as many as there is space for.
        self.together = min(most, max(fewest, _SPACE // bytes_each))

    def space(self) -> Scratch:
        """Memory for one thread."""
        tiles, size = self._shape
        kind = self._picture.dtype
        return Scratch(
            np.empty(tiles * self.together * size, dtype=kind), np.empty((tiles, chunk_count(size)), dtype=kind),
            np.empty(chunk_count(size), dtype=np.int64), space_for(len(self._rows)),
        )  # fmt: skip

    def rank(
        self, queries: FloatArray, excluded: Any, values: Any, weights: Any, start: int, distances: Any, nearest: Any,
        means: Any, scratch: Scratch,
    ) -> None:  # fmt: skip
        """Rank the rows for a block of queries, of which ``start`` is the first; see ``ranking.rank``."""
        tiles, size = self._shape
        picture, columns = self._picture, self._columns
        prepared = picture.prepare(queries)
        bounds = scratch.bounds[: tiles * len(queries) * size].reshape(tiles, len(queries), size)
        picture.bounds(prepared, columns, out=bounds)
        rank(
            bounds, prepared, columns, self._rows, picture.metric, picture.margin, excluded, values, weights, start,
            distances, nearest, means, scratch.least, scratch.chunks, scratch.space,
        )  # fmt: skip
