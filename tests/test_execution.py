"""Buying answers: the budget is hard whatever fails, nothing is paid twice, and facts that differ are planned with."""

from __future__ import annotations

import resource
import signal
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import occamroute as oc
from occamroute.calls.answer_store import SourceAnswers
from occamroute.calls.sources import Outcome
from occamroute.execution.forecasting import forecast

CLASSES = ("a", "b", "c")


class Model:
    """A classifier that knows the truth of a query (its second column) if that is easy enough for it."""

    def __init__(self, name: str, cost: Any, skill: float, *, fails: Any = None) -> None:
        self.name, self.cost, self.skill, self.fails = name, cost, skill, fails
        self.calls = 0
        self.seen: Counter[int] = Counter()
        self.batch_size = 32

    def predict_proba(self, queries: Any) -> Any:
        self.calls += len(queries)
        self.seen.update(queries[:, 0].astype(int).tolist())
        if self.fails is not None:
            self.fails(self, queries)
        truth, difficulty = queries[:, 1].astype(int), queries[:, 2]
        wrong = difficulty > self.skill
        table = np.full((len(queries), 3), 0.1)
        sure = 0.5 + 0.4 * np.abs(difficulty - self.skill)
        table[np.arange(len(queries)), np.where(wrong, (truth + 1) % 3, truth)] = sure
        return table / table.sum(axis=1, keepdims=True)


