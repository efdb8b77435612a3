"""Compaction: old entries become summaries whose sums are theirs, beside all other operations."""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_clock import AHEAD, set_clock
from test_ledger_time import CLIENTS, attempt, tenths

import occamroute as oc
from occamroute.ledger import Compaction, Hold, Ledger
from occamroute.ledger.base import Reserve, Settle

# Newer Pythons warn of forks beside threads, which numerical libraries start; what is forked here uses ledgers only.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
HOUR, DAY = 3_600_000, 86_400_000


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger that several processes share can be."""
    return str(request.getfixturevalue("postgres")) if request.param == "postgresql" else f"sqlite:///{tmp_path}/x.db"


def sums(ledger: Ledger) -> dict[tuple[float, str | None], tuple[Decimal, Decimal]]:
    """Held and spent by window and client, as entries say."""
    found: dict[Any, Any] = defaultdict(lambda: (Decimal(0), Decimal(0)))
    for entry in ledger.entries():
        held, spent = found[entry.window, entry.client]
        found[entry.window, entry.client] = held + entry.held, spent + entry.spent
    return {group: amounts for group, amounts in found.items() if any(amounts)}


def accounts(ledger: Any) -> dict[tuple[str, float], tuple[Decimal, Decimal]]:
    """Held and spent by scope and window, as the store keeps them."""
    words = f"SELECT scope, window_start, held, spent FROM occamroute_accounts WHERE ledger = {ledger._id}"  # noqa: S608
    if hasattr(ledger, "_line"):
        rows = ledger._line.talk(lambda connection: connection.execute(words).fetchall())
    else:
        rows = list(ledger._connection.execute(words))
    found = {
        (scope, start / 1000): (Decimal(held) / 10**9, Decimal(spent) / 10**9) for scope, start, held, spent in rows
    }
    return {account: amounts for account, amounts in found.items() if any(amounts)}


def check_sums(ledger: Ledger) -> None:
    """The sums of entries are the accounts, for everybody and for each client, in every window."""
    expected: dict[Any, Any] = defaultdict(lambda: (Decimal(0), Decimal(0)))
    for (window, client), (held, spent) in sums(ledger).items():
        for scope in ("",) if client is None else ("", client):
            before = expected[scope, window]
            expected[scope, window] = before[0] + held, before[1] + spent
    assert {account: amounts for account, amounts in expected.items() if any(amounts)} == accounts(ledger)
    numbers = [entry.number for entry in ledger.entries()]
    assert numbers == sorted(set(numbers))


def spend(ledger: Ledger, prefix: str) -> None:
    """A hold of every kind."""
    ledger.settle(ledger.reserve(1, key=f"{prefix} settled", client="a"), 0.5)
    ledger.release(ledger.reserve(1, key=f"{prefix} released"))
    ledger.reserve(0.25, key=f"{prefix} held", client="a", lease_seconds=10**9)
    ledger.reserve(0.125, key=f"{prefix} expired", lease_seconds=1)


@pytest.mark.parametrize("at_once", [1000, 3])
@pytest.mark.parametrize("window", ["total", "hour"])
def test_old_entries_become_summaries(
    began: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, window: str, at_once: int
) -> None:
    """One for each window and client; what is held stays, and so does everything that is younger."""
    monkeypatch.setattr("occamroute.ledger.bookkeeping.FOLDED_AT_ONCE", at_once)
    ledger = began(100, window=window, clients={"a": 50})
    spend(ledger, "first")
    set_clock(ledger, AHEAD + HOUR)
    spend(ledger, "second")
    set_clock(ledger, AHEAD + 3 * DAY)
    ledger.change_cap(90)
    spend(ledger, "new")
    before, last = ledger.balance(), list(ledger.entries())[-1].number
    by_client, young = ledger.balance("a"), [entry for entry in ledger.entries() if entry.at >= (AHEAD + DAY) / 1000]
    kept = sums(ledger)
    done = ledger.compact(keep_days=2)
    assert sums(ledger) == kept
    assert (ledger.balance(), ledger.balance("a")) == (before, by_client)
    check_sums(ledger)
    entries = list(ledger.entries())
    # The lease of the second one was over only now: that is young.
    old = [entry for entry in entries if entry.at < (AHEAD + DAY) / 1000]
    assert [entry for entry in entries if entry.at >= (AHEAD + DAY) / 1000] == young
    summaries = [entry for entry in old if entry.event == "compact"]
    windows = 1 if window == "total" else 2
    assert len(summaries) == 2 * windows
    assert {(entry.window, entry.client) for entry in summaries} == {
        (start, client) for start in {entry.window for entry in summaries} for client in (None, "a")
    }
    assert sum(int(entry.key) for entry in summaries) == 10
    assert sorted(entry.key for entry in old if entry.event != "compact") == [
        "first held", "second expired", "second held"
    ]  # fmt: skip
    assert done == Compaction(entries=10 - len(summaries), holds=5)
    assert ledger.compact(keep_days=2) == Compaction(0, 0)
    assert list(ledger.entries()) == entries
    ledger.reserve(0.1, key="next")
    assert next(ledger.entries(newest=True, limit=1)).number == last + 1


def test_holds_that_are_deleted(began: Callable[..., Any]) -> None:
    """They are unknown, and their keys can be used anew; all others are settled and corrected as before."""
    ledger = began(100)
    spend(ledger, "old")
    set_clock(ledger, AHEAD + 3 * DAY)
    late = ledger.reserve(1, key="late", lease_seconds=1)
    set_clock(ledger, AHEAD + 4 * DAY)
    ledger.balance()
    ledger.compact(keep_days=1.5)
    for key in ("old settled", "old released"):
        with pytest.raises(oc.UnknownNameError, match="unknown hold"):
            ledger.correct(key, 1)
        assert ledger.find(key) is None
        with pytest.raises(oc.UnknownNameError, match="unknown hold"):
            ledger.settle(Hold(key, Decimal(1)), 1)
    assert ledger.reserve(1, key="old settled").fresh
    spent = ledger.balance().spent
    ledger.settle(ledger.find("old held"), 0.125)
    ledger.settle(late, 0.5)
    ledger.correct("late", 0.25)
    assert ledger.balance().spent == spent + Decimal("0.125") - Decimal("0.75")
    check_sums(ledger)


def test_a_hold_that_changed_lately_is_kept(began: Callable[..., Any]) -> None:
    """Settled long after its lease, or corrected: its age counts from then on, and it can be corrected again."""
    ledger = began(100)
    for key in ("settled late", "corrected"):
        ledger.reserve(1, key=key, lease_seconds=1)
    set_clock(ledger, AHEAD + 1 * DAY)
    ledger.settle(Hold("corrected", Decimal(1)), 1)
    set_clock(ledger, AHEAD + 10 * DAY)
    ledger.settle(Hold("settled late", Decimal(1)), 0.5)
    ledger.correct("corrected", 0.25)
    entries = list(ledger.entries())
    assert ledger.compact(keep_days=5) == Compaction(0, 0)
    assert list(ledger.entries()) == entries
    ledger.correct("settled late", 0.75)
    assert ledger.balance().spent == 1
    set_clock(ledger, AHEAD + 16 * DAY)
    assert ledger.compact(keep_days=5) == Compaction(len(entries), 2)
    assert [(entry.event, entry.held, entry.spent) for entry in ledger.entries()] == [("compact", 0, 1)]


def test_a_lease_that_nobody_has_seen_end(began: Callable[..., Any]) -> None:
    """Its hold is not deleted, however long ago that was: it still has to be counted as spent."""
    ledger = began(10)
    ledger.reserve(1, key="forgotten", lease_seconds=1)
    set_clock(ledger, AHEAD + 400 * DAY)
    assert ledger.compact(keep_days=1) == Compaction(0, 0)
    assert (ledger.balance().held, ledger.balance().spent) == (0, 1)
    assert ledger.compact(keep_days=1) == Compaction(0, 0)
    set_clock(ledger, AHEAD + 402 * DAY)
    assert ledger.compact(keep_days=1) == Compaction(1, 1)
    assert ledger.balance().spent == 1


class StopError(Exception):
    """What interrupts a compaction."""


def test_a_compaction_that_is_interrupted(began: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever that is, the sums are right, keys that are used anew are corrected rightly, and it can be made again."""
    monkeypatch.setattr("occamroute.ledger.bookkeeping.FOLDED_AT_ONCE", 3)
    for most in range(1, 7):
        ledger = began(1000, clients={"a": 500})
        holds = [ledger.reserve(1, key=str(number), client="a" if number % 2 else None) for number in range(6)]
        for number, hold in enumerate(holds):
            ledger.settle(hold, number)
        set_clock(ledger, AHEAD + 3 * DAY)
        fold, left = ledger._fold, [most]

        def some(*values: Any, fold: Any = fold, left: list[int] = left) -> Any:
            if not left[0]:
                raise StopError
            left[0] -= 1
            return fold(*values)

        monkeypatch.setattr(ledger, "_fold", some)
        with pytest.raises(StopError):
            ledger.compact(keep_days=1)
        check_sums(ledger)
        # An earlier hold of this key has entries that were not folded yet.
        again = ledger.reserve(1, key="5", client="b")
        if again.fresh:
            ledger.settle(again, 1)
            ledger.correct("5", 3)
            assert ledger.balance("b").spent == 3
        check_sums(ledger)
        monkeypatch.setattr(ledger, "_fold", fold)
        ledger.compact(keep_days=1)
        check_sums(ledger)
        assert ledger.balance().spent == 15 + 3 * again.fresh
        left_over = [entry for entry in ledger.entries() if entry.event == "compact"]
        assert len(left_over) == 2


