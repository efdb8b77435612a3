"""Regression trees on the features: FrugalMCT's forest, and one that learns what a plan needs to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, feature_matrix, success_matrix
from occamroute.estimation.base import whole_number
from occamroute.executors.local import one_thread_each, over_blocks, thread_count

__all__ = ["ContrastForest", "Forest"]

# Trees are grown on no more outputs than this: the leading components of success stand in for a hundred classifiers.
OUTPUTS = 16
# How much the mean over classifiers counts in a split beside the differences between them.
LEVEL = 0.1


class Forest:
    """A random forest: scikit-learn's as it comes, whose leaves hold single rows.

    ``regularized`` asks for leaves of at least 20 rows, a third of the features at each split, and half the rows
    for each tree.
    """

    looks_at_features = True

    def __init__(
        self, trees: int = 100, *, regularized: bool = False, seed: int = 0, threads: int | None = None
    ) -> None:
        self.trees = trees
        self.regularized = regularized
        self.seed = seed
        self.threads = threads

    def fit(self, features: Any, success: Any) -> Forest:
        """Grow the trees on ``features`` (n, d) and ``success`` (n, M)."""
        from sklearn.ensemble import RandomForestRegressor

        rows, values = feature_matrix(features), success_matrix(success)
        self.components_ = _leading(values - values.mean(axis=0), OUTPUTS)
        self.rest_ = values.mean(axis=0) - values.mean(axis=0) @ self.components_.T @ self.components_
        knobs = _regular(*rows.shape) if self.regularized else {}
        self.forest_ = RandomForestRegressor(
            whole_number(self.trees, "trees"),
            random_state=self.seed % 2**32,
            n_jobs=thread_count(self.threads),
            **knobs,
        ).fit(_clipped(rows), _outputs(values @ self.components_.T))
        return self

    def shrunk(self, share: float) -> Forest:
        """The same for a pool that has only a share of the rows."""
        return Forest(self.trees, regularized=self.regularized, seed=self.seed, threads=self.threads)

    def predict(self, features: Any) -> FloatArray:
        """Estimated success (N, M)."""

        def success(found: FloatArray) -> FloatArray:
            return np.asarray(self.rest_ + found @ self.components_)

        return np.clip(_predicted(self.forest_, feature_matrix(features), success), 0.0, 1.0)

    def __repr__(self) -> str:
        return f"Forest({self.trees}, regularized={self.regularized})"


class ContrastForest:
    """A regularised forest that splits where classifiers differ, not where all of them fail.

    What all classifiers share on a query decides nothing in a plan, but it is most of the variance of success. Trees
    are grown on success less its mean over classifiers, and on that mean with a tenth of its weight. Thresholds are
    drawn at random (extremely randomised trees): faster and smoother than searching for the best.
    """

    looks_at_features = True

    def __init__(self, trees: int = 100, *, seed: int = 0, threads: int | None = None) -> None:
        self.trees = trees
        self.seed = seed
        self.threads = threads

    def fit(self, features: Any, success: Any) -> ContrastForest:
        """Grow the trees on ``features`` (n, d) and ``success`` (n, M)."""
        from sklearn.ensemble import ExtraTreesRegressor

        rows, values = feature_matrix(features), success_matrix(success)
        level = values.mean(axis=1, keepdims=True)
        contrasts = values - level
        self.components_ = _leading(contrasts, OUTPUTS - 1)
        outputs = np.hstack([contrasts @ self.components_.T, LEVEL * level])
        self.forest_ = ExtraTreesRegressor(
            whole_number(self.trees, "trees"), random_state=self.seed % 2**32, n_jobs=thread_count(self.threads),
            **_regular(*rows.shape),
        ).fit(_clipped(rows), outputs)  # fmt: skip
        return self

    def shrunk(self, share: float) -> ContrastForest:
        """The same for a pool that has only a share of the rows."""
        return ContrastForest(self.trees, seed=self.seed, threads=self.threads)

    def predict(self, features: Any) -> FloatArray:
        """Estimated success (N, M)."""

        def success(found: FloatArray) -> FloatArray:
            return np.asarray(found[:, :-1] @ self.components_ + found[:, -1:] / LEVEL)

        return np.clip(_predicted(self.forest_, feature_matrix(features), success), 0.0, 1.0)

    def __repr__(self) -> str:
        return f"ContrastForest({self.trees})"


def _clipped(rows: FloatArray) -> FloatArray:
    """Rows as scikit-learn's trees take them: within what a float32 holds."""
    largest = float(np.finfo(np.float32).max) / 2
    return np.clip(rows, -largest, largest)


def _outputs(values: FloatArray) -> FloatArray:
    """What trees are grown on; scikit-learn wants a single output flat."""
    return values[:, 0] if values.shape[1] == 1 else values


def _predicted(forest: Any, rows: FloatArray, success: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Blocks of rows side by side: trees side by side would be added up in another order each time.

    ``success`` is of a block's trees, so that its bits do not depend on how many rows are asked about.
    """
    forest.set_params(n_jobs=1)

    def block(start: int, stop: int) -> FloatArray:
        return success(np.asarray(forest.predict(_clipped(rows[start:stop]))).reshape(stop - start, -1))

    with one_thread_each():
        return np.concatenate(over_blocks(block, len(rows), block=2048))


def _regular(rows: int, columns: int) -> dict[str, Any]:
    """Knobs against overfitting; a handful of rows is split all the same, and a handful of features all looked at."""
    return {
        "min_samples_leaf": min(20, max(1, rows // 20)),
        "max_features": max(columns // 3, min(columns, 4)),
        "bootstrap": True,
        "max_samples": max(1, rows // 2),
    }


def _leading(deviations: FloatArray, most: int) -> FloatArray:
    """The directions (c, M) that trees are grown on: all M, or the leading components of many."""
    options = deviations.shape[1]
    if options <= most:
        return np.eye(options)  # a product with it changes nothing
    return np.asarray(np.linalg.eigh(deviations.T @ deviations)[1][:, ::-1][:, :most].T)
