"""Run: the answers that were bought, by whom, for how much, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray
from occamroute._money import Amount, from_text
from occamroute.charts.cards import card
from occamroute.charts.pictures import usage_chart
from occamroute.charts.words import brief, percent
from occamroute.errors import NoAnswersError
from occamroute.planning.plans import Plan
from occamroute.storage import Parts

__all__ = ["Run", "promised_interval", "with_answers"]


def promised_interval(made_from: Mapping[str, Any], expected: float) -> tuple[float, float] | None:
    """The 90 % interval that a plan promised, where what is expected of what was bought is what it promised."""
    stated = made_from.get("accuracy_interval")
    if stated is None or made_from.get("expected_accuracy") != expected:
        return None
    low, high = stated
    return float(low), float(high)


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """What became of N queries.

    ``answers`` (N,) are names of classes, "" where there is none; ``probabilities`` (N, C) are NaN there. ``choice``
    (N,) is the index into ``names`` of who answered, -1 for nobody, and ``failures`` says why by query number.
    ``cost`` (N,) is what a query's own calls cost, extraction included. ``spent`` is everything that was charged or
    may have been: ``lost`` of it went to calls that gave no answer. ``expected_accuracy`` is the plan's, or what is
    left of it where queries were planned again or have no answer.
    """

    ids: tuple[str, ...]
    names: tuple[str, ...]
    classes: tuple[str, ...]
    answers: npt.NDArray[np.str_]
    probabilities: FloatArray
    choice: IntArray
    cost: FloatArray
    reason: npt.NDArray[np.str_]
    failures: dict[int, str]
    budget: Amount
    expected_accuracy: float
    exact_spent: Fraction
    made_from: dict[str, Any]
    plan: Plan | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        done = len(self) - len(self.failures)
        return f"Run({done} of {len(self)} queries answered, spent {self.spent:.6g} of {float(self.budget):.6g})"

    def _repr_html_(self) -> str:
        facts = [
            ("answered", f"{len(self) - len(self.failures):,} of {len(self):,}"),
            ("spent", f"{brief(self.spent)} of {brief(float(self.budget))}"),
            ("lost to failed calls", brief(self.lost)),
            ("expected accuracy (90 %)", percent(self.expected_accuracy, self.accuracy_interval)),
        ]
        return card("Run", facts, usage_chart(self.usage, len(self)))

    @property
    def accuracy_interval(self) -> tuple[float, float] | None:
        """The 90 % interval that the plan promised, where all that was bought is what was planned."""
        return promised_interval(self.made_from, self.expected_accuracy)

    @cached_property
    def spent(self) -> float:
        """Everything that was charged, or may have been, extraction included."""
        return float(self.exact_spent)

    @property
    def lost(self) -> float:
        """What went to calls that gave no answer."""
        lost = float(self.exact_spent - Fraction(math.fsum(self.cost.tolist())))
        return lost if lost > 1e-12 * self.spent else 0.0

    @property
    def usage(self) -> dict[str, int]:
        """How many queries each classifier answered."""
        counts = np.bincount(self.choice[self.choice >= 0], minlength=len(self.names))
        return dict(zip(self.names, counts.tolist(), strict=True))

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """A row for each query: its id, answer, who gave it, what it cost and why."""
        names = np.array([*self.names, ""])
        return {
            "id": np.array(self.ids),
            "answer": self.answers,
            "classifier": names[self.choice],
            "cost": self.cost,
            "reason": self.reason,
            "probabilities": self.probabilities,
        }

    def summary(self) -> dict[str, Any]:
        """What is said of the run as a whole, for JSON."""
        return {
            "n_queries": len(self),
            "answered": len(self) - len(self.failures),
            "budget": float(self.budget),
            "spent": self.spent,
            "lost": self.lost,
            "expected_accuracy": self.expected_accuracy,
            "usage": self.usage,
            "failures": {self.ids[row]: reason for row, reason in self.failures.items()},
            "made_from": self.made_from,
        }

    def parts(self) -> Parts:
        """The run as one table, a row for each query, and what is said of it as a whole."""
        about = {
            "names": list(self.names),
            "classes": list(self.classes),
            "budget": str(self.budget),
            "spent": str(self.exact_spent),
            "expected_accuracy": self.expected_accuracy,
            "failures": {str(row): reason for row, reason in self.failures.items()},
            "made_from": self.made_from,
        }
        return Parts("run", self.columns(), about)

    @classmethod
    def from_parts(cls, parts: Parts) -> Run:
        """The run that ``parts`` was made of, without its plan."""
        about, columns = parts.metadata, parts.columns
        index = {name: column for column, name in enumerate(about["names"])} | {"": -1}
        return cls(
            ids=tuple(columns["id"].tolist()),
            names=tuple(about["names"]),
            classes=tuple(about["classes"]),
            answers=columns["answer"],
            probabilities=columns["probabilities"],
            choice=np.array([index[name] for name in columns["classifier"].tolist()], np.int64),
            cost=columns["cost"],
            reason=columns["reason"],
            failures={int(row): reason for row, reason in about["failures"].items()},
            budget=from_text(about["budget"]),
            expected_accuracy=float(about["expected_accuracy"]),
            exact_spent=Fraction(about["spent"]),
            made_from=dict(about["made_from"]),
        )


def with_answers(run: Run) -> Run:
    """The run; ``NoAnswersError`` where not a single query has an answer."""
    if len(run.failures) == len(run):
        raise NoAnswersError(len(run), str(run.exact_spent), run.failures)
    return run
