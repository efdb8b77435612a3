"""Answerer: one query in, one answer out, whatever fails; no money is spent that was not held before."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import numpy as np

from occamroute._arrays import FloatArray, read_only
from occamroute._loops import background
from occamroute.calls.breakers import Breakers
from occamroute.calls.engine import CallEngine
from occamroute.calls.requests import Call, Request, RequestCalls, summed
from occamroute.calls.sources import sources_of
from occamroute.calls.terms import content_hash
from occamroute.calls.threads import CLOSED
from occamroute.errors import BudgetExceededError, InvalidInputError, OccamError, OverloadedError, UnavailableError
from occamroute.ledger.base import Reply, name_of
from occamroute.planning.combining import mixed
from occamroute.pool import Pool
from occamroute.routing.batching import Asked
from occamroute.routing.decisions import Decision, decide, decision_id, next_best
from occamroute.routing.drift import Alarm
from occamroute.routing.repeats import Claims, Repeats
from occamroute.routing.router import Router
from occamroute.routing.stored_decisions import StoredDecision, as_text, from_text
from occamroute.text_features import checked_texts

__all__ = ["LONG_TEXT", "Answered", "Answerer", "Call"]

# Seconds by which a hold outlives the request that it was made for, and that closing waits for calls under way.
LEASE, CLOSING = 60.0, 30.0
# Seconds that a decision may always take: what was paid for before it must not be lost for want of a moment.
DECIDING = 1.0
CLOSE = 1e-9
# Characters of a text whose features are made on the event loop: about a millisecond's.
LONG_TEXT = 4_000


@dataclass(frozen=True, eq=False)
class Answered:
    """The answer to one query: its ``label``, ``probabilities`` (C,) and the ``classifier`` that gave it.

    ``cost`` is everything that was charged for this query or may have been, features included; ``calls`` says for
    what. ``decision`` is whom the query went to: another than the first choice where that one gave no answer. Of an
    answer that another process gave by other labelled rows, under the same key, it is what was stored.
    """

    decision: Decision | StoredDecision
    label: str
    probabilities: FloatArray
    classifier: str
    cost: Decimal
    calls: tuple[Call, ...]

    def facts(self) -> dict[str, Any]:
        """What came of the decision, for JSON."""
        return {"label": self.label, "classifier": self.classifier, **_bill(self.calls)}


@dataclass(frozen=True, eq=False)
class _Seen:
    """What is known of a query: features (1, d), None where they could not be had; the extractor's own answer (C,)."""

    features: FloatArray | None
    extractor: str | None = None
    own: FloatArray | None = None


