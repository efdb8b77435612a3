"""Selecting and sorting short lists inside kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._compiled import kernel, quickselect

__all__ = ["at_least", "select", "sort_within"]

_BINS = 512
_SMALL = 2.0**-20  # what is that much smaller than the largest value is not told apart from 0
_RUN = 8  # entries sorted by insertion before runs are merged


@kernel()
def select(given: Any, count: int, rank: int, values: Any) -> float:
    """The value of the given rank (from 0) among the first ``count``; ``values`` is space for as many."""
    for i in range(count):
        values[i] = given[i]
    return quickselect(values, count, rank)


@kernel()
def at_least(given: Any, count: int, rank: int, spare: Any, tally: Any) -> float:
    """The value of the given rank or a little more, which is faster to find; values are not negative.

    They are counted in bins of about the same ratio: floats are in the order of their bits, read as whole numbers.
    ``spare`` and ``tally`` are space for as many as are given.
    """
    if count < 2 * _BINS:
        return select(given, count, rank, spare)
    bits, edge = given.view(np.int64), spare.view(np.int64)
    low, high = bits[0], bits[0]
    for i in range(count):
        low, high = min(low, bits[i]), max(high, bits[i])
    edge[0] = high
    spare[1] = spare[0] * _SMALL
    low = max(low, edge[1])
    width = (high - low) // _BINS + 1
    for place in range(_BINS):
        tally[place] = 0
    scale = 1.0 / width
    for i in range(count):
        # Rounding may put a value into the bin before its own; the edge below has room for it.
        tally[min(int(max(bits[i] - low, 0) * scale), _BINS - 1)] += 1
    place, total = 0, tally[0]
    while total <= rank:
        place += 1
        total += tally[place]
    edge[0] = min(high, low + (place + 1) * width + width // 1000)
    return float(spare[0])


@kernel()
def sort_within(
    given_keys: Any, given_numbers: Any, given: int, bound: float, keys: Any, numbers: Any, ends: Any
) -> int:
    """Sort the pairs whose key is at most ``bound`` by key and number; returns how many.

    Keys are not negative. ``ends`` is space for two more than are given, which are left in disorder.
    """
    count, low = 0, bound
    for i in range(given):
        key, given_numbers[count] = given_keys[i], given_numbers[i]
        given_keys[count] = key
        count += key <= bound
        low = min(low, key)
    _spread(given_keys, given_numbers, count, low, bound, keys, numbers, ends)
    for start in range(0, count, _RUN):
        for i in range(start + 1, min(start + _RUN, count)):
            key, number, j = keys[i], numbers[i], i
            while j > start and (keys[j - 1] > key or (keys[j - 1] == key and numbers[j - 1] > number)):
                keys[j], numbers[j] = keys[j - 1], numbers[j - 1]
                j -= 1
            keys[j], numbers[j] = key, number
    run = _RUN
    while run < count:
        for start in range(0, count - run, 2 * run):
            _merge(keys, numbers, start, start + run, min(start + 2 * run, count), given_keys, given_numbers)
        run *= 2
    return count


@kernel()
def _spread(
    given_keys: Any, given_numbers: Any, count: int, low: float, high: float, keys: Any, numbers: Any, ends: Any
) -> None:
    """Put each pair about where it belongs if keys are spread evenly, so that little is left to merge."""
    if not 1e-290 < high - low < np.inf:  # all the same, or the scale would leave the range of floats
        for i in range(count):
            keys[i], numbers[i] = given_keys[i], given_numbers[i]
        return
    scale = (count - 0.5) / (high - low)
    for place in range(count + 1):
        ends[place] = 0
    for i in range(count):
        ends[int((given_keys[i] - low) * scale) + 1] += 1
    for place in range(count):
        ends[place + 1] += ends[place]
    for i in range(count):
        place = int((given_keys[i] - low) * scale)
        keys[ends[place]], numbers[ends[place]] = given_keys[i], given_numbers[i]
        ends[place] += 1


@kernel()
def _merge(keys: Any, numbers: Any, start: int, middle: int, stop: int, spare_keys: Any, spare_numbers: Any) -> None:
    """Merge two sorted runs that lie next to each other."""
    last, first = keys[middle - 1], keys[middle]
    if last < first or (last == first and numbers[middle - 1] < numbers[middle]):
        return
    for i in range(start, middle):
        spare_keys[i], spare_numbers[i] = keys[i], numbers[i]
    i, j, to = start, middle, start
    while i < middle and j < stop:
        # The left run waits in the spare arrays, so that nothing unread is overwritten.
        left = spare_keys[i] < keys[j] or (spare_keys[i] == keys[j] and spare_numbers[i] < numbers[j])
        keys[to] = spare_keys[i] if left else keys[j]
        numbers[to] = spare_numbers[i] if left else numbers[j]
        i, j, to = i + left, j + (not left), to + 1
    while i < middle:
        keys[to], numbers[to] = spare_keys[i], spare_numbers[i]
        i, to = i + 1, to + 1
