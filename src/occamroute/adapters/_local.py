"""Models that run here, asked block by block."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.adapters._tables import blocks
from occamroute.errors import InvalidInputError
from occamroute.pool import Answers, Cost, Measured, PerToken

__all__ = ["Block", "LocalClassifier"]


class Block(NamedTuple):
    """What a model gave for some queries: probabilities (n, classes), by row why one has no answer, features (n, d)."""

    probabilities: FloatArray
    failures: Mapping[int, str]
    features: FloatArray | None = None


class LocalClassifier(ABC):
    """The ways to ask a model whose ``block`` answers at most ``batch_size`` queries."""

    def __init__(self, name: str, cost: Cost, *, classes: tuple[str, ...], batch_size: int) -> None:
        if isinstance(cost, PerToken):  # nobody bills tokens for it
            raise InvalidInputError(f"{name!r} runs here and bills no tokens: give an amount, or a price per hour.")
        if batch_size < 1:
            raise InvalidInputError(f"batch_size of {name!r} must be at least 1, got {batch_size}.")
        self.name, self.cost, self.classes, self.batch_size = name, cost, classes, batch_size

    @abstractmethod
    def block(self, queries: Any, /) -> Block:
        """The answers to at most ``batch_size`` queries."""

    def predict_proba(self, queries: Any, /) -> FloatArray:
        """Probabilities (n, classes)."""
        answers = self.answer(queries)
        for row, reason in answers.failures.items():
            raise InvalidInputError(f"query {row} of {self.name!r} has {reason.removesuffix('.')}.")
        return answers.probabilities

    def answer(self, queries: Any, /, timeout: float | None = None) -> Answers:
        """Probabilities, costs and features from one pass; a query that cannot be read is a failure of its own."""
        del timeout  # what computes here cannot be stopped halfway
        begun, given = time.perf_counter(), [self.block(part) for part in blocks(queries, self.batch_size)]
        if not given:
            return Answers(np.zeros((0, len(self.classes))), ())
        failures = {
            number * self.batch_size + row: reason
            for number, block in enumerate(given)
            for row, reason in block.failures.items()
        }
        features = [block.features for block in given if block.features is not None]
        seconds = (time.perf_counter() - begun) / len(queries)
        cost = self.cost.of(seconds) if isinstance(self.cost, Measured) else self.cost
        return Answers(
            np.concatenate([block.probabilities for block in given]),
            [cost] * len(queries),
            failures,
            np.concatenate(features) if features else None,
        )
