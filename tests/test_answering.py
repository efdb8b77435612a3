"""One query in, one answer out: whatever fails, no money is spent that was not held, and none is counted wrong."""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import BillingServer, billing_server

import occamroute as oc
from occamroute.adapters.openai import ChatClassifier
from occamroute.calls.breakers import Breakers
from occamroute.errors import RepeatedKeyError
from occamroute.ledger import Ledger
from occamroute.ledger.base import Reserve
from occamroute.routing.answering import Answered, Answerer
from occamroute.routing.guides import Guide
from occamroute.routing.repeats import Repeats
from occamroute.routing.router import Router

CLASSES = ("a", "b", "c")
Result = Answered | BaseException


class Model:
    """A classifier that knows the truth of a query (its second number) if that is easy enough for it.

    ``fails`` is called before each answer and may raise, or give something else than an answer.
    """

    def __init__(self, name: str, cost: Any, skill: float, *, fails: Any = None, **limits: Any) -> None:
        self.name, self.cost, self.skill, self.fails = name, cost, skill, fails
        self.calls = self.answers = self.under_way = self.most_under_way = 0
        self.lock = threading.Lock()
        for option, value in limits.items():
            setattr(self, option, value)

    def answer(self, queries: Any, timeout: float | None = None) -> Any:
        with self.lock:
            self.calls += 1
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            given = None if self.fails is None else self.fails(self)
            return self.table(queries) if given is None else given
        finally:
            with self.lock:
                self.under_way -= 1

    def table(self, queries: Any) -> Any:
        rows = np.asarray(queries)
        truth, difficulty = rows[:, 1].astype(int), rows[:, 2]
        table = np.full((len(rows), 3), 0.1)
        sure = 0.5 + 0.4 * np.abs(difficulty - self.skill)
        table[np.arange(len(rows)), np.where(difficulty > self.skill, (truth + 1) % 3, truth)] = sure
        with self.lock:
            self.answers += len(rows)
        return table / table.sum(axis=1, keepdims=True)


def queries_of(rows: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed)
    return np.asarray(np.column_stack([np.arange(rows), drawn.integers(0, 3, rows), drawn.random(rows)]))


def labels_of(queries: np.ndarray) -> list[str]:
    return [CLASSES[int(query[1])] for query in queries]


def usual(**options: Any) -> tuple[Model, Model, Model]:
    """Three classifiers; what is said by name goes to that one, the rest to all."""
    common = {name: value for name, value in options.items() if name not in ("small", "middle", "large")}
    made = [
        Model(name, cost, skill, **{**common, **options.get(name, {})})
        for name, cost, skill in (("small", 0.1, 0.6), ("middle", 0.3, 0.8), ("large", 1, 0.95))
    ]
    return made[0], made[1], made[2]


@pytest.fixture(scope="module")
def profile() -> oc.Profile:
    queries = queries_of(400, 1)
    return oc.profile(oc.Pool(usual(), CLASSES), queries, labels_of(queries), extractor="small")


def router_of(profile: oc.Profile, budget: Any = 1000, **options: Any) -> Router:
    chosen = {} if "extractor" in options else {"guide": Guide("small", "linf", 20)}
    return Router(profile, budget=budget, **{"arrivals": 400, **chosen, **options})


def pool_of(models: Sequence[Model]) -> oc.Pool:
    return oc.Pool(models, CLASSES)


def served(answerer: Answerer, queries: Any, *, at_once: int = 32, **options: Any) -> list[Result]:
    """An answer or an error for each query, so many asked at the same time."""

    async def work() -> list[Result]:
        gate = asyncio.Semaphore(at_once)

        async def one(query: Any) -> Answered:
            async with gate:
                return await answerer.classify(query, **options)

        return await asyncio.gather(*(one(query) for query in queries), return_exceptions=True)

    return asyncio.run(work())


def answered(results: Sequence[Result]) -> list[Answered]:
    """Those with an answer; all others must have a reason."""
    for result in results:
        assert isinstance(result, Answered | oc.OccamError), repr(result)
        assert isinstance(result, Answered) or str(result)
    return [result for result in results if isinstance(result, Answered)]


def bill(models: Sequence[Model]) -> Fraction:
    return sum((model.calls * Fraction(str(model.cost)) for model in models), Fraction(0))


def check_books(ledger: Ledger) -> Decimal:
    """The entries add up to the balance, nothing is held any more, the cap was never passed; what was spent."""
    balance, held, spent = ledger.balance(), Decimal(0), Decimal(0)
    for entry in ledger.entries():
        held, spent = held + entry.held, spent + entry.spent
        assert held >= 0
        assert held + spent <= balance.cap
    assert (held, spent) == (balance.held, balance.spent)
    assert held == 0
    return spent


def lost(_: Model) -> None:
    raise oc.CallLostError("a reset")


def refused(_: Model) -> None:
    raise oc.CallRefusedError("slow down", 0.01)


def gone(_: Model) -> None:
    raise oc.UnavailableError("no such model")


def slow(seconds: float) -> Callable[[Model], None]:
    return lambda _: time.sleep(seconds)


def test_answers_cost_what_their_calls_cost(profile: oc.Profile) -> None:
    """Calls times cost is what was spent, to the last digit; answers are as good as expected."""
    models, queries = usual(), queries_of(300, 2)
    with router_of(profile, 150, arrivals=300) as router, Answerer(router, pool_of(models)) as answerer:
        results = answered(served(answerer, queries))
        assert len(results) == 300
        assert check_books(router.ledger) == sum(result.cost for result in results) == bill(models)
        right = np.mean([result.label == label for result, label in zip(results, labels_of(queries), strict=True)])
        assert right > 0.8
        assert router.wallet.pace.arrivals.seen == 300
        for result in results:
            assert [call.outcome for call in result.calls] == ["answered"] * len(result.calls)
            assert result.calls[0].name == "small"
            assert result.calls[-1].name == result.classifier == result.decision.name
            assert result.label == CLASSES[int(result.probabilities.argmax())]
    assert models[2].most_under_way == 1  # it computes here: one call at a time


