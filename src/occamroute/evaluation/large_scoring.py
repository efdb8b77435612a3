"""What decisions come to on a folder of labelled queries: the same rows as in ``scoring``, from sums alone.

Queries are not drawn again, there may be millions: the means of so many are as good as normal, so that means are drawn
from the normal distribution with the measured covariance, which is what resamples come to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, generator
from occamroute._intervals import bounds_from
from occamroute.evaluation.large_judging import Judged, Moments
from occamroute.evaluation.large_methods import Decided
from occamroute.evaluation.large_values import Planned
from occamroute.evaluation.resampling import RESAMPLES
from occamroute.evaluation.scoring import GROUPS, Reached, Resamples, Scores, Turn, row_of

__all__ = ["LargeResults", "planned_in", "score_large"]

LargeResults = Mapping[str, dict[Fraction, list[Decided]]]
# Of the greatest variance, so much is rounding.
ROUNDING = 1e-13


def score_large(
    results: LargeResults, judged: Judged, *, names: Sequence[str], full: Fraction, reference: str, dearest: int,
    seed: int,
) -> Scores:  # fmt: skip
    """Every method at every budget it can keep; ``judged`` is what came of all that is planned in ``results``."""
    summed = _Summed(results, judged, len(names))
    drawn = drawn_means(judged.moments, seed)
    resamples = summed.resamples(drawn, dearest)
    rows = []
    for label, found in results.items():
        for budget in sorted(found):
            row = row_of(label, budget, full, summed.reached[label, budget], names)
            rows.append(row | resamples.compared(label, budget, reference))
    classifiers = summed.bounds(np.eye(len(judged.moments.mean), len(names)))
    return Scores(rows, summed.averages(), classifiers, summed.calibration())


def planned_in(results: LargeResults) -> list[tuple[Decided, Planned]]:
    """All that is planned, in the order in which it is judged."""
    several = (one for found in results.values() for answers in found.values() for one in answers)
    return [(one, one.planned) for one in several if one.planned is not None]


def drawn_means(moments: Moments, seed: int) -> FloatArray:
    """What the means (1000, k) of the columns might have been on other queries of the same kind."""
    variances, directions = np.linalg.eigh(moments.covariance)
    # Columns that are alike must stay so: what rounding alone has made differ is left out.
    kept = variances > ROUNDING * max(float(variances.max()), 0.0)
    spread = directions[:, kept] * np.sqrt(variances[kept] / moments.rows)
    return np.asarray(moments.mean + generator(seed).standard_normal((RESAMPLES, spread.shape[1])) @ spread.T)


class _Summed:
    """Outcomes as sums of columns: ``weights`` (k,) say how much of each column a method's outcome is."""

    def __init__(self, results: LargeResults, judged: Judged, options: int) -> None:
        self.results, self.judged, self.options = results, judged, options
        self.moments = judged.moments
        self.weights: dict[Turn, FloatArray] = {}
        self.reached: dict[Turn, list[Reached]] = {}
        self.grouped: list[dict[str, Any]] = []
        plans = iter(range(len(judged.tallies)))
        for label, found in results.items():
            for budget, several in found.items():
                numbers = [None if one.planned is None else next(plans) for one in several]
                weights = [self._weights(one, number) for one, number in zip(several, numbers, strict=True)]
                self.weights[label, budget] = np.asarray(np.mean(weights, axis=0))
                self.reached[label, budget] = [
                    self._reached(one, number, float(self.moments.mean @ own))
                    for one, number, own in zip(several, numbers, weights, strict=True)
                ]
                self._group(label, budget, several[0], numbers[0])

    def _weights(self, one: Decided, number: int | None) -> FloatArray:
        weights = np.zeros(len(self.moments.mean))
        if number is None:
            weights[one.column] = 1.0
        elif one.mixed:
            # Which queries a mixture sends where is chance: its mean over all ways is scored.
            weights[: self.options] = self.judged.tallies[number].counts / self.moments.rows
        else:
            weights[self.options + number] = 1.0
        return weights

    def _reached(self, one: Decided, number: int | None, accuracy: float) -> Reached:
        rows = self.moments.rows
        if one.planned is None or number is None:
            counts = np.zeros(self.options, np.int64)
            counts[one.column] = rows
            return Reached(accuracy, one.cost or Fraction(0), counts, one.extractor, one.chosen)
        tally, problem = self.judged.tallies[number], one.planned.problem
        cost, gap = problem.total(problem.paid(tally.counts)), self.judged.gap(number, one.planned)
        made = Reached(accuracy, cost, tally.counts, one.extractor, one.chosen, gap=gap)
        if one.choice is None:
            return made
        expected, interval = one.choice.promise(tally.estimated / rows, rows)
        return replace(made, expected_accuracy=expected, accuracy_interval=interval)

    def bounds(self, weights: FloatArray) -> list[list[float]]:
        """90 % intervals of the means of sums of columns (k, l)."""
        variance = np.einsum("kl,kl->l", weights, self.moments.covariance @ weights) / self.moments.rows
        found: list[list[float]] = bounds_from(self.moments.mean @ weights, variance, self.moments.rows).tolist()
        return found

    def resamples(self, drawn: FloatArray, dearest: int) -> Resamples:
        """Accuracies here and on other queries."""
        table = np.stack(list(self.weights.values()), axis=1)
        return Resamples(
            measured={turn: float(self.moments.mean @ one) for turn, one in self.weights.items()},
            bounds=dict(zip(self.weights, self.bounds(table), strict=True)),
            drawn=dict(zip(self.weights, (drawn @ table).T, strict=True)),
            dearest=float(self.moments.mean[dearest]),
            dearest_drawn=drawn[:, dearest],
        )

    def averages(self) -> dict[str, list[float]]:
        """The interval of each method's mean accuracy over the budgets that all methods can keep."""
        shared = set.intersection(*(set(found) for found in self.results.values()))
        if not shared:
            return {}
        means = [np.mean([self.weights[label, budget] for budget in shared], axis=0) for label in self.results]
        return dict(zip(self.results, self.bounds(np.stack(means, axis=1)), strict=True))

    def _group(self, label: str, budget: Fraction, one: Decided, number: int | None) -> None:
        if number is None or self.judged.tallies[number].groups is None:
            return
        correction = 0.0
        if one.choice is not None:
            mean = self.judged.tallies[number].estimated / self.moments.rows
            correction = one.choice.promise(mean, self.moments.rows)[0] - mean
        groups = grouped(self.judged.tallies[number].groups, correction)
        self.grouped.append({"method": label, "budget": float(budget), **groups})

    def calibration(self) -> list[dict[str, Any]]:
        """Estimated against reached success by about tenths of the queries, as in ``scoring``."""
        order = {label: place for place, label in enumerate(self.results)}
        return sorted(self.grouped, key=lambda one: (order[one["method"]], one["budget"]))


def grouped(bins: FloatArray | None, correction: float) -> dict[str, list[float]]:
    """Bins of estimates (4, b) joined to groups of about a tenth of the rows; what is in one bin stays together."""
    made: dict[str, list[float]] = {"count": [], "estimated": [], "reached": [], "low": [], "high": []}
    if bins is None:
        return made
    filled = bins[:, bins[0] > 0]
    count, sums = filled[0], filled.copy()
    sums[1] = count * np.clip(filled[1] / count + correction, 0.0, 1.0)
    middle = np.cumsum(count) - count / 2.0
    group = np.minimum((middle * (GROUPS / count.sum())).astype(np.int64), GROUPS - 1)
    for number in np.unique(group):
        rows, estimated, reached, squares = sums[:, group == number].sum(axis=1).tolist()
        mean = np.array([reached / rows])
        variance = np.maximum(squares / rows - mean**2, 0.0) / rows
        ((low, high),) = bounds_from(mean, variance, int(rows))
        made["count"].append(int(rows))
        numbers = estimated / rows, mean[0], low, high
        for name, one in zip(("estimated", "reached", "low", "high"), numbers, strict=True):
            made[name].append(round(float(one), 6))
    return made
