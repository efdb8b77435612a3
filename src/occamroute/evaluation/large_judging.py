"""One pass over labelled queries that applies every decision to every part, and sums up what comes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute.evaluation.large_values import LargeValues, Planned, StoredValues, less
from occamroute.executors import Executor
from occamroute.knapsack.certificate import bound_from
from occamroute.knapsack.passes import Decision, Rules, decide, sums_of
from occamroute.knapsack.problem import relative_gap
from occamroute.planning.stored_estimates import within_memory

__all__ = ["BINS", "Judged", "Moments", "Tally", "judge"]

# Estimates that differ by less than this share of the way from 0 to 1 are summed up together.
BINS = 2048
# Numbers held at a time by a worker: 32 megabytes.
AT_ONCE = 1 << 22
FEWEST_ROWS = 256


@dataclass(frozen=True, eq=False)
class Moments:
    """Of n rows the means (k,) of some columns, and the sums (k, k) of products of their deviations from these."""

    rows: int
    mean: FloatArray
    products: FloatArray

    @classmethod
    def of(cls, table: FloatArray) -> Moments:
        """Those of a table (n, k), which is written over."""
        mean = np.asarray(table.mean(axis=0))
        table -= mean
        return cls(len(table), mean, np.asarray(table.T @ table))

    def joined(self, other: Moments) -> Moments:
        """Those of both together: deviations stay small, so that nothing is lost to rounding."""
        rows = self.rows + other.rows
        away = other.mean - self.mean
        apart = np.outer(away, away) * (self.rows * (other.rows / rows))
        return Moments(rows, self.mean + away * (other.rows / rows), self.products + other.products + apart)

    @property
    def covariance(self) -> FloatArray:
        """That of the columns, (k, k)."""
        return np.asarray(self.products / self.rows)


class Tally(NamedTuple):
    """What a plan comes to on some rows: queries by classifier, sums that certify it, the sum of chosen estimates.

    ``groups`` (4, BINS) are by chosen estimate: the number of rows, the sums of their estimates, of their outcomes and
    of the squares of these.
    """

    counts: IntArray
    sums: tuple[tuple[float, ...], ...]
    estimated: float
    groups: FloatArray | None


@dataclass(frozen=True, eq=False)
class Judged:
    """What all plans came to; ``moments`` are of each classifier's success, then of each plan's outcome in order."""

    moments: Moments
    tallies: tuple[Tally, ...]

    def gap(self, number: int, planned: Planned) -> float:
        """How far a plan is proved to be from the best, relative to its value."""
        total, total_low, best, best_low = zip(*self.tallies[number].sums, strict=True)
        value = math.fsum(total + total_low)
        if planned.found.proved:
            return 0.0
        price = planned.found.decision.price
        return relative_gap(bound_from(planned.problem, math.fsum(best + best_low), price, value), value)


class _Applied(NamedTuple):
    """A decision on values less what is taken off, and whether its estimates are told apart."""

    place: int
    taken_off: FloatArray | None
    rules: Rules
    decision: Decision
    grouped: bool


@dataclass(frozen=True)
class _Judging:
    """What every part is judged with: values, each with the decisions on them."""

    truth: StoredValues
    decisions: tuple[tuple[LargeValues, tuple[_Applied, ...]], ...]
    plans: int


@dataclass
class _Sums:
    """What has been summed up so far, part by part in their order."""

    moments: Moments | None = None
    tallies: list[Tally] = field(default_factory=list)

    def add(self, moments: Moments, tallies: Sequence[Tally]) -> None:
        if self.moments is None:
            self.moments, self.tallies = moments, list(tallies)
            return
        self.moments = self.moments.joined(moments)
        self.tallies = [_both(one, other) for one, other in zip(self.tallies, tallies, strict=True)]


def judge(
    truth: StoredValues,
    plans: Sequence[Planned],
    grouped: Sequence[bool],
    workers: Executor | None,
    progress: Callable[[int, int], None] | None = None,
) -> Judged:
    """Apply all plans to all parts; of ``grouped`` ones, estimates are told apart by their size."""
    by_values: dict[int, tuple[LargeValues, list[_Applied]]] = {}
    for place, (one, apart) in enumerate(zip(plans, grouped, strict=True)):
        applied = _Applied(place, one.taken_off, one.found.rules, one.found.decision, apart)
        # What is read for one plan serves all that were made from the same.
        by_values.setdefault(id(one.values), (one.values, []))[1].append(applied)
    decisions = tuple((values, tuple(applied)) for values, applied in by_values.values())
    sums, parts = _Sums(), len(truth.parts)
    shared = _Judging(truth, decisions, len(plans))
    executor = within_memory(workers, len(truth.columns) * (1 + len(decisions)))
    for number, (moments, tallies) in enumerate(executor.map(_judge_part, shared, range(parts))):
        sums.add(moments, tallies)
        if progress is not None:
            progress(number + 1, parts)
    if sums.moments is None:  # cannot be: a folder has rows
        raise ArithmeticError("there were no parts to judge")
    return Judged(sums.moments, tuple(sums.tallies))


def _judge_part(shared: _Judging, number: int) -> tuple[Moments, tuple[Tally, ...]]:
    start, stop = shared.truth.parts.span(number)
    truth = shared.truth.part(number, start, stop)
    options = truth.shape[1]
    tables = [values.part(number, start, stop) for values, _ in shared.decisions]
    at_once = max(FEWEST_ROWS, AT_ONCE // (options + shared.plans))
    sums = _Sums()
    for first in range(0, len(truth), at_once):
        rows = slice(first, first + at_once)
        outcomes = np.empty((len(truth[rows]), options + shared.plans))
        outcomes[:, :options] = truth[rows]
        tallies: list[Tally | None] = [None] * shared.plans
        for (_, decisions), table in zip(shared.decisions, tables, strict=True):
            for one in decisions:
                tallies[one.place], reached = _applied(one, table[rows], truth[rows], start + first)
                outcomes[:, options + one.place] = reached
        sums.add(Moments.of(outcomes), [tally for tally in tallies if tally is not None])
    if sums.moments is None:  # cannot be: a part has rows
        raise ArithmeticError(f"part {number} has no rows")
    return sums.moments, tuple(sums.tallies)


def _applied(one: _Applied, success: FloatArray, truth: FloatArray, start: int) -> tuple[Tally, FloatArray]:
    """What a plan comes to on some rows, and whether each of its answers was right."""
    values = less(success, one.taken_off)
    choice = decide(values, start, one.rules, one.decision)
    estimated, reached = (np.take_along_axis(table, choice[:, None], axis=1)[:, 0] for table in (success, truth))
    tally = Tally(
        counts=np.bincount(choice, minlength=truth.shape[1]),
        sums=sums_of(values, one.rules, choice, one.decision.price),
        estimated=math.fsum(estimated),
        groups=_by_estimate(estimated, reached) if one.grouped else None,
    )
    return tally, reached


def _by_estimate(estimated: FloatArray, reached: FloatArray) -> FloatArray:
    place = np.minimum((estimated * BINS).astype(np.int64), BINS - 1)
    weights = (None, estimated, reached, reached**2)
    return np.stack([np.bincount(place, weights=one, minlength=BINS).astype(np.float64) for one in weights])


def _both(one: Tally, other: Tally) -> Tally:
    groups = None if one.groups is None or other.groups is None else one.groups + other.groups
    return Tally(one.counts + other.counts, one.sums + other.sums, one.estimated + other.estimated, groups)
