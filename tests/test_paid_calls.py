"""Paid calls: no answer that was paid for is lost or bought again, and no call is made that is not accounted for."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import billing_server

import occamroute as oc
from occamroute._loops import BackgroundLoop
from occamroute.adapters.openai import ChatClassifier
from occamroute.calls import buyer
from occamroute.calls.batch_budget import BatchBudget
from occamroute.calls.journal import Journal
from occamroute.routing.answering import Answerer

CLASSES = ("a", "b", "c")


class Model:
    """A local classifier that counts the queries it was asked for; the second column of a query is its true class."""

    def __init__(self, name: str, cost: Any, batch_size: int = 8) -> None:
        self.name, self.cost, self.batch_size = name, cost, batch_size
        self.seen: Counter[int] = Counter()
        self.calls = 0

    def predict_proba(self, queries: Any) -> Any:
        self.calls += 1
        self.seen.update(queries[:, 0].astype(int).tolist())
        return 0.05 + 0.85 * np.eye(3)[queries[:, 1].astype(int)]


class Service(Model):
    """The same behind a network: called side by side."""

    concurrency = 2

    def __init__(self, name: str, cost: Any, batch_size: int = 8) -> None:
        super().__init__(name, cost, batch_size)
        self.lock = threading.Lock()

    def answer(self, queries: Any, timeout: float | None = None) -> Any:
        with self.lock:
            return self.predict_proba(queries)


def queries_of(rows: int, seed: int = 0) -> np.ndarray:
    return np.column_stack([np.arange(rows), np.random.default_rng(seed).integers(0, 3, rows)]).astype(float)


def bill(models: tuple[Model, ...]) -> Fraction:
    return sum((sum(model.seen.values()) * Fraction(str(model.cost)) for model in models), Fraction(0))


def profile_of(*models: Any) -> oc.Profile:
    """A profile of two classifiers, the second one better and more expensive."""
    random = np.random.default_rng(0)
    success = (random.random((60, 2)) < (0.6, 0.9)).astype(float)
    costs = [1.0 if isinstance(model.cost, oc.Measured) else model.cost for model in models]
    return oc.Profile(
        names=[model.name for model in models], costs=costs, features=random.random((60, 2)), success=success
    )


# The ledger


class UnreliableLedger:
    """A ledger whose calls fail from the k-th on, or only the k-th, before or after they had their effect."""

    def __init__(self, ledger: Any, at: int, *, once: bool, done: bool) -> None:
        self.inner, self.at, self.once, self.done, self.calls = ledger, at, once, done, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            self.calls += 1
            broken = self.calls == self.at or (self.calls > self.at and not self.once)
            result = getattr(self.inner, name)(*given, **options) if self.done or not broken else None
            if broken:
                raise oc.LedgerError("far away", "the connection is lost")
            return result

        return call


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("once", [False, True], ids=["from then on", "once"])
def test_a_ledger_that_fails_loses_no_paid_answer(tmp_path: Path, once: bool, done: bool) -> None:
    """The ledger fails at each of its calls in turn; the resumed run buys nothing twice and settles what is owed."""
    queries = queries_of(160)
    plan = oc.plan(profile_of(Model("small", 0.1), Model("large", 1)), queries[:, :2] / 160, budget=100)
    whole = oc.execute(plan, oc.Pool([Model("small", 0.1), Service("large", 1)], CLASSES), queries)
    interrupted = 0
    for at in range(1, 100):
        models = (Model("small", 0.1), Service("large", 1))
        pool, journal = oc.Pool(models, CLASSES), tmp_path / f"{at}.journal"
        inner = oc.open_ledger("memory:", cap=120)
        ledger = UnreliableLedger(inner, at, once=once, done=done)
        try:
            oc.execute(plan, pool, queries, journal=journal, ledger=ledger)
        except oc.LedgerError:
            interrupted += 1
        run = oc.execute(plan, pool, queries, journal=journal, ledger=inner)
        np.testing.assert_array_equal(run.answers, whole.answers)
        assert all(max(model.seen.values(), default=1) == 1 for model in models), at
        assert Fraction(inner.balance().spent) == run.exact_spent == bill(models) <= 120, at
        assert inner.balance().held == 0, at
        if ledger.calls < at:
            break
    assert at > 10
    assert interrupted >= (3 if once else 10)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_ledger_that_fails_loses_no_paid_answer_of_a_block(tmp_path: Path, done: bool) -> None:
    """The same where answers are bought in blocks, whose holds have names that other processes know."""
    queries = queries_of(160)
    plan = oc.plan(profile_of(Model("small", 0.1), Model("large", 1)), queries[:, :2] / 160, budget=100)
    for at in range(1, 100):
        models = (Model("small", 0.1), Service("large", 1))
        pool, inner = oc.Pool(models, CLASSES), oc.open_ledger("memory:", cap=120)
        ledger = UnreliableLedger(inner, at, once=False, done=done)
        with suppress(oc.LedgerError):
            oc.execute(plan, pool, queries, out=tmp_path / f"{at}", ledger=ledger)
        run = oc.execute(plan, pool, queries, out=tmp_path / f"{at}", ledger=inner)
        assert run.answered == 160, at
        assert all(max(model.seen.values(), default=1) == 1 for model in models), at
        assert Fraction(inner.balance().spent) == run.exact_spent == bill(models) <= 120, at
        assert inner.balance().held == 0, at
        if ledger.calls < at:
            break
    assert at > 10


def test_a_settlement_that_fails_at_the_end_is_made_later(tmp_path: Path) -> None:
    """The last settlement fails: the error is raised, and the same command only settles; without a journal it warns."""
    queries = queries_of(8)
    plan = oc.plan(profile_of(Model("small", 0.1), Model("large", 1)), queries[:, :2] / 8, budget=8)
    for journal in (tmp_path / "one.journal", None):
        models = (Model("small", 0.1), Service("large", 1))
        inner = oc.open_ledger("memory:", cap=30)
        ledger = UnreliableLedger(inner, 2, once=False, done=False)
        if journal is None:
            run = oc.execute(plan, oc.Pool(models, CLASSES), queries, ledger=ledger)
            assert Fraction(inner.balance().held) == run.exact_spent == bill(models)
            continue
        with pytest.raises(oc.LedgerError, match="the connection is lost"):
            oc.execute(plan, oc.Pool(models, CLASSES), queries, journal=journal, ledger=ledger)
        run = oc.execute(plan, oc.Pool(models, CLASSES), queries, journal=journal, ledger=inner)
        assert Fraction(inner.balance().spent) == run.exact_spent == bill(models)
        assert models[1].calls == 1


@pytest.mark.parametrize("verb", ["profile", "classify"])
def test_a_ledger_that_fails_loses_no_paid_answer_of_other_verbs(tmp_path: Path, verb: str) -> None:
    """Profiling and classifying are interrupted by a ledger at each of its calls, and go on without buying twice."""
    queries = queries_of(96)
    labels = queries[:, 1].astype(int)
    known = oc.profile(oc.Pool([Model("small", 0.1), Model("large", 1)], CLASSES), queries, labels, extractor="small")

    def run(models: tuple[Model, ...], place: Path, ledger: Any) -> None:
        pool = oc.Pool(models, CLASSES)
        if verb == "profile":
            oc.profile(pool, queries, labels, extractor="small", journal=place, ledger=ledger)
        else:
            oc.classify(pool, known, queries, budget=60, journal=place, ledger=ledger)

    for at in range(1, 200):
        models, inner = (Model("small", 0.1), Service("large", 1)), oc.open_ledger("memory:", cap=120)
        ledger = UnreliableLedger(inner, at, once=at % 2 == 0, done=at % 3 == 0)
        with suppress(oc.LedgerError):
            run(models, tmp_path / f"{at}", ledger)
        run(models, tmp_path / f"{at}", inner)
        assert all(max(model.seen.values(), default=1) == 1 for model in models), at
        assert Fraction(inner.balance().spent) == bill(models) <= 120, at
        assert inner.balance().held == 0, at
        if ledger.calls < at:
            break
    assert at > 3


def test_a_journal_that_fails_loses_no_money(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up at each write in turn: what was paid is recorded, or counts at its worst case; never twice."""
    queries, write = queries_of(160), Journal.write
    plan = oc.plan(profile_of(Model("small", 0.1), Model("large", 1)), queries[:, :2] / 160, budget=100)
    for at in range(1, 100):
        models, inner = (Model("small", 0.1), Service("large", 1)), oc.open_ledger("memory:", cap=120)
        writes = 0

        def full(journal: Journal, *entries: Any, at: int = at) -> None:
            nonlocal writes
            writes += 1
            if writes == at:
                raise oc.JournalError("run.journal", "the disk is full")
            write(journal, *entries)

        monkeypatch.setattr(Journal, "write", full)
        with suppress(oc.JournalError):
            oc.execute(plan, oc.Pool(models, CLASSES), queries, journal=tmp_path / f"{at}", ledger=inner)
        monkeypatch.setattr(Journal, "write", write)
        run = oc.execute(plan, oc.Pool(models, CLASSES), queries, journal=tmp_path / f"{at}", ledger=inner)
        balance = inner.balance()
        assert bill(models) <= run.exact_spent <= 100, at
        assert bill(models) <= balance.spent + balance.held <= 120, at
        if writes < at:
            break
    assert at > 5


