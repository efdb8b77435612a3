"""The three distances, in float64; ``gpu_kernels`` has them once more, to the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._compiled import kernel
from occamroute.errors import UnknownNameError

__all__ = ["L1", "L2", "LINF", "METRICS", "STRETCH", "distance_within", "limit_of", "metric_code", "wide_linf_within"]

METRICS = ("l1", "l2", "linf")
L1, L2, LINF = 1, 2, 3
STRETCH = 128  # coordinates of wide rows between two looks at whether the distance can still be small enough


def metric_code(metric: object) -> int:
    """The number that kernels know a metric by."""
    if metric not in METRICS:
        raise UnknownNameError("metric", metric, METRICS)
    return {"l1": L1, "l2": L2, "linf": LINF}[str(metric)]


@kernel()
def distance_within(query: Any, rows: Any, number: int, metric: int, unit: float, bound: float) -> float:
    """The distance of a float64 query to the row of that number, or inf once it must exceed ``bound``.

    Not compiled ``fast``: four sums in a fixed order give the same bits wherever this is inlined, so that
    equal rows are always equally far. ``unit``, a power of two, keeps squares from over- and underflowing.
    """
    # Rounding is monotone, so a partial result above the bound can never come back below it.
    size = query.shape[0]
    whole = size - size % 4
    a = b = c = d = 0.0
    if metric == LINF:
        for i in range(0, whole, 4):
            a = max(a, abs(query[i] - rows[number, i]))
            b = max(b, abs(query[i + 1] - rows[number, i + 1]))
            c = max(c, abs(query[i + 2] - rows[number, i + 2]))
            d = max(d, abs(query[i + 3] - rows[number, i + 3]))
            if i % 16 == 12 and max(max(a, b), max(c, d)) > bound:
                return np.inf
        for i in range(whole, size):
            a = max(a, abs(query[i] - rows[number, i]))
        return max(max(a, b), max(c, d))
    if metric == L1:
        for i in range(0, whole, 4):
            a += abs(query[i] - rows[number, i])
            b += abs(query[i + 1] - rows[number, i + 1])
            c += abs(query[i + 2] - rows[number, i + 2])
            d += abs(query[i + 3] - rows[number, i + 3])
            if i % 16 == 12 and (a + b) + (c + d) > bound:
                return np.inf
        for i in range(whole, size):
            a += abs(query[i] - rows[number, i])
        return (a + b) + (c + d)
    # The bound is compared before the square root, with room for its rounding.
    stop = (bound * unit) * (bound * unit) * (1.0 + 1e-14) + 1e-300
    for i in range(0, whole, 4):
        s, t = (query[i] - rows[number, i]) * unit, (query[i + 1] - rows[number, i + 1]) * unit
        u, v = (query[i + 2] - rows[number, i + 2]) * unit, (query[i + 3] - rows[number, i + 3]) * unit
        a, b, c, d = a + s * s, b + t * t, c + u * u, d + v * v
        if i % 16 == 12 and (a + b) + (c + d) > stop:
            return np.inf
    for i in range(whole, size):
        s = (query[i] - rows[number, i]) * unit
        a += s * s
    return float(np.sqrt((a + b) + (c + d)) / unit)


@kernel()
def wide_linf_within(query: Any, rows: Any, number: int, bound: float, gaps: Any, bits: Any) -> float:
    """The same for linf in vectors, which pays for wide rows; ``bits`` are those of the space in ``gaps``.

    Floats that are not negative are in the order of their bits, and of whole numbers, unlike of floats, compilers
    find the largest in vectors.
    """
    row, most = rows[number], 0
    for start in range(0, query.shape[0], STRETCH):
        some, others = query[start : start + STRETCH], row[start : start + STRETCH]
        for i in range(some.shape[0]):
            gaps[i] = abs(some[i] - others[i])
        for i in range(some.shape[0]):
            most = max(most, bits[i])
        bits[STRETCH] = most
        if gaps[STRETCH] > bound:
            return np.inf
    return float(gaps[STRETCH])


@kernel(inline=True)
def limit_of(distance: float, margin: Any, slack: float, shift: float) -> float:
    """The largest bound that a row within ``distance`` can have; see ``coarse.Prepared``."""
    scale, squared, stretch = margin
    reach = distance * scale + slack
    return float((reach * reach if squared else reach) * stretch + shift)
