"""Replies: what a client was answered is stored with the hold of its request, in the same transaction."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from ledger_clock import AHEAD, set_clock

import occamroute as oc
from occamroute.ledger import Hold
from occamroute.ledger.base import LONGEST_REPLY, Find, FindReply, Release, Reply, Reserve, Settle

# Newer Pythons warn of forks beside threads, which numerical libraries start; what is forked here uses ledgers only.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
DAY = 86_400_000
FIRST, SECOND = Reply("query 1", '{"state": "running"}'), Reply("query 1", '{"label": "cat"}')


@pytest.fixture
def ledger(ledger_address: str) -> Iterator[Any]:
    opened = oc.open_ledger(ledger_address, cap=5, name=uuid.uuid4().hex)
    yield opened
    opened.close()


def reply(ledger: Any, key: str) -> Any:
    (found,) = ledger.apply([FindReply(key)])
    return found


def rows(ledger: Any) -> int:
    """How many replies the store keeps for a ledger, found or not."""
    words = f"SELECT count(*) FROM occamroute_replies WHERE ledger = {ledger._id}"  # noqa: S608  # a number
    if hasattr(ledger, "_line"):
        return int(ledger._line.talk(lambda connection: connection.execute(words).fetchone()[0]))
    return int(ledger._connection.execute(words).fetchone()[0])


def test_a_reply_is_stored_with_its_hold(ledger: Any) -> None:
    """By the call that makes the hold, and replaced by the one that settles it; by nobody who comes later."""
    assert reply(ledger, "a") is None
    (hold,) = ledger.apply([Reserve("a", 1, reply=FIRST)])
    assert hold.fresh
    assert reply(ledger, "a") == FIRST
    (again,) = ledger.apply([Reserve("a", 1, reply=SECOND)])
    assert not again.fresh
    assert reply(ledger, "a") == FIRST
    assert ledger.apply([Settle(hold, 0.5, reply=SECOND), FindReply("a"), Find("a")])[1:] == [SECOND, hold]
    ledger.apply([Settle(hold, 0.25, reply=FIRST)])
    assert reply(ledger, "a") == SECOND
    assert ledger.balance().spent == Decimal("0.5")


def test_what_is_refused_stores_no_reply(ledger: Any) -> None:
    """A reservation that does not fit, and the settlement of a hold that is unknown or was released."""
    done = ledger.apply([Reserve("a", 6, reply=FIRST), Settle(Hold("b", Decimal(1)), 1, reply=FIRST)])
    assert [type(one) for one in done] == [oc.BudgetExceededError, oc.UnknownNameError]
    (hold,) = ledger.apply([Reserve("c", 1)])
    ledger.apply([Release(hold), Settle(hold, 1, reply=FIRST)])
    assert [reply(ledger, key) for key in "abc"] == [None] * 3
    assert rows(ledger) == 0


def test_a_late_settlement_stores_its_reply(ledger: Any) -> None:
    """The lease is over, the hold counts in full, and its one late settlement corrects that and has a reply."""
    (hold,) = ledger.apply([Reserve("a", 2, 0.001, reply=FIRST)])
    time.sleep(0.02)
    assert ledger.balance().spent == 2
    ledger.apply([Settle(hold, 1, reply=SECOND)])
    assert (ledger.balance().spent, reply(ledger, "a")) == (1, SECOND)
    (late,) = ledger.apply([Reserve("b", 1, 0.001)])
    time.sleep(0.02)
    # The first look at a lease that is over, by the settlement itself.
    assert ledger.apply([Settle(late, 0.5, reply=FIRST), FindReply("b")]) == [None, FIRST]


def test_operations_without_a_reply_keep_the_one_that_is_there(ledger: Any) -> None:
    (hold,) = ledger.apply([Reserve("a", 1, reply=FIRST)])
    ledger.settle(hold, 1)
    assert reply(ledger, "a") == FIRST


def test_replies_are_found_for_a_day(ledger: Any) -> None:
    """By the store's clock; those that are over are deleted, some whenever another is stored."""
    set_clock(ledger, AHEAD)
    ledger.apply([Reserve(f"old {number}", 0.01, 10**6, reply=FIRST) for number in range(25)])
    set_clock(ledger, AHEAD + DAY - 1)
    assert reply(ledger, "old 7") == FIRST
    assert rows(ledger) == 25
    set_clock(ledger, AHEAD + DAY)
    assert reply(ledger, "old 7") is None
    assert rows(ledger) == 25
    ledger.apply([Reserve("new 0", 0.01), Reserve("new 1", 0.01, reply=SECOND)])
    assert rows(ledger) == 16
    # One that is over and stored again is not among those that are deleted.
    hold = Hold("old 24", Decimal("0.01"))
    ledger.apply([Settle(hold, 0.01, reply=SECOND), Reserve("new 2", 0.01, reply=FIRST), Settle(hold, 0.01)])
    assert rows(ledger) == 3
    assert [reply(ledger, key) for key in ("new 1", "old 24", "new 2")] == [SECOND, SECOND, FIRST]


