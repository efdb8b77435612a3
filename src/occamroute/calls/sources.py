"""Source: one member of a pool as a buyer sees it, and what one call of it came to."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._loops import background
from occamroute._money import exact, money
from occamroute.calls.threads import DaemonThreads
from occamroute.errors import (
    CallError,
    CallLostError,
    CallRefusedError,
    InvalidInputError,
    OccamError,
    UnavailableError,
)
from occamroute.pool import Answers, Measured, PerToken, Pool, selected
from occamroute.text_features import of_texts

__all__ = ["BATCH", "TIMED_RESERVE", "Outcome", "Source", "sources_of"]

BATCH = 256
# How long a call takes is not known in advance: a call that is paid by the second reserves this many times the expected
# cost.
TIMED_RESERVE = 3
RETRIES = 4


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one call came to: answers for ``rows``, or an error; ``charged`` in all, ``costs`` (n,) by query.

    ``charged`` is None where nobody knows: the worst case then counts. ``failures`` says by query number why one
    has no answer although the call as such succeeded.
    """

    source: str
    rows: IntArray
    charged: Fraction | None
    costs: FloatArray
    seconds: float = 0.0
    probabilities: FloatArray | None = None
    features: FloatArray | None = None
    failures: dict[int, str] = field(default_factory=dict)
    error: CallError | None = None

    @property
    def answered(self) -> IntArray:
        """The queries that have an answer."""
        if self.error is not None:
            return self.rows[:0]
        return self.rows if not self.failures else self.rows[[int(row) not in self.failures for row in self.rows]]

    @property
    def unanswered(self) -> IntArray:
        """The queries that have none."""
        if self.error is not None:
            return self.rows
        return np.array(sorted(self.failures), np.int64)


