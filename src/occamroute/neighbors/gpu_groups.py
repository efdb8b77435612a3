"""The nearest row in each of several groups, found on a GPU and settled in float64 on the processor.

The device finds the nearest row in float32, and whether any other is so close that float32 cannot tell; where one
is, it lists all that are, and the processor settles it; for the others it computes the distance in float64 itself.
Blocks of queries take turns: while the device works on one, the processor settles the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray
from occamroute.executors.local import over_blocks
from occamroute.neighbors.coarse import Coarse
from occamroute.neighbors.gpu_kernels import PAIRS, STEP, kernels
from occamroute.neighbors.gpu_margins import Margins, Pictured
from occamroute.neighbors.gpu_products import Near, Products, SplitRows, merged
from occamroute.neighbors.gpu_settling import settle
from occamroute.neighbors.inputs import frozen
from occamroute.neighbors.sweep import chunk_count

__all__ = ["DeviceGroups", "Keep"]

_AREA = 4096  # queries times rows of a tile: what the registers of four warps hold
_WIDEST = 512  # rows of a tile
_NARROWEST = 32
_PROGRAMS = 2048  # enough to keep a device busy; with fewer, groups are divided among several
_COORDINATES = 1 << 23  # of the queries of a block
_PAIRS = 1 << 22  # of queries and groups of a block
_PARTS = 1 << 24  # of queries and parts of groups of a block
_MOST_GROUPS = 65535  # that one launch can name
_MASK = 1 << 27  # bytes of a mask
_MANY = 256  # candidates listed for a pair; with more, all rows of its group are looked at
_PART = 128  # rows of a tile that are looked through together for candidates
_ROUGH = 1 / 16  # of the pairs; if products leave more of them open, differences take less time
_FEW = 4096  # pairs that are no reason to search once more
_BLOCK = 512  # queries that a thread settles at a time; with fewer, threads wait for the interpreter's lock
_COPIED = 2048  # rows that a thread copies at a time

# What is given to a caller: which queries and groups, and their distances, rows and ties.
Keep = Callable[[tuple[slice, slice], tuple[FloatArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]], None]


class Found(NamedTuple):
    """What the device found for a block of B queries and K groups."""

    distances: FloatArray  # (B, K): infinite in groups that cannot have the query's nearest row
    position: npt.NDArray[np.int32]  # (B, K): in the group
    units: FloatArray  # (B,): of ``Coarse.unit``
    listed: npt.NDArray[np.int32]  # (B, K): which of the lists is the pair's, or -1 where float32 tells
    ends: npt.NDArray[np.int64]  # (P + 1,): where each list begins and ends; an empty one means all rows
    candidates: npt.NDArray[np.int32]  # positions in the group, in the order in which the processor takes rows


class Portion(NamedTuple):
    """Some of the groups on the device."""

    panels: Any  # (K, tiles, height, row_tile) float32
    exact: Any  # (K, s, d) as they came
    split: SplitRows | None  # for products of matrices


class UnderWay(NamedTuple):
    """A block of queries that the device is working on."""

    queries: Any  # (B, d) as they came
    pictured: Pictured
    panels: Any
    near: Near


class DeviceGroups:
    """Groups (K, s) of rows on a device; at most ``room`` bytes of them at a time."""

    def __init__(
        self,
        rows: FloatArray,
        groups: npt.NDArray[np.int64],
        coarse: Coarse,
        *,
        torch: Any,
        device: str,
        room: int,
        products: bool,
        threads: int | None,
    ) -> None:
        self._rows, self._groups, self._coarse = rows, groups, coarse
        self._torch, self._device, self._threads = torch, device, threads
        self._margins = Margins(coarse, torch, device)
        size = groups.shape[1]
        self._row_tile = min(_WIDEST, max(_NARROWEST, 1 << (size - 1).bit_length()))
        self._query_tile = _AREA // self._row_tile
        self._tiles = -(-size // self._row_tile)
        self._height = -(-coarse.width // STEP) * STEP
        self._part = min(_PART, self._row_tile)
        self._parts = -(-size // self._part)
        multiply = products and coarse.product
        self._products = Products(coarse.width, size, self._part, torch=torch) if multiply else None
        group_bytes = 4 * self._tiles * self._row_tile * self._height + rows.itemsize * size * coarse.width
        group_bytes += self._products.group_bytes if self._products else 0
        self._portion = min(len(groups), _MOST_GROUPS, room // group_bytes)
        self._kept = self._portion_from(0) if self._portion == len(groups) else None
        self._order = torch.tensor(np.argsort(np.arange(size) % chunk_count(size), kind="stable"), device=device)

    @property
    def fits(self) -> bool:
        """Whether the device has room for at least one group."""
        return bool(self._portion > 0)

    def run(self, queries: FloatArray, values: FloatArray, sums: FloatArray, keep: Keep, *, every: bool) -> None:
        """Give what is found to ``keep``, a block at a time, and add the groups' means to ``sums``.

        Without ``every``, distances are infinite in groups that do not have a query's nearest row.
        """
        for first in range(0, len(self._groups), self._portion):
            portion = self._portion_from(first) if self._kept is None else self._kept
            groups = frozen(self._groups[first : first + self._portion], np.int64)
            for offset, found in self._blocks(queries, portion, every):
                self._settle(queries, offset, found, groups, first, values, sums, keep)

    def _settle(
        self, queries: FloatArray, offset: int, found: Found, groups: Any, first: int,
        values: FloatArray, sums: FloatArray, keep: Keep,
    ) -> None:  # fmt: skip
        """Settle what was found for the queries from ``offset`` on, a few on each thread."""
        chunks, metric = chunk_count(groups.shape[1]), self._coarse.metric

        def block(start: int, stop: int) -> None:
            some, here = slice(start, stop), slice(offset + start, offset + stop)
            distances, shape = found.distances[some], (stop - start, len(groups))
            numbers, ties = np.empty(shape, np.int64), np.empty(shape, np.int64)
            settle(
                queries[here], found.units[some], found.position[some], found.listed[some], found.ends,
                found.candidates, chunks, self._rows, groups, metric, values, sums[here], distances, numbers, ties,
            )  # fmt: skip
            keep((here, slice(first, first + len(groups))), (distances, numbers, ties))

        # With much to settle, threads take fewer, so that none waits long for the last one.
        many = len(found.ends) > found.listed.size // 8
        over_blocks(block, len(found.units), block=_BLOCK // 4 if many else _BLOCK, threads=self._threads)

    def _blocks(self, queries: FloatArray, portion: Portion, every: bool) -> Iterator[tuple[int, Found]]:
        """What is found for each block of queries, the next one being under way."""
        groups = len(portion.panels)
        length = min(_COORDINATES // self._height, _PAIRS // groups)
        length = max(1, min(length, _PARTS // (groups * self._parts)) if self._products else length)
        blocks = [slice(start, min(start + length, len(queries))) for start in range(0, len(queries), length)]
        under_way = self._search(self._uploaded(queries[blocks[0]]), portion)
        for here, after in zip(blocks, [*blocks[1:], None], strict=True):
            upcoming = None if after is None else self._uploaded(queries[after])
            found = self._fetched(under_way, portion, every)
            if upcoming is not None:
                under_way = self._search(upcoming, portion)
            yield here.start, found

    def _uploaded(self, array: FloatArray) -> Any:
        """A copy on the device, under way: through memory that it can read by itself."""
        torch = self._torch
        kind = torch.float32 if array.dtype == np.float32 else torch.float64
        staged = torch.empty(array.shape, dtype=kind, pin_memory=self._device != "cpu")
        memory = staged.numpy()

        def copy(start: int, stop: int) -> None:
            memory[start:stop] = array[start:stop]

        over_blocks(copy, len(array), block=_COPIED, threads=self._threads)
        return staged.to(self._device, non_blocking=True)

    def _downloaded(self, array: Any) -> Any:
        """A copy in the processor's memory, which the device can write by itself too."""
        into = self._torch.empty(array.shape, dtype=array.dtype, pin_memory=self._device != "cpu")
        return into.copy_(array).numpy()

    def _portion_from(self, first: int) -> Portion:
        """A portion of the groups."""
        torch, device = self._torch, self._device
        groups = self._groups[first : first + self._portion]
        count, size, width = *groups.shape, self._coarse.width
        kind = torch.float32 if self._rows.dtype == np.float32 else torch.float64
        panels = torch.empty((count, self._tiles, self._height, self._row_tile), dtype=torch.float32, device=device)
        exact = torch.empty((count, size, width), dtype=kind, device=device)
        products = self._products
        split = products.rows(count, device) if products else None
        for number, group in enumerate(groups):
            exact[number] = self._uploaded(self._rows[group])
            picture = self._margins.picture(exact[number])
            panels[number] = self._panels(picture, self._row_tile)
            if products and split:
                products.fill(split, number, picture)
        return Portion(panels, exact, split)

    def _panels(self, picture: Any, tile: int) -> Any:
        """Rows (n, width) as panels (tiles, height, tile), filled up with zeros."""
        count, width = picture.shape
        tiles = -(-count // tile)
        padded = self._torch.nn.functional.pad(picture, (0, self._height - width, 0, tiles * tile - count))
        return padded.view(tiles, tile, self._height).transpose(1, 2).contiguous()

    def _search(self, queries: Any, portion: Portion) -> UnderWay:
        """The queries' panels and margins, and the nearest row of each group."""
        pictured = self._margins.of(queries)
        panels, products = self._panels(pictured.picture, self._query_tile), self._products
        if products and portion.split:
            near = products.nearest(pictured, portion.split)
        else:
            near = self._by_differences(panels, len(queries), portion)
        return UnderWay(queries, pictured, panels, near)

    def _by_differences(self, panels: Any, count: int, portion: Portion) -> Near:
        """The nearest row of each group, and the next one."""
        torch, groups = self._torch, len(portion.panels)
        programs = len(panels) * groups
        stretches = min(self._tiles, max(1, _PROGRAMS // programs))
        tiles_each = -(-self._tiles // stretches)
        stretches = -(-self._tiles // tiles_each)
        shape = stretches, count, groups
        best, second = (torch.empty(shape, dtype=torch.float32, device=self._device) for _ in range(2))
        position = torch.empty(shape, dtype=torch.int32, device=self._device)
        ready = kernels()
        ready.nearest_two[(len(panels), groups, stretches)](
            panels, portion.panels, best, second, position,
            count, groups, self._groups.shape[1], self._height, self._tiles, tiles_each,
            self._coarse.metric, self._query_tile, self._row_tile, STEP, **ready.options,
        )  # fmt: skip
        best, second, position = merged(torch, best, second, position)
        return Near(best, second, position, self._margins.most(best))

    def _fetched(self, under_way: UnderWay, portion: Portion, every: bool) -> Found:
        """What was found, in the processor's memory, with the candidates of pairs that float32 cannot settle."""
        torch, margins = self._torch, self._margins
        queries, pictured, _, near = under_way
        reach = margins.reach(near.most, pictured.slack[:, None])
        limits = margins.limits(reach, near.floor)
        pairs = torch.nonzero(near.second <= limits)
        if near.floor is not None and len(pairs) > max(_FEW, _ROUGH * limits.numel()):
            self._products = None  # for good: the rows are too close to each other
            return self._fetched(self._search(queries, portion), portion, every)
        listed = torch.full(limits.shape, -1, dtype=torch.int32, device=self._device)
        listed[pairs[:, 0], pairs[:, 1]] = torch.arange(len(pairs), dtype=torch.int32, device=self._device)
        ends, candidates = self._listed(under_way, portion, pairs, reach, limits)
        nearest = torch.full((len(queries), 1), float("inf"), dtype=torch.float32, device=self._device)
        if not every:
            nearest = margins.limits(reach.amin(dim=1, keepdim=True), near.floor)
        units = margins.units(queries)
        distances = self._distances(queries, portion.exact, near, nearest, units)
        distances, position, units, listed = map(self._downloaded, (distances, near.position, units, listed))
        return Found(distances, position, units, listed, ends, candidates)

    def _listed(
        self, under_way: UnderWay, portion: Portion, pairs: Any, reach: Any, limits: Any
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Where each pair's candidates end, none where there are too many to list; and all of them."""
        torch, ready = self._torch, kernels()
        counts, candidates = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
        width = self._tiles * self._row_tile
        together = max(1, _MASK // width)
        for some in pairs.split(together) if len(pairs) else ():
            at = some[:, 0], some[:, 1]
            wanted = torch.ones((len(some), self._parts), dtype=torch.uint8, device=self._device)
            if under_way.near.parts is not None:
                wanted = (under_way.near.parts[:, at[0], at[1]] <= limits[at]).t().to(torch.uint8).contiguous()
            mask = torch.zeros((len(some), width), dtype=torch.uint8, device=self._device)
            ready.within[(len(some), self._parts)](
                under_way.panels, portion.panels, some.contiguous(), self._margins.limits(reach[at]), wanted, mask,
                self._groups.shape[1], self._height, self._tiles, self._parts,
                self._coarse.metric, self._query_tile, self._row_tile, STEP, self._part, **ready.options,
            )  # fmt: skip
            mask = mask.index_select(1, self._order)
            count = mask.sum(dim=1, dtype=torch.int64)
            mask[count > _MANY] = 0
            count[count > _MANY] = 0
            counts.append(count.cpu().numpy())
            candidates.append(self._order[torch.nonzero(mask)[:, 1]].to(torch.int32).cpu().numpy())
        return np.cumsum(np.concatenate(counts)), np.concatenate(candidates)

    def _distances(self, queries: Any, rows: Any, near: Near, limits: Any, units: Any) -> Any:
        """The distances to the nearest rows as the processor computes them, infinite where ``best`` is above limits."""
        ready, count = kernels(), near.best.numel()
        distances = self._torch.empty(near.best.shape, dtype=self._torch.float64, device=self._device)
        ready.exact[(-(-count // PAIRS),)](
            queries, rows, units, near.best, limits, near.position, distances, count, *rows.shape,
            self._coarse.metric, PAIRS, **ready.exact_options,
        )  # fmt: skip
        return distances
