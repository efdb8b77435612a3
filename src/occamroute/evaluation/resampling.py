"""Queries drawn again and again: what the means of columns might have been on other queries of the same kind."""

from __future__ import annotations

import numpy as np

from occamroute._arrays import FloatArray, IntArray, generator

__all__ = ["ends", "resampled_means"]

RESAMPLES = 1000
AT_ONCE = 50
# Numbers held at a time: a gigabyte.
MOST = 2**27


def resampled_means(columns: FloatArray, blocks: IntArray, seed: int) -> FloatArray:
    """The means (1000, k) of columns (n, k) when rows, or blocks of rows that belong together, are drawn again.

    The same draws for every column, so that differences between columns are those of pairs.
    """
    count = int(blocks.max()) + 1
    slices = np.array_split(columns, max(1, -(-columns.shape[1] * count // MOST)), axis=1)
    return np.concatenate([_means(part, blocks, count, seed) for part in slices], axis=1)


def _means(columns: FloatArray, blocks: IntArray, count: int, seed: int) -> FloatArray:
    sums = np.stack([np.bincount(blocks, weights=column, minlength=count) for column in columns.T], axis=1)
    sizes = np.bincount(blocks, minlength=count).astype(float)
    random = generator(seed)
    means = []
    for start in range(0, RESAMPLES, AT_ONCE):
        drawn = random.multinomial(count, np.full(count, 1.0 / count), size=min(AT_ONCE, RESAMPLES - start))
        means.append((drawn.astype(float) @ sums) / (drawn @ sizes)[:, None])
    return np.concatenate(means)


def ends(resamples: FloatArray) -> tuple[float, float] | None:
    """The 90 % interval of a number that was computed from each resample; None where it could not be."""
    if not np.isfinite(resamples).all():
        return None
    low, high = np.quantile(resamples, (0.05, 0.95))
    return float(low), float(high)