def test_an_error_with_words_that_cannot_be_encoded_is_written_down(tmp_path: Path) -> None:
    """A classifier names a file that is not UTF-8: its call is in the journal like any other, and the run goes on."""

    class Reader(Service):
        def answer(self, queries: Any, timeout: float | None = None) -> Any:
            if self.calls == 2:
                self.calls += 1
                raise OSError("cannot read plan\udce9.txt")
            return super().answer(queries, timeout)

    queries, journal = queries_of(80), tmp_path / "run.journal"
    plan = oc.plan(profile_of(Model("small", 0.1), Model("large", 1)), queries[:, :2] / 80, budget=90)
    run = oc.execute(plan, oc.Pool([Model("small", 0.1), Reader("large", 1)], CLASSES), queries, journal=journal)
    assert not run.failures
    with closing(sqlite3.connect(journal)) as connection:
        assert connection.execute("SELECT error FROM outcomes WHERE error IS NOT NULL").fetchall() == [
            (r"OSError: cannot read plan\udce9.txt.",)
        ]


def test_a_ledger_of_another_package_keeps_no_hold_of_a_call_that_was_not_made(tmp_path: Path) -> None:
    """It makes the hold and then raises an error of its own: the run stops, and the resumed one gives the hold back."""

    class Odd(UnreliableLedger):
        def __getattr__(self, name: str) -> Callable[..., Any]:
            def call(*given: Any, **options: Any) -> Any:
                try:
                    return found(*given, **options)
                except oc.LedgerError:
                    raise OSError("odd") from None

            found = super().__getattr__(name)
            return call

    queries, inner = queries_of(80), oc.open_ledger("memory:", cap=90)
    plan = oc.plan(profile_of(Model("small", 0.1), Model("large", 1)), queries[:, :2] / 80, budget=80)
    pool = oc.Pool(models := (Model("small", 0.1), Service("large", 1)), CLASSES)
    with pytest.raises(OSError, match="odd"):
        oc.execute(plan, pool, queries, journal=tmp_path / "j", ledger=Odd(inner, 1, once=False, done=True))
    oc.execute(plan, pool, queries, journal=tmp_path / "j", ledger=inner)
    assert Fraction(inner.balance().spent) == bill(models)
    assert inner.balance().held == 0


