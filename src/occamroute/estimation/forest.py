"""FrugalMCT's estimator: regression trees on the features, one forest for all classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, feature_matrix, success_matrix
from occamroute.estimation.base import whole_number
from occamroute.executors.local import thread_count

__all__ = ["Forest"]

# Trees split on no more outputs than this: the leading components of success stand in for a hundred classifiers.
OUTPUTS = 16


class Forest:
    """A forest of regression trees.

    With the default arguments it is scikit-learn's random forest as it comes, whose leaves hold single rows.
    ``regularized`` asks for leaves of at least 20 rows, a third of the features at each split, and half the rows
    for each tree. ``random_splits`` draws the thresholds too (extremely randomised trees): faster, and smoother.
    """

    looks_at_features = True

    def __init__(
        self,
        trees: int = 100,
        *,
        regularized: bool = False,
        random_splits: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.trees = trees
        self.regularized = regularized
        self.random_splits = random_splits
        self.seed = seed
        self.threads = threads

    def fit(self, features: Any, success: Any) -> Forest:
        """Grow the trees on ``features`` (n, d) and ``success`` (n, M)."""
        from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

        rows = feature_matrix(features)
        knobs: dict[str, Any] = {"n_estimators": whole_number(self.trees, "trees")}
        if self.regularized:
            leaf = min(20, max(1, rows.shape[0] // 20))
            # Half the rows of a handful are too few to split.
            knobs |= {"min_samples_leaf": leaf, "max_features": 1 / 3, "bootstrap": True, "max_samples": 0.5}
        kind = ExtraTreesRegressor if self.random_splits else RandomForestRegressor
        values = success_matrix(success)
        self.mean_ = values.mean(axis=0)
        self.components_ = _leading(values - self.mean_)
        self.forest_ = kind(**knobs, random_state=self.seed % 2**32, n_jobs=thread_count(self.threads))
        self.forest_.fit(rows, (values - self.mean_) @ self.components_.T)
        return self

    def shrunk(self, share: float) -> Forest:
        """The same for a pool that has only a share of the rows."""
        return Forest(
            self.trees,
            regularized=self.regularized,
            random_splits=self.random_splits,
            seed=self.seed,
            threads=self.threads,
        )

    def predict(self, features: Any) -> FloatArray:
        """Estimated success (N, M)."""
        found = np.asarray(self.forest_.predict(feature_matrix(features))).reshape(len(features), -1)
        return np.asarray(self.mean_ + found @ self.components_)

    def __repr__(self) -> str:
        return f"Forest({self.trees}, regularized={self.regularized}, random_splits={self.random_splits})"


def _leading(deviations: FloatArray) -> FloatArray:
    """The directions (c, M) that trees are grown on: all M, or the leading components of many."""
    options = deviations.shape[1]
    if options <= OUTPUTS:
        return np.eye(options)
    order = np.linalg.eigh(deviations.T @ deviations)[1]
    return np.asarray(order[:, ::-1][:, :OUTPUTS].T)
