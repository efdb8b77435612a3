"""The rules of a ledger in SQL, the same for every database; a store only gives transactions and the time.

Each operation reads everything that it needs in one go, decides, and writes in one go: two trips to a server.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from occamroute._money import Amount
from occamroute.errors import BudgetExceededError, InvalidInputError, UnknownNameError
from occamroute.ledger.base import Balance, Entry, Hold, amount_of, lease_of, rounded_down, rounded_up
from occamroute.ledger.windows import Window, checked_window, window_end, window_start

__all__ = ["Run", "SqlLedger", "Statement"]

Statement: TypeAlias = tuple[str, Sequence[Any]]

# Time may not run backwards, or a window would begin twice: the latest moment seen is written down this often.
CLOCK_STEP = 1000
# Everybody's account, beside those of clients.
EVERYBODY = ""

LEDGER = "SELECT cap, clock FROM occamroute_ledgers WHERE name = ?"
NEXT_DUE = "SELECT min(expires) FROM occamroute_holds WHERE ledger = ? AND state = 'held'"
DUE = (
    "SELECT hold_key, client, window_start, amount FROM occamroute_holds "
    "WHERE ledger = ? AND state = 'held' AND expires <= ?"
)
HOLD = "SELECT state, client, window_start, amount FROM occamroute_holds WHERE ledger = ? AND hold_key = ?"
ACCOUNTS = (
    "SELECT scope, held, spent, window_start FROM occamroute_accounts WHERE ledger = ? AND scope IN (?, ?) "
    "AND window_start >= (SELECT max(window_start) FROM occamroute_accounts WHERE ledger = ?)"
)
NEW_HOLD = (
    "INSERT INTO occamroute_holds (ledger, hold_key, client, window_start, amount, expires, state) "
    "VALUES (?, ?, ?, ?, ?, ?, 'held')"
)
MARK = "UPDATE occamroute_holds SET state = ? WHERE ledger = ? AND hold_key = ?"
ENTRY = (
    "INSERT INTO occamroute_entries (ledger, at, event, hold_key, client, window_start, held, spent) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
BOOK = (
    "INSERT INTO occamroute_accounts (ledger, scope, window_start, held, spent) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (ledger, scope, window_start) DO UPDATE SET "
    "held = occamroute_accounts.held + excluded.held, spent = occamroute_accounts.spent + excluded.spent"
)
ENTRIES = (
    "SELECT id, at, event, hold_key, client, window_start, held, spent FROM occamroute_entries "
    "WHERE ledger = ? ORDER BY id"
)


class Run(Protocol):
    """Run statements, with ``?`` for parameters, in the transaction; the rows of each."""

    def __call__(self, statements: Sequence[Statement], /) -> list[list[tuple[Any, ...]]]:
        """Run them in order."""
        ...


@dataclass
class _State:
    """What an operation reads: the time, the hold of its key, and the accounts by scope (held, spent)."""

    now: int
    window: int
    hold: tuple[Any, ...] | None
    accounts: dict[str, tuple[int, int]]


class SqlLedger(ABC):
    """A cap in a database: amounts are whole billionths, every change is one transaction, entries are only added.

    Tables: ``occamroute_ledgers`` (cap, window, clients' caps, the latest moment seen), ``occamroute_accounts`` (held
    and spent, by scope and window), ``occamroute_holds``, and ``occamroute_entries``, whose sums are the accounts.
    """

    def __init__(self, cap: Amount | None, window: str, clients: Mapping[str, Amount] | None, name: str) -> None:
        self._name = name
        self._window: Window = checked_window(window)
        self._clients = {str(client): rounded_down(amount, "cap") for client, amount in (clients or {}).items()}
        words = json.dumps(self._clients, sort_keys=True)
        with self._transaction() as run:
            self._create(run)
            (found,) = run([("SELECT cap, time_window, clients FROM occamroute_ledgers WHERE name = ?", (name,))])
            if found:
                self._reopen(*found[0], cap=cap, clients=words)
            elif cap is None:
                raise InvalidInputError(f"there is no ledger {name!r} yet: a cap is needed to begin one.")
            else:
                self._cap = rounded_down(cap)
                begin = "INSERT INTO occamroute_ledgers (name, cap, time_window, clients, clock) VALUES (?, ?, ?, ?, 0)"
                run([(begin, (name, self._cap, self._window, words))])

    def _reopen(self, stored: int, window: str, known: str, *, cap: Amount | None, clients: str) -> None:
        self._cap = int(stored)
        differences = {
            "cap": (amount_of(self._cap), amount_of(self._cap if cap is None else rounded_down(cap))),
            "window": (window, self._window),
            "list of clients' caps": (known, clients),
        }
        for what, (before, now) in differences.items():
            if before != now:
                raise InvalidInputError(
                    f"ledger {self._name!r} has a {what} of {before}, it cannot be opened with {now}."
                )

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Run]:
        """A transaction that nobody else's change can come between; durable when it ends."""

    @abstractmethod
    def _create(self, run: Run) -> None:
        """Make the tables, if they are not there."""

    @abstractmethod
    def _clock(self) -> Statement:
        """A statement that gives the store's own time, in milliseconds since 1970."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the store."""

    def reserve(self, amount: Amount, *, key: str, lease_seconds: float = 60.0, client: str | None = None) -> Hold:
        """Hold an amount, or raise ``BudgetExceededError``; the same key gives the same hold."""
        quanta, lease = rounded_up(amount), lease_of(lease_seconds)
        with self._transaction() as run:
            state = self._read(run, key, client)
            if state.hold is not None:
                return Hold(key, amount_of(int(state.hold[3])))
            limits = self._limits(client)
            available = min(cap - sum(state.accounts[scope]) for scope, cap in limits.items())
            if quanta > available:
                raise BudgetExceededError(amount_of(quanta), amount_of(max(0, available)))
            hold = (self._name, key, client, state.window, quanta, state.now + int(1000 * lease))
            run([(NEW_HOLD, hold), *self._booked(state.now, "reserve", key, client, state.window, quanta, 0)])
        return Hold(key, amount_of(quanta))

    def settle(self, hold: Hold, amount: Amount) -> None:
        """Turn a hold into what was really spent; only the first time counts."""
        self._end(hold, rounded_up(amount), "settle")

    def release(self, hold: Hold) -> None:
        """Give a hold back: nothing was spent."""
        self._end(hold, 0, "release")

    def balance(self, client: str | None = None) -> Balance:
        """How things stand now in this window, for everybody or for one client."""
        with self._transaction() as run:
            state = self._read(run, None, client)
            scope = client if client is not None and client in self._clients else EVERYBODY
            cap, (held, spent) = self._limits(client)[scope], state.accounts[scope]
        end = window_end(state.now, self._window)
        return Balance(
            cap=amount_of(cap),
            held=amount_of(held),
            spent=amount_of(spent),
            available=amount_of(max(0, cap - held - spent)),
            since=state.window / 1000,
            until=None if end is None else end / 1000,
            now=state.now / 1000,
        )

    def change_cap(self, cap: Amount) -> None:
        """From now on another cap; what is held and spent stays."""
        quanta = rounded_down(cap)
        with self._transaction() as run:
            state = self._read(run, None, None)
            change = ("UPDATE occamroute_ledgers SET cap = ? WHERE name = ?", (quanta, self._name))
            run([change, *self._booked(state.now, "cap", str(amount_of(quanta)), None, state.window, 0, 0)])
            self._cap = quanta

    def entries(self) -> Iterator[Entry]:
        """Everything that ever happened, in order; its sums are the balance."""
        with self._transaction() as run:
            (rows,) = run([(ENTRIES, (self._name,))])
        for number, at, event, key, client, window, held, spent in rows:
            amounts = amount_of(int(held)), amount_of(int(spent))
            yield Entry(int(number), at / 1000, event, key, client, window / 1000, *amounts)

    def _limits(self, client: str | None) -> dict[str, int]:
        """The caps that count, by scope."""
        limits = {EVERYBODY: self._cap}
        if client is not None and client in self._clients:
            limits[client] = self._clients[client]
        return limits

    def _read(self, run: Run, key: str | None, client: str | None) -> _State:
        """Everything that an operation needs; holds whose lease is over are expired on the way."""
        name = self._name
        scopes = (name, EVERYBODY, client or EVERYBODY)
        reads: list[Statement] = [
            self._clock(), (LEDGER, (name,)), (NEXT_DUE, (name,)), (HOLD, (name, key)), (ACCOUNTS, (*scopes, name)),
        ]  # fmt: skip
        (clock,), (ledger,), (due,), holds, accounts = run(reads)
        self._cap, latest = int(ledger[0]), int(ledger[1])
        now = max(int(clock[0]), latest)
        if due[0] is not None and due[0] <= now:
            self._expire(run, now)
            holds, accounts = run(reads[3:])
        if now >= latest + CLOCK_STEP:
            run([("UPDATE occamroute_ledgers SET clock = ? WHERE name = ?", (now, name))])
        window = window_start(now, self._window)
        current = {scope: (int(held), int(spent)) for scope, held, spent, start in accounts if start == window}
        return _State(
            now, window, holds[0] if holds else None,
            {scope: current.get(scope, (0, 0)) for scope in (EVERYBODY, client or EVERYBODY)},
        )  # fmt: skip

    def _expire(self, run: Run, now: int) -> None:
        """Holds whose lease is over count as spent in full."""
        (due,) = run([(DUE, (self._name, now))])
        for key, client, window, amount in due:
            booked = self._booked(now, "expire", key, client, window, -amount, amount)
            run([(MARK, ("expired", self._name, key)), *booked])

    def _end(self, hold: Hold, quanta: int, event: str) -> None:
        with self._transaction() as run:
            state = self._read(run, hold.key, None)
            if state.hold is None:
                raise UnknownNameError("hold", hold.key, ("those that were reserved here",))
            was, client, window, amount = state.hold
            if was == "ended":
                return
            held, spent = (-amount, quanta) if was == "held" else (0, quanta - amount)
            booked = self._booked(state.now, event, hold.key, client, window, held, spent)
            run([(MARK, ("ended", self._name, hold.key)), *booked])

    def _booked(
        self, now: int, event: str, key: str, client: str | None, window: int, held: int, spent: int
    ) -> list[Statement]:
        """Add an entry, and change the accounts that it counts in."""
        statements: list[Statement] = [(ENTRY, (self._name, now, event, key, client, window, held, spent))]
        if held or spent:
            statements += [(BOOK, (self._name, scope, window, held, spent)) for scope in self._limits(client)]
        return statements
