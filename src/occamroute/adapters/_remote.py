"""What classifiers behind HTTP have in common: limits of calls, and the ways to ask them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, name_tuple
from occamroute._money import money
from occamroute.adapters._http import Endpoint
from occamroute.adapters._tables import blocks
from occamroute.adapters._wire import arun, run
from occamroute.errors import CallError, InvalidInputError
from occamroute.pool import Answers, Cost, Measured, PerToken

__all__ = ["RemoteClassifier", "check_limits"]


class RemoteClassifier(ABC):
    """A classifier that is asked at an ``endpoint``, one attempt a call.

    Nothing is retried here, since only the caller knows what it may still spend; ``retries``, ``concurrency`` and
    ``per_minute`` are kept for it. ``timeout`` is for the whole of a call. Each attempt says what it means for money:
    an answer carries its cost, ``CallRefusedError`` says that nothing was charged, ``CallLostError`` that nobody
    knows, ``UnavailableError`` that no attempt can succeed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        cost: Cost,
        *,
        classes: tuple[str, ...],
        batch_size: int,
        timeout: float,
        retries: int,
        concurrency: int,
        per_minute: int | None,
    ) -> None:
        self.name, self.cost, self.endpoint = endpoint.name, cost, endpoint
        self.classes = name_tuple(map(str, classes), "classes")
        self.batch_size, self.timeout, self.retries = batch_size, timeout, retries
        self.concurrency, self.per_minute = concurrency, per_minute
        check_limits(self.name, 1, batch_size=batch_size, concurrency=concurrency)
        if per_minute is not None:
            check_limits(self.name, 1, per_minute=per_minute)
        check_limits(self.name, 0, retries=retries)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < 1e6:
            raise InvalidInputError(
                f"timeout of classifier {self.name!r} must be a number of seconds above 0, got {timeout!r}."
            )
        if not isinstance(cost, Measured | PerToken):
            money(cost, f"cost of classifier {self.name!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, base_url={self.endpoint.base_url!r})"

    @abstractmethod
    async def _attempt(self, queries: Any, seconds: float, key: str) -> Answers:
        """The answers to at most ``batch_size`` queries, or what became of them."""

    def answer(self, queries: Any, timeout: float | None = None, key: str = "") -> Answers:
        """The answers to at most ``batch_size`` queries; ``timeout`` can only shorten the classifier's own.

        Calls of the same ``key`` are charged once, if the other side minds it.
        """
        return run(self._attempt(self._taken(queries), self._seconds(timeout), key))

    async def aanswer(self, queries: Any, timeout: float | None = None, key: str = "") -> Answers:
        """The same, for event loops."""
        return await arun(self._attempt(self._taken(queries), self._seconds(timeout), key))

    def predict_proba(self, queries: Any, /) -> FloatArray:
        """Probabilities (n, classes), one call after the other; ``CallError`` at the first without an answer."""
        tables: list[FloatArray] = [np.empty((0, len(self.classes)))]
        for some in blocks(queries, self.batch_size):
            answers = self.answer(some)
            for reason in answers.failures.values():
                raise CallError(reason)
            tables.append(answers.probabilities)
        return np.concatenate(tables)

    def _taken(self, queries: Sequence[Any]) -> Any:
        if not 1 <= len(queries) <= self.batch_size:
            raise InvalidInputError(
                f"classifier {self.name!r} takes 1 to {self.batch_size} queries a call, got {len(queries)}."
            )
        return queries

    def _seconds(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else min(max(timeout, 0.0), self.timeout)


def check_limits(name: str, least: int, **limits: int) -> None:
    """Refuses what is no whole number from ``least`` on."""
    for option, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InvalidInputError(f"{option} of classifier {name!r} must be a whole number ≥ {least}, got {value!r}.")
