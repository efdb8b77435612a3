"""Selecting and sorting short lists inside kernels."""

from __future__ import annotations

from typing import Any

from occamroute._compiled import kernel, quickselect

__all__ = ["select", "sort_within"]

_RUN = 8  # entries sorted by insertion before runs are merged


@kernel()
def select(given: Any, count: int, rank: int, values: Any) -> float:
    """The value of the given rank (from 0) among the first ``count``; ``values`` is space for as many."""
    for i in range(count):
        values[i] = given[i]
    return quickselect(values, count, rank)


@kernel()
def sort_within(keys: Any, numbers: Any, given: int, bound: float, spare_keys: Any, spare_numbers: Any) -> int:
    """Drop the pairs whose key is above ``bound``, sort the rest by key and number; returns how many."""
    count = 0
    for i in range(given):
        keys[count], numbers[count] = keys[i], numbers[i]
        count += keys[i] <= bound
    for start in range(0, count, _RUN):
        for i in range(start + 1, min(start + _RUN, count)):
            key, number, j = keys[i], numbers[i], i
            while j > start and (keys[j - 1] > key or (keys[j - 1] == key and numbers[j - 1] > number)):
                keys[j], numbers[j] = keys[j - 1], numbers[j - 1]
                j -= 1
            keys[j], numbers[j] = key, number
    run = _RUN
    while run < count:
        for start in range(0, count, 2 * run):
            middle, stop = min(start + run, count), min(start + 2 * run, count)
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
        run *= 2
    return count
