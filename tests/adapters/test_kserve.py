"""Classifiers behind the Open Inference Protocol, against a strict server with real models."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from servers import Server, kserve_server
from sklearn.datasets import load_iris

import occamroute as oc
from occamroute.adapters.kserve import KServeClassifier
from occamroute.errors import CallLostError, CallRefusedError, UnavailableError
from occamroute.pool import Measured, PerToken
from occamroute.testing import check_classifier

FLOWERS = ("setosa", "versicolor", "virginica")
ANIMALS = ("cat", "dog", "eel")
TEXTS = ["the cat sleeps", "a dog barks", "an eel", "dog, cat 🐈\x00"]
DATA, TARGET = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with kserve_server() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    meet(running, "")
    return running


def meet(server: Server, fault: str) -> None:
    """From now on this fault, and a count of nothing."""
    server.ask("POST", "/control", {"fault": fault})


def model(server: Server, name: str = "iris", **options: Any) -> KServeClassifier:
    classes = options.pop("classes", ANIMALS if name in ("texts", "column") else FLOWERS)
    cost = options.pop("cost", 0.25)
    known = {"classes": classes, "base_url": server.url, "model": name, "timeout": 5.0}
    return KServeClassifier(name, cost, **{**known, **options})


def test_flowers_are_told_apart(server: Server) -> None:
    """Names, types and the right one of two outputs come from metadata, batches from the data."""
    table = model(server).predict_proba(DATA)
    assert table.shape == (150, 3)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    assert (table.argmax(axis=1) == TARGET).mean() > 0.95
    assert server.ask("GET", "/count") == {"calls": 5, "queries": 150}
    np.testing.assert_allclose(model(server, "logits", activation="logits").predict_proba(DATA), table, atol=1e-6)


def test_all_kinds_of_queries(server: Server) -> None:
    """Lists of arrays, whole numbers, texts in a row or in a column, and versions."""
    flowers = model(server, "logits", activation="logits")
    whole = np.rint(DATA[:9]).astype(np.int32)
    np.testing.assert_allclose(flowers.predict_proba(whole), flowers.predict_proba(list(whole.astype(np.float32))))
    rows, column, old = model(server, "texts"), model(server, "column"), model(server, "texts", version="2")
    table = rows.predict_proba(TEXTS)
    assert list(table[:3].argmax(axis=1)) == [0, 1, 2]
    for other in (column, old):
        np.testing.assert_array_equal(other.predict_proba(TEXTS), table)
    np.testing.assert_array_equal(rows.predict_proba(np.array(TEXTS[:3])), table[:3])


def test_it_keeps_the_contract_of_classifiers(server: Server) -> None:
    """The suite that every classifier passes."""
    check_classifier(model(server), DATA[::10], FLOWERS)
    check_classifier(model(server, cost=Measured(3.6)), DATA[::10], FLOWERS)
    check_classifier(model(server, "texts"), TEXTS, ANIMALS)


def test_what_is_named_is_not_asked_for(server: Server) -> None:
    """With input, output and type given, a server without metadata does; without, the queries' own type."""
    meet(server, "metadata")
    table = model(server, input="flowers", output="probabilities", datatype="FP32").predict_proba(DATA[:3])
    with pytest.raises(CallRefusedError, match="answered 500: not ready"):
        model(server).answer(DATA[:3])
    meet(server, "")
    np.testing.assert_allclose(model(server, "bare", output="probabilities").predict_proba(DATA[:3]), table, atol=1e-6)


def test_an_output_of_labels_is_certain(server: Server) -> None:
    """One value a query names the label; one that is none of them is a paid failure."""
    table = model(server, "labels").predict_proba(DATA[:60])
    assert set(table.reshape(-1)) == {0.0, 1.0}
    answers = model(server, "labels", classes=("rose", "setosa")).answer(DATA[[0, 149]])
    assert answers.probabilities[0].tolist() == [0.0, 1.0]
    assert answers.failures == {1: "'labels' answered with none of the labels"}
    assert answers.cost == [Fraction(1, 4)] * 2


def test_costs(server: Server) -> None:
    """A number a query, or the call's time shared by its queries."""
    assert model(server, cost=0.1).answer(DATA[:4]).cost == [Fraction(1, 10)] * 4
    begun = time.monotonic()
    cost = model(server, cost=Measured()).answer(DATA[:4]).cost
    assert isinstance(cost, list)
    assert 0 < sum(cost) < time.monotonic() - begun
    assert len(set(cost)) == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("429", CallRefusedError), ("500", CallLostError), ("garbage", CallLostError), ("hang", CallLostError)],
)
def test_faults(server: Server, fault: str, kind: type[oc.OccamError]) -> None:
    """Refused where nothing was charged, lost where nobody knows; within the limit of time."""
    classifier = model(server, timeout=0.5)
    classifier.answer(DATA[:2])
    meet(server, fault)
    begun = time.monotonic()
    with pytest.raises(kind):
        classifier.answer(DATA[:2])
    assert time.monotonic() - begun < 5.0
    with pytest.raises(kind):
        asyncio.run(classifier.aanswer(DATA[:2]))


