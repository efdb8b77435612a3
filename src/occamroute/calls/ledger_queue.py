"""Operations on a ledger from an event loop or threads: those that wait together are done in one transaction."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeAlias

from occamroute.errors import LedgerError, OccamError, UnknownNameError
from occamroute.ledger import Hold, Ledger
from occamroute.ledger.base import Find, FindReply, Operation, Release, Reserve, Settle

__all__ = ["LedgerQueue"]

LOG = logging.getLogger("occamroute")
# Operations in one transaction: others who use the ledger wait for it.
MOST = 256
# Seconds between tries to settle what the ledger could not be told, the first time and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
OPERATIONS = (Reserve, Settle, Release, Find, FindReply)

Then: TypeAlias = Callable[[Any], object]


class _Item(NamedTuple):
    work: Operation | Callable[[], Any]
    future: Future[Any]
    then: Then | None


class LedgerQueue:
    """Threads that do what is submitted: operations, many in one transaction, and other work with the ledger.

    There is one thread, or as many as transactions of the ledger can be on their way at once (``in_flight``).
    A settlement that fails is tried again until the ledger has it (``settle_later``), as long as this lives; if the
    process ends before, the hold counts in full once its lease is over.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._place = getattr(ledger, "place", type(ledger).__name__)
        self._items: deque[_Item] = deque()
        self._something = threading.Condition()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._process = os.getpid()
        self._closed = False
        self._later: dict[str, Settle | Release] = {}
        self._pause, self._again_at = FIRST_PAUSE, 0.0

    @property
    def unsettled(self) -> int:
        """How many settlements the ledger has not been told yet."""
        return len(self._later)

    def submit(self, work: Operation | Callable[[], Any], then: Then | None = None) -> Future[Any]:
        """Have an operation done, or something else that uses the ledger.

        ``then`` is called with what came of it, where that was no error, before anybody hears of it and before anything
        that is done afterwards.
        """
        future: Future[Any] = Future()
        with self._something:
            self._items.append(_Item(work, future, then))
            self._wake()
        return future

    def _wake(self) -> None:
        """Wake or start a thread; the lock is held."""
        if self._process != os.getpid():  # a forked child has no copy of them
            self._threads, self._idle, self._process = set(), 0, os.getpid()
        if not self._idle and len(self._threads) < max(1, getattr(self.ledger, "in_flight", 1)):
            self._closed = self._closed and bool(self._threads)
            thread = threading.Thread(target=self._run, name="occamroute-ledger", daemon=True)
            self._threads.add(thread)
            thread.start()
        self._something.notify()

    async def reserve(self, wish: Reserve, *, seconds: float, then: Then | None = None) -> Hold:
        """Make a hold. Raises ``LedgerError`` after ``seconds``; a hold that is made later than that is released."""
        future = self.submit(wish, then)
        waiting = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait({waiting}, timeout=seconds)
        except BaseException:
            self._release_late(future)
            raise
        if not done:
            self._release_late(future)
            raise LedgerError(self._place, f"it did not answer within {seconds:.3g} s")
        hold: Hold = waiting.result()
        return hold

    async def settle(self, step: Settle | Release, then: Then | None = None) -> str | None:
        """Settle or release. Returns why that failed for now; it is then retried in the background."""
        try:
            await asyncio.wrap_future(self.submit(step, then))
        except OccamError as error:
            self.settle_later(step)
            return str(error)
        return None

    def settle_later(self, step: Settle | Release) -> None:
        """Retry a settlement until it succeeds."""
        with self._something:
            self._later[step.hold.key] = step
            self._again_at = time.monotonic() + self._pause
            self._wake()
        LOG.warning("the hold %s is not settled yet: the ledger cannot be used", step.hold.key)

    def close(self, seconds: float) -> None:
        """Finish what is waiting, within ``seconds``, and end the threads; a later ``submit`` starts one again."""
        with self._something:
            self._closed = True
            self._again_at = 0.0
            threads = set(self._threads)
            self._something.notify_all()
        end = time.monotonic() + seconds
        for thread in threads:
            thread.join(timeout=max(0.0, end - time.monotonic()))

    def _release_late(self, future: Future[Any]) -> None:
        """Release a hold that is still being made, once it is there: its caller has given up."""

        def release(done: Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None and done.result().fresh:
                self.submit(Release(done.result()))

        if not future.cancel():
            future.add_done_callback(release)

    def _run(self) -> None:
        while True:
            with self._something:
                while not self._items and not self._due():
                    if self._closed:
                        self._threads.discard(threading.current_thread())
                        return
                    self._idle += 1
                    self._something.wait(self._nap())
                    self._idle -= 1
                due = self._due()
                if due:  # the others leave it to this one
                    self._again_at = math.inf
                batch = [self._items.popleft() for _ in range(min(len(self._items), MOST))]
            self._do([item for item in batch if item.future.set_running_or_notify_cancel()])
            if due:
                self._settle_again()

    def _due(self) -> bool:
        return bool(self._later) and time.monotonic() >= self._again_at

    def _nap(self) -> float | None:
        if not self._later or math.isinf(self._again_at):
            return None
        return max(0.0, self._again_at - time.monotonic())

    def _do(self, batch: Sequence[_Item]) -> None:
        operations = [item for item in batch if isinstance(item.work, OPERATIONS)]
        if operations:
            results = self._applied([item.work for item in operations])  # type: ignore[misc]  # as was just checked
            for item, result in zip(operations, results, strict=True):
                _tell(item, result)
        for item in batch:
            if not isinstance(item.work, OPERATIONS):
                try:
                    result = item.work()
                except BaseException as error:  # noqa: BLE001  # the caller gets it
                    result = error
                _tell(item, result)

    def _applied(self, operations: Sequence[Operation]) -> Sequence[Any]:
        try:
            if hasattr(self.ledger, "apply"):
                return self.ledger.apply(operations)
        except Exception as error:  # noqa: BLE001  # a ledger of another package may raise anything
            return [error] * len(operations)
        return [self._applied_alone(operation) for operation in operations]

    def _applied_alone(self, operation: Operation) -> Any:
        """For ledgers of other packages that were written for occamroute 0.1.0: they store no replies."""
        try:
            if isinstance(operation, Reserve):
                return self.ledger.reserve(
                    operation.amount,
                    key=operation.key,
                    lease_seconds=operation.lease_seconds,
                    client=operation.client,
                )
            if isinstance(operation, Settle):
                return self.ledger.settle(operation.hold, operation.amount)
            if isinstance(operation, Release):
                return self.ledger.release(operation.hold)
            return self.ledger.find(operation.key) if isinstance(operation, Find) else None
        except Exception as error:  # noqa: BLE001  # a ledger of another package may raise anything
            return error

    def _settle_again(self) -> None:
        with self._something:
            steps = list(self._later.values())[:MOST]
        failed = False
        for step, result in zip(steps, self._applied(steps), strict=True):
            if isinstance(result, BaseException) and not isinstance(result, UnknownNameError):
                failed = True
            else:
                self._later.pop(step.hold.key, None)
        self._pause = min(LONGEST_PAUSE, 2.0 * self._pause) if failed else FIRST_PAUSE
        self._again_at = time.monotonic() + (self._pause if failed else 0.0)
        if failed and self._closed:
            LOG.warning("%d holds were not settled, and count in full", len(self._later))
            self._later.clear()


def _tell(item: _Item, result: Any) -> None:
    if isinstance(result, BaseException):
        item.future.set_exception(result)
        return
    try:
        if item.then is not None:
            item.then(result)
    except Exception:
        LOG.exception("what follows from an operation on the ledger failed")
    finally:
        item.future.set_result(result)
