"""Runs in blocks: the same answers as in one piece, nothing bought twice, whoever stops and begins again."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import occamroute as oc
from occamroute.calls.journal import Journal
from occamroute.calls.terms import content_hash, price_list
from occamroute.cli._app import app
from occamroute.cli.open import _subject as looked_at
from occamroute.execution import block_classifying, block_runs
from occamroute.execution.blocks import BlockToBuy, Errand, buy_block, extract_block, journal_of
from occamroute.execution.leftovers import Leftovers
from occamroute.execution.questions import questions_of
from occamroute.executors.local import LocalExecutor
from occamroute.part_folders import PartFolder
from occamroute.planning.stored_plans import StoredPlan
from occamroute.pool_files.sending import PoolAt
from occamroute.profiling import blocks as profiling_blocks
from occamroute.reporting import wholes

# Runs look at features only where the planner has all candidates to choose from.
pytestmark = pytest.mark.usefixtures("all_candidates")
CLASSES = ("a", "b", "c")


class Model:
    """A classifier that knows the truth of a query (its second column) if that is easy enough for it."""

    def __init__(self, name: str, cost: Any, skill: float, *, stop: Any = None) -> None:
        self.name, self.cost, self.skill, self.stop = name, cost, skill, stop
        self.seen: Counter[int] = Counter()
        self.batch_size = 16
        self.lock = threading.Lock()

    def predict_proba(self, queries: Any) -> Any:
        with self.lock:
            self.seen.update(queries[:, 0].astype(int).tolist())
        if self.stop is not None:
            self.stop(self)
        truth, difficulty = queries[:, 1].astype(int), queries[:, 2]
        table = np.full((len(queries), 3), 0.1)
        chosen = np.where(difficulty > self.skill, (truth + 1) % 3, truth)
        table[np.arange(len(queries)), chosen] = 0.5 + 0.4 * np.abs(difficulty - self.skill)
        return table / table.sum(axis=1, keepdims=True)


class Service(Model):
    """The same behind a wire; it charges each key once, if it minds keys."""

    concurrency = 2

    def __init__(self, name: str, cost: Any, skill: float, *, idempotent: bool) -> None:
        super().__init__(name, cost, skill)
        self.idempotent = idempotent
        self.keys: Counter[str] = Counter()
        self.batch_size = 4

    def answer(self, queries: Any, timeout: float | None = None, key: str = "") -> oc.Answers:
        with self.lock:
            self.keys[key] += 1
        return oc.Answers(self.predict_proba(queries), [self.cost] * len(queries))


def usual(**stop: Any) -> tuple[Model, ...]:
    return (
        Model("small", 0.1, 0.6, stop=stop.get("small")),
        Model("middle", 0.3, 0.8, stop=stop.get("middle")),
        Model("large", 1, 0.95, stop=stop.get("large")),
    )


def queries_of(rows: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.asarray(np.column_stack([np.arange(rows), random.integers(0, 3, rows), random.random(rows)]))


def pool_of(models: tuple[Any, ...]) -> oc.Pool:
    return oc.Pool(models, CLASSES)


def bill(models: tuple[Model, ...]) -> Fraction:
    return sum((sum(model.seen.values()) * Fraction(str(model.cost)) for model in models), Fraction(0))


def most_often(models: tuple[Model, ...]) -> int:
    return max(max(model.seen.values(), default=0) for model in models)


QUERIES = queries_of(200, 2)


@pytest.fixture(scope="module")
def profile() -> oc.Profile:
    queries = queries_of(100, 1)
    return oc.profile(pool_of(usual()), queries, np.array(CLASSES)[queries[:, 1].astype(int)], extractor="small")


@pytest.fixture(scope="module")
def whole(profile: oc.Profile) -> oc.Run:
    """The run in one piece."""
    return oc.classify(pool_of(usual()), profile, QUERIES, budget=70, ids=[f"q{row}" for row in range(200)])


@pytest.fixture(scope="module")
def plan(profile: oc.Profile) -> oc.Plan:
    return oc.plan(profile, usual()[0].predict_proba(QUERIES).astype(np.float32), budget=70)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_runs, "ROWS", 48)
    monkeypatch.setattr(block_classifying, "ROWS", 48)


def folder_of(place: Path) -> Path:
    """The queries in three files, numbers in columns of their own."""
    place.mkdir()
    for number, rows in enumerate(np.array_split(QUERIES, 3)):
        columns: dict[str, Any] = {
            name: rows[:, column] for column, name in enumerate(("number", "truth", "difficulty"))
        }
        table = pa.table({"id": [f"q{int(row)}" for row in rows[:, 0]], **columns})
        pq.write_table(table, place / f"{number}.parquet", row_group_size=20)
    return place


def same(one: oc.Run, other: oc.Run) -> None:
    np.testing.assert_array_equal(one.answers, other.answers)
    np.testing.assert_array_equal(one.reason, other.reason)
    np.testing.assert_array_equal(one.cost, other.cost)
    np.testing.assert_array_equal(one.probabilities, other.probabilities)
    assert one.exact_spent == other.exact_spent
    assert one.expected_accuracy == pytest.approx(other.expected_accuracy, abs=1e-6)
    assert one.failures == other.failures


def test_blocks_are_the_same_run(plan: oc.Plan, tmp_path: Path) -> None:
    """In one piece, in blocks one after the other, and in blocks side by side: the same answers for the same money."""
    whole = oc.execute(plan, pool_of(usual()), QUERIES)
    models = usual()
    stored = oc.execute(plan, pool_of(models), QUERIES, out=tmp_path / "answers")
    same(block_runs.in_memory(stored, plan), whole)
    assert bill(models) == stored.exact_spent <= plan.budget
    models = usual()
    same(oc.execute(plan, pool_of(models), QUERIES, executor=LocalExecutor(2)), whole)
    assert most_often(models) == 1
    features = usual()[0].predict_proba(QUERIES).astype(np.float32)
    given = oc.execute(plan, pool_of(usual()), QUERIES, features=features)
    same(oc.execute(plan, pool_of(usual()), QUERIES, features=features, executor=LocalExecutor(2)), given)
    loaded = oc.load(tmp_path / "answers")
    assert loaded.summary() == stored.summary()
    assert (loaded.n_blocks, loaded.answered, loaded.failures) == (5, 200, 0)
    assert loaded.usage == whole.usage
    assert repr(loaded) == repr(stored)
    assert "200 of 200" in loaded._repr_html_()
    assert loaded.block(4).ids == whole.ids[192:]
    with pytest.raises(oc.InvalidInputError, match="parts 0 to 4"):
        loaded.block(5)


def test_classify_in_blocks(profile: oc.Profile, whole: oc.Run, tmp_path: Path) -> None:
    """Features are paid block by block, and the same is planned and bought as in one piece."""
    models = usual()
    there = oc.classify(
        pool_of(models), profile, QUERIES, budget=70, ids=[f"q{row}" for row in range(200)], executor=LocalExecutor(2)
    )
    same(there, whole)
    assert there.ids == whole.ids
    assert most_often(models) == 1
    models = usual()
    stages: dict[str, list[tuple[int, int]]] = {}
    large = oc.classify(
        pool_of(models), profile, folder_of(tmp_path / "queries"), budget=70, out=tmp_path / "answers",
        progress=lambda stage, done, total: stages.setdefault(stage, []).append((done, total)),
    )  # fmt: skip
    same(block_runs.in_memory(large, None), whole)
    assert bill(models) == large.exact_spent <= 70
    assert block_runs.in_memory(large, None).ids == whole.ids
    assert stages["extracting"][-1] == stages["buying"][-1] == (200, 200)
    for seen in stages.values():
        assert seen == sorted(seen)


class Talkative(Model):
    """A service that says with each answer what it cost: ``times`` what it did when it was profiled, three at most."""

    def __init__(self, times: int) -> None:
        super().__init__("small", 0.1, 0.6)
        self.times = times

    def max_cost(self, queries: Any) -> list[Fraction]:
        return [Fraction(3, 10)] * len(queries)

    def answer(self, queries: Any, timeout: float | None = None) -> oc.Answers:
        return oc.Answers(self.predict_proba(queries), [Fraction(self.times, 10)] * len(queries))


def test_features_that_are_dearer_than_planned(tmp_path: Path) -> None:
    """Blocks whose plans ask for little have paid for features, too: others may not spend that once more."""
    queries = queries_of(100, 1)
    large = Model("large", 1, 0.95)
    labels = np.array(CLASSES)[queries[:, 1].astype(int)]
    profile = oc.profile(pool_of((Talkative(1), large)), queries, labels, extractor="small")
    hard = queries_of(200, 2)
    hard[:100, 2], hard[100:, 2] = 0.1, 0.7  # the first blocks need nobody but the small one
    small, large = Talkative(3), Model("large", 1, 0.95)
    run = oc.classify(pool_of((small, large)), profile, hard, budget=80, out=tmp_path / "out")
    assert run.failures == 0
    assert run.exact_spent == 3 * bill((small,)) + bill((large,))
    assert 75 < run.exact_spent <= 80


def test_a_plan_in_a_folder_is_executed(profile: oc.Profile, tmp_path: Path) -> None:
    """A plan larger than memory, with queries larger than memory, written as they come."""
    place = folder_of(tmp_path / "queries")
    features = usual()[0].predict_proba(QUERIES).astype(np.float32)
    whole = oc.plan(profile, features, budget=70)
    (tmp_path / "features").mkdir()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(features.reshape(-1)), 3)
    pq.write_table(pa.table({"features:small": lists}), tmp_path / "features" / "0.parquet")
    stored = oc.plan(profile, tmp_path / "features", budget=70, out=tmp_path / "plan")
    assert isinstance(stored, StoredPlan)
    run = oc.execute(oc.load(tmp_path / "plan"), pool_of(usual()), place, out=tmp_path / "answers")
    one = oc.execute(whole, pool_of(usual()), QUERIES)
    np.testing.assert_array_equal(block_runs.in_memory(run, stored).answers, one.answers)
    assert run.exact_spent == one.exact_spent
    with pytest.raises(oc.InvalidInputError, match="leave features out"):
        oc.execute(stored, pool_of(usual()), place, out=tmp_path / "other", features=features)
    with pytest.raises(oc.InvalidInputError, match="is read as queries"):
        oc.execute(stored, pool_of(usual()), place, out=place / "answers")
    assert not (place / "answers").exists()
    part = stored.parts.file(0)
    table = pq.read_table(part)
    dearest = table.set_column(1, "classifier", pa.array(["large"] * len(table)))
    pq.write_table(dearest.replace_schema_metadata(table.schema.metadata), part)
    models = usual()
    forged = oc.execute(oc.load(tmp_path / "plan"), pool_of(models), place, out=tmp_path / "forged")
    assert bill(models) <= forged.exact_spent <= 70


class Death(BaseException):
    pass


@pytest.mark.parametrize("moment", [2, 7])
def test_a_run_goes_on(profile: oc.Profile, whole: oc.Run, tmp_path: Path, moment: int) -> None:
    """Stopped while features or answers are bought: what came is not bought again, and the run is the same."""
    calls = 0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal calls
        calls += stage != "choosing"
        if calls == 4 * moment:
            raise Death

    models, place = usual(), tmp_path / "answers"
    with pytest.raises(Death):
        oc.classify(pool_of(models), profile, QUERIES, budget=70, out=place, progress=progress)
    with pytest.raises(oc.StorageError, match="the run in it is not finished"):
        oc.load(place)
    run = oc.classify(pool_of(models), profile, QUERIES, budget=70, out=place)
    same(block_runs.in_memory(run, None), whole)
    assert most_often(models) == 1
    done = usual()
    again = oc.classify(pool_of(done), profile, QUERIES, budget=70, out=place)
    assert again.summary() == run.summary()
    assert bill(done) == 0
    with pytest.raises(oc.InvalidInputError, match="holds a run of something else"):
        oc.classify(pool_of(usual()), profile, QUERIES, budget=71, out=place)


def test_stopped_between_planning_and_buying(
    profile: oc.Profile, whole: oc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features that were paid are planned with again; and whoever comes too late extracts nothing more."""

    def die(*_: Any) -> None:
        raise Death

    models, queries, place = usual(), folder_of(tmp_path / "queries"), tmp_path / "answers"
    with monkeypatch.context() as patch:
        patch.setattr(block_classifying, "_keep", die)
        with pytest.raises(Death):
            oc.classify(pool_of(models), profile, queries, budget=70, out=place)
    asked: list[Any] = []

    def extracted(*both: Any) -> Any:
        asked.append(both)
        return extract_block(*both)

    monkeypatch.setattr(block_classifying, "extract_block", extracted)
    run = oc.classify(pool_of(models), profile, queries, budget=70, out=place)
    same(block_runs.in_memory(run, None), whole)
    assert most_often(models) == 1
    with pytest.raises(oc.JournalError, match="were extracted before"):
        extract_block(*asked[0])
    assert most_often(models) == 1