def test_a_query_that_is_turned_away_fails_alone(server: Server) -> None:
    """The others of its call are answered; it costs nothing, as no model saw it."""
    texts = [*TEXTS, "a taboo cat", *TEXTS]
    answers = model(server, "texts").answer(texts)
    assert answers.failures == {4: "'texts' answered 400: the word taboo is not allowed"}
    assert answers.cost == [Fraction(1, 4)] * 4 + [Fraction(0)] + [Fraction(1, 4)] * 4
    assert server.ask("GET", "/count")["queries"] == 8
    np.testing.assert_array_equal(answers.probabilities[:4], answers.probabilities[5:])


def test_half_a_call_that_was_charged_is_not_refused(server: Server) -> None:
    """Something is on the bill, so the whole call is lost."""
    classifier = model(server, "texts")
    classifier.answer(TEXTS)
    meet(server, "second429")
    with pytest.raises(CallLostError, match="slow down"):
        classifier.answer([*TEXTS, "a taboo cat", *TEXTS])


def test_an_output_that_does_not_fit_is_paid_once(server: Server) -> None:
    """The first call may have been charged; after that, none is made."""
    classifier = model(server, classes=("a", "b"), output="probabilities")
    with pytest.raises(CallLostError, match="has 12 values for 4 queries, not 2"):
        classifier.answer(DATA[:4])
    with pytest.raises(UnavailableError, match="cannot be used: its output has 12 values for 4 queries, not 2"):
        classifier.answer(DATA[:4])
    assert server.ask("GET", "/count")["calls"] == 1


def test_numbers_that_are_no_probabilities(server: Server) -> None:
    """Logits and NaN are failures of their rows, which are paid."""
    answers = model(server, "logits").answer(DATA[:2])
    assert "if these are logits, say so" in answers.failures[0]
    assert np.isfinite(answers.probabilities).all()
    meet(server, "nan")
    answers = model(server).answer(DATA[:2])
    assert answers.failures == {0: "'iris' answered with a probability of nan"}
    assert answers.cost == [Fraction(1, 4)] * 2


def test_what_can_never_succeed_is_unavailable(server: Server) -> None:
    """No such model, no such version, two inputs, an output that is not there."""
    for classifier, sentence in (
        (model(server, "nothing"), "answered 404: no model nothing"),
        (model(server, "texts", version="9"), "answered 404"),
        (model(server, "pair"), "has the inputs a, b: name one of them as input"),
        (model(server, output="scores"), "has the outputs label, probabilities: name one of them as output"),
        (model(server, classes=("a", "b")), "has the outputs"),
    ):
        with pytest.raises(UnavailableError, match=sentence):
            classifier.answer(DATA[:1])


def test_queries_that_do_not_fit(server: Server) -> None:
    """Texts for numbers, NaN, rows of several lengths, too many at once."""
    for queries, sentence in (
        (["a"], "takes FP32, got texts"),
        (np.array([[np.nan] * 4]), "must be finite"),
        ([[1.0], [1.0, 2.0]], "must be of one shape"),
        ([None], "numbers or texts, got object"),
        (DATA[:33], "takes 1 to 32 queries a call, got 33"),
        (DATA[:0], "got 0"),
    ):
        with pytest.raises(oc.InvalidInputError, match=sentence):
            model(server).answer(queries)
    assert "answered 400" in model(server).answer(DATA[:1, :2]).failures[0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cost": PerToken(1, 2)}, "its model counts no tokens"),
        ({"datatype": "FLOAT"}, "datatype .* got 'FLOAT'"),
        ({"activation": "softmax"}, "activation .* got 'softmax'"),
        ({"batch_size": 0}, "batch_size .* got 0"),
        ({"key_env": "NO_SUCH_KEY"}, "'NO_SUCH_KEY', which is not set"),
    ],
)
def test_options_that_make_no_sense(server: Server, options: dict[str, Any], sentence: str) -> None:
    """One sentence each."""
    with pytest.raises(oc.InvalidInputError, match=sentence):
        model(server, **options)


def test_sixteen_threads_share_one_classifier(server: Server) -> None:
    """From the first call on, which asks for metadata."""
    classifier = model(server, timeout=20)
    with ThreadPoolExecutor(16) as threads:
        tables = list(threads.map(lambda row: classifier.predict_proba(DATA[[row]]), range(150)))
    np.testing.assert_allclose(np.concatenate(tables), model(server).predict_proba(DATA), atol=1e-12)