def test_summaries_beyond_64_bits(began: Callable[..., Any]) -> None:
    """What no summary can hold is not folded, and its holds stay: the sums are right, and can still be corrected."""
    ledger = began(10, clients={"app": 5})
    holds = [ledger.reserve(1, key=f"call {number}", client="app", lease_seconds=10**9) for number in range(5)]
    for number, hold in enumerate(holds, start=1):
        ledger.settle(hold, 4_000_000_000)
        set_clock(ledger, AHEAD + number * 3 * DAY)
        ledger.compact(keep_days=1)
        assert sum(entry.spent for entry in ledger.entries()) == number * 4_000_000_000
    full = Decimal(2**63 - 1).scaleb(-9)
    assert ledger.balance().spent == ledger.balance("app").spent == full
    assert [entry.event for entry in ledger.entries()] == ["reserve"] * 3 + ["compact"] + ["settle"] * 3
    assert [entry.spent for entry in ledger.entries() if entry.event == "compact"] == [8_000_000_000]
    for key in ("call 2", "call 3", "call 4"):
        ledger.correct(key, 1)
    assert ledger.balance().spent == ledger.balance("app").spent == 8_000_000_003
    set_clock(ledger, AHEAD + 20 * DAY)
    assert ledger.compact(keep_days=1).holds == 3
    assert [(entry.event, entry.held, entry.spent) for entry in ledger.entries()] == [("compact", 0, 8_000_000_003)]
    check_sums(ledger)