def plan_of_free_features(profile: oc.Profile) -> oc.Plan:
    names: dict[str, Any] = {"names": profile.names, "costs": profile.costs, "success": profile.success}
    return oc.estimate(oc.Profile(features=profile.features, **names), usual()[0].predict_proba(QUERIES)).plan(70)


def errand_of(plan: oc.Plan, pool: oc.Pool, place: Path, ledger: Any = None) -> Errand:
    folder = PartFolder.begin(place, "run", "test", len(plan), len(plan))
    return Errand(
        run="run", folder=folder, pool=PoolAt.of(pool, None), questions=questions_of(QUERIES),
        plan=plan, added=(Fraction(0),), ledger=ledger,
    )  # fmt: skip


def test_two_workers_on_one_block(plan: oc.Plan, tmp_path: Path) -> None:
    """A worker that was believed dead and the one that took its place: one of them buys, the other waits for it."""
    inside, going = threading.Event(), threading.Event()

    def stop(model: Model) -> None:
        inside.set()
        going.wait(10)

    models = usual(large=stop)
    errand = errand_of(plan, pool_of(models), tmp_path / "answers")
    receipts: list[Any] = []
    both = [threading.Thread(target=lambda: receipts.append(buy_block(errand, BlockToBuy(0)))) for _ in range(2)]
    both[0].start()
    assert inside.wait(10)
    both[1].start()
    time.sleep(0.5)
    assert not receipts
    going.set()
    for thread in both:
        thread.join(20)
    assert receipts[0] == receipts[1]
    assert bill(models) == Fraction(receipts[0].spent)
    assert most_often(models) == 1
    assert not journal_of(errand.folder.file(0)).exists()


