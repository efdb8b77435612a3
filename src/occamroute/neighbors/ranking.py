"""The kernel that ranks a pool's rows for a block of queries."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._compiled import kernel
from occamroute.neighbors.metrics import distance_within, limit_of
from occamroute.neighbors.ordering import select, sort_within
from occamroute.neighbors.sweep import least_of_chunks

__all__ = ["rank"]

_SAMPLE = 1024  # bounds looked at for a first guess of the k-th smallest


@kernel(inline=True)
def raised(bound: float, picture: Any, columns: Any, tile: int, r: int) -> float:
    """The bound, raised by the row's own largest coordinate where only some coordinates were taken."""
    if columns.peaks.shape[1] > 0:
        return float(max(bound, abs(picture[columns.peaks[tile, r]] - columns.heights[tile, r])))
    return bound


@kernel()
def collect(
    bounds: Any, query: int, picture: Any, columns: Any, least: Any, count: int, cut: float, numbers: Any
) -> int:
    """The numbers of the rows whose bound is at most ``cut``; returns how many."""
    size, found = bounds.shape[2], 0
    for tile in range(bounds.shape[0]):
        here = min(size, count - tile * size)
        for chunk in range(least.shape[1]):
            if least[tile, chunk] <= cut:
                for r in range(chunk, here, least.shape[1]):
                    numbers[found] = tile * size + r
                    found += raised(bounds[tile, query, r], picture, columns, tile, r) <= cut
    return found


@kernel()
def guess(
    bounds: Any, query: int, picture: Any, columns: Any, count: int, share: float, sample: Any, spare: Any
) -> float:
    """About the bound that the given share of rows is at or below; inf if that is all of them."""
    size, stride = bounds.shape[2], max(1, count // _SAMPLE)
    taken = (count - 1) // stride + 1
    for t in range(taken):
        tile, r = t * stride // size, t * stride % size
        sample[t] = raised(bounds[tile, query, r], picture, columns, tile, r)
    place = int(share * taken + 1.5 * np.sqrt(share * taken)) + 1
    return select(sample, taken, place, spare) if place < taken - 1 else np.inf


@kernel()
def measure(
    query: Any, rows: Any, metric: int, unit: float, bound: float, skip: int, numbers: Any, count: int,
    keys: Any,
) -> int:  # fmt: skip
    """Distances of the rows listed, to ``keys``; only those within ``bound`` stay; returns how many."""
    kept = 0
    for f in range(count):
        number = numbers[f]
        distance = distance_within(query, rows, number, metric, unit, bound)
        keys[kept], numbers[kept] = distance, number
        kept += distance <= bound and number != skip
    return kept


@kernel()
def rank(
    bounds: Any, queries: Any, columns: Any, rows: Any, metric: int, margin: Any, excluded: Any, values: Any,
    weights: Any, start: int, distances: Any, nearest: Any, means: Any, least: Any,
) -> None:  # fmt: skip
    """Rank rows in float64: the first ones to ``distances`` and ``nearest``, their values to ``means``."""
    count, k = rows.shape[0], weights.shape[1]
    numbers, spare_numbers = np.empty(count + 1, np.int64), np.empty(count, np.int64)
    keys, spare_keys = np.empty(count + 1), np.empty(count)
    for i in range(bounds.shape[1]):
        query, picture = queries.exact[i], queries.picture[i]
        unit, skip = queries.unit[i], excluded[start + i]
        for tile in range(bounds.shape[0]):
            least_of_chunks(bounds[tile, i], least[tile])
        # A guess at the k-th smallest bound that finds enough rows; their k-th smallest distance is one that
        # no wanted row exceeds. If rows not yet looked at may be as near, look again: the second time the
        # limit is that of a distance, and holds.
        cut, farthest, share = 0.0, np.inf, (k + 1) / count
        while True:
            if farthest == np.inf:
                cut = guess(bounds, i, picture, columns, count, share, keys, spare_keys)
                share *= 2.0
            found = collect(bounds, i, picture, columns, least, count, cut, numbers)
            if found < min(k + 1, count):
                continue
            kept = measure(query, rows, metric, unit, farthest, skip, numbers, found, keys)
            farthest = select(keys, kept, k - 1, spare_keys)
            limit = limit_of(farthest, margin, queries.slack[i], queries.shift[i])
            if limit <= cut:
                break
            cut = limit
        kept = sort_within(keys, numbers, kept, farthest, spare_keys, spare_numbers)
        for place in range(distances.shape[1]):
            distances[start + i, place] = keys[place]
            nearest[start + i, place] = numbers[place]
        share_out(keys, numbers, kept, values, weights, means, start + i, spare_keys)


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