def test_a_full_account_is_counted_again_from_summaries(began: Callable[..., Any]) -> None:
    """What is taken off a sum beyond 64 bits is taken off the exact one, of which a summary is a part."""
    ledger = began(10, clients={"app": 5})
    late = [ledger.reserve(1, key=f"late {number}", client="app", lease_seconds=10**9) for number in range(2)]
    for hold in [ledger.reserve(1, key=f"call {number}", client="app") for number in range(2)]:
        ledger.settle(hold, 4_000_000_000)
    set_clock(ledger, AHEAD + 3 * DAY)
    assert ledger.compact(keep_days=1) == Compaction(3, 2)
    for hold in late:
        ledger.settle(hold, 4_000_000_000)
    assert ledger.balance().spent == Decimal(2**63 - 1).scaleb(-9)
    ledger.correct("late 0", 1)
    ledger.correct("late 1", 2)
    assert ledger.balance().spent == ledger.balance("app").spent == 8_000_000_003
    check_sums(ledger)


def test_days_that_are_none(began: Callable[..., Any]) -> None:
    ledger = began(1)
    for days in (0, 0.5, -1, float("nan"), float("inf"), True, "400", 10**7):
        with pytest.raises(oc.InvalidInputError, match="keep_days must be a number from 1 to"):
            ledger.compact(keep_days=days)
    assert ledger.compact(keep_days=1.5) == Compaction(0, 0)


def compact_elsewhere(address: str, name: str) -> None:
    ledger = oc.open_ledger(address, name=name)
    for _ in range(3):
        ledger.compact(keep_days=1)