def queries_of(rows: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.asarray(np.column_stack([np.arange(rows), random.integers(0, 3, rows), random.random(rows)]))


def labels_of(queries: np.ndarray) -> np.ndarray:
    return np.asarray(np.array(CLASSES)[queries[:, 1].astype(int)])


def pool_of(*models: Any) -> oc.Pool:
    return oc.Pool(models, CLASSES)


def usual(**fails: Any) -> tuple[Model, ...]:
    return (
        Model("small", 0.1, 0.6, fails=fails.get("small")),
        Model("middle", 0.3, 0.8, fails=fails.get("middle")),
        Model("large", 1, 0.95, fails=fails.get("large")),
    )


@pytest.fixture(scope="module")
def profile() -> oc.Profile:
    queries = queries_of(400, 1)
    return oc.profile(pool_of(*usual()), queries, labels_of(queries), extractor="small")


def bill(models: tuple[Model, ...]) -> Fraction:
    return sum((model.calls * Fraction(str(model.cost)) for model in models), Fraction(0))


@pytest.mark.parametrize("share", [0.1, 0.13, 0.35, 0.7, 1.1])
def test_calls_times_cost_is_what_was_spent(profile: oc.Profile, share: float) -> None:
    """The classifiers' own count of calls, times their cost, is the run's bill to the last digit."""
    models, queries = usual(), queries_of(300, 2)
    budget = Fraction(str(share)) * 300
    run = oc.classify(pool_of(*models), profile, queries, budget=budget)
    assert bill(models) == run.exact_spent <= budget
    assert run.lost == 0
    assert not run.failures
    assert (run.answers != "").all()
    assert abs(float(np.mean(run.answers == labels_of(queries))) - run.expected_accuracy) < 0.08
    for model in models:
        assert max(model.seen.values(), default=1) == 1  # no query was bought twice from anybody
    assert run.plan is not None
    assert run.spent == run.plan.planned_cost


def test_classify_does_what_the_plan_says(profile: oc.Profile) -> None:
    """The choice is that of oc.plan for the same features and budget, and execute buys the same again."""
    models, queries = usual(), queries_of(300, 3)
    run = oc.classify(pool_of(*models), profile, queries, budget=100)
    features = models[0].predict_proba(queries).astype(np.float32)
    plan = oc.plan(profile, features, budget=100)
    assert run.plan is not None
    np.testing.assert_array_equal(run.plan.choice, plan.choice)
    np.testing.assert_array_equal(run.choice, plan.choice)
    again = oc.execute(plan, pool_of(*usual()), queries)
    np.testing.assert_array_equal(again.answers, run.answers)
    assert again.exact_spent == run.exact_spent
    fresh = usual()
    paid = oc.execute(plan, pool_of(*fresh), queries, features=features)
    np.testing.assert_array_equal(paid.answers, run.answers)
    assert fresh[0].calls == 0  # its answers are the features, which were paid already
    assert paid.exact_spent == bill(fresh) == run.exact_spent - 30


def test_features_from_elsewhere(profile: oc.Profile) -> None:
    """A plan whose features are of nobody in the pool is executed: they were free, or are given and paid already."""
    queries = queries_of(100, 3)
    features = usual()[0].predict_proba(queries)
    names: dict[str, Any] = {"names": profile.names, "costs": profile.costs, "success": profile.success}
    free = oc.Profile(**names, features=profile.feature_sets["small"])
    paid = oc.Profile(**names, features={"x": profile.feature_sets["small"]}, extractor_cost={"x": 0.05})
    for known, table in ((free, None), (free, features), (paid, features)):
        models = usual()
        plan = oc.plan(known, features, budget=40)
        run = oc.execute(plan, pool_of(*models), queries, features=table)
        assert bill(models) == run.exact_spent
        np.testing.assert_array_equal(run.choice, plan.choice)
    assert plan.made_from["extractor"] == "x"
    assert run.exact_spent + 5 <= 40
    with pytest.raises(oc.InvalidInputError, match="features of 'x', which is not in the pool"):
        oc.execute(plan, pool_of(*usual()), queries)
    with pytest.raises(oc.InvalidInputError, match="features must hold those of 'small'"):
        oc.execute(oc.plan(profile, features, budget=40), pool_of(*usual()), queries, features={"x": features})


def flaky(share: float, seed: int) -> Any:
    random = np.random.default_rng(seed)

    def fails(model: Model, queries: np.ndarray) -> None:
        if random.random() < share:
            raise RuntimeError("out of luck")

    return fails


def test_rows_without_an_answer_hold_nothing_by_chance() -> None:
    """What memory held before is not taken for features, which numbers as large as any could be among."""
    stock = SourceAnswers(8)
    for _ in range(8):  # what numpy frees last it gives out first
        np.full((8, 3), 1e300)
    stock.put(Outcome("small", np.arange(2), Fraction(0), np.zeros(2), probabilities=np.full((2, 3), 1 / 3)))
    assert stock.extracted.sum() == pytest.approx(2)


@settings(max_examples=12, deadline=None)
@given(
    share=st.sampled_from([0.1, 0.11, 0.2, 0.5, 1.2]),
    small=st.sampled_from([0.0, 0.1, 0.5]),
    middle=st.sampled_from([0.0, 0.3, 1.0]),
    large=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 9),
)
def test_the_budget_is_hard_whatever_fails(
    profile: oc.Profile, share: float, small: float, middle: float, large: float, seed: int
) -> None:
    """Calls that raise are paid too: the classifiers' count never passes the budget, and nothing goes unexplained."""
    models = usual(small=flaky(small, seed), middle=flaky(middle, seed + 1), large=flaky(large, seed + 2))
    queries = queries_of(120, 4)
    budget = Fraction(str(share)) * 120
    run = oc.classify(pool_of(*models), profile, queries, budget=budget)
    assert bill(models) == run.exact_spent <= budget
    for row in range(120):
        assert (run.answers[row] != "") == (run.choice[row] >= 0) == (row not in run.failures)
        assert run.reason[row]


def test_a_query_that_spoils_its_batch_fails_alone(profile: oc.Profile) -> None:
    """One query on which a classifier raises is answered by another one; its neighbours are called again."""

    def fails(model: Model, queries: np.ndarray) -> None:
        if (queries[:, 0] == 17).any():
            raise ValueError("cannot read number 17")

    models, queries = usual(large=fails, middle=fails), queries_of(200, 5)
    run = oc.classify(pool_of(*models), profile, queries, budget=400)
    assert not run.failures
    assert run.names[run.choice[17]] == "small"
    assert run.reason[17].startswith("planned again")
    assert bill(models) == run.exact_spent <= 400
    assert run.lost > 0


