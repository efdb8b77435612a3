"""The contract of ledgers, on every home: a cap that cannot be overspent."""

from __future__ import annotations

import multiprocessing
import os
import random
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
from occamroute.ledger import Balance, Hold, Ledger
from occamroute.ledger.base import Release, Reserve, Settle

# Newer Pythons warn of forks beside threads, which numerical libraries start; what is forked here uses ledgers only.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

Opener = Callable[..., Ledger]


@pytest.fixture
def opened(ledger_address: str, request: pytest.FixtureRequest) -> Iterator[Opener]:
    """A function that opens the ledger at the address, under the test's own name."""
    ledgers: list[Ledger] = []

    def opener(cap: Any = None, **options: Any) -> Ledger:
        ledgers.append(oc.open_ledger(ledger_address, cap=cap, **{"name": request.node.name, **options}))
        return ledgers[-1]

    yield opener
    for ledger in ledgers:
        ledger.close()


def shared(address: str) -> bool:
    return address != "memory:"


def events(ledger: Ledger) -> list[str]:
    return [entry.event for entry in ledger.entries()]


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
    assert abs(ledger.balance().now - time.time()) < 60


def test_what_does_not_fit_is_refused(opened: Opener) -> None:
    """A reservation is refused whole, never trimmed; equal amounts fit to the last digit."""
    ledger = opened(0.3)
    for number in range(3):
        ledger.reserve(0.1, key=str(number))
    with pytest.raises(oc.BudgetExceededError, match="does not fit: 0 is available"):
        ledger.reserve(1e-9, key="more")
    assert ledger.balance().held == Decimal("0.3")
    assert ledger.reserve(0, key="nothing").amount == 0


def test_many_operations_at_once(opened: Opener) -> None:
    """They count in their order, and one that is refused does not keep the others from being done."""
    ledger = opened(2, clients={"web": 0.5})
    first = ledger.reserve(1, key="a")
    done = ledger.apply(
        [
            Reserve("b", 0.5, client="web"),
            Reserve("c", 0.1, client="web"),
            Reserve("d", 1),
            Release(first),
            Reserve("d", 1),
            Settle(Hold("b", Decimal(1)), 0.25),
            Reserve("c", 0.1, 60, "web"),
            Settle(Hold("nobody", Decimal(1)), 0.25),
            Reserve("e", -1),
            Reserve("d", 1),
        ]
    )
    told = [type(one).__name__ if not isinstance(one, Hold) else (one.key, one.fresh) for one in done]
    assert told == [
        ("b", True), "BudgetExceededError", "BudgetExceededError", "NoneType", ("d", True), "NoneType", ("c", True),
        "UnknownNameError", "InvalidInputError", ("d", False),
    ]  # fmt: skip
    assert events(ledger) == ["reserve", "reserve", "release", "reserve", "settle", "reserve"]
    assert ledger.balance() == Balance(Decimal(2), Decimal("1.1"), Decimal("0.25"), Decimal("0.65"))
    assert ledger.apply([]) == []
    ledger.reserve(0.5, key="short", lease_seconds=0.001)
    time.sleep(0.02)
    done = ledger.apply([Reserve("f", 0.2), Settle(Hold("short", Decimal(1)), 0), Reserve("f", 0.2)])
    assert [type(one) for one in done] == [oc.BudgetExceededError, type(None), Hold]


def test_a_hold_is_found_by_its_key(opened: Opener) -> None:
    """It knows its amount, its client and how it stands, so that another process can settle it."""
    ledger = opened(5)
    assert ledger.find("a") is None
    made = ledger.reserve(2, key="a", client="web")
    ledger.reserve(1, key="b", lease_seconds=0.001)
    time.sleep(0.02)
    found = ledger.find("a")
    assert found is not None
    assert (found, found.state, found.client, found.fresh) == (made, "held", "web", False)
    assert ledger.reserve(2, key="a").client == made.client == "web"
    late = ledger.find("b")
    assert late is not None
    assert (late.state, late.client, late.amount) == ("expired", None, Decimal(1))
    ledger.settle(found, 1)
    ended = ledger.find("a")
    assert ended is not None
    assert (ended.state, ended.amount) == ("settled", Decimal(2))


