"""The nearest row in each of several groups, found on a GPU and settled in float64 on the processor.

The device finds the nearest row in float32, and whether any other is so close that float32 cannot tell; where one
is, it lists all that are. Blocks of queries take turns: while the device works on one, the processor settles the
one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray
from occamroute.executors.local import over_blocks
from occamroute.neighbors.coarse import Coarse, Floats
from occamroute.neighbors.gpu_kernels import STEP, kernels
from occamroute.neighbors.gpu_margins import Margins, Pictured
from occamroute.neighbors.gpu_settling import settle
from occamroute.neighbors.inputs import frozen
from occamroute.neighbors.metrics import L2
from occamroute.neighbors.sweep import chunk_count

__all__ = ["DeviceGroups", "Keep"]

_AREA = 4096  # queries times rows of a tile: what the registers of four warps hold
_WIDEST = 512  # rows of a tile
_NARROWEST = 32
_PROGRAMS = 2048  # enough to keep a device busy; with fewer, groups are divided among several
_COORDINATES = 1 << 23  # of the queries of a block
_PAIRS = 1 << 22  # of queries and groups of a block
_MOST_GROUPS = 65535  # that one launch can name
_MASK = 1 << 27  # bytes of a mask
_MANY = 256  # candidates listed for a pair; with more, all rows of its group are looked at
_BLOCK = 256  # queries that a thread settles at a time
_COPIED = 2048  # rows that a thread copies at a time

# What is given to a caller: which queries and groups, and their distances, rows and ties.
Keep = Callable[[tuple[slice, slice], tuple[FloatArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]], None]


class Found(NamedTuple):
    """What the device found for a block of B queries and K groups."""

    best: Floats  # (B, K): the least distance in float32 (l2: squared)
    position: npt.NDArray[np.int32]  # (B, K): in the group
    reach: Floats  # (B,): a group whose ``best`` is above it has no row that is the query's nearest
    listed: npt.NDArray[np.int32]  # (B, K): which of the lists is the pair's, or -1 where float32 tells
    ends: npt.NDArray[np.int64]  # (P + 1,): where each list begins and ends; an empty one means all rows
    candidates: npt.NDArray[np.int32]  # positions in the group, in the order in which the processor takes rows


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
        group_bytes = 4 * self._tiles * self._row_tile * self._height
        self._portion = min(len(groups), _MOST_GROUPS, room // group_bytes)
        self._kept = self._row_panels(0) if self._portion == len(groups) else None
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
            panels = self._row_panels(first) if self._kept is None else self._kept
            groups = frozen(self._groups[first : first + self._portion], np.int64)
            for offset, found in self._blocks(queries, panels, len(groups), every):
                self._settle(queries, offset, found, groups, first, values, sums, keep)

    def _settle(
        self, queries: FloatArray, offset: int, found: Found, groups: Any, first: int,
        values: FloatArray, sums: FloatArray, keep: Keep,
    ) -> None:  # fmt: skip
        """Settle what was found for the queries from ``offset`` on, a few on each thread."""
        chunks, metric = chunk_count(groups.shape[1]), self._coarse.metric

        def block(start: int, stop: int) -> None:
            some, here = slice(start, stop), slice(offset + start, offset + stop)
            shape = stop - start, len(groups)
            distances, numbers, ties = np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.int64)
            exact = queries[here].astype(np.float64)
            unit = self._coarse.unit(exact) if metric == L2 else np.ones(len(exact))
            settle(
                exact, unit, found.best[some], found.position[some], found.reach[some], found.listed[some],
                found.ends, found.candidates, chunks, self._rows, groups, metric, values, sums[here],
                distances, numbers, ties,
            )  # fmt: skip
            keep((here, slice(first, first + len(groups))), (distances, numbers, ties))

        over_blocks(block, len(found.best), block=_BLOCK, threads=self._threads)

    def _blocks(self, queries: FloatArray, panels: Any, groups: int, every: bool) -> Iterator[tuple[int, Found]]:
        """What is found for each block of queries, the next one being under way."""
        length = max(1, min(_COORDINATES // self._height, _PAIRS // groups))
        blocks = [slice(start, min(start + length, len(queries))) for start in range(0, len(queries), length)]
        under_way = self._search(self._uploaded(queries[blocks[0]]), panels, groups)
        for here, after in zip(blocks, [*blocks[1:], None], strict=True):
            upcoming = None if after is None else self._uploaded(queries[after])
            found = self._fetched(*under_way, panels, every)
            if upcoming is not None:
                under_way = self._search(upcoming, panels, groups)
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

    def _row_panels(self, first: int) -> Any:
        """A portion of the groups, (K, tiles, height, row_tile)."""
        groups = self._groups[first : first + self._portion]
        shape = len(groups), self._tiles, self._height, self._row_tile
        panels = self._torch.empty(shape, dtype=self._torch.float32, device=self._device)
        for group, panel in zip(groups, panels, strict=True):
            picture = self._margins.picture(self._uploaded(self._rows[group]))
            panel.copy_(self._panels(picture, self._row_tile))
        return panels

    def _panels(self, picture: Any, tile: int) -> Any:
        """Rows (n, width) as panels (tiles, height, tile), filled up with zeros."""
        count, width = picture.shape
        tiles = -(-count // tile)
        padded = self._torch.nn.functional.pad(picture, (0, self._height - width, 0, tiles * tile - count))
        return padded.view(tiles, tile, self._height).transpose(1, 2).contiguous()

    def _search(self, queries: Any, panels: Any, groups: int) -> tuple[Any, Pictured, tuple[Any, Any, Any]]:
        """The queries' panels, their margins, and for each group the least distance, the next one and where."""
        torch = self._torch
        pictured = self._margins.of(queries)
        asked = self._panels(pictured.picture, self._query_tile)
        programs = len(asked) * groups
        stretches = min(self._tiles, max(1, _PROGRAMS // programs))
        tiles_each = -(-self._tiles // stretches)
        stretches = -(-self._tiles // tiles_each)
        shape = stretches, len(queries), groups
        best, second = (torch.empty(shape, dtype=torch.float32, device=self._device) for _ in range(2))
        position = torch.empty(shape, dtype=torch.int32, device=self._device)
        ready = kernels()
        ready.nearest_two[(len(asked), groups, stretches)](
            asked, panels, best, second, position,
            len(queries), groups, self._groups.shape[1], self._height, self._tiles, tiles_each,
            self._coarse.metric, self._query_tile, self._row_tile, STEP, **ready.options,
        )  # fmt: skip
        return asked, pictured, self._merged(best, second, position)

    def _merged(self, best: Any, second: Any, position: Any) -> tuple[Any, Any, Any]:
        """The same for whole groups, from stretches of them (Z, B, K)."""
        if len(best) == 1:
            return best[0], second[0], position[0]
        least, stretch = best.min(dim=0, keepdim=True)
        others = best.scatter(0, stretch, float("inf")).amin(dim=0)
        return least[0], self._torch.minimum(others, second.gather(0, stretch)[0]), position.gather(0, stretch)[0]

    def _fetched(self, asked: Any, pictured: Pictured, found: tuple[Any, Any, Any], panels: Any, every: bool) -> Found:
        """What was found, in the processor's memory, with the candidates of pairs that float32 cannot settle."""
        torch = self._torch
        best, second, position = found
        limits = self._margins.limits(best, pictured.slack[:, None])
        reach = self._margins.limits(best.amin(dim=1), pictured.slack)
        pairs = torch.nonzero(second <= limits).contiguous()
        listed = torch.full(best.shape, -1, dtype=torch.int32, device=self._device)
        listed[pairs[:, 0], pairs[:, 1]] = torch.arange(len(pairs), dtype=torch.int32, device=self._device)
        counts, candidates = self._listed(asked, panels, pairs, limits[pairs[:, 0], pairs[:, 1]])
        if every:
            reach.fill_(float("inf"))
        ends = np.concatenate([[0], np.cumsum(counts)])
        best, position, reach, listed = (array.cpu().numpy() for array in (best, position, reach, listed))
        return Found(best, position, reach, listed, ends, candidates)

    def _listed(self, asked: Any, panels: Any, pairs: Any, limits: Any) -> tuple[Any, npt.NDArray[np.int32]]:
        """How many candidates each pair has, none where there are too many to list; and all of them."""
        torch, ready = self._torch, kernels()
        counts, candidates = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
        width = self._tiles * self._row_tile
        together = max(1, _MASK // width)
        for some, most in zip(pairs.split(together), limits.split(together), strict=True):
            if len(some) == 0:
                continue
            mask = torch.empty((len(some), width), dtype=torch.uint8, device=self._device)
            ready.within[(len(some), self._tiles)](
                asked, panels, some, most, mask, self._groups.shape[1], self._height, self._tiles,
                self._coarse.metric, self._query_tile, self._row_tile, STEP, **ready.options,
            )  # fmt: skip
            mask = mask.index_select(1, self._order)
            count = mask.sum(dim=1, dtype=torch.int64)
            mask[count > _MANY] = 0
            count[count > _MANY] = 0
            counts.append(count.cpu().numpy())
            candidates.append(self._order[torch.nonzero(mask)[:, 1]].to(torch.int32).cpu().numpy())
        return np.concatenate(counts), np.concatenate(candidates)
