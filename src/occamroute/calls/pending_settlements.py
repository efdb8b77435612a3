"""Settlements that a ledger could not be told yet, in a file: they outlast the process that made them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

from occamroute._money import exact
from occamroute.errors import StorageError
from occamroute.ledger import Hold
from occamroute.ledger.base import Release, Reply, Settle

__all__ = ["PendingSettlements", "Settlement", "SettlementTable"]

Settlement: TypeAlias = Settle | Release

FORMAT = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS pending_settlements (
    ledger TEXT NOT NULL, hold TEXT NOT NULL, held TEXT NOT NULL, charged TEXT, about TEXT, content TEXT,
    PRIMARY KEY (ledger, hold)
) WITHOUT ROWID
"""
PUT = "INSERT OR REPLACE INTO pending_settlements VALUES (?, ?, ?, ?, ?, ?)"
REMOVE = "DELETE FROM pending_settlements WHERE ledger = ? AND hold = ?"
READ = "SELECT hold, held, charged, about, content FROM pending_settlements WHERE ledger = ? ORDER BY hold"
OTHERS = "SELECT count(*) FROM pending_settlements WHERE ledger <> ?"
# Seconds to wait for another process that is writing the file.
PATIENCE = 5.0


class SettlementTable:
    """The settlements of one ledger in a database whose connection and transactions are the caller's.

    A release has no ``charged``. Amounts are exact, as text.
    """

    def __init__(self, connection: sqlite3.Connection, ledger: str) -> None:
        self._connection, self._ledger = connection, ledger

    def create(self) -> None:
        """Make the table if it is not there."""
        self._connection.execute(SCHEMA)

    def put(self, settlements: Iterable[Settlement]) -> None:
        """Store settlements, in the place of others of the same holds."""
        self._connection.executemany(PUT, ((self._ledger, *_row(one)) for one in settlements))

    def remove(self, keys: Iterable[str]) -> None:
        """Forget the settlements of these holds."""
        self._connection.executemany(REMOVE, ((self._ledger, key) for key in keys))

    def read(self) -> list[Settlement]:
        """All settlements of the ledger."""
        return [_settlement(*row) for row in self._connection.execute(READ, (self._ledger,))]

    def others(self) -> int:
        """How many settlements of other ledgers are there."""
        (count,) = self._connection.execute(OTHERS, (self._ledger,)).fetchone()
        return int(count)


class PendingSettlements:
    """A file of settlements that a ledger has not been told yet.

    ``ledger`` is the ledger's ``identity``: settlements of other ledgers in the same file are left alone. What a method
    wrote is on the disk when it returns. The file is made with the first settlement, and opened for each change: those
    are rare, and a forked process must not inherit a connection.
    """

    def __init__(self, path: str | os.PathLike[str], ledger: str) -> None:
        self.path = Path(path)
        self._ledger = ledger

    def add(self, settlements: Sequence[Settlement]) -> None:
        """Keep settlements, in the place of others of the same holds."""
        with self._opened(create=True) as table:
            table.put(settlements)

    def remove(self, keys: Sequence[str]) -> None:
        """Forget the settlements of holds that the ledger has settled."""
        if self.path.exists():
            with self._opened() as table:
                table.remove(keys)

    def read(self) -> tuple[list[Settlement], int]:
        """The ledger's settlements, and how many of other ledgers are there."""
        if not self.path.exists():
            return [], 0
        with self._opened() as table:
            return table.read(), table.others()

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[SettlementTable]:
        """The table in a transaction, which is on the disk in the end."""
        try:
            mode = "rwc" if create else "rw"
            address = f"{self.path.absolute().as_uri()}?mode={mode}"
            with closing(sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute("BEGIN IMMEDIATE")
                (found,) = connection.execute("PRAGMA user_version").fetchone()
                if found > FORMAT:
                    raise StorageError(self.path, f"its format is {found}, this version of occamroute reads {FORMAT}")
                table = SettlementTable(connection, self._ledger)
                table.create()
                connection.execute(f"PRAGMA user_version={FORMAT}")
                yield table
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError, ArithmeticError, ValueError) as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(self.path, str(error)) from error


def _row(settlement: Settlement) -> tuple[str | None, ...]:
    hold = settlement.hold
    if isinstance(settlement, Release):
        return hold.key, str(hold.amount), None, None, None
    reply = settlement.reply
    told = (None, None) if reply is None else (reply.about, reply.content)
    return hold.key, str(hold.amount), str(exact(settlement.amount)), *told


def _settlement(key: str, held: str, charged: str | None, about: str | None, content: str | None) -> Settlement:
    hold = Hold(key, Decimal(held))
    if charged is None:
        return Release(hold)
    return Settle(hold, Fraction(charged), None if about is None or content is None else Reply(about, content))
