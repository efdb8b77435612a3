"""No features: every query has each classifier's overall accuracy, and the knapsack mixes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, success_matrix

__all__ = ["Mixture"]


class Mixture:
    """The baseline that looks at no features, and so pays for none."""

    looks_at_features = False

    def fit(self, features: Any, success: Any) -> Mixture:
        """Learn each classifier's mean success; ``features`` are not looked at."""
        self.accuracy_ = success_matrix(success).mean(axis=0)
        return self

    def predict(self, features: Any) -> FloatArray:
        """The same row (M,) for each query, (N, M)."""
        return np.tile(self.accuracy_, (len(features), 1))

    def __repr__(self) -> str:
        return "Mixture()"
