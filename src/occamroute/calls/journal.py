"""Journal: every call of a run in one SQLite file, before it is made and after it has ended.

A run that was interrupted goes on from it: answers that are there are not bought again, and calls that were under
way count as spent at their worst case, since nobody knows whether they were charged.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from occamroute._arrays import IntArray
from occamroute.calls.pending_settlements import Settlement, SettlementTable
from occamroute.calls.sources import Outcome
from occamroute.calls.threads import DaemonThreads
from occamroute.errors import CallError, JournalError

__all__ = ["Begun", "Finished", "Journal", "JournalQueue", "waited_for"]

FORMAT = 1
SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, queries BLOB NOT NULL, reserved TEXT NOT NULL,
    charged TEXT
);
CREATE TABLE outcomes (
    id INTEGER PRIMARY KEY, call INTEGER NOT NULL REFERENCES calls(id), queries BLOB NOT NULL, charged TEXT NOT NULL,
    costs BLOB NOT NULL, seconds REAL NOT NULL, probabilities BLOB, features BLOB, failures TEXT NOT NULL, error TEXT
);
"""

# What entries begin with that name a process, before the number of its first call.
PROCESS = "process from call "
COLUMNS = ("queries", "charged", "costs", "seconds", "probabilities", "features", "failures", "error")

UNUSED = "SELECT NOT EXISTS (SELECT 1 FROM calls)"
BUSY = "another process is writing it"
# Seconds to wait for a process that writes a journal, and between looks.
PATIENCE, GLANCE = 3600.0, 0.2
DAMAGED = "it is no journal of occamroute, or it is damaged"

# A call that is about to be made: its number, source and queries, and the most that it can cost.
Begun = tuple[int, str, IntArray, Fraction]
# A call that has ended: its number, what it was charged in all, and what it came to.
Finished = tuple[int, Fraction, list[Outcome]]


