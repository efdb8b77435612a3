"""Bounds of many rows at once in float32: coordinate by coordinate, or by matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute._compiled import kernel
from occamroute.neighbors.metrics import L1, LINF

__all__ = ["LANES", "STEP", "chunk_count", "least_of_chunks", "multiply", "sweep", "sweep_piece"]

STEP = 4  # coordinates taken in one pass over the rows
LANES = 32  # pieces of rows are padded to a multiple of this, so that vectors leave no remainder
_SMALL_PRODUCT = 1_000_000  # OpenBLAS runs products up to this size without packing and without its threads
_FEW_QUERIES = 16


def multiply(queries: npt.NDArray[np.float32], columns: npt.NDArray[np.float32], *, out: Any) -> None:
    """Products of queries (B, D) and columns (G, D, S) to out (G, B, S).

    In pieces small enough that the BLAS starts no threads of its own: those would stand in the way of ours.
    """
    count, height = queries.shape
    size = columns.shape[2]
    pieces = -(-size * _FEW_QUERIES * height // _SMALL_PRODUCT)
    width = max(64, -(-size // (pieces * 16)) * 16)
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
def sweep_piece(picture: Any, order: Any, rows: Any, metric: int, bound: Any) -> None:
    """Distances (l2: squared) over some coordinates: a query (D,), a piece of rows (D, S), bound (S,)."""
    for r in range(bound.shape[0]):
        bound[r] = np.float32(0.0)
    for start in range(0, order.shape[0], 4):
        j, k, m, n = order[start], order[start + 1], order[start + 2], order[start + 3]
        a, b, c, d = picture[j], picture[k], picture[m], picture[n]
        x, y, z, w = rows[j], rows[k], rows[m], rows[n]
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


@kernel(fast=True)
def sweep(queries: Any, order: Any, pictures: Any, metric: int, out: Any) -> None:
    """The same for queries (B, D) and several pieces (K, D, S), to out (K, B, S)."""
    for piece in range(out.shape[0]):
        for query in range(out.shape[1]):
            sweep_piece(queries[query], order[query], pictures[piece], metric, out[piece, query])


@kernel(fast=True)
def least_of_chunks(bound: Any, least: Any) -> None:
    """The lowest bound of each chunk, one look at which skips its rows: c, c + C, … for chunk c of C.

    Rows next to each other are in different chunks, as a minimum across a vector is many times slower.
    """
    chunks = least.shape[0]
    for c in range(chunks):
        least[c] = bound[c]
    for start in range(chunks, bound.shape[0], chunks):
        row = bound[start : start + chunks]
        for c in range(row.shape[0]):
            least[c] = min(least[c], row[c])


def chunk_count(size: int) -> int:
    """How many chunks that many rows are looked at in: a multiple of ``LANES``, 16 rows each or fewer."""
    return -(-size // (16 * LANES)) * LANES
