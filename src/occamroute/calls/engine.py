"""The engine that makes every paid call, for batches and services: reserve, call, record, settle.

It runs on one event loop. Models that compute here and the ledger have threads of their own, so that the loop never
waits for either.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from occamroute._arrays import IntArray
from occamroute.calls.breakers import Breakers
from occamroute.calls.limits import ConcurrencyLimit, Slot
from occamroute.calls.sources import Outcome, Source
from occamroute.calls.threads import CLOSED, DaemonThreads
from occamroute.errors import OccamError, UnavailableError

__all__ = ["Account", "CallEngine", "Paid", "PaidCall"]

# Assumed duration of a call in seconds until the first one has ended.
REMOTE_CALL, LOCAL_CALL = 1.0, 0.02
# A call that is paid by the second reserves at least this many times what it would cost at the latest pace.
LATEST_RESERVE = 2.0
# Queries in the call that is made, and not counted, before the first one that is paid by the second.
WARM_UP = 16


@dataclass(eq=False)
class PaidCall:
    """One call: the upstream requests that are made one after the other under one hold.

    ``batches`` are the queries of each request by their row numbers, ``keys`` their idempotency keys, and ``worst`` the
    most that each is taken to cost; ``stated`` says that the source itself states it. ``most`` is what is held.
    ``abandoned`` says that no caller waits for it any longer: it is not made if it has not begun.
    """

    source: Source
    queries: Any
    batches: Sequence[IntArray]
    keys: Sequence[str]
    worst: Sequence[Fraction]
    stated: bool
    most: Fraction
    began: float = -math.inf  # when the breaker let it pass
    called: float | None = None  # when the first request was sent
    abandoned: bool = False


@dataclass(eq=False)
class Paid:
    """What a call came to: the outcome of each request that was made, all of known amounts, and their sum.

    ``problem`` says why the ledger could not be told what was charged, if it could not.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    charged: Fraction = Fraction(0)
    problem: str | None = None


SomeCall = TypeVar("SomeCall", bound=PaidCall)
OneCall = TypeVar("OneCall", bound=PaidCall, contravariant=True)


class Account(Protocol[OneCall]):
    """What a call is paid from, and where it is written down."""

    async def hold_for(self, call: OneCall) -> None:
        """Hold what the call can cost at most.

        ``BudgetExceededError`` where it does not fit, ``LedgerError`` where nothing may be spent.
        """
        ...

    async def begin(self, call: OneCall) -> None:
        """Write down that the call is about to be made."""
        ...

    async def record(self, call: OneCall, paid: Paid) -> None:
        """Write down what the call came to, so that whatever happens next loses nothing that was paid for."""
        ...

    async def settle(self, call: OneCall, paid: Paid) -> str | None:
        """Tell the ledger what was charged. Returns why that failed for now: it is tried again later."""
        ...

    async def cancel(self, call: OneCall) -> None:
        """Give back what is held for a call that was not made."""
        ...


