"""Estimators on held-out rows of a profile: what each says of rows that it was not fitted on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from occamroute._arrays import BoolArray, FloatArray, IntArray
from occamroute.estimation import BaggedNeighbors, ContrastForest, KernelRidge, SampledNeighbors
from occamroute.estimation.bagged import rank_weights
from occamroute.estimation.kernel import cross_fit
from occamroute.estimation.ordered import Ordered, are_probabilities, ordered
from occamroute.executors import Executor
from occamroute.executors.local import one_thread_each
from occamroute.neighbors import METRICS, PoolIndex
from occamroute.planning.estimates import predicted
from occamroute.profiles import Profile

__all__ = [
    "Folds",
    "Judged",
    "Member",
    "bagged_tables",
    "cross_fitted",
    "held_out_estimates",
    "sampled_member",
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


@dataclass(frozen=True)
class Member:
    """An estimator with its knobs: ``make(n)`` builds it for a pool of n rows; stacks are made of smooth ones."""

    label: str
    make: Callable[[int], Any] = field(repr=False, compare=False)
    smooth: bool = True


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


@dataclass(frozen=True, eq=False)
class Judged:
    """What estimators are fitted to and judged on: features (n, d), targets (n, M), and which rows are held out."""

    features: FloatArray
    targets: FloatArray
    folds: Folds
    seed: int


Held = list[tuple[Member, FloatArray]]
Work = Callable[[Judged], Held]


def held_out_estimates(judged: Judged, tick: Callable[[], None], executor: Executor | None) -> Held:
    """Each estimator with its estimates of the targets on the held-out rows, from the other folds alone."""
    pieces = FAMILIES[::-1]  # the longest piece of work, the forest, is the last: workers begin with it
    running = (
        map(partial(_estimates_of, judged), pieces) if executor is None else executor.map(_estimates_of, judged, pieces)
    )
    found = []
    for held in running:
        found.append(held)
        tick()
    return [pair for held in reversed(found) for pair in held]


def _estimates_of(judged: Judged, work: Work) -> Held:
    # Sums of linear algebra depend on the number of its threads: here it is the same whoever works.
    with one_thread_each():
        return work(judged)


def _sampled_work(judged: Judged) -> Held:
    table = cross_fitted(judged.features, judged.targets, judged.folds, SampledNeighbors)
    return [(Member("sampled", _samples_as_judged, smooth=False), table)]


def _bagged_work(judged: Judged, *, metric: str) -> Held:
    return list(bagged_tables(judged.features, judged.targets, judged.folds, metric, SMOOTHINGS))


def _kernel_work(judged: Judged) -> Held:
    return [_kernel(judged.features, judged.targets, judged.folds, seed=judged.seed)]


def _other_kernel_work(judged: Judged) -> Held:
    """Probabilities in falling order; other features each with the same spread."""
    features, targets, folds, seed = judged.features, judged.targets, judged.folds, judged.seed
    if not are_probabilities(features):
        return [_kernel(features, targets, folds, standardize=True, seed=seed)]
    order = ordered(features)
    bagged = bagged_tables(order, targets, folds, "l2", SMOOTHINGS[-1:])
    return [(_in_order(member), table) for member, table in (*bagged, _kernel(order, targets, folds, seed=seed))]


def _forest_work(judged: Judged) -> Held:
    seed, sure = judged.seed, are_probabilities(judged.features)
    forest = Member("contrast forest", lambda rows: ContrastForest(seed=seed))
    seen = ordered(judged.features, beside=True) if sure else judged.features
    table = cross_fitted(seen, judged.targets, judged.folds, lambda: ContrastForest(TREES, seed=seed))
    return [(_in_order(forest, beside=True) if sure else forest, table)]


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


def bagged_tables(
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


# Families of estimators that are tried, each a piece of work that can be done beside the others.
FAMILIES: tuple[Work, ...] = (
    _sampled_work,
    *(partial(_bagged_work, metric=metric) for metric in METRICS),
    _kernel_work,
    _other_kernel_work,
    _forest_work,
)