def test_features_that_are_given_are_not_bought(profile: oc.Profile) -> None:
    """The extractor is not called; where the features are its probabilities, its own answer is there too."""
    models, queries = usual(), queries_of(40, 3)
    features = usual()[0].table(queries)
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:
        for query, row in zip(queries, features, strict=True):
            result = asyncio.run(answerer.classify(query, features=row))
            planned = result.decision.cost
            assert planned is not None
            assert result.cost == (0 if result.classifier == "small" else planned - Decimal("0.1"))
        assert models[0].calls == 0
        with pytest.raises(oc.InvalidInputError, match="must be the 3 numbers of 'small', got 2"):
            asyncio.run(answerer.classify(queries[0], features=[0.5, 0.5]))
        assert check_books(router.ledger) == bill(models)


def test_no_features_are_looked_at(profile: oc.Profile) -> None:
    """A router without an extractor: one call a query."""
    models = usual()
    with router_of(profile, 120, extractor=None) as router, Answerer(router, pool_of(models)) as answerer:
        results = answered(served(answerer, queries_of(50, 4)))
        assert {len(result.calls) for result in results} == {1}
        assert {result.decision.reason for result in results} == {"no_features"}
        assert check_books(router.ledger) == bill(models)


def test_combined_answers_are_those_of_execute(profile: oc.Profile) -> None:
    """Where the guide has shares, probabilities equal those of oc.execute for the same choice."""
    queries = queries_of(80, 5)
    guide = Guide("small", "linf", 20, 1.0, {"middle": 0.3, "large": 0.4})
    with router_of(profile, 60, arrivals=80, guide=guide) as router, Answerer(router, pool_of(usual())) as answerer:
        results = answered(served(answerer, queries))
    plan = oc.plan(profile, usual()[0].table(queries).astype(np.float32), budget=60, combine=False)
    assert plan.made_from["extractor"] == "small"
    choice = np.array([result.decision.choice for result in results])
    object.__setattr__(plan, "choice", choice)
    object.__setattr__(plan, "weights", np.array([0.0, 0.3, 0.4]))
    run = oc.execute(plan, pool_of(usual()), queries)
    assert set(choice.tolist()) == {0, 1, 2}
    np.testing.assert_array_equal(run.choice, choice)
    np.testing.assert_array_equal(run.probabilities, [result.probabilities for result in results])
    assert run.answers.tolist() == [result.label for result in results]
    assert sum(result.cost for result in results) == run.exact_spent


def test_paid_by_the_second(profile: oc.Profile) -> None:
    """Measured costs: three times the mean is held, what the clock says is settled, the first call is not counted."""
    models = usual(large={"fails": slow(0.002)})
    models[2].cost = oc.Measured(per_hour=3600)
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:
        results = answered(served(answerer, queries_of(60, 6)))
        timed = [call for result in results for call in result.calls if call.name == "large"]
        assert len(timed) > 10
        assert models[2].calls == len(timed) + 1
        for call in timed:
            assert Decimal(call.seconds) <= call.cost < Decimal(call.seconds + 1e-8)
        spent = check_books(router.ledger)
        assert spent == sum(result.cost for result in results)
        held = {entry.key: entry.held for entry in router.ledger.entries() if entry.event == "reserve"}
        assert sum(amount == 3 for amount in held.values()) == len(timed)


def test_a_classifier_is_removed_meanwhile(profile: oc.Profile) -> None:
    """Chosen just before it was removed, and nobody knows any more what its calls take: the next best answers."""
    models = usual()
    models[2].cost = oc.Measured(per_hour=3600)
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:

        def remove(made: list[Any]) -> None:
            if made[0].name == "large" == router.names[-1]:
                router.remove_classifier("large")

        router.listen(remove)
        results = [asyncio.run(answerer.classify(query)) for query in queries_of(40, 6)]
        assert router.names == ("small", "middle")
        assert "large" not in {result.classifier for result in results}
        check_books(router.ledger)


def test_the_ledger_answers_too_late(profile: oc.Profile) -> None:
    """A hold that comes when nobody waits any more is given back, and nothing is called."""

    class Late:
        def __init__(self) -> None:
            self.inner, self.late = oc.open_ledger("memory:", cap=400), False

        def apply(self, operations: Sequence[Any]) -> Any:
            done = self.inner.apply(operations)
            time.sleep(0.6 if self.late else 0.0)
            return done

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    models, ledger = usual(), Late()
    with router_of(profile, None, ledger=ledger, extractor=None) as router:
        answerer = Answerer(router, pool_of(models), deadline_seconds=0.3)
        ledger.late = True
        with pytest.raises(oc.LedgerError, match="did not answer within"):
            asyncio.run(answerer.classify(queries_of(1, 1)[0]))
        answerer.close()
        assert sum(model.calls for model in models) == 0
    assert check_books(router.ledger) == 0  # closing has done what the ledger still had to be told