@dataclass(frozen=True, eq=False)
class Source:
    """One member of a pool: a classifier with so many ``classes``, or (0 classes) an extractor.

    Where several buy from it side by side, each has a ``share`` of what it allows: one part in so many.
    """

    member: Any
    classes: int
    share: int = 1

    @cached_property
    def name(self) -> str:
        """Its name in the pool."""
        return str(self.member.name)

    @cached_property
    def batch_size(self) -> int:
        """The most queries that one call takes."""
        return max(1, int(getattr(self.member, "batch_size", None) or BATCH))

    @cached_property
    def concurrency(self) -> int:
        """How many calls may be under way; 0: it computes here, one call after the other."""
        allowed = max(0, int(getattr(self.member, "concurrency", None) or 0))
        return allowed and max(1, allowed // self.share)

    @property
    def remote(self) -> bool:
        """Whether its calls go elsewhere."""
        return self.concurrency > 0

    @cached_property
    def retries(self) -> int:
        """How often a call that failed is made again."""
        given = getattr(self.member, "retries", None)
        return int(given) if given is not None else (RETRIES if self.remote else 0)

    @cached_property
    def per_minute(self) -> float | None:
        """How many calls may begin in a minute."""
        allowed = getattr(self.member, "per_minute", None)
        return allowed and allowed / self.share

    @property
    def timed(self) -> bool:
        """Whether a call costs what its seconds cost."""
        return isinstance(self.member.cost, Measured)

    @cached_property
    def idempotent(self) -> bool:
        """Whether it takes a key with a call, and charges calls of the same key once."""
        return bool(getattr(self.member, "idempotent", False))

    @property
    def once_only(self) -> bool:
        """Whether a call whose end nobody knows must not be made again: somebody outside may have charged for it."""
        return self.remote and not self.idempotent and not self.timed

    @property
    def repeatable(self) -> bool:
        """Whether such a call may be made again and is paid once.

        What computes here at a stated price is: a computation that died with its process gave nothing, and nobody
        outside has charged for it. Of what is paid by the second, the seconds are lost.
        """
        return not self.once_only and not self.timed

    @property
    def fixed(self) -> Fraction | None:
        """What each query costs, if that is known beforehand and the same for all."""
        cost = self.member.cost
        uncertain = isinstance(cost, Measured | PerToken) or hasattr(self.member, "max_cost")
        return None if uncertain else exact(cost)

    def most(self, queries: Any) -> list[Fraction] | None:
        """The most that each query can cost, exactly; None where only time will tell."""
        if hasattr(self.member, "max_cost"):
            return self._stated_most(queries)
        if isinstance(self.member.cost, PerToken):
            raise InvalidInputError(
                f"{self.name!r} is paid by the token, so it needs max_cost(queries) to keep a budget."
            )
        fixed = self.fixed
        return None if fixed is None else [fixed] * len(queries)

    def _stated_most(self, queries: Any) -> list[Fraction]:
        try:
            amounts = list(self.member.max_cost(queries))
        except OccamError:
            raise
        except Exception as error:  # anything may come out of somebody's classifier
            raise InvalidInputError(f"max_cost of {self.name!r} gave no amounts: {_words(error)}") from error
        if len(amounts) != len(queries):
            raise InvalidInputError(
                f"max_cost of {self.name!r} must give {len(queries)} amounts, one a query, got {len(amounts)}."
            )
        return [money(_plain(amount), f"max_cost of {self.name!r}") for amount in amounts]

    def call(self, queries: Any, rows: IntArray, key: str = "") -> Outcome:
        """One call for some of the queries; whatever goes wrong is in the outcome: nobody hears a worker raise.

        Calls of the same ``key`` are charged once by a source that is idempotent.
        """
        begun = time.perf_counter()
        try:
            given = self._ask(selected(queries, rows), self._keyed(key))
        except BaseException as error:  # noqa: BLE001  # anything may come out of somebody's model
            return self._raised(error, rows, time.perf_counter() - begun)
        return self._came(given, rows, time.perf_counter() - begun)

    async def acall(self, queries: Any, rows: IntArray, key: str = "", *, threads: DaemonThreads) -> Outcome:
        """The same for an event loop: awaited if the source supports it, otherwise made on one of the threads."""
        if not self.awaited:
            return await threads.run(lambda: self.call(queries, rows, key))
        begun = time.perf_counter()
        timeout = getattr(self.member, "timeout", None)
        try:
            given = await self.member.aanswer(selected(queries, rows), timeout=timeout, **self._keyed(key))
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            return self._raised(error, rows, time.perf_counter() - begun)
        return self._came(given, rows, time.perf_counter() - begun)

    @cached_property
    def awaited(self) -> bool:
        """Whether calls can be awaited and need no thread."""
        return bool(self.classes) and self.remote and hasattr(self.member, "aanswer")

    def _keyed(self, key: str) -> Mapping[str, str]:
        return {"key": key} if key and self.idempotent else {}

    def _raised(self, error: BaseException, rows: IntArray, seconds: float) -> Outcome:
        problem = _as_call_error(error)
        uncharged = self.remote and isinstance(problem, CallRefusedError | UnavailableError)
        return self._failed(rows, problem, seconds, uncharged=uncharged)

    def _came(self, given: Any, rows: IntArray, seconds: float) -> Outcome:
        try:
            return self._outcome(given, rows, seconds)
        except BaseException as error:  # noqa: BLE001  # anything may hide in what somebody's model returned
            # It cannot be used, but it was asked: that is paid.
            return self._failed(rows, _caused(UnavailableError(_words(error)), error), seconds, uncharged=False)

    def _ask(self, queries: Any, keyed: Mapping[str, str]) -> Any:
        member, timeout = self.member, getattr(self.member, "timeout", None)
        if not self.classes:
            return member.extract(queries, **keyed)
        if hasattr(member, "answer"):
            return member.answer(queries, timeout=timeout, **keyed)
        if hasattr(member, "predict_proba"):
            return member.predict_proba(queries)
        return background().run(member.aanswer(queries, timeout=timeout, **keyed))

    def _failed(self, rows: IntArray, error: CallError, seconds: float, *, uncharged: bool) -> Outcome:
        charged = Fraction(0) if uncharged else None
        if self.timed:
            charged = self.member.cost.of(seconds)
        return Outcome(self.name, rows, charged, np.zeros(rows.size), seconds, error=error)

    def _outcome(self, given: Any, rows: IntArray, seconds: float) -> Outcome:
        failures: dict[int, str] = {}
        features = probabilities = None
        if self.classes:
            answers = given if isinstance(given, Answers) else Answers(given, ())
            failures = self._stated_failures(answers.failures, rows)
            probabilities = self._table(answers.probabilities, rows, self.classes, failures)
            if answers.features is not None:
                features = self._table(answers.features, rows, None, failures)
        else:
            features = self._table(given, rows, None, failures)
        charged, costs = self._charged(given, rows, seconds)
        return Outcome(self.name, rows, charged, costs, seconds, probabilities, features, failures)

    def _stated_failures(self, given: Any, rows: IntArray) -> dict[int, str]:
        if not isinstance(given, Mapping) or not all(row in range(rows.size) for row in given):
            raise InvalidInputError(f"{self.name!r} must give failures as reasons by row, 0 to {rows.size - 1}.")
        return {int(rows[row]): str(reason) for row, reason in given.items()}

    def _charged(self, given: Any, rows: IntArray, seconds: float) -> tuple[Fraction, FloatArray]:
        if self.timed:
            total: Fraction = self.member.cost.of(seconds)
            return total, np.full(rows.size, float(total / rows.size))
        if not isinstance(given, Answers):
            if isinstance(self.member.cost, PerToken):
                raise InvalidInputError(f"{self.name!r} is paid by the token, so it must give Answers with their cost.")
            return exact(self.member.cost) * rows.size, np.full(rows.size, float(self.member.cost))
        listed: Sequence[Any] = list(np.asarray(given.cost, object).reshape(-1))
        if len(listed) != rows.size:
            raise InvalidInputError(f"{self.name!r} must state {rows.size} costs, one a query, got {len(listed)}.")
        what = f"cost stated by {self.name!r}"
        if all(amount == listed[0] for amount in listed):  # the usual case by far, and exact sums take their time
            amount = money(_plain(listed[0]), what)
            return amount * rows.size, np.full(rows.size, float(amount))
        amounts = [money(_plain(amount), what) for amount in listed]
        return sum(amounts, Fraction(0)), np.array([float(amount) for amount in amounts])

    def _table(self, given: Any, rows: IntArray, columns: int | None, failures: dict[int, str]) -> FloatArray:
        """Numbers (n, columns); a row that holds no sensible ones becomes a failure."""
        what = "features" if columns is None else "probabilities"
        try:
            table = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            raise InvalidInputError(f"{self.name!r} must give {what} as numbers, one row a query.") from None
        if table.ndim != 2 or table.shape[0] != rows.size or (columns is not None and table.shape[1] != columns):
            wanted = f"({rows.size}, {'d' if columns is None else columns})"
            raise InvalidInputError(f"{self.name!r} must give {what} of shape {wanted}, got {table.shape}.")
        bad = np.asarray(~np.isfinite(table).all(axis=1))
        if columns is not None:
            bad |= (table.min(axis=1) < 0.0) | (table.sum(axis=1) <= 0.0)
        for row in rows[bad]:
            failures.setdefault(int(row), f"{what} that are NaN, infinite, negative or all zero")
        return np.where(bad[:, None], 0.0, table) if bad.any() else table


def _plain(amount: Any) -> Any:
    return amount.item() if isinstance(amount, np.generic) else amount


def _words(error: BaseException) -> str:
    """What an exception says, in one line that ends with a full stop."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001  # some cannot even say what is wrong
        said = ""
    words = said if said and isinstance(error, OccamError) else f"{type(error).__name__}: {said}"
    return " ".join(words.split())[:300].rstrip(" .:") + "."


def _as_call_error(error: BaseException) -> CallError:
    """What an exception of a classifier means: one that says nothing of money may have been charged."""
    if isinstance(error, InvalidInputError):  # it says of itself that it cannot be used like this
        return _caused(UnavailableError(_words(error)), error)
    kind = next((kind for kind in (CallRefusedError, UnavailableError) if isinstance(error, kind)), CallLostError)
    try:
        seconds = error.retry_after if isinstance(error, CallError) else None
    except (TypeError, ValueError):
        seconds = None
    return _caused(kind(_words(error), seconds if seconds is not None and math.isfinite(seconds) else None), error)


def _caused(made: CallError, error: BaseException) -> CallError:
    """As ``raise made from error`` would leave it."""
    made.__cause__ = error
    return made


def sources_of(pool: Pool, share: int = 1) -> dict[str, Source]:
    """Every member of a pool that can be called, by its name; ``share`` is how many buyers it has side by side."""
    made = {one.name: Source(one, len(pool.classes), share) for one in pool.classifiers}
    return made | {one.name: Source(one, 0, share) for one in pool.extractors if not of_texts(one)}
