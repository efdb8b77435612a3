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

__all__ = ["PAIRS", "STEP", "Kernels", "kernels"]

STEP = 2  # coordinates taken in one turn of the loop; panels are as high as a multiple of it
PAIRS = 32  # whose exact distances one program computes
# The numbers are measured. A multiplication and the addition after it may be rounded once: the margin allows either.
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}
_PRODUCT_OPTIONS = {"num_warps": 8, "num_stages": 3, "enable_fp_fusion": True}
# Here it may not be: the processor rounds both.
_EXACT_OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}


class Kernels(NamedTuple):
    """The kernels, ready to be launched, and how."""

    nearest_two: Any
    nearest_by_product: Any
    within: Any
    exact: Any
    options: dict[str, Any]
    product_options: dict[str, Any]
    exact_options: dict[str, Any]


@cache
def kernels() -> Kernels:
    """The kernels; each is compiled at its first launch and kept on disk."""
    what = "device 'cuda'"
    triton = require("triton", extra="torch", what=what)
    # Triton looks for what a kernel names among the globals of its module.
    globals()["tl"] = require("triton.language", extra="torch", what=what)
    return Kernels(
        triton.jit(_nearest_two), triton.jit(_nearest_by_product), triton.jit(_within), triton.jit(_exact),
        _OPTIONS, _PRODUCT_OPTIONS, _EXACT_OPTIONS,
    )  # fmt: skip


# None is annotated further, as the compiler reads annotations too.


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


def _nearest_by_product(  # type: ignore[no-untyped-def]
    queries, rows, query_scales, row_scales, norms, best, second, position,
    count, groups, parts, panels, height,
    query_tile: tl.constexpr, row_tile: tl.constexpr, step: tl.constexpr, stretch: tl.constexpr, band: tl.constexpr,
):  # fmt: skip
    """For a tile of queries and a part of a group, l2: the same, squared and less the query's own square.

    Numbers are pairs of float16: the low halves come before the high ones in queries, and after them in rows.
    """
    # A band of tiles goes through all the rows together, so that both stay in the cache.
    program, all_parts = tl.program_id(0), groups * parts
    which = program // band % all_parts
    panel = program // band // all_parts * band + program % band
    if panel >= panels:
        return
    in_tile, in_row_tile, along = tl.arange(0, query_tile), tl.arange(0, row_tile), tl.arange(0, step)
    number, row = panel * query_tile + in_tile, which.to(tl.int64) * row_tile + in_row_tile
    from_query = queries + panel.to(tl.int64) * query_tile * 2 * height + in_tile[:, None] * 2 * height + along[None, :]
    from_row = rows + which.to(tl.int64) * row_tile * 2 * height + in_row_tile[None, :] * 2 * height + along[:, None]
    product = tl.zeros([query_tile, row_tile], tl.float32)
    # Low times high and high times low: these are small, and lose little.
    for k in range(0, 2 * height, step):
        product = tl.dot(tl.load(from_query + k), tl.load(from_row + k), product)
    # High times high, in sums of their own, which lose the less the fewer are added up.
    for start in range(0, height, stretch):
        some = tl.zeros([query_tile, row_tile], tl.float32)
        for k in range(start, tl.minimum(start + stretch, height), step):
            some = tl.dot(tl.load(from_query + height + k), tl.load(from_row + k), some)
        product += some
    # One after the other: the two scales together may be too small for float32.
    product = product * tl.load(query_scales + number)[:, None] * tl.load(row_scales + row)[None, :]
    far = tl.load(norms + row)[None, :] + product
    least, at = tl.min(far, axis=1, return_indices=True)
    other = tl.min(tl.where(in_row_tile[None, :] == at[:, None], float("inf"), far), axis=1)
    part, group = which % parts, which // parts
    into = (part.to(tl.int64) * count + number) * groups + group
    tl.store(best + into, least, mask=number < count)
    tl.store(second + into, other, mask=number < count)
    tl.store(position + into, at + part * row_tile, mask=number < count)


def _within(  # type: ignore[no-untyped-def]
    queries, rows, pairs, limits, wanted, mask,
    size, height, tiles, parts,
    metric: tl.constexpr, query_tile: tl.constexpr, row_tile: tl.constexpr, step: tl.constexpr, part_size: tl.constexpr,
):  # fmt: skip
    """For a pair of a query and a group: which rows of a part of it, where that is wanted, are within the limit."""
    pair, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if tl.load(wanted + pair * parts + part) == 0:
        return
    number, group = tl.load(pairs + 2 * pair), tl.load(pairs + 2 * pair + 1)
    in_part, start = tl.arange(0, part_size), part * part_size
    far = tl.zeros([part_size], tl.float32)
    from_query = queries + number // query_tile * height * query_tile + number % query_tile
    from_row = rows + (group * tiles + start // row_tile) * height * row_tile + start % row_tile + in_part
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
    near = (far <= tl.load(limits + pair)) & (start + in_part < size)
    tl.store(mask + pair * tiles * row_tile + start + in_part, near.to(tl.uint8))


def _exact(  # type: ignore[no-untyped-def]
    queries, rows, units, best, limits, position, distances,
    count, groups, size, width,
    metric: tl.constexpr, pairs: tl.constexpr,
):  # fmt: skip
    """The distances of pairs whose ``best`` is within the query's limit, to the bits of ``metrics.distance_within``."""
    pair = tl.program_id(0).to(tl.int64) * pairs + tl.arange(0, pairs)
    number, group, inside = pair // groups, pair % groups, pair < count
    wanted = inside & (tl.load(best + pair, mask=inside) <= tl.load(limits + number, mask=inside))
    row = group * size + tl.load(position + pair, mask=inside)
    unit = tl.load(units + number, mask=inside)[:, None]
    sums = tl.arange(0, 4)[None, :]
    from_query, from_row = queries + (number * width)[:, None], rows + (row * width)[:, None]
    far = tl.zeros([pairs, 4], tl.float64)
    whole = width // 4 * 4
    # What is left after the fours goes to the first sum; the others add zeros.
    for k in range(0, whole + (width - whole) * 4, 4):
        at = tl.where(k < whole, k + sums, whole + (k - whole) // 4)
        some = wanted[:, None] & (sums < tl.where(k < whole, 4, 1))
        query = tl.load(from_query + at, mask=some, other=0.0).to(tl.float64)
        apart = query - tl.load(from_row + at, mask=some, other=0.0).to(tl.float64)
        if metric == 3:
            far = tl.maximum(far, tl.abs(apart))
        elif metric == 1:
            far += tl.abs(apart)
        else:
            apart = apart * unit
            far += apart * apart
    if metric == 3:
        distance = tl.max(far, axis=1)
    else:
        a, b = tl.sum(tl.where(sums == 0, far, 0.0), axis=1), tl.sum(tl.where(sums == 1, far, 0.0), axis=1)
        c, d = tl.sum(tl.where(sums == 2, far, 0.0), axis=1), tl.sum(tl.where(sums == 3, far, 0.0), axis=1)
        distance = (a + b) + (c + d)
        if metric == 2:
            distance = tl.sqrt(distance) / tl.load(units + number, mask=inside, other=1.0)
    tl.store(distances + pair, tl.where(wanted, distance, float("inf")), mask=inside)
