"""Receipts: every decision with all that it followed from, stored, searchable, and made again to check it.

They are in the ledger's database, where every process that shares the ledger finds them; a router whose ledger has
none keeps them in a file. A thread of its own writes them down some milliseconds later, many at once: after a power
cut the last ones may be missing. Money is not here but in the ledger, which is never late.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from occamroute.errors import InvalidInputError, StorageError
from occamroute.ledger.database import Database, SqliteDatabase, Statement
from occamroute.routing.decisions import Decision, decide
from occamroute.routing.explaining import explained, explained_without_rows
from occamroute.routing.history import History
from occamroute.routing.old_receipts import OLD_TABLE, is_there, old_rows, rows_of_file, set_aside
from occamroute.routing.stored_decisions import COLUMNS, TABLE, StoredDecision, as_row, from_row

__all__ = ["Receipts"]

# The most entries that wait to be written; what comes on top while the database fails is counted and dropped.
WAITING = 100_000
SECONDS = 0.05
# Seconds that a reader waits for what another process is about to write, and how many readers may wait at a time: a
# client that asks for what never comes must not keep all threads of a service.
LATE, PATIENT = 0.3, 4
# Seconds for which a decision counts as new: machines' clocks differ a little.
NEW = 2.0
KEEP = 1_000_000
# Of the number to keep, the share by which it may be exceeded before the oldest are removed.
SLACK = 20
# Rows of one transaction: a few milliseconds, which is how long an operation of a ledger in the same file may wait.
AT_ONCE = 250
# How many such transactions remove the oldest, before what waits has its turn.
REMOVED_AT_ONCE = 8
MOST_FOUND = 1_000
# Ids sort by time, whichever process made them.
SCHEMA = """
CREATE TABLE IF NOT EXISTS occamroute_receipts (
    ledger TEXT NOT NULL, id TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, client TEXT, classifier TEXT NOT NULL,
    choice INTEGER NOT NULL, reason TEXT NOT NULL, snapshot TEXT NOT NULL, terms TEXT NOT NULL,
    coin DOUBLE PRECISION NOT NULL, kind TEXT NOT NULL, features {blob} NOT NULL, success {blob} NOT NULL,
    distances {blob} NOT NULL, rows {blob} NOT NULL, costs TEXT NOT NULL, outcome TEXT, feedback TEXT,
    PRIMARY KEY (ledger, id)
);
CREATE INDEX IF NOT EXISTS occamroute_receipts_by_classifier ON occamroute_receipts (ledger, classifier, id);
CREATE INDEX IF NOT EXISTS occamroute_receipts_by_client ON occamroute_receipts (ledger, client, id)
    WHERE client IS NOT NULL;
