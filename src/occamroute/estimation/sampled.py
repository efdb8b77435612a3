"""The paper's estimator: the mean success of the nearest neighbour in each of K labelled samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray, feature_matrix, generator, success_matrix
from occamroute.errors import InvalidInputError
from occamroute.estimation.base import whole_number
from occamroute.neighbors import GroupIndex

__all__ = ["SampledNeighbors"]


class SampledNeighbors:
    """K samples of size s; in each the nearest neighbour's success; their mean.

    ``sample_size`` is by default the pool divided by ``n_samples``. Samples are disjoint consecutive slices in
    row order when ``n_samples × sample_size`` fits the pool; with a ``seed``, slices of the shuffled rows. When
    it does not fit, or with ``independent``, each sample is drawn on its own, without replacement. Rows tied at
    the nearest distance in a sample share its weight. ``device`` is "cpu", "cuda", or None for a GPU where there is
    one and the queries are many; estimates have the same bits on both.
    """

    looks_at_features = True

    def __init__(
        self,
        n_samples: int = 40,
        sample_size: int | None = None,
        metric: str = "linf",
        *,
        independent: bool = False,
        seed: int | None = None,
        threads: int | None = None,
        device: str | None = None,
    ) -> None:
        self.n_samples = n_samples
        self.sample_size = sample_size
        self.metric = metric
        self.independent = independent
        self.seed = seed
        self.threads = threads
        self.device = device

    def fit(self, features: Any, success: Any) -> SampledNeighbors:
        """Draw the samples from ``features`` (n, d) and ``success`` (n, M)."""
        rows = feature_matrix(features)
        self.values_ = success_matrix(success)
        samples = self._samples(rows.shape[0])
        self.index_ = GroupIndex(rows, samples, metric=self.metric, threads=self.threads, device=self.device)
        return self

    def _samples(self, pool: int) -> IntArray:
        """Row numbers of each sample, (K, s)."""
        count = whole_number(self.n_samples, "n_samples")
        size = max(1, pool // count) if self.sample_size is None else whole_number(self.sample_size, "sample_size")
        if size > pool:
            raise InvalidInputError(f"sample_size must be at most the pool's {pool} rows, got {size}.")
        random = generator(0 if self.seed is None else self.seed)
        if self.independent or count * size > pool:
            return np.stack([random.permutation(pool)[:size] for _ in range(count)])
        order = np.arange(pool) if self.seed is None else random.permutation(pool)
        return order[: count * size].reshape(count, size)

    def shrunk(self, share: float) -> SampledNeighbors:
        """The same for a pool that has only a share of the rows."""
        size = None if self.sample_size is None else max(1, int(self.sample_size * share))
        return SampledNeighbors(
            self.n_samples,
            size,
            self.metric,
            independent=self.independent,
            seed=self.seed,
            threads=self.threads,
            device=self.device,
        )

    def predict(self, features: Any) -> FloatArray:
        """Estimated success (N, M)."""
        return self.predict_with_distance(features)[0]

    def predict_with_distance(self, features: Any) -> tuple[FloatArray, FloatArray]:
        """Estimated success (N, M), and the distance to the nearest sampled row (N,)."""
        found = self.index_.average(feature_matrix(features), self.values_)
        return found.means, found.distance

    def __repr__(self) -> str:
        return f"SampledNeighbors(n_samples={self.n_samples}, sample_size={self.sample_size}, metric={self.metric!r})"
