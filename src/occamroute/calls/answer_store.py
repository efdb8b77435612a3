"""The answers and features that were bought, by source and query."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from occamroute._arrays import BoolArray, FloatArray, IntArray
from occamroute._money import exact
from occamroute.calls.sources import Outcome

__all__ = ["AnswerStore", "SourceAnswers"]


@dataclass
class SourceAnswers:
    """What one source gave: ``there`` (n,) says for which queries; ``failures`` why not, by query number."""

    rows: int
    there: BoolArray = field(init=False)
    costs: FloatArray = field(init=False)
    probabilities: FloatArray | None = None
    features: FloatArray | None = None
    failures: dict[int, str] = field(default_factory=dict)
    # Calls by their number of queries and their seconds, in the order in which they ended.
    batches: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.there = np.zeros(self.rows, np.bool_)
        self.costs = np.zeros(self.rows)

    def put(self, outcome: Outcome) -> None:
        """Take in what a call gave."""
        rows = outcome.answered
        chosen = np.isin(outcome.rows, rows) if rows.size < outcome.rows.size else slice(None)
        if outcome.error is not None:
            return
        self.costs[outcome.rows] = outcome.costs
        self.failures.update(outcome.failures)
        self.batches.append((outcome.rows.size, outcome.seconds))
        if self.there.any() and (self.features is None) != (outcome.features is None):
            self.failures.update(dict.fromkeys(map(int, rows), "features with some answers and not with others"))
            return
        for name in ("probabilities", "features"):
            table = getattr(outcome, name)
            if table is None or not rows.size:
                continue
            if getattr(self, name) is None:
                # Zeros: rows without an answer are calculated with, too. Pages never written to are never really taken.
                setattr(self, name, np.zeros((self.rows, table.shape[1])))
            held = getattr(self, name)
            if held.shape[1] != table.shape[1]:
                self.failures.update(dict.fromkeys(map(int, rows), f"{table.shape[1]} {name}, not {held.shape[1]}"))
                return
            held[rows] = table[chosen]
        self.there[rows] = True

    def take_in(self, part: SourceAnswers, first: int) -> None:
        """Take in what is there for queries from ``first`` on."""
        rows = slice(first, first + part.rows)
        self.there[rows], self.costs[rows] = part.there, part.costs
        self.failures.update({row + first: reason for row, reason in part.failures.items()})
        self.batches += part.batches
        for name in ("probabilities", "features"):
            table = getattr(part, name)
            if table is not None:
                if getattr(self, name) is None:
                    setattr(self, name, np.zeros((self.rows, table.shape[1])))
                getattr(self, name)[rows] = table

    def cost_of(self, rows: IntArray) -> float:
        """What the answers for these queries cost."""
        return math.fsum(self.costs[rows].tolist())

    @property
    def answers(self) -> FloatArray:
        """Probabilities (n, C); only rows that are ``there`` mean anything."""
        return np.empty((self.rows, 0)) if self.probabilities is None else self.probabilities

    @property
    def extracted(self) -> FloatArray:
        """Features (n, d): what the source extracts, or else its probabilities."""
        return self.answers if self.features is None else self.features


class AnswerStore:
    """The answers of all sources."""

    def __init__(self, names: list[str], rows: int) -> None:
        self.by_source = {name: SourceAnswers(rows) for name in names}
        # What its answers were charged.
        self.useful = Fraction(0)

    def __getitem__(self, name: str) -> SourceAnswers:
        return self.by_source[name]

    def put(self, outcome: Outcome) -> None:
        """Take in what a call gave."""
        self.by_source[outcome.source].put(outcome)
        if outcome.error is None and not outcome.failures:
            self.useful += outcome.charged or 0
        elif outcome.error is None:
            good = np.isin(outcome.rows, outcome.answered)
            self.useful += exact(math.fsum(outcome.costs[good].tolist()))

    def missing(self, name: str, rows: IntArray) -> IntArray:
        """Those of the queries for which this source has given neither an answer nor a final failure."""
        answers = self.by_source[name]
        left = rows[~answers.there[rows]]
        return left if not answers.failures else left[[int(row) not in answers.failures for row in left]]