"""
MADE = COLUMNS[:-2]  # all but what is only known later
INSERT = (
    f"INSERT INTO {TABLE} (ledger, {', '.join(MADE)}) VALUES (?{', ?' * len(MADE)}) ON CONFLICT (ledger, id) "  # noqa: S608  # our own words
    f"DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in MADE[1:])}"
)
BRING = f"INSERT INTO {TABLE} (ledger, {', '.join(COLUMNS)}) VALUES (?{', ?' * len(COLUMNS)}) ON CONFLICT DO NOTHING"  # noqa: S608
OUTCOME = f"UPDATE {TABLE} SET outcome = ? WHERE ledger = ? AND id = ?"  # noqa: S608
FEEDBACK = f"UPDATE {TABLE} SET feedback = ? WHERE ledger = ? AND id = ? AND feedback IS NULL"  # noqa: S608
SELECT = f"SELECT {', '.join(COLUMNS)} FROM {TABLE} WHERE ledger = ? AND id = ?"  # noqa: S608
SHORT = ("id", "at", "client", "classifier", "reason", "outcome", "feedback")
COUNT = f"SELECT count(*) FROM {TABLE} WHERE ledger = ?"  # noqa: S608
NAMES = f"SELECT id FROM {TABLE} WHERE ledger = ? AND id > ? ORDER BY id LIMIT 1000"  # noqa: S608
# The newest that is not kept, the oldest up to it, and their end.
BEYOND = f"SELECT id FROM {TABLE} WHERE ledger = ? ORDER BY id LIMIT 1 OFFSET ?"  # noqa: S608
OLDEST = f"SELECT id FROM {TABLE} WHERE ledger = ? AND id <= ? ORDER BY id LIMIT ?"  # noqa: S608
REMOVE = f"DELETE FROM {TABLE} WHERE ledger = ? AND id <= ?"  # noqa: S608


class Receipts:
    """Receipts in a database, or in a file; safe for many threads. ``keep`` is how many stay, the oldest go first.

    A file keeps those of one router. In a database ``place.ledger`` tells those of several ledgers apart. Those of the
    file ``old``, if there is one, are brought over at first, and the file gets another name; interrupted, that is done
    again the next time.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | Database,
        history: History,
        *,
        keep: int = KEEP,
        old: Path | None = None,
    ) -> None:
        self.history = history
        self.keep = keep
        self.dropped = 0
        self._own = isinstance(place, str | os.PathLike)
        self._database: Database = SqliteDatabase(place) if isinstance(place, str | os.PathLike) else place
        self._ledger = self._database.ledger
        self._waiting: deque[Statement | Decision] = deque()
        self._something, self._hurry, self._written = threading.Event(), threading.Event(), threading.Condition()
        self._put = self._done = 0
        self._closed = self._failing = False
        self._patient = threading.Semaphore(PATIENT)
        # How many were written since all were last counted (they are at the first write, however short processes live),
        # and up to which the oldest are to be removed.
        self._untrimmed, self._beyond = keep, ""
        self._database.create(TABLE, SCHEMA.format(blob=self._database.blob))
        if self._own and is_there(self._database, OLD_TABLE):
            self._bring(old_rows(self._database, history))
            self._database.write([(f"DROP TABLE {OLD_TABLE}", ())])
        if old is not None and old.exists():
            self._bring(rows_of_file(old, history))
            set_aside(old)
        self._thread = threading.Thread(target=self._run, name="occamroute-receipts", daemon=True)
        self._thread.start()

    def add(self, decisions: Sequence[Decision]) -> None:
        """Have decisions written down soon."""
        self._queue(decisions)

    def outcome(self, name: str, facts: dict[str, Any]) -> None:
        """Say what came of a decision: the answer, the calls, what they cost."""
        self._queue([(OUTCOME, (json.dumps(facts), self._ledger, name))])

    def feedback(self, name: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Say what was true; what was said first, by whichever process, stays and is returned."""
        self.flush()
        self._database.write([(FEEDBACK, (json.dumps(facts), self._ledger, name))])
        found = self.find(name)
        if found is None:
            raise InvalidInputError(f"there is no receipt {name!r}.")
        first: dict[str, Any] = found.feedback
        return first

    def find(self, name: str, *, answered: bool = False) -> StoredDecision | None:
        """A decision as it was stored; None if there is none.

        Another process writes a decision, and its outcome where it is wanted (``answered``), some milliseconds after
        its client has heard of it: those are waited for.
        """
        found, is_whole = self._found(name, answered)
        if is_whole or self._own or not self._patient.acquire(blocking=False):
            return found
        try:
            deadline = time.monotonic() + LATE
            while not is_whole and time.monotonic() < deadline:
                time.sleep(LATE / 20)
                found, is_whole = self._found(name, answered)
        finally:
            self._patient.release()
        return found

    def _found(self, name: str, answered: bool) -> tuple[StoredDecision | None, bool]:
        """A decision, and whether no more of it is to be expected."""
        rows = self._read(SELECT, (self._ledger, name))
        if not rows:
            return None, not _is_new(name)
        found = from_row(rows[0])
        return found, found.outcome is not None or not answered

    def get(self, name: str) -> dict[str, Any] | None:
        """A receipt as a dictionary for JSON; without neighbours where the labelled rows are not known."""
        found = self.find(name)
        if found is None:
            return None
        known = found.snapshot in self.history
        facts = explained(self._decision(found)) if known else explained_without_rows(found)
        return {**facts, "outcome": found.outcome, "feedback": found.feedback}

    def decision(self, name: str) -> Decision | None:
        """The decision of a receipt; ``InvalidInputError`` where its labelled rows are not known."""
        found = self.find(name)
        return None if found is None else self._decision(found)

    def facts(self, name: str) -> tuple[Decision, Any, Any] | None:
        """A decision, what came of it and what was true, each as far as it is known."""
        found = self.find(name)
        return None if found is None else (self._decision(found), found.outcome, found.feedback)

    def search(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        classifier: str | None = None,
        reason: str | None = None,
        client: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[dict[str, Any]]:
        """The latest receipts that fit, in short, newest first; ``before`` is the id of the last one already seen."""
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_FOUND:
            raise InvalidInputError(f"limit must be a whole number from 1 to {MOST_FOUND}, got {limit!r}.")
        conditions = {
            "ledger = ?": self._ledger,
            "at >= ?": since,
            "at < ?": until,
            "classifier = ?": classifier,
            "reason = ?": reason,
            "client = ?": client,
            "id < ?": before,
        }
        given = {words: value for words, value in conditions.items() if value is not None}
        words = f"SELECT {', '.join(SHORT)} FROM {TABLE} WHERE {' AND '.join(given)} ORDER BY id DESC LIMIT ?"  # noqa: S608
        return [
            {**dict(zip(SHORT, row, strict=True)), "outcome": _json(row[5]), "feedback": _json(row[6])}
            for row in self._read(words, (*given.values(), limit))
        ]

    def replay(self, name: str) -> bool:
        """Whether the same query, terms and labelled rows give the same decision again, to the last digit."""
        decision = self.decision(name)
        if decision is None:
            raise InvalidInputError(f"there is no receipt {name!r}.")
        snapshot = decision.snapshot
        success, distances, rows = _again(decision)
        same = bool((success[0] == decision.success).all() and (rows[0] == decision.rows).all())
        if decision.reason == "second_choice":  # which depends on what calls and the ledger said
            return same
        choice, _ = decide(snapshot, success, distances, decision.terms, np.array([decision.coin]))
        return same and int(choice[0]) == decision.choice

    def names(self) -> Iterator[str]:
        """The ids of all receipts, oldest first."""
        last = ""
        while rows := self._read(NAMES, (self._ledger, last)):
            last = rows[-1][0]
            yield from (row[0] for row in rows)

    def __len__(self) -> int:
        return int(self._read(COUNT, (self._ledger,))[0][0])

    def flush(self) -> None:
        """Wait until everything added so far is written down, or cannot be."""
        with self._written:
            wanted = self._put
            if self._done >= wanted:
                return
            self._hurry.set()
            self._something.set()
            self._written.wait_for(lambda: self._done >= wanted or self._failing or self._closed, timeout=30.0)

    def close(self) -> None:
        """Write down what waits, and let go of the database."""
        self.flush()
        self._closed = True
        self._hurry.set()
        self._something.set()
        self._thread.join()
        if self._own:
            self._database.close()

    def _bring(self, found: Iterable[Sequence[tuple[Any, ...]]]) -> None:
        for rows in found:
            self._write([(BRING, (self._ledger, *row)) for row in rows])

    def _queue(self, entries: Sequence[Statement | Decision]) -> None:
        with self._written:
            if len(self._waiting) > WAITING:
                self.dropped += len(entries)
                return
            self._waiting.extend(entries)
            self._put += len(entries)
        self._something.set()

    def _run(self) -> None:
        while True:
            self._something.wait()
            if self._closed and not self._waiting:
                return
            self._something.clear()
            # A short nap gathers what comes meanwhile: one transaction for many.
            self._hurry.wait(SECONDS)
            self._hurry.clear()
            try:
                self._write_waiting()
            except StorageError:
                self._something.set()  # a full disk, say: try again
                with self._written:
                    self._failing = True  # nobody who wants to read waits for it
                    self._written.notify_all()
                if self._closed:
                    return
                self._hurry.wait(1.0)

    def _write_waiting(self) -> None:
        """Write down everything that waits now, some at a time."""
        with self._written:
            waiting = list(self._waiting)
        for start in range(0, len(waiting), AT_ONCE):
            some = waiting[start : start + AT_ONCE]
            self._write(sorted(map(self._statement, some), key=_is_later))
            self._untrimmed += len(some)
            with suppress(StorageError):  # there is a next time
                self._trim()
            with self._written:
                for _ in some:
                    self._waiting.popleft()
                self._done += len(some)
                self._failing = False
                self._written.notify_all()

    def _statement(self, entry: Statement | Decision) -> Statement:
        return (INSERT, (self._ledger, *as_row(entry))) if isinstance(entry, Decision) else entry

    def _write(self, statements: Sequence[Statement]) -> None:
        """One transaction; where the database cannot hold a value, one for each, so that the others are kept."""
        try:
            self._database.write(statements)
        except StorageError:
            raise
        except (TypeError, ValueError, OverflowError):
            if len(statements) == 1:
                self.dropped += 1
                return
            for one in statements:
                self._write([one])

    def _trim(self) -> None:
        """Remove some of the oldest, if there are more than are kept."""
        if not self._beyond and self._untrimmed > self.keep // SLACK:
            self._untrimmed = 0
            more = self._database.read(COUNT, (self._ledger,))[0][0] - self.keep
            found = self._database.read(BEYOND, (self._ledger, more - 1)) if more > 0 else []
            self._beyond = found[0][0] if found else ""
        for _ in range(REMOVED_AT_ONCE):
            if not self._beyond:
                return
            oldest = self._database.read(OLDEST, (self._ledger, self._beyond, AT_ONCE))
            if not oldest:
                self._beyond = ""
                return
            self._database.write([(REMOVE, (self._ledger, oldest[-1][0]))])

    def _decision(self, found: StoredDecision) -> Decision:
        if found.snapshot not in self.history:
            raise InvalidInputError(
                f"decision {found.id!r} was made by labelled rows that are not known here: "
                f"there is no snapshot {found.snapshot!r} in {self.history.folder}."
            )
        return found.decision(self.history.snapshot(found.snapshot))

    def _read(self, words: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        self.flush()
        try:
            return self._database.read(words, values)
        except StorageError:
            raise
        except ValueError:  # a text that the database cannot hold, and so no receipt has
            return []


def _is_new(name: str) -> bool:
    """Whether a decision was made just now, as its id says."""
    try:
        return abs(time.time() - int(name[:12], 16) / 1000) < NEW
    except ValueError:
        return False


def _is_later(statement: Statement) -> bool:
    """Decisions are inserted before anything is said of them, so that the same statements are beside each other."""
    return statement[0] != INSERT


def _again(decision: Decision) -> tuple[Any, Any, Any]:
    """What the snapshot thinks of the query now: success (1, M), distances and rows (1, k)."""
    snapshot = decision.snapshot
    if decision.features.size == snapshot.width:
        return snapshot.guess(decision.features[None])
    # Its features could not be had: overall accuracies decided, and nothing was near or far.
    return snapshot.profile.accuracy[None], np.zeros((1, 1)), np.empty((1, 0), np.int64)


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
