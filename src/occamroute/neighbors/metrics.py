"""The three distances, in float64: the only place where an answer's distance is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import intrinsic

from occamroute._compiled import kernel
from occamroute.errors import UnknownNameError

__all__ = ["L1", "L2", "LINF", "METRICS", "distance_within", "limit_of", "metric_code"]

METRICS = ("l1", "l2", "linf")
L1, L2, LINF = 1, 2, 3
_STRETCH = 128  # coordinates between two looks at whether the distance can still be small enough


def metric_code(metric: object) -> int:
    """The number that kernels know a metric by."""
    if metric not in METRICS:
        raise UnknownNameError("metric", metric, METRICS)
    return {"l1": L1, "l2": L2, "linf": LINF}[str(metric)]


def _greater(typing: Any, a: Any, b: Any) -> Any:
    """The greater of two floats, neither NaN; ``max`` leaves that open, and loops with it are not vectorised."""

    def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        flags = "nnan", "nsz"
        return builder.select(builder.fcmp_ordered(">", *values, flags=flags), *values, flags=flags)

    return a(a, b), write


greater: Any = intrinsic(_greater)


@kernel(fast=True)
def largest_gap(query: Any, row: Any, bound: float) -> float:
    """The linf distance, or inf once it exceeds ``bound``; the greatest number is exact in whatever order."""
    largest = 0.0
    for start in range(0, query.shape[0], _STRETCH):
        some, others = query[start : start + _STRETCH], row[start : start + _STRETCH]
        for i in range(some.shape[0]):
            largest = greater(abs(some[i] - others[i]), largest)
        if largest > bound:
            return np.inf
    return largest


@kernel()
def distance_within(query: Any, rows: Any, number: int, metric: int, unit: float, bound: float) -> float:
    """The distance of a float64 query to the row of that number, or inf once it must exceed ``bound``.

    Not compiled ``fast`` where it adds: four sums in a fixed order give the same bits wherever this is inlined, so
    that equal rows are always equally far. ``unit``, a power of two, keeps squares from over- and underflowing.
    """
    # Rounding is monotone, so a partial result above the bound can never come back below it.
    if metric == LINF:
        return largest_gap(query, rows[number], bound)
    size = query.shape[0]
    whole = size - size % 4
    a = b = c = d = 0.0
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


@kernel(inline=True)
def limit_of(distance: float, margin: Any, slack: float, shift: float) -> float:
    """The largest bound that a row within ``distance`` can have; see ``coarse.Prepared``."""
    scale, squared, stretch = margin
    reach = distance * scale + slack
    return float((reach * reach if squared else reach) * stretch + shift)
