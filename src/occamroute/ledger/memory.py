"""A ledger that lives as long as its process, safe for many threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from occamroute._money import Amount
from occamroute.ledger.sql import Run, SqlLedger, Statement
from occamroute.ledger.sqlite import SCHEMA

__all__ = ["MemoryLedger"]


class MemoryLedger(SqlLedger):
    """A cap kept by this process alone: the same rules on a database in memory."""

    def __init__(
        self,
        cap: Amount | None,
        *,
        window: str = "total",
        clients: Mapping[str, Amount] | None = None,
        name: str = "default",
    ) -> None:
        self._lock = threading.Lock()
        self._connection = apsw.Connection(":memory:")
        super().__init__(cap, window, clients, name)

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        with self._lock, self._connection:
            yield self._run

    def _run(self, statements: Sequence[Statement], /) -> list[list[tuple[Any, ...]]]:
        return [list(self._connection.execute(words, tuple(values))) for words, values in statements]

    def _create(self, run: Run) -> None:
        run([(SCHEMA, ())])

    def _clock(self) -> Statement:
        return "SELECT ?", (time.time_ns() // 1_000_000,)

    def close(self) -> None:
        """Forget everything."""
        self._connection.close()
