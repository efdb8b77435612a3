"""Windows, clocks that are wrong, and ledgers beside a tiny model of them."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_clock import AHEAD, set_clock

import occamroute as oc
from occamroute.ledger import Hold, Ledger, clocks
from occamroute.ledger.windows import window_end, window_start

# Newer Pythons warn of forks beside threads, which numerical libraries start; what is forked here uses ledgers only.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

DAYS = 86_400.0


def moment(*parts: int) -> int:
    return int(dt.datetime(*parts, tzinfo=dt.UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


def test_windows() -> None:
    """Hours, days and months begin where clocks and calendars say, in UTC."""
    instant = moment(2026, 3, 2, 12, 34, 56)
    assert window_start(instant, "total") == 0
    assert window_end(instant, "total") is None
    assert window_start(instant, "hour") == moment(2026, 3, 2, 12)
    assert window_start(instant, "day") == moment(2026, 3, 2)
    assert window_start(instant, "month") == moment(2026, 3, 1)
    assert window_end(instant, "month") == moment(2026, 4, 1)
    assert window_end(moment(2027, 1, 1) - 1, "month") == moment(2027, 1, 1)
    with pytest.raises(oc.UnknownNameError, match="unknown window 'week'"):
        oc.open_ledger("memory:", cap=1, window="week")


@pytest.mark.parametrize(
    ("window", "start", "end"),
    [
        ("hour", moment(2040, 2, 29, 23), moment(2040, 3, 1)),
        ("day", moment(2040, 2, 29), moment(2040, 3, 1)),
        ("month", moment(2040, 12, 1), moment(2041, 1, 1)),
    ],
)
def test_a_cap_for_each_window(began: Callable[..., Ledger], window: str, start: int, end: int) -> None:
    """To the last moment one window, from then on another; a hold counts in the one in which it was made."""
    ledger = began(1, window=window, clients={"a": 0.8})
    set_clock(ledger, end - 1)
    hold = ledger.reserve(0.8, key="old", client="a", lease_seconds=60)
    with pytest.raises(oc.BudgetExceededError):
        ledger.reserve(0.1, key="too much", client="a")
    balance = ledger.balance("a")
    assert (balance.since, balance.until, balance.now) == (start / 1000, end / 1000, (end - 1) / 1000)
    set_clock(ledger, end)
    assert ledger.balance("a").available == Decimal("0.8")
    ledger.reserve(0.8, key="new", client="a")
    ledger.settle(hold, 0.5)
    balance = ledger.balance()
    assert (balance.held, balance.spent) == (Decimal("0.8"), Decimal(0))
    assert balance.since == end / 1000
    assert [entry.window for entry in ledger.entries()] == [start / 1000, end / 1000, start / 1000]


def test_time_never_runs_backwards(began: Callable[..., Ledger]) -> None:
    """A store whose clock was set back by years goes on where it was: no window begins twice, nothing is forgotten."""
    ledger = began(1, window="hour")
    ledger.reserve(0.9, key="before")
    assert ledger.balance().now == AHEAD / 1000 > time.time() + 1000 * DAYS
    with pytest.raises(oc.BudgetExceededError):
        ledger.reserve(0.2, key="the same hour")
    assert ledger.reserve(0.1, key="rest", lease_seconds=60).fresh
    assert all(entry.at == AHEAD / 1000 for entry in ledger.entries())


@pytest.mark.parametrize("hours", [23, 25])
def test_a_clock_that_is_set_ahead(ledger_address: str, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """A correction is believed; a jump is refused and not stored, for time could never go back from there."""
    ledger = oc.open_ledger(ledger_address, cap=1, window="day", name=uuid.uuid4().hex)
    hold = ledger.reserve(0.5, key="before")
    passed, true = clocks.elapsed, time.time()
    monkeypatch.setattr(clocks, "elapsed", lambda: passed() - hours * 3_600_000)
    if hours < 24:
        ledger.settle(hold, 0.25)
        assert ledger.balance().spent == Decimal("0.25")
    else:
        for work in (ledger.balance, lambda: ledger.reserve(0.1, key="after"), lambda: ledger.settle(hold, 0.25)):
            with pytest.raises(oc.LedgerError, match="its clock is more than 24 hours ahead"):
                work()
        monkeypatch.undo()
        assert ledger.balance().held == Decimal("0.5")
    assert all(entry.at < true + 60 for entry in ledger.entries())
    ledger.close()


def live_elsewhen(address: str, name: str, days: float, results: Any) -> None:
    """A process that believes it is another day."""
    true = time.time
    time.time = lambda: true() + days * DAYS
    time.time_ns = lambda: int((true() + days * DAYS) * 1e9)
    ledger = oc.open_ledger(address, name=name)
    hold = ledger.reserve(0.2, key=f"{days} days off", lease_seconds=60)
    short = ledger.reserve(0.1, key=f"{days} days off, short", lease_seconds=0.05)
    time.sleep(0.15)
    ledger.settle(hold, 0.05)
    results.put((ledger.reserve(0.1, key=short.key).state, ledger.balance().now))


@pytest.mark.parametrize("days", [-3, 3])
def test_a_process_with_a_wrong_clock(ledger_address: str, days: float) -> None:
    """It spends in the same window as everybody, and its leases are as long as everybody's."""
    if ledger_address == "memory:":
        return  # the only process is the store
    name = uuid.uuid4().hex
    ledger = oc.open_ledger(ledger_address, cap=1, window="day", name=name)
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    process = context.Process(target=live_elsewhen, args=(ledger_address, name, days, results))
    process.start()
    state, now = results.get(timeout=30)
    process.join()
    assert state == "expired"
    assert abs(now - time.time()) < 60
    assert ledger.balance().spent == Decimal("0.15")
    assert all(abs(entry.at - time.time()) < 60 for entry in ledger.entries())
    ledger.close()


