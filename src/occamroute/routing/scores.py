"""What is watched of a query's features: a few numbers, and the level that each of them is at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute.executors.local import one_thread_each

__all__ = ["Levels", "Scores"]

# So many columns are watched one by one; of more, so many principal directions.
COLUMNS, DIRECTIONS = 12, 8
# Rows that principal directions are computed from.
FOR_DIRECTIONS = 2_000
# Levels of a score: so many equal shares of the rows, and ever smaller ones towards both ends.
SHARES = 64


@dataclass(frozen=True, eq=False)
class Scores:
    """What is watched of a row: its distance, its squared deviation from the mean, and its parts along directions.

    Few columns are watched as they are; of more, the first principal directions, and the deviation is that which
    they leave.
    """

    mean: FloatArray
    scale: float
    directions: FloatArray | None  # (d, k); None: the columns themselves

    @classmethod
    def of(cls, rows: FloatArray) -> Scores:
        """The scores that suit rows (n, d)."""
        low, high = rows.min(axis=0).astype(np.float64), rows.max(axis=0).astype(np.float64)
        with np.errstate(over="ignore"):
            mean = np.clip(rows.mean(axis=0, dtype=np.float64), low, high)
        # Halved before they are subtracted, and scaled by the largest entry: no number overflows.
        scale = float(np.maximum(high / 2.0 - mean / 2.0, mean / 2.0 - low / 2.0).max()) or 1.0
        made = cls(mean, scale, None)
        if mean.size <= COLUMNS:
            return made
        return cls(mean, scale, _principal_directions(made._centred(rows[:FOR_DIRECTIONS])))

    @property
    def names(self) -> tuple[str, ...]:
        """What each score is of, in words; the first two are the distance and the deviation."""
        if self.directions is None:
            parts = [f"column {number}" for number in range(self.mean.size)]
        else:
            parts = [f"principal direction {number}" for number in range(self.directions.shape[1])]
        return ("distance", "deviation", *parts)

    def __call__(self, rows: FloatArray, distances: FloatArray) -> FloatArray:
        """The scores, (b, k + 2)."""
        along = centred = self._centred(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            rest = (centred**2).sum(axis=1)
            if self.directions is not None:
                along = centred @ self.directions
                rest -= (along**2).sum(axis=1)
        return np.asarray(np.nan_to_num(np.column_stack([distances, rest, along])))

    def _centred(self, rows: FloatArray) -> FloatArray:
        return np.asarray((rows / 2.0 - self.mean / 2.0) / self.scale)


def _principal_directions(centred: FloatArray) -> FloatArray:
    """Orthonormal directions of the largest variance, (d, k)."""
    wide = len(centred) < centred.shape[1]
    with one_thread_each():
        values, vectors = np.linalg.eigh(centred @ centred.T if wide else centred.T @ centred)
    kept = np.flatnonzero(values > 1e-9 * max(float(values[-1]), 1e-300))[::-1][:DIRECTIONS]
    directions = vectors[:, kept]
    return np.asarray(centred.T @ directions / np.sqrt(values[kept]) if wide else directions)


@dataclass(frozen=True, eq=False)
class Levels:
    """Where the levels of each score begin."""

    edges: tuple[FloatArray, ...]

    @classmethod
    def of(cls, scores: FloatArray) -> Levels:
        """Levels with equal shares of the rows that scores (n, k) are of."""
        tails = [0.5**power for power in range(7, 40) if 0.5**power * len(scores) > 1.0]
        shares = np.unique([0.0, *tails, *(np.arange(1, SHARES) / SHARES), *(1.0 - np.array(tails)), 1.0])
        return cls(tuple(_edges(column, shares) for column in scores.T))

    def __call__(self, scores: FloatArray) -> IntArray:
        """The level of each score, (b, k)."""
        pairs = zip(self.edges, scores.T, strict=True)
        return np.column_stack([np.searchsorted(edges, column, side="right") for edges, column in pairs])

    def counted(self, scores: FloatArray) -> IntArray:
        """How many scores there are at each level, (k, L)."""
        most = max(edges.size for edges in self.edges) + 1
        return np.stack([np.bincount(column, minlength=most) for column in self(scores).T])


def _edges(column: FloatArray, shares: FloatArray) -> FloatArray:
    """Quantiles; a value that many rows have in common gets a level of its own."""
    found, times = np.unique(np.quantile(column, shares, method="inverted_cdf"), return_counts=True)
    common = np.append(found[times > 1], found[-1])
    return np.unique(np.append(found, np.nextafter(common, np.inf)))