def test_a_source_that_charges_more_than_it_states_is_not_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """One bill above the stated worst case is booked as it is; the rest goes to others, and the log says why."""

    class Greedy(Model):
        concurrency = 1

        def max_cost(self, queries: Any) -> list[float]:
            return [1.0] * len(queries)

        def answer(self, queries: Any, timeout: float | None = None) -> oc.Answers:
            return oc.Answers(self.predict_proba(queries), [1.5] * len(queries))

    queries = queries_of(64)
    models = (Model("small", 0.1), Greedy("large", 1))
    plan = oc.plan(profile_of(*models), queries[:, :2] / 64, budget=60)
    run = oc.execute(plan, oc.Pool(models, CLASSES), queries)
    assert models[1].calls == 1
    assert run.usage["small"] == 64 - sum(models[1].seen.values())
    assert run.exact_spent == bill(models[:1]) + sum(models[1].seen.values()) * Fraction(3, 2)
    assert "'large' charged 12 for a call that costs 8 at most" in caplog.text


# Retries of the service


def test_retries_while_serving_have_one_idempotency_key() -> None:
    """The first reply is lost after it was billed: the second attempt has the same key, gets it, and is not billed."""
    names, labels = ("mini", "large"), ("cat", "dog", "eel")
    with billing_server("--models", "mini:0.15:0.6:0.7,large:7.5:30:0.97") as server:
        server.meet(reset=1.0)
        pool = oc.Pool(
            [
                ChatClassifier(
                    name, oc.PerToken(7.5, 30), classes=labels, base_url=f"{server.url}/v1", model=name, timeout=5,
                    idempotent=True, retries=5,
                )
                for name in names
            ],
            labels,
        )  # fmt: skip
        profile = profile_of(Model("mini", 0.1), Model("large", 1))
        with oc.Router(profile, budget=1000, arrivals=20) as router, Answerer(router, pool, attempts=3) as answerer:
            answered = asyncio.run(answerer.classify("note about #cat", features=np.zeros(2)))
        assert [call.outcome for call in answered.calls] == ["lost", "answered"]
        bill = server.bill()
        assert bill["billed"] == bill["repeated"] == 1