def test_a_call_is_tried_again(profile: oc.Profile) -> None:
    """Turned away twice, answered the third time: waits as it was asked to, and pays once."""
    waits = iter([0.15, 0.1, None])

    def fails(model: Model) -> None:
        if (seconds := next(waits)) is not None:
            raise oc.CallRefusedError("slow down", seconds)

    models = usual(small={"fails": fails, "concurrency": 4})
    with router_of(profile, 40) as router, Answerer(router, pool_of(models)) as answerer:
        begun = time.monotonic()
        result = asyncio.run(answerer.classify(queries_of(1, 7)[0]))
        assert time.monotonic() - begun >= 0.25
        assert [call.outcome for call in result.calls][:3] == ["refused", "refused", "answered"]
        assert result.calls[0].error == "slow down."
        assert check_books(router.ledger) == result.cost == sum(call.cost for call in result.calls[2:])
        events = [entry.event for entry in router.ledger.entries()]
        assert events[:6] == ["reserve", "release", "reserve", "release", "reserve", "settle"]


@pytest.mark.parametrize(("fails", "word"), [(lost, "lost"), (refused, "refused"), (gone, "unavailable")])
def test_the_next_best_answers(profile: oc.Profile, fails: Any, word: str) -> None:
    """What fails for good is replaced by the next best; unknown outcomes count at their worst case, others nothing."""
    models = usual(large={"fails": fails, "concurrency": 4, "retries": 1})
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:
        results = [asyncio.run(answerer.classify(query)) for query in queries_of(6, 8)]
        failed = [call for result in results for call in result.calls if call.name == "large"]
        assert {call.outcome for call in failed} == {word}
        assert all("large" not in (result.classifier, result.decision.name) for result in results)
        second = [result for result in results if any(call.name == "large" for call in result.calls)]
        assert {result.decision.reason for result in second} == {"second_choice"}
        tried = sum(result.calls[1].name == "large" for result in second)
        assert len(failed) == (tried if fails is gone else models[2].calls)
        assert sum(call.cost for call in failed) == (len(failed) if fails is lost else 0)
        assert check_books(router.ledger) == sum(result.cost for result in results)


def test_the_free_answer_is_the_last_resort(profile: oc.Profile) -> None:
    """Everybody but the extractor is dead: its own answer, which was paid with the features, is given."""
    dead = {"fails": lost, "concurrency": 4, "retries": 0}
    models = usual(middle=dead, large=dead)
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:
        results = [asyncio.run(answerer.classify(query)) for query in queries_of(30, 9)]
        assert {result.classifier for result in results} == {"small"}
        assert models[0].calls == 30
        # Both were given up after five failures: they cost nothing more.
        assert (models[1].calls, models[2].calls) == (5, 5)
        assert router.barred == {"middle", "large"}
        assert check_books(router.ledger) == Decimal("3") + 5 * Decimal("0.3") + 5


def test_nobody_answers(profile: oc.Profile) -> None:
    """Every reason is named; when all rest, the least bad is still tried."""
    models = usual(fails=gone, concurrency=4)
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:
        for number in range(12):
            with pytest.raises(oc.UnavailableError, match="no classifier answered") as caught:
                asyncio.run(answerer.classify(queries_of(1, number)[0]))
            assert number or all(f"{name}: no such model" in str(caught.value) for name in profile.names)
        assert caught.value.retry_after is not None
        assert len(router.barred) == 2
        calls = sum(model.calls for model in models)
        with pytest.raises(oc.UnavailableError):
            asyncio.run(answerer.classify(queries_of(1, 1)[0]))
        assert sum(model.calls for model in models) == calls + 1
        for model in models:
            model.fails = None
        assert asyncio.run(answerer.classify(queries_of(1, 1)[0])).label
        assert check_books(router.ledger) > 0


def test_features_that_cannot_be_had(profile: oc.Profile, tmp_path: Path) -> None:
    """The extractor is down: overall accuracies decide, at no cost for features, and somebody else answers."""
    models = usual(small={"fails": gone, "concurrency": 4})
    with router_of(profile, 4000, state=tmp_path) as router, Answerer(router, pool_of(models)) as answerer:
        results = answered(served(answerer, queries_of(20, 10), at_once=1))
        assert len(results) == 20
        assert {result.decision.reason for result in results} == {"no_features"}
        assert {result.classifier for result in results} == {"large"}
        np.testing.assert_array_equal(results[0].decision.success, profile.accuracy)
        assert models[0].calls == 5
        assert check_books(router.ledger) == 20
        assert router.wallet.pace.arrivals.seen == 20
        assert router.receipts is not None
        assert all(router.receipts.replay(result.decision.id) for result in results)
        found = router.receipts.get(results[0].decision.id)
        assert found is not None
        assert (found["familiarity"], found["neighbours"], found["features"]) == (None, [], [])


def test_features_of_another_shape(profile: oc.Profile) -> None:
    """An extractor that now gives other features is paid; its own answer stays, and accuracies decide."""

    def fails(model: Model) -> Any:
        return oc.Answers(np.array([[0.2, 0.5, 0.3]]), [0.1], features=np.zeros((1, 7)))

    models = usual(small={"fails": fails})
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:
        result = asyncio.run(answerer.classify(queries_of(1, 1)[0]))
        assert result.decision.reason == "no_features"
        assert [call.outcome for call in result.calls] == ["answered", "answered"]
        assert check_books(router.ledger) == result.cost == Decimal("1.1")


def test_a_reply_without_an_answer(profile: oc.Profile) -> None:
    """A query that is declined is not asked again there; what the reply cost is paid."""

    def fails(model: Model) -> Any:
        return oc.Answers(np.ones((1, 3)) / 3, [Decimal("0.25")], {0: "it said 'banana', which is no label"})

    models = usual(large={"fails": fails, "concurrency": 4})
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:
        results = answered(served(answerer, queries_of(30, 11), at_once=1))
        assert len(results) == 30
        useless = [call for result in results for call in result.calls if call.name == "large"]
        assert {call.outcome for call in useless} == {"useless"}
        assert len(useless) == models[2].calls == 5
        assert sum(call.cost for call in useless) == Decimal("1.25")
        assert check_books(router.ledger) == sum(result.cost for result in results)


