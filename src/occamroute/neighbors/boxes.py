"""Narrow rows kept in boxes: a query looks into those boxes alone that can hold a near row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray
from occamroute._compiled import kernel, quickselect
from occamroute.neighbors.coarse import Coarse, Floats
from occamroute.neighbors.metrics import L1, LINF, limit_of
from occamroute.neighbors.ordering import at_least, select
from occamroute.neighbors.ranking import Space, deliver, measure, space_for
from occamroute.neighbors.sweep import sweep_piece

__all__ = ["NARROW", "Boxes"]

NARROW = 16  # columns; in wider rows nearly every box is near
_ROWS = 128  # in a box: fewer make tighter boxes, more make better use of vectors
_TOGETHER = 64  # queries in a block


class Packed(NamedTuple):
    """Rows that lie near each other, with the least and the largest of each coordinate."""

    pictures: Floats  # (K, D, S)
    low: Floats  # (D, K)
    high: Floats  # (D, K)
    rows: FloatArray  # (n, d): as given, in the boxes' order; all boxes but the last are full
    numbers: IntArray  # (n,): which row is in which place
    places: IntArray  # (n,): and the other way round


class Scratch(NamedTuple):
    """Memory that a thread keeps."""

    near: Floats  # (K,): bounds of boxes
    bounds: Floats  # (K, S): of rows
    opened: IntArray  # (K,): boxes
    space: Space


class Boxes:
    """Narrow rows (n, d), halved across their widest coordinate until a box holds each part."""

    fewest = together = _TOGETHER

    def __init__(self, rows: FloatArray, coarse: Coarse, *, threads: int | None) -> None:
        self._coarse = coarse
        numbers = _arranged(coarse.picture(rows))
        pieces = [numbers[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]
        pictures = coarse.columns(rows, pieces, min(_ROWS, len(rows)), threads=threads).pictures
        inside = [pictures[number, :, : len(piece)] for number, piece in enumerate(pieces)]
        low = np.array([piece.min(axis=1) for piece in inside]).T.copy()
        high = np.array([piece.max(axis=1) for piece in inside]).T.copy()
        self._packed = Packed(pictures, low, high, rows[numbers], numbers, np.argsort(numbers))

    def space(self) -> Scratch:
        """Memory for one thread."""
        count, _, size = self._packed.pictures.shape
        near, bounds = np.empty(count, dtype=np.float32), np.empty((count, size), dtype=np.float32)
        return Scratch(near, bounds, np.empty(count, dtype=np.int64), space_for(count * size))

    def rank(
        self, queries: FloatArray, excluded: Any, values: Any, weights: Any, start: int, distances: Any, nearest: Any,
        means: Any, scratch: Scratch,
    ) -> None:  # fmt: skip
        """Rank the rows for a block of queries, of which ``start`` is the first; see ``ranking.rank``."""
        rank_in_boxes(
            self._coarse.prepare(queries), self._packed, self._coarse.metric, self._coarse.margin, excluded, values,
            weights, start, distances, nearest, means, *scratch,
        )  # fmt: skip


def _arranged(picture: Floats) -> npt.NDArray[np.int64]:
    """Row numbers in an order in which every ``_ROWS`` are near each other."""
    numbers = np.arange(len(picture))
    parts = [(0, len(picture))]
    while parts:
        start, stop = parts.pop()
        if stop - start > _ROWS:
            middle = -(-(stop - start) // _ROWS) // 2 * _ROWS
            inside = picture[numbers[start:stop]]
            widest = inside[:, inside.var(axis=0).argmax()]
            numbers[start:stop] = numbers[start:stop][np.argpartition(widest, middle)]
            parts += [(start, start + middle), (start + middle, stop)]
    return numbers


@kernel(fast=True)
def bound_boxes(picture: Any, low: Any, high: Any, metric: int, out: Any) -> None:
    """The distance (l2: squared) of a query (D,) to the nearest place in each box."""
    for b in range(out.shape[0]):
        out[b] = np.float32(0.0)
    for j in range(low.shape[0]):
        place, least, largest = picture[j], low[j], high[j]
        if metric == LINF:
            for b in range(out.shape[0]):
                out[b] = max(out[b], max(least[b] - place, place - largest[b]))
        elif metric == L1:
            for b in range(out.shape[0]):
                out[b] += max(np.float32(0.0), max(least[b] - place, place - largest[b]))
        else:
            for b in range(out.shape[0]):
                gap = max(np.float32(0.0), max(least[b] - place, place - largest[b]))
                out[b] += gap * gap


@kernel()
def open_boxes(
    picture: Any, order: Any, pictures: Any, metric: int, reach: float, near: Any, bounds: Any, opened: Any, count: int
) -> int:
    """Bound the rows of boxes within ``reach`` that are not open yet; how many boxes are open then."""
    for b in range(near.shape[0]):
        if near[b] <= reach and near[b] < np.inf:
            sweep_piece(picture, order, pictures[b], metric, bounds[b])
            near[b] = np.inf
            opened[count] = b
            count += 1
    return count


@kernel()
def collect_rows(
    bounds: Any, opened: Any, first: int, last: int, count: int, done: float, cut: float, lows: Any, waiting: Any,
    found: int,
) -> int:  # fmt: skip
    """Places in some of the open boxes whose bound is above ``done`` and at most ``cut``, after those found already."""
    size = bounds.shape[1]
    for o in range(first, last):
        box = opened[o]
        here, start = bounds[box], box * size
        for r in range(min(size, count - start)):
            low = here[r]
            lows[found], waiting[found] = low, start + r
            found += (done < low) & (low <= cut)
    return found


@kernel()
def first_cut(
    bounds: Any, opened: Any, count: int, rows: int, rank: int, values: Any, spare: Any, tally: Any
) -> float:  # fmt: skip
    """About the bound of the given rank among the rows of the open boxes; inf if there are not as many."""
    size, taken = bounds.shape[1], 0
    for o in range(count):
        here, start = bounds[opened[o]], opened[o] * size
        for r in range(min(size, rows - start)):
            values[taken] = here[r]
            taken += 1
    return at_least(values, taken, rank, spare, tally) if rank < taken else np.inf


@kernel()
def rank_in_boxes(
    queries: Any, packed: Any, metric: int, margin: Any, excluded: Any, values: Any, weights: Any, start: int,
    distances: Any, nearest: Any, means: Any, near: Any, bounds: Any, opened: Any, space: Any,
) -> None:  # fmt: skip
    """Rank rows in float64: the first ones to ``distances`` and ``nearest``, their values to ``means``."""
    pictures, low, high, rows, numbers_of, places_of = packed
    lows, waiting, keys, numbers, spare, ends, gaps = space
    count, k, size = rows.shape[0], weights.shape[1], bounds.shape[1]
    for i in range(queries.picture.shape[0]):
        query, picture, order = queries.exact[i], queries.picture[i], queries.order[i]
        unit, skip = queries.unit[i], excluded[start + i]
        skip = places_of[skip] if skip >= 0 else skip
        bound_boxes(picture, low, high, metric, near)
        # The nearest boxes that hold twice as many rows as are wanted say how far to look at most.
        for b in range(near.shape[0]):
            spare[b] = near[b]
        reach = quickselect(spare, near.shape[0], min(near.shape[0] - 1, 2 * k // size + 1))
        first = open_boxes(picture, order, pictures, metric, reach, near, bounds, opened, 0)
        cut = first_cut(bounds, opened, first, count, k, lows, spare, ends)
        last = open_boxes(picture, order, pictures, metric, cut, near, bounds, opened, first)
        found = collect_rows(bounds, opened, 0, last, count, -np.inf, cut, lows, waiting, 0)
        # As in ``ranking.rank``: what is measured says how far to look, which the second time is enough.
        kept, farthest, level = 0, np.inf, at_least(lows, found, min(k, found - 1), spare, ends)
        while True:
            found, kept = measure(
                query, rows, metric, unit, level, farthest, skip, lows, waiting, found, keys, numbers, kept, gaps
            )
            farthest = select(keys, kept, k - 1, spare)
            limit = limit_of(farthest, margin, queries.slack[i], queries.shift[i])
            if limit <= level:
                break
            level = limit
            if limit > cut:
                found = collect_rows(bounds, opened, 0, last, count, cut, limit, lows, waiting, found)
                first, last = last, open_boxes(picture, order, pictures, metric, limit, near, bounds, opened, last)
                found = collect_rows(bounds, opened, first, last, count, -np.inf, limit, lows, waiting, found)
                cut = limit
        for place in range(kept):
            numbers[place] = numbers_of[numbers[place]]
        deliver(kept, farthest, space, values, weights, start + i, distances, nearest, means)