def test_a_classifier_that_is_down_is_left_out(profile: oc.Profile) -> None:
    """One that raises on everything is given up after a few calls, and others answer within what is left."""

    def fails(model: Model, queries: np.ndarray) -> None:
        raise OSError("gone")

    models, queries = usual(large=fails), queries_of(300, 6)
    run = oc.classify(pool_of(*models), profile, queries, budget=150)
    assert not run.failures
    assert run.usage["large"] == 0
    assert models[2].calls < 150
    assert bill(models) == run.exact_spent <= 150


def test_wrong_answers_are_not_taken(profile: oc.Profile) -> None:
    """A classifier with too few columns is given up; one that gives NaN for a query fails on it alone."""

    class Narrow(Model):
        def predict_proba(self, queries: Any) -> Any:
            return super().predict_proba(queries)[:, :2]

    class Broken(Model):
        def predict_proba(self, queries: Any) -> Any:
            table = super().predict_proba(queries)
            table[queries[:, 0] == 5] = np.nan
            return table

    queries = queries_of(100, 7)
    models = (Broken("small", 0.1, 0.6), Model("middle", 0.3, 0.8), Narrow("large", 1, 0.95))
    run = oc.classify(pool_of(*models), profile, queries, budget=110)
    assert not run.failures
    assert run.usage["large"] == 0
    assert run.names[run.choice[5]] == "middle"
    assert bill(models) == run.exact_spent


class Remote(Model):
    """One that counts every query it was asked for, and then gives or raises what it was told to."""

    def __init__(self, gives: Any, cost: Any = 1) -> None:
        super().__init__("large", cost, 0.95)
        self.gives, self.concurrency, self.batch_size = gives, 4, 8

    def answer(self, queries: Any, timeout: float | None = None) -> Any:
        table = self.predict_proba(queries)
        return self.gives(table)


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot say what is wrong")


def raising(error: BaseException) -> Any:
    def gives(table: Any) -> Any:
        raise error

    return gives


@pytest.mark.parametrize(
    "gives",
    [
        lambda table: oc.Answers(table[:, :2], [1] * len(table)),
        lambda table: oc.Answers(table, [1] * 99),
        lambda table: oc.Answers(table, [float("nan")] * len(table)),
        lambda table: oc.Answers(table, [1] * len(table), {99: "no such row"}),
        lambda table: oc.Answers(table, [1] * len(table), ["not by row"]),  # type: ignore[arg-type]
        lambda table: None,
        raising(oc.CallError("no word of money")),
        raising(oc.CallLostError()),
        raising(oc.CallLostError("later", "soon")),
        raising(SpeechlessError()),
        raising(SystemExit(3)),
    ],
)
def test_what_was_asked_is_paid_whatever_came_back(profile: oc.Profile, gives: Any) -> None:
    """Nothing that a remote classifier returns or raises hangs the run, or makes calls that were billed free."""
    models = (*usual()[:2], Remote(gives))
    run = oc.classify(pool_of(*models), profile, queries_of(100, 7), budget=90)
    assert not run.failures
    assert models[2].calls > 0
    assert bill(models) == run.exact_spent <= 90


def test_a_price_by_the_token_needs_worst_cases(profile: oc.Profile) -> None:
    """Where nobody says what a call can cost at most, no budget can be kept; wrong worst cases are refused too."""

    class Stating(Remote):
        def max_cost(self, queries: Any) -> Any:
            return [5.0] if len(queries) > 1 else 5.0

    price = oc.PerToken(1, 1)
    for model, sentence in ((Remote(None, price), "needs max_cost"), (Stating(None, price), "must give 60 amounts")):
        with pytest.raises(oc.InvalidInputError, match=sentence):
            oc.classify(pool_of(*usual()[:2], model), profile, queries_of(60, 7), budget=90)


def test_features_that_never_come(profile: oc.Profile) -> None:
    """Where the extractor fails on every query the others still answer, within what is left."""
    models, queries = usual(small=flaky(1.0, 0)), queries_of(100, 7)
    run = oc.classify(pool_of(*models), profile, queries, budget=60)
    assert models[0].calls > 0
    assert not run.failures
    assert bill(models) == run.exact_spent <= 60


