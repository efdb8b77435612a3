"""Wallets: what one query may cost while the cheapest answer is kept back for the others."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import occamroute as oc
from occamroute.routing.pacing import Arrivals, Pace, cautious
from occamroute.routing.prices import Prices
from occamroute.routing.wallets import Wallet

# A classifier for 1 and one for 10, no features.
SNAPSHOT: Any = SimpleNamespace(
    overhead=0.0,
    least=1.0,
    costs=np.array([1.0, 10.0]),
    prices=Prices.of(np.array([[0.5, 0.9], [0.6, 0.7]]), np.array([1.0, 10.0])),
)


def wallet(cap: int, *, window: str = "day", expected: int = 1000, refresh_seconds: float = 3600.0) -> Wallet:
    ledger = oc.open_ledger("memory:", cap=cap, window=window)
    return Wallet(ledger, Pace(Arrivals(expected)), refresh_seconds=refresh_seconds)


def test_the_cheapest_answer_is_kept_for_the_cautious_number_of_queries() -> None:
    """In a window with an end, what one query may cost leaves the cheapest answer for as many as may well come."""
    found = wallet(2000)
    terms = found.terms(SNAPSHOT)
    spare = 2000 - cautious(terms.remaining)
    assert terms.most == pytest.approx(1.0 + spare)
    for beyond, allowed in ((0.99 * spare, True), (1.01 * spare, False)):
        decision: Any = SimpleNamespace(cost=1.0 + beyond, snapshot=SNAPSHOT)
        assert found.may_spend(decision) is allowed


def test_more_is_kept_where_queries_cost_more_than_the_profile_says() -> None:
    """Where answers turn out to cost 1.5 times as much, 1.5 times as much is kept for the others."""
    found = wallet(2000)
    for _ in range(100_000):
        found.pace.learn(1.0, 1.5)
    terms = found.terms(SNAPSHOT)
    assert terms.off == pytest.approx(1.5, rel=1e-3)
    assert terms.most == pytest.approx(1.0 + 2000 - terms.off * cautious(terms.remaining))


def test_one_key_is_subtracted_once() -> None:
    """A hold that is asked for again is the same hold: what is left is reduced by it once."""
    found = wallet(10, window="total")
    found.standing()
    first = found.hold(3, key="a")
    assert found.hold(3, key="a").amount == first.amount
    assert found.standing().available == 7.0
    found.settle(first, 2)
    assert found.standing().available == 8.0
    assert float(found.ledger.balance().available) == 8.0


def test_nobody_waits_for_a_slow_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first one who asks how things stand does; later ones hear how they stood a moment ago, and when."""
    found = wallet(100, refresh_seconds=0.05)
    before = found.standing()
    balance, asked = found.ledger.balance, []

    def slow(client: str | None = None) -> Any:
        asked.append(time.monotonic())
        time.sleep(0.3)
        return balance(client)

    monkeypatch.setattr(found.ledger, "balance", slow)
    found.ledger.reserve(10, key="somebody else's")
    begun, longest = time.monotonic(), 0.0
    while (now := time.monotonic()) < begun + 1.0:
        standing = found.standing()
        longest = max(longest, time.monotonic() - now)
        assert standing.moment.now >= before.moment.now
        time.sleep(0.005)
    assert longest < 0.1
    assert standing.available == 90.0
    assert standing.moment.now > before.moment.now + 0.5
    assert len(asked) <= 4  # one at a time
    found.close(5)
