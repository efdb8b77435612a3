"""A ledger in PostgreSQL: many replicas on many machines, one cap."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from occamroute._money import Amount
from occamroute._optional import require
from occamroute.errors import LedgerError
from occamroute.ledger.sql import Run, SqlLedger, Statement

__all__ = ["PostgresLedger"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS occamroute_ledgers (
    name TEXT PRIMARY KEY, cap BIGINT NOT NULL, time_window TEXT NOT NULL, clients TEXT NOT NULL, clock BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS occamroute_accounts (
    ledger TEXT NOT NULL, scope TEXT NOT NULL, window_start BIGINT NOT NULL, held BIGINT NOT NULL,
    spent BIGINT NOT NULL, PRIMARY KEY (ledger, scope, window_start)
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS occamroute_holds (
    ledger TEXT NOT NULL, hold_key TEXT NOT NULL, client TEXT, window_start BIGINT NOT NULL, amount BIGINT NOT NULL,
    expires BIGINT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (ledger, hold_key)
);
CREATE INDEX IF NOT EXISTS occamroute_holds_due ON occamroute_holds (ledger, expires) WHERE state = 'held';
CREATE TABLE IF NOT EXISTS occamroute_entries (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ledger TEXT NOT NULL, at BIGINT NOT NULL, event TEXT NOT NULL,
    hold_key TEXT NOT NULL, client TEXT, window_start BIGINT NOT NULL, held BIGINT NOT NULL, spent BIGINT NOT NULL
);
"""
# One number for all ledgers of a database: whoever has this lock is alone.
LOCK = 0x6F6363616D
# A replica that is stopped in the middle is cut off by the server, and its transaction undone.
SETTINGS = "-c lock_timeout=5s -c statement_timeout=5s -c idle_in_transaction_session_timeout=2s"


class PostgresLedger(SqlLedger):
    """A cap in a database that many machines reach; its clock is the only one."""

    def __init__(
        self,
        address: str,
        cap: Amount | None,
        *,
        window: str = "total",
        clients: Mapping[str, Amount] | None = None,
        name: str = "default",
    ) -> None:
        self._address = address
        self._psycopg = require("psycopg", extra="postgres", what="a ledger in PostgreSQL")
        self._place = self._psycopg.conninfo.conninfo_to_dict(address).get("host", "PostgreSQL")  # without its password
        self._thread_lock = threading.Lock()
        self._connection: Any = None
        self._process: int | None = None
        super().__init__(cap, window, clients, name)

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        if not self._thread_lock.acquire(timeout=5.0):
            raise LedgerError(self._place, "another thread has kept it locked for too long")
        try:
            connection = self._open()
            # Statements are sent together and the answers read together: fewer trips while the lock is held.
            with self._errors(), connection.pipeline(), connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                yield self._run
        finally:
            self._thread_lock.release()

    def _run(self, statements: Sequence[Statement], /) -> list[list[tuple[Any, ...]]]:
        cursors = [
            self._connection.execute(words.replace("?", "%s"), tuple(values), prepare=True)
            for words, values in statements
        ]
        # In a pipeline a cursor knows that it has rows only once they are fetched.
        rows = [words.startswith("SELECT") for words, _ in statements]
        return [list(cursor.fetchall()) if asked else [] for cursor, asked in zip(cursors, rows, strict=True)]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            with suppress(self._psycopg.Error):
                self._connection.close()
            raise LedgerError(self._place, (str(error).strip().splitlines() or ["?"])[0].rstrip(".")) from error

    def _open(self) -> Any:
        alive = self._connection is not None and not self._connection.closed and self._process == os.getpid()
        if not alive:
            try:
                self._connection = self._psycopg.connect(
                    self._address, autocommit=True, connect_timeout=5, options=SETTINGS
                )
            except self._psycopg.Error as error:
                raise LedgerError(self._place, str(error).strip().splitlines()[0].rstrip(".")) from error
            self._process = os.getpid()
        return self._connection

    def _create(self, run: Run) -> None:
        for statement in filter(str.strip, SCHEMA.split(";")):
            self._connection.execute(statement)

    def _clock(self) -> Statement:
        return "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", ()

    def close(self) -> None:
        """Let go of the connection."""
        with self._thread_lock:
            if self._connection is not None:
                self._connection.close()
