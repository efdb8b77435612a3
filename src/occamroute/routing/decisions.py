"""Decision: which classifier one query goes to, and everything that it follows from."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray
from occamroute.errors import BudgetExceededError
from occamroute.routing.prices import Price, choose
from occamroute.routing.snapshots import Snapshot

__all__ = ["Decision", "Reason", "Terms", "decide", "decision_id", "next_best"]

# What is equal but for the rounding of sums is equal.
CLOSE = 1e-9

Reason = Literal["best_value", "unlike_profile", "no_features", "second_choice"]


@dataclass(frozen=True, slots=True)
class Terms:
    """The money side of a decision: the price, what is left, how much may go to one query, and who may be asked.

    ``most`` is what one query may cost in all if the cheapest answer is kept back for every other one expected;
    ``remaining`` is how many are expected, ``off`` by what factor queries cost more than the profile says.
    """

    price: Price
    cap: float
    available: float
    most: float
    remaining: float
    off: float
    barred: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One query's classifier.

    ``success`` (M,) and ``spread`` (M,) are the estimates; ``cost`` is what the answer is planned to cost, features
    included. ``reason`` is "best_value" (the highest success - price · cost), "unlike_profile" (no labelled row is
    near: the most reliable classifier that can be afforded), "no_features" (overall accuracies decide) or
    "second_choice" (money for the first was not there, or it gave no answer).
    """

    id: str
    at: float
    choice: int
    reason: Reason
    snapshot: Snapshot
    terms: Terms
    coin: float
    features: FloatArray
    success: FloatArray
    distances: FloatArray
    rows: IntArray
    client: str | None = None

    @property
    def name(self) -> str:
        """The classifier chosen."""
        return self.snapshot.names[self.choice]

    @property
    def cost(self) -> Any:
        """What the query is planned to cost, features included, exactly."""
        return self.snapshot.totals[self.choice]

    @property
    def spread(self) -> FloatArray:
        """The standard deviation of each estimate, (M,)."""
        return self.snapshot.spread(self.success)

    @property
    def price(self) -> float:
        """What a unit of money is worth in right answers."""
        return self.terms.price.value

    @property
    def scores(self) -> FloatArray:
        """Success less price times cost, (M,)."""
        return np.asarray(self.success - self.price * self.snapshot.costs)

    def instead(self, option: int) -> Decision:
        """The same with another classifier, since the first could not be had."""
        return replace(self, choice=option, reason="second_choice")


def decision_id() -> str:
    """A name that sorts by time: its milliseconds, 4,096ths of one, and 52 bits of chance."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    return f"{milliseconds:012x}{(rest << 12) // 1_000_000:03x}{secrets.token_hex(7)[1:]}"


def decide(
    snapshot: Snapshot, success: FloatArray, distances: FloatArray, terms: Terms, coins: FloatArray
) -> tuple[IntArray, list[Reason]]:
    """For each query (b, M) its classifier and the reason; the same numbers always give the same answer."""
    open_to = _may_be_asked(snapshot, terms)
    if not open_to.any():
        allowed = [
            total for name, total in zip(snapshot.names, snapshot.totals, strict=True) if name not in terms.barred
        ]
        raise BudgetExceededError(min(allowed, default=min(snapshot.totals)), terms.available)
    costs = snapshot.costs
    choice = choose(np.where(open_to, success, -np.inf), costs, terms.price, coins)
    if snapshot.novelty is None:
        return choice, ["no_features"] * len(choice)
    new = snapshot.novelty.is_new(distances[:, 0])
    if new.any():
        most_reliable = next(int(option) for option in snapshot.reliable if open_to[option])
        choice = np.where(new, most_reliable, choice)
    return choice, ["unlike_profile" if one else "best_value" for one in new]


def next_best(decision: Decision, tried: Sequence[int]) -> list[int]:
    """The other classifiers in the order in which they would be asked, those that may not be left out."""
    barred, names = decision.terms.barred, decision.snapshot.names
    order = np.lexsort((decision.snapshot.costs, -decision.scores))
    return [int(option) for option in order if names[option] not in barred and option not in tried]


def _may_be_asked(snapshot: Snapshot, terms: Terms) -> npt.NDArray[np.bool_]:
    """Which classifiers are not barred and can be afforded, (M,); of those the cheapest always, if money is there."""
    allowed = np.array([name not in terms.barred for name in snapshot.names])
    totals = snapshot.overhead + snapshot.costs
    # Sums of floats are off in the last digit, and only the ledger counts to that.
    available = terms.available * (1.0 + CLOSE)
    affordable = allowed & (totals <= min(terms.most * (1.0 + CLOSE), available))
    if affordable.any():
        return affordable
    cheapest = totals <= np.min(totals, where=allowed, initial=np.inf)
    return np.asarray(allowed & cheapest & (totals <= available))