def leave_a_call(errand: Errand, plan: oc.Plan, source: str, rows: int) -> Any:
    """What a worker that was killed leaves behind: a call of a source that has no end."""
    part = errand.plan_of(0)
    wanted = np.flatnonzero(part.choice == plan.names.index(source))[:rows]
    facts = content_hash(QUERIES), content_hash(part.ids), price_list(errand.pool.pool)
    about = dict(zip(("queries", "ids", "price list"), facts, strict=True))
    journal = Journal(journal_of(errand.folder.file(0)), about, run="run-0")
    cost = Fraction(str(errand.pool.pool[source].cost))
    journal.write([(journal.new_call(), source, wanted.astype(np.int64), cost * wanted.size)])
    journal.close()
    return wanted


@pytest.mark.parametrize("kind", ["here", "keyed", "unkeyed"])
def test_calls_that_nobody_saw_the_end_of(profile: oc.Profile, tmp_path: Path, kind: str) -> None:
    """Made again where that is charged once; else they count as spent, and other classifiers are asked."""
    plan = plan_of_free_features(profile)
    dear = Model("large", 1, 0.95) if kind == "here" else Service("large", 1, 0.95, idempotent=kind == "keyed")
    models = (*usual()[:2], dear)
    whole = oc.execute(plan, pool_of((*usual()[:2], Model("large", 1, 0.95))), QUERIES)
    errand = errand_of(plan, pool_of(models), tmp_path / "answers")
    lost = leave_a_call(errand, plan, "large", 4)
    assert lost.size == 4
    receipt = buy_block(errand, BlockToBuy(0))
    run = oc.load(errand.folder.file(0))
    if kind == "unkeyed":
        assert not set(lost.tolist()) & set(dear.seen)
        assert (run.choice[lost] != 2).all()
        assert not run.failures
        assert bill(models) + 4 == Fraction(receipt.spent) <= 70
    else:
        np.testing.assert_array_equal(run.answers, whole.answers)
        assert Fraction(receipt.spent) == whole.exact_spent == bill(models)
        assert most_often(models) == 1
    if isinstance(dear, Service):
        assert max(dear.keys.values(), default=1) == 1 or kind == "unkeyed"
        assert ("" in dear.keys) == (kind == "unkeyed")