def spend_elsewhere(address: str, name: str, who: int, until: float) -> None:
    ledger = oc.open_ledger(address, name=name)
    number = 0
    while time.time() < until:
        number += 1
        hold = ledger.reserve(0.01, key=f"new {who} {number}", client=str(who))
        ledger.settle(hold, 0.005)


def test_several_at_once_beside_spending(shared_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compactions of several processes share the work, and nothing that others do meanwhile is lost or delayed."""
    monkeypatch.setattr("occamroute.ledger.bookkeeping.FOLDED_AT_ONCE", 50)
    name = uuid.uuid4().hex
    ledger = oc.open_ledger(shared_address, cap=10**6, name=name, window="day", clients={"0": 10**5})
    set_clock(ledger, AHEAD)
    for block in range(10):
        holds = ledger.apply([Reserve(f"{block} {number}", 1, client=str(number % 3)) for number in range(100)])
        ledger.apply([Settle(hold, 0.5) for hold in holds if isinstance(hold, Hold)])
    set_clock(ledger, AHEAD + 3 * DAY)
    before = sums(ledger)
    workers = [FORK.Process(target=compact_elsewhere, args=(shared_address, name)) for _ in range(3)]
    workers += [
        FORK.Process(target=spend_elsewhere, args=(shared_address, name, who, time.time() + 1)) for who in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 5
    check_sums(ledger)
    old = {group: amounts for group, amounts in sums(ledger).items() if group[0] < (AHEAD + DAY) / 1000}
    assert old == before
    entries = list(ledger.entries())
    assert [entry.event for entry in entries if entry.window < (AHEAD + DAY) / 1000] == ["compact"] * 3
    new = [entry for entry in entries if entry.window > (AHEAD + DAY) / 1000]
    assert len(new) > 20
    assert ledger.balance().spent == sum(entry.spent for entry in new)
    ledger.close()


# One step of a story, as in the tests of time; days pass, and now and then old entries are folded.
STEPS = st.one_of(
    st.tuples(st.just("reserve"), st.integers(0, 7), st.integers(0, 12), st.sampled_from([1, 100_000]), CLIENTS),
    st.tuples(st.just("settle"), st.integers(0, 7), st.integers(0, 15)),
    st.tuples(st.just("release"), st.integers(0, 7)),
    st.tuples(st.just("correct"), st.integers(0, 7), st.integers(0, 15)),
    st.tuples(st.just("wait"), st.sampled_from([HOUR, DAY, 2 * DAY])),
    st.tuples(st.just("compact"), st.sampled_from([1, 2, 3.5])),
)


@pytest.mark.parametrize("window", ["total", "day"])
@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # fmt: skip
@given(steps=st.lists(STEPS, min_size=5, max_size=40))
def test_sums_stay_balances(
    began: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, window: str, steps: list[tuple[Any, ...]]
) -> None:
    """Whatever happens in whatever order, entries add up to the accounts, and a compaction changes neither."""
    monkeypatch.setattr("occamroute.ledger.bookkeeping.FOLDED_AT_ONCE", 4)
    ledger = began(50, window=window, clients={"a": 20})
    now = AHEAD
    for what, *details in steps:
        if what == "reserve":
            key, amount, lease, client = details
            attempt(lambda: ledger.reserve(tenths(amount), key=str(key), lease_seconds=lease, client=client))  # noqa: B023
        elif what in ("settle", "release"):
            key, *amounts = details
            attempt(lambda: getattr(ledger, what)(Hold(str(key), Decimal(0)), *map(tenths, amounts)))  # noqa: B023
        elif what == "correct":
            attempt(lambda: ledger.correct(str(details[0]), tenths(details[1])))  # noqa: B023
        elif what == "wait":
            now += details[0]
            set_clock(ledger, now)
        else:
            before, kept = accounts(ledger), sums(ledger)
            young = [entry for entry in ledger.entries() if entry.at >= (now - details[0] * DAY) / 1000]
            ledger.compact(keep_days=details[0])
            assert accounts(ledger) == before
            assert sums(ledger) == kept
            assert young == [entry for entry in ledger.entries() if entry.at >= (now - details[0] * DAY) / 1000]
            groups = [(entry.window, entry.client) for entry in ledger.entries() if entry.event == "compact"]
            assert len(groups) == len(set(groups))
            assert all(ledger.find(entry.key) for entry in young if entry.event == "reserve")
        check_sums(ledger)