class Tokens(Model):
    """One whose cost depends on the query: known afterwards, and at most five times as much as usual."""

    def __init__(self, name: str, cost: Any, skill: float, *, dearer: float = 1.0) -> None:
        super().__init__(name, cost, skill)
        self.dearer, self.charged, self.lock = dearer, Fraction(0), threading.Lock()
        self.concurrency, self.batch_size, self.open, self.most_open = 4, 1, 0, 0

    def real(self, queries: Any) -> list[float]:
        return [round(self.cost * (0.5 + row % 11 / 10) * self.dearer, 6) for row in queries[:, 0]]

    def max_cost(self, queries: Any) -> list[float]:
        return [round(self.cost * (0.5 + row % 11 / 10) * 5, 6) for row in queries[:, 0]]

    def answer(self, queries: Any, timeout: float | None = None) -> oc.Answers:
        with self.lock:
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            self.charged += sum(map(Fraction, map(str, self.real(queries))))
        time.sleep(0.001)
        with self.lock:
            self.open -= 1
            return oc.Answers(self.predict_proba(queries), self.real(queries))


@pytest.mark.parametrize("dearer", [1.0, 0.4, 3.0])
def test_costs_that_turn_out_different_are_planned_with(dearer: float) -> None:
    """Answers cheaper than thought buy better ones; dearer ones are still within the budget, and all are answered."""
    queries, fresh = queries_of(400, 8), queries_of(300, 9)
    before = (Model("small", 0.1, 0.6), Tokens("large", 1.0, 0.95))
    profile = oc.profile(pool_of(*before), queries, labels_of(queries), extractor="small")
    assert profile.costs.ndim == 2
    models = (Model("small", 0.1, 0.6), Tokens("large", 1.0, 0.95, dearer=dearer))
    run = oc.classify(pool_of(*models), profile, fresh, budget=130)
    assert not run.failures
    assert run.exact_spent == models[0].calls * Fraction(1, 10) + models[1].charged <= 130
    assert run.spent > 0.9 * 130 or run.usage["small"] < 60
    assert models[1].most_open > 1  # side by side
    if dearer < 1:
        assert run.plan is not None
        assert run.usage["large"] > 1.3 * run.plan.usage["large"]


def test_just_enough_money_is_used() -> None:
    """Where the budget is what answers are expected to cost, not a bit more, nearly all of them are bought with it."""
    queries, fresh = queries_of(200, 8), queries_of(100, 9)
    profile = oc.profile(pool_of(Tokens("only", 1.0, 0.95)), queries, labels_of(queries))
    model = Tokens("only", 1.0, 0.95)
    budget = round(float(profile.mean_costs[0]) * 100, 6) + 0.001
    run = oc.classify(pool_of(model), profile, fresh, budget=budget)
    assert run.exact_spent == model.charged <= Fraction(str(budget))
    assert len(run.failures) < 8  # each of the last calls might have cost more than was left


