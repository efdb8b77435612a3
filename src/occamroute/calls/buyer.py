"""Buyer: buys answers for many queries from many sources side by side, each call through the engine.

Everything is decided on the event loop that makes the calls; the caller's thread waits, hears of progress, and can be
interrupted at any time.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from occamroute._arrays import IntArray
from occamroute._loops import background
from occamroute.calls.answer_store import AnswerStore
from occamroute.calls.batch_budget import BatchBudget
from occamroute.calls.breakers import Breakers
from occamroute.calls.call_names import CallNames
from occamroute.calls.engine import CallEngine, Paid, PaidCall
from occamroute.calls.journal import Begun, Journal, JournalQueue
from occamroute.calls.limits import Slot
from occamroute.calls.pending_settlements import Settlement
from occamroute.calls.retries import pause, retries_after
from occamroute.calls.source_queue import FIRST_QUERIES, Batch, SourceQueue
from occamroute.calls.sources import BATCH, Outcome, Source
from occamroute.errors import BudgetExceededError, CallLostError, JournalError, LedgerError, UnavailableError
from occamroute.ledger import Hold

__all__ = ["Bought", "Buyer", "Reserve"]

LOG = logging.getLogger("occamroute")
Result = TypeVar("Result")
# The most that a call for these queries can cost.
Reserve = Callable[[str, IntArray], Fraction]
# Seconds that an interrupted run waits for calls under way.
DRAIN_SECONDS = 10.0
# Calls that failed for good before a source that never answered is given up: to find out costs money.
FAILURES_AT_FIRST = 2
# Of models that compute here a second call is held and written down while the first one runs, so that none waits.
LOCAL_SLOTS = 2
# Seconds between looks whether the caller was interrupted, on systems where waiting does not hear of it.
GLANCE = 0.5
LOST = "its call was lost with the process that made it, and may have been charged"


@dataclass
class Bought:
    """What became of a round of buying, beside the answers in the store.

    ``failures`` says by source and query why there is no answer; ``unaffordable`` are queries by source for which the
    money does not suffice; ``down`` says why a source is not asked any more, and ``unasked`` which queries it was to
    get.
    """

    failures: dict[str, dict[int, str]] = field(default_factory=dict)
    unaffordable: dict[str, IntArray] = field(default_factory=dict)
    unasked: dict[str, IntArray] = field(default_factory=dict)
    down: dict[str, str] = field(default_factory=dict)

    def fail(self, source: str, rows: IntArray, reason: str) -> None:
        """Note why queries have no answer of a source."""
        self.failures.setdefault(source, {}).update(dict.fromkeys(map(int, rows), reason))


class _AnothersCallError(Exception):
    """The call is left to another process that has, or had, money held for it."""


@dataclass(eq=False)
class _Call(PaidCall):
    """A call of a batch: its number in the journal, what every process calls it, and the ledger's hold.

    ``unseen`` says that an earlier process made it and did not see its end.
    """

    number: int = field(kw_only=True)
    queue: SourceQueue = field(kw_only=True)
    items: list[Batch] = field(kw_only=True)
    name: str = field(kw_only=True)
    unseen: bool = field(default=False, kw_only=True)
    hold: Hold | None = None

    @property
    def rows(self) -> IntArray:
        """All its queries."""
        return np.concatenate(self.batches)


class Buyer:
    """Buys answers for ``queries`` from ``sources``; what is in the journal already is not bought again.

    Calls that an earlier process did not see the end of are finished by ``recover``. With ``strict`` what cannot be
    asked again without being charged again is not asked again, which others who may do the same work rely on.
    ``limited`` says that ``reserve`` is what sources state, so that none may charge more.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        queries: Any,
        *,
        budget: BatchBudget,
        journal: Journal,
        reserve: Reserve,
        progress: Callable[[int], None] | None = None,
        careful: bool = True,
        strict: bool = False,
        limited: bool = True,
    ) -> None:
        self.sources, self.queries, self.budget, self.journal, self.reserve = sources, queries, budget, journal, reserve
        self.store = AnswerStore(list(sources), len(queries))
        with journal.reading():
            for outcome in journal.outcomes():
                if outcome.source in sources or not strict:  # of others nothing is wanted any more
                    self.store.put(outcome)
            self.budget.spent += sum(journal.spending(), Fraction(0))
            self.budget.owe(journal.outstanding())
        self.budget.maker, self.budget.process = journal.token, journal.process
        # What calls without an answer cost since this buyer began, by source.
        self.lost: dict[str, Fraction] = {}
        self._progress = progress or (lambda answers: None)
        # One model computes at a time: several would slow each other down, and each is paid by its own seconds.
        self._engine = CallEngine(
            sources, Breakers(at_first=FAILURES_AT_FIRST), local_threads=1, local_slots=LOCAL_SLOTS
        )
        self._writes = JournalQueue(journal)
        # Where money is short, calls that are paid by the second begin with few queries, and failures are final.
        self._careful = careful
        self._first = FIRST_QUERIES if careful else BATCH
        if not careful:
            for answers in self.store.by_source.values():
                answers.failures.clear()
        self._down: dict[str, str] = {}
        self._proved: set[str] = set()
        self._growth: dict[str, int | None] = {}
        self._random = random.Random()  # noqa: S311  # jitter
        self._calls: dict[asyncio.Task[Paid], _Call] = {}
        # Calls of an earlier process that wait for a slot to be made again.
        self._unseen: list[_Call] = []
        self._bought = Bought()
        self._came: Callable[[int], None] = lambda answers: None
        self._stopped = asyncio.Event()
        self._working: asyncio.Task[Any] | None = None
        self._strict, self._limited = strict, limited
        self._names = CallNames(journal, counted=strict and budget.ledger is not None)

    def on_progress(self, progress: Callable[[int], None]) -> None:
        """Have a function called with the number of answers that came."""
        self._progress = progress

    def close(self) -> None:
        """Let go of threads and journal, all of them even if this is interrupted."""
        with ExitStack() as steps:  # from the last to the first
            steps.callback(self.journal.close)
            steps.callback(self._forget_settled)
            steps.callback(self._writes.close)
            steps.callback(self._engine.close_threads, 0.0)
            steps.callback(self.budget.close, DRAIN_SECONDS)

    def _forget_settled(self) -> None:
        with suppress(JournalError):  # a settlement that is made again changes nothing
            self.journal.settled(self.budget.settled)

    def recover(self) -> None:
        """Make calls again that an earlier process did not see the end of, where that is charged once.

        Others stay counted at their worst case. With ``strict`` their queries are not asked again of that source,
        unless it is paid by the second, when only time was lost. What the ledger was not told is settled first.
        """
        unended = self.journal.unended()
        if unended or self.budget.outstanding:
            self._wait_for(self._recovered(unended), lambda answers: None)  # counted when they are wanted

    def buy(self, wanted: Mapping[str, IntArray]) -> Bought:
        """Buy an answer of each source for each of its queries, unless it is there already."""
        return self._wait_for(self._buy(wanted), self._progress)

    def _wait_for(self, work: Coroutine[Any, Any, Result], progress: Callable[[int], None]) -> Result:
        """Have work done on the loop; this thread hears of progress, and whatever it is stopped by stops the work.

        Answers that came before, or are under way at that moment, are paid for: they are waited for and written down.
        """
        events: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._came, self._stopped, self._working = events.put, asyncio.Event(), None
        loop = background()
        try:  # from here on, since an interrupt may come as soon as the loop has the work
            future = loop.submit(self._noted(work, events))
            while (answers := _next_of(events)) is not None:
                progress(answers)
            return future.result()
        except BaseException:  # Ctrl-C, or whatever the caller's progress raises
            loop.submit(self._stop()).result()
            raise

    async def _noted(self, work: Coroutine[Any, Any, Result], events: queue.SimpleQueue[int | None]) -> Result:
        self._working = asyncio.current_task()
        try:
            return await work
        finally:
            events.put(None)

    async def _stop(self) -> None:
        """Have the work stop if it has begun, and wait for its end."""
        self._stopped.set()
        if self._working is not None:
            await asyncio.wait({self._working})

    async def _recovered(self, unended: list[Begun]) -> None:
        await self.budget.settle_outstanding()
        for call, name, rows, reserved in unended:
            source = self.sources.get(name)
            if source is None:
                continue  # nothing of it is wanted any more
            if source.idempotent or (self._strict and source.repeatable):
                self._make_again(call, source, rows, reserved)
            elif self._strict and source.once_only:
                self.store[name].failures.update(dict.fromkeys(map(int, rows), LOST))
        await self._work([], Bought())
        await self._settle_up()

    def _make_again(self, number: int, source: Source, rows: IntArray, reserved: Fraction) -> None:
        """Have a call made under the number, and with the hold, that it had."""
        self.budget.spent -= reserved
        if not self.budget.hold(number, reserved, rows[:0]):
            self.budget.spent += reserved
            return
        items = [Batch(rows[at : at + source.batch_size]) for at in range(0, rows.size, source.batch_size)]
        queue_of_it = SourceQueue(source, proved=True)
        call = self._call(queue_of_it, items, number, reserved, self._names.latest(source.name, rows))
        call.unseen = True
        self._unseen.append(call)

    async def _buy(self, wanted: Mapping[str, IntArray]) -> Bought:
        bought = Bought()
        queues = []
        for name, rows in wanted.items():
            missing = self.store.missing(name, rows)
            self._came(rows.size - missing.size)
            if name in self._down:
                bought.unasked[name] = missing
                continue
            queues.append(self._queue(name, missing))
        await self._work(queues, bought)
        await self._settle_up()
        self._close_round(wanted, queues, bought)
        return bought

    def _queue(self, name: str, rows: IntArray) -> SourceQueue:
        """The calls of a source for these queries; what the journal holds of it counts as if it had come just now."""
        source, answers = self.sources[name], self.store[name]
        most = self._growth.get(name, self._first)
        proved = name in self._proved or bool(answers.there.any())
        made = SourceQueue(source, proved, most if source.timed else None)
        made.add(rows)
        paid = [reason for row, reason in answers.failures.items() if answers.costs[row] > 0.0]
        if paid:
            made.count_unusable(len(paid), paid[0])
        return made

    async def _work(self, queues: list[SourceQueue], bought: Bought) -> None:
        """Make calls until nothing is left that can be bought."""
        self._bought = bought
        try:
            while self._calls or self._unseen or any(one.open for one in queues):
                if self._stopped.is_set():
                    raise asyncio.CancelledError
                if self.budget.failing:  # nothing more is bought while the ledger cannot be reached
                    await self.budget.settle_outstanding()
                self._dispatch(queues)
                due = self._next_due(queues)
                if not self._calls and due is None:
                    for one in queues:
                        if one.dead is None and one.waiting:
                            bought.unaffordable[one.source.name] = one.unbought()
                    break
                await self._wait_until(due)
                self._collect(queues)
        except BaseException:
            await self._drain()
            raise

    def _dispatch(self, queues: list[SourceQueue]) -> None:
        """Begin every call that has a slot and fits the budget."""
        now = time.monotonic()
        for unseen in self._unseen.copy():
            if (slot := self._engine.limits[unseen.source.name].take()) is not None:
                self._unseen.remove(unseen)
                self._start(unseen, slot)
        for one in queues:
            one.wake(now)
            while one.ready:
                slot = self._engine.limits[one.source.name].take()
                if slot is None:
                    break
                call = self._affordable_call(one)
                if call is None:
                    slot.release(called=False)
                    break  # no money now; calls under way may give some back
                self._start(call, slot)

    def _affordable_call(self, one: SourceQueue) -> _Call | None:
        """The next call, with money held for it; for a part of its queries where the whole does not fit."""
        name = one.source.name
        items: list[Batch] | None = one.next_call(self._engine.seconds_a_query(name))
        while items is not None:
            rows = np.concatenate([batch.rows for batch in items])
            amount = max(self.reserve(name, rows), self._engine.at_latest_pace(name, rows.size))
            number = self.journal.new_call()
            # Features alone are no answer: what is kept for that stays kept.
            if self.budget.hold(number, amount, rows if one.source.classes else rows[:0]):
                # A call that is paid by the second is charged again if it is made again: its hold is not shared.
                shared = "" if one.source.timed else self._names.following(name, rows)
                self._names.count(name, rows)
                return self._call(one, items, number, amount, shared)
            items = one.smaller(items)
        one.short_of_money = True
        return None

    def _call(self, one: SourceQueue, items: list[Batch], number: int, amount: Fraction, shared: str) -> _Call:
        source, batches = one.source, [batch.rows for batch in items]
        return _Call(
            source,
            self.queries,
            batches,
            [self._names.key(source.name, rows) for rows in batches],
            [self.reserve(source.name, rows) for rows in batches],
            self._limited and not source.timed,
            amount,
            number=number,
            queue=one,
            items=items,
            name=shared,
        )

    def _start(self, call: _Call, slot: Slot) -> None:
        task = self._engine.start(call, slot, self)
        self._calls[task] = call
        call.queue.under_way += 1

    def _next_due(self, queues: list[SourceQueue]) -> float | None:
        """The moment at which a call may begin that has to wait for nothing but time."""
        now = time.monotonic()
        dues = [one.later[0][0] for one in queues if one.later and one.dead is None]
        rates = [self._engine.limits[call.source.name].opens_at for call in self._unseen]
        dues += [opens_at for opens_at in rates if opens_at > now or not self._calls]
        for one in queues:
            opens_at = self._engine.limits[one.source.name].opens_at
            if one.ready and (opens_at > now or not one.under_way):
                dues.append(opens_at)
        return min(dues, default=None)

    async def _wait_until(self, due: float | None) -> None:
        """Wait until a call ends, the moment comes, or the caller was interrupted."""
        stopped = asyncio.ensure_future(self._stopped.wait())
        seconds = None if due is None else max(0.0, due - time.monotonic())
        try:
            await asyncio.wait({*self._calls, stopped}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()

    def _collect(self, queues: list[SourceQueue]) -> None:
        """Take note of calls that ended, and raise what keeps the run from going on."""
        problem: BaseException | None = None
        for task in [task for task in self._calls if task.done()]:
            call = self._calls.pop(task)
            call.queue.under_way -= 1
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is None:
                for one in queues:  # it may have cost less than was held
                    one.affordable, one.short_of_money = None, False
            elif call.called is None:
                problem = self._not_made(call, error) or problem
            else:
                problem = error
        if problem is not None:
            raise problem

    def _not_made(self, call: _Call, error: BaseException) -> BaseException | None:
        """Give back what was held for a call that was not made; the error if the run cannot go on."""
        one, name = call.queue, call.source.name
        if isinstance(error, _AnothersCallError):
            self.budget.leave(call.number)
            self.store[name].failures.update(dict.fromkeys(map(int, call.rows), LOST))
            return None
        self.budget.cancel(call.number)
        if call.unseen:
            self.budget.spent += call.most  # it stays counted
        self._names.forget(name, call.rows)
        one.put_back(call.items)
        if isinstance(error, BudgetExceededError):
            one.affordable = call.rows.size // 2
            one.short_of_money = call.rows.size == 1
            return None
        if isinstance(error, UnavailableError):  # it rests, or the run was interrupted
            if self._engine.breakers.is_open(name):
                one.stop(str(error).rstrip("."))
            return None
        return error

    async def _drain(self) -> None:
        """Wait a little for calls under way: their answers are paid. What has not begun is not made."""
        self._came = lambda answers: None
        for call in self._calls.values():
            call.abandoned = True
        if self._calls:
            await asyncio.wait(set(self._calls), timeout=DRAIN_SECONDS)
        with suppress(Exception):  # what stopped the run is raised
            self._collect([])
        with suppress(Exception):  # what is outstanding is in the journal
            await self._writes.add(owed=list(self.budget.outstanding.values()))
        with suppress(Exception):
            await self.budget.settle_outstanding()

    async def _settle_up(self) -> None:
        """Settle what is outstanding before answers are used.

        With a journal on the disk an error is raised: the same run makes the settlement when it goes on. Without one,
        answers that were paid for would be lost, and so the ledger counts the hold in full when its lease is over.
        """
        try:
            await self.budget.settle_outstanding()
        except LedgerError as error:
            if self.journal.durable:
                raise
            LOG.warning("%d holds were not settled, and count in full: %s", len(self.budget.outstanding), error)

    def _close_round(self, wanted: Mapping[str, IntArray], queues: list[SourceQueue], bought: Bought) -> None:
        for one in queues:
            name = one.source.name
            self._growth[name] = one.most
            if one.proved:
                self._proved.add(name)
            if one.dead is not None:
                self._down[name] = one.dead
                bought.unasked[name] = one.unbought()
            failures = self.store[name].failures
            for row in wanted[name][~self.store[name].there[wanted[name]]] if failures else ():
                if int(row) in failures:
                    bought.failures.setdefault(name, {}).setdefault(int(row), failures[int(row)])
        bought.down = dict(self._down)

    # The account of its calls, for the engine.

    async def hold_for(self, call: _Call) -> None:
        """Have the ledger hold the money, too."""
        before = self.journal.process_of(call.number) if call.unseen else None
        call.hold = await self.budget.reserve(call.number, call.most, call.name, before)
        others = self._strict and call.source.once_only and not call.unseen
        if others and call.hold is not None and not call.hold.fresh:
            raise _AnothersCallError

    async def begin(self, call: _Call) -> None:
        """Write down that the call is about to be made."""
        if not call.unseen:
            await self._writes.add(begun=(call.number, call.source.name, call.rows, call.most))

    async def record(self, call: _Call, paid: Paid) -> None:
        """Take in answers, decide what follows from errors, and write all of it down before the ledger is told."""
        one, name = call.queue, call.source.name
        unmade = call.items[len(paid.outcomes) :]
        unanswered = [outcome.unanswered for outcome in paid.outcomes] + [batch.rows for batch in unmade]
        self.budget.end(call.number, paid.charged, np.concatenate(unanswered)[: None if call.source.classes else 0])
        wasted = sum((outcome.charged or Fraction(0) for outcome in paid.outcomes if outcome.error), Fraction(0))
        self.lost[name] = self.lost.get(name, Fraction(0)) + wasted
        if (reason := self._engine.breakers.suspended.get(name)) is not None:
            one.stop(reason)
        taken = [self._take(call, batch, outcome) for batch, outcome in zip(call.items, paid.outcomes, strict=False)]
        one.put_back(unmade)
        if call.hold is not None:
            self.budget.owe_for(call.hold, paid.charged, failing=False)
        await self._writes.add(
            finished=(call.number, paid.charged, [outcome for outcome, _ in taken]), owed=self._owed(call)
        )
        for outcome, final in taken:
            if final:
                self._came(outcome.rows.size)

    async def settle(self, call: _Call, _: Paid) -> str | None:
        """Tell the ledger what was charged; what fails is tried again before anything more is bought."""
        try:
            if call.hold is not None:
                await self.budget.settle(call.hold.key)
        except LedgerError as error:
            return str(error)
        return None

    async def cancel(self, call: _Call) -> None:
        """Give back the ledger's hold of a call that was not made; one that others share stays theirs."""
        if call.hold is not None:
            self.budget.owe_for(call.hold, Fraction(0))
        with suppress(JournalError):  # it then counts at its worst case
            await self._writes.add(finished=(call.number, Fraction(0), []), owed=self._owed(call))
        with suppress(LedgerError):
            await self.settle(call, Paid())

    def _owed(self, call: _Call) -> list[Settlement]:
        return [] if call.hold is None else [self.budget.outstanding[call.hold.key]]

    def _take(self, call: _Call, batch: Batch, outcome: Outcome) -> tuple[Outcome, bool]:
        """Put answers into the store, or decide what follows from an error.

        The outcome to be written down, and whether it is the last word on its queries.
        """
        error, one, source = outcome.error, call.queue, call.source
        if error is None:
            self.store.put(outcome)
            one.learn(outcome)
            # A paid reply without an answer is counted by the queue: the next query may well get one.
            self._engine.report(call, outcome, again=True)
            return outcome, True
        reason = str(error).rstrip(".")
        again = True
        if isinstance(error, UnavailableError):
            one.stop(reason)
            one.put_back([batch])
        elif batch.tries < retries_after(error, source, proved=one.proved):
            seconds = pause(batch.tries, error.retry_after, self._random) if source.remote else 0.0
            one.again(batch, time.monotonic() + seconds)
            if error.retry_after is not None:
                self._engine.limits[source.name].rest(seconds)
        elif batch.rows.size > 1 and isinstance(error, CallLostError):
            one.divide(batch)
        else:
            again = False
        # What computes here, and did before, is not down because it fails on some queries.
        self._engine.report(call, outcome, again=again or (one.proved and not source.remote))
        if again:
            return outcome, False
        if self._engine.breakers.is_open(source.name):
            one.stop(reason)
        self._bought.fail(source.name, batch.rows, reason)
        if not source.remote and self._careful:
            # What cannot be computed here now cannot be later: a resumed run need not try, and pay, again.
            outcome = replace(outcome, error=None, failures=dict.fromkeys(map(int, batch.rows), reason))
            self.store.put(outcome)
        return outcome, True


def _next_of(events: queue.SimpleQueue[int | None]) -> int | None:
    while True:
        with suppress(queue.Empty):
            return events.get(timeout=GLANCE)
