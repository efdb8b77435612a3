"""A ledger in an SQLite file: many threads and processes of one machine, one cap."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from occamroute._money import Amount
from occamroute.errors import LedgerError
from occamroute.ledger.sql import Run, SqlLedger, Statement

__all__ = ["SCHEMA", "SqliteLedger"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS occamroute_ledgers (
    name TEXT PRIMARY KEY, cap INTEGER NOT NULL, time_window TEXT NOT NULL, clients TEXT NOT NULL,
    clock INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS occamroute_accounts (
    ledger TEXT NOT NULL, scope TEXT NOT NULL, window_start INTEGER NOT NULL, held INTEGER NOT NULL,
    spent INTEGER NOT NULL, PRIMARY KEY (ledger, scope, window_start)
);
CREATE TABLE IF NOT EXISTS occamroute_holds (
    ledger TEXT NOT NULL, hold_key TEXT NOT NULL, client TEXT, window_start INTEGER NOT NULL, amount INTEGER NOT NULL,
    expires INTEGER NOT NULL, state TEXT NOT NULL, PRIMARY KEY (ledger, hold_key)
);
CREATE INDEX IF NOT EXISTS occamroute_holds_due ON occamroute_holds (ledger, expires) WHERE state = 'held';
CREATE TABLE IF NOT EXISTS occamroute_entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, ledger TEXT NOT NULL, at INTEGER NOT NULL, event TEXT NOT NULL,
    hold_key TEXT NOT NULL, client TEXT, window_start INTEGER NOT NULL, held INTEGER NOT NULL, spent INTEGER NOT NULL
);
"""
# Somebody who holds the lock for so long is stopped or dead slow; refusing is better than waiting on.
PATIENCE = 5.0


class SqliteLedger(SqlLedger):
    """A cap in a file.

    SQLite's own waiting polls, and under load some clients wait for seconds. So writers queue at a lock on a file
    beside the database first, which the system hands on fairly. That file is also the clock: the time that the file
    system gives it is the same for all, whatever a process believes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        cap: Amount | None,
        *,
        window: str = "total",
        clients: Mapping[str, Amount] | None = None,
        name: str = "default",
    ) -> None:
        self._path = Path(path)
        self._thread_lock = threading.Lock()
        self._process: int | None = None
        self._connection: Any = None
        self._lock_file = -1
        super().__init__(cap, window, clients, name)

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        if not self._thread_lock.acquire(timeout=PATIENCE):
            raise LedgerError(self._path, "another thread has kept it locked for too long")
        try:
            self._open()
            with _locked(self._lock_file, self._path), self._errors():
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._run
                    self._connection.execute("COMMIT")
                except BaseException:
                    with suppress(apsw.Error):
                        self._connection.execute("ROLLBACK")
                    raise
        finally:
            self._thread_lock.release()

    def _run(self, statements: Sequence[Statement], /) -> list[list[tuple[Any, ...]]]:
        return [list(self._connection.execute(words, tuple(values))) for words, values in statements]

    def _open(self) -> None:
        if self._process == os.getpid():
            return  # a forked child must not use its parent's connection
        if not self._path.parent.is_dir():
            raise LedgerError(self._path, f"the folder {self._path.parent} does not exist")
        try:
            with self._errors():
                connection = apsw.Connection(str(self._path))
                connection.set_busy_timeout(int(1000 * PATIENCE))
                for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"):
                    connection.execute(statement)
            self._lock_file = os.open(f"{self._path}-lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise LedgerError(self._path, error.strerror or str(error)) from error
        self._connection, self._process = connection, os.getpid()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            words = {"FullError": "the disk is full", "NotADBError": "it is no SQLite database"}
            raise LedgerError(self._path, words.get(type(error).__name__, str(error))) from error

    def _create(self, run: Run) -> None:
        run([(SCHEMA, ())])

    def _clock(self) -> Statement:
        os.utime(self._lock_file)
        return "SELECT ?", (os.fstat(self._lock_file).st_mtime_ns // 1_000_000,)

    def close(self) -> None:
        """Let go of the file."""
        with self._thread_lock:
            if self._process == os.getpid():
                self._connection.close()
                os.close(self._lock_file)
            self._process = None


@contextmanager
def _locked(file: int, path: Path) -> Iterator[None]:
    """The lock of a file, handed on in turn."""
    try:
        import fcntl
    except ImportError:  # without it SQLite's own lock keeps the cap; only waiting is less fair
        yield
        return
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        _wait_for(file, path)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)


def _wait_for(file: int, path: Path) -> None:
    """Wait for the lock on a thread, since waiting itself cannot be given up."""
    import fcntl

    got, given_up = threading.Event(), threading.Event()

    def wait() -> None:
        with suppress(OSError):
            fcntl.lockf(file, fcntl.LOCK_EX)
            got.set()
            if given_up.is_set():
                fcntl.lockf(file, fcntl.LOCK_UN)

    threading.Thread(target=wait, name="occamroute-ledger", daemon=True).start()
    if not got.wait(PATIENCE):
        given_up.set()
        raise LedgerError(path, "another process has kept it locked for too long")
