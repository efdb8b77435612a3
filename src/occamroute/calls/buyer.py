"""Buyer: buys answers from many sources side by side, holding the worst case of every call before it is made.

One thread decides: it alone touches the purse, the journal and the shelf. Other threads only make calls.
"""

from __future__ import annotations

import logging
import queue
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import IntArray
from occamroute.calls.call_names import CallNames
from occamroute.calls.interrupts import held_back
from occamroute.calls.journal import Journal, Sent
from occamroute.calls.lanes import FIRST_QUERIES, Batch, Lane, Workers, pause
from occamroute.calls.purse import Purse
from occamroute.calls.shelf import Shelf
from occamroute.calls.sources import BATCH, Outcome, Source
from occamroute.errors import CallLostError, JournalError, LedgerError, UnavailableError

__all__ = ["Bought", "Buyer", "Reserve"]

LOG = logging.getLogger("occamroute")
# The most that a call for these queries can cost.
Reserve = Callable[[str, IntArray], Fraction]
# Seconds that an interrupted run waits for calls under way.
DRAIN_SECONDS = 10.0
LOCAL = "here"
LOST = "its call was lost with the process that made it, and may have been charged"


@dataclass
class Bought:
    """What became of a round of buying, beside the answers on the shelf.

    ``failures`` says by source and query why there is no answer; ``unaffordable`` are queries by source for which the
    money does not reach; ``down`` says why a source is not asked any more, and ``unasked`` which queries it was to get.
    """

    failures: dict[str, dict[int, str]] = field(default_factory=dict)
    unaffordable: dict[str, IntArray] = field(default_factory=dict)
    unasked: dict[str, IntArray] = field(default_factory=dict)
    down: dict[str, str] = field(default_factory=dict)

    def fail(self, source: str, rows: IntArray, reason: str) -> None:
        """Note why queries have no answer of a source."""
        self.failures.setdefault(source, {}).update(dict.fromkeys(map(int, rows), reason))


