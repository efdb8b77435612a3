"""The last word on what a device found, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._compiled import kernel
from occamroute.neighbors.metrics import distance_within

__all__ = ["settle"]


@kernel()
def settle(
    queries: Any, unit: Any, position: Any, listed: Any, ends: Any, candidates: Any,
    chunks: int, rows: Any, groups: Any, metric: int, values: Any, sums: Any, distances: Any, numbers: Any, ties: Any,
) -> None:  # fmt: skip
    """The nearest rows of each group, as ``groups.pick`` finds them; ``gpu_groups.Found`` explains the rest.

    ``distances`` come from the device, and are put right where it could not tell.

    Rows are taken in the order of ``pick``, so that the values of tied ones are added up to the same bits.
    """
    size = groups.shape[1]
    tied = np.empty(size, np.int64)
    query = np.empty(queries.shape[1])
    for i in range(queries.shape[0]):
        for g in range(groups.shape[0]):
            group, which = groups[g], listed[i, g]
            if which < 0:
                tied[0], count, nearest = group[position[i, g]], 1, distances[i, g]
            else:
                query[:] = queries[i]
                count, nearest = 0, np.inf
                start, stop = ends[which], ends[which + 1]
                some = size if start == stop else stop - start
                chunk = r = 0
                for c in range(some):
                    if start < stop:
                        r = candidates[start + c]
                    elif c > 0:
                        r += chunks
                        if r >= size:
                            chunk += 1
                            r = chunk
                    distance = distance_within(query, rows, group[r], metric, unit[i], nearest)
                    if distance < nearest:
                        nearest, count = distance, 0
                    if distance == nearest:
                        tied[count] = group[r]
                        count += 1
            number = tied[0]
            for t in range(1, count):
                number = min(number, tied[t])
            distances[i, g], numbers[i, g], ties[i, g] = nearest, number, count
            for m in range(values.shape[1]):
                if count == 1:
                    sums[i, m] += values[number, m]
                    continue
                total = 0.0
                for t in range(count):
                    total += values[tied[t], m]
                sums[i, m] += total / count
