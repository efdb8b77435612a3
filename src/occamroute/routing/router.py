"""Router: the same decision as a plan's, for one query at a time, within a budget that lasts its window."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, seed_number
from occamroute._loops import background
from occamroute._money import Amount
from occamroute.calls.pending_settlements import PendingSettlements
from occamroute.errors import BudgetExceededError, InvalidInputError, UnknownNameError
from occamroute.ledger import Hold, Ledger
from occamroute.ledger.base import Reply, name_of
from occamroute.ledger.database import Database
from occamroute.profiles import Profile
from occamroute.routing.batching import Asked, Batcher
from occamroute.routing.budgets import ENDLESS, check_cap, checked_arrivals, opened, share_of
from occamroute.routing.changes import AddClassifier, AddRows, Change, RemoveClassifier, RemoveRows
from occamroute.routing.decisions import Decision, decide, decision_id, next_best
from occamroute.routing.drift import Alarm
from occamroute.routing.guides import AUTO, Guide, check_rows, choose_guide
from occamroute.routing.history import History
from occamroute.routing.pacing import Arrivals, Pace
from occamroute.routing.receipts import Receipts
from occamroute.routing.snapshots import Snapshot
from occamroute.routing.wallets import LEASE, Wallet
from occamroute.routing.watching import Watches

__all__ = ["Router"]

# Steps of this length never come near one another: coins are spread evenly, however few are thrown.
GOLDEN = 0.6180339887498949
RECEIPTS, SETTLEMENTS = "receipts.db", "settlements.db"
# Seconds that closing waits for settlements, and that the ledger may take for a hold.
SETTLING, HOLDING = 5.0, 10.0


class Router:
    """Decides query by query which classifier answers, so that a budget lasts its window and is used up.

    ``budget`` is for each ``window`` ("total", the default, "hour", "day" or "month"), in the unit of the profile's
    costs, and ``arrivals`` is how many queries are expected in one; where a window has an end, their number is learned
    without it. ``ledger`` (an address or an object) keeps the money, by default in memory; one that exists knows its
    budget and window. Which features are looked at and how is chosen on held-out rows, as in ``fit``, or prescribed by
    ``extractor`` (None: no features) or altogether by ``guide``. ``state`` is a folder for receipts of all decisions,
    for every change of rows and classifiers, and for settlements that the ledger could not be told yet: a router that
    is begun again there goes on where it stopped.

    Any number of threads may use it at once: their queries are searched for together.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        budget: Amount | None = None,
        window: str | None = None,
        arrivals: float | None = None,
        ledger: str | Ledger = "memory:",
        extractor: str | None = AUTO,
        combine: bool = True,
        guide: Guide | None = None,
        state: str | os.PathLike[str] | None = None,
        seed: int | np.random.Generator = 0,
    ) -> None:
        if not isinstance(profile, Profile):
            raise InvalidInputError(f"a profile is needed to route by, got {type(profile).__name__}.")
        number, expected = seed_number(seed), checked_arrivals(arrivals)
        self._closes = False
        self.database: Database | None = None
        if isinstance(ledger, str):
            if budget is not None:
                # Before a ledger is begun with it: that would keep a budget that does not do.
                share_of(profile, budget, expected, extractor)
            # One in memory is still looked at afterwards, and needs no closing.
            self._closes = ledger != "memory:"
            ledger = opened(ledger, budget, window, expected)
        elif budget is not None:
            check_cap(ledger, budget)
        self.ledger = ledger
        try:
            self.wallet = Wallet(self.ledger, Pace(Arrivals(expected)), pending=_pending(state, self.ledger))
        except BaseException:
            self._let_go()
            raise
        self.barred: frozenset[str] = frozenset()
        self._listeners: list[Callable[[list[Decision]], None]] = []
        self._alarms: list[Callable[[], list[Alarm]]] = []
        self._change = threading.Lock()
        self._thrown = 0
        asked = {"extractor": extractor, "combine": combine, "seed": number}
        try:
            self._start(profile, guide, expected, state, asked)
        except BaseException:
            self.wallet.close(0.0)
            self._let_go()
            raise

    def _start(
        self,
        profile: Profile,
        guide: Guide | None,
        expected: float | None,
        state: str | os.PathLike[str] | None,
        asked: dict[str, Any],
    ) -> None:
        standing = self.ledger.balance()
        if expected is None and standing.until is None:
            raise InvalidInputError(ENDLESS)
        share = share_of(profile, standing.cap, expected, asked["extractor"])
        self._history = None if state is None else History(state)
        self._snapshot = self._begin(profile, guide, {"share": str(share), **asked}, share)
        self._watches = self._watch()
        self.receipts = None if self._history is None else self._begin_receipts(self._history)
        if self.receipts is not None:
            self.listen(self.receipts.add)
        self._batcher = Batcher(self._answers)

    def _begin_receipts(self, history: History) -> Receipts:
        """Receipts in the ledger's database, those in the folder brought over; in the folder if it has none."""
        file = history.folder / RECEIPTS
        # A ledger of another package need not know of databases.
        self.database = getattr(self.ledger, "database", lambda: None)()
        return Receipts(file, history) if self.database is None else Receipts(self.database, history, old=file)

    def _let_go(self) -> None:
        if self.database is not None:
            self.database.close()
        if self._closes:
            self.ledger.close()

    def _begin(self, profile: Profile, guide: Guide | None, asked: dict[str, Any], share: Fraction | None) -> Snapshot:
        """What to decide by at first: where the last one stopped, or what is chosen now."""
        begun_with, seed = profile.fingerprint, asked["seed"]
        before = None if self._history is None else self._history.latest(begun_with, asked)
        if before is not None:
            profile, kept = before
            guide = guide or kept
        if guide is None:
            extractor, combine = asked["extractor"], asked["combine"]
            guide = choose_guide(profile, share, extractor=extractor, combine=combine, seed=seed)
        snapshot = Snapshot.of(profile, guide, seed=seed)
        if self._history is not None:
            self._history.begin(snapshot, begun_with=begun_with, asked=asked)
        return snapshot

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

        Where texts are looked at, ``features`` are the query's text, or where an extractor's features are looked at
        beside it, a mapping with both by their names.
        With ``hold=False`` it is only advice: no money is held, and it counts as no arrival.
        ``BudgetExceededError`` where not even the cheapest answer fits.
        """
        if client is not None:
            name_of(client, "client")
        decision: Decision = self._batcher.ask(Asked(self.checked(features), client))
        return self.held(decision, lease_seconds=lease_seconds) if hold else decision

    def checked(self, features: Any, query: Any = None) -> FloatArray:
        """The features of one query as a row (1, d); where texts are looked at, those of the ``query`` are added."""
        snapshot = self._snapshot
        if snapshot.width == 0:
            return np.zeros((1, 0))
        if snapshot.looks_at_text and isinstance(features, str):
            features, query = None, features
        if snapshot.looks_at_text and isinstance(features, Mapping):
            query = features.get(str(snapshot.profile.text and snapshot.profile.text.name))
            features = features.get(str(snapshot.paid_extractor))
        row = None if features is None else _one_row(features)
        if snapshot.looks_at_text and query is not None:
            row = snapshot.with_text(row, query)
        if row is None:
            raise InvalidInputError(f"features of {snapshot.guide.extractor!r} are needed to decide.")
        return snapshot.checked(row)

    @property
    def alive(self) -> bool:
        """Whether queries are still decided: it was not closed, and its thread runs."""
        return self._batcher.alive

    def submit(self, asked: Asked) -> None:
        """Put a query into the queue; ``asked.home`` hears of the decision."""
        self._batcher.submit(asked)

    def held(self, decision: Decision, *, lease_seconds: float = LEASE) -> Decision:
        """The decision with its cost held, or the next best one whose cost can be."""
        return background().run(self.aheld(decision, lease_seconds=lease_seconds))

    async def aheld(
        self,
        decision: Decision,
        *,
        lease_seconds: float = LEASE,
        seconds: float = HOLDING,
        reply: Callable[[Decision], Reply] | None = None,
    ) -> Decision:
        """``held`` for event loops; ``LedgerError`` if the ledger does not answer within ``seconds``.

        ``reply`` is stored with the hold, unless the hold was made before, by this process or another.
        """
        await self.wallet.known()
        refused = BudgetExceededError(decision.cost, decision.terms.available)
        for option in [decision.choice, *next_best(decision, [decision.choice])]:
            made = decision if option == decision.choice else decision.instead(option)
            if not self.wallet.may_spend(made):
                continue
            try:
                await self.wallet.ahold(
                    made.cost, key=made.id, client=made.client, lease_seconds=lease_seconds, seconds=seconds,
                    decision=made, reply=None if reply is None else reply(made),
                )  # fmt: skip
            except BudgetExceededError as error:
                refused = error
                continue
            self.wallet.came()
            if made is not decision:
                self._tell([made])
            return made
        raise refused

    def settle(self, decision: Decision, cost: Amount | None = None) -> None:
        """Say what the answer really cost, features included; by default what was planned."""
        self.wallet.settle(Hold(decision.id, decision.cost), decision.cost if cost is None else cost)

    def release(self, decision: Decision) -> None:
        """Say that nothing was spent after all."""
        self.wallet.release(Hold(decision.id, decision.cost))

    def look(
        self,
        features: FloatArray,
        *,
        clients: Sequence[str | None] = (),
        ids: Sequence[str | None] = (),
        paid: bool = False,
    ) -> list[Decision]:
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
                (ids[row] if ids else None) or decision_id(), now, int(choice[row]), reasons[row], snapshot, terms,
                float(coins[row]), features[row],
                guess.success[row], guess.distances[row], guess.rows[row], clients[row] if clients else None,
            )
            for row in range(len(features))
        ]  # fmt: skip
        self._tell(made)
        if snapshot is self._snapshot:
            self._watches.saw(made)
        return made

    def _watch(self) -> Watches:
        terms = self.wallet.terms(self._snapshot)
        return Watches(self._snapshot, terms.price, seed=self._snapshot.seed)

    def _tell(self, decisions: list[Decision]) -> None:
        for listener in self._listeners:
            listener(decisions)

    def listen(self, listener: Callable[[list[Decision]], None]) -> None:
        """Have every batch of decisions told to somebody, on the search thread."""
        self._listeners.append(listener)

    def add_rows(self, more: Profile) -> Snapshot:
        """More labelled rows; one whose id is there already takes the place of the old one."""
        return self.change(AddRows(more))

    def remove_rows(self, ids: Iterable[str]) -> Snapshot:
        """Rows that are no longer looked at."""
        if isinstance(ids, str):
            raise InvalidInputError(f"ids must be a sequence of ids, got the single string {ids!r}.")
        return self.change(RemoveRows(tuple(map(str, ids))))

    def add_classifier(self, name: str, cost: Amount, success: Any, *, probabilities: Any = None) -> Snapshot:
        """One more classifier: ``success`` (n,) on the labelled rows in their order, or by their ids."""
        ids = self._snapshot.profile.ids
        return self.change(AddClassifier(name, cost, _by_id(ids, success) or {}, _by_id(ids, probabilities)))

    def remove_classifier(self, name: str) -> Snapshot:
        """A classifier that is no longer asked."""
        return self.change(RemoveClassifier(name))

    def change(self, change: Change) -> Snapshot:
        """Replace the labelled rows or the classifiers; decisions go on with the old ones until the new are ready."""
        with self._change:
            before = self._snapshot
            profile = change(before.profile)
            check_rows(profile)
            after = Snapshot.of(profile, before.guide, seed=before.seed)
            if self._history is not None:
                self._history.add(before, change, after)
            self._snapshot = after
            self._watches = self._watch()
            return after

    def feedback(self, decision: Decision | str, *, label: str | None = None, success: float | None = None) -> float:
        """Say what was true of a decision (or of the one with this id): the label, or the success of its answer.

        A label is compared with the answer that the receipt knows. Returns the success; only the first word counts,
        whichever process of those that share the ledger's database heard it.
        """
        if self.receipts is None:
            if isinstance(decision, str):
                raise UnknownNameError("decision", decision, ())
            right = _judged(decision.id, None, label, success)
            self._watches.heard(decision.name, float(decision.success[decision.choice]), right)
            return right
        name = decision if isinstance(decision, str) else decision.id
        stored = self.receipts.find(name, answered=success is None)
        if stored is None:
            raise UnknownNameError("decision", name, ())
        right = _judged(name, (stored.outcome or {}).get("label"), label, success)
        mine = {"label": label, "success": right, "at": time.time()}
        first = stored.feedback or self.receipts.feedback(name, mine)
        if first == mine and stored.snapshot in self.receipts.history:
            self._watches.heard(stored.classifier, float(stored.success[stored.choice]), right)
        return float(first["success"])

    def alarms(self) -> list[Alarm]:
        """What has changed since the labelled rows were gathered, as far as chance does not explain it.

        It includes classifiers that were suspended because they charged more than their stated worst case.
        """
        return [*self._watches.alarms(), *(alarm for others in self._alarms for alarm in others())]

    def add_alarms(self, others: Callable[[], list[Alarm]]) -> None:
        """Add a source of alarms."""
        self._alarms.append(others)

    def evidence(self) -> dict[str, float]:
        """The evidence for a change in features and in feedback; each raises an alarm where it passes 100."""
        return self._watches.evidence()

    def reset_alarms(self) -> None:
        """Take the alarms down and watch anew."""
        self._watches.reset()

    def frontier(self, points: int = 200) -> list[dict[str, float]]:
        """What a query may cost on average, features included, the accuracy expected for it, and the price there."""
        snapshot = self._snapshot
        prices = snapshot.prices
        wanted = np.linspace(prices.costs[0], prices.costs[-1], points)
        chosen = np.unique(np.minimum(np.searchsorted(prices.costs, wanted), prices.costs.size - 1))
        return [
            {
                "cost": snapshot.overhead + float(prices.costs[point]),
                "accuracy": float(prices.accuracies[point]),
                "price": float(prices.values[point]) if point < prices.values.size else 0.0,
            }
            for point in chosen
        ]

    def close(self) -> None:
        """Finish what waits; the ledger stays open if it was given, and can be asked in any case."""
        self._batcher.close()
        self.wallet.close(SETTLING)
        if self.receipts is not None:
            self.receipts.close()
        self._let_go()

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
                clients, ids = [batch[one].client for one in some], [batch[one].id for one in some]
                made: Sequence[Any] = self.look(features, clients=clients, ids=ids, paid=paid)
            except Exception as error:  # noqa: BLE001  # the others must not suffer for it
                made = [error] * len(some)
            results |= dict(zip(some, made, strict=True))
        return [results[number] for number in range(len(batch))]


def _one_row(features: Any) -> FloatArray:
    """The features of one query as a row."""
    try:
        row = np.asarray(features)
    except ValueError:  # rows of different lengths
        raise InvalidInputError("features must be the numbers of one query, got ragged rows.") from None
    if row.ndim == 2 and len(row) != 1:
        raise InvalidInputError(f"features must be those of one query, got {len(row)} rows.")
    return row.reshape(1, -1) if row.ndim == 1 else row


def _pending(state: str | os.PathLike[str] | None, ledger: Ledger) -> PendingSettlements | None:
    """Where settlements are kept that fail; None: in memory, as is all of a ledger that ends with this process."""
    identity = getattr(ledger, "identity", None)
    if state is None or not isinstance(identity, str):
        return None
    return PendingSettlements(Path(state) / SETTLEMENTS, identity)


def _judged(name: str, answered: str | None, label: str | None, success: float | None) -> float:
    """How right an answer was, as it is said or by the true label."""
    if success is None:
        if label is None or answered is None:
            what = "the true label or the success" if label is None else f"an answer of decision {name!r}"
            raise InvalidInputError(f"feedback needs {what}.")
        return float(str(label) == answered)
    if isinstance(success, bool) or not isinstance(success, int | float) or not 0.0 <= success <= 1.0:
        raise InvalidInputError(f"success must lie in [0, 1], got {success!r}.")
    return float(success)


def _by_id(ids: Sequence[str], values: Any) -> dict[str, Any] | None:
    if values is None or isinstance(values, Mapping):
        return None if values is None else dict(values)
    try:
        listed = list(values)
    except TypeError:
        raise InvalidInputError(f"a classifier needs values by row or by id, got {values!r:.60}.") from None
    if len(listed) != len(ids):
        raise InvalidInputError(f"a classifier needs a value for each of the {len(ids)} rows, got {len(listed)}.")
    return dict(zip(ids, listed, strict=True))
