"""The rules of a ledger on an SQLite database, in a file or in memory.

Tables: ``occamroute_ledgers`` (cap, window, the latest moment seen), ``occamroute_clients`` (their caps),
``occamroute_accounts`` (held and spent, by scope and window), ``occamroute_holds``, ``occamroute_entries``, whose
sums are the accounts, and ``occamroute_replies`` (since format 2). An operation without a reply changes four pages: one
each of accounts, holds, holds by expiry, and entries.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from occamroute.errors import LedgerError
from occamroute.ledger.base import MOST, Reply, State, amount_of
from occamroute.ledger.bookkeeping import (
    FORMAT,
    REPLIES_FORGOTTEN,
    REPLY_LIFE,
    Bookkeeping,
    Ending,
    Folded,
    Found,
    Lookup,
    Reserved,
    Settings,
    Standing,
    Step,
    Wish,
)
from occamroute.ledger.clocks import JUMPED
from occamroute.ledger.windows import Window, window_start

__all__ = ["EmbeddedLedger"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS occamroute_ledgers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, format INTEGER NOT NULL, cap INTEGER NOT NULL,
    time_window TEXT NOT NULL, clock INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS occamroute_clients (
    ledger INTEGER NOT NULL, client TEXT NOT NULL, cap INTEGER NOT NULL, PRIMARY KEY (ledger, client)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS occamroute_accounts (
    ledger INTEGER NOT NULL, scope TEXT NOT NULL, window_start INTEGER NOT NULL,
    held INTEGER NOT NULL CHECK (held >= 0), spent INTEGER NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (ledger, scope, window_start)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS occamroute_holds (
    ledger INTEGER NOT NULL, hold_key TEXT NOT NULL, client TEXT, window_start INTEGER NOT NULL,
    amount INTEGER NOT NULL, expires INTEGER NOT NULL, state TEXT NOT NULL, maker INTEGER NOT NULL,
    PRIMARY KEY (ledger, hold_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS occamroute_holds_due ON occamroute_holds (ledger, expires) WHERE state = 'held';
CREATE TABLE IF NOT EXISTS occamroute_entries (
    ledger INTEGER NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, event TEXT NOT NULL,
    hold_key TEXT NOT NULL, client TEXT, window_start INTEGER NOT NULL, held INTEGER NOT NULL, spent INTEGER NOT NULL,
    PRIMARY KEY (ledger, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS occamroute_replies (
    ledger INTEGER NOT NULL, hold_key TEXT NOT NULL, about TEXT NOT NULL, content TEXT NOT NULL,
    expires INTEGER NOT NULL, PRIMARY KEY (ledger, hold_key)
) STRICT;
CREATE INDEX IF NOT EXISTS occamroute_replies_due ON occamroute_replies (ledger, expires);
"""
# Everybody's account, beside those of clients, whose names are never empty.
EVERYBODY = ""
# Time may not run backwards, or a window would begin twice: the latest moment seen is written down this often.
CLOCK_STEP = 1000
# However many leases are over at once, no operation keeps others waiting for more than these.
AT_ONCE = 1000

