"""The engine that makes paid calls for a service: reserve the worst case, call, settle; again where that may help.

Everything here runs on one event loop. Models that compute here run on threads of their own, and the ledger on its
queue's thread, so that the loop never waits for either.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._money import exact
from occamroute.calls.breakers import Breakers
from occamroute.calls.call_names import idempotency_key
from occamroute.calls.lanes import pause
from occamroute.calls.limits import ConcurrencyLimit, Slot
from occamroute.calls.sources import TIMED_RESERVE, Outcome, Source
from occamroute.calls.threads import CLOSED, DaemonThreads
from occamroute.errors import (
    BudgetExceededError,
    CallError,
    CallLostError,
    CallRefusedError,
    InvalidInputError,
    OccamError,
    OverloadedError,
    UnavailableError,
)
from occamroute.ledger import Hold
from occamroute.ledger.base import amount_of, rounded_up

__all__ = ["FIRST", "Account", "Call", "CallEngine", "Ended", "Request", "Word", "summed"]

Word: TypeAlias = Literal["answered", "useless", "refused", "lost", "unavailable", "abandoned"]

LOG = logging.getLogger("occamroute")
# Of the time that is left, a call may wait this share for a slot, and for the ledger, and take this share in all: the
# rest is for other sources.
FOR_A_SLOT, FOR_THE_LEDGER, FOR_A_CALL = 0.5, 0.5, 0.75
# The same source is tried again only in this share of a request's time.
FOR_RETRIES = 0.5
# A call that is paid by the second reserves this many times the cost of the latest one, if that is more than usual.
LATEST_RESERVE = 2
# A ledger gives up on a hold only when its call should have ended long ago.
LEASE_TIMES = 2.0
# Seconds that a call is taken to last before the first one has ended.
REMOTE_CALL, LOCAL_CALL = 1.0, 0.02
FIRST = np.zeros(1, np.int64)


@dataclass(frozen=True)
class Call:
    """One call and what it came to.

    ``outcome`` is "answered"; "useless" (a reply, but no answer to this query); "refused" (turned away, nothing was
    charged: asking again may help); "lost" (nobody knows what was charged: its worst case counts); "unavailable" (no
    call can succeed); or "abandoned" (under way when time was up: its worst case counts until it ends). ``error`` says
    why there was no answer, or why the ledger could not be told what one cost.
    """

    name: str
    outcome: Word
    cost: Decimal
    seconds: float
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Ended:
    """A call that ended: ``probabilities`` (C,) and ``features`` (d,) as far as it gave them, or an error."""

    call: Call
    probabilities: FloatArray | None = None
    features: FloatArray | None = None
    error: CallError | None = None


class Account(Protocol):
    """Where money for calls is held and settled."""

    async def ahold(self, amount: Any, *, key: str, seconds: float, client: str | None, lease_seconds: float) -> Hold:
        """Hold an amount; ``BudgetExceededError`` where it does not fit, ``LedgerError`` where nothing may be spent."""
        ...

    async def settle_eventually(self, hold: Hold, amount: Decimal) -> str | None:
        """Settle a hold, or release it for 0. Returns why that failed for now; it is then retried until it succeeds."""
        ...


@dataclass(eq=False)
class Request:
    """A query on its way: the calls made for it, and why there is no answer yet.

    ``too_expensive`` is what could not be afforded last, ``overloaded`` who had no slot free.
    """

    queries: Any
    client: str | None
    seconds: float
    id: str
    calls: list[Call] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    too_expensive: BudgetExceededError | None = None
    overloaded: list[OverloadedError] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    _attempts: int = 0

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.began + self.seconds - time.monotonic())

    @property
    def paid(self) -> bool:
        """Whether anything was charged, or may have been."""
        return any(call.cost or call.outcome == "abandoned" for call in self.calls)

    def next_key(self) -> str:
        """A key for the next hold."""
        self._attempts += 1
        return f"{self.id}/{self._attempts}"

    def note(self, name: str, reason: object) -> None:
        """Remember why a source gave no answer."""
        words = kept_words(reason) if isinstance(reason, BaseException) else str(reason)
        said = f"{name}: {words.rstrip('.')}"
        if said not in self.reasons:
            self.reasons.append(said)


@dataclass(eq=False)
class _Attempt:
    """One call to be made; ``began`` is the breaker's moment, ``called`` when it was sent.

    ``stated`` is the most that it can cost, as its source says (None: it does not), ``held`` what is held for it.
    ``last`` says that there is no other try if it is turned away; ``abandoned`` that nobody waits for it any longer.
    """

    request: Request
    source: Source
    call_key: str
    may_spend: Callable[[], bool]
    last: bool
    after: tuple[Source, ...]
    began: float = -math.inf
    stated: Fraction | None = None
    held: Decimal = Decimal(0)
    called: float | None = None
    abandoned: bool = False


class CallEngine:
    """Makes the calls of many requests at once: local sources one at a time each, others as many as they allow.

    ``expected_cost`` is what a source costs on average, ``askable`` are all that could be asked. For one event loop.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        account: Account,
        breakers: Breakers,
        *,
        attempts: int,
        threads: int,
        expected_cost: Callable[[str], Any],
        askable: Callable[[], tuple[str, ...]],
        lease_seconds: float,
    ) -> None:
        self.sources, self._account, self._breakers, self._attempts = sources, account, breakers, attempts
        self._expected_cost, self._askable, self._lease_seconds = expected_cost, askable, lease_seconds
        # Only what cannot be awaited needs a thread: each source as many as it may have calls under way.
        needed = sum(one.concurrency or 1 for one in sources.values() if not one.awaited)
        self.threads = DaemonThreads(max(1, min(threads, needed)))
        self._limits = {
            name: ConcurrencyLimit(
                name, one.concurrency or 1, one.per_minute, guess=REMOTE_CALL if one.remote else LOCAL_CALL
            )
            for name, one in sources.items()
        }
        self._random = random.Random()  # noqa: S311  # jitter
        self._warm: set[str] = set()
        self._latest_cost: dict[str, Fraction] = {}
        self._tasks: set[asyncio.Task[Ended]] = set()
        self._closed = False

    async def close(self, seconds: float) -> bool:
        """Refuse new calls and wait up to ``seconds`` for those under way to be settled. Returns whether all were."""
        self._closed = True
        left: set[asyncio.Task[Ended]] = set()
        if self._tasks:
            _, left = await asyncio.wait(set(self._tasks), timeout=seconds)
        for task in left:
            task.cancel()  # the hold then counts in full
        self.threads.close(0.0)
        return not left

    async def ask(
        self, request: Request, name: str, may_spend: Callable[[], bool], *, after: Iterable[str] = ()
    ) -> Ended | None:
        """What a source answers, asked again where that may help; None: nothing, and the request knows why.

        ``may_spend`` says, just before money is held, whether that is still wise. What is bought is of use only with a
        call of one of those ``after`` it: money for the cheapest of them is held along.
        ``LedgerError`` where the ledger cannot be used: nothing may be spent then.
        """
        source, others = self.sources[name], tuple(self.sources[other] for other in after)
        tries = min(self._attempts, source.retries + 1)
        call_key = idempotency_key(request.id, name, FIRST)  # the same for every attempt
        for number in range(1, tries + 1):
            attempt = _Attempt(request, source, call_key, may_spend, number == tries, others)
            ended = await self._made(attempt)
            if ended is None or ended.error is None:
                return ended
            request.note(name, ended.error)
            seconds = pause(number - 1, ended.error.retry_after, self._random)
            hopeless = not isinstance(ended.error, CallRefusedError | CallLostError)
            if attempt.last or hopeless or request.left - seconds < FOR_RETRIES * request.seconds:
                self._gave_up(attempt, ended.error)
                return None
            await asyncio.sleep(seconds)
        return None

    def _check_open(self) -> None:
        if self._closed:
            raise OccamError(CLOSED)

    def _gave_up(self, attempt: _Attempt, error: CallError) -> None:
        """No other try: a source is left alone as long as it asked for, and to be turned away counts now."""
        if error.retry_after is not None:
            self._breakers.rest(attempt.source.name, error.retry_after)
        if isinstance(error, CallRefusedError) and not attempt.last:
            self._breakers.failed(attempt.source.name, attempt.began)

    async def _made(self, attempt: _Attempt) -> Ended | None:
        """One call; None where none was made, or it was given up."""
        self._check_open()
        request, name = attempt.request, attempt.source.name
        try:
            slot = await self._limits[name].acquire(FOR_A_SLOT * request.left)
        except OverloadedError as error:
            request.note(name, error)
            request.overloaded.append(error)
            return None
        try:
            self._check_open()
        except OccamError:
            slot.release(called=False)
            raise
        # In a task of its own, so that a call that has begun is settled even if its client goes away.
        task = asyncio.get_running_loop().create_task(self._paid(attempt, slot, FOR_THE_LEDGER * request.left))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return await self._waited_for(attempt, task, FOR_A_CALL * request.left)

    def _forget(self, task: asyncio.Task[Ended]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, since no caller may be left

    async def _waited_for(self, attempt: _Attempt, task: asyncio.Task[Ended], seconds: float) -> Ended | None:
        request, name = attempt.request, attempt.source.name
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if not done:
                request.note(name, f"no answer within {seconds:.3g} s")
                self._abandon(attempt)
                return None
            ended = task.result()
        except BudgetExceededError as error:
            request.too_expensive = error
            return None
        except (InvalidInputError, UnavailableError) as error:
            request.note(name, error)
            return None
        except asyncio.CancelledError:
            if task.cancelled():
                raise OccamError(CLOSED) from None
            if not task.done():
                self._abandon(attempt, slow=False)
            raise
        request.calls.append(ended.call)
        return ended

    def _abandon(self, attempt: _Attempt, *, slow: bool = True) -> None:
        """Stop waiting for a call: it is settled when it ends, and not made if it was not yet."""
        attempt.abandoned = True
        if attempt.called is None:
            return
        if slow:
            self._breakers.failed(attempt.source.name, attempt.began)
        seconds = time.monotonic() - attempt.called
        said = "it was not waited for any longer."
        attempt.request.calls.append(Call(attempt.source.name, "abandoned", attempt.held, seconds, said))

    async def _paid(self, attempt: _Attempt, slot: Slot, seconds: float) -> Ended:
        """The call, made and settled.

        ``UnavailableError`` where the source rests, ``BudgetExceededError`` where its worst case does not fit,
        ``LedgerError`` where nothing may be spent: in all of them no call was made.
        """
        name = attempt.source.name
        try:
            began = self._breakers.enter(name, self._askable())
            if began is None:
                raise UnavailableError(f"{name!r} failed too often of late, and rests for a while")
            attempt.began = began
            try:
                hold = await self._hold(attempt, seconds)
                if attempt.abandoned:
                    # The ledger took so long that the client has given up: do not buy an answer that nobody wants.
                    await self._account.settle_eventually(hold, Decimal(0))
                    raise UnavailableError(f"{name!r} was not called: the ledger answered too late")
            except BaseException:
                self._breakers.left(name, began)
                raise
            attempt.called = time.monotonic()
            try:
                outcome = await self._outcome(attempt)
            except BaseException:  # the loop ends: what was charged is unknown, and the hold counts in full
                self._breakers.left(name, began)
                raise
        finally:
            slot.release(called=attempt.called is not None)
        self._report(attempt, outcome)
        return await self._settled(attempt, outcome, hold)

    async def _hold(self, attempt: _Attempt, seconds: float) -> Hold:
        request, source = attempt.request, attempt.source
        attempt.stated = _stated(source, request.queries)
        amount = self._usual_most(source) if attempt.stated is None else attempt.stated
        if not attempt.may_spend():
            # What is there is kept for the queries that are still expected.
            raise BudgetExceededError(amount_of(rounded_up(amount)), 0)
        timeout = getattr(source.member, "timeout", None)
        # Some libraries have time-outs of several parts: then the request's own time must do.
        lease = self._lease_seconds + LEASE_TIMES * (timeout if isinstance(timeout, int | float) else 0.0)
        along = self._cheapest(attempt.after, request.queries)
        attempt.held = amount_of(rounded_up(amount))
        return await self._account.ahold(
            amount + along, key=request.next_key(), seconds=seconds, client=request.client, lease_seconds=lease
        )

    def _cheapest(self, sources: Iterable[Source], queries: Any) -> Fraction:
        amounts = []
        for source in sources:
            with suppress(InvalidInputError, UnavailableError):  # one that cannot be asked has no say
                stated = _stated(source, queries)
                amounts.append(self._usual_most(source) if stated is None else stated)
        return min(amounts, default=Fraction(0))

    def _usual_most(self, source: Source) -> Fraction:
        """What is held for a call whose cost only time will tell."""
        usual = TIMED_RESERVE * exact(self._expected_cost(source.name))
        return max(usual, LATEST_RESERVE * self._latest_cost.get(source.name, Fraction(0)))

    async def _outcome(self, attempt: _Attempt) -> Outcome:
        source, queries = attempt.source, attempt.request.queries
        if source.timed and not source.remote and source.name not in self._warm:
            # Loading and compiling are no part of what a call takes: one that is not counted goes before.
            self._warm.add(source.name)
            await source.acall(queries, FIRST, threads=self.threads)
        outcome = await source.acall(queries, FIRST, attempt.call_key, threads=self.threads)
        if source.timed and outcome.charged is not None:
            self._latest_cost[source.name] = outcome.charged
        return outcome

    def _report(self, attempt: _Attempt, outcome: Outcome) -> None:
        """What the call says of its source; one that was given up has been reported as failed."""
        name, began = attempt.source.name, attempt.began
        most, charged = attempt.stated, outcome.charged
        if most is not None and charged is not None and charged > most:
            said = f"{name!r} charged {float(charged):.6g} for a call that costs {float(most):.6g} at most"
            self._breakers.suspend(name, said)
            return
        turned_away = isinstance(outcome.error, CallRefusedError) and not attempt.last
        # A query that was declined free of charge says nothing of others; a paid reply without an answer does.
        declined = outcome.error is None and outcome.unanswered.size and not outcome.charged
        if attempt.abandoned:
            return
        if outcome.answered.size:
            self._breakers.succeeded(name, began)
        elif turned_away or declined:
            self._breakers.left(name, began)
        else:
            self._breakers.failed(name, began)

    async def _settled(self, attempt: _Attempt, outcome: Outcome, hold: Hold) -> Ended:
        # An answer that came is not lost for the ledger's sake.
        cost = attempt.held if outcome.charged is None else amount_of(rounded_up(outcome.charged))
        problem = await self._account.settle_eventually(hold, cost)
        if problem is not None:
            problem = f"the ledger was not told yet, so {hold.amount} stays held until it is: {problem}"
            LOG.warning("call of %s under %s: %s", outcome.source, hold.key, problem)
        return _ended(outcome, cost, problem)


def _stated(source: Source, queries: Any) -> Fraction | None:
    most = source.most(queries)
    return None if most is None else most[0]


def _ended(outcome: Outcome, cost: Decimal, problem: str | None) -> Ended:
    error = outcome.error
    if error is None and outcome.failures:
        error = CallError(next(iter(outcome.failures.values())))
    if error is None:
        tables = (outcome.probabilities, outcome.features)
        call = Call(outcome.source, "answered", cost, outcome.seconds, problem)
        return Ended(call, *(None if table is None else table[0] for table in tables))
    said = kept_words(error) if problem is None else f"{kept_words(error)} Moreover, {problem}"
    return Ended(Call(outcome.source, _word(error), cost, outcome.seconds, said), error=error)


def kept_words(error: BaseException) -> str:
    """What is kept of an error: of one that is not ours the kind alone, as its words may hold a secret."""
    cause = error.__cause__ or error
    return str(error) if isinstance(cause, OccamError) else f"It raised {type(cause).__name__}."


def _word(error: CallError) -> Word:
    words: tuple[tuple[type[CallError], Word], ...] = (
        (CallRefusedError, "refused"),
        (CallLostError, "lost"),
        (UnavailableError, "unavailable"),
    )
    return next((word for kind, word in words if isinstance(error, kind)), "useless")


def summed(calls: Iterable[Call]) -> Decimal:
    """What calls cost together, to the last digit whatever the caller's decimal context."""
    return amount_of(sum(rounded_up(call.cost) for call in calls))