def test_ledgers_of_one_store_have_replies_of_their_own(ledger: Any, ledger_address: str) -> None:
    if ledger_address == "memory:":
        return
    other: Any = oc.open_ledger(ledger_address, cap=5, name=uuid.uuid4().hex)
    ledger.apply([Reserve("a", 1, reply=FIRST)])
    other.apply([Reserve("a", 1, reply=SECOND)])
    assert (reply(ledger, "a"), reply(other, "a")) == (FIRST, SECOND)
    again = oc.open_ledger(ledger_address, name=ledger._name)
    assert reply(again, "a") == FIRST
    again.close()
    other.close()


def test_any_text_is_kept(ledger: Any) -> None:
    for number, text in enumerate(("%s %(key)s", "it's; --", "back\\slash\n", "naïve 🙂", "$1 {x}", "", "x" * 100_000)):
        stored = Reply("%(about)s 🙂", text)
        ledger.apply([Reserve(str(number), 0, reply=stored)])
        assert reply(ledger, str(number)) == stored


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("text", "reply must be a Reply, got 'text'"),
        (Reply("", "x"), "about must be a text of 1 to 400 characters"),
        (Reply("x", "a\0b"), "content must be a text of at most 1048576 characters without NUL"),
        (Reply("x", "\ud800"), "content must be a text"),
        (Reply("x", "x" * (LONGEST_REPLY + 1)), "content must be a text"),
    ],
)
def test_replies_that_no_store_can_keep(ledger: Any, bad: Any, words: str) -> None:
    """They are refused before anything is done, and the other operations are done."""
    hold = ledger.reserve(1, key="a")
    done = ledger.apply([Reserve("b", 1, reply=bad), Settle(hold, 1, reply=bad), Reserve("c", 1, reply=FIRST)])
    assert all(isinstance(error, oc.InvalidInputError) and words in str(error) for error in done[:2])
    assert done[2].fresh
    assert (ledger.balance().held, ledger.balance().spent) == (2, 0)


def hold_and_settle(address: str, name: str, number: int) -> None:
    ledger = oc.open_ledger(address, name=name)
    for step in range(10**9):
        key = f"{number}-{step}"
        ledger.apply([Reserve(key, 0.001, reply=Reply(key, "held"))])
        ledger.apply([Settle(Hold(key, Decimal("0.001")), 0.0005, reply=Reply(key, "settled"))])


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_no_crash_parts_a_hold_from_its_reply(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Whenever a process is killed, every hold has the reply that belongs to its state."""
    address = request.getfixturevalue("postgres") if store == "postgresql" else f"sqlite:///{tmp_path}/x.db"
    name = uuid.uuid4().hex
    ledger = oc.open_ledger(address, cap=1000, name=name)
    for number in range(8):
        worker = FORK.Process(target=hold_and_settle, args=(address, name, number))
        worker.start()
        time.sleep(0.1 + 0.013 * number)
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
    keys = [entry.key for entry in ledger.entries() if entry.event == "reserve"]
    assert len(keys) > 20
    for key in keys:
        hold, stored = ledger.apply([Find(key), FindReply(key)])
        assert isinstance(hold, Hold)
        assert stored == Reply(key, hold.state)
    ledger.close()


def test_operations_without_a_reply_touch_no_replies(tmp_path: Path) -> None:
    """They run no more statements than before there were replies."""
    ledger: Any = oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=5)
    seen: list[str] = []
    ledger._connection.set_exec_trace(lambda cursor, words, values: not seen.append(words))  # type: ignore[func-returns-value]
    ledger.settle(ledger.reserve(1, key="a", client="web"), 0.5)
    ledger.release(ledger.reserve(1, key="b"))
    ledger._connection.set_exec_trace(None)
    assert len(seen) <= 35
    assert not any("replies" in words for words in seen)
    ledger.close()


def test_replies_are_found_by_index(tmp_path: Path) -> None:
    """However many there are, none of the statements walks through them."""
    ledger: Any = oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=5)
    seen: set[str] = set()
    ledger._connection.set_exec_trace(lambda cursor, words, values: not seen.add(words))  # type: ignore[func-returns-value]
    ledger.apply([Reserve("a", 1, reply=FIRST), FindReply("a")])
    ledger._connection.set_exec_trace(None)
    statements = [words for words in seen if "replies" in words and not words.startswith("INSERT")]
    assert len(statements) == 2
    for words in statements:
        plan = [row[3] for row in ledger._connection.execute(f"EXPLAIN QUERY PLAN {words}", (1,) * words.count("?"))]
        assert all(step.startswith(("SEARCH", "LIST SUBQUERY", "CREATE BLOOM")) for step in plan), (words, plan)
    ledger.close()
