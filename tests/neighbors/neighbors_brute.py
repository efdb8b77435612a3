"""Plain numpy answers to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def distances(queries: Any, rows: Any, metric: str) -> Floats:
    """All distances (Q, n) in float64."""
    apart = np.abs(np.asarray(queries, np.float64)[:, np.newaxis] - np.asarray(rows, np.float64))
    if metric == "linf":
        return np.asarray(apart.max(axis=2))
    # The same four sums as the kernels, so that ties of rounded sums are the same ties.
    unit = 1.0
    if metric == "l2":
        largest = max(float(np.abs(queries).max()), float(np.abs(rows).max()))
        unit = float(np.ldexp(1.0, min(1000, -int(np.frexp(largest)[1]))))
        apart = (apart * unit) ** 2
    whole = apart.shape[2] - apart.shape[2] % 4
    sums = [np.zeros(apart.shape[:2]) for _ in range(4)]
    for j in range(whole):
        sums[j % 4] += apart[:, :, j]
    for j in range(whole, apart.shape[2]):
        sums[0] += apart[:, :, j]
    total = (sums[0] + sums[1]) + (sums[2] + sums[3])
    return np.asarray(total if metric == "l1" else np.sqrt(total) / unit)


def group_average(far: Floats, groups: Any, values: Floats) -> Floats:
    """The mean over groups of the mean over the rows tied for nearest."""
    means = np.zeros((len(far), values.shape[1]))
    for i, line in enumerate(far):
        for group in groups:
            near = group[line[group] == line[group].min()]
            means[i] += values[near].mean(axis=0) / len(groups)
    return means


def pool_average(far: Floats, values: Floats, weights: Floats, exclude: Any = None) -> Floats:
    """Values weighted by rank, ties sharing, the rest to the mean."""
    means = np.zeros((len(weights), len(far), values.shape[1]))
    k = weights.shape[1]
    for i, line in enumerate(far):
        rows = np.arange(len(values))
        if exclude is not None and exclude[i] >= 0:
            rows = np.delete(rows, exclude[i])
        order = rows[np.argsort(line[rows], kind="stable")]
        for w, weighting in enumerate(weights):
            by_rank = np.zeros(len(order))
            by_rank[:k] = weighting
            for distance in np.unique(line[order[:k]]):
                tied = line[order] == distance
                by_rank[tied] = by_rank[tied].mean()
            means[w, i] = by_rank @ values[order] + (1.0 - weighting.sum()) * values[rows].mean(axis=0)
    return means
