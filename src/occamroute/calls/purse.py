"""Purse: the money of one run, counted exactly; what may be charged is held before a call is made."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from occamroute._arrays import IntArray
from occamroute._money import rounded_up
from occamroute.errors import BudgetExceededError, LedgerError, UnknownNameError
from occamroute.ledger import Hold

__all__ = ["Purse"]

# A call has ended, one way or the other, long before a ledger gives up on its hold.
LEASE_SECONDS = 3600.0


@dataclass
class Purse:
    """A cap (None: none), what was spent, what is held for calls under way, and what is kept for other queries.

    ``spent + held + kept`` never passes the cap by a new hold. ``floors`` (n,), in whole units of ``unit``, is what
    each query that is still open must keep for its cheapest answer, so that no dear call takes the last query's
    money. An outside ``ledger`` must agree to every hold too. ``outstanding`` are the ledger's holds of calls that have
    ended, by their keys, with what was charged: they are settled only after the journal was written.
    """

    cap: Fraction | None
    spent: Fraction = Fraction(0)
    held: Fraction = Fraction(0)
    kept: Fraction = Fraction(0)
    floors: IntArray | None = None
    unit: Fraction = Fraction(1)
    ledger: Any = None
    run: str = ""
    outstanding: dict[str, tuple[Hold, Fraction]] = field(default_factory=dict)
    # Keys of holds that were settled and that the journal still lists.
    settled: list[str] = field(default_factory=list)
    # A process that died between a ledger's hold and the journal's entry may have used the next call's number.
    _process: str = field(default_factory=lambda: uuid.uuid4().hex[:8], repr=False)
    _holds: dict[int, tuple[Fraction, Any]] = field(default_factory=dict, repr=False)

    def keep(self, floors: IntArray | None, unit: Fraction) -> None:
        """From now on keep this for each query, while it is open and not under way."""
        self.floors, self.unit = floors, unit
        self.kept = Fraction(0) if floors is None else int(floors.sum()) * unit

    @property
    def left(self) -> Fraction | None:
        """What is neither spent nor held."""
        return None if self.cap is None else self.cap - self.spent - self.held

    def admits(self, amount: Fraction, rows: IntArray) -> bool:
        """Whether a call for these queries fits, with what it can cost at most."""
        if self.cap is None:
            return True
        return self.spent + self.held + self.kept - self._floor(rows) + amount <= self.cap

    def hold(self, call: int, amount: Fraction, rows: IntArray, name: str = "") -> bool:
        """Hold the most that a call can cost; False if the cap, or the ledger's, has no room for it.

        ``name`` is what the call is called by every process that may make it; by default nobody else does.
        """
        if not self.admits(amount, rows):
            return False
        lease = None
        if self.ledger is not None:
            try:
                lease = self._lease(call, amount, name)
            except BudgetExceededError:
                return False
        self.held += amount
        self.kept -= self._floor(rows)
        self._holds[call] = (amount, lease)
        return True

    def _lease(self, call: int, amount: Fraction, name: str) -> Any:
        """The ledger's hold: for a call that others may have begun, the one that they made, as long as it holds."""
        wanted = rounded_up(amount)
        if name:
            lease = self.ledger.reserve(wanted, key=f"{self.run}/{name}", lease_seconds=LEASE_SECONDS)
            if lease.state != "released" and lease.amount >= wanted:
                return lease
        key = f"{self.run}/{self._process}/{call}"
        try:
            return self.ledger.reserve(wanted, key=key, lease_seconds=LEASE_SECONDS)
        except LedgerError:
            # The hold may exist although no reply came. The call is not made, so it is released as soon as possible.
            self.outstanding[key] = Hold(key, wanted), Fraction(0)
            raise

    def is_anothers(self, call: int) -> bool:
        """Whether somebody else had the ledger hold money for this very call before."""
        lease = self._holds[call][1]
        return lease is not None and not lease.fresh

    def leave(self, call: int) -> None:
        """Count a hold as spent, and let the ledger do so when its lease is over: who has it may still settle it."""
        amount, _ = self._holds.pop(call)
        self.held -= amount
        self.spent += amount

    def settle(self, call: int, charged: Fraction, unanswered: IntArray) -> None:
        """Turn a hold into what was really charged; queries without an answer keep their floor again.

        The ledger hears of it in ``settle_outstanding``.
        """
        amount, lease = self._holds.pop(call)
        self.held -= amount
        self.spent += charged
        self.kept += self._floor(unanswered)
        if lease is not None:
            self.outstanding[lease.key] = lease, charged

    def settle_outstanding(self) -> None:
        """Settle with the ledger what is outstanding; what fails stays outstanding, and its error is raised."""
        if self.ledger is None:
            return
        for key, (hold, charged) in list(self.outstanding.items()):
            with suppress(UnknownNameError):  # the hold was never made
                if charged:
                    self.ledger.settle(hold, rounded_up(charged))
                else:
                    self.ledger.release(hold)
            del self.outstanding[key]
            self.settled.append(key)

    def _floor(self, rows: IntArray) -> Fraction:
        return Fraction(0) if self.floors is None else int(self.floors[rows].sum()) * self.unit
