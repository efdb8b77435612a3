"""Requests that come again under the same key: one answer, paid once, here and wherever the ledger is shared."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from occamroute.calls.ledger_queue import LedgerQueue
from occamroute.errors import InvalidInputError, OccamError, RepeatedKeyError
from occamroute.ledger import Hold
from occamroute.ledger.base import LONGEST_REPLY, FindReply, Release, Reply, Reserve, Settle

__all__ = ["Claims", "Repeats", "Who"]

# Whose request, its key, and what kind of request it is if keys of several kinds are to be kept apart.
Who: TypeAlias = tuple[str | None, str] | tuple[str | None, str, str]

LONGEST_KEY = 200
# Answers that are kept in memory, and for how many seconds.
KEPT, KEPT_SECONDS = 4096, 3600.0
# So often may a key be tried again after attempts that cost nothing: every minute of most of a day, say.
CLAIMS = 1000


class _Kept(NamedTuple):
    about: str
    answer: Future[Any]
    since: float


class Repeats:
    """Answers by key, as long as they are kept; requests under one key at the same time share one; for many threads."""

    def __init__(
        self, *, most: int = KEPT, seconds: float = KEPT_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._lock = threading.Lock()
        self._under_way: dict[Who, _Kept] = {}
        self._kept: OrderedDict[Who, _Kept] = OrderedDict()

    def join(self, who: Who, about: str) -> tuple[Future[Any], bool]:
        """The answer under a key, there or to come; whether it is for the caller to make it (``keep`` or ``drop``).

        ``about`` says what is asked: the same key cannot stand for something else.
        """
        check_key(who[1])
        with self._lock:
            self._forget()
            found = self._under_way.get(who) or self._kept.get(who)
            if found is None:
                self._under_way[who] = _Kept(about, Future(), self._clock())
                return self._under_way[who].answer, True
        if found.about != about:
            raise another_query(who[1])
        return found.answer, False

    def keep(self, who: Who, answer: Any) -> None:
        """The answer is there."""
        with self._lock:
            made = self._under_way.pop(who)
            self._kept[who] = made._replace(since=self._clock())
        made.answer.set_result(answer)

    def drop(self, who: Who, error: BaseException) -> None:
        """There is none; those who wait hear why, and the next one tries again."""
        with self._lock:
            made = self._under_way.pop(who, None)
        if made is not None:
            made.answer.set_exception(error)

    def _forget(self) -> None:
        oldest = self._clock() - self._seconds
        while self._kept and (len(self._kept) > self._most or next(iter(self._kept.values())).since < oldest):
            self._kept.popitem(last=False)


class Claims:
    """A hold of 0 under each key: the request that makes it may buy an answer, others that share the ledger may not.

    The answer is stored with it, for 24 hours, and anybody who comes again is given it. A claim is released only after
    an attempt that cost nothing; then the key may be tried again.
    """

    def __init__(self, queue: LedgerQueue, *, lease_seconds: float) -> None:
        self._queue, self._lease_seconds = queue, lease_seconds
        self._lock = threading.Lock()
        # How many claims of a key are known to be released, which they stay: none of them is asked for again.
        self._released: OrderedDict[str, int] = OrderedDict()

    async def take(self, who: Who, about: str, *, seconds: float, content: str = "") -> Hold | str:
        """Claim a key, with this ``content`` for now; what is stored, where it was claimed before.

        ``RepeatedKeyError`` where there is no answer to be had, ``InvalidInputError`` where the key was used for
        something else than is asked ``about``, ``LedgerError`` after ``seconds``.
        """
        client, key = who[0], who[1]
        digest = hashlib.sha256(json.dumps(who).encode()).hexdigest()[:40]
        with self._lock:
            first = self._released.get(digest, 0)
        for number in range(first, CLAIMS):
            name = f"key/{digest}/{number}"
            wish = Reserve(name, 0, self._lease_seconds, client, Reply(about, content))
            # Where no reply comes the claim may be there: it is left, for it may be another's.
            hold = await self._queue.reserve(wish, seconds=seconds, release_unknown=False)
            if hold.fresh:
                return hold
            if hold.state != "released":
                return await self._stored(hold, key, about)
            self._remember(digest, number + 1)
        raise RepeatedKeyError(key, "released")

    async def _stored(self, hold: Hold, key: str, about: str) -> str:
        found = await self.reply(hold.key)
        if found is not None and found.about != about:
            raise another_query(key)
        if found is None or not found.content:
            raise RepeatedKeyError(key, hold.state)
        return found.content

    async def reply(self, key: str) -> Reply | None:
        """What is stored under a hold's key, if anything is."""
        found: Reply | None = await asyncio.wrap_future(self._queue.submit(FindReply(key)))
        return found

    def _remember(self, digest: str, released: int) -> None:
        with self._lock:
            self._released[digest] = released
            self._released.move_to_end(digest)
            if len(self._released) > KEPT:
                self._released.popitem(last=False)

    async def end(self, hold: Hold, *, reply: Reply | None = None, paid: bool) -> None:
        """Store the answer, or say whether anything was, or may have been, paid in vain.

        Unsaid, the claim ends by itself, as one that was paid. An answer that is too long for a ledger is not stored.
        """
        if reply is not None and len(reply.content) > LONGEST_REPLY:
            reply, paid = None, True
        with suppress(OccamError):
            await self._queue.settle(Settle(hold, 0, reply) if paid or reply is not None else Release(hold))

    def end_soon(self, hold: Hold) -> None:
        """End a claim whose content stays as it is."""
        self._queue.settle_soon(Settle(hold, 0))


def another_query(key: str) -> InvalidInputError:
    """The error for a key that stands for something else."""
    return InvalidInputError(f"the key {key!r} was used for another query: take a new one for each.")


def check_key(key: Any) -> None:
    """Refuses what is no key."""
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
        raise InvalidInputError(f"key must be a text of 1 to {LONGEST_KEY} characters, got {key!r:.60}.")
