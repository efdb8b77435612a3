"""A float32 picture of the rows that bounds distances from below, with a rigorous error margin.

Rows are shifted (where a common offset would cost digits) and scaled by a power of two, so that float32
neither over- nor underflows. Whatever the picture cannot tell apart is settled in float64 by the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray
from occamroute.executors.local import over_blocks
from occamroute.neighbors.metrics import L1, L2, LINF
from occamroute.neighbors.sweep import LANES, STEP, multiply, sweep

__all__ = ["FAR", "ROUNDING", "TINY", "Coarse", "Columns", "Floats", "Piece", "Prepared"]

Floats: TypeAlias = npt.NDArray[np.float32]
Piece: TypeAlias = slice | npt.NDArray[np.int64]

ROUNDING = 1.01 * 2.0**-24  # of one float32 operation, second-order terms included
TINY = 2.0**-125  # what one operation may lose to underflow
FAR = 2.0**50  # a query this far out is not pictured at all: every row is checked in float64
_PLAIN = 2.0**20  # rows between 1 / this and this need no scaling
_NEVER = np.float32(3e38)  # a coordinate of the padding, farther than anything
_DIRECT_L2 = 16  # up to this width squares are summed directly, which loses no digits to cancellation
_MOST_COORDINATES = 16  # for linf: more of them rarely shorten the list of candidates
_ENOUGH = 0.9  # fewer coordinates do if they carry this share of a row's squared deviation


class Columns(NamedTuple):
    """The picture of several pieces of rows, coordinate by coordinate."""

    pictures: npt.NDArray[Any]  # (K, D, S): S is the pieces' size rounded up to whole vectors
    peaks: npt.NDArray[np.int32]  # (K, S): each row's own most telling coordinate; (K, 0) if all are used
    heights: Floats  # (K, S): the row in that coordinate

    def of(self, some: slice) -> Columns:
        """Some of the pieces."""
        return Columns(self.pictures[some], self.peaks[some], self.heights[some])


class Prepared(NamedTuple):
    """A block of queries as the kernels take it.

    A row can be within ``distance`` of query ``i`` only if its bound is at most
    ``(distance * scale + slack[i]) * stretch + shift[i]``, where l2 squares what is in the brackets.
    """

    exact: FloatArray  # (B, d) float64, as given
    picture: npt.NDArray[Any]  # (B, D)
    order: npt.NDArray[np.int32]  # (B, p): the coordinates that tell most about each query
    unit: FloatArray  # (B,): powers of two for sums of squares
    slack: FloatArray  # (B,)
    shift: FloatArray  # (B,)

    def of(self, some: slice) -> Prepared:
        """Some of the queries."""
        rest = self.unit[some], self.slack[some], self.shift[some]
        return Prepared(self.exact[some], self.picture[some], self.order[some], *rest)


class Coarse:
    """The float32 picture of rows (n, d) for one metric."""

    dtype = np.float32
    lanes = LANES

    def __init__(self, rows: FloatArray, metric: int, *, threads: int | None) -> None:
        self.metric = metric
        width = int(rows.shape[1])
        self.width = width
        self.product = metric == L2 and width > _DIRECT_L2
        self.height = width + 2 if self.product else -(-width // STEP) * STEP
        self.low, self.high = low, high = rows.min(axis=0).astype(np.float64), rows.max(axis=0).astype(np.float64)
        with np.errstate(over="ignore"):
            mean = np.clip(rows.mean(axis=0, dtype=np.float64), low, high)
        around_zero = float(np.maximum(-low, high).max())
        around_mean = float(np.maximum(high - mean, mean - low).max())
        # float32 rows are exact as they are, and are shifted only if that wins digits; a matrix product
        # loses digits to cancellation, the fewer the closer to the origin the rows lie.
        self.shifted = self.product or around_zero > 4.0 * around_mean
        self.center = mean if self.shifted else np.zeros(width)
        self.largest = around_zero
        extent = around_mean if self.shifted else around_zero
        self.scale = 1.0 if 1.0 / _PLAIN < extent < _PLAIN else float(_inverse_power(np.array([extent]))[0])
        self.exact = rows.dtype == np.float32 and not self.shifted
        sample = self.picture(rows[:: -(-len(rows) // 1024)])
        self._mean, self._variance = sample.mean(axis=0), sample.var(axis=0)
        self.coordinates = self._count_coordinates(sample)
        self.norm = 0.0
        if not self.exact:
            norms = over_blocks(
                lambda start, stop: float(_norms(self.picture(rows[start:stop]), metric).max()),
                len(rows),
                block=2048,
                threads=threads,
            )
            self.norm = max(norms)

    @property
    def partial(self) -> bool:
        """Whether bounds come from some of the coordinates only."""
        return bool(self.coordinates < self.width)

    @property
    def margin(self) -> tuple[float, bool, float]:
        """The part of the margin that is common to all queries: ``scale``, ``squared``, ``stretch``."""
        # The rounding of the terms and of their sum; a product's is not relative, and is in ``shift``.
        relative = 0.0 if self.product else (self.coordinates + 8) * ROUNDING
        return self.scale, self.metric == L2, 1.0 + 1e-12 + relative

    def picture(self, rows: FloatArray) -> Floats:
        """Rows shifted, scaled and rounded."""
        if rows.dtype == np.float32 and not self.shifted and self.scale == 1.0:
            return rows
        with np.errstate(under="ignore"):
            return ((rows - self.center) * self.scale).astype(np.float32)

    def columns(self, rows: FloatArray, pieces: Sequence[Piece], size: int, *, threads: int | None) -> Columns:
        """The transposed picture of each piece of rows; none may have more than ``size``."""
        padded = -(-size // LANES) * LANES
        pictures = np.zeros((len(pieces), self.height, padded), dtype=np.float32)
        peaks = np.zeros((len(pieces), padded if self.partial else 0), dtype=np.int32)
        heights = np.zeros(peaks.shape, dtype=np.float32)

        def fill(start: int, stop: int) -> None:
            for number in range(start, stop):
                picture = self.picture(rows[pieces[number]])
                into, count = pictures[number], len(picture)
                if self.product:
                    np.multiply(picture.T, np.float32(-2.0), out=into[: self.width, :count])
                    into[self.width, :count] = _norms(picture, L2) ** 2
                    into[self.width, count:] = _NEVER
                    into[self.width + 1] = 1.0
                else:
                    into[: self.width, :count] = picture.T
                    into[: self.width, count:] = _NEVER
                if self.partial:
                    peak = np.abs(picture - self._mean).argmax(axis=1)
                    peaks[number, :count] = peak
                    heights[number, :count] = picture[np.arange(count), peak]

        over_blocks(fill, len(pieces), block=1, threads=threads)
        return Columns(pictures, peaks, heights)

    def prepare(self, queries: FloatArray) -> Prepared:
        """Queries (B, d) with their picture and their margins."""
        exact = queries.astype(np.float64)
        with np.errstate(over="ignore", under="ignore"):
            far = np.abs((exact - self.center) * self.scale).max(axis=1) > FAR
        if far.any():
            queries = np.where(far[:, np.newaxis], self.center, exact)
        picture = self.picture(queries)
        norms = _norms(picture, self.metric)
        # By the triangle inequality, what rounding the picture may have done to the distance.
        rounded = self.norm + (norms if queries.dtype != np.float32 or self.shifted else 0.0)
        slack = np.where(far, np.inf, ROUNDING * rounded + self.width * TINY)
        shift = np.full(len(exact), self.height * TINY)
        full = np.zeros((len(exact), self.height), dtype=np.float32)
        full[:, : self.width] = picture
        if self.product:
            full[:, self.width] = 1.0
            full[:, self.width + 1] = norms**2
            shift += (self.height + 8) * ROUNDING * (norms + self.norm) ** 2
        return Prepared(exact, full, self._order(picture), self.unit(exact), slack, shift)

    def unit(self, exact: FloatArray) -> FloatArray:
        """For each of the queries (B, d) a power of two that keeps squares within range."""
        return _inverse_power(np.maximum(np.abs(exact).max(axis=1), self.largest))

    def bounds(self, prepared: Prepared, columns: Columns, *, out: Floats) -> None:
        """Lower bounds, up to the margin, of pieces (K, ...) to out (K, B, S)."""
        if self.product:
            multiply(prepared.picture, columns.pictures, out=out)
        else:
            sweep(prepared.picture, prepared.order, columns.pictures, self.metric, out)

    def share_left(self, rows: FloatArray, queries: FloatArray, distances: FloatArray) -> float:
        """The share of rows (n, d) whose bounds do not tell that they are farther from queries than given."""
        pictures, asked = self.picture(rows), self.picture(queries)
        peaks = np.abs(pictures - self._mean).argmax(axis=1)
        heights = pictures[np.arange(len(rows)), peaks]
        left = 0
        for query, order, distance in zip(asked, self._order(asked), distances * self.scale, strict=True):
            few = np.abs(pictures[:, order] - query[order]).max(axis=1)
            left += int((np.maximum(few, np.abs(query[peaks] - heights)) <= distance).sum())
        return left / (len(queries) * len(rows))

    def _order(self, picture: Floats) -> npt.NDArray[np.int32]:
        """For each query the coordinates in which rows are expected to be far from it."""
        if not self.partial:
            return np.tile(np.arange(self.height, dtype=np.int32), (len(picture), 1))
        spread = -((picture - self._mean) ** 2) - self._variance
        chosen = np.argpartition(spread, self.coordinates - 1, axis=1)[:, : self.coordinates]
        return np.ascontiguousarray(chosen, dtype=np.int32)

    def _count_coordinates(self, sample: Floats) -> int:
        """How many coordinates the bounds need: all for sums; for linf a few carry most of the distance."""
        if self.metric != LINF or self.width <= _MOST_COORDINATES:
            return self.height
        squares = -np.sort(-((sample - self._mean) ** 2), axis=1)[:, :_MOST_COORDINATES]
        total = float(((sample - self._mean) ** 2).sum())
        for count in range(STEP, _MOST_COORDINATES, STEP):
            if float(squares[:, :count].sum()) >= _ENOUGH * total:
                return count
        return _MOST_COORDINATES


def _inverse_power(values: FloatArray) -> FloatArray:
    """Powers of two that bring each value (not negative) to at most 1, and above 1/2 where not 0."""
    # 1,000: the power itself must be a normal number.
    powers: FloatArray = np.ldexp(1.0, np.clip(-np.frexp(values)[1], -1000, 1000))
    return powers


def _norms(picture: Floats, metric: int) -> FloatArray:
    """The metric's norm of each row."""
    norms: FloatArray
    if metric == L2:
        norms = np.sqrt(np.einsum("ij,ij->i", picture, picture, dtype=np.float64))
    elif metric == L1:
        norms = np.abs(picture).sum(axis=1, dtype=np.float64)
    else:
        norms = np.abs(picture).max(axis=1).astype(np.float64)
    return norms