CLIENTS = st.sampled_from([None, "a", "b"])
# One step of a story: what is done, to which key, how much, for how long, by whom.
STEPS = st.one_of(
    st.tuples(st.just("reserve"), st.integers(0, 5), st.integers(0, 12), st.integers(1, 5), CLIENTS),
    st.tuples(st.just("settle"), st.integers(0, 5), st.integers(0, 15)),
    st.tuples(st.just("release"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([1, 2, 1800])),
    st.tuples(st.just("cap"), st.integers(0, 25), st.none()),
    st.tuples(st.just("cap"), st.one_of(st.none(), st.integers(0, 15)), st.sampled_from(["a", "b"])),
)  # fmt: skip


@dataclass
class Model:
    """A ledger with caps of 2.0 and 1.0 (client a) an hour, in whole tenths: a list of holds, added up when asked."""

    now: int = AHEAD
    caps: dict[str | None, int] = field(default_factory=lambda: {None: 20, "a": 10})
    holds: dict[int, dict[str, Any]] = field(default_factory=dict)

    def balance(self, client: str | None) -> tuple[int, int, int, int]:
        held, spent = self._sums(client)
        room = [self.caps[None] - sum(self._sums(None))]
        if client in self.caps:
            room.append(self.caps[client] - held - spent)
        return self.caps.get(client, self.caps[None]), held, spent, max(0, min(room))

    def _sums(self, client: str | None) -> tuple[int, int]:
        mine = [
            hold for hold in self.holds.values()
            if hold["hour"] == self.now // 3_600_000 and client in (None, hold["client"])
        ]  # fmt: skip
        return sum(hold["amount"] for hold in mine if hold["open"]), sum(hold["spent"] for hold in mine)

    def reserve(self, key: int, amount: int, lease: int, client: str | None) -> str | None:
        if key in self.holds:
            return str(self.holds[key]["state"])
        cap, held, spent, available = self.balance(client)
        if amount > available or sum(self._sums(None)) > self.caps[None] or held + spent > cap:
            return None
        times = {"hour": self.now // 3_600_000, "ends": self.now + 1000 * lease}
        self.holds[key] = {"amount": amount, "client": client, "open": True, "spent": 0, "state": "held", **times}
        return "held"

    def end(self, key: int, spent: int, state: str) -> bool:
        hold = self.holds.get(key)
        if hold is not None and hold["state"] in ("held", "expired"):
            hold.update(open=False, spent=spent, state=state)
        return hold is not None

    def wait(self, seconds: int) -> None:
        self.now += 1000 * seconds
        for hold in self.holds.values():
            if hold["open"] and hold["ends"] <= self.now:
                hold.update(open=False, spent=hold["amount"], state="expired")


def tenths(number: int) -> Decimal:
    return Decimal(number) / 10


def attempt(work: Callable[[], Any]) -> Any:
    """What it gives, or None where it was refused."""
    try:
        return work()
    except (oc.BudgetExceededError, oc.UnknownNameError):
        return None


def take(ledger: Any, model: Model, step: tuple[Any, ...]) -> None:
    """One step on both, with the same outcome."""
    what, *details = step
    if what == "reserve":
        key, amount, lease, client = details
        known = key in model.holds
        expected = model.reserve(key, amount, lease, client)
        options = {"key": str(key), "lease_seconds": lease, "client": client}
        hold = attempt(lambda: ledger.reserve(tenths(amount), **options))
        assert (hold and hold.state) == expected
        assert hold is None or hold.fresh is not known
    elif what in ("settle", "release"):
        key, *amount = details
        known = model.end(key, sum(amount), {"settle": "settled", "release": "released"}[what])
        hold = Hold(str(key), Decimal(0))
        done = attempt(lambda: getattr(ledger, what)(hold, *map(tenths, amount)) or True)
        assert bool(done) == known
    elif what == "wait":
        model.wait(*details)
        set_clock(ledger, model.now)
    else:
        amount, client = details
        ledger.change_cap(None if amount is None else tenths(amount), client=client)
        model.caps = {who: cap for who, cap in {**model.caps, client: amount}.items() if cap is not None}


@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # fmt: skip
@given(steps=st.lists(STEPS, min_size=1, max_size=25))
def test_like_a_tiny_model(began: Callable[..., Ledger], steps: list[tuple[Any, ...]]) -> None:
    """Whatever happens in whatever order, a ledger stands as a list of holds that is added up anew."""
    ledger = began(2, window="hour", clients={"a": 1})
    model = Model()
    for step in steps:
        take(ledger, model, step)
        for client in (None, "a", "b"):
            balance = ledger.balance(client)
            found = (balance.cap, balance.held, balance.spent, balance.available)
            assert found == tuple(map(tenths, model.balance(client)))
    hours = [entry for entry in ledger.entries() if entry.window == ledger.balance().since]
    assert sum(entry.held + entry.spent for entry in hours) == sum(map(tenths, model._sums(None)))
    ledger.close()
