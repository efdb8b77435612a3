"""A picture of wide rows in whole steps, one byte a coordinate, that bounds linf distances from below.

Where distances concentrate, a few coordinates tell few rows apart. A byte each is little enough to look at all
of them for every row: vectors take 64 at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray
from occamroute._compiled import kernel
from occamroute.executors.local import over_blocks
from occamroute.neighbors.coarse import Coarse, Columns, Piece, Prepared
from occamroute.neighbors.metrics import LINF
from occamroute.neighbors.sweep import STEP

__all__ = ["Levels"]

Bytes: TypeAlias = npt.NDArray[np.uint8]

_TOGETHER = 128  # rows whose bounds are computed together: two vectors, and little enough memory for any cache
_ROUNDED = 1.0 + 1e-9  # steps that rounding both rows to whole steps, and floats before, may add to their gap
_STEPS = 48  # in the distance of a near row: fewer tell less, more cut off more
_SAMPLE = 1024  # rows looked at to choose the step
_ASKED = 16  # of them that are taken for queries
_NEAR = 8  # what counts as near: the eighth nearest in the sample


class Levels:
    """Rows in whole steps from the middle of each column; what is farther out is cut off.

    Cutting off brings nothing further apart, so that bounds hold whatever the step.
    """

    metric = LINF
    dtype = np.uint8
    lanes = _TOGETHER

    def __init__(self, middle: FloatArray, step: float) -> None:
        self.middle = middle
        self.step = step
        self.height = -(-len(middle) // STEP) * STEP

    @classmethod
    def fitting(cls, rows: FloatArray, coarse: Coarse) -> Levels | None:
        """Levels for the rows (n, d), if a sample says that they save more than looking at them costs."""
        sample = rows[:: -(-len(rows) // _SAMPLE)].astype(np.float64)
        asked = sample[:: -(-len(sample) // _ASKED)]
        apart = np.array([np.abs(sample - query).max(axis=1) for query in asked])
        place = min(_NEAR, len(sample) - 1)
        near = np.partition(apart, place, axis=1)[:, place]
        step, middle = float((coarse.high / 255.0 - coarse.low / 255.0).max()), coarse.low / 2.0 + coarse.high / 2.0
        fine = float(np.median(near)) / _STEPS
        if 0.0 < fine < step:
            # Few values may spread wide: they are cut off, so that what is near can be told apart.
            step, middle = fine, np.median(sample, axis=0)
        if not 1e-290 < step < 1e290:
            return None
        levels = cls(middle, step)
        return levels if levels._pays(sample, asked, near, coarse) else None

    @property
    def margin(self) -> tuple[float, bool, float]:
        """As ``Coarse.margin``."""
        return 1.0 / self.step, False, 1.0 + 1e-12

    def columns(self, rows: FloatArray, pieces: Sequence[Piece], size: int, *, threads: int | None) -> Columns:
        """As ``Coarse.columns``, with each piece in parts of 128 rows."""
        parts = -(-size // _TOGETHER)
        pictures = np.zeros((len(pieces), parts, self.height, _TOGETHER), dtype=np.uint8)

        def fill(start: int, stop: int) -> None:
            for number in range(start, stop):
                piece = rows[pieces[number]]
                for part, into in enumerate(pictures[number]):
                    steps = self._in_steps(piece[part * _TOGETHER : (part + 1) * _TOGETHER])
                    into[: steps.shape[1], : len(steps)] = steps.T

        over_blocks(fill, len(pieces), block=1, threads=threads)
        nothing = np.empty((len(pieces), 0), dtype=np.int32), np.empty((len(pieces), 0), dtype=np.float32)
        return Columns(pictures, *nothing)

    def prepare(self, queries: FloatArray) -> Prepared:
        """As ``Coarse.prepare``."""
        picture = np.zeros((len(queries), self.height), dtype=np.uint8)
        picture[:, : queries.shape[1]] = self._in_steps(queries)
        order = np.empty((len(queries), 0), dtype=np.int32)
        ones = np.ones(len(queries))
        return Prepared(queries.astype(np.float64), picture, order, ones, _ROUNDED * ones, 0.0 * ones)

    def bounds(self, prepared: Prepared, columns: Columns, *, out: Any) -> None:
        """As ``Coarse.bounds``, in steps."""
        count_steps(prepared.picture, columns.pictures, out)

    def _in_steps(self, rows: FloatArray) -> Bytes:
        with np.errstate(over="ignore", under="ignore"):
            steps = (rows - self.middle) * (1.0 / self.step)
        np.rint(steps, out=steps)
        steps += 128.0
        return np.clip(steps, 0.0, 255.0, out=steps).astype(np.uint8)

    def _pays(self, sample: FloatArray, asked: FloatArray, near: FloatArray, coarse: Coarse) -> bool:
        """Whether looking at all coordinates costs less than measuring the rows that a few leave."""
        rows = self._in_steps(sample)
        few = coarse.share_left(sample, asked, near)
        all_of_them = np.mean(
            [
                ((np.maximum(rows, query) - np.minimum(rows, query)).max(axis=1) - _ROUNDED) * self.step <= distance
                for query, distance in zip(self._in_steps(asked), near, strict=True)
            ]
        )
        # About nanoseconds for each row of the pool: to look at its bytes or at a few floats, and, for the share
        # that this leaves, to fetch a row from memory and to measure it.
        width = sample.shape[1]
        measured = 500.0 + 1.5 * width
        return bool(0.02 * width + measured * all_of_them < 3.0 + measured * few)


@kernel()
def count_steps(queries: Any, pictures: Any, out: Any) -> None:
    """By how many steps rows are apart at most: queries (B, D), pictures (K, parts, D, 128), out (K, B, S)."""
    for piece in range(out.shape[0]):
        for part in range(pictures.shape[1]):
            columns = pictures[piece, part]
            for query in range(out.shape[1]):
                steps, picture = out[piece, query, part * _TOGETHER : (part + 1) * _TOGETHER], queries[query]
                # A length known to the compiler, and numbers of one byte throughout, which numba would widen:
                # only then does a coordinate take two vectors.
                for r in range(_TOGETHER):
                    steps[r] = np.uint8(0)
                for j in range(0, columns.shape[0], 4):
                    a, b, c, d = picture[j], picture[j + 1], picture[j + 2], picture[j + 3]
                    x, y, z, w = columns[j], columns[j + 1], columns[j + 2], columns[j + 3]
                    for r in range(_TOGETHER):
                        first = max(np.uint8(max(a, x[r]) - min(a, x[r])), np.uint8(max(b, y[r]) - min(b, y[r])))
                        second = max(np.uint8(max(c, z[r]) - min(c, z[r])), np.uint8(max(d, w[r]) - min(d, w[r])))
                        steps[r] = max(steps[r], max(first, second))