class Buyer:
    """Buys answers for ``queries`` from ``sources``; what is in the journal already is not bought again.

    Calls that an earlier process did not see the end of are finished by ``recover``. With ``strict`` what cannot be
    asked again without being charged again is not asked again, which others who may do the same work rely on.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        queries: Any,
        *,
        purse: Purse,
        journal: Journal,
        reserve: Reserve,
        progress: Callable[[int], None] | None = None,
        careful: bool = True,
        strict: bool = False,
    ) -> None:
        self.sources, self.queries, self.purse, self.journal, self.reserve = sources, queries, purse, journal, reserve
        self.shelf = Shelf(list(sources), len(queries))
        with journal.reading():
            for outcome in journal.outcomes():
                if outcome.source in sources or not strict:  # of others nothing is wanted any more
                    self.shelf.put(outcome)
            self.purse.spent += sum(journal.spending(), Fraction(0))
            self.purse.outstanding.update(journal.outstanding())
        # What calls without an answer cost since this buyer began, by source.
        self.lost: dict[str, Fraction] = {}
        self._progress = progress or (lambda answers: None)
        self._workers = Workers()
        # Where money is short, calls that are paid by the second begin with few queries, and failures are final.
        self._careful = careful
        self._first = FIRST_QUERIES if careful else BATCH
        if not careful:
            for stock in self.shelf.stocks.values():
                stock.failures.clear()
        self._warm: set[str] = set()
        self._down: dict[str, str] = {}
        self._proved: set[str] = set()
        self._pace: dict[str, tuple[int | None, float | None]] = {}
        self._random = random.Random()  # noqa: S311  # jitter
        # Calls for which money is held, and those of them that a worker was given.
        self._calls: dict[int, tuple[Lane, list[Batch], Fraction]] = {}
        self._made: set[int] = set()
        self._strict = strict
        self._settling = True
        self._names = CallNames(journal, counted=strict and purse.ledger is not None)

    def on_progress(self, progress: Callable[[int], None]) -> None:
        """Have a function called with the number of answers that came."""
        self._progress = progress

    def close(self) -> None:
        """Let go of threads and journal."""
        self._workers.close()
        with suppress(JournalError):  # a settlement that is made again changes nothing
            self.journal.settled(self.purse.settled)
        self.journal.close()

    def recover(self) -> None:
        """Make calls again that an earlier process did not see the end of, where that is charged once.

        Others stay counted at their worst case. With ``strict`` their queries are not asked again of that source,
        unless it is paid by the second, when only time was lost. What the ledger was not told is settled first.
        """
        self.purse.settle_outstanding()
        for call, name, rows, reserved in self.journal.unended():
            source = self.sources.get(name)
            if source is None:
                continue  # nothing of it is wanted any more
            if source.idempotent or (self._strict and source.repeatable):
                self._make_again(call, source, rows, reserved)
            elif self._strict and source.once_only:
                self.shelf[name].failures.update(dict.fromkeys(map(int, rows), LOST))
        progress, self._progress = self._progress, lambda answers: None  # counted when they are wanted
        with held_back() as listen:
            while self._calls:
                listen()
                self._collect([], Bought())
        self._progress = progress
        self._settle_up()

    def _make_again(self, call: int, source: Source, rows: IntArray, reserved: Fraction) -> None:
        """Make a call under the number, and with the hold, that it had."""
        self.purse.spent -= reserved
        if not self.purse.hold(call, reserved, rows[:0], self._names.latest(source.name, rows)):
            self.purse.spent += reserved
            return
        batches = [Batch(rows[at : at + source.batch_size]) for at in range(0, rows.size, source.batch_size)]
        self._calls[call] = (Lane(source, proved=True, under_way=1), batches, reserved)
        self._submit(call)

    def buy(self, wanted: Mapping[str, IntArray]) -> Bought:
        """Buy an answer of each source for each of its queries, unless it is there already."""
        bought = Bought()
        lanes = []
        for name, rows in wanted.items():
            missing = self.shelf.missing(name, rows)
            self._progress(rows.size - missing.size)
            if name in self._down:
                bought.unasked[name] = missing
                continue
            lanes.append(self._lane(name, missing))
        with held_back() as listen:
            try:
                self._work(lanes, bought, listen)
                self._settle_up()
            except BaseException:  # Ctrl-C, or whatever the caller's progress raises
                self._drain(bought)
                raise
        self._close_round(wanted, lanes, bought)
        return bought

    def _lane(self, name: str, rows: IntArray) -> Lane:
        """The calls of a source for these queries; what the journal holds of it counts as if it had come just now."""
        source, stock = self.sources[name], self.shelf[name]
        most, speed = self._pace.get(name, (self._first, None))
        proved = name in self._proved or bool(stock.there.any())
        lane = Lane(source, proved, most if source.timed else None, speed)
        lane.add(rows)
        paid = [reason for row, reason in stock.failures.items() if stock.costs[row] > 0.0]
        if paid:
            lane.count_unusable(len(paid), paid[0])
        return lane

    def _work(self, lanes: list[Lane], bought: Bought, listen: Callable[[], None]) -> None:
        while any(lane.waiting or lane.later for lane in lanes if lane.dead is None) or self._calls:
            listen()
            now = time.monotonic()
            stuck = not self._dispatch(lanes, now) and not self._calls
            if stuck and all(not lane.later and now >= lane.paused_until for lane in lanes if lane.dead is None):
                for lane in lanes:
                    if lane.dead is None and lane.waiting:
                        bought.unaffordable[lane.source.name] = lane.unbought()
                break
            self._collect(lanes, bought)

    def _drain(self, bought: Bought) -> None:
        """Wait a little for calls under way: their answers are paid. What was only written down costs nothing."""
        self._progress = lambda answers: None
        unmade = [call for call in self._calls if call not in self._made]
        for call in unmade:
            lane, batches, _ = self._calls.pop(call)
            rows = np.concatenate([batch.rows for batch in batches])
            self.purse.settle(call, Fraction(0), rows if lane.source.classes else rows[:0])
        # A ledger that cannot be reached takes seconds to say so: answers under way are collected and written first.
        self._settling = False
        self.journal.ended([(call, Fraction(0), []) for call in unmade], self.purse.outstanding)
        until = time.monotonic() + DRAIN_SECONDS
        while self._calls and time.monotonic() < until:
            self._collect([], bought)
        with suppress(Exception):  # what stopped the run is raised; what is outstanding is in the journal
            self.purse.settle_outstanding()

    def _settle_up(self) -> None:
        """Settle what is outstanding before answers are used.

        With a journal on the disk an error is raised: the same run makes the settlement when it goes on. Without one,
        answers that were paid for would be lost, and so the ledger counts the hold in full when its lease is over.
        """
        try:
            self.purse.settle_outstanding()
        except LedgerError as error:
            if self.journal.durable:
                raise
            LOG.warning("%d holds were not settled, and count in full: %s", len(self.purse.outstanding), error)

    def _close_round(self, wanted: Mapping[str, IntArray], lanes: list[Lane], bought: Bought) -> None:
        for lane in lanes:
            name = lane.source.name
            self._pace[name] = lane.most, lane.seconds_a_query
            if lane.proved:
                self._proved.add(name)
            if lane.dead is not None:
                self._down[name] = lane.dead
                bought.unasked[name] = lane.unbought()
            failures = self.shelf[name].failures
            for row in wanted[name][~self.shelf[name].there[wanted[name]]] if failures else ():
                if int(row) in failures:
                    bought.failures.setdefault(name, {}).setdefault(int(row), failures[int(row)])
        bought.down = dict(self._down)

    def _dispatch(self, lanes: list[Lane], now: float) -> bool:
        """Begin every call that has a place and fits the purse; whether any began."""
        begun: list[Sent] = []
        self.purse.settle_outstanding()  # nothing more is bought while the ledger cannot be reached
        for lane in lanes:
            lane.wake(now)
            while lane.ready(now):
                held = self._hold(lane)
                if held is None:
                    break  # no money now; calls under way may give some back
                begun.append(held)
                lane.began(now)
        if not begun:
            return False
        self.journal.sent(begun)
        for call, _, _, _ in begun:
            self._submit(call)
        return True

    def _submit(self, call: int) -> None:
        lane, batches, _ = self._calls[call]
        place = lane.source.name if lane.source.remote else LOCAL
        self._made.add(call)
        self._workers.submit(place, max(1, lane.source.concurrency), self._task(call, lane.source, batches))

    def _hold(self, lane: Lane) -> Sent | None:
        """Hold money for the next call; for a part of it where the whole does not fit."""
        batches = lane.next_call()
        while True:
            rows = np.concatenate([batch.rows for batch in batches])
            amount = max(self.reserve(lane.source.name, rows), lane.most_seen(rows.size))
            call = self.journal.new_call()
            # Features alone are no answer: what is kept for that stays kept.
            # What is paid by the second is paid again by whoever makes the call again: nobody shares its hold.
            name = "" if lane.source.timed else self._names.following(lane.source.name, rows)
            if self.purse.hold(call, amount, rows if lane.source.classes else rows[:0], name):
                self._names.count(lane.source.name, rows)
                if not self._is_anothers(call, lane.source):
                    self._calls[call] = (lane, batches, amount)
                    return call, lane.source.name, rows, amount
                self.shelf[lane.source.name].failures.update(dict.fromkeys(map(int, rows), LOST))
                if not lane.waiting:
                    return None
                batches = lane.next_call()
                continue
            if rows.size == 1:
                lane.waiting.extendleft(reversed(batches))
                return None
            if len(batches) > 1:
                half = len(batches) // 2
                lane.waiting.extendleft(reversed(batches[half:]))
                batches = batches[:half]
            else:
                half = rows.size // 2
                lane.waiting.appendleft(Batch(rows[half:], batches[0].tries))
                batches = [Batch(rows[:half], batches[0].tries)]

    def _is_anothers(self, call: int, source: Source) -> bool:
        """Whether a call is left to another process that has, or had, money held for it; the money counts as spent."""
        left = self._strict and source.once_only and self.purse.is_anothers(call)
        if left:
            self.purse.leave(call)
        return left

    def _task(self, call: int, source: Source, batches: list[Batch]) -> Callable[[], tuple[int, list[Outcome]]]:
        def task() -> tuple[int, list[Outcome]]:
            outcomes = []
            if source.timed and not source.remote and source.name not in self._warm:
                # Loading and compiling are no part of what a call takes: one that is not counted goes before. Not
                # where somebody else bills the seconds: every call is then held and settled.
                self._warm.add(source.name)
                source.call(self.queries, batches[0].rows[: self._first])
            for batch in batches:
                outcomes.append(source.call(self.queries, batch.rows, self._names.key(source.name, batch.rows)))
                if isinstance(outcomes[-1].error, UnavailableError):
                    break  # the rest would fail too, at a cost
            return call, outcomes

        return task

    def _collect(self, lanes: list[Lane], bought: Bought) -> None:
        """Wait for calls to end, or for a time that somebody waits for, and settle."""
        now = time.monotonic()
        dues = [lane.later[0][0] for lane in lanes if lane.later and lane.dead is None]
        dues += [lane.paused_until for lane in lanes if lane.waiting and lane.paused_until > now]
        # Short waits, so that an interrupt is heard at once on every system.
        patience = min(0.5, max(0.0, min(dues, default=now + 0.5) - now))
        ended = []
        try:
            ended.append(self._workers.results.get(timeout=patience))
            while True:
                ended.append(self._workers.results.get_nowait())
        except queue.Empty:
            pass
        if ended:
            self._settle(ended, bought)

    def _settle(self, ended: list[tuple[int, list[Outcome]]], bought: Bought) -> None:
        records, finished = [], []
        for call, outcomes in ended:
            lane, batches, reserved = self._calls.pop(call)
            self._made.discard(call)
            known = [self._with_amount(outcome, reserved) for outcome in outcomes]
            charged = sum((outcome.charged or Fraction(0) for outcome in known), Fraction(0))
            unanswered = [outcome.unanswered for outcome in known] + [batch.rows for batch in batches[len(known) :]]
            self.purse.settle(call, charged, np.concatenate(unanswered)[: None if lane.source.classes else 0])
            lane.under_way -= 1
            wasted = sum((one.charged or Fraction(0) for one in known if one.error is not None), Fraction(0))
            self.lost[lane.source.name] = self.lost.get(lane.source.name, Fraction(0)) + wasted
            taken = [self._take(lane, batch, outcome, bought) for batch, outcome in zip(batches, known, strict=False)]
            lane.waiting.extendleft(reversed(batches[len(known) :]))
            records.append((call, charged, [outcome for outcome, _ in taken]))
            finished += [outcome.rows.size for outcome, final in taken if final]
        # On the disk before anything follows from it, and before the ledger is told: an answer that was paid for must
        # not depend on whether the ledger can be reached.
        self.journal.ended(records, self.purse.outstanding)
        if self._settling:
            with suppress(LedgerError):  # tried again before anything more is bought
                self.purse.settle_outstanding()
        for answers in finished:
            self._progress(answers)

    def _with_amount(self, outcome: Outcome, reserved: Fraction) -> Outcome:
        """The outcome with the worst case as its amount where nobody knows what was charged."""
        if outcome.charged is not None:
            return outcome
        return replace(outcome, charged=min(self.reserve(outcome.source, outcome.rows), reserved))

    def _take(self, lane: Lane, batch: Batch, outcome: Outcome, bought: Bought) -> tuple[Outcome, bool]:
        """Put answers on the shelf, or decide what follows from an error.

        The outcome to be written down, and whether it is the last word on its queries.
        """
        error = outcome.error
        if error is None:
            self.shelf.put(outcome)
            lane.learn(outcome)
            return outcome, True
        reason = str(error).rstrip(".")
        if isinstance(error, UnavailableError):
            lane.stop(reason)
            lane.waiting.appendleft(batch)
        elif batch.tries < lane.tries_allowed(error):
            seconds = pause(batch.tries, error.retry_after, self._random) if lane.source.remote else 0.0
            lane.again(batch, time.monotonic() + seconds)
            if error.retry_after is not None:
                lane.paused_until = max(lane.paused_until, time.monotonic() + seconds)
        elif batch.rows.size > 1 and isinstance(error, CallLostError):
            lane.look_for_the_culprit(batch)
        else:
            bought.fail(lane.source.name, batch.rows, reason)
            lane.failed(reason)
            if not lane.source.remote and self._careful:
                # What cannot be computed here now cannot be later: a resumed run need not try, and pay, again.
                outcome = replace(outcome, error=None, failures=dict.fromkeys(map(int, batch.rows), reason))
                self.shelf.put(outcome)
            return outcome, True
        return outcome, False
