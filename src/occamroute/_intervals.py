"""How sure a mean is: intervals of 90 %, for rows of which some may belong together."""

from __future__ import annotations

import numpy as np

from occamroute._arrays import FloatArray, IntArray

__all__ = ["QUANTILE", "bounds_from", "mean_bounds"]

# Normal quantile of a two-sided interval of 90 %.
QUANTILE = 1.6448536269514722


def mean_bounds(outcomes: FloatArray, blocks: IntArray | None = None) -> FloatArray:
    """90 % intervals (k, 2) of the means of columns (n, k) that lie in [0, 1].

    Wilson's, which is no point where all rows are right or all wrong. ``blocks`` numbers what belongs together, from
    0: such rows count as what they tell, not as many rows.

    >>> mean_bounds(np.array([[1.0], [1.0], [1.0], [0.0]])).round(2).tolist()
    [[0.36, 0.94]]
    """
    table = np.asarray(outcomes, np.float64)
    rows = table.shape[0]
    mean = table.mean(axis=0)
    count = rows if blocks is None else int(blocks.max()) + 1
    away = table - mean
    if blocks is not None and count < rows:
        away = np.stack([np.bincount(blocks, weights=column, minlength=count) for column in away.T], axis=1)
    return bounds_from(mean, (away**2).sum(axis=0) / rows**2, count)


def bounds_from(mean: FloatArray, variance: FloatArray, count: float) -> FloatArray:
    """The same from the means (k,) of so many rows and the means' variances (k,)."""
    # As many rows of 0 and 1, each for itself, would leave the mean as uncertain as it is.
    spread = mean * (1.0 - mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        alike = np.where(variance > 1e-18, spread / variance, float(count))
    square = QUANTILE**2 / alike
    middle = (mean + square / 2.0) / (1.0 + square)
    half = QUANTILE / (1.0 + square) * np.sqrt(spread / alike + square / (4.0 * alike))
    # Rounding must not put the mean itself outside.
    low, high = np.minimum(middle - half, mean), np.maximum(middle + half, mean)
    return np.asarray(np.clip(np.column_stack([low, high]), 0.0, 1.0))