def test_amounts_round_against_the_spender(opened: Opener) -> None:
    """Costs round up to a billionth, the caps round down."""
    ledger = opened(Fraction(1, 3), clients={"a": Fraction(1, 6)})
    assert ledger.balance().cap == Decimal("0.333333333")
    assert ledger.balance("a").cap == Decimal("0.166666666")
    hold = ledger.reserve(Fraction(1, 7), key="a")
    assert hold.amount == Decimal("0.142857143")


def test_settlements_round_up_and_changed_caps_round_down(opened: Opener) -> None:
    """What was spent is never recorded as less, and a changed cap never allows more, by a billionth."""
    ledger = opened(2, clients={"a": 1})
    ledger.settle(ledger.reserve(1, key="a"), Fraction(1, 7))
    assert ledger.balance().spent == Decimal("0.142857143")
    ledger.change_cap(Fraction(2, 3))
    assert ledger.balance().cap == Decimal("0.666666666")
    ledger.change_cap(Fraction(2, 3), client="a")
    assert ledger.balance("a").cap == Decimal("0.666666666")


def test_corrections_round_up(opened: Opener) -> None:
    """A correction never makes what was spent less than it was, by a billionth."""
    ledger = opened(2)
    ledger.settle(ledger.reserve(1, key="a"), 1)
    ledger.correct("a", Fraction(1, 7))
    assert ledger.balance().spent == Decimal("0.142857143")


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


def test_only_the_first_may_buy(opened: Opener) -> None:
    """Who comes second under a key sees it, and how far the first has got; another amount changes nothing."""
    ledger = opened(1)
    first = ledger.reserve(0.6, key="settled")
    assert (first.fresh, first.state) == (True, "held")
    again = ledger.reserve(0.9, key="settled")
    assert (again.fresh, again.state, again.amount) == (False, "held", Decimal("0.6"))
    ledger.settle(again, 0.1)
    assert ledger.reserve(0.6, key="settled").state == "settled"
    ledger.release(ledger.reserve(0.2, key="released"))
    late = ledger.reserve(0.2, key="late", lease_seconds=0.02)
    time.sleep(0.06)
    states = [ledger.reserve(0.2, key=key).state for key in ("released", "late")]
    assert states == ["released", "expired"]
    ledger.settle(Hold("late", late.amount), 0.05)
    assert ledger.reserve(0.2, key="late").state == "settled"
    assert ledger.balance().spent == Decimal("0.15")


def test_an_expired_hold_counts_as_spent(opened: Opener) -> None:
    """When its lease is over a hold is spent in full; one later settle may lower it."""
    ledger = opened(1)
    hold = ledger.reserve(0.6, key="late", lease_seconds=0.05)
    time.sleep(0.15)
    assert ledger.balance() == Balance(Decimal(1), Decimal(0), Decimal("0.6"), Decimal("0.4"))
    ledger.settle(hold, 0.2)
    ledger.settle(hold, 0.0)
    assert ledger.balance().spent == Decimal("0.2")
    assert events(ledger) == ["reserve", "expire", "settle"]


def test_leases_end_whoever_comes_next(opened: Opener) -> None:
    """Whatever the next call is, holds whose lease is over are expired first."""
    ledger = opened(5, clients={"a": 1})
    calls: list[Callable[[], Any]] = [
        lambda: ledger.reserve(0.1, key="next"),
        lambda: ledger.release(Hold("next", Decimal(0))),
        lambda: ledger.balance("a"),
        lambda: ledger.change_cap(4),
    ]
    for number, call in enumerate(calls):
        ledger.reserve(0.2, key=str(number), lease_seconds=0.01, client="a")
        time.sleep(0.04)
        call()
    assert events(ledger) == [
        "reserve", "expire", "reserve", "reserve", "expire", "release", "reserve", "expire", "reserve", "expire", "cap",
    ]  # fmt: skip
    assert ledger.balance("a").spent == Decimal("0.8")


