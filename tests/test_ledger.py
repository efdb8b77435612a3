"""The contract of ledgers: a cap that cannot be overspent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import pytest

import occamroute as oc
from occamroute.ledger import Balance, Ledger

OPENERS: list[Callable[[float | Fraction], Ledger]] = [lambda cap: oc.open_ledger("memory:", cap=cap)]


@pytest.fixture(params=OPENERS, ids=["memory"])
def opened(request: pytest.FixtureRequest) -> Callable[[float | Fraction], Ledger]:
    found: Callable[[float | Fraction], Ledger] = request.param
    return found


Opener = Callable[[float | Fraction], Ledger]


def test_reserve_settle_release(opened: Opener) -> None:
    """Held money is settled to what was spent, or given back."""
    ledger = opened(5)
    first = ledger.reserve(2, key="a")
    second = ledger.reserve(0.5, key="b")
    assert ledger.balance().held == Decimal("2.5")
    ledger.settle(first, 1.25)
    ledger.release(second)
    balance = ledger.balance()
    assert balance == Balance(Decimal(5), Decimal(0), Decimal("1.25"), Decimal("3.75"))


def test_what_does_not_fit_is_refused(opened: Opener) -> None:
    """A reservation is refused whole, never trimmed; equal amounts fit to the last digit."""
    ledger = opened(0.3)
    for number in range(3):
        ledger.reserve(0.1, key=str(number))
    with pytest.raises(oc.BudgetExceededError, match="a reservation of 1E-9 does not fit: 0 is available"):
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
    hold = ledger.reserve(0.6, key="late", lease_seconds=0.01)
    time.sleep(0.05)
    assert ledger.balance() == Balance(Decimal(1), Decimal(0), Decimal("0.6"), Decimal("0.4"))
    ledger.settle(hold, 0.2)
    ledger.settle(hold, 0.0)
    assert ledger.balance().spent == Decimal("0.2")


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


def test_a_stampede(opened: Opener) -> None:
    """A thousand reservations of 0.10 on a cap of 5.00 from many threads: exactly fifty are let in."""
    ledger = opened(5)
    admitted: list[str] = []

    def work(thread: int) -> None:
        for number in range(125):
            try:
                admitted.append(ledger.reserve(0.10, key=f"{thread}-{number}").key)
            except oc.BudgetExceededError:
                continue

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 50
    assert ledger.balance().held == 5


def test_bad_input(opened: Opener) -> None:
    """Amounts and leases that are none, and ledgers that nobody knows."""
    ledger = opened(1)
    for amount in (-1, float("nan"), float("inf"), True):
        with pytest.raises(oc.InvalidInputError, match="amount must be"):
            ledger.reserve(amount, key="x")
    with pytest.raises(oc.InvalidInputError, match="lease_seconds must be"):
        ledger.reserve(0.1, key="x", lease_seconds=0)
    with pytest.raises(oc.UnknownNameError, match="unknown ledger"):
        oc.open_ledger("paper:", cap=1)


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
