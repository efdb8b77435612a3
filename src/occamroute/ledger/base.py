"""What every ledger offers, and its amounts: whole billionths of a unit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Protocol

from occamroute._money import Amount, money
from occamroute.errors import InvalidInputError

__all__ = ["Balance", "Entry", "Hold", "Ledger", "amount_of", "lease_of", "rounded_down", "rounded_up"]

PLACES = 9
QUANTUM: int = 10**PLACES
# No rounding, whatever context the caller has set.
EXACTLY = Context(prec=600)


@dataclass(frozen=True)
class Hold:
    """Money set aside under a key; ``amount`` as it was reserved."""

    key: str
    amount: Decimal


@dataclass(frozen=True)
class Balance:
    """A cap and how much of it is held, spent and available (never below 0), in the present window.

    ``since`` and ``until`` are when the window begins and ends, and ``now`` is the store's time, all in seconds since
    1970; ``until`` is None where it has no end.
    """

    cap: Decimal
    held: Decimal
    spent: Decimal
    available: Decimal
    since: float
    until: float | None
    now: float


@dataclass(frozen=True)
class Entry:
    """One change: when (seconds since 1970), what happened to which hold, and what that did to held and spent."""

    number: int
    at: float
    event: str
    key: str
    client: str | None
    window: float
    held: Decimal
    spent: Decimal


class Ledger(Protocol):
    """A cap, and money that is held until it is settled or released.

    A hold whose lease is over counts as spent in full; one later ``settle`` or ``release`` may lower it. A settle
    above its hold is recorded as it is, and nothing can be reserved until something is available again.
    """

    def reserve(self, amount: Amount, *, key: str, lease_seconds: float = 60.0, client: str | None = None) -> Hold:
        """Hold an amount, or raise ``BudgetExceededError``; the same key gives the same hold.

        Where ``client`` has a cap of its own, the amount must fit under both.
        """
        ...

    def settle(self, hold: Hold, amount: Amount) -> None:
        """Turn a hold into what was really spent."""
        ...

    def release(self, hold: Hold) -> None:
        """Give a hold back: nothing was spent."""
        ...

    def balance(self, client: str | None = None) -> Balance:
        """How things stand now in this window, for everybody or for one client."""
        ...

    def change_cap(self, cap: Amount) -> None:
        """From now on another cap; what is held and spent stays."""
        ...

    def entries(self) -> Iterator[Entry]:
        """Everything that ever happened, in order; its sums are the balance."""
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


def rounded_up(amount: Amount, name: str = "amount") -> int:
    """An amount in whole billionths; what is no whole number of them rounds up."""
    return math.ceil(money(amount, name) * QUANTUM)


def rounded_down(amount: Amount, name: str = "cap") -> int:
    """The same for a cap, which rounds down."""
    return math.floor(money(amount, name) * QUANTUM)


def amount_of(quanta: int) -> Decimal:
    """Whole billionths as a decimal, to the last digit and without an exponent."""
    amount = Decimal(quanta).scaleb(-PLACES, EXACTLY).normalize(EXACTLY)
    return Decimal(f"{amount:f}")


def lease_of(seconds: float) -> float:
    """A positive number of seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e12:
        raise InvalidInputError(f"lease_seconds must be a finite number > 0, got {seconds!s:.40}.")
    return float(seconds)