@pytest.mark.parametrize("dearer", [1.0, 2.0])
def test_the_same_run_gives_the_same_answers(dearer: float) -> None:
    """Whichever call ends first, decisions are the same, also where they must be made anew."""
    queries, fresh = queries_of(300, 8), queries_of(300, 9)
    profile = oc.profile(
        pool_of(Model("small", 0.1, 0.6), Tokens("large", 1.0, 0.95)), queries, labels_of(queries), extractor="small"
    )
    runs = [
        oc.classify(
            pool_of(Model("small", 0.1, 0.6), Tokens("large", 1.0, 0.95, dearer=dearer)), profile, fresh, budget=150
        )
        for _ in range(3)
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(runs[0].choice, run.choice)
        assert runs[0].exact_spent == run.exact_spent


def test_a_broken_service_costs_little(profile: oc.Profile) -> None:
    """One that loses every call, and charges for it perhaps, is given up after a few tries."""

    class Lost(Model):
        concurrency = 8
        batch_size = 1

        def predict_proba(self, queries: Any) -> Any:
            self.calls += len(queries)
            raise oc.CallLostError("no answer came", 0.0)

    small, middle, _ = usual()
    broken = Lost("large", 1, 0.95)
    broken.batch_size = 1
    run = oc.classify(pool_of(small, middle, broken), profile, queries_of(200, 6), budget=150)
    assert not run.failures
    assert broken.calls <= 6
    assert run.lost == pytest.approx(broken.calls)


def test_only_coroutines() -> None:
    """A classifier that offers nothing but the async twin is asked too."""

    class Async:
        name, cost, concurrency, batch_size = "async", 0.5, 3, 4

        async def aanswer(self, queries: Any, timeout: float | None = None) -> oc.Answers:
            return oc.Answers(Model("x", 1, 0.9).predict_proba(queries), [0.5] * len(queries))

    queries = queries_of(60, 1)
    pool = pool_of(Model("small", 0.1, 0.6), Async())
    profile = oc.profile(pool, queries, labels_of(queries))
    run = oc.classify(pool, profile, queries, budget=30)
    assert not run.failures
    assert run.exact_spent <= 30


def test_time_is_paid_as_measured() -> None:
    """Where a call costs what its seconds cost, the seconds spent stay within the budget, loading not counted."""

    class Slow(Model):
        def __init__(self, name: str, skill: float, seconds: float) -> None:
            super().__init__(name, oc.Measured(), skill)
            self.seconds, self.loaded = seconds, False

        def predict_proba(self, queries: Any) -> Any:
            if not self.loaded:
                self.loaded = True
                time.sleep(0.5)
            time.sleep(self.seconds * len(queries))
            return super().predict_proba(queries)

    queries, fresh = queries_of(200, 8), queries_of(200, 9)
    profile = oc.profile(pool_of(Slow("quick", 0.6, 1e-4), Slow("slow", 0.95, 1e-3)), queries, labels_of(queries))
    how = profile.made_from["costs"]["slow"]
    assert how["kind"] == "measured"
    assert how["batch_size"] == 32
    assert 1e-3 <= how["median_seconds"] < 2e-3
    run = oc.classify(pool_of(Slow("quick", 0.6, 1e-4), Slow("slow", 0.95, 1e-3)), profile, fresh, budget=0.15)
    assert run.spent <= 0.15
    assert not run.failures
    assert run.spent > 0.08


def test_a_ledger_caps_several_runs(profile: oc.Profile) -> None:
    """Two runs under one ledger never spend more than its cap together; the second gets what is left."""
    ledger = oc.open_ledger("memory:", cap=150)
    queries = queries_of(300, 10)
    first = usual()
    oc.classify(pool_of(*first), profile, queries, budget=100, ledger=ledger)
    second = usual()
    run = oc.classify(pool_of(*second), profile, queries, budget=100, ledger=ledger)
    assert bill(first) + bill(second) <= 150
    balance = ledger.balance()
    assert Fraction(balance.spent) == bill(first) + bill(second)
    assert balance.held == 0
    assert len(run.failures) < 300


def test_a_journal_is_gone_on_with(profile: oc.Profile, tmp_path: Path) -> None:
    """A run that died goes on: answers that came are not bought again, and the result is the same."""

    class Death(BaseException):
        pass

    queries = queries_of(300, 11)
    whole = oc.classify(pool_of(*usual()), profile, queries, budget=900)
    for moment in (1, 2, 4, 7):
        journal = tmp_path / f"{moment}.journal"
        count = 0

        def progress(stage: str, done: int, total: int, moment: int = moment) -> None:
            nonlocal count
            count += stage == "buying"
            if count > moment:
                raise Death

        models = usual()
        with pytest.raises(Death):
            oc.classify(pool_of(*models), profile, queries, budget=900, journal=journal, progress=progress)
        run = oc.classify(pool_of(*models), profile, queries, budget=900, journal=journal)
        np.testing.assert_array_equal(run.answers, whole.answers)
        np.testing.assert_array_equal(run.reason, whole.reason)
        np.testing.assert_array_equal(run.cost, whole.cost)
        assert bill(models) <= run.exact_spent <= 900
        third = usual()
        done = oc.classify(pool_of(*third), profile, queries, budget=900, journal=journal)
        assert sum(model.calls for model in third) == 0
        assert done.exact_spent == run.exact_spent


@pytest.mark.parametrize("dearer", [0.4, 2.0])
def test_a_run_that_planned_again_goes_on_as_it_would_have(tmp_path: Path, dearer: float) -> None:
    """Costs differ from what was planned: wherever the run stops, it then buys the same and wastes nothing."""
    queries, fresh = queries_of(300, 8), queries_of(300, 9)
    before = (Model("small", 0.1, 0.6), Tokens("large", 1.0, 0.95))
    profile = oc.profile(pool_of(*before), queries, labels_of(queries), extractor="small")
    plan = oc.plan(profile, profile.feature_sets["small"][:300], budget=150)

    def models() -> tuple[Model, ...]:
        return Model("small", 0.1, 0.6), Tokens("large", 1.0, 0.95, dearer=dearer)

    whole = oc.execute(plan, pool_of(*models()), fresh)
    assert (whole.choice != plan.choice).sum() > 20
    for share in (0.1, 0.4, 0.7, 0.9, 0.98):
        both, journal = models(), tmp_path / f"{share}.journal"

        def progress(stage: str, done: int, total: int, large: Model = both[1], share: float = share) -> None:
            if large.calls > share * whole.usage["large"]:
                raise RuntimeError("stopped")

        with pytest.raises(RuntimeError, match="stopped"):
            oc.execute(plan, pool_of(*both), fresh, journal=journal, progress=progress)
        run = oc.execute(plan, pool_of(*both), fresh, journal=journal)
        np.testing.assert_array_equal(run.choice, whole.choice)
        assert run.exact_spent == whole.exact_spent
        assert max(both[1].seen.values()) == 1


def test_answers_under_way_are_kept_when_a_run_stops(tmp_path: Path) -> None:
    """Whatever stops a run, answers that came, or were under way, are in the journal: none is bought again."""
    queries = queries_of(200, 8)
    profile = oc.profile(
        pool_of(Model("small", 0.1, 0.6), Tokens("large", 1.0, 0.95)), queries, labels_of(queries), extractor="small"
    )
    for moment in (3, 40, 90):
        models = (Model("small", 0.1, 0.6), Tokens("large", 1.0, 0.95))
        count = 0

        def progress(stage: str, done: int, total: int, moment: int = moment) -> None:
            nonlocal count
            count += stage == "buying"
            if count > moment:
                raise RuntimeError("stopped")

        journal = tmp_path / f"{moment}.journal"
        with pytest.raises(RuntimeError, match="stopped"):
            oc.classify(pool_of(*models), profile, queries, budget=150, journal=journal, progress=progress)
        run = oc.classify(pool_of(*models), profile, queries, budget=150, journal=journal)
        assert run.exact_spent == models[0].calls * Fraction(1, 10) + models[1].charged
        for model in models:
            assert max(model.seen.values()) == 1


def test_interrupts_cost_nothing(tmp_path: Path) -> None:
    """However often Ctrl-C comes, and be it at the very moment of an answer: none is bought twice, no money is lost."""

    class Interrupting(Tokens):
        until = 0
        done = False

        def answer(self, queries: Any, timeout: float | None = None) -> oc.Answers:
            answers = super().answer(queries, timeout)
            with self.lock:
                due = self.calls >= self.until and not self.done
                self.done = self.done or due
            if due:
                signal.raise_signal(signal.SIGINT)
            return answers

    queries = queries_of(100, 8)
    models = (Model("small", 0.1, 0.6), Interrupting("large", 1.0, 0.95))
    profile = oc.profile(pool_of(*usual()[:1], Tokens("large", 1.0, 0.95)), queries, labels_of(queries))
    for until in range(3, 100, 6):
        models[1].until, models[1].done = until, False
        with pytest.raises(KeyboardInterrupt):
            oc.classify(pool_of(*models), profile, queries, budget=130, journal=tmp_path / "run.journal")
    models[1].done = True
    run = oc.classify(pool_of(*models), profile, queries, budget=130, journal=tmp_path / "run.journal")
    assert run.exact_spent == models[0].calls * Fraction(1, 10) + models[1].charged
    assert max(models[1].seen.values()) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_damaged_journal_is_refused(profile: oc.Profile, tmp_path: Path) -> None:
    """What cannot be read gives one sentence, and nothing is bought."""
    queries = queries_of(60, 12)
    for damage in (
        "queries = x'00'",
        "charged = 'much'",
        "failures = '{'",
        "failures = x'ff'",
        "probabilities = x'00'",
    ):
        journal = tmp_path / f"{abs(hash(damage))}.journal"
        oc.classify(pool_of(*usual()), profile, queries, budget=30, journal=journal)
        with closing(sqlite3.connect(journal)) as base, base:
            base.execute(f"UPDATE outcomes SET {damage}")  # noqa: S608
        models = usual()
        with pytest.raises(oc.JournalError, match="damaged"):
            oc.classify(pool_of(*models), profile, queries, budget=30, journal=journal)
        assert bill(models) == 0


def test_a_full_disk_stops_a_run(profile: oc.Profile, tmp_path: Path) -> None:
    """A journal that cannot be written gives one sentence, and the run goes on once there is room."""
    queries, models = queries_of(300, 11), usual()
    journal = tmp_path / "run.journal"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limit[1]))
        with pytest.raises(oc.JournalError, match="cannot go on with the journal"):
            oc.classify(pool_of(*models), profile, queries, budget=200, journal=journal)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert 0 < bill(models) < 200
    run = oc.classify(pool_of(*models), profile, queries, budget=200, journal=journal)
    assert not run.failures
    assert bill(models) <= run.exact_spent <= 200


