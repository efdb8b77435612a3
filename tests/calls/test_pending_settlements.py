"""Settlements that failed outlast the process: the ledger gets each of them once, whenever it can be used again."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import occamroute as oc
from occamroute.calls import ledger_queue
from occamroute.calls.ledger_queue import LedgerQueue
from occamroute.calls.pending_settlements import PendingSettlements
from occamroute.ledger import Hold, Ledger
from occamroute.ledger.base import FindReply, Operation, Release, Reply, Settle

# Newer Pythons warn of forks beside threads, which numerical libraries start; what is forked here uses ledgers only.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

FORK = multiprocessing.get_context("fork")


class Broken:
    """A ledger that cannot settle while ``broken``, and counts what it was asked to."""

    def __init__(self, inner: Ledger, *, broken: bool = True) -> None:
        self.inner, self.broken, self.asked = inner, broken, 0

    def apply(self, operations: Sequence[Operation]) -> Any:
        settles = [one for one in operations if isinstance(one, Settle | Release)]
        self.asked += len(settles)
        if settles and self.broken:
            raise oc.LedgerError("far away", "the line is dead")
        return self.inner.apply(operations)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger that outlasts a process can be."""
    return str(request.getfixturevalue("database")) if request.param == "postgresql" else f"sqlite:///{tmp_path}/x.db"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settlements.db"


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def pending(file: Path, ledger: Any) -> PendingSettlements:
    return PendingSettlements(file, ledger.identity)


def keys(file: Path) -> list[str]:
    """The holds in the file, read without occamroute."""
    with closing(sqlite3.connect(file)) as connection:
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return []  # it is just being made
        return [key for (key,) in connection.execute("SELECT hold FROM pending_settlements ORDER BY hold")]


def settled(queue: LedgerQueue, *steps: Settle | Release) -> list[str | None]:
    async def work() -> list[str | None]:
        return list(await asyncio.gather(*map(queue.settle, steps)))

    return asyncio.run(work())


def test_the_next_process_goes_on(address: str, file: Path) -> None:
    """What could not be settled is in the file before the caller is told, and is settled by the next queue, exactly."""
    ledger: Any = Broken(oc.open_ledger(address, cap=10))
    queue = LedgerQueue(ledger, pending=pending(file, ledger))
    holds = {key: ledger.inner.reserve(1, key=key, lease_seconds=600) for key in ("a", "b", "c", "it's 🙂")}
    problems = settled(
        queue, Settle(holds["a"], Fraction(1, 7)), Release(holds["b"]), Settle(holds["it's 🙂"], 0.1, Reply("x", "y"))
    )
    assert all("the line is dead" in str(problem) for problem in problems)
    assert keys(file) == ["a", "b", "it's 🙂"]
    queue.close(5)
    assert keys(file) == ["a", "b", "it's 🙂"]
    ledger.inner.close()

    later: Any = Broken(oc.open_ledger(address), broken=False)
    queue = LedgerQueue(later, pending=pending(file, later))
    wait_until(lambda: keys(file) == [])
    assert queue.unsettled == 0
    balance = later.inner.balance()
    assert (balance.held, balance.spent) == (1, Decimal("0.242857143"))
    assert [later.inner.find(key).state for key in holds] == ["settled", "released", "held", "settled"]
    assert later.inner.apply([FindReply("it's 🙂")]) == [Reply("x", "y")]
    assert settled(queue, Settle(holds["a"], 1)) == [None]
    queue.close(5)
    assert later.inner.balance().spent == balance.spent
    asked = later.asked
    LedgerQueue(later, pending=pending(file, later)).close(5)
    assert later.asked == asked == 4
    later.inner.close()


def die_with_a_settlement(address: str, file: Path, lease: float) -> None:
    ledger: Any = Broken(oc.open_ledger(address))
    queue = LedgerQueue(ledger, pending=pending(file, ledger))
    hold = ledger.inner.reserve(5, key="late", lease_seconds=lease)
    assert settled(queue, Settle(hold, 2)) != [None]
    os._exit(7)


@pytest.mark.parametrize("lease", [600, 0.05])
def test_a_process_that_dies(address: str, file: Path, lease: float) -> None:
    """Without closing anything; and its lease may be over by then, so that the hold counted in full."""
    oc.open_ledger(address, cap=10).close()
    process = FORK.Process(target=die_with_a_settlement, args=(address, file, lease))
    process.start()
    process.join()
    assert process.exitcode == 7
    ledger = oc.open_ledger(address)
    time.sleep(0.1)
    balance = ledger.balance()
    assert balance.held + balance.spent == 5
    queue = LedgerQueue(ledger, pending=pending(file, ledger))
    wait_until(lambda: keys(file) == [])
    queue.close(5)
    after: Any = ledger.balance()
    assert (after.held, after.spent) == (0, 2)
    events = ["reserve", "settle"] if lease == 600 else ["reserve", "expire", "settle"]
    assert [entry.event for entry in ledger.entries()] == events
    ledger.close()