@pytest.mark.parametrize("keyed", [True, False])
def test_a_ledger_knows_of_calls_that_a_journal_lost(profile: oc.Profile, tmp_path: Path, keyed: bool) -> None:
    """Holds are named for what is asked: without its journal, a service without keys is not asked a second time."""
    plan = plan_of_free_features(profile)
    service = Service("large", 1, 0.95, idempotent=keyed)
    models = (*usual()[:2], service)
    ledger = oc.open_ledger(f"sqlite:///{tmp_path}/spend.db", cap=1000)
    errand = errand_of(plan, pool_of(models), tmp_path / "answers", ledger)
    buy_block(errand, BlockToBuy(0))
    first, asked = ledger.balance(), dict(service.keys)
    errand.folder.file(0).unlink()
    receipt = buy_block(errand, BlockToBuy(0))
    if keyed:
        assert ledger.balance().spent == first.spent
        assert service.keys == dict.fromkeys(asked, 2)
    else:
        assert dict(service.keys) == asked  # not one more call
        assert most_often((service,)) == 1
    assert Fraction(receipt.spent) <= 70
    assert ledger.balance().held == 0 or not keyed


def test_a_hold_that_was_given_back_is_made_anew(profile: oc.Profile, tmp_path: Path) -> None:
    """Killed between giving a hold back and writing that down: the call that is made again is in the ledger, too."""
    plan = plan_of_free_features(profile)
    first = oc.open_ledger(f"sqlite:///{tmp_path}/first.db", cap=1000)
    models = (*usual()[:2], Service("large", 1, 0.95, idempotent=True))
    buy_block(errand_of(plan, pool_of(models), tmp_path / "first", first), BlockToBuy(0))
    second = oc.open_ledger(f"sqlite:///{tmp_path}/second.db", cap=1000)
    keys = [entry.key for entry in first.entries() if entry.event == "reserve"]
    assert len(keys) > 3
    for key in keys:
        second.release(second.reserve(1, key=key))
    models = (*usual()[:2], Service("large", 1, 0.95, idempotent=True))
    receipt = buy_block(errand_of(plan, pool_of(models), tmp_path / "second", second), BlockToBuy(0))
    assert Fraction(second.balance().spent) == Fraction(receipt.spent) == bill(models)
    assert second.balance().held == 0


