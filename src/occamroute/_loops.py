"""The event loop of this process for calls, in a thread of its own: any thread and any other loop may use it."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["BackgroundLoop", "background"]

T = TypeVar("T")


class BackgroundLoop:
    """A running loop and its thread, a daemon: a call that never returns does not keep a process from ending."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._last: list[Callable[[], Awaitable[Any]]] = []
        self._thread = threading.Thread(target=self.loop.run_forever, name="occamroute-calls", daemon=True)
        self._thread.start()
        atexit.register(self._stop)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Schedule a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; interrupting the wait cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def at_the_end(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Run something on the loop before the process ends."""
        self._last.append(work)

    def _stop(self) -> None:
        if self._process != os.getpid():  # a fork: the thread is the parent's
            return
        with suppress(TimeoutError):
            self.submit(self._finish()).result(timeout=5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self.loop.close()

    async def _finish(self) -> None:
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for task in under_way:  # no caller is left to receive their results
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for work in self._last:
            await work()


class _Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: BackgroundLoop | None = None


_shared = _Shared()
if hasattr(os, "register_at_fork"):
    # A forked child has no copy of the thread, and the lock may have been held by one that it has no copy of, either.
    os.register_at_fork(after_in_child=_shared.__init__)  # type: ignore[misc]  # start over


def background() -> BackgroundLoop:
    """The shared loop, started when it is first needed."""
    with _shared.lock:
        if _shared.made is None:
            _shared.made = BackgroundLoop()
        return _shared.made
