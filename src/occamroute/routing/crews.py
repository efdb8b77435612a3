"""Crew: threads that make calls for an event loop; Places: how many calls of one classifier are under way."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from occamroute.errors import OccamError

__all__ = ["Crew", "Places"]


class Crew:
    """So many threads at most, made when they are needed.

    They are daemons: a call that never returns does not keep the process from ending.
    """

    def __init__(self, most: int, *, name: str = "occamroute-call") -> None:
        self._most, self._name = most, name
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._open: set[Future[Any]] = set()
        self._closed = False

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Have something done; it can be cancelled until it has begun."""
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise OccamError("nothing more can be asked: this is closed.")
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
            except BaseException as error:  # noqa: BLE001  # whoever asked hears of it
                future.set_exception(error)
            else:
                future.set_result(result)

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._open.discard(future)


class Places:
    """So many at once and, where ``per_minute`` says so, so many beginnings a minute; for any number of event loops."""

    def __init__(self, number: int, per_minute: float | None = None) -> None:
        self._free = number
        self._pause = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()
        self._waiting: deque[Future[None]] = deque()

    async def take(self, seconds: float) -> bool:
        """Whether there was a place within so many seconds; whoever got one gives it back."""
        end = time.monotonic() + seconds
        if not await self._place(seconds):
            return False
        pause = self._due(end)
        if pause is None:
            self.give()
            return False
        try:
            await asyncio.sleep(pause)
        except BaseException:
            self.give()
            raise
        return True

    def give(self) -> None:
        """A place is free again: for whoever has waited longest."""
        with self._lock:
            while self._waiting:
                # One that has stopped waiting is passed over.
                if self._waiting[0].set_running_or_notify_cancel():
                    self._waiting.popleft().set_result(None)
                    return
                self._waiting.popleft()
            self._free += 1

    async def _place(self, seconds: float) -> bool:
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn: Future[None] = Future()
            self._waiting.append(turn)
        try:
            await asyncio.wait({asyncio.wrap_future(turn)}, timeout=seconds)
        except BaseException:
            if not self._stop_waiting(turn):
                self.give()
            raise
        return not self._stop_waiting(turn)

    def _stop_waiting(self, turn: Future[None]) -> bool:
        """Whether the turn had not come."""
        with self._lock:
            return turn.cancel()

    def _due(self, end: float) -> float | None:
        """Seconds until a call may begin; None: not before ``end``."""
        with self._lock:
            now = time.monotonic()
            if self._next > end:
                return None
            pause = max(0.0, self._next - now)
            self._next = max(now, self._next) + self._pause
            return pause
