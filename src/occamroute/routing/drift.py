"""Drift: alarms when queries, or the success of answers, stop being like the profile's.

What is promised: while queries come from where the profile's rows came from, in any order, an alarm is *ever* raised
with a chance of at most ``rate``, however long the stream (``martingales`` says why). What is seen is the rank of a
score among those of the profile's rows and of all queries so far, so that the promise rests on exchangeability alone,
not on a distribution. It is exact for scores that profile rows and queries get in the same way. Two are only nearly
so: a row's distance is to the other rows, a query's to all of them; a row's estimate is made from a part of the
others, a query's from all. Queries that come in bursts of one kind are a change: that is what is tested.

A change that stays becomes what is usual: evidence grows for about as many changed queries as there were rows and
queries before. An alarm stays up until ``reset``, which starts anew from the profile's rows alone: what
came in is forgotten, a change that persists is found again, and each start has its own chance of a false alarm.

Watches are for one thread at a time; memory is bounded whatever the length of the stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray, feature_matrix, generator, name_tuple, success_matrix
from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.routing.martingales import Betting, Raised, p_values
from occamroute.routing.novelty import checked_rate, left_out_distances, one_of_each
from occamroute.routing.scores import Levels, Scores

__all__ = ["Alarm", "FeatureWatch", "FeedbackWatch"]

# Rows that scores are defined by, and as many others that they are compared with.
ROWS = 10_000
# Levels of an estimate and of success: fixed, so that no row has a say in where another one is counted.
ESTIMATES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995)
SUCCESSES = tuple(step / 16 for step in range(1, 16))
# What costs may take off an estimate where it is not known which classifier would be chosen.
HANDICAP = 0.2
ADVICE = "label some of the recent queries and add them to the profile"


@dataclass(frozen=True)
class Alarm:
    """A change that chance does not explain.

    ``what`` is "features" or "feedback", or "bill" where a classifier charged more than it says that a call can cost
    (the numbers are then 0); ``number`` is the query (counted from 0) at which the alarm was raised,
    ``since`` the one from which on the change is likely; ``evidence`` is what it was raised at. ``sentence`` says
    what was seen and what to do.
    """

    what: str
    since: int
    number: int
    evidence: float
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class _Watch(ABC):
    """Scores in levels, counted by stratum, whose ranks are bet on."""

    what = ""

    def __init__(self, counts: IntArray, weights: FloatArray, *, rate: float, seed: int | np.random.Generator) -> None:
        self.rate = checked_rate(rate)
        self.seen = 0
        self._profile = counts
        self._weights = weights
        self._random = generator(seed)
        self.reset()

    def reset(self) -> None:
        """Start anew from the profile's rows: no alarm, no evidence, nothing remembered of what came in."""
        self.alarm: Alarm | None = None
        self._counts = self._profile.copy()
        self._betting = Betting(self._weights)

    @property
    def evidence(self) -> float:
        """The evidence for a change by now; it starts below 1, and the alarm is raised where it passes 1 / rate."""
        return self._betting.evidence

    def _see(self, strata: IntArray, levels: IntArray, lines: IntArray | None = None) -> None:
        """Rank levels (b, k) in their strata (b, k), and bet on the lines (b, j), by default the strata."""
        p = np.empty(levels.shape)
        p_values(strata, levels, self._random.random(levels.shape), self._counts, p)
        lines = strata if lines is None else lines
        bets = np.ascontiguousarray(np.broadcast_to(p, lines.shape))
        raised = self._betting.bet(lines, bets, self.seen, 1.0 / self.rate)
        self.seen += len(levels)
        if raised is not None and self.alarm is None:
            sentence = f"{self._words(raised)}: {ADVICE}."
            self.alarm = Alarm(self.what, raised.since, raised.step, raised.evidence, sentence)

    @abstractmethod
    def _words(self, raised: Raised) -> str:
        """What an alarm says was seen."""


