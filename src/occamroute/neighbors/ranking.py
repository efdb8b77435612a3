"""The kernel that ranks a pool's rows for a block of queries."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._compiled import kernel
from occamroute.neighbors.coarse import CHUNK
from occamroute.neighbors.metrics import distance_within
from occamroute.neighbors.ordering import select, sort_pairs

__all__ = ["rank"]

_SAMPLE = 1024  # bounds looked at for a first guess of the k-th smallest


@kernel(fast=True)
def least_of_chunks(bounds: Any, query: int, least: Any) -> None:
    """The lowest bound of each chunk of rows."""
    chunks = bounds.shape[2] // CHUNK
    for tile in range(bounds.shape[0]):
        bound = bounds[tile, query]
        for chunk in range(chunks):
            value = bound[chunk * CHUNK]
            for r in range(chunk * CHUNK + 1, chunk * CHUNK + CHUNK):
                value = min(value, bound[r])
            least[tile * chunks + chunk] = value


@kernel()
def collect(bounds: Any, query: int, least: Any, count: int, cut: float, numbers: Any) -> int:
    """The numbers of the rows whose bound is at most ``cut``, ascending; returns how many."""
    size, found = bounds.shape[2], 0
    for chunk in range(least.shape[0]):
        if least[chunk] > cut:
            continue
        first = chunk * CHUNK
        bound = bounds[first // size, query]
        for r in range(first, min(first + CHUNK, count)):
            numbers[found] = r
            found += bound[r % size] <= cut
    return found


@kernel()
def guess(bounds: Any, query: int, count: int, share: float, sample: Any) -> float:
    """About the bound that the given share of rows is at or below; inf if that is all of them."""
    size, stride, taken = bounds.shape[2], max(1, count // _SAMPLE), 0
    for r in range(0, count, stride):
        sample[taken] = bounds[r // size, query, r % size]
        taken += 1
    place = int(share * taken)
    return select(sample, taken, place) if place < taken - 1 else np.inf


@kernel()
def measure(
    query: Any, rows: Any, metric: int, unit: float, bound: float, skip: int, numbers: Any, count: int, keys: Any
) -> int:
    """Distances of the rows listed, to ``keys``; only those within ``bound`` stay; returns how many."""
    kept = 0
    for f in range(count):
        number = numbers[f]
        distance = distance_within(query, rows[number], metric, unit, bound)
        keys[kept], numbers[kept] = distance, number
        kept += distance <= bound and number != skip
    return kept


@kernel()
def rank(
    bounds: Any, queries: Any, rows: Any, metric: int, margin: Any, excluded: Any, values: Any, weights: Any,
    start: int, distances: Any, nearest: Any, means: Any,
) -> None:  # fmt: skip
    """Rank rows in float64: the first ones to ``distances`` and ``nearest``, their values to ``means``."""
    count, k, size = rows.shape[0], weights.shape[1], bounds.shape[2]
    scale, power, stretch = margin
    least = np.empty(bounds.shape[0] * size // CHUNK, np.float32)
    numbers, spare_numbers = np.empty(count + 1, np.int64), np.empty(count, np.int64)
    keys, spare_keys = np.empty(count + 1), np.empty(count)
    for i in range(bounds.shape[1]):
        query, unit, skip = queries.exact[i], queries.unit[i], excluded[start + i]
        least_of_chunks(bounds, i, least)
        # A first guess at the k-th smallest bound that finds enough rows...
        share = 1.1 * k / count + 0.01
        cut = guess(bounds, i, count, share, spare_keys)
        found = collect(bounds, i, least, count, cut, numbers)
        while found < min(k + 1, count):
            share *= 2.0
            cut = guess(bounds, i, count, share, spare_keys)
            found = collect(bounds, i, least, count, cut, numbers)
        # ... whose k-th smallest distance is one that no wanted row exceeds. If rows not yet looked at may
        # be as near, look again: the second time the limit is that of a distance, and holds.
        kept = measure(query, rows, metric, unit, np.inf, skip, numbers, found, keys)
        farthest = kth(keys, kept, k, spare_keys)
        limit = (farthest * scale + queries.slack[i]) ** power * stretch + queries.shift[i]
        if limit > cut:
            found = collect(bounds, i, least, count, limit, numbers)
            kept = measure(query, rows, metric, unit, farthest, skip, numbers, found, keys)
            farthest = kth(keys, kept, k, spare_keys)
        kept = within(keys, numbers, kept, farthest)
        sort_pairs(keys, numbers, kept, spare_keys, spare_numbers)
        for place in range(distances.shape[1]):
            distances[start + i, place] = keys[place]
            nearest[start + i, place] = numbers[place]
        share_out(keys, numbers, kept, values, weights, means, start + i)


@kernel()
def kth(keys: Any, count: int, k: int, spare: Any) -> float:
    """The k-th smallest of the first ``count`` keys, which stay where they are."""
    for f in range(count):
        spare[f] = keys[f]
    return select(spare, count, k - 1)


@kernel()
def within(keys: Any, numbers: Any, count: int, bound: float) -> int:
    """Keep the pairs whose key is within ``bound``; returns how many."""
    kept = 0
    for f in range(count):
        keys[kept], numbers[kept] = keys[f], numbers[f]
        kept += keys[f] <= bound
    return kept


@kernel()
def share_out(keys: Any, numbers: Any, kept: int, values: Any, weights: Any, means: Any, i: int) -> None:
    """Add to ``means`` (W, B, M) the values by rank; rows at equal distance share their ranks' weight."""
    total = np.empty(values.shape[1])
    start = 0
    while start < kept and means.shape[0] > 0:
        stop = start + 1
        for m in range(total.shape[0]):
            total[m] = values[numbers[start], m]
        while stop < kept and keys[stop] == keys[start]:
            for m in range(total.shape[0]):
                total[m] += values[numbers[stop], m]
            stop += 1
        for w in range(means.shape[0]):
            weight = 0.0
            for place in range(start, min(stop, weights.shape[1])):
                weight += weights[w, place]
            weight /= stop - start
            for m in range(total.shape[0]):
                means[w, i, m] += weight * total[m]
        start = stop
