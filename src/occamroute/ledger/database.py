"""Database: tables beside a ledger's own, for what every process that shares the ledger must find."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import apsw

from occamroute.errors import StorageError

__all__ = ["Database", "Row", "SqliteDatabase", "Statement"]

Row: TypeAlias = tuple[Any, ...]
# An SQL statement with ``?`` for each of its values.
Statement: TypeAlias = tuple[str, Sequence[Any]]

# Seconds that a connection waits for the lock that another process or thread has, and about how long between two looks.
PATIENCE, GLANCE = 5.0, 0.003
# Pages in the write-ahead log before they are copied into the file: fewer than the 1,000 at which a ledger's own
# connection would do it, so that its operations seldom have to.
CHECKPOINT = 400


class Database(Protocol):
    """A database that outlives its process; safe for many threads, and usable after a fork.

    ``place`` is where it is, without a password. ``ledger`` is the name of the ledger whose rows a table's column of
    the same name tells from those of others. ``blob`` is the type of a column of bytes, and ``now`` the SQL for the
    database's own time, in seconds since 1970. Every method raises ``StorageError`` while the database cannot be used.
    """

    place: str
    ledger: str
    blob: str
    now: str

    def create(self, table: str, schema: str) -> None:
        """Create a table and its indexes unless it exists: then no right to create tables is needed."""

    def read(self, words: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows that a query gives."""

    def write(self, statements: Sequence[Statement]) -> None:
        """Execute statements in one transaction; ``TypeError`` or ``ValueError`` for a value it cannot hold."""

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""


class SqliteDatabase:
    """Tables in an SQLite file, over two connections of its own: a long search keeps no writer waiting.

    A commit is not flushed to the disk (``synchronous=NORMAL``): a power cut may undo the last ones.
    """

    blob = "BLOB"
    now = "unixepoch('subsec')"

    def __init__(self, path: str | os.PathLike[str], *, ledger: str = "default") -> None:
        self.path = Path(path).absolute()
        self.place, self.ledger = str(path), ledger
        self._reader, self._writer = _Connection(self.path), _Connection(self.path)
        with _DATABASES_LOCK:
            _DATABASES.add(self)

    def create(self, table: str, schema: str) -> None:
        """Create a table and its indexes unless the table exists."""
        if not self.read("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)):
            self.write([(words, ()) for words in schema.split(";") if words.strip()])

    def read(self, words: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows that a query gives."""
        with self._used(self._reader) as connection:
            return list(connection.execute(words, tuple(values)))

    def write(self, statements: Sequence[Statement]) -> None:
        """Execute statements in one transaction."""
        with self._used(self._writer) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for words, same in groupby(statements, itemgetter(0)):
                    connection.executemany(words, [tuple(values) for _, values in same])
                connection.execute("COMMIT")
            except BaseException:
                with suppress(apsw.Error):  # some errors have already rolled back
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close both connections."""
        for one in (self._reader, self._writer):
            with one.lock:
                one.close()

    @contextmanager
    def _used(self, one: _Connection) -> Iterator[Any]:
        if not one.lock.acquire(timeout=PATIENCE):
            raise StorageError(self.place, "other threads have kept it busy for too long")
        try:
            yield one.opened()
        except (apsw.Error, OSError) as error:
            raise StorageError(self.place, f"it cannot be read or written ({error})") from error
        finally:
            one.lock.release()


class _Connection:
    """One connection, opened when it is needed, for the thread that holds its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self._made: Any = None
        self._known = self._put_away = False
        self._deadline = 0.0

    def opened(self) -> Any:
        self._deadline = time.monotonic() + PATIENCE
        if self._made is None:
            # Once it was there, a file that is gone is not begun anew: it is somebody's ledger, too.
            flags = apsw.SQLITE_OPEN_READWRITE | (0 if self._known else apsw.SQLITE_OPEN_CREATE)
            made = apsw.Connection(str(self.path), flags=flags)
            try:
                made.set_busy_handler(self._wait)
                for setting in ("journal_mode=WAL", "synchronous=NORMAL", f"wal_autocheckpoint={CHECKPOINT}"):
                    made.execute(f"PRAGMA {setting}")
            except BaseException:
                made.close()
                raise
            self._made, self._known = made, True
        return self._made

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
            self._made = None

    def _wait(self, _: int) -> bool:
        """A moment, by chance so that those who wait do not march in step; False once there is no time left."""
        if time.monotonic() > self._deadline:
            return False
        time.sleep(random.uniform(0.5, 1.5) * GLANCE)  # noqa: S311
        return True

    def before_fork(self) -> None:
        """Close it, since SQLite remembers what a process has locked, and a child would remember it, too."""
        self._put_away = self.lock.acquire(timeout=PATIENCE)
        if self._put_away:
            self.close()

    def after_fork_in_parent(self) -> None:
        if self._put_away:
            self.lock.release()

    def after_fork_in_child(self) -> None:
        _INHERITED.append(self._made)  # None, unless a thread of the parent was using it
        self._made, self.lock = None, threading.Lock()


_DATABASES: weakref.WeakSet[SqliteDatabase] = weakref.WeakSet()
_DATABASES_LOCK = threading.Lock()
# Connections that a forked child was born with: to use or close them would undo its parent's locks.
_INHERITED: list[Any] = []


def _connections() -> list[_Connection]:
    return [one for database in _DATABASES for one in (database._reader, database._writer)]


def _before_fork() -> None:
    _DATABASES_LOCK.acquire()
    for one in _connections():
        one.before_fork()


def _after_fork_in_parent() -> None:
    for one in _connections():
        one.after_fork_in_parent()
    _DATABASES_LOCK.release()


def _after_fork_in_child() -> None:
    for one in _connections():
        one.after_fork_in_child()
    _DATABASES_LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
