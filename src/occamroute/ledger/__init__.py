"""A cap that cannot be overspent: what a call may cost is reserved before it is made, and settled after."""

from __future__ import annotations

from occamroute._money import Amount
from occamroute.errors import UnknownNameError
from occamroute.ledger.base import Balance, Hold, Ledger
from occamroute.ledger.memory import MemoryLedger

__all__ = ["Balance", "Hold", "Ledger", "MemoryLedger", "open_ledger"]


def open_ledger(address: str, *, cap: Amount) -> Ledger:
    """The ledger at an address: "memory:" lives as long as this process.

    >>> ledger = open_ledger("memory:", cap=5)
    >>> hold = ledger.reserve(2, key="query-17")
    >>> ledger.settle(hold, 1.5)
    >>> ledger.balance().available
    Decimal('3.5')
    """
    if address != "memory:":
        raise UnknownNameError("ledger", address, ("memory:",))
    return MemoryLedger(cap)
