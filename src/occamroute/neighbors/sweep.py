"""Bounds of many rows at once in float32: coordinate by coordinate, or by matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute._compiled import kernel
from occamroute.neighbors.metrics import L1, LINF

__all__ = ["STEP", "multiply", "sweep"]

STEP = 4  # coordinates taken in one pass over the rows
_SMALL_PRODUCT = 1_000_000  # OpenBLAS runs products up to this size without packing and without its threads
_FEW_QUERIES = 14


def multiply(queries: npt.NDArray[np.float32], columns: npt.NDArray[np.float32], *, out: Any) -> None:
    """Products of queries (B, D) and columns (G, D, S) to out (G, B, S).

    In pieces small enough that the BLAS starts no threads of its own: those would stand in the way of ours.
    """
    count, height = queries.shape
    size = columns.shape[2]
    width = max(64, _SMALL_PRODUCT // (_FEW_QUERIES * height))
    whole = count - count % _FEW_QUERIES
    stacked = queries[:whole].reshape(-1, _FEW_QUERIES, height)
    for group, target in zip(columns, out, strict=True):
        top = target[:whole].reshape(-1, _FEW_QUERIES, size)
        for start in range(0, size, width):
            piece = slice(start, start + width)
            if whole:
                np.matmul(stacked, group[:, piece], out=top[:, :, piece])
            if whole < count:
                np.matmul(queries[whole:], group[:, piece], out=target[whole:, piece])


@kernel(fast=True)
def sweep(queries: Any, order: Any, columns: Any, metric: int, out: Any) -> None:
    """Distances (l2: squared) over the chosen coordinates: queries (B, D), columns (G, D, S), out (G, B, S)."""
    for group in range(columns.shape[0]):
        for query in range(queries.shape[0]):
            bound = out[group, query]
            for start in range(0, order.shape[1], 4):
                j, k = order[query, start], order[query, start + 1]
                m, n = order[query, start + 2], order[query, start + 3]
                a, b, c, d = queries[query, j], queries[query, k], queries[query, m], queries[query, n]
                x, y, z, w = columns[group, j], columns[group, k], columns[group, m], columns[group, n]
                if start == 0:
                    bound[:] = np.float32(0.0)
                if metric == LINF:
                    for r in range(bound.shape[0]):
                        first = max(abs(a - x[r]), abs(b - y[r]))
                        second = max(abs(c - z[r]), abs(d - w[r]))
                        bound[r] = max(bound[r], max(first, second))
                elif metric == L1:
                    for r in range(bound.shape[0]):
                        bound[r] += (abs(a - x[r]) + abs(b - y[r])) + (abs(c - z[r]) + abs(d - w[r]))
                else:
                    for r in range(bound.shape[0]):
                        s, t, u, v = a - x[r], b - y[r], c - z[r], d - w[r]
                        bound[r] += (s * s + t * t) + (u * u + v * v)
