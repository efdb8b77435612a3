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

from occamroute.calls.pending_settlements import PendingSettlements, Settlement
from occamroute.errors import InvalidInputError, LedgerError, StorageError
from occamroute.ledger import Hold, Ledger
from occamroute.ledger.base import Find, FindReply, Operation, Release, Reserve, Settle, amount_of, rounded_up

__all__ = ["LedgerQueue"]

LOG = logging.getLogger("occamroute")
# Operations in one transaction: others who use the ledger wait for it.
MOST = 256
# Seconds for which an operation without a waiting caller is delayed, to share a transaction with others.
LINGER = 0.005
# Seconds between tries to settle what the ledger could not be told, the first time and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
OPERATIONS = (Reserve, Settle, Release, Find, FindReply)

Then: TypeAlias = Callable[[Any], object]


class _Item(NamedTuple):
    work: Operation | Callable[[], Any]
    future: Future[Any]
    then: Then | None
    again: bool = False  # a settlement that is kept and tried again where it fails


class LedgerQueue:
    """Threads that do what is submitted: operations, many in one transaction, and other work with the ledger.

    There is one thread, or as many as transactions of the ledger can be on their way at once (``in_flight``).
    A settlement that fails (``settle``, ``settle_soon``) is tried again until the ledger has it. With ``pending`` it
    is in a file meanwhile: if the process ends before, the next queue with that file goes on with it. Without, the
    hold then counts in full once its lease is over.
    """

    def __init__(self, ledger: Ledger, *, pending: PendingSettlements | None = None) -> None:
        self.ledger = ledger
        # Ledgers of other packages have neither, or something else by these names.
        place, in_flight = getattr(ledger, "place", None), getattr(ledger, "in_flight", None)
        self._place = place if isinstance(place, str) else type(ledger).__name__
        self._in_flight = in_flight if isinstance(in_flight, int) else 1
        self._items: deque[_Item] = deque()
        # Operations without a waiting caller, and the moment by which the first of them is done.
        self._lingering: deque[_Item] = deque()
        self._linger_until = math.inf
        self._something = threading.Condition()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._process = os.getpid()
        self._closed = False
        self._later: dict[str, Settlement] = {}
        self._pause, self._again_at = FIRST_PAUSE, 0.0
        self._pending = pending
        # Holds whose settlements could not be written to the file.
        self._unsaved: set[str] = set()
        if pending is not None:
            self._go_on(pending)

    def _go_on(self, pending: PendingSettlements) -> None:
        """Settle what an earlier process could not."""
        settlements, others = pending.read()
        if others:
            LOG.warning("%s has %d settlements of other ledgers: they are left there", pending.path, others)
        if settlements:
            LOG.info("%s has %d settlements that the ledger is told now", pending.path, len(settlements))
            with self._something:
                self._later.update((one.hold.key, one) for one in settlements)
                self._wake()

    @property
    def unsettled(self) -> int:
        """How many settlements the ledger has not been told yet."""
        return len(self._later)

    def submit(self, work: Operation | Callable[[], Any], then: Then | None = None) -> Future[Any]:
        """Have an operation done, or something else that uses the ledger.

        ``then`` is called with what came of it, where that was no error, before anybody hears of it and before anything
        that is done afterwards.
        """
        return self._put(_Item(work, Future(), then))

    def _put(self, item: _Item, *, linger: bool = False) -> Future[Any]:
        """An item that may linger waits a moment for others to be done with it in one transaction."""
        with self._something:
            if linger:
                self._lingering.append(item)
                self._linger_until = min(self._linger_until, time.monotonic() + LINGER)
            else:
                self._items.append(item)
            self._wake()
        return item.future

    def _wake(self) -> None:
        """Wake or start a thread; the lock is held."""
        if self._process != os.getpid():  # a forked child has no copy of them
            self._threads, self._idle, self._process = set(), 0, os.getpid()
        if not self._idle and len(self._threads) < max(1, self._in_flight):
            self._closed = self._closed and bool(self._threads)
            thread = threading.Thread(target=self._run, name="occamroute-ledger", daemon=True)
            self._threads.add(thread)
            thread.start()
        self._something.notify()

    async def reserve(
        self, wish: Reserve, *, seconds: float, then: Then | None = None, release_unknown: bool = True
    ) -> Hold:
        """Make a hold. Raises ``LedgerError`` after ``seconds``; a hold that is made later than that is released.

        Where the ledger fails, the hold may be there although no reply came: it is released as soon as possible, unless
        the caller does so or others share its key (``release_unknown``).
        """
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
        try:
            hold: Hold = waiting.result()
        except LedgerError:
            if release_unknown:
                self._put_settlement(Release(Hold(wish.key, amount_of(rounded_up(wish.amount)))))
            raise
        return hold

    def settle_soon(self, step: Settlement, then: Then | None = None) -> None:
        """Settle or release within a moment, without waiting for it; what fails is kept, and retried."""
        self._put_settlement(step, then, linger=True)

    async def settle(self, step: Settlement, then: Then | None = None) -> str | None:
        """Settle or release. Returns why that failed for now; it is then kept, and retried in the background.

        It is done even if this is cancelled. What no ledger could do, such as to settle a hold that does not exist, is
        not retried.
        """
        try:
            await asyncio.wrap_future(self._put_settlement(step, then))
        except Exception as error:  # noqa: BLE001  # a ledger of another package may raise anything
            return str(error)
        return None

    def _put_settlement(self, step: Settlement, then: Then | None = None, *, linger: bool = False) -> Future[Any]:
        """Have a settlement made, now or later; it cannot be cancelled."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        return self._put(_Item(step, future, then, again=True), linger=linger)

    def _keep(self, steps: Sequence[Settlement]) -> None:
        self._save(steps)
        with self._something:
            self._later.update((step.hold.key, step) for step in steps)
            self._again_at = time.monotonic() + self._pause
            self._wake()
        for step in steps:
            LOG.warning("the hold %s is not settled yet: the ledger cannot be used", step.hold.key)

    def _save(self, steps: Sequence[Settlement]) -> None:
        """Write settlements to the file; where that fails they are in memory, and written when they are retried."""
        if self._pending is None:
            return
        keys = {step.hold.key for step in steps}
        try:
            self._pending.add(steps)
        except StorageError as error:
            self._unsaved |= keys
            LOG.warning("%d settlements are kept in memory only: %s", len(keys), error)
        else:
            self._unsaved -= keys

    def _forget(self, keys: Sequence[str]) -> None:
        if self._pending is None or not keys:
            return
        self._unsaved.difference_update(keys)
        try:
            self._pending.remove(keys)
        except StorageError as error:  # the next start settles them again, which does nothing
            LOG.warning("%d settlements that were made stay in the file: %s", len(keys), error)

    def close(self, seconds: float) -> None:
        """Finish what is waiting, within ``seconds``, and end the threads; a later ``submit`` starts one again."""
        with self._something:
            self._closed = True
            self._again_at = 0.0
            if self._lingering:
                self._linger_until = 0.0
            threads = set(self._threads)
            self._something.notify_all()
        end = time.monotonic() + seconds
        for thread in threads:
            thread.join(timeout=max(0.0, end - time.monotonic()))

    def _release_late(self, future: Future[Any]) -> None:
        """Release a hold that is still being made, once it is there: its caller has given up."""

        def release(done: Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None and done.result().fresh:
                self._put_settlement(Release(done.result()))

        if not future.cancel():
            future.add_done_callback(release)

    def _run(self) -> None:
        while True:
            with self._something:
                while not self._items and not self._due() and time.monotonic() < self._linger_until:
                    if self._closed and not self._lingering:
                        self._threads.discard(threading.current_thread())
                        return
                    self._idle += 1
                    self._something.wait(self._nap())
                    self._idle -= 1
                due = self._due()
                if due:  # the others leave it to this one
                    self._again_at = math.inf
                # What lingered was submitted before, and comes before.
                batch = [*self._lingering, *(self._items.popleft() for _ in range(min(len(self._items), MOST)))]
                self._lingering.clear()
                self._linger_until = math.inf
            self._do([item for item in batch if item.again or item.future.set_running_or_notify_cancel()])
            if due:
                self._settle_again()

    def _due(self) -> bool:
        return bool(self._later) and time.monotonic() >= self._again_at

    def _nap(self) -> float | None:
        at = min(self._linger_until, self._again_at if self._later else math.inf)
        return None if math.isinf(at) else max(0.0, at - time.monotonic())

    def _do(self, batch: Sequence[_Item]) -> None:
        operations = [item for item in batch if isinstance(item.work, OPERATIONS)]
        if operations:
            results = self._applied([item.work for item in operations])  # type: ignore[misc]  # as was just checked
            failed: list[Any] = [
                item.work for item, result in zip(operations, results, strict=True) if item.again and _may_pass(result)
            ]
            if failed:  # before anybody is told
                self._keep(failed)
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
        done: list[Settlement] = []
        for step, result in zip(steps, self._applied(steps), strict=True):
            if not _may_pass(result):
                done.append(step)
            if isinstance(result, InvalidInputError) and not _may_pass(result):
                LOG.warning("the hold %s is not settled, which is given up: %s", step.hold.key, result)
        self._forget([step.hold.key for step in done])
        with self._something:
            for step in done:
                if self._later.get(step.hold.key) is step:
                    del self._later[step.hold.key]
            unsaved = [self._later[key] for key in self._unsaved if key in self._later]
        failed = len(done) < len(steps)
        if failed and unsaved:
            self._save(unsaved)
        self._pause = min(LONGEST_PAUSE, 2.0 * self._pause) if failed else FIRST_PAUSE
        self._again_at = time.monotonic() + (self._pause if failed else 0.0)
        if failed and self._closed:
            left = len(self._later.keys() & self._unsaved) if self._pending is not None else len(self._later)
            if self._pending is not None and left < len(self._later):
                LOG.warning("%d holds are settled at the next start: %s", len(self._later) - left, self._pending.path)
            if left:
                LOG.warning("%d holds were not settled, and count in full", left)
            self._later.clear()


def _may_pass(result: Any) -> bool:
    """Whether it is an error that may be none another time."""
    # Storage that cannot be written is an error of input, too, but not for ever.
    lasting = isinstance(result, InvalidInputError) and not isinstance(result, StorageError)
    return isinstance(result, Exception) and not lasting


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