class Journal:
    """The calls of one run on disk, or nowhere (``path`` None).

    ``about`` says what the run is: a journal that says something else is refused. ``run`` is what it is called
    wherever else it is known, by default a name of its own. Each method is one transaction that is on the disk when it
    returns.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, about: Mapping[str, str], *, run: str | None = None
    ) -> None:
        self._path = None if path is None else Path(path)
        self._calls = 0
        # What keys of this run begin with wherever else it is known; a resumed run is the same one.
        self.run = run or uuid.uuid4().hex
        # What only those know who have the journal.
        self.token = uuid.uuid4().hex
        # This process, and with the number of its first call every one that wrote the journal before.
        self.process = uuid.uuid4().hex[:8]
        self._processes: list[tuple[int, str]] = []
        if run is not None:
            about = {**about, "run": run}
        self._base: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._mine, self._waited_for = False, run is not None
        if self._path is None:
            return
        if not self._path.parent.is_dir():
            raise JournalError(self._path, f"the folder {self._path.parent} does not exist")
        if self._path.is_dir():
            raise JournalError(self._path, "it was begun with an executor: go on with one, or name another")
        try:
            # Calls are written down on a thread of their own; the lock keeps these writes apart from others.
            self._base = sqlite3.connect(self._path, timeout=0.5, isolation_level=None, check_same_thread=False)
            # One process owns the file: a second one would pay for the same queries.
            self._base.executescript("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")
            self._begin(about)
            self._mine = True
        except sqlite3.OperationalError as error:
            self.close()
            busy = "locked" in str(error)
            raise JournalError(self._path, BUSY if busy else str(error)) from None
        except (sqlite3.DatabaseError, LookupError):
            self.close()
            raise JournalError(self._path, DAMAGED) from None
        except JournalError:
            self.close()
            raise

    def _begin(self, about: Mapping[str, str]) -> None:
        base = self._open
        tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        wanted = {"format": str(FORMAT), **about}
        if not tables:
            base.executescript("BEGIN EXCLUSIVE;" + SCHEMA)
            self._settlements.create()
            base.executemany(
                "INSERT INTO about VALUES (?, ?)", {**wanted, "run": self.run, "token": self.token}.items()
            )
            self._name_process(base)
            base.execute("COMMIT")
            return
        if "about" not in tables:
            raise JournalError(self._path, "it is a database of something else")
        found = dict(base.execute("SELECT name, value FROM about"))
        for name, value in wanted.items():
            if found.get(name) != value:
                raise JournalError(
                    self._path,
                    f"it was begun with another {name} ({_short(found.get(name))}, now {_short(value)}); "
                    "name another journal, or remove this one to begin anew",
                )
        self.run = found["run"]
        # Journals of earlier versions have none.
        base.execute("INSERT OR IGNORE INTO about VALUES ('token', ?)", (self.token,))
        ((self.token,),) = base.execute("SELECT value FROM about WHERE name = 'token'")
        self._settlements.create()  # journals of earlier versions have no such table
        self._calls = base.execute("SELECT coalesce(max(id), 0) FROM calls").fetchone()[0]
        named = ((name.removeprefix(PROCESS), value) for name, value in found.items() if name.startswith(PROCESS))
        self._processes = sorted((int(first), process) for first, process in named)
        self._name_process(base)

    def _name_process(self, base: sqlite3.Connection) -> None:
        base.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (f"{PROCESS}{self._calls + 1}", self.process))

    def process_of(self, call: int) -> str | None:
        """The process that wrote down a call, if it left its name."""
        return next((process for first, process in reversed(self._processes) if first <= call), None)

    @property
    def durable(self) -> bool:
        """Whether it is on the disk."""
        return self._base is not None

    @property
    def _open(self) -> sqlite3.Connection:
        if self._base is None:
            raise JournalError(self._path, "it is closed")
        return self._base

    def new_call(self) -> int:
        """The number of the next call."""
        self._calls += 1
        return self._calls

    @property
    def _settlements(self) -> SettlementTable:
        """What the run's ledger, whichever it is, must still be told of calls that have ended."""
        return SettlementTable(self._open, "")

    def write(
        self, begun: Iterable[Begun] = (), finished: Iterable[Finished] = (), owed: Iterable[Settlement] = ()
    ) -> None:
        """Write down calls that are about to be made, calls that have ended, and what a ledger must be told."""
        if self._base is None:
            return
        sent = [(call, source, _bytes(queries), str(reserved)) for call, source, queries, reserved in begun]
        with self._transaction() as base:
            base.executemany("INSERT INTO calls (id, source, queries, reserved) VALUES (?, ?, ?, ?)", sent)
            self._settlements.put(owed)
            for call, charged, outcomes in finished:
                base.execute("UPDATE calls SET charged = ? WHERE id = ?", (str(charged), call))
                base.executemany(
                    f"INSERT INTO outcomes (call, {', '.join(COLUMNS)}) VALUES (?{', ?' * len(COLUMNS)})",  # noqa: S608
                    [(call, *_record(outcome)) for outcome in outcomes],
                )

    def settled(self, holds: Sequence[str]) -> None:
        """Forget settlements that the ledger has made."""
        if self._base is None or not holds:
            return
        with self._transaction():
            self._settlements.remove(holds)

    def outstanding(self) -> list[Settlement]:
        """What the ledger may not have been told yet."""
        return [] if self._base is None else self._settlements.read()

    def keep(self, name: str, content: bytes) -> None:
        """Keep a file with the run, once."""
        if self._base is None:
            return
        with self._transaction() as base:
            base.execute("INSERT OR IGNORE INTO files VALUES (?, ?)", (name, content))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it is on the disk in the end, or nothing."""
        with self._lock:
            base = self._open
            try:
                base.execute("BEGIN IMMEDIATE")
                yield base
                base.execute("COMMIT")
            except sqlite3.Error as error:
                raise JournalError(self._path, f"it cannot be written: {error}") from None
            finally:
                if base.in_transaction:  # also when Ctrl-C came in between
                    base.rollback()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around everything that is made of what the file holds: what makes no sense is damage."""
        try:
            yield
        except JournalError:
            raise
        except (sqlite3.Error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise JournalError(self._path, DAMAGED) from None

    def kept(self, name: str) -> bytes | None:
        """A file that was kept, or None."""
        if self._base is None:
            return None
        found = self._base.execute("SELECT content FROM files WHERE name = ?", (name,)).fetchone()
        return None if found is None else bytes(found[0])

    def outcomes(self) -> Iterator[Outcome]:
        """Everything that calls came to so far, in the order in which it was written."""
        base = self._base
        if base is None:
            return
        columns = ", ".join(f"outcomes.{column}" for column in COLUMNS)
        query = f"SELECT source, {columns} FROM outcomes JOIN calls ON calls.id = call ORDER BY outcomes.id"  # noqa: S608
        for source, queries, charged, costs, seconds, probabilities, features, failures, error in base.execute(query):
            rows = np.frombuffer(queries, np.int64)
            yield Outcome(
                source=source,
                rows=rows,
                charged=Fraction(charged),
                costs=np.frombuffer(costs, np.float64),
                seconds=seconds,
                probabilities=_table(probabilities, rows.size),
                features=_table(features, rows.size),
                failures={int(row): reason for row, reason in json.loads(failures).items()},
                error=None if error is None else CallError(error),
            )

    def unended(self) -> list[Begun]:
        """Calls that were written down and have no end: whoever was to make them died."""
        if self._base is None:
            return []
        rows = self._base.execute("SELECT id, source, queries, reserved FROM calls WHERE charged IS NULL ORDER BY id")
        return [(call, source, np.frombuffer(at, np.int64), Fraction(held)) for call, source, at, held in rows]

    def times_asked(self) -> dict[tuple[str, bytes], int]:
        """How often each source was to be asked for the same queries."""
        if self._base is None:
            return {}
        return {
            (source, bytes(queries)): times
            for source, queries, times in self._base.execute(
                "SELECT source, queries, count(*) FROM calls GROUP BY source, queries"
            )
        }

    def spending(self) -> tuple[Fraction, Fraction]:
        """What ended calls were charged, and the most that calls without an end can have cost."""
        if self._base is None:
            return Fraction(0), Fraction(0)
        ended = lost = Fraction(0)
        for reserved, charged in self._base.execute("SELECT reserved, charged FROM calls"):
            ended += Fraction(charged) if charged is not None else 0
            lost += Fraction(reserved) if charged is None else 0
        return ended, lost

    def close(self) -> None:
        """Let go of the file; one in which nothing was bought is not left behind.

        That of a part of a run stays: whoever waits for it must find the same file.
        """
        if self._base is None:
            return
        unused = False
        with self._lock:
            with suppress(sqlite3.Error):
                unused = self._mine and not self._waited_for and self._base.execute(UNUSED).fetchone() == (1,)
            self._base.close()
            self._base = None
        if unused and self._path is not None:
            self._path.unlink(missing_ok=True)


class JournalQueue:
    """Writes of concurrent calls on a thread of their own, those that wait together in one transaction."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._threads = DaemonThreads(1, name="occamroute-journal")
        self._waiting: list[tuple[_Entry, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def add(
        self, *, begun: Begun | None = None, finished: Finished | None = None, owed: Sequence[Settlement] = ()
    ) -> None:
        """Write something down; it is on the disk when this returns."""
        if not self._journal.durable:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((_Entry(begun, finished, owed), done))
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())
        await done

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            entries = [entry for entry, _ in batch]
            begun = [entry.begun for entry in entries if entry.begun is not None]
            finished = [entry.finished for entry in entries if entry.finished is not None]
            owed = [settlement for entry in entries for settlement in entry.owed]
            problem: Exception | None = None
            try:
                await self._threads.run(partial(self._journal.write, begun, finished, owed))
            except Exception as error:  # noqa: BLE001  # each of those who wait gets it
                problem = error
            for _, done in batch:
                if not done.done():
                    done.set_exception(problem) if problem is not None else done.set_result(None)
        self._writer = None

    def close(self) -> None:
        """End the thread once it has written what waits."""
        self._threads.close(PATIENCE)


class _Entry(NamedTuple):
    begun: Begun | None
    finished: Finished | None
    owed: Sequence[Settlement]


def waited_for(path: str | os.PathLike[str], about: Mapping[str, str], run: str) -> Journal:
    """The journal of a part of a run, once nobody else writes it.

    A process that is only believed dead keeps it; of one that is dead, the system lets go of it at once.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return Journal(path, about, run=run)
        except JournalError as error:
            if error.args[1] != BUSY or time.monotonic() > until:
                raise
        time.sleep(GLANCE)


def _bytes(array: npt.NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def _record(outcome: Outcome) -> tuple[Any, ...]:
    tables = [None if table is None else _bytes(table) for table in (outcome.probabilities, outcome.features)]
    # Not every text that an exception says can be encoded, such as names of files.
    error = None if outcome.error is None else str(outcome.error).encode(errors="backslashreplace").decode()
    return (
        _bytes(outcome.rows.astype(np.int64)), str(outcome.charged or Fraction(0)), _bytes(outcome.costs),
        outcome.seconds, *tables, json.dumps(outcome.failures), error,
    )  # fmt: skip


def _table(content: bytes | None, rows: int) -> Any:
    return None if content is None else np.frombuffer(content, np.float64).reshape(rows, -1)


def _short(value: str | None) -> str:
    text = "nothing" if value is None else value
    return text if len(text) <= 40 else text[:37] + "…"
