"""Operations that wait together are one transaction, and nothing that the ledger must be told is forgotten."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest

import occamroute as oc
from occamroute.calls import ledger_queue
from occamroute.calls.ledger_queue import LedgerQueue
from occamroute.ledger import Hold, Ledger
from occamroute.ledger.base import Find, Operation, Release, Reserve, Settle


class Odd:
    """A ledger whose transactions take a moment, or fail when ``fails`` says so."""

    in_flight = 1

    def __init__(self, cap: int = 100, *, seconds: float = 0.0, fails: Callable[[], bool] = lambda: False) -> None:
        self.inner, self.seconds, self.fails = oc.open_ledger("memory:", cap=cap), seconds, fails
        self.sizes: list[int] = []
        self.under_way = self.most_under_way = 0

    def apply(self, operations: Sequence[Operation]) -> Any:
        self.sizes.append(len(operations))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        time.sleep(self.seconds)
        self.under_way -= 1
        if self.fails():
            raise oc.LedgerError("far away", "the line is dead")
        return self.inner.apply(operations)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_many_share_a_transaction() -> None:
    """The first goes alone; those that come meanwhile go together, and each hears what became of its own."""
    ledger: Any = Odd(50, seconds=0.05)
    queue = LedgerQueue(ledger)

    async def work() -> list[Any]:
        wishes = [Reserve(f"hold {number}", 1) for number in range(100)]
        return await asyncio.gather(*(queue.reserve(wish, seconds=5) for wish in wishes), return_exceptions=True)

    found = asyncio.run(work())
    holds = [one for one in found if isinstance(one, Hold)]
    assert [hold.key for hold in holds] == [f"hold {number}" for number in range(50)]
    assert all(isinstance(one, oc.BudgetExceededError) for one in found[50:])
    assert len(ledger.sizes) <= 4
    futures = [queue.submit(Settle(hold, 0.5)) for hold in holds]
    assert [future.result() for future in futures] == [None] * 50
    assert queue.submit(Find("hold 7")).result().state == "settled"
    assert queue.submit(ledger.inner.balance).result().spent == 25
    with pytest.raises(oc.UnknownNameError):
        queue.submit(Release(Hold("nobody", Decimal(1)))).result()
    queue.close(5)


def test_several_transactions_on_their_way() -> None:
    """Where a ledger is far away, as many as it allows are on their way at once."""
    ledger: Any = Odd(seconds=0.3)
    ledger.in_flight = 3
    queue = LedgerQueue(ledger)
    futures = []
    for number in range(6):
        futures.append(queue.submit(Reserve(str(number), 1)))
        time.sleep(0.02)
    assert all(future.result().fresh for future in futures)
    assert 2 <= ledger.most_under_way <= 3
    queue.close(5)


def test_settlements_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the ledger has them: whoever settles hears at once what is wrong, and need do nothing."""
    monkeypatch.setattr(ledger_queue, "FIRST_PAUSE", 0.02)
    broken = [False]
    ledger: Any = Odd(fails=lambda: broken[0])
    queue = LedgerQueue(ledger)
    holds = [queue.submit(Reserve(key, 2)).result() for key in "ab"]
    broken[0] = True

    async def settle() -> list[str | None]:
        return [await queue.settle(Settle(holds[0], 1)), await queue.settle(Release(holds[1]))]

    problems = asyncio.run(settle())
    assert all("the line is dead" in str(problem) for problem in problems)
    assert queue.unsettled == 2
    wait_until(lambda: len(ledger.sizes) > 6)
    broken[0] = False
    wait_until(lambda: queue.unsettled == 0)
    balance = ledger.inner.balance()
    assert (balance.held, balance.spent) == (0, 1)
    queue.close(5)


def test_closing() -> None:
    """What waits is done first, what cannot be is given up; whatever comes later is done all the same."""
    ledger: Any = Odd(seconds=0.05)
    queue = LedgerQueue(ledger)
    futures = [queue.submit(Reserve(str(number), 1)) for number in range(5)]
    queue.close(5)
    assert all(future.done() for future in futures)
    late = queue.submit(Reserve("late", 1))
    assert late.result().fresh
    ledger.fails = lambda: True
    asyncio.run(queue.settle(Settle(late.result(), 1)))
    begun = time.monotonic()
    queue.close(5)
    assert time.monotonic() - begun < 1
    assert queue.unsettled == 0


@pytest.mark.parametrize("way", ["too late", "cancelled"])
def test_a_hold_that_nobody_waits_for(way: str) -> None:
    """It is given back as soon as it is there."""
    ledger: Any = Odd(seconds=0.2)
    queue = LedgerQueue(ledger)

    async def work() -> None:
        task = asyncio.create_task(queue.reserve(Reserve("a", 1), seconds=0.05 if way == "too late" else 5))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(oc.LedgerError if way == "too late" else asyncio.CancelledError):
            await task

    asyncio.run(work())
    wait_until(lambda: ledger.inner.find("a") is not None and ledger.inner.find("a").state == "released")
    queue.close(5)


def test_a_ledger_of_an_older_package() -> None:
    """One that knows no ``apply`` is used one operation at a time."""

    class Older:
        def __init__(self) -> None:
            self._inner = oc.open_ledger("memory:", cap=3)

        def reserve(self, amount: Any, **options: Any) -> Hold:
            return self._inner.reserve(amount, **options)

        def settle(self, hold: Hold, amount: Any) -> None:
            self._inner.settle(hold, amount)

        def release(self, hold: Hold) -> None:
            self._inner.release(hold)

    older: Ledger = Older()  # type: ignore[assignment]
    queue = LedgerQueue(older)
    holds = [queue.submit(Reserve(str(number), 1, 60, "web")) for number in range(4)]
    assert [one.exception() is None for one in holds] == [True, True, True, False]
    queue.submit(Settle(holds[0].result(), 0.25)).result()
    queue.submit(Release(holds[1].result())).result()
    balance = older._inner.balance("web")  # type: ignore[attr-defined]
    assert (balance.held, balance.spent) == (1, Decimal("0.25"))
    queue.close(5)