# Interrupts


@pytest.mark.parametrize("moment", ["as work begins", "as it closes"])
def test_an_interrupt_at_the_worst_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Nothing goes on in the background, and the same process can go on with the journal and buys nothing twice."""

    class Slow(Service):
        def answer(self, queries: Any, timeout: float | None = None) -> Any:
            time.sleep(0.05)
            return super().answer(queries, timeout)

    interrupted = 0

    def interrupt() -> None:
        nonlocal interrupted
        interrupted += 1
        if interrupted == 1:
            raise KeyboardInterrupt

    def submit(loop: BackgroundLoop, work: Any) -> Any:
        future = usual_submit(loop, work)
        time.sleep(0.02)
        interrupt()
        return future

    def close(budget: BatchBudget, seconds: float) -> None:
        interrupt()
        usual_close(budget, seconds)

    usual_submit, usual_close = BackgroundLoop.submit, BatchBudget.close
    if moment == "as work begins":
        monkeypatch.setattr(BackgroundLoop, "submit", submit)
    else:
        monkeypatch.setattr(BatchBudget, "close", close)
    queries, ledger = queries_of(80), oc.open_ledger("memory:", cap=90)
    plan = oc.plan(profile_of(Model("small", 0.1), Model("large", 1)), queries[:, :2] / 80, budget=80)
    pool = oc.Pool(models := (Model("small", 0.1), Slow("large", 1)), CLASSES)
    with pytest.raises(KeyboardInterrupt):
        oc.execute(plan, pool, queries, journal=tmp_path / "run.journal", ledger=ledger)
    calls = models[1].calls
    time.sleep(0.1)
    assert models[1].calls == calls
    run = oc.execute(plan, pool, queries, journal=tmp_path / "run.journal", ledger=ledger)
    assert max(models[1].seen.values()) == 1
    assert run.exact_spent == Fraction(ledger.balance().spent) == bill(models)
    assert ledger.balance().held == 0


# Calls that an earlier process did not see the end of


def test_an_interrupt_stops_calls_that_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five calls were lost; Ctrl-C while the first is made again lets that one end, and no other begins."""

    class Keyed(Model):
        concurrency, idempotent, began = 5, True, 0
        hangs = threading.Event()

        def answer(self, queries: Any, timeout: float | None = None, key: str = "") -> Any:
            self.began += 1
            if self.concurrency == 1:
                signal.raise_signal(signal.SIGINT)
                time.sleep(0.8)  # until the interrupt is heard, however busy the machine is
            elif self.began > 3:
                self.hangs.wait(10)
            return self.predict_proba(queries)

    def stop(stage: str, done: int, total: int) -> None:
        if model.calls == 3:
            raise RuntimeError("stopped")

    queries, journal = queries_of(80), tmp_path / "run.journal"
    plan = oc.plan(profile_of(Model("small", 0.1), Model("large", 1)), queries[:, :2] / 80, budget=80)
    model = Keyed("large", 1)
    monkeypatch.setattr(buyer, "DRAIN_SECONDS", 0.1)
    with pytest.raises(RuntimeError, match="stopped"):
        oc.execute(plan, oc.Pool([Model("small", 0.1), model], CLASSES), queries, journal=journal, progress=stop)
    model.hangs.set()
    with closing(sqlite3.connect(journal)) as connection:
        assert connection.execute("SELECT count(*) > 2 FROM calls WHERE charged IS NULL").fetchone() == (1,)
    model = Keyed("large", 1)
    model.concurrency = 1
    with pytest.raises(KeyboardInterrupt):
        oc.execute(plan, oc.Pool([Model("small", 0.1), model], CLASSES), queries, journal=journal)
    assert model.began == 1


