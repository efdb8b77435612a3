"""What methods' answers come to: a row for each method and budget, every measured number with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._intervals import mean_bounds
from occamroute.evaluation.baselines import Answered, Setting
from occamroute.evaluation.resampling import ends, resampled_means

__all__ = ["GROUPS", "Reached", "Resamples", "Scores", "decimal", "row_of", "score"]

Results = Mapping[str, dict[Fraction, list[Answered]]]
# A method at a budget.
Turn = tuple[str, Fraction]
# Queries are told apart by how sure their answers were thought to be, in so many groups of one size.
GROUPS = 10


@dataclass(frozen=True, eq=False)
class Scores:
    """The rows, and what is said of methods over all budgets and of classifiers alone."""

    rows: list[dict[str, Any]]
    averages: dict[str, list[float]]
    classifiers: list[list[float]]
    calibration: list[dict[str, Any]]


def score(results: Results, setting: Setting, full: Fraction, reference: str) -> Scores:
    """Every method at every budget it can keep; ``full`` is what always using the dearest costs."""
    outcomes = {
        (label, budget): np.asarray(np.mean([one.outcome for one in answers], axis=0))
        for label, found in results.items()
        for budget, answers in found.items()
    }
    resamples = _resampled(outcomes, setting)
    names = setting.profile.names
    rows = []
    for label, found in results.items():
        for budget in sorted(found):
            row = row_of(label, budget, full, [_reached(one, len(names)) for one in found[budget]], names)
            rows.append(row | resamples.compared(label, budget, reference))
    truth, blocks = setting.test.success, setting.test.blocks
    classifiers = mean_bounds(truth, blocks).tolist()
    return Scores(rows, _averages(outcomes, results, setting), classifiers, _calibration(results, setting))


@dataclass(frozen=True, eq=False)
class Resamples:
    """Accuracies of every method at every budget, on other queries of the same kind too, and what follows from them.

    ``measured`` are those on the test queries, ``bounds`` how sure they are, ``drawn`` (1000,) what they might have
    been; the same of always using the dearest.
    """

    measured: Mapping[Turn, float]
    bounds: Mapping[Turn, Sequence[float]]
    drawn: Mapping[Turn, FloatArray]
    dearest: float
    dearest_drawn: FloatArray

    def compared(self, label: str, budget: Fraction, reference: str) -> dict[str, Any]:
        """How sure the accuracy is, and how far it is from the reference, the dearest and the oracle."""
        own, drawn = self.measured[label, budget], self.drawn[label, budget]
        with np.errstate(divide="ignore", invalid="ignore"):
            drop = (self.dearest_drawn - drawn) / self.dearest_drawn
        found: dict[str, Any] = {
            "accuracy_bounds": tuple(self.bounds[label, budget]),
            "dearest_difference": own - self.dearest,
            "dearest_difference_interval": ends(drawn - self.dearest_drawn),
            "drop_interval": ends(drop),
        }
        if (reference, budget) in self.measured:
            found["difference"] = own - self.measured[reference, budget]
            found["difference_interval"] = ends(drawn - self.drawn[reference, budget])
        low, high = ("mixture", budget), ("oracle", budget)
        if low in self.measured and high in self.measured:
            found["way_to_oracle"] = _way(own, self.measured[low], self.measured[high])
            if found["way_to_oracle"] is not None:
                room = self.drawn[high] - self.drawn[low]
                with np.errstate(divide="ignore", invalid="ignore"):
                    found["way_interval"] = ends((drawn - self.drawn[low]) / room)
        return found


def _resampled(outcomes: Mapping[Turn, FloatArray], setting: Setting) -> Resamples:
    """The same queries drawn again and again."""
    test = setting.test
    dearest = test.success[:, test.dearest]
    table = np.stack([*outcomes.values(), dearest], axis=1)
    means = resampled_means(table, test.blocks, setting.seed)
    bounds = mean_bounds(table, test.blocks)
    return Resamples(
        measured=dict(zip(outcomes, table.mean(axis=0).tolist(), strict=False)),
        bounds=dict(zip(outcomes, bounds.tolist(), strict=False)),
        drawn=dict(zip(outcomes, means.T, strict=False)),
        dearest=float(dearest.mean()),
        dearest_drawn=means[:, -1],
    )


def _way(own: float, mixture: float, oracle: float) -> float | None:
    """The share of the way from the mixture to the oracle; None where there is none to go."""
    return (own - mixture) / (oracle - mixture) if oracle - mixture > 1e-12 else None


@dataclass(frozen=True, eq=False)
class Reached:
    """What a method came to at a budget with one seed; ``counts`` (M,) are the queries that each classifier answers."""

    accuracy: float
    cost: Fraction
    counts: IntArray
    extractor: str | None
    chosen: str
    expected_accuracy: float | None = None
    accuracy_interval: tuple[float, float] | None = None
    gap: float | None = None


def _reached(one: Answered, options: int) -> Reached:
    return Reached(
        float(one.outcome.mean()), one.cost, np.bincount(one.choice, minlength=options), one.extractor, one.chosen,
        one.expected_accuracy, one.accuracy_interval, one.gap,
    )  # fmt: skip


def row_of(
    label: str, budget: Fraction, full: Fraction, reached: Sequence[Reached], names: Sequence[str]
) -> dict[str, Any]:
    """The row of a method at a budget, but for how it compares; ``reached`` is by seed."""
    accuracies = [one.accuracy for one in reached]
    first = reached[0]
    # The highest bill among the seeds: each of them keeps the budget.
    cost = max(one.cost for one in reached)
    counts = np.mean([one.counts for one in reached], axis=0)
    usage = [int(count) if float(count).is_integer() else float(count) for count in counts]
    return {
        "method": label,
        "budget": float(budget),
        "budget_share": float(budget / full) if full else 0.0,
        "accuracy": float(np.mean(accuracies)),
        "accuracy_spread": float(np.std(accuracies)),
        "accuracy_bounds": None,
        "cost": float(cost),
        "exact_cost": decimal(cost),
        "cost_share": float(cost / full) if full else 0.0,
        "usage": dict(zip(names, usage, strict=True)),
        "extractor": first.extractor,
        "chosen": first.chosen,
        "difference": None,
        "difference_interval": None,
        "way_to_oracle": None,
        "way_interval": None,
        "expected_accuracy": first.expected_accuracy,
        "accuracy_interval": first.accuracy_interval,
        "gap": first.gap,
    }


def decimal(amount: Fraction) -> str:
    """An amount as a decimal with all of its digits: costs are decimals."""
    digits = Context(prec=len(str(amount.numerator)) + amount.denominator.bit_length() + 2)
    return f"{digits.divide(Decimal(amount.numerator), Decimal(amount.denominator)).normalize(digits):f}"


def _averages(outcomes: Mapping[Turn, FloatArray], results: Results, setting: Setting) -> dict[str, list[float]]:
    """The interval of each method's mean accuracy over the budgets that all methods can keep."""
    shared = set.intersection(*(set(found) for found in results.values()))
    if not shared:
        return {}
    table = np.stack([np.mean([outcomes[label, budget] for budget in shared], axis=0) for label in results], axis=1)
    return dict(zip(results, mean_bounds(table, setting.test.blocks).tolist(), strict=True))


def _calibration(results: Results, setting: Setting) -> list[dict[str, Any]]:
    """Estimated against reached success by tenths of the queries, where a method promises something for each."""
    found = []
    for label, answers in results.items():
        for budget in sorted(answers):
            first = answers[budget][0]
            if first.estimated is not None:
                about = {"method": label, "budget": float(budget)}
                found.append(about | _groups(first.estimated, first.outcome, setting))
    return found


def _groups(estimated: FloatArray, outcome: FloatArray, setting: Setting) -> dict[str, list[float]]:
    order = np.argsort(estimated, kind="stable")
    blocks = setting.test.blocks
    made: dict[str, list[float]] = {"count": [], "estimated": [], "reached": [], "low": [], "high": []}
    for rows in np.array_split(order, min(GROUPS, len(order))):
        own = np.unique(blocks[rows], return_inverse=True)[1]
        low, high = mean_bounds(outcome[rows, None], own)[0]
        numbers = len(rows), estimated[rows].mean(), outcome[rows].mean(), low, high
        for name, number in zip(made, numbers, strict=True):
            made[name].append(number if name == "count" else round(float(number), 6))
    return made