class FeatureWatch(_Watch):
    """Raises an alarm when queries' features stop looking like those of the profile's rows.

    Watched are the distance to the nearest labelled row, the deviation from the mean, and the columns one by one
    (of more than 12 the first 8 principal directions), all of them from both sides. One half of the rows says what
    these scores are and where their levels lie, the other half is what queries are compared with.
    """

    what = "features"

    def __init__(
        self, scores: Scores, levels: Levels, counts: IntArray, *, rate: float, seed: int | np.random.Generator
    ) -> None:
        self._scores = scores
        self._levels = levels
        super().__init__(counts, np.full(len(counts), 1.0 / len(counts)), rate=rate, seed=seed)

    @classmethod
    def of(
        cls,
        features: Any,
        distances: Any = None,
        *,
        metric: str = "linf",
        groups: Any = None,
        seed: int | np.random.Generator = 0,
        rate: float = 0.01,
    ) -> FeatureWatch:
        """A watch for rows ``features`` (n, d) whose nearest *other* rows are at ``distances`` (n,).

        Without ``distances`` they are looked up under ``metric``. One row of each of ``groups`` takes part, and at
        most 20,000 in all.
        """
        table, random = feature_matrix(features), generator(seed)
        rows = one_of_each(len(table), groups, random)[: 2 * ROWS]
        if rows.size < 2:
            raise InvalidInputError(f"a watch needs at least 2 rows that do not belong together, got {rows.size}.")
        if distances is None:
            near = left_out_distances(table, metric, groups=groups, rows=rows)
        else:
            near = _distances(distances, len(table))[rows]
        half = rows.size // 2
        scores = Scores.of(table[rows[:half]])
        made = scores(table[rows], near)
        levels = Levels.of(made[:half])
        counts = levels.counted(made[half:])
        return cls(scores, levels, counts, rate=rate, seed=random)

    def update(self, features: Any, distances: Any) -> None:
        """See queries' features (b, d) and their distances (b,) to the nearest labelled row, in order."""
        table = feature_matrix(features)
        if table.shape[1] != self._scores.mean.size:
            raise InvalidInputError(f"features must have {self._scores.mean.size} columns, got {table.shape[1]}.")
        levels = self._levels(self._scores(table, _distances(distances, len(table))))
        strata = np.ascontiguousarray(np.broadcast_to(np.arange(levels.shape[1]), levels.shape))
        self._see(strata, levels)

    def _words(self, raised: Raised) -> str:
        seen = {
            "distance": {"higher": "are farther from", "lower": "are nearer to", "": "are at other distances from"},
            "deviation": {"higher": "deviate more from", "lower": "deviate less from", "": "deviate otherwise from"},
        }
        of = {"distance": "the nearest labelled row", "deviation": "the mean"}
        others = {
            "higher": "have higher values in", "lower": "have lower values in", "wider": "vary more in",
            "narrower": "vary less in", "": "have other values in",
        }  # fmt: skip
        name = self._scores.names[raised.line]
        verbs = seen.get(name, others)
        what = f"{verbs.get(raised.direction, verbs[''])} {of.get(name, name)}"
        return f"queries from number {raised.since:,} on {what} than the profile's rows"


