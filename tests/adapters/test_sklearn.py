"""scikit-learn estimators as classifiers: real ones, trained here, from memory and from files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import skops.io
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OutputCodeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from occamroute.adapters import adapter, classifier
from occamroute.adapters.sklearn import SklearnClassifier
from occamroute.errors import InvalidInputError, MissingExtraError
from occamroute.pool import Measured, Pool
from occamroute.testing import check_classifier

DIGITS = tuple("0123456789")
TEXTS = ["a cat sat", "the dog barks", "cats purr", "dogs dig"] * 3
ANIMALS = ["cat", "dog", "cat", "dog"] * 3


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    """Handwritten digits: pixels (1797, 64) and labels."""
    pixels, labels = load_digits(return_X_y=True)
    return pixels, labels


@pytest.fixture(scope="module")
def saved(digits: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline trained on digits, in a .skops file."""
    path = tmp_path_factory.mktemp("models") / "digits.skops"
    skops.io.dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(digits[0][:1000], digits[1][:1000]), path)
    return path


def test_a_saved_pipeline_answers(saved: Path, digits: tuple[Any, Any]) -> None:
    """A .skops file keeps the contract and knows its digits."""
    made = SklearnClassifier("lr", 0.1, classes=DIGITS, path=saved)
    check_classifier(made, digits[0][1000:1040], DIGITS)
    right = made.predict_proba(digits[0][1000:]).argmax(axis=1) == digits[1][1000:]
    assert right.mean() > 0.9
    assert Pool([made], DIGITS).names == ("lr",)


def test_columns_follow_the_pool(saved: Path, digits: tuple[Any, Any]) -> None:
    """The pool's order counts, and a class that the estimator never saw gets 0."""
    order = (*reversed(DIGITS), "ten")
    plain = SklearnClassifier("lr", 0.1, classes=DIGITS, path=saved).predict_proba(digits[0][:5])
    other = SklearnClassifier("lr", 0.1, classes=order, path=saved).predict_proba(digits[0][:5])
    assert np.array_equal(other[:, :10], plain[:, ::-1])
    assert (other[:, 10] == 0.0).all()


