"""Lane: the calls of one source that wait, are under way, or are to be made again later."""

from __future__ import annotations

import heapq
import queue
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import IntArray
from occamroute.calls.sources import Outcome, Source
from occamroute.errors import CallError, CallRefusedError

__all__ = ["FIRST_QUERIES", "Batch", "Lane", "Workers"]

# Work that computes here is written down a few times a second: no oftener, to cost nothing, and no more rarely, so
# that little is lost when the process dies.
SECONDS_A_CALL = 0.3
MOST_BATCHES = 16
# Into so many parts goes a batch in which some query spoils the call.
PARTS = 8
# So many calls that failed for good, with none that succeeded in between: the source is down. One that has never
# answered gets fewer, and fewer tries each: to find out costs money.
FAILURES_IN_A_ROW = 5
FAILURES_AT_FIRST = 2
TRIES_AT_FIRST = 2
LONGEST_PAUSE = 60.0
# Queries in the first calls of a source that has not answered yet, and how many paid ones without an answer stop it.
FIRST_QUERIES = 16
# So many times as often is a call tried again that a source which works turned away free of charge.
WHEN_TURNED_AWAY = 3


@dataclass(frozen=True, eq=False)
class Batch:
    """Queries for one call, and how often that was tried."""

    rows: IntArray
    tries: int = 0


@dataclass
class Lane:
    """The calls of one source."""

    source: Source
    proved: bool = False
    most: int | None = None  # queries in the next call, where calls are to grow from a small beginning
    seconds_a_query: float | None = None
    waiting: deque[Batch] = field(default_factory=deque)
    later: list[tuple[float, int, Batch]] = field(default_factory=list)
    under_way: int = 0
    dead: str | None = None
    paused_until: float = 0.0
    failed_in_a_row: int = 0
    unusable: int = 0  # queries that were paid for, before the first answer, and got none
    _numbers: int = 0

    def add(self, rows: IntArray) -> None:
        """Let queries wait, in batches."""
        size = self.source.batch_size
        self.waiting.extend(Batch(rows[start : start + size]) for start in range(0, rows.size, size))

    def again(self, batch: Batch, due: float) -> None:
        """Let a batch wait until a moment in time."""
        self._numbers += 1
        heapq.heappush(self.later, (due, self._numbers, Batch(batch.rows, batch.tries + 1)))

    def wake(self, now: float) -> None:
        """Let batches whose time has come wait for a free place."""
        while self.later and self.later[0][0] <= now:
            batch = heapq.heappop(self.later)[2]
            self.waiting.append(batch) if self.proved else self.waiting.appendleft(batch)

    def ready(self, now: float) -> bool:
        """Whether a call may begin now; until a source has answered, it is asked one thing at a time."""
        if not self.proved and self.later:
            return False
        places = 1
        if self.proved and not self.source.timed:
            # Of what computes here a second call waits, so that its worker need not idle while one is written down.
            places = self.source.concurrency or 2
        elif self.proved:
            places = max(1, self.source.concurrency)
        return self.dead is None and bool(self.waiting) and self.under_way < places and now >= self.paused_until

    def began(self, now: float) -> None:
        """A call begins: mind the rate that the source allows."""
        self.under_way += 1
        if self.source.per_minute:
            self.paused_until = max(self.paused_until, now) + 60.0 / self.source.per_minute

    def next_call(self) -> list[Batch]:
        """The batches of the next call: one, or some that take a moment together where the source computes here."""
        first, size = self.waiting[0], self.waiting[0].rows.size
        limit = min(self.most or size, size if self.proved else FIRST_QUERIES)
        if size > limit:
            self.waiting[0] = Batch(first.rows[limit:], first.tries)
            return [Batch(first.rows[:limit], first.tries)]
        most = 1
        if not self.source.remote and self.seconds_a_query is not None:
            seconds = max(self.seconds_a_query * self.source.batch_size, 1e-6)
            most = max(1, min(int(SECONDS_A_CALL / seconds), MOST_BATCHES))
        return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]

    def tries_allowed(self, error: CallError) -> int:
        """How often to try again after such an error."""
        retries = self.source.retries
        if isinstance(error, CallRefusedError):
            return retries * (WHEN_TURNED_AWAY if self.proved else 1)
        return retries if self.proved else min(retries, TRIES_AT_FIRST)

    def failed(self, reason: str) -> None:
        """A call failed for good; after several in a row the source is down, but for one that computes and once did."""
        self.failed_in_a_row += 1
        allowed = FAILURES_IN_A_ROW if self.proved else FAILURES_AT_FIRST
        if self.failed_in_a_row >= allowed and (self.source.remote or not self.proved):
            self.stop(reason)

    def count_unusable(self, queries: int, reason: str) -> None:
        """Count queries that were paid for in vain; enough of them before the first answer stop the source."""
        self.unusable += queries
        if not self.proved and self.unusable >= FIRST_QUERIES:
            self.stop(reason)

    def look_for_the_culprit(self, batch: Batch) -> None:
        """Have a batch that failed called in parts, since one query may spoil the others' call.

        Of a source that has never answered two single queries are asked first: it may be broken altogether.
        """
        if self.proved:
            parts = np.array_split(batch.rows, min(PARTS, batch.rows.size))
        else:
            parts = [batch.rows[:1], batch.rows[1:2], batch.rows[2:]]
        again = [Batch(part, self.source.retries) for part in parts if part.size]
        self.waiting.extendleft(reversed(again))

    def stop(self, reason: str) -> None:
        """Make no more calls of this source."""
        self.dead = reason

    def unbought(self) -> IntArray:
        """The queries that still wait."""
        batches = [*self.waiting, *(batch for _, _, batch in self.later)]
        self.waiting.clear()
        self.later.clear()
        return np.concatenate([batch.rows for batch in batches]) if batches else np.empty(0, np.int64)

    def most_seen(self, queries: int) -> Fraction:
        """Twice what so many queries would cost at the pace seen so far, for a source that is paid by the second."""
        if not self.source.timed or self.seconds_a_query is None:
            return Fraction(0)
        seconds: Fraction = self.source.member.cost.of(2.0 * self.seconds_a_query * queries)
        return seconds

    def learn(self, outcome: Outcome) -> None:
        """Remember how fast it is, and whether it works: a paid reply without any answer does not show that."""
        if outcome.answered.size:
            self.proved, self.failed_in_a_row = True, 0
        elif outcome.charged:
            self.count_unusable(outcome.rows.size, next(iter(outcome.failures.values())))
        if self.most is not None:
            self.most = 2 * self.most if self.most < self.source.batch_size else None
        latest = outcome.seconds / max(1, outcome.rows.size)
        self.seconds_a_query = latest if self.seconds_a_query is None else 0.5 * (self.seconds_a_query + latest)