def test_the_cap_runs_out(profile: oc.Profile) -> None:
    """Never a unit above the cap; each query has an answer or is refused for want of money, and free ones go on."""
    models, queries = usual(), queries_of(200, 12)
    with router_of(profile, 20, arrivals=60) as router, Answerer(router, pool_of(models)) as answerer:
        results = served(answerer, queries)
        good = answered(results)
        assert 60 < len(good) < 200
        assert all(isinstance(one, Answered | oc.BudgetExceededError) for one in results)
        assert check_books(router.ledger) == bill(models) == sum(one.cost for one in good) <= 20
        assert router.ledger.balance().available < 1


def test_features_are_not_bought_without_money_for_an_answer(profile: oc.Profile) -> None:
    """The last money goes to an answer, not to features that nobody can use."""

    class Sums:
        name, cost = "sums", 0.05

        def extract(self, queries: Any) -> Any:
            return np.asarray(queries)[:, 1:]

    queries = queries_of(100, 13)
    pool = oc.Pool(usual(), CLASSES, [Sums()])
    known = oc.profile(pool, queries, labels_of(queries), extractor="sums")
    with router_of(known, Decimal("1.16"), arrivals=3, extractor="sums") as router, Answerer(router, pool) as answerer:
        results = served(answerer, queries[:12], at_once=1)
        good = answered(results)
        assert check_books(router.ledger) == sum(one.cost for one in good) == Decimal("1.15")
        assert [call.name for call in good[-1].calls] == ["small"]
        assert good[-1].decision.reason == "no_features"
        assert {type(result) for result in results[len(good) :]} == {oc.BudgetExceededError}


def test_features_and_answers_are_paid_together(profile: oc.Profile) -> None:
    """Many at once do not spend on features what their answers would take."""

    class Sums:
        name, cost, concurrency = "sums", 0.1, 20

        def extract(self, queries: Any) -> Any:
            time.sleep(0.3)
            return np.asarray(queries)[:, 1:]

    queries = queries_of(100, 13)
    pool = oc.Pool(usual()[:1], CLASSES, [Sums()])
    known = oc.profile(pool, queries, labels_of(queries), extractor="sums")
    with router_of(known, Decimal(1), arrivals=5, extractor="sums") as router, Answerer(router, pool) as answerer:
        good = answered(served(answerer, queries[:20], at_once=20))
        assert sum(one.cost for one in good) <= check_books(router.ledger) <= 1
        assert len(good) >= 4  # of 5: one that comes just then may take the last money of another


def test_a_model_that_hangs(profile: oc.Profile) -> None:
    """A call that does not come back is given up in time, counts at its worst case, and is settled when it ends."""
    come_back = threading.Event()

    def hang(model: Model) -> None:
        come_back.wait(20)

    models = usual(large={"fails": hang})
    with router_of(profile, 4000) as router:
        answerer = Answerer(router, pool_of(models), deadline_seconds=0.6)
        begun = time.monotonic()
        results = served(answerer, queries_of(12, 14), at_once=12)
        assert time.monotonic() - begun < 2.0
        assert len(answered(results)) == 12
        given_up = [call for one in answered(results) for call in one.calls if call.outcome == "abandoned"]
        assert [call.cost for call in given_up] == [1]
        # Those that never got to it do not count against it, but are told at once that it takes too long.
        assert router.barred == frozenset()
        assert router.ledger.balance().held == 1
        come_back.set()
        answerer.close()
        assert check_books(router.ledger) == bill(models)


def test_places_are_limited(profile: oc.Profile) -> None:
    """No more calls at once than a classifier takes, and no more a minute."""
    models = usual(large={"fails": slow(0.005), "concurrency": 3, "per_minute": 2400})
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:
        begun = time.monotonic()
        assert len(answered(served(answerer, queries_of(40, 15)))) == 40
        assert models[2].most_under_way <= 3
        assert time.monotonic() - begun >= (models[2].calls - 1) * 60 / 2400


def test_one_that_charges_more_than_it_says(profile: oc.Profile) -> None:
    """It is asked once: what it charged is in the books, an alarm says why, and others answer from then on."""

    def dear(model: Model) -> Any:
        return oc.Answers(np.array([[0.2, 0.5, 0.3]]), [Decimal("1.5")])

    models = usual(large={"fails": dear, "concurrency": 2, "max_cost": lambda queries: [1] * len(queries)})
    with router_of(profile, 4000, extractor=None) as router, Answerer(router, pool_of(models)) as answerer:
        results = answered(served(answerer, queries_of(12, 3), at_once=1))
        assert models[2].calls == 1
        assert [one.classifier for one in results[:2]] == ["large", "middle"]
        (alarm,) = router.alarms()
        assert alarm.what == "bill"
        assert "'large' charged 1.5 for a call that costs 1 at most" in str(alarm)
        assert router.barred == {"large"}
        assert check_books(router.ledger) == Decimal("1.5") + 11 * Decimal("0.3")


def test_more_calls_than_can_be_answered_in_time(profile: oc.Profile) -> None:
    """Those that cannot be told so within a moment, and when to come again; the classifier is not at fault."""
    model = usual(large={"fails": slow(0.1), "concurrency": 4})[2]
    with router_of(profile, 4000, extractor=None) as router:
        with Answerer(router, pool_of([model]), deadline_seconds=1.0) as answerer:
            served(answerer, queries_of(4, 3))  # now it is known how long a call takes
            begun = time.monotonic()
            results = served(answerer, queries_of(100, 3), at_once=100)
            assert time.monotonic() - begun < 1.0
            refused = [one for one in results if isinstance(one, oc.OverloadedError)]
            assert 12 <= len(answered(results)) <= 40
            assert len(answered(results)) + len(refused) == 100
            assert all(0 < (one.retry_after or 0) < 10 for one in refused)
            assert "large" not in router.barred
            assert not router.alarms()
        assert check_books(router.ledger) == bill([model])


