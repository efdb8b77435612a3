"""What a router begins with: how many queries come, what each may cost, and the ledger that keeps the money."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._money import Amount, exact, money, rounded_up
from occamroute.errors import BudgetTooSmallError, InvalidInputError, UnknownNameError
from occamroute.ledger import Ledger, open_ledger
from occamroute.ledger.base import amount_of, rounded_down
from occamroute.ledger.base import rounded_up as to_quanta
from occamroute.profiles import Profile
from occamroute.routing.guides import least_cost

__all__ = ["ENDLESS", "check_cap", "checked_arrivals", "opened", "share_of"]

ENDLESS = "a budget without an end in time needs arrivals: how many queries it is for."


def checked_arrivals(arrivals: Any) -> float | None:
    """A number of queries, or None: nobody knows."""
    if arrivals is None:
        return None
    known = isinstance(arrivals, int | float | np.integer | np.floating) and not isinstance(arrivals, bool)
    if not known or not 1 <= arrivals < 1e15:
        raise InvalidInputError(f"arrivals must be a number of queries ≥ 1, got {arrivals!r}.")
    return float(arrivals)


def share_of(profile: Profile, budget: Amount, expected: float | None, extractor: str | None) -> Fraction | None:
    """What one of the queries expected may cost; None where nobody knows how many come."""
    amount = money(budget)
    if expected is None:
        return None
    # As ledgers count it, which round up.
    least = exact(amount_of(to_quanta(least_cost(profile, extractor if extractor in profile.feature_sets else None))))
    if amount < least * exact(expected):
        raise BudgetTooSmallError(budget, rounded_up(least * exact(expected)))
    return amount / exact(expected)


def opened(address: str, budget: Amount | None, window: str | None, expected: float | None) -> Ledger:
    """The ledger at an address, begun if need be, but not without an end that a router cannot do without."""
    if expected is None and budget is not None and window in (None, "total"):
        try:
            open_ledger(address, window=window).close()
        except UnknownNameError:
            raise
        except InvalidInputError:  # there is none yet
            raise InvalidInputError(ENDLESS) from None
    return open_ledger(address, cap=budget, window=window)


def check_cap(ledger: Ledger, budget: Amount) -> None:
    """A budget beside a ledger that is open already must be its cap."""
    cap = ledger.balance().cap
    if cap != amount_of(rounded_down(money(budget))):
        raise InvalidInputError(f"the ledger's cap is {cap:f}, not {budget}: leave the budget out, or change the cap.")
