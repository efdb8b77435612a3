"""Records: what each process of a service says of itself in the ledger's database, for the others to read."""

from __future__ import annotations

import json
import threading
from typing import Any, NamedTuple

from occamroute.ledger.database import Database

__all__ = ["Record", "Records"]

TABLE = "occamroute_replicas"
SCHEMA = """
CREATE TABLE IF NOT EXISTS occamroute_replicas (
    ledger TEXT NOT NULL, name TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (ledger, name)
);
"""
# Seconds for which a record counts, which is long enough for two that come late, and after which it is removed.
FRESH, REMOVED = 15.0, 3600.0


class Record(NamedTuple):
    """What a process said of itself a few seconds ago."""

    replica: str
    facts: dict[str, Any]


class Records:
    """The records of all processes that share a ledger; ``name`` is this one's. Times are the database's own."""

    def __init__(self, database: Database, name: str) -> None:
        self.name = name
        self._database, self._ledger = database, database.ledger
        now = database.now
        self._write = (
            f"INSERT INTO {TABLE} (ledger, name, at, record) VALUES (?, ?, {now}, ?) "  # noqa: S608  # our own words
            "ON CONFLICT (ledger, name) DO UPDATE SET at = excluded.at, record = excluded.record"
        )
        self._prune = f"DELETE FROM {TABLE} WHERE ledger = ? AND at < {now} - {REMOVED}"  # noqa: S608
        self._read = (
            f"SELECT name, record FROM {TABLE} WHERE ledger = ? AND name <> ? AND at > {now} - {FRESH} ORDER BY name"  # noqa: S608
        )
        self._over, self._lock = False, threading.Lock()
        database.create(TABLE, SCHEMA)

    def write(self, facts: dict[str, Any]) -> None:
        """Say how this process stands now, unless it has ended."""
        with self._lock:
            if not self._over:
                self._tell(facts)

    def _tell(self, facts: dict[str, Any]) -> None:
        self._database.write([
            (self._write, (self._ledger, self.name, json.dumps(facts))),
            (self._prune, (self._ledger,)),
        ])  # fmt: skip

    def others(self) -> list[Record]:
        """What the other processes that still run have said, by name."""
        rows = self._database.read(self._read, (self._ledger, self.name))
        return [Record(name, json.loads(text)) for name, text in rows]

    def remove(self) -> None:
        """This process ends: it is no longer one of those that run, and writes no more."""
        with self._lock:
            self._over = True
        self._database.write([(f"DELETE FROM {TABLE} WHERE ledger = ? AND name = ?", (self._ledger, self.name))])  # noqa: S608
