"""The paper's estimator with the samples integrated out: a weighted k-nearest-neighbour mean.

Averaging the nearest neighbour over *all* subsets of size s of a pool of n rows gives the r-th nearest row the
weight C(n-r, s-1) / C(n, s): the chance that it is the nearest one drawn. No sampling noise is left, and s alone
sets the smoothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, feature_matrix, success_matrix
from occamroute.errors import InvalidInputError
from occamroute.estimation.base import whole_number
from occamroute.neighbors import PoolIndex

__all__ = ["BaggedNeighbors", "rank_weights"]

# The weight of the farthest rows that is given to the pool's mean instead of being looked up.
TAIL = 1e-6


class BaggedNeighbors:
    """The mean over all subsets of ``sample_size`` rows of the nearest neighbour's success.

    ``sample_size`` is by default a fortieth of the pool, as in the paper's 40 samples. Rows at equal distance
    share the weight of their ranks equally.
    """

    looks_at_features = True

    def __init__(self, sample_size: int | None = None, metric: str = "linf", *, threads: int | None = None) -> None:
        self.sample_size = sample_size
        self.metric = metric
        self.threads = threads

    def fit(self, features: Any, success: Any) -> BaggedNeighbors:
        """Index ``features`` (n, d) and keep ``success`` (n, M)."""
        rows = feature_matrix(features)
        self.values_ = success_matrix(success)
        size = max(1, rows.shape[0] // 40) if self.sample_size is None else self.sample_size
        self.weights_ = rank_weights(rows.shape[0], whole_number(size, "sample_size"))
        self.index_ = PoolIndex(rows, metric=self.metric, threads=self.threads)
        return self

    def shrunk(self, share: float) -> BaggedNeighbors:
        """The same for a pool that has only a share of the rows: as many neighbours share an estimate."""
        size = None if self.sample_size is None else max(1, int(self.sample_size * share))
        return BaggedNeighbors(size, self.metric, threads=self.threads)

    def predict(self, features: Any) -> FloatArray:
        """Estimated success (N, M)."""
        return self.predict_with_distance(features)[0]

    def predict_with_distance(self, features: Any) -> tuple[FloatArray, FloatArray]:
        """Estimated success (N, M), and the distance to the nearest row (N,)."""
        found = self.index_.average(feature_matrix(features), self.values_, self.weights_[None])
        return found.means[0], found.distance

    def __repr__(self) -> str:
        return f"BaggedNeighbors(sample_size={self.sample_size}, metric={self.metric!r})"


def rank_weights(pool: int, sample_size: int, *, tail: float = TAIL) -> FloatArray:
    """The chance that the r-th nearest of ``pool`` rows is the nearest in a random subset, r = 1, 2, …, (k,).

    Cut off where what is left is no more than ``tail``.
    """
    if sample_size > pool:
        raise InvalidInputError(f"sample_size must be at most the pool's {pool} rows, got {sample_size}.")
    rank = np.arange(1, pool - sample_size + 1)
    ratio = (pool - rank - sample_size + 1) / (pool - rank)
    weights = sample_size / pool * np.append(1.0, np.cumprod(ratio))
    return weights[: int(np.searchsorted(np.cumsum(weights), 1.0 - tail)) + 1]