class CallEngine:
    """Makes calls; for one event loop.

    ``threads`` bounds the threads for remote sources that cannot be awaited, ``local_threads`` those for models that
    compute here; ``local_slots`` is how many calls each of these may have under way. ``alternatives`` are the sources
    among which a caller can choose: a source that rests is asked all the same if there is no other.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        breakers: Breakers,
        *,
        threads: int | None = None,
        local_threads: int | None = None,
        local_slots: int = 1,
        alternatives: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self.sources, self.breakers, self._alternatives = sources, breakers, alternatives
        local = [one for one in sources.values() if not one.remote]
        blocking = sum(one.concurrency for one in sources.values() if one.remote and not one.awaited)
        self._local = DaemonThreads(max(1, len(local) if local_threads is None else local_threads))
        self._remote = DaemonThreads(max(1, blocking if threads is None else min(threads, blocking)))
        self.limits = {
            name: ConcurrencyLimit(
                name,
                one.concurrency or (1 if one.timed else local_slots),
                one.per_minute,
                guess=REMOTE_CALL if one.remote else LOCAL_CALL,
            )
            for name, one in sources.items()
        }
        self._warm: set[str] = set()
        self._seconds_a_query: dict[str, float] = {}
        self._tasks: set[asyncio.Task[Paid]] = set()
        self._closed = False

    def start(self, call: SomeCall, slot: Slot, account: Account[SomeCall]) -> asyncio.Task[Paid]:
        """Make a call in a task of its own, so that one that has begun is settled even if nobody waits for it.

        The task raises ``UnavailableError`` where the source rests, and whatever ``account`` raises; in all of these
        cases but an error of ``record`` no call was made.
        """
        try:
            self.check_open()
        except OccamError:
            slot.release(called=False)
            raise
        task = asyncio.get_running_loop().create_task(self._make(call, slot, account))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def check_open(self) -> None:
        """Raise if no calls are made any more."""
        if self._closed:
            raise OccamError(CLOSED)

    async def close(self, seconds: float) -> bool:
        """Refuse new calls and wait up to ``seconds`` for those under way to be settled. Returns whether all were."""
        self._closed = True
        left: set[asyncio.Task[Paid]] = set()
        if self._tasks:
            _, left = await asyncio.wait(set(self._tasks), timeout=seconds)
        for task in left:
            task.cancel()  # the hold then counts in full
        self.close_threads(0.0)
        return not left

    def close_threads(self, seconds: float) -> None:
        """End the threads; for an engine that was never used on a loop, or whose calls have ended."""
        self._closed = True
        for threads in (self._local, self._remote):
            threads.close(seconds)

    def at_latest_pace(self, name: str, queries: int) -> Fraction:
        """The least to reserve for a call of a source that is paid by the second; 0 for others."""
        source, pace = self.sources[name], self._seconds_a_query.get(name)
        if not source.timed or pace is None:
            return Fraction(0)
        amount: Fraction = source.member.cost.of(LATEST_RESERVE * pace * queries)
        return amount

    def seconds_a_query(self, name: str) -> float | None:
        """How long a source took for each query of late; None before its first answer."""
        return self._seconds_a_query.get(name)

    def report(self, call: PaidCall, outcome: Outcome, *, again: bool) -> None:
        """Tell the breaker what a request says of its source; ``again`` says that it will be made again."""
        name, began = call.source.name, call.began
        if name in self.breakers.suspended:
            return
        # A query that was declined free of charge says nothing of others; a paid reply without an answer does.
        declined = outcome.error is None and outcome.unanswered.size and not outcome.charged
        if outcome.answered.size:
            self.breakers.succeeded(name, began)
        elif again or declined:
            self.breakers.left(name, began)
        else:
            self.breakers.failed(name, began)

    def _forget(self, task: asyncio.Task[Paid]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, since no caller may be left

    async def _make(self, call: SomeCall, slot: Slot, account: Account[SomeCall]) -> Paid:
        name = call.source.name
        try:
            began = self.breakers.enter(name, self._alternatives())
            if began is None:
                raise UnavailableError(f"{name!r} failed too often of late, and rests for a while")
            call.began = began
            try:
                await self._prepared(call, account)
                call.called = time.monotonic()
                paid = await self._outcomes(call)
            except BaseException:  # also when the loop ends: what was charged is unknown, and the hold counts in full
                self.breakers.left(name, began)
                raise
        finally:
            slot.release(called=call.called is not None)
        self._check_bill(call, paid)
        await account.record(call, paid)
        paid.problem = await account.settle(call, paid)
        return paid

    async def _prepared(self, call: SomeCall, account: Account[SomeCall]) -> None:
        """Money is held and the call is written down."""
        await account.hold_for(call)
        try:
            self._check_wanted(call)
            await account.begin(call)
            self._check_wanted(call)
        except BaseException:
            await account.cancel(call)
            raise

    def _check_wanted(self, call: PaidCall) -> None:
        if call.abandoned:  # reserving took so long that the caller has given up
            raise UnavailableError(f"{call.source.name!r} was not called: the ledger answered too late")

    async def _outcomes(self, call: PaidCall) -> Paid:
        source = call.source
        threads = self._remote if source.remote else self._local
        if source.timed and not source.remote and source.name not in self._warm:
            # Loading and compiling are no part of what a call takes: one that is not counted goes before. Not where
            # somebody else bills the seconds: every call is then held and settled.
            self._warm.add(source.name)
            await source.acall(call.queries, call.batches[0][:WARM_UP], threads=threads)
        paid = Paid()
        for outcome, worst in zip(await self._requested(call, threads), call.worst, strict=False):
            if outcome.charged is None:  # what was charged is unknown: the worst case counts
                outcome = replace(outcome, charged=min(worst, call.most))
            else:
                self._learn(outcome)
            paid.outcomes.append(outcome)
            paid.charged += outcome.charged or 0
        return paid

    async def _requested(self, call: PaidCall, threads: DaemonThreads) -> list[Outcome]:
        """What the requests came to. Those made on a thread are all made there: to change threads takes time."""
        source, requests = call.source, list(zip(call.batches, call.keys, strict=True))
        if not source.awaited:

            def made() -> list[Outcome]:
                return list(_until_unavailable(source.call(call.queries, *request) for request in requests))

            return await threads.run(made)
        outcomes = []
        for rows, key in requests:
            outcomes.append(await source.acall(call.queries, rows, key, threads=threads))
            if isinstance(outcomes[-1].error, UnavailableError):
                break
        return outcomes

    def _learn(self, outcome: Outcome) -> None:
        # Seconds are paid for whatever came of them.
        if outcome.error is None or self.sources[outcome.source].timed:
            latest = outcome.seconds / max(1, outcome.rows.size)
            before = self._seconds_a_query.get(outcome.source, latest)
            self._seconds_a_query[outcome.source] = 0.5 * (before + latest)

    def _check_bill(self, call: PaidCall, paid: Paid) -> None:
        """Suspend a source that charges more than it says that a call can cost."""
        if not call.stated:
            return
        for outcome, most in zip(paid.outcomes, call.worst, strict=False):
            if outcome.charged is not None and outcome.charged > most:
                charged = f"charged {float(outcome.charged):.6g} for a call that costs {float(most):.6g} at most"
                self.breakers.suspend(outcome.source, f"{outcome.source!r} {charged}")


def _until_unavailable(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Outcomes up to one that says that the other requests would fail too, at a cost."""
    for outcome in outcomes:
        yield outcome
        if isinstance(outcome.error, UnavailableError):
            return
