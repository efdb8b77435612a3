"""Threads for work that blocks: models that compute here, and files."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from occamroute.errors import OccamError

__all__ = ["CLOSED", "DaemonThreads"]

CLOSED = "nothing more can be asked: this is closed."


Result = TypeVar("Result")


class DaemonThreads:
    """At most ``most`` threads, started when they are needed.

    They are daemons: a call that never returns does not keep the process from ending.
    """

    def __init__(self, most: int, *, name: str = "occamroute-call") -> None:
        self._most, self._name = most, name
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._open: set[Future[Any]] = set()
        self._closed = False

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run blocking work on a thread and await its result."""
        done: Result = await asyncio.wrap_future(self.submit(work))
        return done

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Have something done; it can be cancelled until it has begun."""
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise OccamError(CLOSED)
            self._open.add(future)
            if len(self._threads) < min(self._most, len(self._open)):
                number = len(self._threads)
                thread = threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()
        future.add_done_callback(self._forget)
        self._tasks.put((future, work))
        return future

    def close(self, seconds: float) -> bool:
        """Take nothing more, call off what has not begun, wait so long for the rest; whether all of it ended."""
        with self._lock:
            self._closed = True
            still_open = set(self._open)
        left = wait({future for future in still_open if not future.cancel()}, timeout=seconds).not_done
        for _ in self._threads:
            self._tasks.put(None)
        if not left:
            for thread in self._threads:
                thread.join(timeout=seconds)
        return not left

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, work = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  # the caller gets it
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
            del task, future, work  # nothing is kept while there is nothing to do

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._open.discard(future)
