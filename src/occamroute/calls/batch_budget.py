"""The budget of one batch, counted exactly: the most that a call can cost is held before it is made."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

from occamroute._arrays import IntArray
from occamroute._money import rounded_up
from occamroute.calls.ledger_queue import LedgerQueue
from occamroute.calls.pending_settlements import Settlement
from occamroute.errors import BudgetExceededError, OccamError, UnknownNameError
from occamroute.ledger import Hold, Ledger
from occamroute.ledger.base import Release, Reserve, Settle

__all__ = ["BatchBudget"]

# A call has ended, one way or the other, long before a ledger gives up on its hold.
LEASE_SECONDS = 3600.0
# What keys of holds begin with, after the run, that only one process has.
OWN = "own-"
# Seconds that the ledger may take for a hold; each of its operations has a shorter time-out of its own.
PATIENCE = 60.0


@dataclass
class BatchBudget:
    """A cap (None: none), what was spent, what is held for calls under way, and what is kept for other queries.

    ``spent + held + kept`` never exceeds the cap by a new hold. ``floors`` (n,), in whole units of ``unit``, is what
    each query that is still open must keep for its cheapest answer, so that no expensive call takes the last query's
    money. An outside ``ledger`` must agree to every hold too. ``outstanding`` is what it is to be told of calls that
    have ended, by the keys of their holds: only after the journal was written.
    """

    cap: Fraction | None
    spent: Fraction = Fraction(0)
    held: Fraction = Fraction(0)
    kept: Fraction = Fraction(0)
    floors: IntArray | None = None
    unit: Fraction = Fraction(1)
    ledger: Ledger | None = None
    run: str = ""
    # What only those know who have the run's journal.
    maker: str = ""
    outstanding: dict[str, Settlement] = field(default_factory=dict)
    # Those of them that the ledger could not be told yet.
    failing: set[str] = field(default_factory=set)
    # Keys of holds that were settled and that the journal still lists.
    settled: list[str] = field(default_factory=list)
    # A process that died between a ledger's hold and the journal's entry may have used the next call's number.
    process: str = ""
    _held_for: dict[int, tuple[Fraction, IntArray]] = field(default_factory=dict, repr=False)
    _queue: LedgerQueue | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.ledger is not None:
            self._queue = LedgerQueue(self.ledger)

    @property
    def _ledger_queue(self) -> LedgerQueue:
        if self._queue is None:
            raise OccamError("this run has no ledger.")
        return self._queue

    def keep(self, floors: IntArray | None, unit: Fraction) -> None:
        """From now on keep this for each query, while it is open and not under way."""
        self.floors, self.unit = floors, unit
        self.kept = Fraction(0) if floors is None else int(floors.sum()) * unit

    @property
    def left(self) -> Fraction | None:
        """What is neither spent nor held."""
        return None if self.cap is None else self.cap - self.spent - self.held

    def hold(self, call: int, amount: Fraction, rows: IntArray) -> bool:
        """Hold the most that a call for these queries can cost; False if it does not fit under the cap."""
        kept = self._floor(rows)
        if self.cap is not None and self.spent + self.held + self.kept - kept + amount > self.cap:
            return False
        self.held += amount
        self.kept -= kept
        self._held_for[call] = amount, rows
        return True

    def cancel(self, call: int) -> None:
        """Give back what is held for a call that was not made."""
        amount, rows = self._held_for.pop(call)
        self.held -= amount
        self.kept += self._floor(rows)

    def leave(self, call: int) -> None:
        """Count a hold as spent; the ledger does so when its lease is over, unless who has it settles it before."""
        amount, _ = self._held_for.pop(call)
        self.held -= amount
        self.spent += amount

    def end(self, call: int, charged: Fraction, unanswered: IntArray) -> None:
        """Turn a hold into what was charged; queries without an answer keep their floor again."""
        amount, _ = self._held_for.pop(call)
        self.held -= amount
        self.spent += charged
        self.kept += self._floor(unanswered)

    async def reserve(self, call: int, amount: Fraction, name: str = "", process: str | None = None) -> Hold | None:
        """The ledger's hold; ``BudgetExceededError`` if it has no room for it.

        ``name`` is what the call is called by every process that may make it, by default nobody else does: for a call
        that others may have begun, the hold is the one that they made, as long as that holds. ``process`` is the one
        that made the hold before of a call that is made again.
        """
        if self._queue is None:
            return None
        wanted = rounded_up(amount)
        if name:
            hold = await self._held(f"{self.run}/{name}", wanted)
            if hold.state != "released" and hold.amount >= wanted:
                return hold
        return await self._held(f"{self.run}/{OWN}{process or self.process}/{call}", wanted)

    async def _held(self, key: str, wanted: Decimal) -> Hold:
        try:
            return await self._reserved(key, wanted)
        except BudgetExceededError:
            raise
        except Exception:  # a ledger of another package may raise anything
            # The hold may exist although no reply came. The call is not made, so it is released as soon as possible.
            self.owe([Release(Hold(key, wanted))])
            raise

    async def _reserved(self, key: str, wanted: Decimal) -> Hold:
        """The hold under a key; it is ``fresh`` for every process that has the journal of the run that made it."""
        maker = int.from_bytes(hashlib.sha256(f"{self.maker}/{key}".encode()).digest()[:8]) >> 1
        wish = Reserve(key, wanted, LEASE_SECONDS, maker=maker)
        return await self._ledger_queue.reserve(wish, seconds=PATIENCE, release_unknown=False)

    def owe(self, settlements: Iterable[Settlement], *, failing: bool = True) -> None:
        """Note what the ledger is to be told; ``failing`` has ``settle_outstanding`` do so."""
        for step in settlements:
            self.outstanding[step.hold.key] = step
            if failing:
                self.failing.add(step.hold.key)

    def owe_for(self, hold: Hold, charged: Fraction, *, failing: bool = True) -> None:
        """The same for a call that was charged this, or nothing."""
        self.owe([Settle(hold, rounded_up(charged)) if charged else Release(hold)], failing=failing)

    async def settle(self, key: str) -> None:
        """Settle an outstanding hold with the ledger; if that fails it stays outstanding, and the error is raised."""
        if self._queue is None:  # this run is made without the ledger that the hold is in
            self.failing.discard(key)
            return
        if key not in self.outstanding:
            return
        try:
            with suppress(UnknownNameError):  # the hold was never made
                step = self.outstanding[key]
                if not isinstance(step, Release) or await self._is_mine(step.hold):
                    await asyncio.wrap_future(self._queue.submit(step))
        except BaseException:
            self.failing.add(key)
            raise
        self.failing.discard(key)
        if self.outstanding.pop(key, None) is not None:
            self.settled.append(key)

    async def _is_mine(self, hold: Hold) -> bool:
        """Whether a hold to be released was made for this run's journal, and not by others for the same call."""
        if hold.key.startswith(f"{self.run}/{OWN}"):
            return True
        with suppress(BudgetExceededError):  # there is none
            return (await self._reserved(hold.key, hold.amount)).fresh
        return False

    async def settle_outstanding(self) -> None:
        """Settle what the ledger could not be told yet; what fails stays outstanding, and the first error is raised."""
        done = await asyncio.gather(*map(self.settle, sorted(self.failing)), return_exceptions=True)
        for error in done:
            if isinstance(error, BaseException):
                raise error

    def close(self, seconds: float) -> None:
        """End the ledger's threads, which finish what is under way."""
        if self._queue is not None:
            self._queue.close(seconds)

    def _floor(self, rows: IntArray) -> Fraction:
        return Fraction(0) if self.floors is None else int(self.floors[rows].sum()) * self.unit
