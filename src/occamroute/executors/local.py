"""Blocks of rows on the threads of this process."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from occamroute.executors import Task

__all__ = ["LocalExecutor", "limit_threads", "one_thread_each", "over_blocks", "thread_count"]

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")


class LocalExecutor:
    """Items on the threads of this process, never more of them at once than ``workers`` (by default its cores)."""

    name = "local"

    def __init__(self, workers: int | None = None) -> None:
        self.workers = thread_count(workers)

    @property
    def at_once(self) -> int:
        """How many items are worked on at the same time."""
        return self.workers

    def map(self, task: Task[Shared, Item, Result], shared: Shared, items: Iterable[Item]) -> Iterator[Result]:
        """``task(shared, item)`` of every item, in their order."""
        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(self.workers, thread_name_prefix="occamroute") as pool:
            try:
                for item in items:
                    if len(waiting) == 2 * self.workers:  # so that none waits for the one before it
                        yield waiting.popleft().result()
                    waiting.append(pool.submit(task, shared, item))
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


_most_threads: dict[str, int] = {}


def thread_count(threads: int | None = None) -> int:
    """The number of threads to use: the cores this process may run on unless the caller says otherwise."""
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(threads, _most_threads.get("process", threads)))


def limit_threads(most: int) -> None:
    """From now on this process uses no more threads than that, in linear algebra neither: others have the cores."""
    if _most_threads.get("process") == most:
        return
    from threadpoolctl import threadpool_limits

    _most_threads["process"] = most
    for library in ("OMP", "OPENBLAS", "MKL"):  # those that are not loaded yet
        os.environ[f"{library}_NUM_THREADS"] = str(most)
    threadpool_limits(limits=most)


def over_blocks(
    function: Callable[[int, int], Result], total: int, *, block: int, threads: int | None = None
) -> list[Result]:
    """Call ``function(start, stop)`` on consecutive blocks of ``range(total)``; results in their order.

    The pool lives for one call: nothing is left to break in a forked child, and any number of callers may
    run side by side.
    """
    starts = range(0, total, block)
    workers = min(thread_count(threads), len(starts))
    if workers <= 1:
        return [function(start, min(start + block, total)) for start in starts]
    with ThreadPoolExecutor(workers, thread_name_prefix="occamroute") as pool:
        return list(pool.map(lambda start: function(start, min(start + block, total)), starts))


_limit: dict[str, Any] = {"users": 0, "held": None}
_limit_lock = threading.Lock()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Linear algebra on one thread a call, for code that runs many calls side by side.

    BLAS threads wait for each other by spinning: on a machine that has other work, a factorisation of a tenth of a
    second then takes ten. The limit is the whole process's, so the first caller sets it and the last one lifts it.
    """
    from threadpoolctl import threadpool_limits

    with _limit_lock:
        _limit["users"] += 1
        if _limit["users"] == 1:
            _limit["held"] = threadpool_limits(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _limit_lock:
            _limit["users"] -= 1
            if _limit["users"] == 0:
                _limit["held"].restore_original_limits()
