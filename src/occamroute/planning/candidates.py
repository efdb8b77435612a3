"""What a planner may choose from, each with its estimates on rows that it was not fitted on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute.estimation import BaggedNeighbors, Mixture, SampledNeighbors
from occamroute.estimation.bagged import rank_weights
from occamroute.neighbors import METRICS, PoolIndex
from occamroute.planning.estimates import predicted
from occamroute.profiles import Profile

__all__ = ["Candidate", "Folds", "candidates", "number_of_searches"]

# The pool divided by the sample size: about how many neighbours share an estimate.
SMOOTHINGS = (10, 20, 40, 80, 160)
FOLDS = 5
# Rows that a choice is judged on, spread over the folds. Pools are never thinned out.
HELD_OUT = 20_000
# The weight of far neighbours that a choice does without; plans are made with all but a millionth of it.
TAIL = 1e-2


@dataclass(frozen=True, eq=False)
class Candidate:
    """An estimator with its knobs: ``make(n)`` builds it for a pool of n rows.

    ``success`` (held-out rows, M) are its estimates where it was fitted without their fold, and ``sigma`` (M,)
    the spread of their error.
    """

    extractor: str | None
    make: Callable[[int], Any]
    success: FloatArray = field(repr=False)
    sigma: FloatArray = field(repr=False)


@dataclass(frozen=True)
class Folds:
    """Rows to estimate on (``held``, by fold) and the rows to fit on for each."""

    held: tuple[IntArray, ...]
    pools: tuple[IntArray, ...]

    @classmethod
    def draw(cls, profile: Profile, random: np.random.Generator) -> Folds:
        """Folds of a profile's rows; rows of one group stay together."""
        blocks = profile.blocks
        count = min(FOLDS, int(blocks.max()) + 1)
        fold = (random.permutation(int(blocks.max()) + 1) % count)[blocks]
        held, pools = [], []
        for number in range(count):
            rows = np.flatnonzero(fold == number)
            held.append(np.sort(random.permutation(rows)[: -(-HELD_OUT // count)]))
            pools.append(np.flatnonzero(fold != number))
        return cls(tuple(held), tuple(pools))

    @property
    def rows(self) -> IntArray:
        """All held-out rows, in the order of the folds."""
        return np.concatenate(self.held)

    def __iter__(self) -> Iterator[tuple[IntArray, IntArray]]:
        return iter(zip(self.pools, self.held, strict=True))


def number_of_searches(profile: Profile) -> int:
    """How many times ``candidates`` reports that it has come further."""
    return len(profile.feature_sets) * (len(METRICS) + 1)


def candidates(profile: Profile, folds: Folds, tick: Callable[[], None]) -> Iterator[Candidate]:
    """Everything to choose from: no features first, then for each feature set the paper's way and the bagged one."""
    yield _candidate(profile, folds, None, lambda rows: Mixture(), _cross_fit(profile, folds, None, Mixture))
    for name in profile.feature_sets:
        yield _candidate(
            profile, folds, name, lambda rows: SampledNeighbors(),
            _cross_fit(profile, folds, name, SampledNeighbors),
        )  # fmt: skip
        tick()
        for metric in METRICS:
            yield from _bagged(profile, folds, name, metric)
            tick()


def _candidate(
    profile: Profile, folds: Folds, extractor: str | None, make: Callable[[int], Any], success: FloatArray
) -> Candidate:
    return Candidate(extractor, make, success, np.asarray((profile.success[folds.rows] - success).std(axis=0)))


def _cross_fit(profile: Profile, folds: Folds, extractor: str | None, make: Callable[[], Any]) -> FloatArray:
    """Estimates on each fold's held-out rows by an estimator fitted on the other folds."""
    features = profile.feature_sets[extractor] if extractor else profile.success
    tables = [
        predicted(make().fit(features[pool], profile.success[pool]), features[held], len(profile.names))[0]
        for pool, held in folds
    ]
    return np.concatenate(tables)


def _bagged(profile: Profile, folds: Folds, extractor: str, metric: str) -> Iterator[Candidate]:
    """One search of each fold serves every smoothing."""
    features = profile.feature_sets[extractor]
    tables = []
    for pool, held in folds:
        weights = [_ranks(pool.size, smoothing) for smoothing in SMOOTHINGS]
        table = np.zeros((len(weights), max(map(len, weights))))
        for row, ranks in zip(table, weights, strict=True):
            row[: ranks.size] = ranks
        index = PoolIndex(features[pool], metric=metric)
        tables.append(index.average(features[held], profile.success[pool], table).means)
    for smoothing, success in zip(SMOOTHINGS, np.concatenate(tables, axis=1), strict=True):
        yield _candidate(profile, folds, extractor, _bagged_maker(smoothing, metric), success)


def _bagged_maker(smoothing: int, metric: str) -> Callable[[int], BaggedNeighbors]:
    return lambda rows: BaggedNeighbors(_sample_size(rows, smoothing), metric)


def _ranks(pool: int, smoothing: int) -> FloatArray:
    return rank_weights(pool, _sample_size(pool, smoothing), tail=TAIL)


def _sample_size(pool: int, smoothing: int) -> int:
    return max(1, pool // smoothing)
