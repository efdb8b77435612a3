"""How far float32 distances on a device can be from those that the processor computes.

The picture is that of ``coarse.Coarse``, made on the device, and so is the margin; ``coarse.Prepared`` explains it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from occamroute.neighbors.coarse import FAR, ROUNDING, TINY, Coarse
from occamroute.neighbors.metrics import L1, L2, LINF

__all__ = ["Margins", "Pictured"]

# What float64 may have done to the distances that are compared, and to the margin itself.
_FLOAT64 = 1.0 + 4e-12


class Pictured(NamedTuple):
    """Queries on the device."""

    picture: Any  # (B, d) float32
    norms: Any  # (B,): 0 where pictures are exact
    slack: Any  # (B,) float64: what picturing a query and a row may have done to their distance


class Margins:
    """Pictures of queries and rows, and limits that hold whatever was rounded."""

    def __init__(self, coarse: Coarse, torch: Any, device: str) -> None:
        self._coarse, self._torch = coarse, torch
        self._center = torch.tensor(coarse.center, dtype=torch.float64, device=device)
        # The difference is rounded, and for sums its square and each addition.
        self._relative = ROUNDING * (2 if coarse.metric == LINF else coarse.width + 8)
        self._shift = (coarse.width + 8) * TINY

    def picture(self, rows: Any) -> Any:
        """Rows shifted, scaled and rounded."""
        coarse = self._coarse
        if rows.dtype == self._torch.float32 and not coarse.shifted and coarse.scale == 1.0:
            return rows
        return ((rows.double() - self._center) * coarse.scale).float()

    def of(self, queries: Any) -> Pictured:
        """Queries (B, d) with what their pictures may be off by."""
        torch, coarse = self._torch, self._coarse
        picture = self.picture(queries)
        # Queries too far out to be pictured have an infinite slack: all rows are candidates.
        far = ~(picture.abs().amax(dim=1) <= FAR)
        picture = torch.where(far[:, None], 0.0, picture)
        rounded = queries.dtype != torch.float32 or coarse.shifted
        norms = self._norms(picture) if rounded else torch.zeros(len(queries), device=queries.device)
        slack = ROUNDING * (coarse.norm + norms.double()) + coarse.width * TINY
        return Pictured(picture, norms, torch.where(far, float("inf"), slack))

    def most(self, best: Any) -> Any:
        """The largest distance of pictures (l2: squared) that can have become the float32 distance ``best``."""
        return (best.double() + self._shift) / (1.0 - self._relative)

    def reach(self, most: Any, slack: Any) -> Any:
        """The largest distance of a row's picture that may be as close as one with at most the distance ``most``."""
        squared = self._coarse.metric == L2
        reach = ((most.sqrt() if squared else most) + slack) * _FLOAT64 + slack
        return (reach * reach if squared else reach) * _FLOAT64

    def limits(self, reach: Any, floor: Any = None) -> Any:
        """The largest float32 distance of a row within reach; ``gpu_products.Near`` explains ``floor``."""
        torch = self._torch
        limits = (reach * (1.0 + self._relative) + self._shift if floor is None else reach - floor).float()
        return torch.nextafter(limits, torch.full_like(limits, float("inf")))

    def units(self, queries: Any) -> Any:
        """``Coarse.unit`` on the device: for each query a power of two that keeps squares within range."""
        torch = self._torch
        largest = queries.abs().amax(dim=1).double().clamp(min=self._coarse.largest)
        # A number is its mantissa times a power of two, so that this division is exact.
        units = torch.frexp(largest).mantissa / largest
        return torch.where(largest > 0.0, units, 1.0).clamp(2.0**-1000, 2.0**1000)

    def _norms(self, picture: Any) -> Any:
        """The metric's norm of each row, a little rounded, which ROUNDING has room for."""
        if self._coarse.metric == LINF:
            return picture.abs().amax(dim=1)
        return self._torch.linalg.vector_norm(
            picture, ord=1 if self._coarse.metric == L1 else 2, dim=1, dtype=self._torch.float64
        )
