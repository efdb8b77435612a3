"""Text features: free, the same bits everywhere, stored with the profile, and planned and decided with."""

from __future__ import annotations

import asyncio
import hashlib
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from serving import world

import occamroute as oc
from occamroute.execution.forecasting import forecast
from occamroute.planning.estimates import charged
from occamroute.pool_files.schema import pool_schema
from occamroute.serving.running import Options, service_from
from occamroute.storage import read, write

CLASSES = ("0", "1")
EASY = ["apple", "pear", "plum", "fig", "kiwi", "lime"]
HARD = ["integral", "matrix", "tensor", "lemma", "proof", "norm"]


def questions(number: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts whose words say how hard they are, and their labels, which they hold too."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for row in range(number):
        hard, label = random.random() < 0.5, str(random.integers(2))
        words = " ".join(random.choice(HARD if hard else EASY, 6))
        texts.append(f"{words} {row} #{label}{'?' if hard else '.'}")
        labels.append(label)
    return texts, labels


class Model:
    """A classifier that is often wrong on hard texts, and counts what it is asked."""

    def __init__(self, name: str, cost: float, wrong: float) -> None:
        self.name, self.cost, self.wrong, self.asked = name, cost, wrong, 0

    def predict_proba(self, queries: Sequence[str]) -> Any:
        self.asked += len(queries)
        table = []
        for text in queries:
            label = int(text[text.index("#") + 1])
            chance = int.from_bytes(hashlib.sha256((self.name + text).encode()).digest()[:4]) / 2**32
            right = not (text.endswith("?") and chance < self.wrong)
            table.append([0.9, 0.1] if (label == 0) is right else [0.1, 0.9])
        return np.array(table)


def pool(*extractors: Any) -> oc.Pool:
    return oc.Pool([Model("small", 0.1, 0.6), Model("large", 1.0, 0.05)], CLASSES, extractors)


@pytest.fixture(scope="module")
def profile() -> oc.Profile:
    texts, labels = questions(300)
    return oc.profile(pool(), texts, labels, text=True, extractor="small")


@pytest.fixture(scope="module")
def only_text() -> oc.Profile:
    """The same outcomes with nothing to look at but texts."""
    texts, labels = questions(300)
    return oc.profile(pool(), texts, labels, text=True, extractor="text")


@pytest.fixture(scope="module")
def fitted() -> oc.TextFeatures:
    return oc.TextFeatures.fit(questions(300)[0])


ODD = [
    "", " ", "\n\n", "?", "words that nobody used before", "ÄÖÜ straße naïve", "東京はどこですか。", "مرحبا بالعالم",
    "👩‍👩‍👧 🏳️‍🌈", "\ud800 alone", "\x00 zero", "apple " * 3, "APPLE", "1234567890" * 5,
]  # fmt: skip


def test_a_text_has_the_same_features_alone_and_among_others(fitted: oc.TextFeatures) -> None:
    texts = [*questions(500, seed=1)[0], *ODD]
    together = fitted.extract(texts)
    assert together.shape == (len(texts), fitted.width)
    assert together.dtype == np.float32
    alone = np.vstack([fitted.extract([text]) for text in texts])
    assert alone.tobytes() == together.tobytes()
    backwards = fitted.extract(texts[::-1])[::-1]
    assert np.ascontiguousarray(backwards).tobytes() == together.tobytes()


def test_threads_see_the_same(fitted: oc.TextFeatures) -> None:
    texts = questions(200, seed=1)[0]
    with ThreadPoolExecutor(8) as threads:
        tables = list(threads.map(lambda _: fitted.extract(texts).tobytes(), range(16)))
        made = list(threads.map(lambda _: oc.TextFeatures.fit(texts).fingerprint, range(4)))
    assert len(set(tables)) == 1
    assert len(set(made)) == 1


IN_ANOTHER_PROCESS = """
import hashlib, json, sys, occamroute as oc
texts, again = json.load(sys.stdin)
fitted = oc.TextFeatures.fit(texts)
print(fitted.fingerprint, hashlib.sha256(fitted.extract(again).tobytes()).hexdigest())
"""


@pytest.mark.parametrize("threads", ["1", "4"])
def test_another_process_sees_the_same(fitted: oc.TextFeatures, threads: str) -> None:
    texts, again = questions(300)[0], [*questions(50, seed=2)[0], *ODD]
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS], input=json.dumps([texts, again]), capture_output=True, text=True,
        check=True, env={"OPENBLAS_NUM_THREADS": threads, "PYTHONHASHSEED": threads, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    digest = hashlib.sha256(fitted.extract(again).tobytes()).hexdigest()
    assert done.stdout.split() == [fitted.fingerprint, digest]


def test_unseen_words_and_empty_texts_count_by_their_shape(fitted: oc.TextFeatures) -> None:
    empty, unseen, long = fitted.extract(["", "zzz qqq", "zzz qqq " * 20])
    assert not empty[: fitted.words.directions.shape[1]].any()
    assert not unseen[: fitted.words.directions.shape[1]].any()
    assert (unseen != long).any()
    assert np.isfinite(fitted.extract(ODD)).all()


def test_a_huge_text_takes_no_time(fitted: oc.TextFeatures) -> None:
    huge = "apple integral " * 400_000
    began = time.perf_counter()
    row = fitted.extract([huge])
    assert time.perf_counter() - began < 5.0
    assert np.isfinite(row).all()
    assert np.abs(row).max() <= 2.0


def test_prompts_are_extracted_quickly(fitted: oc.TextFeatures) -> None:
    texts = [" ".join(np.random.default_rng(row).choice(EASY + HARD, 60)) for row in range(2_000)]
    began = time.perf_counter()
    fitted.extract(texts)
    assert time.perf_counter() - began < 3.0


@pytest.mark.parametrize(
    "texts",
    [["one"], ["", ""], ["same", "same"], ["a", "b"], ["entirely different", "nothing shared"], list("abcdefgh"), ODD],
    ids=["one", "empty", "equal", "letters", "different", "more letters", "odd"],
)
def test_few_or_odd_texts_can_be_fitted(texts: list[str]) -> None:
    made = oc.TextFeatures.fit(texts)
    table = made.extract([*texts, "something else"])
    assert table.shape == (len(texts) + 1, made.width)
    assert np.isfinite(table).all()
    said, numbers = made.stored()
    again = oc.TextFeatures.from_stored(json.loads(json.dumps(said)), numbers)
    assert again.extract(texts).tobytes() == made.extract(texts).tobytes()
    assert again.fingerprint == made.fingerprint


@pytest.mark.parametrize(
    ("queries", "wrong"),
    [
        ([1, 2], "text features need texts, got int as query 0."),
        (["a", None], "text features need texts, got NoneType as query 1."),
        (np.zeros((2, 3)), "text features need texts, got list as query 0."),
        ([b"a"], "text features need texts, got bytes as query 0."),
        ("one text", "text features need a sequence of texts, got str."),
        (7, "text features need a sequence of texts, got int."),
        ([], "text features need at least one text, got none."),
    ],
)
def test_what_is_no_text_is_refused_in_a_sentence(fitted: oc.TextFeatures, queries: Any, wrong: str) -> None:
    for use in (oc.TextFeatures.fit, fitted.extract):
        with pytest.raises(oc.InvalidInputError) as error:
            use(queries)
        assert str(error.value) == wrong


def test_queries_that_are_no_texts_are_refused_before_a_call() -> None:
    asked = pool()
    with pytest.raises(oc.InvalidInputError, match="text features need texts, got int as query 0"):
        oc.profile(asked, [1, 2, 3], ["0", "1", "0"], text=True)
    assert asked["small"].asked == 0


def test_columns_and_arrays_of_texts_are_texts(fitted: oc.TextFeatures) -> None:
    texts = questions(5, seed=3)[0]
    wanted = fitted.extract(texts).tobytes()
    for form in (tuple(texts), np.array(texts), np.array(texts, object), iter(texts)):
        assert fitted.extract(form).tobytes() == wanted


def test_it_can_be_sent_to_a_worker(fitted: oc.TextFeatures) -> None:
    texts = questions(5, seed=3)[0]
    fitted.extract(texts)
    assert pickle.loads(pickle.dumps(fitted)).extract(texts).tobytes() == fitted.extract(texts).tobytes()  # noqa: S301


def test_a_table_of_prompts_and_outcomes_is_enough() -> None:
    texts, labels = questions(400)
    success = np.column_stack(
        [oc.success(one.predict_proba(texts), list(map(int, labels))) for one in pool().classifiers]
    )
    profile = oc.Profile(("small", "large"), (0.1, 1.0), success=success, texts=texts)
    new, _ = questions(200, seed=1)
    plan = oc.plan(profile, new, budget=110)
    assert plan.made_from["extractor"] == "text"
    assert plan.planned_cost <= 110
    oc.verify(plan)
    hard = np.array([text.endswith("?") for text in new])
    assert (plan.choice[hard] == 1).mean() > 0.9
    assert (plan.choice[~hard] == 0).mean() > 0.8
    blind = oc.plan(profile, None, budget=110, n_queries=200)
    assert plan.expected_accuracy > blind.expected_accuracy + 0.05


def test_without_features_mixtures_are_planned(tmp_path: Path) -> None:
    success = (np.random.default_rng(0).random((50, 2)) < (0.5, 0.9)).astype(float)
    profile = oc.Profile(("small", "large"), (1, 10), success=success)
    assert profile.feature_sets == {}
    plan = oc.plan(profile, None, budget=400, n_queries=100)
    assert plan.usage["large"] == 33
    assert len(oc.plan(profile, None, budget=400, ids=[f"q{row}" for row in range(70)])) == 70
    assert len(oc.plan(profile, None, budget=400, costs=np.ones((20, 2)))) == 20
    assert len(oc.fit(profile, budgets=[400], n_queries=100).plan(None, budget=400)) == 100
    oc.save(profile, tmp_path / "profile.parquet")
    again = oc.load(tmp_path / "profile.parquet")
    assert again.fingerprint == profile.fingerprint
    assert again.features is None
    assert again.ids == profile.ids
    assert "none" in repr(again)
    assert oc.doctor(profile).skipped["smoothness"] == "the profile has no features"
    with oc.Router(profile, budget=400, arrivals=100) as router:
        assert router.extractor is None
        router.add_rows(oc.Profile(("small", "large"), (1, 10), success=1 - success))
        assert len(router.snapshot.profile) == 100
    for wrong, sentence in (
        (lambda: oc.plan(profile, None, budget=400), "give n_queries"),
        (lambda: oc.plan(profile, np.ones((3, 2)), budget=400), "the profile has no features"),
        (lambda: oc.plan(profile, ["a text"], budget=400), "the profile has no text features"),
        (lambda: oc.plan(profile, None, budget=400, n_queries=0), "n_queries must be"),
        (lambda: oc.plan(profile, None, budget=400, ids=["a"], n_queries=2), "n_queries must be the number of queries"),
        (lambda: oc.Profile(("small",), (1,)), "success must be given"),
    ):
        with pytest.raises(oc.InvalidInputError, match=sentence):
            wrong()


def test_stored_with_the_profile_bit_for_bit(profile: oc.Profile, tmp_path: Path) -> None:
    oc.save(profile, tmp_path / "profile.parquet")
    again = oc.load(tmp_path / "profile.parquet")
    assert again.fingerprint == profile.fingerprint
    assert again.text is not None
    assert profile.text is not None
    texts = [*questions(100, seed=1)[0], *ODD]
    assert again.text.extract(texts).tobytes() == profile.text.extract(texts).tobytes()
    # What is stored are the features of the labelled texts themselves.
    assert profile.text.extract(questions(300)[0]).tobytes() == again.feature_sets["text"].tobytes()
    assert list(again.feature_sets) == ["small", "text", "small+text"]
    assert "features:small+text" not in pq.read_schema(tmp_path / "profile.parquet").names
    first, second = again.split(0.5)
    assert first.text is again.text
    assert list(second.select(["large"]).feature_sets) == ["small", "text", "small+text"]


def test_text_features_of_earlier_versions_give_the_same() -> None:
    """The file was written once; what it holds must be read and mean the same for ever."""
    old = oc.load(Path(__file__).parent / "old_files" / "text-profile.parquet")
    assert old.text is not None
    table = old.text.extract(questions(40)[0])
    # To the last bit on one kind of processor; others may round a sum of products otherwise.
    np.testing.assert_allclose(table, old.feature_sets["text"], atol=1e-6)


def test_a_profile_without_texts_is_stored_as_before(profile: oc.Profile) -> None:
    plain = oc.Profile(profile.names, profile.costs, profile.feature_sets["small"], profile.success)
    parts = plain.parts()
    assert "text" not in parts.metadata
    assert not any("text" in column for column in parts.columns)


@pytest.mark.parametrize(
    "damage",
    [
        lambda parts: parts.columns.pop("text features"),
        lambda parts: parts.columns["text features"].__setitem__((0, 0), 7.0),
        lambda parts: parts.columns["text features"].__setitem__((-1, -1), np.nan),
        lambda parts: parts.metadata["text"]["words"]["terms"].pop(),
        lambda parts: parts.metadata["text"]["words"]["terms"].__setitem__(0, "changed"),
        lambda parts: parts.metadata["text"]["center"].pop(),
        lambda parts: parts.metadata["text"].pop("characters"),
        lambda parts: parts.metadata["text"].update(format=2),
        lambda parts: parts.metadata["text"].update(name="other"),
        lambda parts: parts.metadata.pop("text"),
    ],
)
def test_damage_is_found(profile: oc.Profile, tmp_path: Path, damage: Any) -> None:
    oc.save(profile, tmp_path / "profile.parquet")
    parts = read(tmp_path / "profile.parquet")
    parts.columns["text features"] = parts.columns["text features"].copy()
    damage(parts)
    write(parts, tmp_path / "damaged.parquet")
    with pytest.raises(oc.StorageError):
        oc.load(tmp_path / "damaged.parquet")


def test_the_planner_offers_texts_alone_and_beside_an_extractor(profile: oc.Profile) -> None:
    new, _ = questions(100, seed=1)
    planner = oc.fit(profile, budgets=(), n_queries=100)
    assert {one.extractor for one in planner.candidates} == {None, "small", "text", "small+text"}
    assert profile.extraction_costs == {"small": 0.1, "text": 0.0, "small+text": 0.1}
    own = pool()["small"].predict_proba(new).astype(np.float32)
    both = planner.plan({"small": own, "text": new}, budget=55)
    assert both.made_from["extractor"] in ("text", "small+text")
    asked: list[str] = []

    def features(name: str) -> Any:
        asked.append(name)
        return new if name == "text" else own

    assert (planner.plan(features, budget=55).choice == both.choice).all()
    assert "small+text" not in asked
    # What is paid is paid once: with the joined set the extractor's own answer is free, as with its own set.
    for name, overhead, free in (("text", 0, False), ("small+text", 0.1, True)):
        costs, amount = charged(profile, name, None, 100)
        assert float(amount) == overhead
        assert (costs[0] == 0.0) is np.bool_(free)
    with pytest.raises(oc.InvalidInputError, match="as many rows"):
        planner.plan({"small": own, "text": new[:-1]}, budget=55)


def test_classify_with_text_features_calls_and_holds_nothing_for_them(only_text: oc.Profile) -> None:
    new, labels = questions(200, seed=1)
    asked, ledger = pool(), oc.open_ledger("memory:", cap=1000)
    assert forecast(asked, only_text, new, budget=110).extraction_cost == 0.0
    run = oc.classify(asked, only_text, new, budget=110, ledger=ledger)
    assert run.plan is not None
    assert run.plan.made_from["extractor"] == "text"
    # Every query was answered by one call of one classifier, and nothing else was bought or held.
    assert asked["small"].asked + asked["large"].asked == 200
    assert float(ledger.balance().spent) == pytest.approx(run.spent)
    assert run.spent == pytest.approx(0.1 * asked["small"].asked + 1.0 * asked["large"].asked)
    assert np.mean(run.answers == np.array(labels)) > 0.9
    again = oc.execute(run.plan, pool(), new)
    assert again.answers.tolist() == run.answers.tolist()


class Peculiar(Model):
    """Right on easy texts where it is sure, and on hard ones where it is not: text and answer tell it together."""

    def predict_proba(self, queries: Sequence[str]) -> Any:
        table = super().predict_proba(queries)
        for row, text in enumerate(queries):
            sure = hashlib.sha256(text.encode()).digest()[0] % 2 == 0
            right = sure is not text.endswith("?")
            most = 0.9 if sure else 0.6
            table[row] = [most, 1 - most] if (text[text.index("#") + 1] == "0") is right else [1 - most, most]
        return table


def peculiar_pool() -> oc.Pool:
    return oc.Pool([Peculiar("small", 0.1, 0.0), Model("large", 1.0, 0.0)], CLASSES)


def test_classify_with_both_pays_the_extractor_once(tmp_path: Path) -> None:
    texts, labels = questions(600)
    profile = oc.profile(peculiar_pool(), texts, labels, text=True, extractor="small")
    new, wanted = questions(200, seed=1)
    asked = peculiar_pool()
    run = oc.classify(asked, profile, new, budget=120)
    assert run.plan is not None
    assert run.plan.made_from["extractor"] == "small+text"
    assert run.plan.made_from["paid_extractor"] == "small"
    assert asked["small"].asked == 200
    assert run.spent == pytest.approx(20 + asked["large"].asked)
    assert np.mean(run.answers == np.array(wanted)) > 0.9
    assert oc.execute(run.plan, peculiar_pool(), new).spent == pytest.approx(run.spent)
    own = peculiar_pool()["small"].predict_proba(new)
    given = oc.execute(run.plan, peculiar_pool(), new, features={"small": own})
    assert given.answers.tolist() == run.answers.tolist()
    assert given.spent == pytest.approx(run.spent - 20)
    (tmp_path / "queries").mkdir()
    pq.write_table(pa.table({"text": new}), tmp_path / "queries" / "part-0.parquet")
    stored = oc.classify(peculiar_pool(), profile, tmp_path / "queries", budget=120, out=tmp_path / "answers")
    assert stored.block(0).choice.tolist() == run.choice.tolist()
    assert stored.spent == pytest.approx(run.spent)


@pytest.mark.parametrize("kept", ["profile", "only_text"])
def test_a_run_in_blocks_chooses_the_same(kept: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    profile: oc.Profile = request.getfixturevalue(kept)
    new, _ = questions(120, seed=1)
    whole = oc.classify(pool(), profile, new, budget=66)
    parts = oc.classify(pool(), profile, new, budget=66, out=tmp_path / "run")
    assert parts.spent == pytest.approx(whole.spent)
    assert parts.block(0).choice.tolist() == whole.choice.tolist()
    (tmp_path / "queries").mkdir()
    pq.write_table(pa.table({"text": new}), tmp_path / "queries" / "part-0.parquet")
    stored = oc.classify(pool(), profile, tmp_path / "queries", budget=66, out=tmp_path / "answers")
    assert stored.spent <= 66
    assert stored.block(0).choice.tolist() == whole.choice.tolist()


def test_a_run_goes_on_from_its_journal(profile: oc.Profile, tmp_path: Path) -> None:
    new, _ = questions(60, seed=1)
    first = oc.classify(pool(), profile, new, budget=33, journal=tmp_path / "run.journal")
    asked = pool()
    again = oc.classify(asked, profile, new, budget=33, journal=tmp_path / "run.journal")
    assert asked["small"].asked == asked["large"].asked == 0
    assert again.answers.tolist() == first.answers.tolist()


@pytest.mark.parametrize("extractor", ["text", "small+text"])
def test_router_and_answerer_look_at_texts(profile: oc.Profile, extractor: str) -> None:
    new, labels = questions(60, seed=1)
    asked = pool()
    with (
        oc.Router(profile, budget=1000, arrivals=1000, extractor=extractor) as router,
        oc.Answerer(router, asked) as answerer,
    ):

        async def all_of_them() -> list[Any]:
            return [await answerer.classify(query) for query in new]

        answers = asyncio.run(all_of_them())
        balance = router.ledger.balance()
        assert balance.spent == sum((one.cost for one in answers), Decimal(0))
        paid = {call.name for one in answers for call in one.calls}
        if extractor == "text":
            assert all(len(one.calls) == 1 for one in answers)
            assert router.route(new[0]).features.tobytes() == answers[0].decision.features.tobytes()
            with pytest.raises(oc.InvalidInputError, match="are needed to decide"):
                router.route()
        else:
            assert asked["small"].asked == 60
            own = asked["small"].predict_proba(new[:1])[0].astype(np.float32)
            made = router.route({"small": own, "text": new[0]})
            assert made.features.tobytes() == answers[0].decision.features.tobytes()
            given = asyncio.run(answerer.classify(new[0], features=own))
            assert {call.name for call in given.calls} <= {"large"}
            with pytest.raises(oc.InvalidInputError, match="must be the 2 numbers of 'small'"):
                router.route({"small": [0.1, 0.2, 0.3], "text": new[0]})
        assert paid <= {"small", "large"}
        assert np.mean([one.label == label for one, label in zip(answers, labels, strict=True)]) > 0.8
        spent = router.ledger.balance().spent
        with pytest.raises(oc.InvalidInputError, match="text features need texts"):
            asyncio.run(answerer.classify(17))
        assert router.ledger.balance().spent == spent
        huge = asyncio.run(answerer.classify("apple " * 50_000 + "#1."))
        assert huge.label == "1"


def test_new_rows_have_the_same_text_features(profile: oc.Profile, only_text: oc.Profile, tmp_path: Path) -> None:
    texts, _ = questions(40, seed=5)
    more = oc.Profile(
        only_text.names, only_text.costs, success=np.ones((40, 2)), texts=texts, text=only_text.text,
        labels=np.zeros(40, int), classes=CLASSES,
    )  # fmt: skip
    for _ in range(2):  # the second router goes on where the first one stopped
        with oc.Router(only_text, budget=100, arrivals=100, extractor="text", state=tmp_path / "state") as router:
            router.add_rows(more)
            assert len(router.snapshot.profile) == 340
            router.route(texts[0])
    other = oc.Profile(
        only_text.names, only_text.costs, success=np.ones((40, 2)), texts=texts, labels=np.zeros(40, int),
        classes=CLASSES,
    )  # fmt: skip
    with (
        oc.Router(only_text, budget=100, arrivals=100, extractor="text") as router,
        pytest.raises(oc.InvalidInputError, match=r"text=profile\.text"),
    ):
        router.add_rows(other)


def test_compare_needs_the_same_text_features(only_text: oc.Profile) -> None:
    first, second = only_text.split(0.5)
    report = oc.compare(first, second, budgets=[80.0], methods=("mixture", "auto"))
    assert {row["method"]: row["accuracy"] for row in report.rows}.keys() >= {"mixture", "auto"}
    other = oc.Profile(
        second.names, second.costs, success=second.success, texts=questions(len(second), seed=9)[0],
        labels=second.labels, classes=CLASSES,
    )  # fmt: skip
    with pytest.raises(oc.InvalidInputError, match="text"):
        oc.compare(first, other, budgets=[80.0])


def test_a_service_looks_at_texts(profile: oc.Profile, tmp_path: Path) -> None:
    new, labels = questions(5, seed=1)
    own = pool()["small"].predict_proba(new).tolist()
    for extractor, needed in (("text", []), ("small+text", ["features", "query"])):
        (state := tmp_path / extractor).mkdir()
        options = Options(budget=200, window="day", arrivals=1000.0, extractor=extractor, state=state)
        with world.served(service_from(profile, pool(), options)) as client:
            answer = client.post("/v1/classify", json={"query": new[0]}).json()
            assert answer["label"] == labels[0]
            assert {call["classifier"] for call in answer["calls"]} <= {"small", "large"}
            sent: dict[str, Any] = {"query": new[1]} | ({"features": own[1]} if needed else {})
            decided = client.post("/v1/route", json={**sent, "hold": True}, headers={"Idempotency-Key": "a"})
            assert decided.status_code == 200
            assert client.post("/v1/route", json={**sent, "hold": True}, headers={"Idempotency-Key": "a"}).content == (
                decided.content
            )
            assert client.post("/v1/route", json={}).status_code == 422
            schema = client.get("/openapi.json").json()["components"]["schemas"]["RouteRequest"]
            assert sorted(schema.get("required", [])) == needed
            long = client.post("/v1/route", json={**sent, "query": "apple " * 2_000})
            assert long.status_code == 200
    (state := tmp_path / "small").mkdir()
    options = Options(budget=200, window="day", arrivals=1000.0, extractor="small", state=state)
    with world.served(service_from(profile, pool(), options)) as client:
        refused = client.post("/v1/route", json={"query": new[0], "features": own[0]})
        assert refused.status_code == 422
        assert "texts of queries are not looked at" in refused.json()["detail"]
        assert "query" not in client.get("/openapi.json").json()["components"]["schemas"]["RouteRequest"]["properties"]


POOL_FILE = """
classes = ["0", "1"]

[classifiers.small]
kind = "callable"
function = "text_models:small"
cost = 0.1

[classifiers.large]
kind = "callable"
function = "text_models:large"
cost = 1.0

[extractors.words]
kind = "text"
"""
MODELS = """
def small(texts):
    return [str(int(text.endswith("?")) ^ int(text[text.index("#") + 1])) for text in texts]


def large(texts):
    return [text[text.index("#") + 1] for text in texts]
"""


def test_a_pool_file_may_hold_text_features(tmp_path: Path) -> None:
    (tmp_path / "text_models.py").write_text(MODELS)
    (tmp_path / "occamroute.toml").write_text(POOL_FILE)
    members = oc.read_pool(tmp_path / "occamroute.toml")
    texts, labels = questions(200)
    profile = oc.profile(members, texts, labels)
    assert list(profile.stored_sets) == ["small", "large", "words"]
    assert profile.text is not None
    assert profile.text.name == "words"
    assert profile.extraction_costs["words"] == 0
    oc.save(profile, tmp_path / "profile.parquet")
    new, wanted = questions(100, seed=1)
    run = oc.classify(members, oc.load(tmp_path / "profile.parquet"), new, budget=60)
    assert run.answers.tolist() == wanted
    with pytest.raises(oc.InvalidInputError, match="has to be fitted"):
        members["words"].extract(new)
    kinds = {one["properties"]["kind"]["const"]: one for one in pool_schema()["properties"]["extractors"]
             ["additionalProperties"]["oneOf"]}  # fmt: skip
    assert kinds["text"]["required"] == ["kind"]
    assert "cost" in kinds["callable"]["required"]
    (tmp_path / "occamroute.toml").write_text(POOL_FILE + "cost = 0.1\n")
    with pytest.raises(oc.InvalidInputError, match=r"line .*cost of text features must be 0"):
        oc.read_pool(tmp_path / "occamroute.toml")


def test_a_pool_may_hold_fitted_text_features(fitted: oc.TextFeatures) -> None:
    texts, labels = questions(100)
    profile = oc.profile(pool(fitted), texts, labels, extractor="text")
    assert profile.text is fitted
    assert list(profile.stored_sets) == ["text"]
    with pytest.raises(oc.InvalidInputError, match="one set of text features"):
        oc.profile(pool(fitted, oc.TextFeatures.fit(texts, name="more")), texts, labels)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"text": "words"}, "must be made by oc.TextFeatures.fit"),
        ({"text": oc.TextFeatures.fit(["a b", "a c"])}, "goes with a feature set 'text'"),
        ({"texts": ["one"] * 3, "features": {"text": np.ones((2, 1))}}, "features hold a set 'text' already"),
        ({"texts": ["one"] * 3}, "must have one row for each of the 2 of success"),
        ({"texts": ["a", "b"], "features": {"x": [[1], [2]], "x+text": [[1], [2]]}, "extractor_cost": 0}, "rename it"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(oc.InvalidInputError, match=wrong):
        oc.Profile(("small", "large"), (1, 2), success=np.ones((2, 2)), **options)
