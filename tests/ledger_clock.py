"""The clock of a ledger's store, set by tests."""

from __future__ import annotations

from typing import Any

# A moment ahead of us all, in the middle of a day: a store that has seen it keeps it, so that tests can set the time.
AHEAD = 2_210_000_000_000


def set_clock(ledger: Any, moment: int) -> None:
    """As if the store's clock had shown this moment, and stands still or went back since."""
    if hasattr(ledger, "_line"):
        words = "UPDATE occamroute_ledgers SET clock = %s WHERE id = %s"
        ledger._line.talk(lambda connection: connection.execute(words, (moment, ledger._id)))
    else:
        words = "UPDATE occamroute_ledgers SET clock = ? WHERE id = ?"
        ledger._connection.execute(words, (moment, ledger._id))