def test_another_run_is_refused(profile: oc.Profile, tmp_path: Path) -> None:
    """Another budget, profile, price, query order or seed is refused, not mixed in."""
    journal, queries = tmp_path / "run.journal", queries_of(60, 12)
    oc.classify(pool_of(*usual()), profile, queries, budget=30, journal=journal)
    dearer = (Model("small", 0.2, 0.6), *usual()[1:])
    part = profile.take(np.arange(300))
    cases: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("budget", (pool_of(*usual()), profile, queries), {"budget": 31}),
        ("profile", (pool_of(*usual()), part, queries), {"budget": 30}),
        ("price list", (pool_of(*dearer), profile, queries), {"budget": 30}),
        ("queries", (pool_of(*usual()), profile, queries[::-1].copy()), {"budget": 30}),
        ("seed", (pool_of(*usual()), profile, queries), {"budget": 30, "seed": 1}),
    ]
    for what, arguments, options in cases:
        with pytest.raises(oc.JournalError, match=f"another {what}"):
            oc.classify(*arguments, **options, journal=journal)
    (tmp_path / "text.journal").write_text("hello " * 1000)
    with pytest.raises(oc.JournalError, match="no journal"):
        oc.classify(pool_of(*usual()), profile, queries, budget=30, journal=tmp_path / "text.journal")