def test_breakers() -> None:
    """Five failures in a row, or more than half of twenty, open one; a probe closes it, or opens it twice as long."""
    now = [0.0]
    breakers = Breakers(clock=lambda: now[0])
    names = ("a", "b")

    def fail(name: str, times: int = 1) -> None:
        for _ in range(times):
            breakers.failed(name, now[0])

    fail("a", 4)
    breakers.succeeded("a", now[0])
    fail("a", 4)
    assert not breakers.resting(names)
    fail("a")
    assert breakers.resting(names) == {"a"}
    assert breakers.enter("a", names) is None
    breakers.failed("a", -1.0)  # began before it opened: nothing new
    for seconds in (30.0, 60.0, 120.0, 240.0, 300.0, 300.0):
        assert breakers.seconds_left(names) == seconds
        now[0] += seconds - 0.1
        assert breakers.enter("a", names) is None
        now[0] += 0.1
        assert not breakers.resting(names)
        began = breakers.enter("a", names)
        assert began == now[0]
        assert breakers.enter("a", names) is None  # one probe at a time
        assert breakers.resting(names) == {"a"}
        breakers.failed("a", began)
    now[0] += 300.0
    breakers.left("a", breakers.enter("a", names) or 0.0)
    breakers.succeeded("a", breakers.enter("a", names) or 0.0)
    assert not breakers.resting(names)
    fail("a", 5)
    assert breakers.seconds_left(names) == 30.0
    for _ in range(9):
        breakers.succeeded("b", now[0])
        fail("b")
    fail("b")
    assert breakers.resting(names) == {"a"}
    fail("b")  # 11 of 20
    assert breakers.resting(names) == {"b"}  # both are bad: the one that is back first is tried
    now[0] += 1.0
    breakers.failed("a", breakers.enter("a", names) or 0.0)
    assert breakers.seconds_left(names) == 29.0  # it rests no longer for having been tried meanwhile
    assert breakers.enter("b", names) is None
    breakers.succeeded("a", breakers.enter("a", names) or 0.0)
    assert breakers.resting(names) == {"b"}
    assert breakers.seconds_left(["a"]) is None
    breakers.rest("c", 1000.0)
    assert breakers.seconds_left(["c"]) == 300.0
    breakers.succeeded("c", now[0])  # a call that was under way: the wish still counts
    assert breakers.enter("c", ("a", "c")) is None
    now[0] += 300.0
    assert breakers.enter("c", ("a", "c")) is not None


def test_what_others_barred_stays_barred(profile: oc.Profile) -> None:
    """Nobody who was taken out by hand comes back with a breaker; those that are not in the pool are never chosen."""
    models = usual(middle={"fails": gone, "concurrency": 4})
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models[:2])) as answerer:
        assert router.barred == {"large"}
        router.barred |= {"small"}
        for query in queries_of(8, 26):
            with pytest.raises(oc.UnavailableError, match="middle: no such model"):
                asyncio.run(answerer.classify(query, features=[0.2, 0.2, 0.2]))
        assert router.barred == {"small", "large"}
        assert models[1].calls == 8  # it is the only one left: it is tried although it rests


def test_a_classifier_that_wants_to_be_left_alone(profile: oc.Profile) -> None:
    """One that asks for more time than there is is not asked again before that, by anybody."""

    def fails(model: Model) -> None:
        raise oc.CallRefusedError("slow down", 60.0)

    models = usual(large={"fails": fails, "concurrency": 4})
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:
        assert len(answered(served(answerer, queries_of(20, 25), at_once=1))) == 20
        assert models[2].calls == 1
        assert router.barred == {"large"}
        assert check_books(router.ledger) == bill(models) - 1


def test_a_classifier_that_dies_and_comes_back(profile: oc.Profile) -> None:
    """It costs nothing once its breaker is open, others answer, and a probe finds that it is back."""
    models, queries = usual(large={"concurrency": 4, "retries": 0}), queries_of(100, 16)
    now = [0.0]
    breakers = Breakers(clock=lambda: now[0])
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models), breakers=breakers) as answerer:

        def accuracy() -> float:
            results = answered(served(answerer, queries, at_once=4))
            assert len(results) == len(queries)
            return float(np.mean([one.label == label for one, label in zip(results, labels_of(queries), strict=True)]))

        well = accuracy()
        models[2].fails = lost
        accuracy()
        assert router.barred == {"large"}
        spent, calls = router.ledger.balance().spent, models[2].calls
        without = accuracy()
        assert 0.7 < without < well
        assert models[2].calls == calls
        assert router.ledger.balance().spent - spent <= 100 * Decimal("0.4")
        now[0] += 31.0
        assert accuracy() == without
        assert models[2].calls == calls + 1  # one probe
        now[0] += 59.0
        models[2].fails = None
        assert accuracy() == without
        now[0] += 2.0
        assert accuracy() > without
        assert not router.barred
        assert accuracy() == well
        assert check_books(router.ledger) == bill(models)


def assert_same(again: Answered, first: Answered) -> None:
    """All of an answer, its decision included."""
    assert again.facts() == first.facts()
    np.testing.assert_array_equal(again.probabilities, first.probabilities)
    assert (again.decision.id, again.decision.at) == (first.decision.id, first.decision.at)
    assert (again.decision.name, again.decision.terms) == (first.decision.name, first.decision.terms)
    for name in ("features", "success", "rows", "distances"):
        np.testing.assert_array_equal(getattr(again.decision, name), getattr(first.decision, name))


