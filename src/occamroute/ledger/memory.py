"""A ledger that lives as long as its process, safe for many threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import apsw

from occamroute._money import Amount
from occamroute.errors import InvalidInputError, LedgerError
from occamroute.ledger.embedded import EmbeddedLedger

__all__ = ["MemoryLedger"]


class MemoryLedger(EmbeddedLedger):
    """A cap kept by this process alone: the same rules on a database in memory."""

    def __init__(
        self,
        address: str,
        cap: Amount | None,
        *,
        window: str | None = None,
        clients: Mapping[str, Amount] | None = None,
        name: str = "default",
    ) -> None:
        if address != "memory:":
            raise InvalidInputError(f"a ledger in memory has the address 'memory:' and no more, got {address!r:.60}.")
        self._lock = threading.Lock()
        self._connection = apsw.Connection(":memory:")
        self._process = os.getpid()
        super().__init__(address, cap, window, clients, name)

    def __reduce__(self) -> tuple[Any, ...]:
        raise InvalidInputError("a ledger in memory cannot be sent to other processes: keep it in a file or a database")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        if os.getpid() != self._process:
            # A forked child has a copy, and a copy of a cap is more to spend.
            raise LedgerError(self._place, "it belongs to the process that opened it")
        with self._lock:
            try:
                yield
            except (apsw.Error, OverflowError) as error:
                raise LedgerError(self._place, str(error)) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._reading(), self._connection:
            yield

    def _time(self) -> int:
        return time.time_ns() // 1_000_000

    def close(self) -> None:
        """Forget everything."""
        self._connection.close()
