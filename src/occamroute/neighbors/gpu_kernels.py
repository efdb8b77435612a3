"""Distances on a GPU, reduced as they are made: no distance is ever stored.

Queries and rows come in panels, (tiles, coordinates, tile): a coordinate of a whole tile is next to each other in
memory, so that every stride is known when a kernel is compiled.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from occamroute._optional import require

if TYPE_CHECKING:
    import triton.language as tl

__all__ = ["STEP", "Kernels", "kernels"]

STEP = 2  # coordinates taken in one turn of the loop; panels are as high as a multiple of it
# The number is measured. A multiplication and the addition after it may be rounded once: the margin allows either.
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}


class Kernels(NamedTuple):
    """The two kernels, ready to be launched."""

    nearest_two: Any
    within: Any
    options: dict[str, Any]


@cache
def kernels() -> Kernels:
    """The kernels; each is compiled at its first launch and kept on disk."""
    what = "device 'cuda'"
    triton = require("triton", extra="torch", what=what)
    # Triton looks for what a kernel names among the globals of its module.
    globals()["tl"] = require("triton.language", extra="torch", what=what)
    return Kernels(triton.jit(_nearest_two), triton.jit(_within), _OPTIONS)


# Neither is annotated further, as the compiler reads annotations too.


def _nearest_two(  # type: ignore[no-untyped-def]
    queries, rows, best, second, position,
    count, groups, size, height, tiles, tiles_each,
    metric: tl.constexpr, query_tile: tl.constexpr, row_tile: tl.constexpr, step: tl.constexpr,
):  # fmt: skip
    """For a tile of queries and a stretch of a group: the least distance (l2: squared), where, and the next one."""
    panel, group, stretch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    in_tile, in_row_tile = tl.arange(0, query_tile), tl.arange(0, row_tile)
    lowest = tl.full([query_tile], float("inf"), tl.float32)
    next_lowest = tl.full([query_tile], float("inf"), tl.float32)
    where = tl.zeros([query_tile], tl.int32)
    first = stretch * tiles_each
    for tile in range(first, tl.minimum(first + tiles_each, tiles)):
        far = tl.zeros([query_tile, row_tile], tl.float32)
        from_query = queries + panel.to(tl.int64) * height * query_tile + in_tile
        from_row = rows + (group * tiles + tile).to(tl.int64) * height * row_tile + in_row_tile
        for _ in range(0, height, step):
            for k in tl.static_range(step):
                query, row = tl.load(from_query + k * query_tile), tl.load(from_row + k * row_tile)
                apart = query[:, None] - row[None, :]
                if metric == 3:  # the codes of metrics.py
                    far = tl.maximum(far, tl.abs(apart))
                elif metric == 1:
                    far += tl.abs(apart)
                else:
                    far += apart * apart
            from_query += step * query_tile
            from_row += step * row_tile
        far = tl.where((tile * row_tile + in_row_tile < size)[None, :], far, float("inf"))
        least, at = tl.min(far, axis=1, return_indices=True)
        other = tl.min(tl.where(in_row_tile[None, :] == at[:, None], float("inf"), far), axis=1)
        closer = least < lowest
        next_lowest = tl.where(closer, tl.minimum(lowest, other), tl.minimum(next_lowest, least))
        where = tl.where(closer, at + tile * row_tile, where)
        lowest = tl.where(closer, least, lowest)
    number = panel * query_tile + in_tile
    into = (stretch.to(tl.int64) * count + number) * groups + group
    tl.store(best + into, lowest, mask=number < count)
    tl.store(second + into, next_lowest, mask=number < count)
    tl.store(position + into, where, mask=number < count)


def _within(  # type: ignore[no-untyped-def]
    queries, rows, pairs, limits, mask,
    size, height, tiles,
    metric: tl.constexpr, query_tile: tl.constexpr, row_tile: tl.constexpr, step: tl.constexpr,
):  # fmt: skip
    """For a pair of a query and a group: which rows of a tile are within the pair's limit."""
    pair, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    number, group = tl.load(pairs + 2 * pair), tl.load(pairs + 2 * pair + 1)
    in_row_tile = tl.arange(0, row_tile)
    far = tl.zeros([row_tile], tl.float32)
    from_query = queries + number // query_tile * height * query_tile + number % query_tile
    from_row = rows + (group * tiles + tile) * height * row_tile + in_row_tile
    for _ in range(0, height, step):
        for k in tl.static_range(step):
            apart = tl.load(from_query + k * query_tile) - tl.load(from_row + k * row_tile)
            if metric == 3:
                far = tl.maximum(far, tl.abs(apart))
            elif metric == 1:
                far += tl.abs(apart)
            else:
                far += apart * apart
        from_query += step * query_tile
        from_row += step * row_tile
    near = (far <= tl.load(limits + pair)) & (tile * row_tile + in_row_tile < size)
    tl.store(mask + (pair * tiles + tile) * row_tile + in_row_tile, near.to(tl.uint8))