def test_one_key_is_charged_once(profile: oc.Profile) -> None:
    """A hundred requests under one key, at the same time and later: one answer, one charge; no other query under it."""
    models, query = usual(large={"fails": slow(0.05)}), queries_of(1, 17)[0]
    now = [0.0]
    repeats = Repeats(most=2, seconds=100.0, clock=lambda: now[0])
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models), repeats=repeats) as answerer:
        results = answered(served(answerer, [query] * 100, at_once=100, key="one"))
        assert len(results) == 100
        assert len({id(result) for result in results}) == 1
        assert asyncio.run(answerer.classify(query, key="one")) is results[0]
        assert check_books(router.ledger) == results[0].cost == bill(models)
        other = asyncio.run(answerer.classify(query, key="one", client="somebody"))
        assert other is not results[0]
        with pytest.raises(oc.InvalidInputError, match="the key 'one' was used for another query"):
            asyncio.run(answerer.classify(queries_of(1, 18)[0], key="one"))
        for wrong in ("", "x" * 201, 5):
            with pytest.raises(oc.InvalidInputError, match="key must be a text of 1 to 200 characters"):
                asyncio.run(answerer.classify(query, key=wrong))  # type: ignore[arg-type]
        with pytest.raises(oc.InvalidInputError, match="client must be a text"):
            asyncio.run(answerer.classify(query, client=""))
        now[0] = 101.0  # it is in memory no longer, but the ledger has it
        again = asyncio.run(answerer.classify(query, key="one"))
        assert again is not results[0]
        assert_same(again, results[0])
        with pytest.raises(oc.InvalidInputError, match="the key 'one' was used for another query"):
            asyncio.run(answerer.classify(queries_of(1, 18)[0], key="one", client=None))
        assert check_books(router.ledger) == bill(models)


def test_one_key_on_two_replicas(profile: oc.Profile, tmp_path: Path) -> None:
    """Two routers on one ledger: one of them pays, whoever asks the other hears that it is under way or was paid."""
    address, query = f"sqlite:///{tmp_path}/spend.db", queries_of(1, 19)[0]
    models = usual(fails=slow(0.02))
    routers = [router_of(profile, 4000, ledger=address) for _ in range(2)]
    answerers = [Answerer(router, pool_of(models)) for router in routers]

    async def work() -> list[Result]:
        tasks = (answerers[number % 2].classify(query, key="both") for number in range(40))
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(work())
    good = [result for result in results if isinstance(result, Answered)]
    assert len({id(result) for result in good}) == 1
    assert {type(result) for result in results} == {Answered, RepeatedKeyError}
    assert any("is under way elsewhere" in str(result) for result in results)
    assert check_books(routers[0].ledger) == good[0].cost == bill(models)
    for answerer in answerers:  # once it is there, both have it
        assert_same(asyncio.run(answerer.classify(query, key="both")), good[0])
        with pytest.raises(oc.InvalidInputError, match="the key 'both' was used for another query"):
            asyncio.run(answerer.classify(queries_of(1, 20)[0], key="both"))
    assert check_books(routers[0].ledger) == bill(models)
    for answerer, router in zip(answerers, routers, strict=True):
        answerer.close()
        router.close()
        router.ledger.close()


def test_a_key_whose_attempt_cost_nothing(profile: oc.Profile) -> None:
    """After a failure that cost nothing the key may be used again; after one that was paid it may not."""
    models, query = usual(fails=gone, concurrency=4, retries=0), queries_of(1, 20)[0]
    with router_of(profile, 4000) as router:
        first, second = (Answerer(router, pool_of(models)) for _ in range(2))
        # Breakers open on the way, and it goes on: whoever is told to come back later may do so for hours.
        for answerer in 15 * [first, second]:
            with pytest.raises(oc.UnavailableError):
                asyncio.run(answerer.classify(query, key="again"))
        for model in models:
            model.fails = lost
        with pytest.raises(oc.UnavailableError):
            asyncio.run(second.classify(query, key="again"))
        for model in models:
            model.fails = None
        for answerer in (first, second):
            with pytest.raises(RepeatedKeyError):
                asyncio.run(answerer.classify(query, key="again"))
        assert asyncio.run(first.classify(query, key="new")).label
        first.close()
        second.close()
        assert check_books(router.ledger) > 0


def test_whoever_goes_away_pays(profile: oc.Profile) -> None:
    """A request that is called off: its call under way is settled; under a key its answer waits for the next try."""
    models, query = usual(fails=slow(0.1)), queries_of(1, 21)[0]
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:

        async def hang_up(key: str | None) -> None:
            task = asyncio.create_task(answerer.classify(query, key=key))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        async def hang_up_and_call_again() -> Answered:
            await hang_up("again")
            return await answerer.classify(query, key="again")

        asyncio.run(hang_up(None))
        time.sleep(0.2)
        assert check_books(router.ledger) == Decimal("0.1") == bill(models)
        result = asyncio.run(hang_up_and_call_again())
        assert check_books(router.ledger) == Decimal("0.1") + result.cost == bill(models)
        asyncio.run(hang_up("the caller's loop ends too"))  # which is not the one on which calls are made
        again = asyncio.run(answerer.classify(query, key="the caller's loop ends too"))
        assert check_books(router.ledger) == Decimal("0.1") + result.cost + again.cost == bill(models)


