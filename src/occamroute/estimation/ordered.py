"""Class probabilities in falling order: how sure an extractor is tells more of success than of what it is sure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, feature_matrix

__all__ = ["Ordered", "are_probabilities", "ordered"]

# The largest probabilities that are looked at.
KEPT = 10
# With more classes than this a forest looks at the order alone: it would seldom split on one class among hundreds.
BESIDE = 32


class Ordered:
    """An estimator that looks at class probabilities in falling order, so that all classes are alike.

    Neighbours are then queries on which the extractor was as sure, whatever its answer: where there are hundreds
    of classes, few labelled rows share a query's class. With ``beside`` the features stay beside their order (and
    its entropy), for estimators that pick what they need.
    """

    looks_at_features = True

    def __init__(self, estimator: Any, *, beside: bool = False) -> None:
        self.estimator = estimator
        self.beside = beside

    def fit(self, features: Any, success: Any) -> Ordered:
        """Fit the estimator on the order of ``features`` (n, C)."""
        self.estimator.fit(ordered(features, beside=self.beside), success)
        return self

    def predict(self, features: Any) -> FloatArray:
        """Estimated success (N, M)."""
        return np.asarray(self.estimator.predict(ordered(features, beside=self.beside)))

    def shrunk(self, share: float) -> Ordered:
        """The same for a pool that has only a share of the rows."""
        shrink: Callable[[float], Any] | None = getattr(self.estimator, "shrunk", None)
        return Ordered(self.estimator if shrink is None else shrink(share), beside=self.beside)

    def __repr__(self) -> str:
        return f"Ordered({self.estimator!r}, beside={self.beside})"


def ordered(features: Any, *, beside: bool = False) -> FloatArray:
    """The largest entries of each row in falling order; with ``beside`` the row, its order and its entropy."""
    table = feature_matrix(features)
    kept = min(KEPT, table.shape[1])
    largest = table if kept == table.shape[1] else np.partition(table, table.shape[1] - kept, axis=1)[:, -kept:]
    falling = -np.sort(-largest, axis=1)
    if not beside:
        return np.ascontiguousarray(falling)
    clipped = np.maximum(table, 1e-9)
    entropy = -(clipped * np.log(clipped)).sum(axis=1, keepdims=True)
    if table.shape[1] > BESIDE:
        return np.hstack([falling, entropy])
    return np.hstack([table, falling, entropy])


def are_probabilities(features: FloatArray) -> bool:
    """Whether every row could be class probabilities: not negative, adding up to 1, more than two of them."""
    # The largest is looked at first: sums of numbers without a limit overflow.
    if features.shape[1] < 3 or float(features.min()) < 0.0 or float(features.max()) > 2.0:
        return False
    return bool(np.abs(features.sum(axis=1, dtype=np.float64) - 1.0).max() < 1e-3)
