"""Router: the same decision as a plan's, for one query at a time, within a budget that lasts its window."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, seed_number
from occamroute._money import Amount, exact, money
from occamroute.errors import BudgetExceededError, BudgetTooSmallError, InvalidInputError
from occamroute.ledger import Hold, Ledger, open_ledger
from occamroute.profiles import Profile
from occamroute.routing.batching import Asked, Batcher
from occamroute.routing.decisions import Decision, Terms, decide, decision_id, next_best
from occamroute.routing.guides import AUTO, Guide, choose_guide, least_cost
from occamroute.routing.pacing import Arrivals, Pace
from occamroute.routing.snapshots import Snapshot
from occamroute.routing.wallets import LEASE, Wallet

__all__ = ["Router"]

# Steps of this length never come near one another: coins are spread evenly, however few are thrown.
GOLDEN = 0.6180339887498949


class Router:
    """Decides query by query which classifier answers, so that a budget lasts its window and is used up.

    ``budget`` is for each ``window`` ("total", "hour", "day" or "month"), in the unit of the profile's costs, and
    ``arrivals`` is how many queries are expected in one; where a window has an end, their number is learned without
    it. ``ledger`` (an address or an object) keeps the money, by default in memory; one that exists knows its budget
    and window. Which features are looked at and how is chosen on held-out rows, as in ``fit``, or prescribed by
    ``extractor`` (None: no features) or altogether by ``guide``.

    Any number of threads may use it at once: their queries are searched for together.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        budget: Amount | None = None,
        window: str = "total",
        arrivals: float | None = None,
        ledger: str | Ledger = "memory:",
        extractor: str | None = AUTO,
        combine: bool = True,
        guide: Guide | None = None,
        seed: int | np.random.Generator = 0,
    ) -> None:
        if not isinstance(profile, Profile):
            raise InvalidInputError(f"a profile is needed to route by, got {type(profile).__name__}.")
        self.ledger = open_ledger(ledger, cap=budget, window=window) if isinstance(ledger, str) else ledger
        number = seed_number(seed)
        standing = self.ledger.balance()
        expected = _checked_arrivals(arrivals, endless=standing.until is None)
        share = None if expected is None else money(standing.cap) / exact(expected)
        if share is not None and share < least_cost(profile, None):
            needed = least_cost(profile, None) * exact(expected)
            raise BudgetTooSmallError(standing.cap, float(needed))
        chosen = guide or choose_guide(profile, share, extractor=extractor, combine=combine, seed=number)
        self.wallet = Wallet(self.ledger, Pace(Arrivals(expected)))
        self.barred: frozenset[str] = frozenset()
        self._listeners: list[Callable[[list[Decision]], None]] = []
        self._snapshot = Snapshot.of(profile, chosen, seed=number)
        self._change = threading.Lock()
        self._thrown = 0
        self._holds: dict[str, Hold] = {}
        self._batcher = Batcher(self._answers)

    @property
    def snapshot(self) -> Snapshot:
        """What decisions rest on now; it never changes itself, only the next one takes its place."""
        return self._snapshot

    @property
    def names(self) -> tuple[str, ...]:
        """The classifiers to choose from."""
        return self._snapshot.names

    @property
    def extractor(self) -> str | None:
        """Whose features a query is decided by; None: none are looked at."""
        return self._snapshot.guide.extractor

    def route(
        self, features: Any = None, *, client: str | None = None, hold: bool = True, lease_seconds: float = LEASE
    ) -> Decision:
        """The classifier for one query with these features (d,); its cost is held until it is settled or released.

        With ``hold=False`` it is only advice: no money is held, and it counts as no arrival.
        ``BudgetExceededError`` where not even the cheapest answer fits.
        """
        decision: Decision = self._batcher.ask(Asked(self.checked(features), client))
        return self.held(decision, lease_seconds=lease_seconds) if hold else decision

    def checked(self, features: Any) -> FloatArray:
        """The features of one query as a row (1, d)."""
        snapshot = self._snapshot
        if snapshot.width == 0:
            return np.zeros((1, 0))
        if features is None:
            raise InvalidInputError(f"features of {snapshot.guide.extractor!r} are needed to decide.")
        row = np.asarray(features)
        return snapshot.checked(row.reshape(1, -1) if row.ndim == 1 else row)

    def submit(self, asked: Asked) -> None:
        """Put a query into the queue; ``asked.home`` hears of the decision."""
        self._batcher.submit(asked)

    def held(self, decision: Decision, *, lease_seconds: float = LEASE) -> Decision:
        """The decision with its cost held, or the next best one whose cost can be."""
        tried: list[int] = []
        for option in [decision.choice, *next_best(decision, [decision.choice])]:
            tried.append(option)
            made = decision if option == decision.choice else decision.instead(option)
            try:
                hold = self.wallet.hold(made.cost, key=made.id, client=made.client, lease_seconds=lease_seconds)
            except BudgetExceededError as error:
                refused = error
                continue
            self._holds[made.id] = hold
            self.wallet.came(made)
            return made
        raise refused

    def settle(self, decision: Decision, cost: Amount | None = None) -> None:
        """Say what the answer really cost, features included; by default what was planned."""
        self.wallet.settle(self._hold_of(decision), decision.cost if cost is None else cost)

    def release(self, decision: Decision) -> None:
        """Say that nothing was spent after all."""
        self.wallet.release(self._hold_of(decision))

    def look(self, features: FloatArray, *, clients: Sequence[str | None] = (), paid: bool = False) -> list[Decision]:
        """Decisions for several queries (b, d) from one search; no money is held."""
        snapshot = self._snapshot
        terms = self.wallet.terms(snapshot, barred=self.barred, paid=paid)
        guess = snapshot.guess(features)
        coins = np.modf(GOLDEN * np.arange(self._thrown, self._thrown + len(features)))[0]
        self._thrown += len(features)
        choice, reasons = decide(snapshot, guess.success, guess.distances, terms, coins)
        now = time.time()
        made = [
            Decision(
                decision_id(), now, int(choice[row]), reasons[row], snapshot, terms, float(coins[row]), features[row],
                guess.success[row], guess.distances[row], guess.rows[row], clients[row] if clients else None,
            )
            for row in range(len(features))
        ]  # fmt: skip
        for listener in self._listeners:
            listener(made)
        return made

    def listen(self, listener: Callable[[list[Decision]], None]) -> None:
        """Have every batch of decisions told to somebody, on the search thread."""
        self._listeners.append(listener)

    def change(self, edit: Callable[[Profile], Profile]) -> Snapshot:
        """Replace the labelled rows or the classifiers; decisions go on with the old ones until the new are ready."""
        with self._change:
            before = self._snapshot
            self._snapshot = Snapshot.of(edit(before.profile), before.guide, seed=before.seed)
            return self._snapshot

    def close(self) -> None:
        """Finish what waits; the ledger stays open if it was given."""
        self._batcher.close()

    def __enter__(self) -> Router:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answers(self, batch: list[Asked]) -> list[Any]:
        """Decisions for a batch: those whose features are paid and those whose are not have different terms."""
        results: dict[int, Any] = {}
        for paid in (False, True):
            some = [number for number, asked in enumerate(batch) if asked.paid is paid]
            if not some:
                continue
            features = np.concatenate([batch[number].features for number in some])
            try:
                made: Sequence[Any] = self.look(features, clients=[batch[one].client for one in some], paid=paid)
            except Exception as error:  # noqa: BLE001  # the others must not suffer for it
                made = [error] * len(some)
            results |= dict(zip(some, made, strict=True))
        return [results[number] for number in range(len(batch))]

    def _hold_of(self, decision: Decision) -> Hold:
        hold = self._holds.pop(decision.id, None)
        return hold if hold is not None else Hold(decision.id, decision.cost)


def _checked_arrivals(arrivals: Any, *, endless: bool) -> float | None:
    if arrivals is None:
        if endless:
            raise InvalidInputError("a budget without an end in time needs arrivals: how many queries it is for.")
        return None
    if isinstance(arrivals, bool) or not isinstance(arrivals, int | float) or not 1 <= arrivals < 1e15:
        raise InvalidInputError(f"arrivals must be a number of queries ≥ 1, got {arrivals!r}.")
    return float(arrivals)