def test_closing_waits_for_calls(profile: oc.Profile) -> None:
    """Calls under way are settled, nothing new begins, and requests that wait hear of it."""
    models = usual(fails=slow(0.2), concurrency=2)
    before = set(threading.enumerate())
    with router_of(profile, 4000) as router:
        answerer = Answerer(router, pool_of(models), workers=3)

        async def work() -> list[Result]:
            tasks = [asyncio.create_task(answerer.classify(query)) for query in queries_of(8, 22)]
            await asyncio.sleep(0.1)
            await asyncio.to_thread(answerer.close)
            return await asyncio.gather(*tasks, return_exceptions=True)

        results = asyncio.run(work())
        assert {str(result) for result in results} == {"nothing more can be asked: this is closed."}
        assert check_books(router.ledger) == bill(models) == Decimal("0.2")
        with pytest.raises(oc.OccamError, match="this is closed"):
            asyncio.run(answerer.classify(queries_of(1, 1)[0]))
        begun = set(threading.enumerate()) - before
        assert not [one for one in begun if one.name.startswith("occamroute-call")]


def test_a_time_out_of_several_parts(profile: oc.Profile) -> None:
    """It is handed to the classifier as it is."""
    models = usual(timeout=(3.0, 10.0))
    with router_of(profile, 4000) as router, Answerer(router, pool_of(models)) as answerer:
        assert len(answered(served(answerer, queries_of(10, 2)))) == 10
        check_books(router.ledger)


def test_a_call_outlives_its_lease(profile: oc.Profile) -> None:
    """Its hold counts as spent in full meanwhile; what it really cost is settled late."""
    model = usual(large={"fails": slow(0.2)})[2]
    model.cost = oc.Measured(per_hour=3600)
    with router_of(profile, 4000, extractor=None) as router, Answerer(router, pool_of([model])) as answerer:
        answerer._calls._lease_seconds = 0.05
        seen: list[Decimal] = []
        threading.Timer(0.3, lambda: seen.append(router.ledger.balance().spent)).start()
        (result,) = answered(served(answerer, queries_of(1, 1)))
        assert seen == [3 * Decimal(1)]  # three times what the profile says that a call costs
        assert check_books(router.ledger) == result.cost < Decimal("0.3")


class Failing:
    """A ledger that cannot be reached at some of its calls, before or after it has done what was asked."""

    def __init__(self, ledger: Ledger, fails: Callable[[int], bool], *, done: bool) -> None:
        self.inner, self.fails, self.done, self.calls = ledger, fails, done, -100

    def _through(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        broken = self.fails(self.calls)
        given = call() if self.done or not broken else None
        if broken:
            raise oc.LedgerError("far away", "the line is dead")
        return given

    def apply(self, operations: Sequence[Any]) -> Any:
        short = [replace(one, lease_seconds=0.5) if isinstance(one, Reserve) else one for one in operations]
        return self._through(lambda: self.inner.apply(short))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        return lambda *given, **options: self._through(lambda: method(*given, **options))


def asked_while_failing(profile: oc.Profile, ledger: Failing, models: Sequence[Model]) -> list[Result]:
    """What becomes of two queries, one of them under a key; the ledger's calls are counted from the first on."""
    with router_of(profile, None, ledger=ledger, arrivals=20) as router:
        ledger.calls = 0
        with Answerer(router, pool_of(models)) as answerer:
            first, second = queries_of(2, 23)
            return served(answerer, [first]) + served(answerer, [second], key="k")


def is_due(call: int, *, at: int, once: bool) -> bool:
    return call == at or (call > at and not once)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("once", [False, True], ids=["for ever", "once"])
def test_the_ledger_fails_in_the_middle(profile: oc.Profile, done: bool, once: bool) -> None:
    """At whichever call: nothing is spent unheld, answers that were paid are given, holds that stay count in full."""
    runs = []
    for number in range(1, 100):
        models = usual(large={"fails": lost, "concurrency": 2, "retries": 0})
        inner = oc.open_ledger("memory:", cap=30)
        ledger = Failing(inner, partial(is_due, at=number, once=once), done=done)
        results = asked_while_failing(profile, ledger, models)
        assert all(isinstance(one, Answered | oc.LedgerError) for one in results), results
        runs.append((inner, models, answered(results)))
        if ledger.calls < number:
            break
    assert len(runs[-1][2]) == 2  # in the last run nothing failed any more
    assert len(runs) > 12
    time.sleep(0.6)  # what stayed held counts as spent now
    untold = 0
    for inner, models, good in runs:
        assert bill(models) <= check_books(inner) <= 30
        untold += sum("the ledger was not told" in str(call.error) for one in good for call in one.calls)
    assert untold > 0


@settings(max_examples=15, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**16))
def test_every_call_is_in_the_books(profile: oc.Profile, data: st.DataObject, seed: int) -> None:
    """Whatever calls come to: what is spent is the sum of true costs, worst cases where nobody knows, and no more."""
    words = st.sampled_from(["answered", "refused", "lost", "gone", "useless", "odd"])
    script = {name: data.draw(st.lists(words, min_size=12, max_size=12), label=name) for name in profile.names}
    true = {name: Decimal(data.draw(st.integers(0, 10**9), label=name)).scaleb(-9) for name in profile.names}
    charged: list[Decimal] = []

    def fails(model: Model) -> Any:
        word = script[model.name].pop() if script[model.name] else "answered"
        charged.append({"answered": true[model.name], "useless": true[model.name]}.get(word, Decimal(2)))
        if word in ("refused", "gone"):
            charged.pop()
            raise oc.CallRefusedError("no", 0.0) if word == "refused" else oc.UnavailableError("nobody there")
        if word in ("lost", "odd"):
            raise oc.CallLostError("a reset") if word == "lost" else KeyError("odd")
        return oc.Answers(np.array([[0.2, 0.5, 0.3]]), [true[model.name]], {0: "no"} if word == "useless" else {})

    models = usual(fails=fails, concurrency=4, retries=1, max_cost=lambda queries: [2] * len(queries))
    cap = data.draw(st.sampled_from([7, 21, 400]), label="cap")
    with router_of(profile, cap, arrivals=5) as router:
        with Answerer(router, pool_of(models), breakers=Breakers(open_seconds=0.01)) as answerer:
            answered(served(answerer, queries_of(5, seed), at_once=3))
        assert check_books(router.ledger) == sum(charged)