def test_settlements_of_other_ledgers_stay(address: str, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A hold of the same key in another ledger, or in another one of the same store, is never settled with them."""
    ledger: Any = Broken(oc.open_ledger(address, cap=10))
    others = [oc.open_ledger(address, cap=10, name="other"), oc.open_ledger(f"sqlite:///{file.parent}/y.db", cap=10)]
    hold = ledger.inner.reserve(1, key="a", lease_seconds=600)
    queue = LedgerQueue(ledger, pending=pending(file, ledger))
    assert settled(queue, Settle(hold, 0.5)) != [None]
    queue.close(5)
    for other in others:
        other.reserve(1, key="a", lease_seconds=600)
        queue = LedgerQueue(other, pending=pending(file, other))
        assert queue.unsettled == 0
        queue.close(5)
        assert other.balance().held == 1
        other.close()
    assert "settlements.db has 1 settlements of other ledgers" in caplog.text
    assert keys(file) == ["a"]
    ledger.inner.close()


def test_a_ledger_is_the_same_wherever_it_is_opened_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first: Any = oc.open_ledger("sqlite:///x.db", cap=1)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    second: Any = oc.open_ledger("sqlite:///../x.db")
    third: Any = oc.open_ledger("sqlite:///x.db", cap=1)
    assert first.identity == second.identity == f"sqlite:///{tmp_path}/x.db#default"
    assert third.identity != first.identity
    assert oc.open_ledger("memory:", cap=1).identity is None  # type: ignore[attr-defined]
    for ledger in (first, second, third):
        ledger.close()


def test_a_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The settlement is kept in memory, with a warning, and written as soon as that is possible."""
    monkeypatch.setattr(ledger_queue, "FIRST_PAUSE", 0.02)
    file = tmp_path / "missing" / "settlements.db"
    ledger: Any = Broken(oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=10))
    hold = ledger.inner.reserve(1, key="a", lease_seconds=600)
    queue = LedgerQueue(ledger, pending=pending(file, ledger))
    with caplog.at_level(logging.WARNING):
        assert settled(queue, Settle(hold, 0.5)) != [None]
    assert "1 settlements are kept in memory only" in caplog.text
    assert queue.unsettled == 1
    file.parent.mkdir()
    wait_until(file.exists)
    wait_until(lambda: keys(file) == ["a"])
    ledger.broken = False
    wait_until(lambda: queue.unsettled == 0)
    assert ledger.inner.balance().spent == Decimal("0.5")
    assert keys(file) == []
    queue.close(5)
    ledger.inner.close()


def test_what_is_given_up_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a file that can be written, closing says that the hold counts in full; with one, that it is settled."""
    for folder, words in (("missing", "1 holds were not settled, and count in full"), (".", "1 holds are settled at")):
        file = tmp_path / folder / "settlements.db"
        ledger: Any = Broken(oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=10))
        queue = LedgerQueue(ledger, pending=pending(file, ledger))
        settled(queue, Settle(ledger.inner.reserve(1, key=folder), 0.5))
        caplog.clear()
        queue.close(5)
        assert words in caplog.text
        assert queue.unsettled == 0
        ledger.inner.close()


def test_what_no_ledger_can_settle(tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A hold that does not exist, an amount that is none: the caller is told, and it is not tried for ever."""
    ledger: Any = Broken(oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=10), broken=False)
    hold = ledger.inner.reserve(1, key="a")
    queue = LedgerQueue(ledger, pending=pending(file, ledger))
    unknown, negative = settled(queue, Settle(Hold("nobody", Decimal(1)), 1), Settle(hold, -1))
    assert "unknown hold 'nobody'" in str(unknown)
    assert "amount must be" in str(negative)
    assert (queue.unsettled, file.exists()) == (0, False)
    # One that was there when it was kept, and whose ledger was replaced since.
    pending(file, ledger).add([Settle(Hold("gone", Decimal(1)), 1)])
    queue.close(5)
    queue = LedgerQueue(ledger, pending=pending(file, ledger))
    wait_until(lambda: keys(file) == [])
    queue.close(5)
    assert "the hold gone is not settled, which is given up: unknown hold 'gone'" in caplog.text
    ledger.inner.close()


