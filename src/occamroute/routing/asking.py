"""Asker: asks the classifiers of a pool for one query, again where that may help, on threads and within a time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from occamroute.errors import (
    BudgetExceededError,
    CallError,
    CallLostError,
    CallRefusedError,
    InvalidInputError,
    OccamError,
    UnavailableError,
)
from occamroute.purchasing.call_names import idempotency_key
from occamroute.purchasing.lanes import pause
from occamroute.purchasing.sources import Source
from occamroute.routing.breakers import Breakers
from occamroute.routing.crews import Crew, Places
from occamroute.routing.decisions import decision_id
from occamroute.routing.errands import FIRST, Call, Desk, Ended, Errand, kept_words

__all__ = ["Asker", "Request"]

# Of the time that is left, one may wait so long for a place, and so long for a call: the rest is for others.
FOR_A_PLACE, FOR_A_CALL = 0.5, 0.75
# The same classifier is tried again only in this share of a request's time.
FOR_RETRIES = 0.5


@dataclass(eq=False)
class Request:
    """A query on its way: the calls made for it, and why there is no answer yet.

    ``broke`` is what could not be afforded last.
    """

    queries: Any
    client: str | None
    seconds: float
    calls: list[Call] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    broke: BudgetExceededError | None = None
    id: str = field(default_factory=decision_id)
    began: float = field(default_factory=time.monotonic)
    _errands: int = 0

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
        self._errands += 1
        return f"{self.id}/{self._errands}"

    def abandon(self, errand: Errand, seconds: float) -> None:
        """Stop waiting for a call under way, which is settled when it ends."""
        said = "it was not waited for any longer."
        self.calls.append(Call(errand.source.name, "abandoned", errand.held, seconds, said))

    def note(self, name: str, reason: object) -> None:
        """Remember why a classifier gave no answer."""
        words = kept_words(reason) if isinstance(reason, BaseException) else str(reason)
        said = f"{name}: {words.rstrip('.')}"
        if said not in self.reasons:
            self.reasons.append(said)


class Asker:
    """Makes the calls of many requests at once: local classifiers one at a time each, others as many as they allow."""

    def __init__(
        self, sources: Mapping[str, Source], desk: Desk, breakers: Breakers, *, workers: int, attempts: int
    ) -> None:
        self.sources, self._desk, self._breakers, self._attempts = sources, desk, breakers, attempts
        self._crew = Crew(workers)
        self._places = {name: Places(one.concurrency or 1, one.per_minute) for name, one in sources.items()}
        self._random = random.Random()  # noqa: S311  # jitter

    def close(self, seconds: float) -> bool:
        """Wait so long for calls under way; whether all of them ended."""
        return self._crew.close(seconds)

    async def done(self, work: Callable[[], Any], seconds: float) -> Any:
        """What comes of something that may wait for the ledger, and so is done on another thread."""
        try:
            return await heard(self._crew.submit(work), seconds)
        except TimeoutError:
            raise UnavailableError(f"nothing could be done within {seconds:.3g} s") from None

    async def ask(
        self, request: Request, name: str, may_spend: Callable[[], bool], *, after: Iterable[str] = ()
    ) -> Ended | None:
        """What a classifier answers, asked again where that may help; None: nothing, and the request knows why.

        ``may_spend`` says, just before money is held, whether that is still wise; a call of one of those ``after`` it
        must be affordable, too.
        ``LedgerError`` where the ledger cannot be used: nothing may be spent then.
        """
        source, others = self.sources[name], tuple(self.sources[other] for other in after)
        tries = min(self._attempts, source.retries + 1)
        call_key = idempotency_key(request.id, name, FIRST)
        for number in range(1, tries + 1):
            key = request.next_key()
            errand = Errand(source, request.queries, request.client, key, call_key, may_spend, number == tries, others)
            ended = await self._made(request, errand)
            if ended is None or ended.error is None:
                return ended
            request.note(name, ended.error)
            seconds = pause(number - 1, ended.error.retry_after, self._random)
            hopeless = not isinstance(ended.error, CallRefusedError | CallLostError)
            if errand.last or hopeless or request.left - seconds < FOR_RETRIES * request.seconds:
                self._gave_up(errand, ended.error)
                return None
            await asyncio.sleep(seconds)
        return None

    def _gave_up(self, errand: Errand, error: CallError) -> None:
        """No other try: a classifier is left alone as long as it asked for, and to be turned away counts now."""
        if error.retry_after is not None:
            self._breakers.rest(errand.source.name, error.retry_after)
        if isinstance(error, CallRefusedError) and not errand.last:
            self._breakers.failed(errand.source.name, errand.began)

    async def _made(self, request: Request, errand: Errand) -> Ended | None:
        """One call; None where none was made, or it was given up."""
        name = errand.source.name
        places = self._places[name]
        seconds = FOR_A_PLACE * request.left
        if not await places.take(seconds):
            self._breakers.failed(name, errand.began)
            request.note(name, f"no place was free within {seconds:.3g} s")
            return None
        try:
            future = self._crew.submit(lambda: self._desk.call(errand))
        except BaseException:
            places.give()
            raise
        future.add_done_callback(lambda _: places.give())
        return await self._waited_for(request, errand, future)

    async def _waited_for(self, request: Request, errand: Errand, future: Future[Any]) -> Ended | None:
        name, seconds = errand.source.name, FOR_A_CALL * request.left
        try:
            ended: Ended = await heard(future, seconds)
        except BudgetExceededError as error:
            request.broke = error
            return None
        except (InvalidInputError, UnavailableError) as error:
            request.note(name, error)
            return None
        except TimeoutError:
            request.note(name, f"no answer within {seconds:.3g} s")
            if future.cancelled():
                return None
            errand.abandoned = True
            self._breakers.failed(name, errand.began)
            request.abandon(errand, seconds)
            return None
        except asyncio.CancelledError:
            if not future.cancelled():
                request.abandon(errand, seconds)
            raise
        request.calls.append(ended.call)
        return ended


async def heard(future: Future[Any], seconds: float) -> Any:
    """What a thread makes of something, or ``TimeoutError``; what has begun goes on even if nobody waits."""
    waiting = asyncio.wrap_future(future)
    try:
        done, _ = await asyncio.wait({waiting}, timeout=seconds)
    except BaseException:
        _stop_waiting(future, waiting)
        raise
    if not done:
        _stop_waiting(future, waiting)
        raise TimeoutError
    if waiting.cancelled():
        raise OccamError("nothing more can be asked: this is closed.")
    return waiting.result()


def _stop_waiting(future: Future[Any], waiting: asyncio.Future[Any]) -> None:
    future.cancel()  # has no effect on what has begun
    if not waiting.cancel() and not waiting.cancelled():
        waiting.exception()  # it ended just now, and nobody will ask how
