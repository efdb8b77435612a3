"""A cap that cannot be overspent: what a call may cost is reserved before it is made, and settled after."""

from __future__ import annotations

from collections.abc import Mapping

from occamroute._money import Amount
from occamroute.errors import UnknownNameError
from occamroute.ledger.base import Balance, Entry, Hold, Ledger

__all__ = ["Balance", "Entry", "Hold", "Ledger", "open_ledger"]

SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")


def open_ledger(
    address: str,
    *,
    cap: Amount | None = None,
    window: str = "total",
    clients: Mapping[str, Amount] | None = None,
    name: str = "default",
) -> Ledger:
    """The ledger at an address, begun with a cap or opened again.

    "memory:" lives as long as this process, "sqlite:///file.db" is for the threads and processes of one machine,
    "postgresql://…" for many machines. The cap is for each ``window``: "total", "hour", "day" or "month" (UTC).
    ``clients`` have caps of their own below it. A ledger that exists is opened as it is: another cap is an error.

    >>> ledger = open_ledger("memory:", cap=5)
    >>> hold = ledger.reserve(2, key="query-17")
    >>> ledger.settle(hold, 1.5)
    >>> ledger.balance().available
    Decimal('3.5')
    """
    if address == "memory:":
        from occamroute.ledger.memory import MemoryLedger

        return MemoryLedger(cap, window=window, clients=clients, name=name)
    if address.startswith(SQLITE):
        from occamroute.ledger.sqlite import SqliteLedger

        return SqliteLedger(address.removeprefix(SQLITE), cap, window=window, clients=clients, name=name)
    if address.startswith(POSTGRES):
        from occamroute.ledger.postgres import PostgresLedger

        return PostgresLedger(address, cap, window=window, clients=clients, name=name)
    raise UnknownNameError(
        "ledger", address.partition("@")[2] or address, ("memory:", "sqlite:///FILE", "postgresql://…")
    )
