"""Paid calls for one query at a time, each request within its own deadline."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._money import exact
from occamroute.calls.call_names import idempotency_key
from occamroute.calls.engine import CallEngine, Paid, PaidCall
from occamroute.calls.retries import pause, retries_after
from occamroute.calls.sources import TIMED_RESERVE, Outcome, Source
from occamroute.calls.threads import CLOSED
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
from occamroute.ledger.base import EXACTLY, amount_of, rounded_up

__all__ = ["Call", "Ended", "HoldingAccount", "Request", "RequestCalls", "summed"]

Word: TypeAlias = Literal["answered", "useless", "refused", "lost", "unavailable", "abandoned"]

LOG = logging.getLogger("occamroute")
# Of the time that is left, a call may wait this share for a slot, and for the ledger, and take this share in all: the
# rest is for other sources.
FOR_A_SLOT, FOR_THE_LEDGER, FOR_A_CALL = 0.5, 0.5, 0.75
# The same source is tried again only in this share of a request's time.
FOR_RETRIES = 0.5
# A ledger gives up on a hold only when its call should have ended long ago.
LEASE_TIMES = 2.0
FIRST = np.zeros(1, np.int64)


@dataclass(frozen=True)
class Call:
    """One call and what it came to.

    ``outcome`` is "answered"; "useless" (a reply, but no answer to this query); "refused" (turned away, nothing was
    charged: asking again may help); "lost" (what was charged is unknown: its worst case counts); "unavailable" (no
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
    """A call that ended: ``probabilities`` (C,) and ``features`` (d,) as far as it gave them, or an error.

    ``began`` is when the breaker let it pass.
    """

    call: Call
    probabilities: FloatArray | None = None
    features: FloatArray | None = None
    error: CallError | None = None
    began: float = -math.inf


class HoldingAccount(Protocol):
    """Where money for calls is held and settled."""

    async def ahold(self, amount: Any, *, key: str, seconds: float, client: str | None, lease_seconds: float) -> Hold:
        """Hold an amount; ``BudgetExceededError`` where it does not fit, ``LedgerError`` where nothing may be spent."""
        ...

    async def settle_eventually(self, hold: Hold, amount: Decimal) -> str | None:
        """Settle a hold, or release it for 0. Returns why that failed for now; it is then retried until it succeeds."""
        ...

    def settle_soon(self, hold: Hold, amount: Decimal) -> None:
        """The same within a moment, without waiting for it."""
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
    """The account of one call of a request.

    ``may_spend`` says, just before money is held, whether that is still wise; ``along`` is held with it for the calls
    that it is of no use without. ``seconds`` is how long the ledger may take. ``retries_left`` says how often the call
    is made again after an error.
    """

    requests: RequestCalls
    request: Request
    may_spend: Callable[[], bool]
    along: Fraction
    seconds: float
    lease_seconds: float
    retries_left: Callable[[CallError], int]
    hold: Hold | None = None
    cost: Decimal = Decimal(0)
    reported: bool = False  # as a failure, since it took too long

    async def hold_for(self, call: PaidCall) -> None:
        if not self.may_spend():
            # What is there is kept for the queries that are still expected.
            raise BudgetExceededError(amount_of(rounded_up(call.most)), 0)
        self.hold = await self.requests.account.ahold(
            call.most + self.along,
            key=self.request.next_key(),
            seconds=self.seconds,
            client=self.request.client,
            lease_seconds=self.lease_seconds,
        )

    async def begin(self, call: PaidCall) -> None:
        """The hold says it all: it counts in full if this process dies before it is settled."""

    async def record(self, call: PaidCall, paid: Paid) -> None:
        """Only the breaker hears of it: the hold counts in full until it is settled."""
        (outcome,) = paid.outcomes
        self.cost = amount_of(rounded_up(paid.charged))
        if not self.reported:
            error = outcome.error
            again = isinstance(error, CallRefusedError) and self.retries_left(error) > 0
            self.requests.engine.report(call, outcome, again=again)

    async def settle(self, call: PaidCall, paid: Paid) -> str | None:
        if self.hold is None:  # nothing was held
            return None
        if not self.requests.wait_for_ledger:
            self.requests.account.settle_soon(self.hold, self.cost)
            return None
        problem = await self.requests.account.settle_eventually(self.hold, self.cost)
        if problem is not None:
            problem = f"the ledger was not told yet, so {self.hold.amount} stays held until it is: {problem}"
            LOG.warning("call of %s under %s: %s", call.source.name, self.hold.key, problem)
        return problem

    async def cancel(self, call: PaidCall) -> None:
        if self.hold is not None:
            await self.requests.account.settle_eventually(self.hold, Decimal(0))


class RequestCalls:
    """Makes the calls of many requests at once; again where that may help.

    ``attempts`` is how often one source is asked in all, and ``expected_cost`` what one costs on average. Holds outlive
    their calls by ``lease_seconds``. Without ``wait_for_ledger`` an answer is given while its settlement is on its way:
    the hold counts in full until it is there.
    """

    def __init__(
        self,
        engine: CallEngine,
        account: HoldingAccount,
        *,
        attempts: int,
        expected_cost: Callable[[str], Any],
        lease_seconds: float,
        wait_for_ledger: bool = True,
    ) -> None:
        self.engine, self.account, self._attempts = engine, account, attempts
        self.wait_for_ledger = wait_for_ledger
        self._expected_cost, self._lease_seconds = expected_cost, lease_seconds
        self._random = random.Random()  # noqa: S311  # jitter

    async def ask(
        self, request: Request, name: str, may_spend: Callable[[], bool], *, after: Iterable[str] = ()
    ) -> Ended | None:
        """What a source answers, asked again where that may help; None: nothing, and the request knows why.

        ``may_spend`` says, just before money is held, whether that is still wise. What is bought is of use only with a
        call of one of those ``after`` it: money for the cheapest of them is held along.
        ``LedgerError`` where the ledger cannot be used: nothing may be spent then.
        """
        source = self.engine.sources[name]
        others = [self.engine.sources[other] for other in after]
        for number in range(self._attempts):

            def retries_left(error: CallError, made: int = number) -> int:
                return min(self._attempts - 1, retries_after(error, source)) - made

            ended = await self._made(request, source, others, may_spend, retries_left)
            if ended is None or ended.error is None:
                return ended
            error = ended.error
            request.note(name, error)
            seconds = pause(number, error.retry_after, self._random)
            if retries_left(error) <= 0 or request.left - seconds < FOR_RETRIES * request.seconds:
                self._gave_up(name, ended, counted=retries_left(error) <= 0)
                return None
            await asyncio.sleep(seconds)
        return None

    def _gave_up(self, name: str, ended: Ended, *, counted: bool) -> None:
        """No other try: a source is left alone as long as it asked for, and to be turned away counts now."""
        error = ended.error
        if error is not None and error.retry_after is not None:
            self.engine.breakers.rest(name, error.retry_after)
        if isinstance(error, CallRefusedError) and not counted:
            self.engine.breakers.failed(name, ended.began)

    async def _made(
        self,
        request: Request,
        source: Source,
        others: Iterable[Source],
        may_spend: Callable[[], bool],
        retries_left: Callable[[CallError], int],
    ) -> Ended | None:
        """One call; None where none was made, or it was given up."""
        self.engine.check_open()
        try:
            slot = await self.engine.limits[source.name].acquire(FOR_A_SLOT * request.left)
        except OverloadedError as error:
            request.note(source.name, error)
            request.overloaded.append(error)
            return None
        try:
            call = self._call(request, source)
            along = self._cheapest(others, request.queries)
        except OccamError as error:
            slot.release(called=False)
            if isinstance(error, InvalidInputError | UnavailableError):
                request.note(source.name, error)
                return None
            raise
        timeout = getattr(source.member, "timeout", None)
        # Some libraries have time-outs of several parts: then the request's own time must do.
        lease = self._lease_seconds + LEASE_TIMES * (timeout if isinstance(timeout, int | float) else 0.0)
        seconds = FOR_THE_LEDGER * request.left
        attempt = _Attempt(self, request, may_spend, along, seconds, lease, retries_left)
        task = self.engine.start(call, slot, attempt)
        return await self._waited_for(request, call, attempt, task, FOR_A_CALL * request.left)

    def _call(self, request: Request, source: Source) -> PaidCall:
        stated = _stated(source, request.queries)
        most = self._usual_most(source) if stated is None else stated
        key = idempotency_key(request.id, source.name, FIRST)  # the same for every attempt
        return PaidCall(source, request.queries, [FIRST], [key], [most], stated is not None, most)

    async def _waited_for(
        self, request: Request, call: PaidCall, attempt: _Attempt, task: asyncio.Task[Paid], seconds: float
    ) -> Ended | None:
        name = call.source.name
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if not done:
                request.note(name, f"no answer within {seconds:.3g} s")
                if call.called is not None:
                    self.engine.breakers.failed(name, call.began)
                    attempt.reported = True
                self._abandon(request, call)
                return None
            paid = task.result()
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
                self._abandon(request, call)
            raise
        ended = replace(_ended(paid.outcomes[0], attempt.cost, paid.problem), began=call.began)
        request.calls.append(ended.call)
        return ended

    def _abandon(self, request: Request, call: PaidCall) -> None:
        """Stop waiting for a call: it is settled when it ends, and not made if it was not yet."""
        call.abandoned = True
        if call.called is not None:
            seconds, most = time.monotonic() - call.called, amount_of(rounded_up(call.most))
            said = "it was not waited for any longer."
            request.calls.append(Call(call.source.name, "abandoned", most, seconds, said))

    def _cheapest(self, sources: Iterable[Source], queries: Any) -> Fraction:
        amounts = []
        for source in sources:
            with suppress(InvalidInputError, UnavailableError):  # one that cannot be asked has no say
                stated = _stated(source, queries)
                amounts.append(self._usual_most(source) if stated is None else stated)
        return min(amounts, default=Fraction(0))

    def _usual_most(self, source: Source) -> Fraction:
        """What is held for a call whose cost only time will tell."""
        return max(TIMED_RESERVE * exact(self._expected_cost(source.name)), self.engine.at_latest_pace(source.name, 1))


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
        probabilities, features = (None if table is None else table[0] for table in tables)
        return Ended(call, probabilities, features)
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
    total = Decimal(0)
    for call in calls:
        total = EXACTLY.add(total, call.cost)
    return Decimal(f"{total.normalize(EXACTLY):f}")
