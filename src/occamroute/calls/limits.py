"""How many calls of one source may be under way, and how many may begin in a minute."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from occamroute.errors import OverloadedError

__all__ = ["ConcurrencyLimit", "Slot"]

# The share of the latest call in what a call is expected to last.
LATEST = 0.2
# Waits may turn out longer than expected. With this margin nearly all refusals are made on arrival, not after a wait.
CAUTION = 1.35


@dataclass(eq=False)
class _Waiter:
    turn: asyncio.Future[None]
    deadline: float


@dataclass(eq=False)
class Slot:
    """A place for one call, to be released whatever becomes of it.

    ``rate`` is when the rate allowed it, and when the next one.
    """

    limit: ConcurrencyLimit
    since: float
    rate: tuple[float, float] | None = None

    def release(self, *, called: bool) -> None:
        """Pass the slot on to the call that has waited longest; ``called`` says whether a call was made in it."""
        self.limit._release(self, time.monotonic() - self.since if called else None)


class ConcurrencyLimit:
    """Slots for calls, handed out first come, first served. For one event loop.

    A call that is not expected to get a slot in time is refused at once and told after how many seconds to retry.
    """

    def __init__(self, name: str, slots: int, per_minute: float | None = None, *, guess: float = 1.0) -> None:
        """``guess`` is the assumed duration of a call in seconds until the first one has ended."""
        self._name, self._slots, self._free = name, slots, slots
        self._pause = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0  # when the next call may begin
        self._seconds = guess
        self._known = False
        self._waiting: deque[_Waiter] = deque()
        self._taken: set[Slot] = set()

    def take(self) -> Slot | None:
        """A slot if one is free now; None if not, or if the rate allows no call yet."""
        now = time.monotonic()
        if not self._free or self._waiting or now < self._next:
            return None
        self._free -= 1
        slot = Slot(self, now, (self._next, now + self._pause))
        self._next = now + self._pause
        self._taken.add(slot)
        return slot

    def rest(self, seconds: float) -> None:
        """Let no call begin for this many seconds."""
        self._next = max(self._next, time.monotonic() + seconds)

    @property
    def opens_at(self) -> float:
        """The moment (``time.monotonic``) from which on the rate allows a call."""
        return self._next

    async def acquire(self, seconds: float) -> Slot:
        """Wait up to ``seconds`` for a slot; ``OverloadedError`` if there will be none in time."""
        now = time.monotonic()
        wait = self._expected(len(self._waiting), now)
        if wait * CAUTION > seconds:
            raise self._overloaded(wait)
        if self._free and not self._waiting:
            self._free -= 1
        else:
            await self._turn(now + seconds)
        await self._begin(now + seconds)
        slot = Slot(self, time.monotonic())
        self._taken.add(slot)
        return slot

    def _release(self, slot: Slot, seconds: float | None) -> None:
        if slot not in self._taken:
            return
        self._taken.remove(slot)
        self._give_up_slot()
        if seconds is None:
            if slot.rate is not None and slot.rate[1] == self._next:  # no call began: it does not count for the rate
                self._next = slot.rate[0]
            return
        self._seconds = (1.0 - LATEST) * self._seconds + LATEST * seconds if self._known else seconds
        self._known = True
        # Calls take longer than expected: the calls that arrived last will not get a slot in time.
        now = time.monotonic()
        while self._waiting:
            last = self._waiting[-1]
            wait = self._expected(len(self._waiting) - 1, now)
            if not last.turn.done() and now + wait <= last.deadline:
                return
            self._waiting.pop()
            if not last.turn.done():
                last.turn.set_exception(self._overloaded(wait))

    def _expected(self, before: int, now: float) -> float:
        """Expected seconds until a call gets a slot with ``before`` others waiting in front of it."""
        slot = 0.0
        if self._free <= before:
            # If even the latest call has been running for longer than usual, calls take at least that long now.
            latest = max((one.since for one in self._taken), default=now)
            slot = (before - self._free + 1) * max(self._seconds, now - latest) / self._slots
        return max(slot, self._next - now + before * self._pause)

    async def _turn(self, deadline: float) -> None:
        waiter = _Waiter(asyncio.get_running_loop().create_future(), deadline)
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await waiter.turn
        except TimeoutError:
            self._leave(waiter)
            raise self._overloaded(self._expected(len(self._waiting), time.monotonic())) from None
        except asyncio.CancelledError:
            self._leave(waiter)
            raise

    def _leave(self, waiter: _Waiter) -> None:
        """Stop waiting; a slot that was assigned at this very moment is passed on."""
        if waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
            self._give_up_slot()
        elif waiter in self._waiting:
            self._waiting.remove(waiter)

    def _give_up_slot(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.turn.done():
                waiter.turn.set_result(None)
                return
        self._free += 1

    async def _begin(self, deadline: float) -> None:
        """Wait until the rate allows a call."""
        now = time.monotonic()
        if not self._pause and now >= self._next:
            return
        pause = max(0.0, self._next - now)
        if now + pause > deadline:
            self._give_up_slot()
            raise self._overloaded(pause)
        self._next = max(now, self._next) + self._pause
        try:
            await asyncio.sleep(pause)
        except BaseException:
            self._give_up_slot()
            raise

    def _overloaded(self, wait: float) -> OverloadedError:
        return OverloadedError(f"{self._name!r} has no slot free in time", wait)
