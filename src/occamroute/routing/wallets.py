"""Wallet: a ledger as a router sees it: what is left, what the next query may cost, and holds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial

from occamroute._money import Amount
from occamroute.calls.ledger_queue import LedgerQueue
from occamroute.calls.pending_settlements import PendingSettlements
from occamroute.ledger import Balance, Hold, Ledger
from occamroute.ledger.base import Find, Release, Reply, Reserve, Settle
from occamroute.routing.decisions import Decision, Terms
from occamroute.routing.pacing import Moment, Pace, cautious
from occamroute.routing.snapshots import Snapshot

__all__ = ["Standing", "Wallet"]

# The ledger is asked at most this often how things stand; in between own holds are subtracted.
SECONDS = 0.25
# So many own queries tell what share of all queries comes here.
ENOUGH = 20
# Costs are rounded up to the ledger's unit, and what is equal but for that is equal.
CLOSE = 1e-9
LEASE = 120.0
# Holds that nobody ever settles are forgotten here: the ledger knows them.
MOST_OPEN = 10_000


@dataclass(frozen=True)
class Standing:
    """The budget as last seen: what is left of it, and the moment in its window."""

    cap: float
    available: float
    moment: Moment


@dataclass(frozen=True)
class _Lesson:
    """What the price of a decision meant a query to cost beyond its features, and what these cost."""

    meant: float
    overhead: float

    @classmethod
    def of(cls, decision: Decision) -> _Lesson:
        return cls(decision.snapshot.prices.cost_at(decision.terms.price), decision.snapshot.overhead)


class Wallet:
    """What is left of a budget, paced; safe for many threads.

    Only the ledger decides whether money is there: what is kept here steers the price, and is refreshed often. Others
    may spend from the same budget: this one's share in what is spent is taken for its share in the queries.
    """

    def __init__(
        self,
        ledger: Ledger,
        pace: Pace,
        *,
        refresh_seconds: float = SECONDS,
        pending: PendingSettlements | None = None,
    ) -> None:
        self.ledger = ledger
        self.queue = LedgerQueue(ledger, pending=pending)
        self.pace = pace
        self.refresh_seconds = refresh_seconds
        self._lock = threading.Lock()
        self._standing: Standing | None = None
        # When the ledger was asked last, and whether it is being asked now.
        self._asked = 0.0
        self._asking = False
        self._mine = self._before = self._everybody = 0.0
        # Own holds of this window that have not ended, and what is to be learned from what each comes to cost.
        self._open: OrderedDict[str, _Lesson | None] = OrderedDict()

    def terms(self, snapshot: Snapshot, *, barred: frozenset[str] = frozenset(), paid: bool = False) -> Terms:
        """The terms on which the next query is decided; ``paid`` where its features already are."""
        standing = self.standing()
        with self._lock:
            overhead = snapshot.overhead
            least = snapshot.least
            remaining = self.pace.arrivals.remaining(standing.moment, share=self._share())
            rate = max(least, standing.available / remaining)
            off = self.pace.off
            spare = max(0.0, _spare(standing, snapshot, remaining, off))
            extra = overhead if paid else 0.0
        price = snapshot.prices.at((rate - overhead) / off)
        return Terms(price, standing.cap, standing.available + extra, least + spare + extra, remaining, off, barred)

    def may_spend(self, decision: Decision) -> bool:
        """Whether it still leaves the cheapest answer for every query expected; the cheapest itself always may."""
        standing, least = self.standing(), decision.snapshot.least
        with self._lock:
            remaining, off = self.pace.arrivals.remaining(standing.moment, share=self._share()), self.pace.off
        beyond = float(decision.cost) - least
        return beyond <= CLOSE * least or beyond <= _spare(standing, decision.snapshot, remaining, off) + CLOSE * beyond

    def standing(self) -> Standing:
        """The budget as of a moment ago; only the very first call waits for the ledger."""
        with self._lock:
            known, age = self._standing, time.monotonic() - self._asked
            ask = known is not None and not self._asking and age >= self.refresh_seconds > 0.0
            self._asking = self._asking or ask
        if known is None or self.refresh_seconds == 0.0:
            return self._seen(self.ledger.balance())
        if ask:
            self.queue.submit(self._refresh)
        return known if age < self.refresh_seconds else replace(known, moment=known.moment.later(age))

    async def known(self) -> None:
        """Read the balance if that was never done, so that ``standing`` does not wait for the ledger."""
        if self._standing is None:
            await asyncio.wrap_future(self.queue.submit(self._refresh))

    def _refresh(self) -> None:
        try:
            self._seen(self.ledger.balance())
        finally:
            with self._lock:
                self._asking, self._asked = False, time.monotonic()

    def hold(
        self,
        amount: Amount,
        *,
        key: str,
        client: str | None = None,
        lease_seconds: float = LEASE,
        decision: Decision | None = None,
    ) -> Hold:
        """Hold money in the ledger, or raise ``BudgetExceededError``.

        With ``decision`` the hold is for everything that it costs, and its settlement says how costs really are.
        """
        wish = Reserve(key, amount, lease_seconds, client)
        hold: Hold = self.queue.submit(wish, lambda hold: self._held(hold, decision)).result()
        return hold

    async def ahold(
        self,
        amount: Amount,
        *,
        key: str,
        seconds: float,
        client: str | None = None,
        lease_seconds: float = LEASE,
        decision: Decision | None = None,
        reply: Reply | None = None,
    ) -> Hold:
        """``hold`` for an event loop; ``LedgerError`` if the ledger does not answer within ``seconds``.

        With ``reply``, which is stored along, another process may make the same hold: it is not released if no answer
        comes.
        """
        wish = Reserve(key, amount, lease_seconds, client, reply)
        return await self.queue.reserve(
            wish, seconds=seconds, then=lambda hold: self._held(hold, decision), release_unknown=reply is None
        )

    def settle(self, hold: Hold, amount: Amount) -> None:
        """Turn a hold, made here or elsewhere, into what was spent; costs are learned from those made here."""
        self.queue.submit(Settle(hold, amount), lambda _: self._ended(hold, float(amount))).result()

    def release(self, hold: Hold) -> None:
        """Give a hold back."""
        self.queue.submit(Release(hold), lambda _: self._ended(hold, 0.0, released=True)).result()

    async def find(self, key: str) -> Hold | None:
        """The hold under a key, made here or by another process."""
        found: Hold | None = await asyncio.wrap_future(self.queue.submit(Find(key)))
        return found

    async def asettle(self, hold: Hold, amount: Amount) -> None:
        """``settle`` for an event loop."""
        await asyncio.wrap_future(self.queue.submit(Settle(hold, amount), lambda _: self._ended(hold, float(amount))))

    async def settle_eventually(self, hold: Hold, amount: Amount) -> str | None:
        """Settle, or release for an amount of 0. Returns why that failed for now; it is then kept and retried."""
        step = Settle(hold, amount) if amount else Release(hold)
        return await self.queue.settle(step, lambda _: self._ended(hold, float(amount), released=not amount))

    def settle_soon(self, hold: Hold, amount: Amount) -> None:
        """The same within a moment, without waiting for it."""
        step = Settle(hold, amount) if amount else Release(hold)
        self.queue.settle_soon(step, lambda _: self._ended(hold, float(amount), released=not amount))

    async def balance(self, client: str | None = None) -> Balance:
        """How the ledger stands once everything that was submitted before is done."""
        found: Balance = await asyncio.wrap_future(self.queue.submit(partial(self.ledger.balance, client)))
        return found

    def close(self, seconds: float) -> None:
        """Finish what the ledger still has to be told, within ``seconds``."""
        self.queue.close(seconds)

    # This runs on the thread that reads the balance, in the order of the ledger, so that nothing is counted twice.
    def _held(self, hold: Hold, decision: Decision | None) -> None:
        with self._lock:
            if hold.key not in self._open:
                self._open[hold.key] = None if decision is None else _Lesson.of(decision)
                self._less(float(hold.amount))
            if len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)

    def came(self) -> None:
        """A query came and was decided: it counts as an arrival."""
        with self._lock:
            self.pace.arrivals.add(1, self._standing.moment if self._standing is not None else Moment(0.0))

    def learn(self, decision: Decision, cost: float) -> None:
        """What a query came to cost in all, features included, against what its price meant it to cost."""
        with self._lock:
            self._learn(_Lesson.of(decision), cost)

    def _learn(self, lesson: _Lesson, cost: float) -> None:
        self.pace.learn(lesson.meant, max(0.0, cost - lesson.overhead))

    def _share(self) -> float:
        """About what share of all queries comes to this wallet."""
        if self.pace.arrivals.seen < ENOUGH or self._everybody <= 0.0:
            return 1.0
        return min(1.0, max(1e-3, self._mine / self._everybody))

    def _ended(self, hold: Hold, paid: float, *, released: bool = False) -> None:
        """A hold became what was paid; one of an earlier window, or that ended before, says nothing of this one."""
        with self._lock:
            if hold.key not in self._open:
                return
            lesson = self._open.pop(hold.key)
            self._less(paid - float(hold.amount))
            if lesson is not None and not released:
                self._learn(lesson, paid)

    def _less(self, amount: float) -> None:
        self._mine += amount
        if self._standing is not None:
            self._standing = replace(self._standing, available=max(0.0, self._standing.available - amount))

    def _seen(self, balance: Balance) -> Standing:
        moment = Moment(balance.now, balance.since, balance.until)
        used = float(balance.held + balance.spent)
        with self._lock:
            if self._standing is None:
                self._before = used
                self.pace.arrivals.resume(used / float(balance.cap) if balance.cap else 0.0, moment)
            elif moment.since > self._standing.moment.since:
                self._mine = self._before = 0.0
                self._open.clear()
            self._everybody = used - self._before
            self._standing = Standing(float(balance.cap), float(balance.available), moment)
            self._asked = time.monotonic()
            return self._standing


def _spare(standing: Standing, snapshot: Snapshot, remaining: float, off: float) -> float:
    """What one query may cost beyond the cheapest answer, which is kept back for all who may well come.

    Where queries turn out to cost more than the profile says, by the factor ``off``, more is kept.
    """
    available, least = standing.available, snapshot.least * max(1.0, off)
    spare = available - least * cautious(remaining)
    if standing.moment.until is not None:
        return spare
    # A number that was promised: for more than that at most half of what is left is kept, and nothing where
    # everybody can have the dearest.
    dearest = snapshot.overhead + float(snapshot.costs.max())
    return max(spare, (available - least * remaining) / 2.0, available - dearest * (remaining - 1.0) - least)