@pytest.mark.parametrize(
    "estimator",
    [
        LinearSVC(),
        SVC(),
        RidgeClassifier(),
        SGDClassifier(random_state=0),
        OutputCodeClassifier(LinearSVC(), random_state=0),
        DecisionTreeClassifier(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize("labels", [2, 10])
def test_estimators_without_probabilities(estimator: Any, labels: int, digits: tuple[Any, Any]) -> None:
    """A decision function, or only labels, become probabilities whose highest is the estimator's label."""
    pixels, truth = digits[0][digits[1] < labels][:400] / 16.0, digits[1][digits[1] < labels][:400]
    made = classifier("any", estimator.fit(pixels, truth), classes=DIGITS)
    assert isinstance(made.cost, Measured)
    check_classifier(made, pixels[:20], DIGITS)
    assert np.array_equal(made.predict_proba(pixels).argmax(axis=1), estimator.predict(pixels))


@pytest.mark.parametrize("last", [LogisticRegression(), LinearSVC()], ids=["probabilities", "decision"])
def test_texts(last: Any) -> None:
    """A pipeline takes a list of texts as it is."""
    made = classifier("texts", make_pipeline(TfidfVectorizer(), last).fit(TEXTS, ANIMALS), classes=("dog", "cat"))
    check_classifier(made, TEXTS[:4], ("dog", "cat"))
    assert made.predict_proba(["the cat", "a dog digs"]).argmax(axis=1).tolist() == [1, 0]


def test_a_function_gives_the_estimator(tmp_path: Path) -> None:
    """A function in a module beside the pool file is called for the fitted estimator."""
    (tmp_path / "made_here_sk.py").write_text(
        "from sklearn.dummy import DummyClassifier\n\n\n"
        "def most():\n    return DummyClassifier().fit([[0], [1], [2]], ['b', 'b', 'a'])\n"
    )
    made = adapter("classifier", "sklearn")(
        "most", 1, classes=("a", "b"), function="made_here_sk:most", folder=tmp_path
    )
    assert made.predict_proba([[5]]).tolist() == [[1 / 3, 2 / 3]]


def test_pickles_are_refused(digits: tuple[Any, Any], tmp_path: Path) -> None:
    """By their name, and by how they begin under another name."""
    tree = DecisionTreeClassifier().fit(digits[0][:50], digits[1][:50])
    for number, name in enumerate(["m.joblib", "m.pkl", "renamed.skops", "zipped.skops"]):
        joblib.dump(tree, tmp_path / name, compress=3 if number == 3 else 0)
        with pytest.raises(InvalidInputError, match=r"is a pickle, and a pickle can run any code.*skops\.io\.dump"):
            SklearnClassifier("t", 1, classes=DIGITS, path=tmp_path / name)


def test_untrusted_types_are_named(digits: tuple[Any, Any], tmp_path: Path) -> None:
    """Types that skops does not know must be listed by whoever trusts the file."""
    path = tmp_path / "forest.skops"
    skops.io.dump(RandomForestClassifier(5, random_state=0).fit(digits[0][:100], digits[1][:100]), path)
    with pytest.raises(InvalidInputError, match=r"does not know as safe: sklearn\.tree\._tree\.Tree; list them"):
        SklearnClassifier("f", 1, classes=DIGITS, path=path)
    made = SklearnClassifier("f", 1, classes=DIGITS, path=path, trusted=("sklearn.tree._tree.Tree", "not.there"))
    check_classifier(made, digits[0][:10], DIGITS)


def test_one_sentence_errors(saved: Path, tmp_path: Path, digits: tuple[Any, Any]) -> None:
    """What is wrong is said when the classifier is made."""
    (tmp_path / "junk.skops").write_bytes(b"no model")
    (tmp_path / "model.txt").write_bytes(b"no model")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"path": tmp_path / "none.skops"}, "there is no such file"),
        ({"path": tmp_path / "junk.skops"}, "skops cannot read it"),
        ({"path": tmp_path / "model.txt"}, r"must be a \.skops file"),
        ({"path": saved, "function": "a:b"}, "exactly one of estimator, path, function, got path and function"),
        ({}, "exactly one of estimator, path, function, got none"),
        ({"estimator": LogisticRegression()}, "call fit of LogisticRegression"),
        ({"estimator": StandardScaler()}, "needs a fitted estimator with predict_proba, got StandardScaler"),
        ({"path": saved, "classes": DIGITS[:9]}, "classes that the pool lacks: '9'; the pool's 9 classes"),
        (
            {"estimator": DecisionTreeClassifier().fit(digits[0][:9], digits[0][:9, :2])},
            "must answer one question, got 2 outputs",
        ),
    ]
    for options, words in wrong:
        with pytest.raises(InvalidInputError, match=words) as caught:
            SklearnClassifier("lr", 1, **{"classes": DIGITS, **options})
        assert str(caught.value).endswith(".")
    with pytest.raises(InvalidInputError, match=r"must give \(n, 10\), one output for each class, got shape \(1, 3\)"):
        classifier("own", _Own(), classes=DIGITS).predict_proba([[0]])


class _Own:
    """Somebody's model, which says nothing of its classes."""

    def predict_proba(self, queries: Any) -> Any:
        return np.full((len(queries), 3), 1 / 3)


def test_its_own_order_is_the_pools() -> None:
    """A model without classes_ is taken to answer in the pool's order."""
    check_classifier(classifier("own", _Own(), classes="abc"), [[0], [1]], "abc")


def test_the_missing_library_is_named(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without skops, one sentence says what to install."""
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(MissingExtraError) as caught:
        SklearnClassifier("lr", 1, classes=tuple("0123456789"), path=saved)
    wanted = "a .skops file needs libraries that are not installed: pip install 'occamroute[sklearn]'."
    assert str(caught.value) == wanted