def test_many_leases_end_at_once(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, the balance counts all of them."""
    monkeypatch.setattr("occamroute.ledger.embedded.AT_ONCE", 7)
    ledger = opened(100)
    for number in range(30):
        ledger.reserve(0.01, key=str(number), lease_seconds=0.01)
    time.sleep(0.03)
    assert ledger.balance() == Balance(Decimal(100), Decimal(0), Decimal("0.3"), Decimal("99.7"))
    assert [entry.number for entry in ledger.entries()] == list(range(1, 61))


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


def test_opened_again(opened: Opener, ledger_address: str) -> None:
    """A ledger is what it was; another cap, window or list of clients is an error; a cap is changed by name only."""
    ledger = opened(5, window="day", clients={"x": 1})
    ledger.reserve(2, key="a")
    if not shared(ledger_address):
        return
    assert opened().balance().held == 2
    assert opened(5.0, window="day", clients={"x": 1}).balance().held == 2
    others: list[tuple[dict[str, Any], str]] = [
        ({"cap": 6}, "cap of 5"), ({"window": "total"}, "window of day"), ({"clients": {}}, "caps of {'x': 1}"),
    ]  # fmt: skip
    for options, words in others:
        with pytest.raises(oc.InvalidInputError, match=words):
            opened(**options)
    opened().change_cap(3)
    assert ledger.balance().available == 1
    with pytest.raises(oc.BudgetExceededError):
        ledger.reserve(1.5, key="b")


def test_a_cap_is_needed_to_begin(ledger_address: str, tmp_path: Path) -> None:
    """Nobody can spend from a ledger that was never begun, and asking for it leaves nothing behind."""
    with pytest.raises(oc.InvalidInputError, match="a cap is needed"):
        oc.open_ledger(ledger_address, name="never begun")
    assert list(tmp_path.iterdir()) == []


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
    assert ledger.balance("somebody") == Balance(Decimal(5), Decimal(3), Decimal(0), Decimal("0.25"))
    assert ledger.balance("nobody") == Balance(Decimal(5), Decimal(0), Decimal(0), Decimal("0.25"))


def test_clients_caps_change(opened: Opener, ledger_address: str) -> None:
    """A new cap counts at once, for all who have the ledger open, and for what the client already has."""
    ledger = opened(5)
    other = opened() if shared(ledger_address) else ledger
    ledger.reserve(1, key="before", client="late comer")
    other.change_cap(1.5, client="late comer")
    with pytest.raises(oc.BudgetExceededError, match=r"0\.5 is available"):
        ledger.reserve(1, key="too much", client="late comer")
    assert ledger.balance("late comer").cap == Decimal("1.5")
    ledger.change_cap(None, client="late comer")
    other.reserve(3, key="again", client="late comer")
    ledger.change_cap(4)
    changes = [(entry.client, entry.key) for entry in other.entries() if entry.event == "cap"]
    assert changes == [("late comer", "1.5"), ("late comer", "none"), (None, "4")]
    with pytest.raises(oc.InvalidInputError, match="only a client can be without"):
        ledger.change_cap(None)


def test_entries_in_parts(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a number on, only so many, or the newest first; read in blocks, whatever their size."""
    monkeypatch.setattr("occamroute.ledger.bookkeeping.BLOCK", 3)
    ledger = opened(100)
    for number in range(10):
        ledger.reserve(1, key=str(number))

    def numbers(**options: Any) -> list[int]:
        return [entry.number for entry in ledger.entries(**options)]

    assert numbers() == list(range(1, 11))
    assert numbers(after=7) == [8, 9, 10]
    assert numbers(after=2, limit=4) == [3, 4, 5, 6]
    assert numbers(newest=True, limit=5) == [10, 9, 8, 7, 6]
    assert numbers(newest=True, after=8) == [10, 9]
    assert numbers(newest=True) == list(range(10, 0, -1))
    assert numbers(after=10) == numbers(limit=0) == []
    for options in ({"after": -1}, {"limit": 1.5}, {"limit": True}):
        with pytest.raises(oc.InvalidInputError, match="must be a whole number"):
            ledger.entries(**options)


def test_one_key_from_many_threads(opened: Opener) -> None:
    """One idempotency key sent a hundred times at once is one hold, and one of the hundred made it."""
    ledger = opened(1)
    found: list[Hold] = []
    threads = [threading.Thread(target=lambda: found.append(ledger.reserve(0.7, key="once"))) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 100
    assert len(set(found)) == 1
    assert sum(hold.fresh for hold in found) == 1
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


def test_a_stampede(opened: Opener, ledger_address: str, request: pytest.FixtureRequest) -> None:
    """A thousand reservations of 0.10 on a cap of 5.00 from four processes (or threads): exactly fifty are let in."""
    ledger = opened(5)
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    there = (ledger_address, request.node.name)
    workers: list[Any] = (
        [context.Process(target=rush_elsewhere, args=(*there, who, results)) for who in range(4)]
        if shared(ledger_address)
        else [threading.Thread(target=rush, args=(ledger, who, results)) for who in range(4)]
    )
    for worker in workers:
        worker.start()
    admitted = sum(results.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert admitted == 50
    assert ledger.balance().held == 5
    assert len(events(ledger)) == 50


def deal(ledger: Ledger, who: int, seconds: float) -> None:
    """Reserve, settle, release and forget at random; the cap is kept whenever one looks."""
    draw = random.Random(who)  # noqa: S311
    holds: list[Hold] = []
    end = time.monotonic() + seconds
    for number in range(10**9):
        if time.monotonic() > end:
            break
        action = draw.random()
        if action < 0.5:
            lease = 0.05 if draw.random() < 0.2 else 60
            try:
                hold = ledger.reserve(draw.randint(1, 30) / 100, key=f"{who}-{number}", lease_seconds=lease)
            except oc.BudgetExceededError:
                continue
            if lease == 60:  # the others are forgotten: their lease ends them
                holds.append(hold)
        elif action < 0.9 and holds:
            hold = holds.pop(draw.randrange(len(holds)))
            if draw.random() < 0.3:
                ledger.settle(hold, draw.randint(0, int(hold.amount * 100)) / 10_000)
            else:
                ledger.release(hold)
        else:
            balance = ledger.balance()
            assert balance.held + balance.spent <= balance.cap, balance


def deal_elsewhere(address: str, name: str, who: int) -> None:
    """The same from another process; whatever goes wrong is its exit status."""
    deal(oc.open_ledger(address, name=name), who, 1.0)


def test_a_bank(opened: Opener, ledger_address: str, request: pytest.FixtureRequest) -> None:
    """Random business of four processes (or threads): the cap is kept, and the entries add up to the balance."""
    ledger = opened(3)
    context = multiprocessing.get_context("fork")
    if shared(ledger_address):
        arguments = [(ledger_address, request.node.name, who) for who in range(4)]
        processes = [context.Process(target=deal_elsewhere, args=some) for some in arguments]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * 4
    else:
        deal(ledger, 0, 0.5)
    time.sleep(0.1)
    balance = ledger.balance()
    entries = list(ledger.entries())
    assert len(entries) > 20
    assert "expire" in {entry.event for entry in entries}
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    assert (sum(entry.held for entry in entries), sum(entry.spent for entry in entries)) == (
        balance.held,
        balance.spent,
    )


def victim(address: str, name: str, number: int) -> None:
    ledger = oc.open_ledger(address, name=name)
    for step in range(10**9):
        hold = ledger.reserve(0.001, key=f"{number}-{step}", lease_seconds=0.2)
        if step % 3:
            ledger.settle(hold, 0.0005)


def test_killed_clients_leave_nothing_behind(
    opened: Opener, ledger_address: str, request: pytest.FixtureRequest
) -> None:
    """After kill -9 the ledger is whole, and holds left behind count as spent once their lease is over."""
    ledger = opened(1000)
    if not shared(ledger_address):
        return
    context = multiprocessing.get_context("fork")
    for number in range(8):
        worker = context.Process(target=victim, args=(ledger_address, request.node.name, number))
        worker.start()
        time.sleep(0.05 + 0.02 * number)
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
        balance = ledger.balance()
        assert balance.held + balance.spent <= balance.cap
    time.sleep(0.3)
    balance = ledger.balance()
    entries = list(ledger.entries())
    assert len(entries) > 20
    assert balance.held == 0
    assert sum(entry.held for entry in entries) == 0
    assert sum(entry.spent for entry in entries) == balance.spent


def test_bad_input(opened: Opener) -> None:
    """Amounts, leases, keys and clients that are none, holds that nobody knows."""
    ledger = opened(1)
    for amount in (-1, float("nan"), float("inf"), True, 4_000_000_001, 10**5000, -(10**5000)):
        with pytest.raises(oc.InvalidInputError, match="amount must be"):
            ledger.reserve(amount, key="x")
    for lease in (0, True, 10**400):
        with pytest.raises(oc.InvalidInputError, match="lease_seconds must be"):
            ledger.reserve(0.1, key="x", lease_seconds=lease)
    for text in ("", "a\0b", "\ud800", "x" * 401, 7):
        with pytest.raises(oc.InvalidInputError, match="key must be a text"):
            ledger.reserve(0.1, key=text)  # type: ignore[arg-type]
        with pytest.raises(oc.InvalidInputError, match="client must be a text"):
            ledger.balance(text)  # type: ignore[arg-type]
    with pytest.raises(oc.UnknownNameError, match="unknown hold"):
        ledger.settle(Hold("stranger", Decimal(1)), 0.1)
    with pytest.raises(oc.InvalidInputError, match="hold must be what reserve gave, got 'x'"):
        ledger.release("x")  # type: ignore[arg-type]
    with pytest.raises(oc.InvalidInputError, match="clients must be a mapping"):
        opened(1, clients=["a"])
    assert list(ledger.entries(after=2**70)) == []
    assert events(ledger) == []


def test_any_words_are_kept(opened: Opener) -> None:
    """Keys and clients are only compared, whatever they hold."""
    ledger = opened(5)
    for number, text in enumerate(("%s", "it's; --", "back\\slash", "naïve 🙂", "$1 {x}", "x" * 400)):
        hold = ledger.reserve(0.1, key=text, client=text)
        assert ledger.reserve(0.1, key=text) == hold
        ledger.settle(hold, 0.05)
        assert ledger.balance(text).spent == Decimal("0.05")
        entry = list(ledger.entries())[2 * number]
        assert (entry.key, entry.client) == (text, text)


def test_amounts_are_whole_whatever_the_context() -> None:
    """The caller's decimal context rounds nothing, and amounts are written without an exponent."""
    with localcontext(Context(prec=3)):
        ledger = oc.open_ledger("memory:", cap=100)
        assert ledger.reserve(Decimal("1.23456789"), key="x").amount.as_tuple().digits == (1, 2, 3, 4, 5, 6, 7, 8, 9)
        assert str(ledger.balance().cap) == "100"
    with pytest.raises(oc.BudgetExceededError, match="a reservation of 1000 does not fit"):
        ledger.reserve(1000, key="y")


def test_sums_beyond_64_bits_saturate(opened: Opener, ledger_address: str) -> None:
    """After settlements of more than 2**63 in all, the ledger opens, reserves nothing, and can be corrected."""
    ledger = opened(10, clients={"app": 5})
    holds = [ledger.reserve(1, key=f"call {number}", client="app") for number in range(4)]
    for hold in holds[:3]:
        ledger.settle(hold, 4_000_000_000)
    full = Decimal(2**63 - 1).scaleb(-9)
    assert ledger.balance().spent == ledger.balance("app").spent == full
    again = opened() if shared(ledger_address) else ledger
    assert (again.balance().held, again.balance().available) == (Decimal(1), Decimal(0))
    with pytest.raises(oc.BudgetExceededError):
        again.reserve(1, key="more")
    again.change_cap(0)  # the smallest number that is ever computed
    with pytest.raises(oc.BudgetExceededError):
        again.reserve(1, key="more", client="app")
    again.correct("call 0", 1)
    assert again.balance().spent == again.balance("app").spent == 8_000_000_001  # not 2**63 less the difference
    again.correct("call 1", 0)
    again.correct("call 2", 0.5)
    again.settle(holds[3], 1)
    assert again.balance().spent == again.balance("app").spent == Decimal("2.5")
    again.change_cap(10)
    again.reserve(1, key="more", client="app")


LEASES = (("settled", 60), ("released", 60), ("held", 60), ("expired", 0.001))


def test_an_entry_is_corrected(opened: Opener) -> None:
    """Whatever became of a hold, the corrected amount is what counts; doing it again changes nothing."""
    ledger = opened(10)
    settled, released, held, expired = (ledger.reserve(1, key=key, lease_seconds=lease) for key, lease in LEASES)
    ledger.settle(settled, 3)
    ledger.release(released)
    time.sleep(0.02)
    assert ledger.balance().spent == 4
    for hold, amount in ((settled, "0.5"), (released, "0.25"), (held, 2), (expired, "0.125")):
        for _ in range(2):
            ledger.correct(hold.key, Decimal(amount))
    assert (ledger.balance().held, ledger.balance().spent) == (Decimal(0), Decimal("2.875"))
    entries = list(ledger.entries())
    assert [entry.event for entry in entries].count("correct") == 4
    assert sum(entry.spent for entry in entries) == Decimal("2.875")
    assert sum(entry.held for entry in entries) == 0
    ledger.settle(held, 9)  # what was corrected is settled
    assert ledger.balance().spent == Decimal("2.875")
    with pytest.raises(oc.UnknownNameError, match="unknown hold"):
        ledger.correct("stranger", 1)
