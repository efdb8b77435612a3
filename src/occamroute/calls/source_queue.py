"""The queries that a batch wants a source to answer: waiting, under way, or to be asked again later."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from occamroute._arrays import IntArray
from occamroute.calls.sources import Outcome, Source

__all__ = ["FIRST_QUERIES", "Batch", "SourceQueue"]

# Work that computes here is written down a few times a second: no oftener, to cost nothing, and no more rarely, so
# that little is lost when the process dies.
SECONDS_A_CALL = 0.3
MOST_BATCHES = 16
# A batch in which some query spoils the request is divided into this many parts.
PARTS = 8
# Queries in the first calls of a source that has not answered yet, and how many paid ones without an answer stop it.
FIRST_QUERIES = 16


@dataclass(frozen=True, eq=False)
class Batch:
    """The queries of one request, and how often it was tried."""

    rows: IntArray
    tries: int = 0


@dataclass
class SourceQueue:
    """The calls of one source.

    ``most`` bounds the queries of the next call where calls grow from a small beginning, ``affordable`` where no money
    was there for more; ``short_of_money`` says that none was there for a single one. ``dead`` says why it is asked
    nothing more.
    """

    source: Source
    proved: bool = False
    most: int | None = None
    waiting: deque[Batch] = field(default_factory=deque)
    later: list[tuple[float, int, Batch]] = field(default_factory=list)
    under_way: int = 0
    dead: str | None = None
    affordable: int | None = None
    short_of_money: bool = False
    unusable: int = 0  # queries that were paid for, before the first answer, and got none
    _numbers: int = 0

    @property
    def open(self) -> bool:
        """Whether calls remain to be made."""
        return self.dead is None and bool(self.waiting or self.later)

    def add(self, rows: IntArray) -> None:
        """Let queries wait, in batches."""
        size = self.source.batch_size
        self.waiting.extend(Batch(rows[start : start + size]) for start in range(0, rows.size, size))

    def put_back(self, batches: list[Batch]) -> None:
        """Let batches wait again whose call was not made, before all others."""
        self.waiting.extendleft(reversed(batches))

    def again(self, batch: Batch, due: float) -> None:
        """Let a batch wait until a moment in time."""
        self._numbers += 1
        heapq.heappush(self.later, (due, self._numbers, Batch(batch.rows, batch.tries + 1)))

    def wake(self, now: float) -> None:
        """Let batches whose time has come wait for a slot."""
        while self.later and self.later[0][0] <= now:
            batch = heapq.heappop(self.later)[2]
            self.waiting.append(batch) if self.proved else self.waiting.appendleft(batch)

    @property
    def ready(self) -> bool:
        """Whether a call may begin; until a source has answered, it is asked one thing at a time."""
        if self.dead is not None or self.short_of_money or not self.waiting:
            return False
        return self.proved or not (self.later or self.under_way)

    def next_call(self, seconds_a_query: float | None) -> list[Batch]:
        """The batches of the next call: one, or some that take a moment together where the source computes here."""
        first, size = self.waiting[0], self.waiting[0].rows.size
        limit = min(self.most or size, self.affordable or size, size if self.proved else FIRST_QUERIES)
        if size > limit:
            self.waiting[0] = Batch(first.rows[limit:], first.tries)
            return [Batch(first.rows[:limit], first.tries)]
        most = 1
        if not self.source.remote and seconds_a_query is not None and self.affordable is None:
            seconds = max(seconds_a_query * self.source.batch_size, 1e-6)
            most = max(1, min(int(SECONDS_A_CALL / seconds), MOST_BATCHES))
        return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]

    def smaller(self, batches: list[Batch]) -> list[Batch] | None:
        """Half of a call that does not fit the budget, the rest waits; None if it was for a single query."""
        if len(batches) > 1:
            half = len(batches) // 2
            self.put_back(batches[half:])
            return batches[:half]
        batch = batches[0]
        if batch.rows.size == 1:
            self.put_back(batches)
            return None
        half = batch.rows.size // 2
        self.put_back([Batch(batch.rows[half:], batch.tries)])
        return [Batch(batch.rows[:half], batch.tries)]

    def count_unusable(self, queries: int, reason: str) -> None:
        """Count queries that were paid for in vain; enough of them before the first answer stop the source."""
        self.unusable += queries
        if not self.proved and self.unusable >= FIRST_QUERIES:
            self.stop(reason)

    def divide(self, batch: Batch) -> None:
        """Have a batch that failed called in parts, since one query may spoil the others' request.

        Of a source that has never answered two single queries are asked first: it may be broken altogether.
        """
        if self.proved:
            parts = np.array_split(batch.rows, min(PARTS, batch.rows.size))
        else:
            parts = [batch.rows[:1], batch.rows[1:2], batch.rows[2:]]
        self.put_back([Batch(part, self.source.retries) for part in parts if part.size])

    def stop(self, reason: str) -> None:
        """Make no more calls of this source."""
        self.dead = self.dead or reason

    def unbought(self) -> IntArray:
        """The queries that still wait."""
        batches = [*self.waiting, *(batch for _, _, batch in self.later)]
        self.waiting.clear()
        self.later.clear()
        return np.concatenate([batch.rows for batch in batches]) if batches else np.empty(0, np.int64)

    def learn(self, outcome: Outcome) -> None:
        """Remember whether the source works, which a paid reply without any answer does not show."""
        if outcome.answered.size:
            self.proved = True
        elif outcome.charged:
            self.count_unusable(outcome.rows.size, next(iter(outcome.failures.values())))
        if self.most is not None:
            self.most = 2 * self.most if self.most < self.source.batch_size else None
