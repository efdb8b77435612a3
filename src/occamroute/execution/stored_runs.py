"""Runs larger than memory: answers kept as a folder of parts, each an ordinary run of consecutive queries."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from occamroute._money import Amount, from_text
from occamroute.charts.cards import card
from occamroute.charts.pictures import usage_chart
from occamroute.charts.words import brief, percent
from occamroute.errors import StorageError
from occamroute.execution.runs import Run, promised_interval
from occamroute.part_folders import InParts, PartFolder
from occamroute.storage import load

__all__ = ["StoredRun"]


@dataclass(frozen=True, eq=False, repr=False)
class StoredRun(InParts):
    """What became of N queries, as in ``Run``, in a folder of parts.

    ``answered`` and ``failures`` are numbers of queries, ``usage`` says how many each classifier answered.
    ``block(number)`` is an ordinary ``Run`` of consecutive queries, and each part can be loaded as one.
    """

    parts: PartFolder
    names: tuple[str, ...]
    classes: tuple[str, ...]
    budget: Amount
    exact_spent: Fraction
    usage: dict[str, int]
    failures: int
    expected_accuracy: float
    made_from: dict[str, Any]

    @classmethod
    def from_folder(cls, path: str | os.PathLike[str]) -> StoredRun:
        """The run that a folder holds."""
        parts, about = PartFolder.opened(path)
        try:
            return cls(
                parts=parts,
                names=tuple(about["names"]),
                classes=tuple(about["classes"]),
                budget=from_text(about["budget"]),
                exact_spent=Fraction(about["spent"]),
                usage={str(name): int(count) for name, count in about["usage"].items()},
                failures=int(about["failures"]),
                expected_accuracy=float(about["expected_accuracy"]),
                made_from=dict(about["made_from"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(path, f"part of the run is missing or broken ({error})") from error

    def about(self) -> dict[str, Any]:
        """What ``about.json`` says of it."""
        return {
            "names": list(self.names),
            "classes": list(self.classes),
            "budget": str(self.budget),
            "spent": str(self.exact_spent),
            "usage": self.usage,
            "failures": self.failures,
            "expected_accuracy": self.expected_accuracy,
            "made_from": self.made_from,
        }

    def __repr__(self) -> str:
        done = f"{self.answered} of {len(self)} queries answered"
        return f"StoredRun({str(self.path)!r}, {done}, spent {self.spent:.6g} of {float(self.budget):.6g})"

    def _repr_html_(self) -> str:
        interval = promised_interval(self.made_from, self.expected_accuracy)
        facts = [
            ("answered", f"{self.answered:,} of {len(self):,}"),
            ("spent", f"{brief(self.spent)} of {brief(float(self.budget))}"),
            ("expected accuracy (90 %)", percent(self.expected_accuracy, interval)),
        ]
        return card("Run", facts, usage_chart(self.usage, len(self)))

    @cached_property
    def spent(self) -> float:
        """Everything that was charged, or may have been, extraction included."""
        return float(self.exact_spent)

    @property
    def answered(self) -> int:
        """How many queries have an answer."""
        return len(self) - self.failures

    def block(self, number: int) -> Run:
        """The run of one block of queries."""
        self.parts.span(number)
        made: Run = load(self.parts.file(number))
        return made

    def summary(self) -> dict[str, Any]:
        """What is said of the run as a whole, for JSON."""
        return {
            "n_queries": len(self),
            "answered": self.answered,
            "budget": float(self.budget),
            "spent": self.spent,
            "expected_accuracy": self.expected_accuracy,
            "usage": self.usage,
            "failures": self.failures,
            "made_from": self.made_from,
            "out": str(self.path),
        }