def test_calls_that_are_made_again_keep_their_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process died with calls under way: they are made again under their keys and holds, and nothing stays held."""

    class Keyed(Model):
        concurrency, idempotent = 4, True

        def __init__(self, name: str, cost: Any, hangs: threading.Event | None = None) -> None:
            super().__init__(name, cost)
            self.hangs, self.charged = hangs, set[str]()

        def answer(self, queries: Any, timeout: float | None = None, key: str = "") -> Any:
            self.charged.add(key)
            if self.hangs is not None and len(self.charged) > 2:
                self.hangs.wait(10)
            return self.predict_proba(queries)

    def stop(stage: str, done: int, total: int) -> None:
        if done > 8:
            raise RuntimeError("stopped")

    queries, ledger = queries_of(80), oc.open_ledger(f"sqlite:///{tmp_path}/spend.db", cap=100)
    plan = oc.plan(profile_of(Model("small", 0.1), Model("large", 1)), queries[:, :2] / 80, budget=80)
    monkeypatch.setattr(buyer, "DRAIN_SECONDS", 0.1)
    going = threading.Event()
    options: dict[str, Any] = {"journal": tmp_path / "run.journal", "ledger": ledger}
    dead = Keyed("large", 1, going)
    with pytest.raises(RuntimeError, match="stopped"):
        oc.execute(plan, oc.Pool([Model("small", 0.1), dead], CLASSES), queries, progress=stop, **options)
    assert ledger.balance().held > 0
    going.set()
    model = Keyed("large", 1)
    run = oc.execute(plan, oc.Pool([Model("small", 0.1), model], CLASSES), queries, **options)
    assert ledger.balance().held == 0
    assert Fraction(ledger.balance().spent) == run.exact_spent == run.usage["large"] + Fraction(run.usage["small"], 10)
    assert len(dead.charged | model.charged) == -(-run.usage["large"] // 8)


# Calls that are paid by the second


def test_a_remote_classifier_gets_no_unpaid_call() -> None:
    """Where calls are paid by the second elsewhere, each one is held and settled: there is no call to warm up."""
    queries = queries_of(40)
    models = (Model("small", 0.1), Service("large", oc.Measured(per_hour=1)))
    profile = oc.profile(oc.Pool(models, CLASSES), queries, queries[:, 1].astype(int), extractor="small")
    assert models[1].calls == profile.made_from["costs"]["large"]["calls"]
    assert set(models[1].seen.values()) == {1}
    fresh, ledger = Service("large", oc.Measured(per_hour=1)), oc.open_ledger("memory:", cap=1000)
    oc.profile(oc.Pool([fresh], CLASSES), queries, queries[:, 1].astype(int), ledger=ledger)
    for event in ("reserve", "settle"):
        assert sum(entry.event == event for entry in ledger.entries()) == fresh.calls


# Queries of the wrong kind


class Numeric(Model):
    """A classifier of numbers: texts make it raise."""

    def predict_proba(self, queries: Any) -> Any:
        self.seen.update(range(len(queries)))
        return np.asarray(queries, float)


class Useless(Model):
    """A classifier whose replies are paid for and never hold an answer."""

    def predict_proba(self, queries: Any) -> Any:
        self.seen.update(range(len(queries)))
        return np.full((len(queries), 3), np.nan)


@pytest.mark.parametrize("kind", [Numeric, Useless])
def test_queries_of_the_wrong_kind_cost_little(kind: type[Model], tmp_path: Path) -> None:
    """Each classifier fails on a small first batch and is asked nothing more; the run raises what went wrong."""
    texts = [f"text {row}" for row in range(300)]
    models = (kind("small", 0.1, 256), kind("large", 1, 256))
    pool, journal = oc.Pool(models, CLASSES), tmp_path / "run.journal"
    plan = oc.plan(profile_of(*models), np.random.default_rng(1).random((300, 2)), budget=200)
    words = "ValueError: could not convert string" if kind is Numeric else "probabilities that are NaN"
    with pytest.raises(
        oc.NoAnswersError, match=rf"none of the 300 queries was answered.*(small|large).*{words}"
    ) as caught:
        oc.execute(plan, pool, texts, journal=journal)
    assert all(16 <= sum(model.seen.values()) <= 18 for model in models)
    assert caught.value.spent == bill(models)
    assert set(caught.value.failures) == set(range(300))
    with pytest.raises(oc.NoAnswersError) as again:
        oc.execute(plan, pool, texts, journal=journal)
    assert again.value.spent == bill(models) <= 2 * caught.value.spent
    with pytest.raises(oc.OccamError, match=rf"'(small|large)' gives no answers: {words}"):
        oc.profile(oc.Pool([kind("small", 0.1, 256), kind("large", 1, 256)], CLASSES), texts, [0] * 300)


def test_one_classifier_of_the_wrong_kind_is_left_out() -> None:
    """The others answer in its place, and a source that works is asked for whole batches after the first answer."""
    queries = queries_of(300)
    models = (Model("small", 0.1, 256), Useless("large", 1, 256))
    plan = oc.plan(profile_of(*models), queries[:, :2] / 300, budget=200)
    run = oc.execute(plan, oc.Pool(models, CLASSES), queries)
    assert not run.failures
    assert sum(models[1].seen.values()) == 16
    assert models[0].calls <= 5


def test_a_run_in_blocks_without_answers_raises(tmp_path: Path) -> None:
    """The same where answers are written to a folder."""
    texts = [f"text {row}" for row in range(40)]
    models = (Numeric("small", 0.1), Numeric("large", 1))
    plan = oc.plan(profile_of(*models), np.random.default_rng(1).random((40, 2)), budget=30)
    with pytest.raises(oc.NoAnswersError, match="none of the 40 queries was answered"):
        oc.execute(plan, oc.Pool(models, CLASSES), texts, out=tmp_path / "answers")


def test_tables_that_are_not_queries_are_refused_before_anything_is_spent() -> None:
    """A data frame with texts is not a sequence of queries; one of numbers is, and so is a column."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["x", "y"] * 20, "length": range(40)})
    models = (Model("small", 0.1), Model("large", 1))
    plan = oc.plan(profile_of(*models), np.random.default_rng(1).random((40, 2)), budget=30)
    for table in (frame, frame[["text"]]):
        with pytest.raises(
            oc.InvalidInputError, match=r"DataFrame with the columns 'text'.* give the column that holds"
        ):
            oc.execute(plan, oc.Pool(models, CLASSES), table)
    assert bill(models) == 0
    run = oc.execute(plan, oc.Pool(models, CLASSES), pandas.DataFrame(queries_of(40)))
    assert not run.failures
