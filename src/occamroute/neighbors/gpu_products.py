"""Squared distances from products of matrices, |q|² + |r|² - 2 q·r: what a GPU does fastest, though less exactly.

A float32 number is the sum of two of float16, up to 2⁻²² of it; of their four products the smallest is left out. Cores
for matrices multiply float16 exactly, and add up in float32 as they like: they may cut off instead of rounding, and in
any order. Each product that is added is taken to cost two units in the last place of the largest sum, 2⁻²² |q| |r|:
cutting off all 16 that are added at a time, the sum before and the one after costs little more than half of that, and
an H200, which keeps two bits more, a sixth. Since 2 |q| |r| <= |q|² + |r|², a share of the two squares bounds what is
lost in all: ``_share``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from occamroute.neighbors.coarse import ROUNDING, TINY
from occamroute.neighbors.gpu_kernels import kernels
from occamroute.neighbors.gpu_margins import Pictured

__all__ = ["Near", "Products", "SplitRows", "merged"]

_QUERY_TILE = 128
_STEP = 64  # coordinates of one product of tiles
_STRETCH = 256  # coordinates that are added up at a time
_BAND = 16  # tiles of queries that go through the rows together
_LARGEST = 2.0**14  # coordinates are scaled to less: float16 ends at 2¹⁶, and is exact to 2⁻²⁴
_SMALLEST = 2.0**-100  # coordinates that are scaled; TINY has room for what is below


class Near(NamedTuple):
    """What a search found for B queries and K groups."""

    best: Any  # (B, K) float32: the least distance (l2: squared), less ``floor``
    second: Any  # (B, K): the next one
    position: Any  # (B, K): where in the group the least one is
    most: Any  # (B, K) float64: the distance of its picture is no more than that
    floor: Any = None  # (B, 1) float64; None where nothing was taken off
    parts: Any = None  # (Z, B, K): the least one of each part of a group; None where not known


class SplitRows(NamedTuple):
    """Groups (K, s) as the kernel takes them, s filled up to whole tiles."""

    halves: Any  # (K, s, 2, height)
    scales: Any  # (K, s): times -2
    norms: Any  # (K, s): squared, less the share that may be lost


class Products:
    """Search in groups (K, s) whose rows are split, ``tile`` of them at a time."""

    def __init__(self, width: int, size: int, tile: int, *, torch: Any) -> None:
        self._torch, self._tile, self._parts = torch, tile, -(-size // tile)
        self._height = -(-width // _STEP) * _STEP
        # Of |q|² + |r|²: the products, their sums, what splitting left out, and the norms in float32.
        self._share = 4 * ROUNDING * (min(width, _STRETCH) + width / _STRETCH + 8)
        self._shift = (width + 8) * TINY
        self.group_bytes = self._parts * self._tile * (4 * self._height + 8)

    def rows(self, groups: int, device: str) -> SplitRows:
        """Room for groups."""
        torch, size = self._torch, self._parts * self._tile
        halves = torch.zeros((groups, size, 2, self._height), dtype=torch.float16, device=device)
        scales = torch.zeros((groups, size), dtype=torch.float32, device=device)
        return SplitRows(halves, scales, torch.full_like(scales, float("inf")))

    def fill(self, rows: SplitRows, group: int, picture: Any) -> None:
        """Put the picture (s, d) of a group there."""
        count = len(picture)
        halves, scales = self._split(picture, low=1)
        rows.halves[group, :count], rows.scales[group, :count] = halves, -2.0 * scales
        rows.norms[group, :count] = (1.0 - self._share) * picture.double().square().sum(dim=1)

    def nearest(self, pictured: Pictured, rows: SplitRows) -> Near:
        """The nearest row of each group, the next one, and how far they can be."""
        torch, count, groups = self._torch, len(pictured.picture), len(rows.norms)
        device = rows.norms.device
        panels = -(-count // _QUERY_TILE)
        missing = panels * _QUERY_TILE - count
        halves, scales = self._split(torch.nn.functional.pad(pictured.picture, (0, 0, 0, missing)), low=0)
        shape = self._parts, count, groups
        best, second = (torch.empty(shape, dtype=torch.float32, device=device) for _ in range(2))
        position = torch.empty(shape, dtype=torch.int32, device=device)
        ready = kernels()
        ready.nearest_by_product[(-(-panels // _BAND) * _BAND * groups * self._parts,)](
            halves, rows.halves, scales, rows.scales, rows.norms, best, second, position,
            count, groups, self._parts, panels, self._height,
            _QUERY_TILE, self._tile, _STEP, _STRETCH, _BAND, **ready.product_options,
        )  # fmt: skip
        parts = best
        best, second, position = merged(torch, best, second, position)
        square, norms = pictured.norms.square()[:, None], rows.norms.t().gather(0, position.long()).double()
        lost = self._share * (square + 2.0 * norms / (1.0 - self._share)) + self._shift
        most = (best.double() + square + lost).clamp(min=0.0)
        return Near(best, second, position, most, (1.0 - self._share) * square - self._shift, parts)

    def _split(self, picture: Any, *, low: int) -> tuple[Any, Any]:
        """Rows (n, d) as pairs of float16 (n, 2, height), ``low`` saying which is the low one, and powers of two."""
        torch = self._torch
        largest = picture.abs().amax(dim=1).clamp(min=_SMALLEST)
        # A number is its mantissa times a power of two, so that these divisions are exact.
        scales = largest / torch.frexp(largest).mantissa / _LARGEST
        scaled = picture / scales[:, None]
        high = scaled.half()
        halves = torch.zeros((len(picture), 2, self._height), dtype=torch.float16, device=picture.device)
        halves[:, 1 - low, : picture.shape[1]] = high
        halves[:, low, : picture.shape[1]] = scaled - high.float()
        return halves, scales


def merged(torch: Any, best: Any, second: Any, position: Any) -> tuple[Any, Any, Any]:
    """The least, the next one and where, for whole groups, from parts of them (Z, B, K)."""
    if len(best) == 1:
        return best[0], second[0], position[0]
    least, part = best.min(dim=0, keepdim=True)
    others = best.scatter(0, part, float("inf")).amin(dim=0)
    return least[0], torch.minimum(others, second.gather(0, part)[0]), position.gather(0, part)[0]
