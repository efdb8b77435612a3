"""Batcher: queries that wait while others are searched for are searched for together, on one thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from occamroute.errors import OccamError

__all__ = ["Asked", "Batcher"]

FEW, MOST = 8, 64


@dataclass(slots=True, eq=False)
class Asked:
    """A query that waits for its decision; ``done`` hears of it, on the search thread.

    Those with the same ``home`` hear of it in one call: ``home([(asked, decision or error), …])``. ``id`` is the
    decision's, by default a new one.
    """

    features: Any
    client: str | None = None
    paid: bool = False
    home: Callable[[list[tuple[Asked, Any]]], None] | None = None
    id: str | None = None
    ready: threading.Event | None = field(default=None)
    result: Any = None


class Batcher:
    """One thread that takes whatever has come in and works on it at once; nobody waits for a batch to fill.

    Of many it takes half: while those are answered, and their askers ask again, it works on the others.
    """

    def __init__(self, work: Callable[[list[Asked]], list[Any]], *, most: int = MOST) -> None:
        self._work = work
        self._most = most
        self._waiting: deque[Asked] = deque()
        self._something = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="occamroute-search", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        """Whether somebody works on what is put into the queue."""
        return not self._closed and self._thread.is_alive()

    def submit(self, asked: Asked) -> None:
        """Put a query into the queue."""
        with self._something:
            if self._closed:
                raise OccamError("the router is closed.")
            if not self._thread.is_alive():  # a forked child has no copy of it
                raise OccamError("the router belongs to the process that made it: make one in each process.")
            self._waiting.append(asked)
            self._something.notify()

    def ask(self, asked: Asked) -> Any:
        """Put a query into the queue and wait for its decision."""
        asked.ready = threading.Event()
        self.submit(asked)
        asked.ready.wait()
        if isinstance(asked.result, BaseException):
            raise asked.result
        return asked.result

    def close(self) -> None:
        """Finish what waits, and end."""
        with self._something:
            self._closed = True
            self._something.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._something:
                while not self._waiting and not self._closed:
                    self._something.wait()
                if not self._waiting:
                    return
                size = min(len(self._waiting), self._most, max(FEW, -(-len(self._waiting) // 2)))
                batch = [self._waiting.popleft() for _ in range(size)]
            self._deliver(batch, self._results(batch))

    def _results(self, batch: list[Asked]) -> list[Any]:
        try:
            return self._work(batch)
        except Exception as error:  # noqa: BLE001  # whoever asked hears of it; the thread must live
            return [error] * len(batch)

    def _deliver(self, batch: list[Asked], results: list[Any]) -> None:
        homes: dict[Any, list[tuple[Asked, Any]]] = {}
        for asked, result in zip(batch, results, strict=True):
            asked.result = result
            if asked.ready is not None:
                asked.ready.set()
            elif asked.home is not None:
                homes.setdefault(asked.home, []).append((asked, result))
        for home, pairs in homes.items():
            with suppress(Exception):  # nobody is at home any more; the thread must live
                home(pairs)