def test_forecast_buys_nothing(profile: oc.Profile) -> None:
    """The forecast has the bill and the usage to expect, and no classifier is called."""
    models, queries = usual(), queries_of(300, 13)
    expected = forecast(pool_of(*models), profile, queries, budget=100)
    assert sum(model.calls for model in models) == 0
    assert expected.extractor == "small"
    assert expected.extraction_cost == 30
    run = oc.classify(pool_of(*models), profile, queries, budget=100)
    for name, count in run.usage.items():
        assert abs(count - expected.plan.usage[name]) < 45
    assert abs(expected.plan.expected_accuracy - run.expected_accuracy) < 0.05


def test_forecast_where_nothing_can_be_set_aside() -> None:
    """Where the budget just about does, the forecast says so too, of the budget as it was given."""
    queries = queries_of(200, 8)
    pool = pool_of(Tokens("only", 1.0, 0.95))
    profile = oc.profile(pool, queries, labels_of(queries))
    expected = forecast(pool, profile, queries[:100], budget=101)
    assert expected.set_aside == 0
    assert expected.plan.planned_cost <= expected.summary()["budget"] == 101
    with pytest.raises(oc.BudgetTooSmallError, match=r"a budget of 50\.0 is too small"):
        forecast(pool, profile, queries[:100], budget=50)