class Answerer:
    """Answers queries one by one: extracts features, has the router decide, and buys the answer from the pool.

    Before each call the most that it can cost is held in the router's ledger, and afterwards what it did cost is
    settled. A call that fails is tried again, at most ``attempts`` times in all, then the next best classifier is
    asked, within ``deadline_seconds`` for the whole. Classifiers that keep failing rest (``breakers``), and the router
    does not choose them meanwhile. Models that compute here have a thread each, and others that cannot be awaited at
    most ``workers``. Without ``wait_for_ledger`` an answer is given while its settlement is on its way to the ledger.
    """

    def __init__(
        self,
        router: Router,
        pool: Pool,
        *,
        workers: int = 32,
        attempts: int = 3,
        deadline_seconds: float = 30.0,
        breakers: Breakers | None = None,
        repeats: Repeats | None = None,
        wait_for_ledger: bool = True,
    ) -> None:
        _check(router, pool, workers, attempts, deadline_seconds)
        self._router, self._pool, self._deadline = router, pool, float(deadline_seconds)
        self._breakers = Breakers() if breakers is None else breakers
        self._repeats = Repeats() if repeats is None else repeats
        self._lease = LEASE + self._deadline
        self._claims = Claims(router.wallet.queue, lease_seconds=self._lease)
        self._engine = CallEngine(sources_of(pool), self._breakers, threads=workers, alternatives=self._askable)
        self._calls = RequestCalls(
            self._engine, router.wallet, attempts=attempts, expected_cost=self._mean_cost,
            lease_seconds=self._lease, wait_for_ledger=wait_for_ledger,
        )  # fmt: skip
        router.add_alarms(self._suspensions)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._barring = threading.Lock()
        self._barred: frozenset[str] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._bar()

    async def classify(
        self, query: Any, *, features: Any = None, client: str | None = None, key: str | None = None
    ) -> Answered:
        """The answer to one query; ``features`` that are given were paid for elsewhere.

        The same ``key`` (of the same client) again gives the same answer, without another call or charge, for 24 hours
        and in every process that shares the ledger; ``RepeatedKeyError`` where the request is under way elsewhere, or
        was paid in vain. ``BudgetExceededError`` where no answer can be
        afforded, ``UnavailableError`` with every reason where nobody gave one, ``LedgerError`` where the ledger cannot
        be used: nothing is spent then.
        """
        if self._closed:
            raise OccamError(CLOSED)
        work = self._classified(query, features, client, key)
        loop = self._engine_loop()
        if asyncio.get_running_loop() is loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make all calls on this event loop instead of a background one. Must be called before the first query."""
        if self._loop not in (None, loop):
            raise OccamError("calls are made on another event loop already.")
        self._loop = loop

    def _engine_loop(self) -> asyncio.AbstractEventLoop:
        """The loop on which calls are made. It outlives the callers' loops, so that every paid call is settled."""
        if self._loop is None:
            self._loop = background().loop
        return self._loop

    async def _classified(self, query: Any, features: Any, client: str | None, key: str | None) -> Answered:
        if client is not None:
            name_of(client, "client")
        queries = query[None] if isinstance(query, np.ndarray) else [query]
        request = Request(queries, client, self._deadline, decision_id())
        if key is None:
            return await self._answered(request, features)
        future, mine = self._repeats.join((client, key), content_hash(queries))
        if mine:
            # On its own: whoever asks again after a broken connection gets what was paid for.
            task = asyncio.get_running_loop().create_task(self._keyed(request, features, key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        answered: Answered = await asyncio.shield(asyncio.wrap_future(future))
        return answered

    def close(self, *, seconds: float = CLOSING) -> None:
        """Take no more queries, wait at most so long for calls under way, which are settled, and end the threads.

        Not for the loop on which calls are made, which would wait for itself: ``aclose`` is.
        """
        self._closed = True
        if self._loop is None or self._loop.is_closed():
            self._engine.close_threads(seconds)
            return
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self.aclose(seconds=seconds), self._loop).result(seconds + 1.0)

    async def aclose(self, *, seconds: float = CLOSING) -> None:
        """The same, on the loop on which calls are made."""
        self._closed = True
        await self._engine.close(seconds)

    def __enter__(self) -> Answerer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _keyed(self, request: Request, features: Any, key: str) -> None:
        who, about = (request.client, key), content_hash(request.queries)
        try:
            claim = await self._claims.take(who, about, seconds=request.left)
            if isinstance(claim, str):
                self._repeats.keep(who, self._stored(claim))
                return
            reply = None
            try:
                answered = await self._answered(request, features)
                reply = Reply(about, _as_text(answered))
            finally:
                await self._claims.end(claim, reply=reply, paid=request.paid)
            self._repeats.keep(who, answered)
        except asyncio.CancelledError:
            self._repeats.drop(who, OccamError("the request was called off."))
            raise
        except Exception as error:  # noqa: BLE001  # those who wait hear of it
            self._repeats.drop(who, error)

    def _stored(self, content: str) -> Answered:
        """An answer that was given before, here or by another process."""
        stored = json.loads(content)
        found, snapshot = from_text(stored["decision"]), self._router.snapshot
        made: Decision | StoredDecision = found.decision(snapshot) if found.snapshot == snapshot.id else found
        calls = tuple(Call(**{**call, "cost": Decimal(call["cost"])}) for call in stored["calls"])
        probabilities = read_only(np.array(stored["probabilities"]))
        return Answered(made, stored["label"], probabilities, stored["classifier"], Decimal(stored["cost"]), calls)

    async def _answered(self, request: Request, features: Any) -> Answered:
        self._bar()
        await self._router.wallet.known()
        seen = await self._seen(request, features)
        decision = await self._decided(request, seen)
        self._router.wallet.came()
        try:
            made, own = await self._bought(request, decision, seen)
        except BaseException as error:
            self._tell(decision, {"error": str(error), **_bill(request.calls)})
            raise
        finally:
            self._router.wallet.learn(decision, float(summed(request.calls)))
        answered = self._answer(request, made, own, seen)
        if made is not decision and self._router.receipts is not None:
            self._router.receipts.add([made])
        self._tell(made, answered.facts())
        return answered

    async def _seen(self, request: Request, given: Any) -> _Seen:
        """The features of a query, as they were given, or extracted and paid for."""
        snapshot, query = self._router.snapshot, request.queries[0]
        if snapshot.looks_at_text:
            checked_texts([query])  # what is no text is refused before anything is paid
        extractor = snapshot.paid_extractor
        if extractor is None:
            return _Seen(await self._row(given, query))
        if given is not None:
            row = await self._row(given, query)
            own = row[0, : snapshot.given_width]
            return _Seen(row, extractor, self._as_answer(own) if extractor in self._pool.names else None)
        if extractor not in self._engine.sources:
            return _Seen(self._router.checked(None), extractor)  # which says that they are missing
        # Features without money for an answer are no use; only the ledger counts to the last digit.
        wallet, least = self._router.wallet, float(min(snapshot.totals)) * (1.0 - CLOSE)
        after = () if extractor in self._pool.names else set(self._askable()) - self._router.barred
        ended = await self._calls.ask(request, extractor, lambda: wallet.standing().available >= least, after=after)
        self._bar()
        found = None if ended is None else ended.probabilities if ended.features is None else ended.features
        if ended is None or found is None:
            return _Seen(None, extractor)
        try:
            row = await self._row(found.astype(np.float32), query)
        except InvalidInputError as error:
            request.note(extractor, error)
            return _Seen(None, extractor, ended.probabilities)
        return _Seen(row, extractor, ended.probabilities)

    async def _row(self, features: Any, query: Any) -> FloatArray:
        """The features of a query to decide by; its text is looked at on another thread if that takes a while."""
        if self._router.snapshot.looks_at_text and isinstance(query, str) and len(query) > LONG_TEXT:
            return await asyncio.to_thread(self._router.checked, features, query)
        return self._router.checked(features, query)

    def _as_answer(self, features: FloatArray) -> FloatArray | None:
        """Features that are probabilities of the pool's classes are their classifier's own answer."""
        row = np.asarray(features, np.float64)
        fits = row.size == len(self._pool.classes) and row.min() >= 0.0 and row.max() <= 2.0
        return row if fits and abs(float(row.sum()) - 1.0) < 1e-3 else None

    async def _decided(self, request: Request, seen: _Seen) -> Decision:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[Decision] = loop.create_future()

        def tell(result: Any) -> None:
            if made.done():
                return  # nobody waits any longer
            if isinstance(result, BaseException):
                made.set_exception(result)
            else:
                made.set_result(result)

        def home(pairs: list[tuple[Asked, Any]]) -> None:
            loop.call_soon_threadsafe(tell, pairs[0][1])

        seconds = max(DECIDING, request.left)
        try:
            if seen.features is None:
                decision = self._without_features(request, seen)
            elif not seen.features.size:  # there is nothing to search for, and so nothing to wait for
                (decision,) = self._router.look(seen.features, clients=[request.client], paid=True)
            else:
                self._router.submit(Asked(seen.features, request.client, paid=True, home=home))
                async with asyncio.timeout(seconds):
                    decision = await made
        except TimeoutError:
            request.note("router", f"no decision within {seconds:.3g} s")
            raise self._nobody(request) from None
        except BudgetExceededError as error:
            request.too_expensive = error
            raise self._nobody(request) from error
        request.id = decision.id
        return decision

    def _without_features(self, request: Request, seen: _Seen) -> Decision:
        """Whom the query goes to by overall accuracies, since its features could not be had."""
        snapshot, router = self._router.snapshot, self._router
        # Its answer counts as free with the features; without them it is not, and it has just failed.
        barred = router.barred | ({seen.extractor} if seen.extractor is not None and seen.own is None else frozenset())
        terms = router.wallet.terms(snapshot, barred=barred, paid=True)
        coin, success = random.random(), snapshot.profile.accuracy  # noqa: S311  # a tie, no secret
        # At no distance from anything, so that it does not count as unlike the profile.
        (choice,), _ = decide(snapshot, success[None], np.zeros((1, 1)), terms, np.array([coin]))
        nothing = np.empty(0)
        made = Decision(
            decision_id(), time.time(), int(choice), "no_features", snapshot, terms, coin, nothing, success,
            nothing, nothing.astype(np.int64), request.client,
        )  # fmt: skip
        if router.receipts is not None:
            router.receipts.add([made])
        return made

    async def _bought(self, request: Request, decision: Decision, seen: _Seen) -> tuple[Decision, FloatArray]:
        """An answer of the first choice, or of the next best that gives one; in the end that paid with the features."""
        names = decision.snapshot.names
        for option in (decision.choice, *next_best(decision, [decision.choice])):
            made = decision if option == decision.choice else decision.instead(option)
            own = await self._own(request, made, seen)
            if own is not None:
                return made, own
        if seen.own is not None and seen.extractor in names:
            return decision.instead(names.index(seen.extractor)), seen.own
        raise self._nobody(request)

    async def _own(self, request: Request, decision: Decision, seen: _Seen) -> FloatArray | None:
        """A classifier's own probabilities: those that the features came with, or bought ones."""
        if decision.name == seen.extractor and seen.own is not None:
            return seen.own
        if decision.name not in self._engine.sources or not request.left:
            return None
        ended = await self._calls.ask(request, decision.name, lambda: self._router.wallet.may_spend(decision))
        self._bar()
        return None if ended is None else ended.probabilities

    def _answer(self, request: Request, decision: Decision, own: FloatArray, seen: _Seen) -> Answered:
        share = decision.snapshot.guide.shares.get(decision.name, 0.0)
        if share and seen.own is not None and decision.name != seen.extractor:
            own = mixed(seen.own[None], own[None], share)[0]
        label = self._pool.classes[int(own.argmax())]
        calls = tuple(request.calls)
        return Answered(decision, label, read_only(own), decision.name, summed(calls), calls)

    def _nobody(self, request: Request) -> OccamError:
        """Why there is no answer: only for want of money, or everything that went wrong."""
        refused = request.too_expensive
        if refused is not None and not request.reasons:
            return refused
        reasons = [*request.reasons, *([] if refused is None else [str(refused).rstrip(".")])]
        words = f"no classifier answered: {'; '.join(reasons) or 'time is up'}"
        if request.overloaded and len(request.overloaded) == len(request.reasons) and not request.calls:
            return OverloadedError(words, min(error.retry_after or 0.0 for error in request.overloaded))
        return UnavailableError(words, self._breakers.seconds_left(self._router.names))

    def _tell(self, decision: Decision, facts: dict[str, Any]) -> None:
        if self._router.receipts is not None:
            self._router.receipts.outcome(decision.id, facts)

    def _bar(self) -> None:
        """Keep the router from choosing those that rest, or that are not in the pool; what others barred stays so."""
        with self._barring:
            others = self._router.barred - self._barred
            missing = frozenset(self._router.names) - set(self._pool.names)
            mine = missing | self._breakers.resting(self._askable())
            if mine != self._barred:
                self._router.barred, self._barred = others | mine, mine

    def _suspensions(self) -> list[Alarm]:
        """An alarm for each classifier that was suspended because it charged more than its stated worst case."""
        return [
            Alarm("bill", 0, 0, 0.0, f"{reason}. It is suspended: correct its price and start the service again.")
            for reason in self._breakers.suspended.values()
        ]

    def _askable(self) -> tuple[str, ...]:
        """The classifiers that nobody but a breaker keeps from being asked."""
        others = self._router.barred - self._barred
        return tuple(name for name in self._router.names if name in self._pool.names and name not in others)

    def _mean_cost(self, name: str) -> Any:
        profile = self._router.snapshot.profile
        if name in profile.names:
            return float(profile.mean_costs[profile.names.index(name)])
        if name in profile.extraction_costs:
            return profile.extraction_costs[name]
        raise UnavailableError(f"{name!r} was removed from the router's profile")


def _as_text(answered: Answered) -> str:
    """An answer that was just given as a text, for ``Answerer._stored``."""
    decision = as_text(cast(Decision, answered.decision))
    return json.dumps({**answered.facts(), "probabilities": answered.probabilities.tolist(), "decision": decision})


def _bill(calls: Sequence[Call]) -> dict[str, Any]:
    return {"cost": f"{summed(calls):f}", "calls": [{**vars(call), "cost": f"{call.cost:f}"} for call in calls]}


def _check(router: Any, pool: Any, workers: Any, attempts: Any, deadline: Any) -> None:
    if not isinstance(router, Router) or not isinstance(pool, Pool):
        found = f"{type(router).__name__} and {type(pool).__name__}"
        raise InvalidInputError(f"a router and a pool are needed to answer, got {found}.")
    for name, number in (("workers", workers), ("attempts", attempts)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InvalidInputError(f"{name} must be a whole number ≥ 1, got {number!r}.")
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 < deadline < 1e6:
        raise InvalidInputError(f"deadline_seconds must be a number above 0, got {deadline!r}.")
    if not set(router.names) & set(pool.names):
        raise InvalidInputError(f"none of the router's classifiers is in the pool: {', '.join(router.names)}.")
    classes = router.snapshot.profile.classes
    if classes is not None and classes != pool.classes:
        raise InvalidInputError("the pool's classes are not the profile's, or in another order.")
