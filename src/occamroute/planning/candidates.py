"""What a planner may choose from, each with its estimates on rows that it was not fitted on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls

from occamroute._arrays import FloatArray
from occamroute.estimation.kernel import contrasts
from occamroute.executors import Executor
from occamroute.neighbors import METRICS
from occamroute.planning import held_out
from occamroute.planning.combining import Combination, standard_error, tuned_combination
from occamroute.planning.held_out import Folds, Judged, Member, bagged_tables, held_out_estimates
from occamroute.profiles import Profile

__all__ = [
    "Candidate",
    "candidates",
    "neighbour_candidates",
    "number_of_steps",
    "standard_error",
]

# How much of a stack's deviation from the mixture is believed.
BELIEFS = (1.0, 0.7, 0.5, 0.3)
# By so many standard errors must a stack be closer to the differences between classifiers than no features are.
SURELY = 0.5
# Members of a stack with less weight than this are left out.
LEAST_WEIGHT = 0.02


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to estimate success: the mixture, plus weighted deviations of some estimators from it.

    Without members it is the mixture itself; without an extractor nothing is paid for features. ``success``
    (held-out rows, M) are its estimates where its members were fitted without their fold, ``truth`` what answers
    really reach there, and ``sigma`` (M,) the spread of their difference. ``combination`` says how the extractor
    takes part in the answers, if it does.
    """

    extractor: str | None
    members: tuple[tuple[Member, float], ...]
    combination: Combination | None
    success: FloatArray = field(repr=False)
    truth: FloatArray = field(repr=False)

    @property
    def sigma(self) -> FloatArray:
        """The spread of the estimates' error, (M,)."""
        return np.asarray((self.truth - self.success).std(axis=0))

    @property
    def stacked(self) -> bool:
        """Whether it is a stack, or something less than a whole estimator."""
        return len(self.members) > 1 or any(weight != 1.0 for _, weight in self.members)


def number_of_steps(profile: Profile) -> int:
    """How many times ``candidates`` reports that it has come further."""
    return len(profile.feature_sets) * len(held_out.FAMILIES)


def candidates(
    profile: Profile,
    folds: Folds,
    tick: Callable[[], None],
    *,
    combine: bool,
    seed: int,
    executor: Executor | None = None,
) -> Iterator[Candidate]:
    """Everything to choose from: no features first, then for each feature set its estimators and their stacks.

    The estimators of a feature set are fitted side by side where there is an ``executor``.
    """
    means = np.concatenate([np.tile(profile.success[pool].mean(axis=0), (held.size, 1)) for pool, held in folds])
    plain = profile.success[folds.rows]
    yield Candidate(None, (), None, means, plain)
    for extractor, features in profile.feature_sets.items():
        combination = tuned_combination(profile, extractor, folds.whole(len(profile))) if combine else None
        targets = profile.success if combination is None else combination.success
        tables = held_out_estimates(Judged(features, targets, folds, seed), tick, executor)
        yield from _of_one_set(extractor, combination, tables, targets[folds.rows], folds)


def neighbour_candidates(
    profile: Profile,
    extractor: str,
    folds: Folds,
    tick: Callable[[], None],
    *,
    combine: bool,
    smoothings: tuple[int, ...],
) -> Iterator[Candidate]:
    """Bagged neighbours alone, each metric and smoothing, more or less of them believed: nothing is trained."""
    combination = tuned_combination(profile, extractor, folds.whole(len(profile))) if combine else None
    targets = profile.success if combination is None else combination.success
    truth = targets[folds.rows]
    mean = truth.mean(axis=0)
    for metric in METRICS:
        for member, table in bagged_tables(profile.feature_sets[extractor], targets, folds, metric, smoothings):
            for belief in BELIEFS:
                believed = table if belief == 1.0 else np.clip(mean + belief * (table - mean), 0.0, 1.0)
                yield Candidate(extractor, ((member, belief),), combination, believed, truth)
        tick()


def _of_one_set(
    extractor: str,
    combination: Combination | None,
    tables: list[tuple[Member, FloatArray]],
    truth: FloatArray,
    folds: Folds,
) -> Iterator[Candidate]:
    """Each estimator alone, and their stack, more or less of it believed."""
    # Estimators that smooth little are too noisy to be worth a weight; a handful of others is enough.
    smooth = [(member, table) for member, table in tables if member.smooth]
    half = folds.first_half
    mean = truth.mean(axis=0)
    stacked = np.empty_like(truth)
    for rows in (half, ~half):
        weights = _stack_weights([table[~rows] for _, table in smooth], truth[~rows])
        stacked[rows] = mean + sum(
            weight * (table[rows] - mean) for weight, (_, table) in zip(weights, smooth, strict=True)
        )
    explained = (contrasts(truth - mean) ** 2 - contrasts(truth - stacked) ** 2).sum(axis=1)
    if not explained.mean() > SURELY * standard_error(explained, folds.blocks[folds.rows]):
        # These features say nothing about who is right; still their extractor may be all that a budget pays.
        yield Candidate(extractor, (), combination, np.tile(mean, (len(truth), 1)), truth)
        return
    for member, table in tables:
        yield Candidate(extractor, ((member, 1.0),), combination, table, truth)
    weights = _stack_weights([table for _, table in smooth], truth)
    members = [(member, float(weight)) for weight, (member, _) in zip(weights, smooth, strict=True)]
    kept = [(member, weight) for member, weight in members if weight >= LEAST_WEIGHT]
    for belief in BELIEFS if kept else ():
        yield Candidate(
            extractor,
            tuple((member, belief * weight) for member, weight in kept),
            combination,
            np.clip(mean + belief * (stacked - mean), 0.0, 1.0),
            truth,
        )


def _stack_weights(tables: list[FloatArray], truth: FloatArray) -> FloatArray:
    """Weights ≥ 0 of the tables' deviations from the mean that come closest to the truth's.

    Only differences between classifiers count: what they share on a query decides nothing.
    """
    mean = truth.mean(axis=0)
    columns = np.stack([contrasts(table - mean).ravel() for table in tables], axis=1)
    gram = columns.T @ columns
    scale = float(np.trace(gram)) / len(tables)
    if scale == 0.0:
        return np.zeros(len(tables))
    # Least squares from the normal equations: as many equations as tables, not as rows.
    factor = np.linalg.cholesky(gram + 1e-9 * scale * np.eye(len(tables)))
    right = np.linalg.solve(factor, columns.T @ contrasts(truth - mean).ravel())
    return np.asarray(nnls(factor.T, right)[0])