def test_profiles_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same profile, each block with a journal of its own, and a budget that all of them share."""
    monkeypatch.setattr(profiling_blocks, "ROWS", 48)
    labels = np.array(CLASSES)[QUERIES[:, 1].astype(int)]
    whole = oc.profile(pool_of(usual()), QUERIES, labels, budget=280)
    models = usual()
    made = oc.profile(
        pool_of(models), QUERIES, labels, budget=280, executor=LocalExecutor(2), journal=tmp_path / "p.journal"
    )
    assert made.fingerprint == whole.fingerprint
    assert made.made_from["costs"]["small"]["calls"] == 13  # 3 calls of 16 in each of 4 blocks, and one of 8
    again = usual()
    oc.profile(pool_of(again), QUERIES, labels, budget=280, executor=LocalExecutor(1), journal=tmp_path / "p.journal")
    assert bill(again) == 0
    with pytest.raises(oc.JournalError, match="begun with an executor"):
        oc.profile(pool_of(usual()), QUERIES, labels, journal=tmp_path / "p.journal")
    with pytest.raises(oc.InvalidInputError, match="the budget of 279 for profiling is used up"):
        oc.profile(pool_of(usual()), QUERIES, labels, budget=279, executor=LocalExecutor(1))
    (tmp_path / "q.journal").touch()
    with pytest.raises(oc.JournalError, match="begun without an executor"):
        oc.profile(pool_of(usual()), QUERIES, labels, executor=LocalExecutor(1), journal=tmp_path / "q.journal")


class Closing(Service):
    """A service that turns everybody away, free of charge, after so many queries."""

    def __init__(self, most: int) -> None:
        super().__init__("one", 1, 0.9, idempotent=False)
        self.most = most

    def answer(self, queries: Any, timeout: float | None = None, key: str = "") -> oc.Answers:
        if sum(self.seen.values()) >= self.most:
            raise oc.UnavailableError("closed")
        return super().answer(queries)


def test_profiles_in_blocks_go_on_with_another_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What blocks have spent on a greater budget is not spent again on a smaller one."""
    monkeypatch.setattr(profiling_blocks, "ROWS", 48)
    labels = np.array(CLASSES)[QUERIES[:, 1].astype(int)]

    def bought_for(budget: int, most: int, workers: int) -> Fraction:
        service = Closing(most)
        with suppress(oc.UnavailableError, oc.InvalidInputError):
            oc.profile(
                pool_of((service,)), QUERIES, labels, budget=budget, journal=tmp_path / "journal",
                executor=LocalExecutor(workers),
            )  # fmt: skip
        return bill((service,))

    first = bought_for(200, most=48, workers=1)
    then = bought_for(100, most=200, workers=4)
    last = bought_for(200, most=200, workers=4)
    assert first >= 48
    assert 52 <= first + then <= 100
    assert first + then + last == 200


