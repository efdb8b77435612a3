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
        return Pictured(picture, torch.where(far, float("inf"), slack))

    def limits(self, best: Any, slack: Any) -> Any:
        """The largest float32 distance of a row that may be as close as the one with the distance ``best``."""
        squared = self._coarse.metric == L2
        reach = (best.double() + self._shift) / (1.0 - self._relative)
        reach = ((reach.sqrt() if squared else reach) + slack) * _FLOAT64 + slack
        limit = ((reach * reach if squared else reach) * (1.0 + self._relative) + self._shift) * _FLOAT64
        return self._torch.nextafter(limit.float(), self._torch.full_like(best, float("inf")))

    def _norms(self, picture: Any) -> Any:
        """The metric's norm of each row, a little rounded, which ROUNDING has room for."""
        if self._coarse.metric == LINF:
            return picture.abs().amax(dim=1)
        return self._torch.linalg.vector_norm(
            picture, ord=1 if self._coarse.metric == L1 else 2, dim=1, dtype=self._torch.float64
        )