def test_a_late_hold_is_released_by_the_next_process(tmp_path: Path, file: Path) -> None:
    """Also where nobody waited for the hold any more, and the release of it failed."""
    ledger: Any = Broken(oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=10))

    class Slow(Broken):
        def apply(self, operations: Sequence[Operation]) -> Any:
            time.sleep(0.2)
            return super().apply(operations)

    slow: Any = Slow(ledger.inner)
    queue = LedgerQueue(slow, pending=pending(file, ledger))

    async def work() -> None:
        with pytest.raises(oc.LedgerError, match="did not answer within"):
            await queue.reserve(oc.ledger.base.Reserve("a", 1, 600), seconds=0.05)

    asyncio.run(work())
    wait_until(lambda: file.exists() and keys(file) == ["a"])
    queue.close(5)
    queue = LedgerQueue(ledger.inner, pending=pending(file, ledger))
    wait_until(lambda: keys(file) == [])
    queue.close(5)
    assert ledger.inner.find("a").state == "released"
    ledger.inner.close()


def test_a_cancelled_caller(tmp_path: Path, file: Path) -> None:
    """The settlement is made all the same."""
    ledger = oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=10)
    queue = LedgerQueue(ledger, pending=pending(file, ledger))
    hold = ledger.reserve(1, key="a")

    async def work() -> None:
        queue.submit(lambda: time.sleep(0.3))  # so that the settlement has to wait
        await asyncio.sleep(0.1)
        task = asyncio.create_task(queue.settle(Settle(hold, 0.5)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    queue.close(5)
    assert ledger.balance().spent == Decimal("0.5")
    ledger.close()


def test_files_that_are_none(tmp_path: Path) -> None:
    """A damaged file, or one of a later version, is refused in a sentence: what it holds must not be lost silently."""
    damaged, later = tmp_path / "damaged.db", tmp_path / "later.db"
    damaged.write_text("hello " * 500)
    with closing(sqlite3.connect(later)) as connection:
        connection.execute("PRAGMA user_version=2")
    for file, words in ((damaged, "file is not a database"), (later, "its format is 2, this version of occamroute")):
        with pytest.raises(oc.StorageError, match=words):
            LedgerQueue(oc.open_ledger("memory:", cap=1), pending=PendingSettlements(file, "x"))


def settle_in_a_router(state: Path, address: str, profile: oc.Profile) -> None:
    """Make a decision whose settlement fails, and die."""
    ledger: Any = Broken(oc.open_ledger(address))
    router = oc.Router(profile, arrivals=40, ledger=ledger, state=state)
    hold = router.wallet.hold(2, key="query", lease_seconds=600)
    assert asyncio.run(router.wallet.settle_eventually(hold, 0.25))
    os._exit(7)


def test_a_router_goes_on(address: str, tmp_path: Path, small: oc.Profile) -> None:
    """With a state folder, another router there settles what the first one could not; without, nothing is written."""
    state = tmp_path / "state"
    oc.open_ledger(address, cap=20).close()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=settle_in_a_router, args=(state, address, small))
    process.start()
    process.join()
    assert process.exitcode == 7
    assert keys(state / "settlements.db") == ["query"]
    with oc.Router(small, arrivals=40, ledger=address, state=state) as router:
        wait_until(lambda: keys(state / "settlements.db") == [])
        assert router.ledger.balance().spent == Decimal("0.25")
        assert router.ledger.balance().held == 0


def test_a_ledger_in_memory_leaves_no_file(tmp_path: Path, small: oc.Profile) -> None:
    """It ends with the process: its settlements would be of no use to the next one."""
    with oc.Router(small, arrivals=40, budget=20, state=tmp_path) as router:
        broken: Any = Broken(router.ledger)
        router.wallet.queue.ledger = broken
        hold = router.wallet.hold(2, key="query", lease_seconds=600)
        assert asyncio.run(router.wallet.settle_eventually(hold, 0.25))
        assert router.wallet.queue.unsettled == 1
    assert not (tmp_path / "settlements.db").exists()


def test_a_router_that_cannot_begin(tmp_path: Path, small: oc.Profile) -> None:
    """A damaged file of settlements is an error, after which nothing of the ledger stays open."""
    uniquely = f"sqlite:///{tmp_path}/{uuid.uuid4().hex}.db"
    state = tmp_path / "state"
    state.mkdir()
    (state / "settlements.db").write_text("hello " * 500)
    with pytest.raises(oc.StorageError, match=r"settlements\.db"):
        oc.Router(small, budget=20, arrivals=40, ledger=uniquely, state=state)
    assert not list(tmp_path.glob("*.db-wal"))
