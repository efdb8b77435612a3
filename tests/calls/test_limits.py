"""Slots for calls: nobody waits in vain, and none is lost."""

from __future__ import annotations

import asyncio
import time

import pytest

import occamroute as oc
from occamroute.calls.limits import ConcurrencyLimit


def test_a_slot_is_not_lost() -> None:
    """Whoever stops waiting, is cancelled or comes too late leaves the slots as they were."""

    async def work() -> None:
        limit = ConcurrencyLimit("large", 1)
        (await limit.acquire(5)).release(called=True)
        slot = await limit.acquire(5)
        await asyncio.sleep(0.02)
        with pytest.raises(oc.OverloadedError):
            await limit.acquire(0.01)  # it is held for longer than a call usually takes
        waiting = asyncio.create_task(limit.acquire(5))
        await asyncio.sleep(0.01)
        waiting.cancel()
        next_one = asyncio.create_task(limit.acquire(5))
        await asyncio.sleep(0.01)
        slot.release(called=True)
        slot = await next_one
        # Cancelled in the very moment in which the slot comes.
        unlucky = asyncio.create_task(limit.acquire(5))
        await asyncio.sleep(0.01)
        slot.release(called=True)
        slot.release(called=True)  # which changes nothing
        unlucky.cancel()
        await asyncio.wait({unlucky})
        await limit.acquire(0.01)

    asyncio.run(work())


def test_those_who_cannot_be_served_are_told_at_once() -> None:
    """With the seconds after which to come again; those who can be are served in the order in which they came."""

    async def work() -> None:
        limit, served = ConcurrencyLimit("large", 2), []
        refused: list[tuple[float, float | None]] = []

        async def one(number: int) -> None:
            begun = time.monotonic()
            try:
                slot = await limit.acquire(0.35)
            except oc.OverloadedError as error:
                refused.append((time.monotonic() - begun, error.retry_after))
                return
            await asyncio.sleep(0.1)
            slot.release(called=True)
            served.append(number)

        await asyncio.gather(*(one(number) for number in range(2)))  # now it is known how long a call takes
        await asyncio.gather(*(one(number) for number in range(40)))
        assert served[2:] == sorted(served[2:])
        assert 7 <= len(served) <= 10
        assert len(served) + len(refused) == 42
        # One at the limit may hear later, when a call has taken a little longer than those before it.
        assert sum(seconds > 0.05 for seconds, _ in refused) <= 2
        assert all(wait is not None and 0.1 < wait < 10 for _, wait in refused)

    asyncio.run(work())


def test_calls_that_take_longer_than_was_thought() -> None:
    """Those who wait and will not be served in time hear so as soon as that is known, the last ones first."""

    async def work() -> None:
        limit = ConcurrencyLimit("large", 1, guess=0.01)
        slot = await limit.acquire(1)
        waiting = [asyncio.create_task(limit.acquire(1)) for _ in range(9)]
        await asyncio.sleep(0.3)
        assert not any(task.done() for task in waiting)
        with pytest.raises(oc.OverloadedError):  # the call under way tells how long one takes
            await limit.acquire(1)
        slot.release(called=True)
        await asyncio.sleep(0.01)
        assert [task.done() for task in waiting] == [True, False, False] + [True] * 6
        assert waiting[0].exception() is None
        assert all(isinstance(task.exception(), oc.OverloadedError) for task in waiting[3:])
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

    asyncio.run(work())


def test_a_rate() -> None:
    """Calls begin one after the other; who cannot begin in time is told so and keeps no slot."""

    async def work() -> None:
        limit = ConcurrencyLimit("large", 1, per_minute=60)
        (await limit.acquire(1)).release(called=True)
        with pytest.raises(oc.OverloadedError):
            await limit.acquire(0.1)
        begun = time.monotonic()
        await limit.acquire(2)
        assert 0.8 < time.monotonic() - begun < 1.5

    asyncio.run(work())


def test_a_slot_without_a_call_does_not_count_for_the_rate() -> None:
    """A ledger refused the money, say: the next call need not wait; after one that was made it must."""

    async def work() -> None:
        limit = ConcurrencyLimit("large", 2, per_minute=60)
        for called in (False, False, True):
            slot = limit.take()
            assert slot is not None
            assert limit.take() is None
            slot.release(called=called)
        assert limit.take() is None

    asyncio.run(work())
