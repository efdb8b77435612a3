"""A ledger in an SQLite file: many threads and processes of one machine, one cap."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from occamroute._money import Amount
from occamroute.errors import InvalidInputError, LedgerError
from occamroute.ledger.bookkeeping import PATIENCE, Settings
from occamroute.ledger.database import Database, SqliteDatabase
from occamroute.ledger.embedded import EmbeddedLedger

__all__ = ["SqliteLedger"]

PREFIX = "sqlite:///"
# Seconds between the first looks at a lock that another process has; more looks would take its time from it.
GLANCE = 0.002
WORDS = {
    apsw.BusyError: "another process has kept it locked for too long",
    apsw.CantOpenError: "it cannot be opened, or its folder not written",
    apsw.CorruptError: "it is damaged",
    apsw.FullError: "the disk is full",
    apsw.NotADBError: "it is no SQLite database",
    apsw.ReadOnlyError: "it may not be written",
}
_LEDGERS: weakref.WeakSet[SqliteLedger] = weakref.WeakSet()
_LEDGERS_LOCK = threading.Lock()
# Connections that a forked child was born with: to use or close them would undo its parent's locks.
_INHERITED: list[Any] = []


class SqliteLedger(EmbeddedLedger):
    """A cap in a file.

    SQLite's own way of waiting looks ever more rarely at a lock, and under load some wait for seconds. Here who has
    waited longer looks more often. The clock is the file system's: the time that it gives the file is the same for
    all, whatever a process believes.
    """

    def __init__(
        self,
        address: str,
        cap: Amount | None,
        *,
        window: str | None = None,
        clients: Mapping[str, Amount] | None = None,
        name: str = "default",
    ) -> None:
        path = address.removeprefix(PREFIX)
        if not address.startswith(PREFIX) or not path or "\0" in path:
            raise InvalidInputError(f"a ledger in a file has an address like {PREFIX}spend.db, got {address!r:.60}.")
        self._path = Path(path).absolute()  # wherever the process goes later
        self._file: tuple[int, int] | None = None
        self._connection: Any = None
        self._put_away = self._stranded = False
        self._lock = threading.Lock()
        self._deadline = 0.0
        with _LEDGERS_LOCK:
            _LEDGERS.add(self)
        super().__init__(path, cap, window, clients, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process of this machine, it is opened there anew."""
        return partial(SqliteLedger, cap=None, name=self._name), (f"{PREFIX}{self._path}",)

    @property
    def identity(self) -> str:
        """The ledger's unique name, the same in every process."""
        return f"{PREFIX}{self._path.resolve()}#{self._name}"

    def _begin(self, settings: Settings | None) -> Settings | None:
        if settings is None and not self._path.exists() and self._path.parent.is_dir():
            return None  # asking for a ledger that is not there leaves no file behind
        return super()._begin(settings)

    @contextmanager
    def _alone(self) -> Iterator[Any]:
        """The connection, for this thread only."""
        asked = time.monotonic()
        if not self._lock.acquire(timeout=PATIENCE):
            raise LedgerError(self._place, "another thread has kept it locked for too long")
        try:
            self._deadline = asked + PATIENCE
            if self._stranded:
                raise LedgerError(self._place, "it was in use when this process was forked")
            if self._connection is None:
                self._connection = self._connected()
            yield self._connection
        except (apsw.Error, OSError, OverflowError) as error:
            raise LedgerError(self._place, _words(error)) from error
        finally:
            self._lock.release()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._alone() as connection:
            connection.execute("BEGIN")
            try:
                yield
            finally:
                with suppress(apsw.Error):  # some errors have already rolled back
                    connection.execute("ROLLBACK")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._alone() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                with suppress(apsw.Error):
                    connection.execute("ROLLBACK")
                raise

    def _connected(self) -> Any:
        if not self._path.parent.is_dir():
            raise LedgerError(self._place, f"the folder {self._path.parent} does not exist")
        known = self._file is not None
        # Once it was there, a file that is gone is not begun anew: that would be another full cap.
        flags = apsw.SQLITE_OPEN_READWRITE | (0 if known else apsw.SQLITE_OPEN_CREATE)
        connection = apsw.Connection(str(self._path), flags=flags)
        try:
            connection.set_busy_handler(self._wait)
            connection.execute("PRAGMA synchronous=FULL")
            while connection.pragma("journal_mode") != "wal":
                with suppress(apsw.BusyError):  # somebody else is just doing it
                    connection.execute("PRAGMA journal_mode=WAL")
                    break
                if not self._wait(0):
                    raise LedgerError(self._place, WORDS[apsw.BusyError])
            found = os.stat(self._path)
            self._file = self._file or (found.st_dev, found.st_ino)
        except BaseException:
            connection.close()
            raise
        return connection

    def _wait(self, looks: int) -> bool:
        """A moment, the shorter the more looks there were; False if there is no time left for another one."""
        if time.monotonic() > self._deadline:
            return False
        # By chance, so that those who wait do not march in step.
        time.sleep(random.uniform(0.5, 1.5) * GLANCE / (1 + looks / 20))  # noqa: S311
        return True

    def _time(self) -> int:
        try:
            os.utime(self._path)
            found = os.stat(self._path)
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file:
            raise LedgerError(self._place, "the file was removed or replaced while it was open")
        return found.st_mtime_ns // 1_000_000

    def database(self) -> Database:
        """Tables beside its own in the same file."""
        return SqliteDatabase(self._path, ledger=self._name)

    def close(self) -> None:
        """Let go of the file; the next call opens it again."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _before_fork(self) -> None:
        """Parent and child open the file anew: SQLite remembers what a process has locked, and a child would too."""
        self._put_away = self._lock.acquire(timeout=PATIENCE)
        if self._put_away:
            self._let_go()

    def _after_fork_in_parent(self) -> None:
        if self._put_away:
            self._lock.release()

    def _after_fork_in_child(self) -> None:
        _INHERITED.append(self._connection)
        self._connection, self._stranded = None, not self._put_away
        self._lock = threading.Lock()


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return next((words for kind, words in WORDS.items() if isinstance(error, kind)), str(error))


def _before_fork() -> None:
    _LEDGERS_LOCK.acquire()
    for ledger in _LEDGERS:
        ledger._before_fork()


def _after_fork_in_parent() -> None:
    for ledger in _LEDGERS:
        ledger._after_fork_in_parent()
    _LEDGERS_LOCK.release()


def _after_fork_in_child() -> None:
    for ledger in _LEDGERS:
        ledger._after_fork_in_child()
    _LEDGERS_LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