FIND = "SELECT id, format, cap, time_window FROM occamroute_ledgers WHERE name = ?"
BEGIN = "INSERT INTO occamroute_ledgers (name, format, cap, time_window, clock) VALUES (?, ?, ?, ?, 0)"
MIGRATE = "UPDATE occamroute_ledgers SET format = ? WHERE id = ?"
CLIENTS = "SELECT client, cap FROM occamroute_clients WHERE ledger = ?"
SET_CLIENT = "INSERT OR REPLACE INTO occamroute_clients (ledger, client, cap) VALUES (?, ?, ?)"
DROP_CLIENT = "DELETE FROM occamroute_clients WHERE ledger = ? AND client = ?"
SET_CAP = "UPDATE occamroute_ledgers SET cap = ? WHERE id = ?"
SET_CLOCK = "UPDATE occamroute_ledgers SET clock = ? WHERE id = ?"
MOMENT = (
    "SELECT cap, time_window, clock, "
    "(SELECT min(expires) FROM occamroute_holds WHERE ledger = ?1 AND state = 'held'), "
    "(SELECT max(number) FROM occamroute_entries WHERE ledger = ?1) FROM occamroute_ledgers WHERE id = ?1"
)
ACCOUNT = "SELECT held, spent FROM occamroute_accounts WHERE ledger = ? AND scope = ? AND window_start = ?"
OWN_CAP = "SELECT cap FROM occamroute_clients WHERE ledger = ? AND client = ?"
HOLD = "SELECT client, window_start, amount, state, maker FROM occamroute_holds WHERE ledger = ? AND hold_key = ?"
FOUND = "SELECT amount, state, maker, client, expires FROM occamroute_holds WHERE ledger = ? AND hold_key = ?"
DUE = (
    "SELECT hold_key, client, window_start, amount FROM occamroute_holds "
    "WHERE ledger = ? AND state = 'held' AND expires <= ? ORDER BY expires LIMIT ?"
)
NEW_HOLD = "INSERT INTO occamroute_holds VALUES (?, ?, ?, ?, ?, ?, 'held', ?)"
# For a hold that has ended, ``expires`` is when it did. (0.1.0 left there when its lease was over.)
MARK = "UPDATE occamroute_holds SET state = ?, expires = ? WHERE ledger = ? AND hold_key = ?"
REPLY = "SELECT about, content FROM occamroute_replies WHERE ledger = ? AND hold_key = ? AND expires > ?"
STORE_REPLY = "INSERT OR REPLACE INTO occamroute_replies VALUES (?, ?, ?, ?, ?)"
FORGET_REPLIES = (
    "DELETE FROM occamroute_replies WHERE rowid IN "
    "(SELECT rowid FROM occamroute_replies WHERE ledger = ? AND expires <= ? ORDER BY expires LIMIT ?)"
)
ENTRY = "INSERT INTO occamroute_entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
BOOK = (
    "INSERT INTO occamroute_accounts VALUES (?, ?, ?, ?, ?) ON CONFLICT (ledger, scope, window_start) "
    "DO UPDATE SET held = held + excluded.held"
)
REBOOK = (
    f"UPDATE occamroute_accounts SET held = held + ?1, spent = CASE WHEN ?2 > {MOST} - spent THEN {MOST} "  # noqa: S608
    "ELSE spent + ?2 END WHERE ledger = ?3 AND scope = ?4 AND window_start = ?5"
)
RESTATE = (
    "UPDATE occamroute_accounts SET held = held + ?, spent = ? WHERE ledger = ? AND scope = ? AND window_start = ?"
)
# In two halves: SQLite refuses a sum that 64 bits do not hold.
HALVES = "SELECT coalesce(sum(spent >> 32), 0), coalesce(sum(spent & 4294967295), 0) FROM occamroute_entries "
SPENT_IN_ALL = f"{HALVES} WHERE ledger = ?1 AND window_start = ?3 AND (?2 = '' OR client = ?2)"
# Entries before the reservation are those of an earlier hold of this key, whose compaction was interrupted.
SPENT_UNDER = (
    f"{HALVES} WHERE ledger = ?1 AND hold_key = ?2 AND event NOT IN ('cap', 'compact') AND number >= "  # noqa: S608
    "(SELECT max(number) FROM occamroute_entries WHERE ledger = ?1 AND hold_key = ?2 AND event = 'reserve')"
)
FOLDABLE = (
    "SELECT number, at, event, entry.hold_key, entry.client, entry.window_start, held, spent, state, "
    "event <> 'cap' AND (state IS NULL OR (state <> 'held' AND expires < ?4)) FROM occamroute_entries AS entry "
    "LEFT JOIN occamroute_holds AS hold ON hold.ledger = entry.ledger AND hold.hold_key = entry.hold_key "
    "AND event NOT IN ('cap', 'compact') "
    "WHERE entry.ledger = ?1 AND number > ?2 ORDER BY number LIMIT ?3"
)
SUMMARY = (
    "SELECT number, at, event, hold_key, client, window_start, held, spent, NULL, 1 FROM occamroute_entries "
    "WHERE ledger = ? AND number = ? AND event = 'compact'"
)
SUMMARIZE = (
    "UPDATE occamroute_entries SET at = ?, event = 'compact', hold_key = ?, held = ?, spent = ? "
    "WHERE ledger = ? AND number = ?"
)
REMOVE_ENTRY = "DELETE FROM occamroute_entries WHERE ledger = ? AND number = ?"
REMOVE_HOLD = "DELETE FROM occamroute_holds WHERE ledger = ? AND hold_key = ?"
ENTRIES = (
    "SELECT number, at, event, hold_key, client, window_start, held, spent FROM occamroute_entries "
    "WHERE ledger = ? AND number > ? AND number < ? ORDER BY number LIMIT ?"
)
NEWEST = ENTRIES.replace("ORDER BY number", "ORDER BY number DESC")
EVENTS: dict[State, str] = {"held": "reserve", "settled": "settle", "released": "release", "expired": "expire"}