def pause(tries: int, asked: float | None, draw: random.Random) -> float:
    """Seconds to wait before the next try: doubling, with jitter, and no less than the other side asked for."""
    own = min(LONGEST_PAUSE, 0.25 * 2.0**tries) * draw.uniform(0.5, 1.0)
    return own if asked is None else min(LONGEST_PAUSE, max(0.0, asked) + own * 0.1)


class Workers:
    """Threads that make calls: one for all that computes here, and as many as it allows for each remote source.

    They are daemons: a call that never returns does not keep the process from ending.
    """

    def __init__(self) -> None:
        self.results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tasks: dict[str, queue.SimpleQueue[Any]] = {}
        self._threads: dict[str, int] = {}

    def submit(self, lane: str, most: int, task: Callable[[], Any]) -> None:
        """Have a task done; its result goes to ``results``."""
        tasks = self._tasks.setdefault(lane, queue.SimpleQueue())
        tasks.put(task)
        if self._threads.get(lane, 0) < most:
            self._threads[lane] = self._threads.get(lane, 0) + 1
            threading.Thread(target=self._work, args=(tasks,), name=f"occamroute-{lane}", daemon=True).start()

    def _work(self, tasks: queue.SimpleQueue[Any]) -> None:
        while (task := tasks.get()) is not None:
            self.results.put(task())

    def close(self) -> None:
        """Let the threads end when they have nothing more to do."""
        for lane, tasks in self._tasks.items():
            for _ in range(self._threads[lane]):
                tasks.put(None)
