"""The three distances, in float64: the only place where an answer's distance is computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._compiled import kernel
from occamroute.errors import UnknownNameError

__all__ = ["L1", "L2", "LINF", "METRICS", "distance_within", "metric_code"]

METRICS = ("l1", "l2", "linf")
L1, L2, LINF = 1, 2, 3


def metric_code(metric: object) -> int:
    """The number that kernels know a metric by."""
    if metric not in METRICS:
        raise UnknownNameError("metric", metric, METRICS)
    return {"l1": L1, "l2": L2, "linf": LINF}[str(metric)]


@kernel()
def distance_within(query: Any, row: Any, metric: int, unit: float, bound: float) -> float:
    """The distance of a float64 query to a row, or inf once it must exceed ``bound``.

    Not compiled ``fast``: four sums in a fixed order give the same bits wherever this is inlined, so that
    equal rows are always equally far. ``unit``, a power of two, keeps squares from over- and underflowing.
    """
    size = query.shape[0]
    # Rounding is monotone, so a partial result above the bound can never come back below it. For l2 the
    # bound is compared before the square root, with room for its rounding.
    stop = bound if metric != L2 else (bound * unit) * (bound * unit) * (1.0 + 1e-14) + 1e-300
    a = b = c = d = 0.0
    whole = size - size % 16
    for start in range(0, whole, 16):
        for i in range(start, start + 16, 4):
            s, t = abs(query[i] - row[i]), abs(query[i + 1] - row[i + 1])
            u, v = abs(query[i + 2] - row[i + 2]), abs(query[i + 3] - row[i + 3])
            if metric == LINF:
                a, b, c, d = max(a, s), max(b, t), max(c, u), max(d, v)
            elif metric == L1:
                a, b, c, d = a + s, b + t, c + u, d + v
            else:
                s, t, u, v = s * unit, t * unit, u * unit, v * unit
                a, b, c, d = a + s * s, b + t * t, c + u * u, d + v * v
        if (max(max(a, b), max(c, d)) if metric == LINF else (a + b) + (c + d)) > stop:
            return np.inf
    for i in range(whole, size):
        s = abs(query[i] - row[i])
        if metric == LINF:
            a = max(a, s)
        elif metric == L1:
            a += s
        else:
            a += (s * unit) * (s * unit)
    if metric == LINF:
        return max(max(a, b), max(c, d))
    if metric == L1:
        return (a + b) + (c + d)
    return float(np.sqrt((a + b) + (c + d)) / unit)