def test_bad_input(profile: oc.Profile) -> None:
    """One sentence each."""
    queries = queries_of(50, 14)
    stranger = Model("stranger", 1, 0.5)
    pool = pool_of(*usual())

    def classify(pool: Any = pool, queries: Any = queries, budget: Any = 50, **options: Any) -> Any:
        return lambda: oc.classify(pool, profile, queries, budget=budget, **options)

    def profiled(labels: list[str], **options: Any) -> Any:
        return lambda: oc.profile(pool, queries, labels, **options)

    cases: list[tuple[Any, str]] = [
        (classify(pool_of(*usual(), stranger)), "'stranger' of the pool is not in"),
        (classify(oc.Pool(usual(), ("a", "b", "x"))), "classes are not the profile's"),
        (classify(budget=1), "budget of 1.0 is too small"),
        (classify(queries=[]), "must not be empty"),
        (classify(queries="text"), "got a single string"),
        (classify(ids=["x"] * 50), "ids must differ"),
        (profiled(["a"] * 49 + ["z"]), "label 'z' of query 49 is none of the 3 classes"),
        (profiled(["a"]), "one for each of the 50 queries"),
        (profiled(["a"] * 50, extractor="x"), "unknown extractor 'x'"),
        (lambda: oc.Pool([], CLASSES), "at least one classifier"),
        (lambda: oc.Pool([Model("x", -1, 1)], CLASSES), "cost of classifier 'x'"),
        (lambda: oc.Pool([Model("x", 1, 1), Model("x", 1, 1)], CLASSES), "'x' twice"),
        (lambda: oc.Pool([object()], CLASSES), "needs a name"),
    ]
    for call, sentence in cases:
        with pytest.raises(oc.OccamError, match=sentence) as caught:
            call()
        assert str(caught.value).count("\n") == 0


def test_runs_are_kept(profile: oc.Profile, tmp_path: Path) -> None:
    """A saved run comes back as it was."""
    run = oc.classify(pool_of(*usual()), profile, queries_of(50, 15), budget=20)
    oc.save(run, tmp_path / "run.parquet")
    again = oc.load(tmp_path / "run.parquet")
    assert again.exact_spent == run.exact_spent
    assert again.summary() == run.summary()
    np.testing.assert_array_equal(again.probabilities, run.probabilities)


@pytest.mark.alone
def test_little_is_added_to_the_calls_themselves(profile: oc.Profile, tmp_path: Path) -> None:
    """Buying takes hardly longer than the same batches called in a loop, journal and all."""

    class Busy(Model):
        def predict_proba(self, queries: Any) -> Any:
            end = time.perf_counter() + 1e-3 * len(queries)
            while time.perf_counter() < end:
                pass
            return super().predict_proba(queries)

    models = tuple(Busy(model.name, model.cost, model.skill) for model in usual())
    queries = queries_of(1500, 16)
    plan = oc.plan(profile, usual()[0].predict_proba(queries), budget=600)
    ratios = []
    for number in range(6):  # the best of several: other work on the machine only ever adds
        begun = time.perf_counter()
        oc.execute(plan, pool_of(*models), queries, journal=tmp_path / f"{number}.journal")
        bought = time.perf_counter() - begun
        begun = time.perf_counter()
        for start in range(0, 1500, 32):
            models[0].predict_proba(queries[start : start + 32])
        for column in (1, 2):
            rows = np.flatnonzero(plan.choice == column)
            for start in range(0, rows.size, 32):
                models[column].predict_proba(queries[rows[start : start + 32]])
        ratios.append(bought / (time.perf_counter() - begun))
        if ratios[-1] < 1.05:
            return
    pytest.fail(f"buying took {ratios} times as long as the calls alone")