@dataclass
class _Moment:
    """Now, and what an operation must know of its ledger; ``last`` is the number of the last entry."""

    now: int
    start: int
    window: Window
    cap: int
    latest: int
    due: bool
    last: int


class _Old(NamedTuple):
    """An entry; ``state`` is that of its hold, if there is one, and ``is_free`` whether that allows it to be folded."""

    number: int
    at: int
    event: str
    key: str
    client: str | None
    start: int
    held: int
    spent: int
    state: str | None
    is_free: int


def _sums(entries: Sequence[_Old]) -> tuple[int, int]:
    return sum(entry.held for entry in entries), sum(entry.spent for entry in entries)


def _fits(entries: Sequence[_Old]) -> bool:
    return all(abs(amount) <= MOST for amount in _sums(entries))


class EmbeddedLedger(Bookkeeping):
    """A cap in an SQLite database; a store gives the connection, transactions and the time."""

    _connection: Any
    _id: int

    @abstractmethod
    def _reading(self) -> AbstractContextManager[None]:
        """The connection is this thread's alone; nothing will be written."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[None]:
        """A transaction that nobody else's change can come between; durable when it ends."""

    @abstractmethod
    def _time(self) -> int:
        """The store's own time, in milliseconds since 1970."""

    def _begin(self, settings: Settings | None) -> Settings | None:
        with self._writing():
            self._run(SCHEMA)
            found = self._run(FIND, self._name)
            if not found and settings is None:
                return None
            if not found and settings is not None:
                self._run(BEGIN, self._name, FORMAT, settings.cap, settings.window)
                found = self._run(FIND, self._name)
                for client, cap in settings.clients.items():
                    self._run(SET_CLIENT, found[0][0], client, cap)
            self._id, form, cap, window = found[0]
            self._checked_format(form)
            if form != FORMAT:  # of 0.1.0, which had all tables but that of the replies
                self._run(MIGRATE, FORMAT, self._id)
            return Settings(cap, window, dict(self._run(CLIENTS, self._id)))

    def _apply(self, steps: Sequence[Step]) -> list[Found]:
        if not any(isinstance(step, Wish | Ending) for step in steps):
            with self._reading():
                return self._done_at(self._moment(), steps)
        with self._writing():
            return self._done_at(self._up_to_date(), steps)

    def _done_at(self, moment: _Moment, steps: Sequence[Step]) -> list[Found]:
        done: list[Found] = []
        for step in steps:
            if isinstance(step, Wish):
                done.append(self._reserve(moment, step))
            elif isinstance(step, Ending):
                done.append(self._end(moment, step))
            else:
                find = self._find if isinstance(step, Lookup) else self._find_reply
                done.append(find(moment, step.key))
        return done

    def _reserve(self, moment: _Moment, wish: Wish) -> Reserved:
        standing = self._standing_at(moment, wish.client)
        known = self._run(HOLD, self._id, wish.key)
        if known:
            client, _, amount, state, maker = known[0]
            return Reserved(standing.available, amount, state, maker, client)
        if wish.amount > standing.available:
            return Reserved(standing.available)
        expires = moment.now + wish.lease
        self._run(NEW_HOLD, self._id, wish.key, wish.client, moment.start, wish.amount, expires, wish.maker)
        self._book(moment, "reserve", wish.key, wish.client, moment.start, wish.amount, 0)
        self._store(moment, wish.key, wish.reply)
        return Reserved(standing.available, wish.amount, "held", wish.maker, wish.client)

    def _end(self, moment: _Moment, ending: Ending) -> bool:
        known = self._run(HOLD, self._id, ending.key)
        if known and self._change(moment, ending.key, known[0], ending.spent, ending.state):
            self._store(moment, ending.key, ending.reply)
        return bool(known)

    def _store(self, moment: _Moment, key: str, reply: Reply | None) -> None:
        if reply is not None:
            self._run(STORE_REPLY, self._id, key, reply.about, reply.content, moment.now + REPLY_LIFE)
            self._run(FORGET_REPLIES, self._id, moment.now, REPLIES_FORGOTTEN)

    def _find(self, moment: _Moment, key: str) -> Reserved | None:
        known = self._run(FOUND, self._id, key)
        if not known:
            return None
        amount, state, maker, client, expires = known[0]
        over = state == "held" and expires <= moment.now
        return Reserved(0, amount, "expired" if over else state, maker, client)

    def _find_reply(self, moment: _Moment, key: str) -> Reply | None:
        found = self._run(REPLY, self._id, key, moment.now)
        return Reply(*found[0]) if found else None

    def _change(self, moment: _Moment, key: str, hold: tuple[Any, ...], spent: int, state: State) -> bool:
        """End a hold that has not ended for good; whether it had not."""
        client, start, amount, before, _ = hold
        if before not in ("held", "expired"):
            return False
        was_held, was_spent = (amount, 0) if before == "held" else (0, amount)
        self._run(MARK, state, moment.now, self._id, key)
        self._book(moment, EVENTS[state], key, client, start, -was_held, spent - was_spent)
        return True

    def _correct(self, key: str, spent: int) -> bool:
        with self._writing():
            moment = self._up_to_date()
            known = self._run(HOLD, self._id, key)
            if known:
                client, start, amount, before, _ = known[0]
                held = amount if before == "held" else 0
                more = spent - self._whole(SPENT_UNDER, self._id, key)
                if held or more:
                    self._run(MARK, "settled", moment.now, self._id, key)
                    self._book(moment, "correct", key, client, start, -held, more)
            return bool(known)

    def _standing(self, client: str | None) -> Standing:
        with self._reading():
            moment = self._moment()
            standing = self._standing_at(moment, client)
        while moment.due:
            with self._writing():
                moment = self._up_to_date()
                standing = self._standing_at(moment, client)
        return standing

    def _set_cap(self, cap: int | None, client: str | None) -> None:
        with self._writing():
            moment = self._up_to_date()
            if client is None:
                self._run(SET_CAP, cap, self._id)
            elif cap is None:
                self._run(DROP_CLIENT, self._id, client)
            else:
                self._run(SET_CLIENT, self._id, client, cap)
            self._book(moment, "cap", "none" if cap is None else str(amount_of(cap)), client, moment.start, 0, 0)

    def _block(self, after: int, before: int, limit: int, newest: bool) -> Sequence[tuple[Any, ...]]:
        with self._reading():
            return self._run(NEWEST if newest else ENTRIES, self._id, after, before, limit)

    def _fold(self, after: int, most: int, summaries: Sequence[int], keep: int) -> Folded:
        with self._writing():
            oldest = self._moment().now - keep
            rows = self._run(FOLDABLE, self._id, after, most, oldest)
            old = [entry for entry in map(_Old._make, rows) if entry.is_free and entry.at < oldest]
            old += [_Old(*row) for number in summaries for row in self._run(SUMMARY, self._id, number)]
            groups: dict[tuple[int, str | None], list[_Old]] = {}
            for entry in old:
                groups.setdefault((entry.start, entry.client), []).append(entry)
            folded = {who: some for who, some in groups.items() if _fits(some)}
            holds = {entry.key for some in folded.values() for entry in some if entry.state is not None}
            for some in folded.values():
                self._summarize(some)
            for key in holds:
                self._run(REMOVE_HOLD, self._id, key)
        return Folded(
            last=rows[-1][0] if rows else None,
            done=not rows or rows[-1][1] >= oldest,
            entries=sum(len(some) - 1 for some in folded.values()),
            holds=len(holds),
            summaries=[(*who, max(entry.number for entry in some)) for who, some in folded.items()],
        )

    def _summarize(self, entries: Sequence[_Old]) -> None:
        kept = max(entries, key=lambda entry: entry.number)
        if len(entries) == 1 and kept.event == "compact":
            return
        for entry in entries:
            if entry is not kept:
                self._run(REMOVE_ENTRY, self._id, entry.number)
        count = sum(int(entry.key) if entry.event == "compact" else 1 for entry in entries)
        latest, held, spent = max(entry.at for entry in entries), *_sums(entries)
        self._run(SUMMARIZE, latest, str(count), held, spent, self._id, kept.number)

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(statement, values))

    def _check_clock(self, reading: int) -> None:
        if not self._clock.trusts(reading):
            raise LedgerError(self._place, JUMPED)

    def _moment(self) -> _Moment:
        """The ledger as it is, at a time that is never before one seen earlier."""
        clock = self._time()
        self._check_clock(clock)
        found = self._run(MOMENT, self._id)
        if not found:
            raise self._gone()
        cap, window, latest, first_due, last = found[0]
        now = max(clock, latest)
        due = first_due is not None and first_due <= now
        return _Moment(now, window_start(now, window), window, cap, latest, due, last or 0)

    def _up_to_date(self) -> _Moment:
        """The same after leases that are over were expired; ``due`` if there were more than can be done at once."""
        moment = self._moment()
        if moment.due:
            over = self._run(DUE, self._id, moment.now, AT_ONCE)
            for key, client, start, amount in over:
                self._change(moment, key, (client, start, amount, "held", 0), amount, "expired")
            moment.due = len(over) == AT_ONCE
        return moment

    def _standing_at(self, moment: _Moment, client: str | None) -> Standing:
        everybody = self._account(EVERYBODY, moment.start)
        common = (moment.now, moment.start, moment.window, moment.cap, *everybody)
        if client is None:
            return Standing(*common)
        own_cap = self._run(OWN_CAP, self._id, client)
        return Standing(*common, own_cap[0][0] if own_cap else None, *self._account(client, moment.start))

    def _account(self, scope: str, start: int) -> tuple[int, int]:
        found = self._run(ACCOUNT, self._id, scope, start)
        return (found[0][0], found[0][1]) if found else (0, 0)

    def _rebook(self, scope: str, start: int, held: int, spent: int) -> None:
        """Change an account by an entry; one that was full is counted again, for it held less than the entries say."""
        if spent < 0 and self._account(scope, start)[1] == MOST:
            exactly = min(MOST, self._whole(SPENT_IN_ALL, self._id, scope, start))
            self._run(RESTATE, held, exactly, self._id, scope, start)
        else:
            self._run(REBOOK, held, spent, self._id, scope, start)

    def _whole(self, halves: str, *values: Any) -> int:
        high, low = self._run(halves, *values)[0]
        return (int(high) << 32) + int(low)

    def _book(
        self, moment: _Moment, event: str, key: str, client: str | None, start: int, held: int, spent: int
    ) -> None:
        """Add an entry, and change the accounts that it counts in."""
        moment.last += 1
        self._run(ENTRY, self._id, moment.last, moment.now, event, key, client, start, held, spent)
        for scope in (EVERYBODY,) if client is None else (EVERYBODY, client):
            if event == "reserve":
                self._run(BOOK, self._id, scope, start, held, 0)
            elif held or spent:
                self._rebook(scope, start, held, spent)
        if moment.now >= moment.latest + CLOCK_STEP or window_start(moment.latest, moment.window) != moment.start:
            self._run(SET_CLOCK, moment.now, self._id)
            moment.latest = moment.now
