"""Receipts: every decision with all that it followed from, stored, searchable, and made again to check it.

A thread of its own writes them down some milliseconds later, many at once: after a power cut the last ones may be
missing. Money is not here but in the ledger, which is never late.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from occamroute.errors import InvalidInputError, StorageError
from occamroute.routing.decisions import Decision, Terms, decide
from occamroute.routing.explaining import explained
from occamroute.routing.history import History
from occamroute.routing.prices import Price

__all__ = ["Receipts"]

# Nobody keeps more waiting than this; what comes on top while the disk fails is counted and dropped.
WAITING = 100_000
SECONDS = 0.05
KEEP = 1_000_000
# How many of those beyond that are removed at a time.
REMOVED = 2_000
MOST_FOUND = 1_000
SCHEMA = """
CREATE TABLE IF NOT EXISTS receipts (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at REAL NOT NULL, client TEXT,
    classifier TEXT NOT NULL, choice INTEGER NOT NULL, reason TEXT NOT NULL, snapshot TEXT NOT NULL,
    terms TEXT NOT NULL, coin REAL NOT NULL, kind TEXT NOT NULL, features BLOB NOT NULL, success BLOB NOT NULL,
    distances BLOB NOT NULL, rows BLOB NOT NULL, outcome TEXT, feedback TEXT
);
CREATE INDEX IF NOT EXISTS receipts_by_classifier ON receipts (classifier, number);
CREATE INDEX IF NOT EXISTS receipts_by_client ON receipts (client, number) WHERE client IS NOT NULL;
"""
INSERT = (
    "INSERT OR REPLACE INTO receipts (id, at, client, classifier, choice, reason, snapshot, terms, coin, kind, "
    "features, success, distances, rows) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
SELECT = (
    "SELECT id, at, client, choice, reason, snapshot, terms, coin, kind, features, success, distances, rows, outcome, "
    "feedback FROM receipts WHERE id = ?"
)
# Receipts before one that need not be here: of several routers each keeps its own, and ids sort by time. Those that
# were changed after they were made have a later number than their neighbours: rather is one found twice than never.
BEFORE = (
    "number < coalesce((SELECT number FROM receipts WHERE id = ?), (SELECT 1 + max(number) FROM "
    "(SELECT number FROM receipts WHERE id < ? ORDER BY id DESC LIMIT 1000)))"
)
REMOVE = "DELETE FROM receipts WHERE number <= ? AND number IN (SELECT number FROM receipts ORDER BY number LIMIT ?)"


class Receipts:
    """A file of receipts; safe for many threads. ``keep`` is how many stay in it, the oldest go first."""

    def __init__(self, path: str | os.PathLike[str], history: History, *, keep: int = KEEP) -> None:
        self.path = Path(path)
        self.history = history
        self.keep = keep
        self.dropped = 0
        self._waiting: deque[Any] = deque()
        self._something, self._hurry, self._written = threading.Event(), threading.Event(), threading.Condition()
        self._put = self._done = 0
        self._closed = self._failing = False
        self._reader_lock = threading.Lock()
        with self._errors():
            self._writer, self._reader = apsw.Connection(str(path)), apsw.Connection(str(path))
            for connection in (self._writer, self._reader):
                connection.set_busy_timeout(5_000)
            for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", SCHEMA):
                self._writer.execute(statement)
        self._thread = threading.Thread(target=self._run, name="occamroute-receipts", daemon=True)
        self._thread.start()

    def add(self, decisions: Sequence[Decision]) -> None:
        """Have decisions written down soon."""
        self._queue(decisions)

    def outcome(self, name: str, facts: dict[str, Any]) -> None:
        """Say what came of a decision: the answer, the calls, what they cost."""
        self._queue([("UPDATE receipts SET outcome = ? WHERE id = ?", (json.dumps(facts), name))])

    def feedback(self, name: str, facts: dict[str, Any]) -> None:
        """Say what was true."""
        self._queue([("UPDATE receipts SET feedback = ? WHERE id = ?", (json.dumps(facts), name))])

    def get(self, name: str) -> dict[str, Any] | None:
        """A receipt as a dictionary for JSON."""
        found = self.facts(name)
        if found is None:
            return None
        decision, outcome, feedback = found
        return {**explained(decision), "outcome": outcome, "feedback": feedback}

    def decision(self, name: str) -> Decision | None:
        """The decision of a receipt."""
        found = self.facts(name)
        return None if found is None else found[0]

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
            "at >= ?": since,
            "at < ?": until,
            "classifier = ?": classifier,
            "reason = ?": reason,
            "client = ?": client,
            BEFORE: before,
        }
        given = {words: value for words, value in conditions.items() if value is not None}
        values = [value for words, value in given.items() for _ in range(words.count("?"))]
        where = f"WHERE {' AND '.join(given)} " if given else ""
        columns = "id, at, client, classifier, reason, outcome, feedback"
        words = f"SELECT {columns} FROM receipts {where}ORDER BY number DESC LIMIT ?"  # noqa: S608  # our own words
        return [
            {
                **dict(zip(columns.split(", ")[:5], row, strict=False)),
                "outcome": _json(row[5]),
                "feedback": _json(row[6]),
            }
            for row in self._read(words, (*values, limit))
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
        last = 0
        while rows := self._read(
            "SELECT number, id FROM receipts WHERE number > ? ORDER BY number LIMIT 1000", (last,)
        ):
            last = rows[-1][0]
            yield from (row[1] for row in rows)

    def __len__(self) -> int:
        return int(self._read("SELECT count(*) FROM receipts", ())[0][0])

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
        """Write down what waits, and let go of the file."""
        self.flush()
        self._closed = True
        self._hurry.set()
        self._something.set()
        self._thread.join()
        self._writer.close()
        self._reader.close()

    def _queue(self, entries: Sequence[Any]) -> None:
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
            with self._written:
                batch = list(self._waiting)
            if not batch:
                continue
            try:
                self._write(batch)
            except apsw.Error:
                self._something.set()  # a full disk, say: try again
                with self._written:
                    self._failing = True  # nobody who wants to read waits for it
                    self._written.notify_all()
                if self._closed:
                    return
                self._hurry.wait(1.0)
                continue
            with self._written:
                for _ in batch:
                    self._waiting.popleft()
                self._done += len(batch)
                self._failing = False
                self._written.notify_all()

    def _write(self, batch: list[Any]) -> None:
        with self._writer:
            for entry in batch:
                words, values = (INSERT, _stored(entry)) if isinstance(entry, Decision) else entry
                try:
                    self._writer.execute(words, values)
                except (TypeError, ValueError):  # no text or number that a file can hold: the others must be kept
                    self.dropped += 1
            last = self._writer.last_insert_rowid()
            self._writer.execute(REMOVE, (last - self.keep, REMOVED))

    def facts(self, name: str) -> tuple[Decision, Any, Any] | None:
        """A decision, what came of it and what was true, each as far as it is known."""
        rows = self._read(SELECT, (name,))
        if not rows:
            return None
        *facts, outcome, feedback = rows[0]
        return self._decision(facts), _json(outcome), _json(feedback)

    def _decision(self, facts: list[Any]) -> Decision:
        name, at, client, choice, reason, snapshot, terms, coin, kind, features, success, distances, rows = facts
        return Decision(
            name, at, choice, reason, self.history.snapshot(snapshot), _terms(terms), coin,
            np.frombuffer(features, kind), np.frombuffer(success), np.frombuffer(distances),
            np.frombuffer(rows, np.int64), client,
        )  # fmt: skip

    def _read(self, words: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        self.flush()
        with self._reader_lock, self._errors():
            return list(self._reader.execute(words, tuple(values)))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise StorageError(self.path, f"receipts cannot be read or written there ({error})") from error


def _again(decision: Decision) -> tuple[Any, Any, Any]:
    """What the snapshot thinks of the query now: success (1, M), distances and rows (1, k)."""
    snapshot = decision.snapshot
    if decision.features.size == snapshot.width:
        return snapshot.guess(decision.features[None])
    # Its features could not be had: overall accuracies decided, and nothing was near or far.
    return snapshot.profile.accuracy[None], np.zeros((1, 1)), np.empty((1, 0), np.int64)


def _stored(decision: Decision) -> tuple[Any, ...]:
    return (
        decision.id, decision.at, decision.client, decision.name, decision.choice, decision.reason,
        decision.snapshot.id, _terms_text(decision.terms), decision.coin, decision.features.dtype.str,
        decision.features.tobytes(), decision.success.tobytes(), decision.distances.tobytes(), decision.rows.tobytes(),
    )  # fmt: skip


def _terms_text(terms: Terms) -> str:
    """Terms as JSON, whose numbers are read back to the last digit."""
    return json.dumps(
        [*terms.price, terms.cap, terms.available, terms.most, terms.remaining, terms.off, sorted(terms.barred)]
    )


def _terms(text: str) -> Terms:
    value, share, cap, available, most, remaining, off, barred = json.loads(text)
    return Terms(Price(value, share), cap, available, most, remaining, off, frozenset(barred))


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