def test_limits_of_services_are_shared() -> None:
    """So many buyers side by side ask a service no more at once, and no more a minute, than one may."""
    from occamroute.calls.sources import sources_of

    service = Service("large", 1, 0.95, idempotent=True)
    service.concurrency, service.per_minute = 8, 60  # type: ignore[attr-defined]
    for share in (1, 3, 20):
        (source,) = sources_of(pool_of((service,)), share).values()
        assert source.concurrency == max(1, 8 // share)
        assert source.per_minute == 60 / share


def test_ledgers_are_opened_anew_elsewhere(ledger_address: str) -> None:
    """A ledger in a file or a database is the same one in another process; one in memory cannot be."""
    name = f"sent {time.monotonic_ns()}"
    ledger = oc.open_ledger(ledger_address, cap=5, name=name)
    if ledger_address == "memory:":
        with pytest.raises(oc.InvalidInputError, match="a ledger in memory cannot be sent"):
            pickle.dumps(ledger)
        return
    other = pickle.loads(pickle.dumps(ledger))  # noqa: S301  # our own
    other.reserve(2, key="one")
    assert ledger.balance().available == 3
    other.close()
    if ledger_address.startswith("postgresql"):
        with_password = oc.open_ledger(f"{ledger_address}&password=secret", name=name)
        with pytest.raises(oc.InvalidInputError, match="PGPASSWORD") as caught:
            pickle.dumps(with_password)
        assert "secret" not in str(caught.value)
        with_password.close()
    ledger.close()


def test_bad_input(plan: oc.Plan, profile: oc.Profile, tmp_path: Path) -> None:
    """What cannot be is said in one sentence, before anything is paid."""
    pool = pool_of(usual())
    with pytest.raises(oc.InvalidInputError, match="the plan is for 200 queries, got 10"):
        oc.execute(plan, pool, QUERIES[:10], out=tmp_path / "a")
    with pytest.raises(oc.InvalidInputError, match="leave journal out"):
        oc.execute(plan, pool, QUERIES, out=tmp_path / "a", journal=tmp_path / "b")
    with pytest.raises(oc.StorageError, match="it holds no Parquet files"):
        oc.execute(plan, pool, tmp_path, out=tmp_path / "a")
    with pytest.raises(oc.UnknownNameError, match="executor"):
        oc.execute(plan, pool, QUERIES, executor="spark")
    with pytest.raises(oc.InvalidInputError, match="in a column 'id'"):
        oc.classify(pool, profile, folder_of(tmp_path / "q"), budget=70, out=tmp_path / "a", ids=range(200))
    (tmp_path / "file").touch()
    with pytest.raises(oc.JournalError, match="begun without an executor"):
        oc.execute(plan, pool, QUERIES, executor=LocalExecutor(1), journal=tmp_path / "file")
    with pytest.raises(oc.JournalError, match="begun with an executor"):
        oc.execute(plan, pool, QUERIES, journal=tmp_path)
    assert bill(pool.classifiers) == 0


POOL = """
classes = ["a", "b", "c"]
[classifiers]
small = { kind = "callable", function = "block_models:small", cost = 0.1 }
large = { kind = "callable", function = "block_models:large", cost = 1 }
"""
MODELS = """
def answers(texts, skill):
    return [text.split()[1] if float(text.split()[2]) < skill else "a" for text in texts]
def small(texts):
    return answers(texts, 0.6)
def large(texts):
    return answers(texts, 0.95)
"""


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The verbs classify and execute take a folder of Parquet files, and write one."""
    monkeypatch.chdir(tmp_path)
    Path("occamroute.toml").write_text(POOL)
    Path("block_models.py").write_text(MODELS)
    texts = [f"q{row} {CLASSES[int(truth)]} {easy:.3f}" for row, truth, easy in QUERIES.tolist()]
    labels = [CLASSES[int(truth)] for truth in QUERIES[:, 1]]
    for name, rows in {"old": slice(0, 120), "new": slice(120, 200)}.items():
        Path(name).mkdir()
        pq.write_table(pa.table({"text": texts[rows], "label": labels[rows]}), f"{name}/0.parquet")

    def run(*words: str) -> int:
        try:
            app(list(words), standalone_mode=False)
        except oc.OccamError as error:
            refusals.append(str(error))
            return 2
        return 0

    refusals: list[str] = []
    assert run("profile", "occamroute.toml", "old/0.parquet", "--out", "p.parquet", "--extractor", "small") == 0
    capsys.readouterr()
    words = ("classify", "occamroute.toml", "p.parquet", "new", "--budget", "40", "--out")
    assert run(*words, "answers", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["answered"] == 80
    assert found["spent"] <= 40
    assert found["accuracy"] > 0.6
    assert run(*words, "answers") == 0
    assert "of 80 queries" in capsys.readouterr().out
    assert run("execute", "answers/_plan", "occamroute.toml", "new", "--out", "again", "--json") == 0
    assert json.loads(capsys.readouterr().out)["usage"] == found["usage"]
    for folder, kind in (("answers", "run"), ("answers/_plan", "plan")):
        assert run("report", folder, "--json") == 0
        assert json.loads(capsys.readouterr().out)["kind"] == kind
        assert "80 queries" in Path("report.html").read_text()
        assert looked_at(folder, None, None, None, estimator="bagged", extractor=None, seed=0).kind == kind
    monkeypatch.setattr(wholes, "MOST", 79)
    assert run("report", "answers") == 2
    assert "at most 79 queries, and this run has 80" in refusals[-1]
    for bad, sentence in ((("a.csv",), "go to a folder"), (("a", "--journal", "b"), "leave --journal out")):
        assert run(*words, *bad) == 2
        assert sentence in refusals[-1]
    assert run(*words, "a", "--dry-run") == 2


# Money that blocks left over


class Metered(Model):
    """A service that states the most that an answer can cost, and with each answer what it did cost.

    The first half of the queries costs a tenth of what is usual.
    """

    concurrency = 4
    cheap = 0

    def max_cost(self, queries: Any) -> list[float]:
        return [2.0] * len(queries)

    def answer(self, queries: Any, timeout: float | None = None) -> oc.Answers:
        costs = [0.1 if number < self.cheap else 1.0 for number in queries[:, 0]]
        return oc.Answers(self.predict_proba(queries), costs)


def given(place: Path) -> list[Fraction]:
    lines = (place / "_leftovers.jsonl").read_text("utf-8").splitlines()
    return [Fraction(json.loads(line)["amount"]) for line in lines]


@pytest.mark.parametrize("workers", [None, 2], ids=["in order", "threads"])
def test_what_blocks_leave_buys_better_answers_in_later_ones(
    tmp_path: Path, workers: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later blocks get what earlier ones did not need, and the same once more when the run goes on."""
    monkeypatch.setattr(block_classifying, "ROWS", 16)
    labelled, place = queries_of(100, 1), tmp_path / "run"
    labels = np.array(CLASSES)[labelled[:, 1].astype(int)]
    first = pool_of((Model("small", 0.1, 0.6), Metered("large", 1, 0.95)))
    profile = oc.profile(first, labelled, labels, extractor="small")
    small, large = Model("small", 0.1, 0.6), Metered("large", 1, 0.95)
    large.cheap = 100
    executor = None if workers is None else LocalExecutor(workers)

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "buying" and done >= 150:
            raise RuntimeError("stopped")

    def classified(progress: Any = None) -> Any:
        return oc.classify(
            pool_of((small, large)), profile, QUERIES, budget=70, out=place, executor=executor, progress=progress
        )

    with pytest.raises(RuntimeError, match="stopped"):
        classified(stop)
    before = given(place)
    assert before
    run = classified()
    assert given(place)[: len(before)] == before
    assert most_often((small, large)) == 1
    cheap = sum(count for number, count in large.seen.items() if number < 100)
    charged = Fraction(cheap, 10) + large.seen.total() - cheap
    assert run.exact_spent == Fraction(small.seen.total(), 10) + charged <= 70
    assert sum(given(place)) > 5
    # Without what the first half left, at most its share of the budget could be spent on the second.
    spent = [run.block(number).exact_spent for number in range(run.n_blocks)]
    assert sum(spent[7:]) > 70 * Fraction(88, 200) + 3


def test_leftovers_never_exceed_what_was_left(tmp_path: Path) -> None:
    """However blocks end, and however often the run is stopped, together they spend no more than all caps."""
    random = np.random.default_rng(0)
    for trial in range(50):
        rows = random.integers(1, 50, 8).tolist()
        caps = [Fraction(int(random.integers(0, 100)), 7) for _ in rows]
        spent = [Fraction(0)] * 8
        path = tmp_path / f"{trial}.jsonl"
        given: dict[int, Fraction] = {}
        for begin in range(0, 8, 2):  # stopped after every second block
            leftovers = Leftovers(path, sum(caps, Fraction(0)), rows)
            for number in range(begin + 2):
                extra = leftovers.for_block(number)
                assert given.setdefault(number, extra) == extra
                if number >= begin:
                    spent[number] = (caps[number] + extra) * Fraction(int(random.integers(0, 5)), 4)
                leftovers.finished(caps[number] + extra - spent[number])
        assert sum(spent) <= sum(caps)
