"""Errands: one call of one classifier for one query, whose worst case is held before it is made."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._money import exact
from occamroute.errors import (
    BudgetExceededError,
    CallError,
    CallLostError,
    CallRefusedError,
    InvalidInputError,
    OccamError,
    UnavailableError,
)
from occamroute.ledger import Hold
from occamroute.ledger.base import amount_of, rounded_up
from occamroute.purchasing.sources import Outcome, Source
from occamroute.routing.breakers import Breakers
from occamroute.routing.wallets import Wallet

__all__ = ["FIRST", "Call", "Desk", "Ended", "Errand", "Word", "kept_words", "summed"]

Word: TypeAlias = Literal["answered", "useless", "refused", "lost", "unavailable", "abandoned"]

LOG = logging.getLogger("occamroute")
# Nobody knows beforehand how long a call takes: so many times the profile's mean is held for one that is paid by the
# second, and more for one whose last call was slow.
TIMES, TIMES_SEEN = 3, 2
# A ledger gives up on a hold only when its call should have ended long ago.
LEASE_TIMES = 2.0
FIRST = np.zeros(1, np.int64)


@dataclass(frozen=True)
class Call:
    """One call and what it came to.

    ``outcome`` is "answered"; "useless" (a reply, but no answer to this query); "refused" (turned away, nothing was
    charged: asking again may help); "lost" (nobody knows what was charged: its worst case counts); "unavailable" (no
    call can succeed); or "abandoned" (under way when time was up: its worst case counts until it ends). ``error`` says
    why there was no answer, or why the ledger could not be told what one cost.
    """

    name: str
    outcome: Word
    cost: Decimal
    seconds: float
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Ended:
    """A call that ended: ``probabilities`` (C,) and ``features`` (d,) as far as it gave them, or an error."""

    call: Call
    probabilities: FloatArray | None = None
    features: FloatArray | None = None
    error: CallError | None = None


@dataclass(eq=False)
class Errand:
    """A call to be made; whoever waits for it sees what is ``held``, and says if it is waited for no longer.

    ``may_spend`` is asked just before money is held; ``last`` says that there is no other try if it is turned away.
    What is bought is of use only with a call of one of those ``after`` it: money for the cheapest is held along.
    ``key`` is the hold's. ``call_key`` is the idempotency key sent to the classifier, the same for every attempt.
    """

    source: Source
    queries: Any
    client: str | None
    key: str
    call_key: str = ""
    may_spend: Callable[[], bool] = lambda: True
    last: bool = True
    after: tuple[Source, ...] = ()
    began: float = -math.inf
    held: Decimal = Decimal(0)
    abandoned: bool = False


class Desk:
    """Makes calls, on whatever thread asks: hold the worst case, call, settle; no step is left out, whatever fails."""

    def __init__(
        self,
        wallet: Wallet,
        breakers: Breakers,
        *,
        mean_cost: Callable[[str], Any],
        names: Callable[[], tuple[str, ...]],
        lease_seconds: float,
    ) -> None:
        self._wallet, self._breakers, self._mean_cost, self._names = wallet, breakers, mean_cost, names
        self._lease_seconds = lease_seconds
        self._warm: set[str] = set()
        self._latest_cost: dict[str, Fraction] = {}

    def call(self, errand: Errand) -> Ended:
        """The call, made and paid.

        ``UnavailableError`` where the classifier rests, ``BudgetExceededError`` where its worst case does not fit,
        ``LedgerError`` where nothing may be spent: in all of them no call was made.
        """
        source = errand.source
        began = self._breakers.enter(source.name, self._names())
        if began is None:
            raise UnavailableError(f"{source.name!r} failed too often of late, and rests for a while")
        errand.began = began
        try:
            hold = self._hold(errand)
        except BaseException:
            self._breakers.left(source.name, began)
            raise
        if errand.abandoned:
            # The ledger took so long that nobody waits any more: nothing is bought for nobody.
            self._breakers.left(source.name, began)
            self._wallet.release(hold)
            raise UnavailableError(f"{source.name!r} was not called: the ledger answered too late")
        outcome = self._outcome(source, errand.queries, errand.call_key)
        self._report(errand, outcome)
        return self._settled(outcome, hold, errand.held)

    def _hold(self, errand: Errand) -> Hold:
        amount = self._worst_case(errand.source, errand.queries)
        if not errand.may_spend():
            # What is there is kept for the queries that are still expected.
            raise BudgetExceededError(amount_of(rounded_up(amount)), 0)
        timeout = getattr(errand.source.member, "timeout", None)
        # Some libraries have time-outs of several parts: then the request's own time must do.
        lease = self._lease_seconds + LEASE_TIMES * (timeout if isinstance(timeout, int | float) else 0.0)
        along = self._cheapest(errand.after, errand.queries)
        hold = self._wallet.hold(amount + along, key=errand.key, client=errand.client, lease_seconds=lease)
        errand.held = amount_of(rounded_up(amount))
        return hold

    def _cheapest(self, sources: Iterable[Source], queries: Any) -> Fraction:
        amounts = []
        for source in sources:
            with suppress(InvalidInputError, UnavailableError):  # one that cannot be asked has no say
                amounts.append(self._worst_case(source, queries))
        return min(amounts, default=Fraction(0))

    def _worst_case(self, source: Source, queries: Any) -> Fraction:
        most = source.most(queries)
        if most is not None:
            return most[0]
        usual = TIMES * exact(self._mean_cost(source.name))
        return max(usual, TIMES_SEEN * self._latest_cost.get(source.name, Fraction(0)))

    def _outcome(self, source: Source, queries: Any, key: str) -> Outcome:
        if source.timed and not source.remote and source.name not in self._warm:
            # Loading and compiling are no part of what a call takes: one that is not counted goes before.
            self._warm.add(source.name)
            source.call(queries, FIRST)
        outcome = source.call(queries, FIRST, key)
        if source.timed and outcome.charged is not None:
            self._latest_cost[source.name] = outcome.charged
        return outcome

    def _report(self, errand: Errand, outcome: Outcome) -> None:
        """What the call says of its classifier; one that was given up has been reported as failed."""
        name, began = errand.source.name, errand.began
        turned_away = isinstance(outcome.error, CallRefusedError) and not errand.last
        # A query that was declined free of charge says nothing of others; a paid reply without an answer does.
        declined = outcome.error is None and outcome.unanswered.size and not outcome.charged
        if errand.abandoned:
            return
        if outcome.answered.size:
            self._breakers.succeeded(name, began)
        elif turned_away or declined:
            self._breakers.left(name, began)
        else:
            self._breakers.failed(name, began)

    def _settled(self, outcome: Outcome, hold: Hold, most: Decimal) -> Ended:
        cost, problem = most, None
        try:
            if outcome.charged is not None:
                cost = amount_of(rounded_up(outcome.charged))
            if cost:
                self._wallet.settle(hold, cost)
            else:
                self._wallet.release(hold)
        except Exception as error:  # noqa: BLE001  # an answer that came is not lost for it
            cost = max(cost, hold.amount)
            problem = f"the ledger was not told, so {hold.amount} stays held and then counts as spent: {_words(error)}"
            LOG.warning("call of %s under %s: %s", outcome.source, hold.key, problem)
        return _ended(outcome, cost, problem)


def _ended(outcome: Outcome, cost: Decimal, problem: str | None) -> Ended:
    error = outcome.error
    if error is None and outcome.failures:
        error = CallError(next(iter(outcome.failures.values())))
    if error is None:
        tables = (outcome.probabilities, outcome.features)
        call = Call(outcome.source, "answered", cost, outcome.seconds, problem)
        return Ended(call, *(None if table is None else table[0] for table in tables))
    said = kept_words(error) if problem is None else f"{kept_words(error)} Moreover, {problem}"
    return Ended(Call(outcome.source, _word(error), cost, outcome.seconds, said), error=error)


def kept_words(error: BaseException) -> str:
    """What is kept of an error: of one that is not ours the kind alone, as its words may hold a secret."""
    cause = error.__cause__ or error
    return str(error) if isinstance(cause, OccamError) else f"It raised {type(cause).__name__}."


def _word(error: CallError) -> Word:
    words: tuple[tuple[type[CallError], Word], ...] = (
        (CallRefusedError, "refused"),
        (CallLostError, "lost"),
        (UnavailableError, "unavailable"),
    )
    return next((word for kind, word in words if isinstance(error, kind)), "useless")


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].rstrip(". ") + "." if str(error) else f"{type(error).__name__}."


def summed(calls: Iterable[Call]) -> Decimal:
    """What calls cost together, to the last digit whatever the caller's decimal context."""
    return amount_of(sum(rounded_up(call.cost) for call in calls))