def test_what_a_model_says_in_its_errors_is_not_kept(profile: oc.Profile, tmp_path: Path) -> None:
    """Words of somebody's exception may hold a key: neither answers nor receipts repeat them, only their kind."""

    def leaks(model: Model) -> None:
        raise RuntimeError("401 for sk-canary-4711")

    models = usual(fails=leaks)
    for model in models[:2]:
        model.fails = None
    query = queries_of(1, 3)[0]
    with router_of(profile, 4000, state=tmp_path) as router, Answerer(router, pool_of(models)) as answerer:
        result = asyncio.run(answerer.classify(query))
        for model in models:
            model.fails = leaks
        with pytest.raises(oc.OccamError) as raised:
            asyncio.run(answerer.classify(query))
        assert router.receipts is not None
        kept = [str(result.facts()), str(raised.value), *map(str, router.receipts.search())]
        assert any("RuntimeError" in text for text in kept)
    kept += [file.read_bytes().decode("latin-1") for file in tmp_path.iterdir() if file.is_file()]
    assert not [text for text in kept if "canary" in text]


def test_receipts_know_what_came_of_it(profile: oc.Profile, tmp_path: Path) -> None:
    """Answers, calls and costs are in the receipt, so that a true label is enough as feedback."""
    models, queries = usual(large={"fails": gone, "concurrency": 4}), queries_of(8, 24)
    with router_of(profile, 4000, state=tmp_path) as router, Answerer(router, pool_of(models)) as answerer:
        for query, label in zip(queries, labels_of(queries), strict=True):
            result = asyncio.run(answerer.classify(query, client="somebody"))
            assert router.feedback(result.decision.id, label=label) == float(result.label == label)
            assert router.receipts is not None
            facts = router.receipts.get(result.decision.id)
            assert facts is not None
            assert facts["classifier"] == facts["outcome"]["classifier"] == result.classifier
            assert facts["outcome"]["cost"] == str(result.cost)
            assert [call["outcome"] for call in facts["outcome"]["calls"]] == [call.outcome for call in result.calls]
            assert facts["client"] == "somebody"
            assert router.receipts.replay(result.decision.id)


LABELS = ("cat", "dog", "eel")
PRICES = {"mini": (0.15, 0.6), "medium": (1.5, 6), "large": (7.5, 30)}
FAULTS = ("_429", "_500", "reset", "hang", "garbage", "cut", "nousage")


def texts(rows: int, seed: int) -> list[str]:
    draw = random.Random(seed)  # noqa: S311  # texts, no secrets
    return [f"note {seed}-{row} about #{draw.choice(LABELS)} " + "word " * draw.randint(1, 30) for row in range(rows)]


def chat_pool(server: BillingServer, timeout: float) -> oc.Pool:
    options: dict[str, Any] = {"classes": LABELS, "base_url": f"{server.url}/v1", "timeout": timeout}
    return oc.Pool([ChatClassifier(name, oc.PerToken(*PRICES[name]), model=name, **options) for name in PRICES], LABELS)


@pytest.fixture(scope="module")
def server() -> Iterator[BillingServer]:
    with billing_server("--hang", "30", "--delay", "0.002") as started:
        yield started


@pytest.fixture(scope="module")
def chat_profile(server: BillingServer) -> oc.Profile:
    queries = texts(200, 1)
    truth = [str(re.findall(r"#(\w+)", query)[0]) for query in queries]
    server.meet()
    return oc.profile(chat_pool(server, 10), queries, truth, extractor="mini")


def watched(server: BillingServer, ledger: Ledger, work: Callable[[], list[Result]]) -> list[Result]:
    """Do something, and look at the server's bill and the ledger again and again meanwhile."""
    over, looks = threading.Event(), []

    def look() -> None:
        while not over.is_set():
            billed = server.bill()["spent"]
            balance = ledger.balance()
            looks.append(billed <= balance.spent + balance.held <= balance.cap)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        return work()
    finally:
        over.set()
        watcher.join()
        assert looks
        assert all(looks)


@pytest.mark.parametrize(("share", "faults"), [(0.5, 0.0), (8.0, 0.1), (8.0, 0.3), (0.06, 0.3)])
def test_the_servers_bill_never_passes_the_ledger(
    server: BillingServer, chat_profile: oc.Profile, share: float, faults: float
) -> None:
    """At every moment: its bill ≤ what is spent or held in the ledger ≤ the cap; every query an answer or a reason."""
    queries = texts(120, 2)
    server.meet(**dict.fromkeys(FAULTS, faults / len(FAULTS)))
    cap = Fraction(str(share)) * Fraction(str(chat_profile.mean_costs.max())) * len(queries)
    router = Router(chat_profile, budget=cap, arrivals=len(queries), extractor="mini")
    # Long enough that a busy machine is not taken for a server that hangs.
    with router, Answerer(router, chat_pool(server, 1.5 if faults else 10)) as answerer:
        results = watched(server, router.ledger, lambda: served(answerer, queries))
        good = answered(results)
        spent = check_books(router.ledger)
    billed = server.bill()["spent"]
    assert billed <= spent <= cap
    if not faults:
        assert billed == spent == sum(one.cost for one in good)
        assert len(good) == len(queries), [one for one in results if one not in good]
    if share > 1:
        assert len(good) > 0.95 * len(queries), [one for one in results if one not in good]
        right = np.mean(
            [
                isinstance(one, Answered) and f"#{one.label} " in query
                for one, query in zip(results, queries, strict=True)
            ]
        )
        assert right > 0.75
