"""What a planner may choose from, each with its estimates on rows that it was not fitted on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import nnls

from occamroute._arrays import BoolArray, FloatArray, IntArray
from occamroute.estimation import BaggedNeighbors, ContrastForest, KernelRidge, SampledNeighbors
from occamroute.estimation.bagged import rank_weights
from occamroute.estimation.kernel import contrasts, cross_fit
from occamroute.estimation.ordered import Ordered, are_probabilities, ordered
from occamroute.neighbors import METRICS, PoolIndex
from occamroute.planning.combining import Combination, standard_error, tuned_combination
from occamroute.planning.estimates import predicted
from occamroute.profiles import Profile

__all__ = [
    "Candidate",
    "Folds",
    "Member",
    "candidates",
    "cross_fitted",
    "neighbour_candidates",
    "number_of_steps",
    "sampled_member",
    "standard_error",
]

# The pool divided by the sample size: about how many neighbours share an estimate.
SMOOTHINGS = (10, 40, 160)
FOLDS = 5
# Rows that a choice is judged on, spread over the folds. Pools are never thinned out.
HELD_OUT = 20_000
# The weight of far neighbours that a choice does without; plans are made with all but a millionth of it.
TAIL = 1e-2
# Trees that a choice is judged with; plans are made with a hundred.
TREES = 40
# How much of a stack's deviation from the mixture is believed.
BELIEFS = (1.0, 0.7, 0.5, 0.3)
# By so many standard errors must a stack be closer to the differences between classifiers than no features are.
SURELY = 0.5
# Members of a stack with less weight than this are left out.
LEAST_WEIGHT = 0.02


@dataclass(frozen=True)
class Member:
    """An estimator with its knobs: ``make(n)`` builds it for a pool of n rows; stacks are made of smooth ones."""

    label: str
    make: Callable[[int], Any] = field(repr=False, compare=False)
    smooth: bool = True


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


@dataclass(frozen=True)
class Folds:
    """Rows to estimate on (``held``, by fold), the rows to fit on for each, and which rows belong together."""

    held: tuple[IntArray, ...]
    pools: tuple[IntArray, ...]
    blocks: IntArray

    @classmethod
    def draw(cls, profile: Profile, random: np.random.Generator, *, most: int = HELD_OUT) -> Folds:
        """Folds of a profile's rows, at most so many of them held out; rows of one group stay together."""
        blocks = profile.blocks
        count = min(FOLDS, int(blocks.max()) + 1)
        fold = (random.permutation(int(blocks.max()) + 1) % count)[blocks]
        held, pools = [], []
        for number in range(count):
            rows = np.flatnonzero(fold == number)
            held.append(np.sort(random.permutation(rows)[: -(-most // count)]))
            pools.append(np.flatnonzero(fold != number))
        return cls(tuple(held), tuple(pools), blocks)

    @property
    def rows(self) -> IntArray:
        """All held-out rows, in the order of the folds."""
        return np.concatenate(self.held)

    @property
    def first_half(self) -> BoolArray:
        """Which held-out rows are in every other fold: what one half chooses, the other may judge."""
        return np.concatenate([np.full(held.size, number % 2 == 0) for number, held in enumerate(self.held)])

    def whole(self, rows: int) -> list[IntArray]:
        """All rows of each fold, those that are not held out too."""
        return [np.setdiff1d(np.arange(rows), pool) for pool in self.pools]

    def __iter__(self) -> Iterator[tuple[IntArray, IntArray]]:
        return iter(zip(self.pools, self.held, strict=True))


def number_of_steps(profile: Profile) -> int:
    """How many times ``candidates`` reports that it has come further."""
    return len(profile.feature_sets) * (len(METRICS) + 3)


def candidates(
    profile: Profile, folds: Folds, tick: Callable[[], None], *, combine: bool, seed: int
) -> Iterator[Candidate]:
    """Everything to choose from: no features first, then for each feature set its estimators and their stacks."""
    means = np.concatenate([np.tile(profile.success[pool].mean(axis=0), (held.size, 1)) for pool, held in folds])
    plain = profile.success[folds.rows]
    yield Candidate(None, (), None, means, plain)
    for extractor, features in profile.feature_sets.items():
        combination = tuned_combination(profile, extractor, folds.whole(len(profile))) if combine else None
        targets = profile.success if combination is None else combination.success
        tables = list(_held_out_estimates(features, targets, folds, tick, seed=seed))
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
        for member, table in _bagged(profile.feature_sets[extractor], targets, folds, metric, smoothings):
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


def _held_out_estimates(
    features: FloatArray, targets: FloatArray, folds: Folds, tick: Callable[[], None], *, seed: int
) -> Iterator[tuple[Member, FloatArray]]:
    """Each estimator with its estimates of ``targets`` (n, M) on the held-out rows, from the other folds alone."""
    yield Member("sampled", _samples_as_judged, smooth=False), cross_fitted(features, targets, folds, SampledNeighbors)
    tick()
    for metric in METRICS:
        yield from _bagged(features, targets, folds, metric, SMOOTHINGS)
        tick()
    sure = are_probabilities(features)
    yield _kernel(features, targets, folds, seed=seed)
    if sure:
        order = ordered(features)
        for member, table in (
            *_bagged(order, targets, folds, "l2", SMOOTHINGS[-1:]),
            _kernel(order, targets, folds, seed=seed),
        ):
            yield _in_order(member), table
    else:
        yield _kernel(features, targets, folds, standardize=True, seed=seed)
    tick()
    forest = Member("contrast forest", lambda rows: ContrastForest(seed=seed))
    seen = ordered(features, beside=True) if sure else features
    table = cross_fitted(seen, targets, folds, lambda: ContrastForest(TREES, seed=seed))
    yield _in_order(forest, beside=True) if sure else forest, table
    tick()


def _in_order(member: Member, *, beside: bool = False) -> Member:
    """The same, looking at probabilities in falling order."""
    return Member(f"{member.label}, in order", lambda rows: Ordered(member.make(rows), beside=beside))


def sampled_member() -> Member:
    """The paper's estimator with its defaults."""
    return Member("sampled", lambda rows: SampledNeighbors(), smooth=False)


def cross_fitted(features: FloatArray, targets: FloatArray, folds: Folds, make: Callable[[], Any]) -> FloatArray:
    """Estimates on each fold's held-out rows by an estimator fitted on the other folds."""
    tables = [
        predicted(make().fit(features[pool], targets[pool]), features[held], targets.shape[1])[0]
        for pool, held in folds
    ]
    return np.concatenate(tables)


def _kernel(
    features: FloatArray, targets: FloatArray, folds: Folds, *, standardize: bool = False, seed: int
) -> tuple[Member, FloatArray]:
    table, ridge = cross_fit(features, targets, list(folds), standardize=standardize, seed=seed)
    label = f"kernel ridge {ridge:.2g}{', standardised' if standardize else ''}"
    member = Member(label, lambda rows: KernelRidge(ridge, standardize=standardize, seed=seed))
    return member, np.clip(table, 0.0, 1.0)


def _bagged(
    features: FloatArray, targets: FloatArray, folds: Folds, metric: str, smoothings: tuple[int, ...]
) -> Iterator[tuple[Member, FloatArray]]:
    """One search of each fold serves every smoothing."""
    tables = []
    for pool, held in folds:
        weights = [_ranks(pool.size, smoothing) for smoothing in smoothings]
        table = np.zeros((len(weights), max(map(len, weights))))
        for row, ranks in zip(table, weights, strict=True):
            row[: ranks.size] = ranks
        index = PoolIndex(features[pool], metric=metric)
        tables.append(index.average(features[held], targets[pool], table).means)
    for smoothing, estimates in zip(smoothings, np.concatenate(tables, axis=1), strict=True):
        yield _neighbours(smoothing, metric), np.clip(estimates, 0.0, 1.0)


def _neighbours(smoothing: int, metric: str) -> Member:
    return Member(
        f"bagged {metric}, about {smoothing} neighbours",
        lambda rows: BaggedNeighbors(_sample_size(_rows_of_a_pool(rows), smoothing), metric),
        smooth=smoothing == max(SMOOTHINGS),
    )


def _samples_as_judged(rows: int) -> SampledNeighbors:
    """The paper's samples, of the size that they had in the folds, and as many as the rows give."""
    size = max(1, _rows_of_a_pool(rows) // SampledNeighbors().n_samples)
    return SampledNeighbors(rows // size, size)


def _rows_of_a_pool(rows: int) -> int:
    """How many rows estimators were fitted on when they were judged.

    The nearest of s random rows is as far away whatever the number of rows they are drawn from: with the same s an
    estimate is off by as much as on held-out rows, and what was learnt there about its level holds.
    """
    return max(1, rows * (FOLDS - 1) // FOLDS)


def _ranks(pool: int, smoothing: int) -> FloatArray:
    return rank_weights(pool, _sample_size(pool, smoothing), tail=TAIL)


def _sample_size(pool: int, smoothing: int) -> int:
    return max(1, pool // smoothing)
