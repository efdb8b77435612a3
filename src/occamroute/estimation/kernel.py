"""Kernel ridge regression on a few hundred landmarks: smooth, learned in closed form, for all classifiers at once.

The kernel is Gaussian, its width the median distance between landmarks. With m landmarks the cost is n · m² for n
rows whatever the number of classifiers, and rows are streamed in blocks: no n × m table is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray, feature_matrix, generator, success_matrix
from occamroute.errors import InvalidInputError
from occamroute.executors.local import one_thread_each, over_blocks

__all__ = ["RIDGES", "KernelRidge", "contrasts", "cross_fit"]

LANDMARKS = 600
# Strengths of the ridge, relative to the number of rows.
RIDGES = tuple(10.0 ** (exponent / 2) for exponent in range(-12, 1))
BLOCK = 2048
# The farthest from the mean that a row is taken to be, in standard deviations.
FARTHEST = 1e6
# What is added to the kernel's diagonal until it can be factored.
JITTERS = (1e-9, 1e-7, 1e-5, 1e-3, 1.0)


class KernelRidge:
    """Kernel ridge regression of success on the features.

    ``ridge`` is relative to the number of rows; by default the one with the least leave-one-out error of the
    differences between classifiers, which are what a plan is made from. ``standardize`` gives each column of the
    features the same spread; without it columns keep their relative sizes.
    """

    looks_at_features = True

    def __init__(self, ridge: float | None = None, *, standardize: bool = False, seed: int = 0) -> None:
        self.ridge = ridge
        self.standardize = standardize
        self.seed = seed

    def fit(self, features: Any, success: Any) -> KernelRidge:
        """Solve for ``features`` (n, d) and ``success`` (n, M)."""
        rows, values = feature_matrix(features), success_matrix(success)
        number = isinstance(self.ridge, int | float | np.number)
        if self.ridge is not None and not (number and 0.0 < self.ridge < np.inf):
            raise InvalidInputError(f"ridge must be a number above 0, got {self.ridge!r}.")
        with one_thread_each():
            self.map_ = _Landmarks(rows, standardize=self.standardize, seed=self.seed)
            sums = _Sums.of(self.map_, rows, values, np.arange(len(rows)))
            solver = _Solver(self.map_, sums)
            chosen = self.ridge
            if chosen is None:
                chosen = RIDGES[int(np.argmin(_left_out_errors(self.map_, solver, rows, values)))]
            self.ridge_ = chosen
            self.solution_ = solver.solution(chosen)
        self.center_, self.mean_ = solver.center, solver.mean
        return self

    def shrunk(self, share: float) -> KernelRidge:
        """The same for a pool that has only a share of the rows."""
        return KernelRidge(self.ridge, standardize=self.standardize, seed=self.seed)

    def predict(self, features: Any) -> FloatArray:
        """Estimated success (N, M)."""
        rows = feature_matrix(features)

        def block(start: int, stop: int) -> FloatArray:
            return np.asarray((self.map_(rows[start:stop]) - self.center_) @ self.solution_)

        with one_thread_each():
            blocks = over_blocks(block, len(rows), block=BLOCK)
        return np.asarray(np.clip(self.mean_ + np.concatenate(blocks), 0.0, 1.0))

    def __repr__(self) -> str:
        ridge = None if self.ridge is None else float(f"{self.ridge:.2g}")
        return f"KernelRidge(ridge={ridge}, standardize={self.standardize})"


def cross_fit(
    features: FloatArray,
    success: FloatArray,
    folds: Sequence[tuple[IntArray, IntArray]],
    *,
    standardize: bool,
    seed: int = 0,
) -> tuple[FloatArray, float]:
    """Estimates on each fold's held-out rows from the success of its pool, and the ridge they were made with.

    ``folds`` are pairs (pool, held); everything outside a pool is its fold. Landmarks are drawn once, from all rows:
    they know features, not success. The ridge is the one with the least error over all held-out rows. Sums over
    a pool are sums over all rows less those over its fold.
    """
    everything = np.arange(len(features))
    with one_thread_each():
        space = _Landmarks(features, standardize=standardize, seed=seed)
        parts = [_Sums.of(space, features, success, np.setdiff1d(everything, pool)) for pool, _ in folds]
        total = _Sums.total(parts)

        def judge(fold: int, _: int) -> tuple[_Solver, FloatArray]:
            solver, held = _Solver(space, total.less(parts[fold])), folds[fold][1]
            return solver, solver.errors(space, features, success, held)

        judged = over_blocks(judge, len(parts), block=1)
        best = RIDGES[int(np.argmin(sum(errors for _, errors in judged)))]
        tables = []
        for (solver, _), (_, held) in zip(judged, folds, strict=True):
            solution = solver.solution(best)
            tables += [solver.mean + (space(features[block]) - solver.center) @ solution for block in _blocks(held)]
    return np.concatenate(tables), best


class _Landmarks:
    """The kernel of some landmarks; ``whiten`` takes it to features whose plain product it is."""

    def __init__(self, rows: FloatArray, *, standardize: bool, seed: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.nan_to_num(rows.std(axis=0, dtype=np.float64))
            overall = float(np.sqrt((spread**2).mean())) or 1.0
            self.mean = rows.mean(axis=0, dtype=np.float64)
        self.scale = (
            np.where(spread > 1e-12 * overall, spread, np.inf) if standardize else np.full(len(spread), overall)
        )
        chosen = generator(seed).permutation(len(rows))[:LANDMARKS]
        self.points = np.unique(self._scaled(rows[np.sort(chosen)]), axis=0)
        self.norms = (self.points**2).sum(axis=1)
        self.rate = 0.0
        distances = self._distances(self.points[generator(seed).permutation(len(self.points))[:400]])
        positive = distances[distances > 1e-12]
        if positive.size:
            self.rate = 1.0 / float(np.median(positive))
        kernel = self(None)
        self.whiten = np.linalg.inv(_factor(kernel)).T

    def _scaled(self, rows: FloatArray) -> FloatArray:
        # Numbers at the end of what a float holds are far away, whatever their squares would be.
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.clip(np.nan_to_num((rows - self.mean) / self.scale), -FARTHEST, FARTHEST))

    def _distances(self, scaled: FloatArray) -> FloatArray:
        """Squared l2 distances to the landmarks, (n, m)."""
        table = scaled @ self.points.T
        table *= -2.0
        table += self.norms
        table += (scaled**2).sum(axis=1)[:, None]
        return np.asarray(np.maximum(table, 0.0, out=table))

    def __call__(self, rows: FloatArray | None) -> FloatArray:
        """The kernel between rows (or the landmarks themselves) and the landmarks, (n, m)."""
        table = self._distances(self.points if rows is None else self._scaled(rows))
        table *= -self.rate
        return np.asarray(np.exp(table, out=table))


def _factor(kernel: FloatArray) -> FloatArray:
    """The Cholesky factor of a kernel that close landmarks, or columns of very different size, make singular."""
    for jitter in JITTERS:
        try:
            return np.asarray(np.linalg.cholesky(kernel + jitter * len(kernel) * np.eye(len(kernel))))
        except np.linalg.LinAlgError:
            continue
    return np.eye(len(kernel))


class _Sums:
    """What ridge regression needs to know of some rows: their number, sums and products."""

    def __init__(
        self, count: int, mapped: FloatArray, success: FloatArray, gram: FloatArray, cross: FloatArray
    ) -> None:
        self.count = count
        self.mapped = mapped
        self.success = success
        self.gram = gram
        self.cross = cross

    @classmethod
    def of(cls, space: _Landmarks, features: FloatArray, success: FloatArray, rows: IntArray) -> _Sums:
        width = len(space.points)
        made = cls(
            int(rows.size), np.zeros(width), np.zeros(success.shape[1]),
            np.zeros((width, width)), np.zeros((width, success.shape[1])),
        )  # fmt: skip
        blocks = _blocks(rows)

        def sums(start: int, stop: int) -> list[Any]:
            mine: list[Any] = [0.0] * 4
            for block in blocks[start:stop]:
                mapped, values = space(features[block]), success[block]
                products = mapped.sum(axis=0), values.sum(axis=0), mapped.T @ mapped, mapped.T @ values
                mine = [before + product for before, product in zip(mine, products, strict=True)]
            return mine

        for part in over_blocks(sums, len(blocks), block=1 + len(blocks) // 16):
            for whole, own in zip((made.mapped, made.success, made.gram, made.cross), part, strict=True):
                whole += own
        return made

    @classmethod
    def total(cls, parts: Sequence[_Sums]) -> _Sums:
        fields = [[getattr(part, name) for part in parts] for name in ("count", "mapped", "success", "gram", "cross")]
        return cls(*(sum(field[1:], start=field[0]) for field in fields))

    def less(self, other: _Sums) -> _Sums:
        return _Sums(
            self.count - other.count, self.mapped - other.mapped, self.success - other.success,
            self.gram - other.gram, self.cross - other.cross,
        )  # fmt: skip


class _Solver:
    """The solutions for every ridge, from one eigendecomposition in the whitened space."""

    def __init__(self, space: _Landmarks, sums: _Sums) -> None:
        self.count = sums.count
        self.center = sums.mapped / sums.count
        self.mean = sums.success / sums.count
        gram = sums.gram - sums.count * np.outer(self.center, self.center)
        cross = sums.cross - sums.count * np.outer(self.center, self.mean)
        values, vectors = np.linalg.eigh(space.whiten.T @ gram @ space.whiten)
        self.values = np.maximum(values, 0.0)
        self.vectors = space.whiten @ vectors
        self.rotated = self.vectors.T @ cross

    def errors(self, space: _Landmarks, features: FloatArray, success: FloatArray, rows: IntArray) -> FloatArray:
        """The squared errors of differences between classifiers on some rows, by ridge."""
        errors = np.zeros(len(RIDGES))
        solutions = [self.solution(ridge) for ridge in RIDGES]
        for block in _blocks(rows):
            mapped, truth = space(features[block]) - self.center, success[block] - self.mean
            errors += [float((contrasts(truth - mapped @ solution) ** 2).sum()) for solution in solutions]
        return errors

    def inverse(self, ridge: float) -> FloatArray:
        return np.asarray(1.0 / (self.values + ridge * self.count))

    def solution(self, ridge: float) -> FloatArray:
        """Coefficients (m, M) of the centred kernel."""
        return np.asarray(self.vectors @ (self.inverse(ridge)[:, None] * self.rotated))


def _left_out_errors(space: _Landmarks, solver: _Solver, features: FloatArray, success: FloatArray) -> FloatArray:
    """The mean squared error of the differences between classifiers when each row is left out, by ridge."""
    inverses = [solver.inverse(ridge) for ridge in RIDGES]
    errors = np.zeros(len(RIDGES))
    for block in _blocks(np.arange(len(features))):
        rotated = (space(features[block]) - solver.center) @ solver.vectors
        leverage = (rotated**2) @ np.stack(inverses, axis=1) + 1.0 / solver.count
        for index, inverse in enumerate(inverses):
            residual = success[block] - solver.mean - rotated @ (inverse[:, None] * solver.rotated)
            left_out = contrasts(residual) / np.maximum(1.0 - leverage[:, index], 1e-6)[:, None]
            errors[index] += float((left_out**2).sum())
    return errors


def contrasts(table: FloatArray) -> FloatArray:
    """Each row less its mean: what all classifiers share decides nothing (unless there is one alone)."""
    return table if table.shape[-1] == 1 else np.asarray(table - table.mean(axis=-1, keepdims=True))


def _blocks(rows: IntArray) -> list[IntArray]:
    return [rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)]
