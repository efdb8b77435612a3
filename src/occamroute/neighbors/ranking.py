"""The kernel that ranks a pool's rows for a block of queries."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray
from occamroute._compiled import kernel, quickselect
from occamroute.neighbors.metrics import LINF, STRETCH, distance_within, limit_of, wide_linf_within
from occamroute.neighbors.ordering import select, sort_within
from occamroute.neighbors.sweep import least_of_chunks

__all__ = ["Space", "deliver", "measure", "rank", "space_for"]

_SAMPLE = 1024  # bounds looked at for a first guess of the k-th smallest


class Space(NamedTuple):
    """Memory that a thread keeps: fresh memory would take longer to get than to use."""

    lows: FloatArray  # (n + 1,): the bounds of rows that wait to be measured
    waiting: npt.NDArray[np.int64]  # (n + 1,): their numbers
    keys: FloatArray  # (n + 1,): the distances of rows measured
    numbers: npt.NDArray[np.int64]  # (n + 1,)
    spare: FloatArray  # (n + 1,)
    ends: npt.NDArray[np.int64]  # (n + 2,)
    gaps: FloatArray  # (STRETCH + 1,)


def space_for(count: int) -> Space:
    """Memory to rank so many rows."""
    return Space(
        np.empty(count + 1), np.empty(count + 1, dtype=np.int64), np.empty(count + 1),
        np.empty(count + 1, dtype=np.int64), np.empty(count + 1), np.empty(count + 2, dtype=np.int64),
        np.empty(STRETCH + 1),
    )  # fmt: skip


@kernel(inline=True)
def raised(bound: Any, picture: Any, columns: Any, tile: int, r: int) -> Any:
    """The bound, raised by the row's own largest coordinate where only some coordinates were taken."""
    if columns.peaks.shape[1] > 0:
        return max(bound, abs(picture[columns.peaks[tile, r]] - columns.heights[tile, r]))
    return bound


@kernel()
def collect(
    bounds: Any, query: int, picture: Any, columns: Any, least: Any, chunks: Any, count: int, done: float,
    cut: float, lows: Any, waiting: Any, found: int,
) -> int:  # fmt: skip
    """The rows whose bound is above ``done`` and at most ``cut``, after those that wait already; returns how many."""
    size = bounds.shape[2]
    for tile in range(bounds.shape[0]):
        here = min(size, count - tile * size)
        hits = 0
        for chunk in range(least.shape[1]):  # counted, as jumps would be foreseen badly; so are rows below
            chunks[hits] = chunk
            hits += least[tile, chunk] <= cut
        for h in range(hits):
            for r in range(chunks[h], here, least.shape[1]):
                low = raised(bounds[tile, query, r], picture, columns, tile, r)
                lows[found], waiting[found] = low, tile * size + r
                found += (done < low) & (low <= cut)
    return found


@kernel()
def guess(bounds: Any, query: int, picture: Any, columns: Any, count: int, share: float, sample: Any) -> float:
    """About the bound that the given share of rows is at or below; inf if that is all of them."""
    size, stride = bounds.shape[2], max(1, count // _SAMPLE)
    taken = (count - 1) // stride + 1
    place = int(share * taken + 1.5 * np.sqrt(share * taken)) + 1
    if place >= taken - 1:
        return np.inf
    for t in range(taken):
        tile, r = t * stride // size, t * stride % size
        sample[t] = raised(bounds[tile, query, r], picture, columns, tile, r)
    return quickselect(sample, taken, place)


@kernel()
def measure(
    query: Any, rows: Any, metric: int, unit: float, level: float, bound: float, skip: int, lows: Any,
    waiting: Any, found: int, keys: Any, numbers: Any, kept: int, gaps: Any,
) -> tuple[int, int]:  # fmt: skip
    """Measure the rows whose bound is at most ``level``, keep those within ``bound``; how many wait, and are kept."""
    left, bits, wide = 0, gaps.view(np.int64), metric == LINF and query.shape[0] > STRETCH
    for f in range(found):
        low, number = lows[f], waiting[f]
        if low <= level:
            if wide:
                distance = wide_linf_within(query, rows, number, bound, gaps, bits)
            else:
                distance = distance_within(query, rows, number, metric, unit, bound)
            keys[kept], numbers[kept] = distance, number
            kept += distance <= bound and number != skip
        else:
            lows[left], waiting[left] = low, number
            left += 1
    return left, kept


@kernel()
def rank(
    bounds: Any, queries: Any, columns: Any, rows: Any, metric: int, margin: Any, excluded: Any, values: Any,
    weights: Any, start: int, distances: Any, nearest: Any, means: Any, least: Any, chunks: Any, space: Any,
) -> None:  # fmt: skip
    """Rank rows in float64: the first ones to ``distances`` and ``nearest``, their values to ``means``."""
    count, k = rows.shape[0], weights.shape[1]
    lows, waiting, keys, numbers, spare, _, gaps = space
    for i in range(bounds.shape[1]):
        query, picture = queries.exact[i], queries.picture[i]
        unit, skip = queries.unit[i], excluded[start + i]
        for tile in range(bounds.shape[0]):
            least_of_chunks(bounds[tile, i], least[tile])
        # Guesses at the k-th smallest bound, until enough rows are found.
        found, cut, share = 0, -np.inf, (k + 1) / count
        while found <= k and cut < np.inf:
            done, cut = cut, guess(bounds, i, picture, columns, count, share, spare)
            found = collect(bounds, i, picture, columns, least, chunks, count, done, cut, lows, waiting, found)
            share *= 2.0
        # The k-th smallest distance of rows with low bounds is one that no wanted row exceeds. If rows not yet
        # measured may be as near, look again: the second time the limit is that of a distance, and holds.
        kept, farthest, level = 0, np.inf, cut
        if columns.peaks.shape[1] == 0:  # the lowest will do where bounds are close to the distances
            level = select(lows, found, min(k, found - 1), spare)
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
                found = collect(bounds, i, picture, columns, least, chunks, count, cut, limit, lows, waiting, found)
                cut = limit
        deliver(kept, farthest, space, values, weights, start + i, distances, nearest, means)


@kernel()
def deliver(
    kept: int, farthest: float, space: Any, values: Any, weights: Any, i: int, distances: Any, nearest: Any, means: Any
) -> None:
    """Of the rows that were kept, those within ``farthest`` in their order: the first ones, and their values."""
    kept = sort_within(space.keys, space.numbers, kept, farthest, space.lows, space.waiting, space.ends)
    for place in range(distances.shape[1]):
        distances[i, place] = space.lows[place]
        nearest[i, place] = space.waiting[place]
    share_out(space.lows, space.waiting, kept, values, weights, means, i, space.spare)


@kernel()
def share_out(keys: Any, numbers: Any, kept: int, values: Any, weights: Any, means: Any, i: int, shares: Any) -> None:
    """Query ``i``'s weighted values to ``means`` (W, Q, M); equal distances share their ranks' weight."""
    for w in range(means.shape[0]):
        start = 0
        while start < kept:
            stop = start + 1
            while stop < kept and keys[stop] == keys[start]:
                stop += 1
            weight = 0.0
            for place in range(start, min(stop, weights.shape[1])):
                weight += weights[w, place]
            if stop > start + 1:
                weight /= stop - start
            for place in range(start, stop):
                shares[place] = weight
            start = stop
        total, weight = means[w, i], 0.0
        for place in range(kept):
            row, weight = values[numbers[place]], shares[place]
            for m in range(total.shape[0]):
                total[m] += weight * row[m]