class FeedbackWatch(_Watch):
    """Raises an alarm when classifiers that were chosen are right less, or more, often than was estimated.

    Success is compared with that of profile rows on which the same classifier had about the same estimate, so that
    neither another mix of choices nor of easy and hard queries is taken for a change. Watched are all choices
    together, with half of the capital, and each classifier alone.
    """

    what = "feedback"

    def __init__(self, names: Sequence[str], counts: IntArray, *, rate: float, seed: int | np.random.Generator) -> None:
        self.names = tuple(names)
        weights = np.append(0.5, np.full(len(names), 0.5 / len(names)))
        super().__init__(counts, weights, rate=rate, seed=seed)

    @classmethod
    def of(
        cls,
        names: Iterable[str],
        estimated: Any,
        success: Any,
        *,
        choice: Any = None,
        groups: Any = None,
        seed: int | np.random.Generator = 0,
        rate: float = 0.01,
    ) -> FeedbackWatch:
        """A watch for M classifiers whose ``success`` (n, M) on the profile's rows is known.

        ``estimated`` (n, M) must be of rows that took no part in their own estimate (cross-fitted); ``success`` must
        be measured as that of answers will be. Feedback comes from chosen classifiers alone, whose estimates are
        too high more often than others, so that rows count for one classifier each: ``choice`` (n,), the one that
        the router would choose, or else the one with the highest estimate after random handicaps.
        """
        known = name_tuple(names)
        promised, reached = success_matrix(estimated, "estimated"), success_matrix(success)
        if promised.shape != reached.shape or reached.shape[1] != len(known):
            raise InvalidInputError(
                f"estimated and success must be of shape (n, {len(known)}), got {promised.shape} and {reached.shape}."
            )
        random = generator(seed)
        if choice is None:
            choice = (promised - random.uniform(0.0, HANDICAP, promised.shape)).argmax(axis=1)
        rows = one_of_each(len(reached), groups, random)
        columns = _choices(choice, known, len(reached))[rows]
        counts = np.zeros((len(known) * (len(ESTIMATES) + 1), len(SUCCESSES) + 1), np.int64)
        strata, levels = _strata(columns, promised[rows, columns], reached[rows, columns])
        np.add.at(counts, (strata, levels), 1)
        return cls(known, counts, rate=rate, seed=random)

    def update(self, choice: Any, estimated: Any, success: Any) -> None:
        """See which classifier was chosen, its estimated success and what it reached: one answer, or several (b,)."""
        promised, reached = (np.atleast_1d(np.asarray(value, np.float64)) for value in (estimated, success))
        columns = _choices(choice, self.names, promised.size)
        for name, value in (("estimated", promised), ("success", reached)):
            if value.shape != columns.shape or not bool(((value >= 0.0) & (value <= 1.0)).all()):
                raise InvalidInputError(f"{name} must be {columns.size} numbers in [0, 1], got shape {value.shape}.")
        strata, levels = _strata(columns, promised, reached)
        lines = np.column_stack([np.zeros(columns.size, np.int64), columns + 1])
        self._see(strata[:, np.newaxis], levels[:, np.newaxis], lines)

    def _words(self, raised: Raised) -> str:
        who = "the classifiers chosen are" if raised.line == 0 else f"{self.names[raised.line - 1]} is"
        how = {"lower": "right less often than", "higher": "right more often than"}
        return f"from answer {raised.since:,} on {who} {how.get(raised.direction, 'not right as often as')} estimated"


def _strata(columns: IntArray, estimated: FloatArray, success: FloatArray) -> tuple[IntArray, IntArray]:
    """The stratum of each answer, by classifier and estimate, and the level of its success."""
    strata = columns * (len(ESTIMATES) + 1) + np.searchsorted(ESTIMATES, estimated, side="right")
    return strata, np.searchsorted(SUCCESSES, success, side="right")


def _choices(choice: Any, names: tuple[str, ...], count: int) -> npt.NDArray[np.int64]:
    """Column numbers, from numbers or names."""
    given = np.atleast_1d(np.asarray(choice))
    if given.dtype.kind == "U":
        for name in set(given.tolist()) - set(names):
            raise UnknownNameError("classifier", name, names)
        given = np.array([names.index(name) for name in given.tolist()])
    if given.dtype.kind not in "iu" or given.shape != (count,):
        raise InvalidInputError(f"choice must be {count} whole numbers or names, got {given.dtype} of {given.shape}.")
    if count and not 0 <= int(given.min()) <= int(given.max()) < len(names):
        raise InvalidInputError(f"choice must be numbers from 0 to {len(names) - 1}, got {int(given.max())}.")
    return given.astype(np.int64)


def _distances(value: Any, count: int) -> FloatArray:
    array = np.atleast_1d(np.asarray(value, np.float64))
    if array.shape != (count,) or not bool((array >= 0.0).all()):
        raise InvalidInputError(f"distances must be {count} numbers that are not negative, got shape {array.shape}.")
    return array
