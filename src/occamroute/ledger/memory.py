"""A ledger that lives as long as its process, safe for many threads."""

from __future__ import annotations

import heapq
import threading
import time
from dataclasses import dataclass

from occamroute._money import Amount
from occamroute.errors import BudgetExceededError, UnknownNameError
from occamroute.ledger.base import Balance, Hold, amount_of, lease_of, rounded_down, rounded_up

__all__ = ["MemoryLedger"]


@dataclass
class _Entry:
    hold: Hold
    reserved: int
    until: float
    spent: int | None = None


class MemoryLedger:
    """A cap kept by this process alone."""

    def __init__(self, cap: Amount) -> None:
        self._cap = rounded_down(cap)
        self._entries: dict[str, _Entry] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._held = self._spent = 0
        self._lock = threading.Lock()

    def reserve(self, amount: Amount, *, key: str, lease_seconds: float = 60.0) -> Hold:
        """Hold an amount, or raise ``BudgetExceededError``; the same key gives the same hold."""
        quanta, lease = rounded_up(amount), lease_of(lease_seconds)
        with self._lock:
            self._expire()
            if key in self._entries:
                return self._entries[key].hold
            available = self._cap - self._held - self._spent
            if quanta > available:
                raise BudgetExceededError(amount_of(quanta), amount_of(max(0, available)))
            entry = _Entry(Hold(key, amount_of(quanta)), quanta, time.monotonic() + lease)
            self._entries[key] = entry
            heapq.heappush(self._deadlines, (entry.until, key))
            self._held += quanta
            return entry.hold

    def settle(self, hold: Hold, amount: Amount) -> None:
        """Turn a hold into what was really spent; only the first time counts."""
        self._end(hold, rounded_up(amount))

    def release(self, hold: Hold) -> None:
        """Give a hold back: nothing was spent."""
        self._end(hold, 0)

    def balance(self) -> Balance:
        """How things stand now."""
        with self._lock:
            self._expire()
            available = max(0, self._cap - self._held - self._spent)
            return Balance(*map(amount_of, (self._cap, self._held, self._spent, available)))

    def _end(self, hold: Hold, quanta: int) -> None:
        with self._lock:
            entry = self._entries.get(hold.key)
            if entry is None:
                raise UnknownNameError("hold", hold.key, ("those that were reserved here",))
            self._expire()
            if entry.spent is None:
                self._held -= entry.reserved
                self._spent += quanta
            elif entry.until < 0:  # expired, and now it is known what it came to
                self._spent += min(0, quanta - entry.reserved)
            else:
                return
            entry.spent, entry.until = quanta, time.monotonic()

    def _expire(self) -> None:
        """Holds whose lease is over count as spent in full."""
        while self._deadlines and self._deadlines[0][0] < time.monotonic():
            entry = self._entries[heapq.heappop(self._deadlines)[1]]
            if entry.spent is None:
                self._held -= entry.reserved
                self._spent += entry.reserved
                entry.spent, entry.until = entry.reserved, -1.0
