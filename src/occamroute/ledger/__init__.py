"""A cap that cannot be overspent: what a call may cost is reserved before it is made, and settled after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from occamroute._money import Amount
from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.ledger.base import Balance, Compaction, Entry, Hold, Ledger

__all__ = ["Balance", "Compaction", "Entry", "Hold", "Ledger", "open_ledger"]

HOMES = {
    "memory": "occamroute.ledger.memory:MemoryLedger",
    "sqlite": "occamroute.ledger.sqlite:SqliteLedger",
    "postgresql": "occamroute.ledger.postgres:PostgresLedger",
    "postgres": "occamroute.ledger.postgres:PostgresLedger",
}


def open_ledger(
    address: str,
    *,
    cap: Amount | None = None,
    window: str | None = None,
    clients: Mapping[str, Amount] | None = None,
    name: str = "default",
) -> Ledger:
    """The ledger at an address, begun with a cap or opened again.

    "memory:" lives as long as this process, "sqlite:///file.db" is for the threads and processes of one machine,
    "postgresql://…" for many machines. The cap is for each ``window``: "total" (the default), "hour", "day" or "month"
    (UTC). ``clients`` have caps of their own below it. A ledger that exists is opened as it is: what is left out stays
    as it was begun, another cap, window or list of clients' caps is an error.

    >>> ledger = open_ledger("memory:", cap=5)
    >>> hold = ledger.reserve(2, key="query-17")
    >>> ledger.settle(hold, 1.5)
    >>> ledger.balance().available
    Decimal('3.5')
    """
    if not isinstance(address, str):
        raise InvalidInputError(f"address must be a text such as 'sqlite:///spend.db', got {address!r:.60}.")
    ledger: Ledger = _home(address)(address, cap, window=window, clients=clients, name=name)
    return ledger


def _home(address: str) -> Callable[..., Any]:
    """Who opens addresses that begin so: one of ours, or one that another package registers."""
    scheme, colon, _ = address.partition(":")
    if colon and scheme in HOMES:
        module, _, attribute = HOMES[scheme].partition(":")
        home: Callable[..., Any] = getattr(import_module(module), attribute)
        return home
    others = {entry.name: entry for entry in entry_points(group="occamroute.ledgers")}
    if colon and scheme in others:
        return others[scheme].load()  # type: ignore[no-any-return]
    # What follows the colon may hold a password.
    known = ("memory:", "sqlite:///FILE", "postgresql://…", *(f"{other}:…" for other in others))
    raise UnknownNameError("ledger", scheme + colon, known)
