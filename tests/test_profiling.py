"""Profiles of live pools: what is recorded, measured, marked, and not lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamroute as oc

CLASSES = ("cat", "dog")
QUERIES = [f"{'meow' if row % 3 else 'woof'} {row}" for row in range(60)]
LABELS = ["cat" if row % 3 else "dog" for row in range(60)]


def by_sound(texts: list[str]) -> list[str]:
    return ["cat" if "meow" in text else "dog" for text in texts]


class Picky:
    """It cannot read some of the queries."""

    name, cost, batch_size = "picky", 2.5, 16

    def __init__(self, *bad: int) -> None:
        self.bad = {f" {row}" for row in bad}
        self.asked: list[str] = []

    def predict_proba(self, texts: list[str]) -> Any:
        self.asked += texts
        for text in texts:
            if text[4:] in self.bad:
                raise ValueError(f"cannot read {text!r}")
        return np.array([[0.9, 0.1] if "meow" in text else [0.2, 0.8] for text in texts])


def pool_of(*more: Any, extractors: Any = ()) -> oc.Pool:
    rules = oc.classifier("rules", by_sound, classes=CLASSES, cost=0.5)
    guess = oc.classifier("guess", lambda texts: ["cat"] * len(texts), classes=CLASSES, cost=0)
    return oc.Pool([guess, rules, *more], CLASSES, extractors)


def test_a_profile_holds_what_was_seen() -> None:
    """Success, probabilities, labels, ids and typed costs, the cheapest three as extractors."""
    profile = oc.profile(pool_of(Picky()), QUERIES, LABELS, ids=[f"q{row}" for row in range(60)])
    assert profile.names == ("guess", "rules", "picky")
    np.testing.assert_array_equal(profile.costs, [0, 0.5, 2.5])
    np.testing.assert_allclose(profile.accuracy, [40 / 60, 1, 1], atol=1e-6)
    assert list(profile.feature_sets) == ["guess", "rules", "picky"]
    assert profile.classes == CLASSES
    assert profile.ids[3] == "q3"
    assert profile.made_from["costs"]["rules"]["kind"] == "typed"
    assert profile.made_from["costs"]["rules"]["calls"] == 2  # a small one first
    assert profile.made_from["failures"] == {}
    np.testing.assert_allclose((profile.probabilities or {})["picky"][0], [0.2, 0.8], atol=1e-6)


def test_a_query_that_fails_is_recorded(tmp_path: Path) -> None:
    """It counts as not answered, its neighbours are not lost, and the file says why."""
    picky = Picky(7, 30)
    profile = oc.profile(pool_of(picky), QUERIES, LABELS, extractor="rules")
    assert len(profile) == 60
    column = profile.names.index("picky")
    assert np.flatnonzero(profile.success[:, column] < 0.5).tolist() == [7, 30]
    oc.save(profile, tmp_path / "p.parquet")
    again = oc.load(tmp_path / "p.parquet")
    assert again.fingerprint == profile.fingerprint
    reasons = again.made_from["failures"]["picky"]
    assert list(reasons) == ["7", "30"]
    assert "cannot read 'meow 7'" in reasons["7"]


def test_a_query_without_features_is_left_out() -> None:
    """What its extractor fails on cannot be planned from; it is listed."""
    profile = oc.profile(pool_of(Picky(7)), QUERIES, LABELS, extractor="picky")
    assert len(profile) == 59
    assert "7" not in profile.ids
    assert list(profile.made_from["failures"]["picky"]) == ["7"]


def test_extractors_of_their_own() -> None:
    """An extractor gives a feature set under its name, at its own cost."""

    class Length:
        name, cost = "length", 0.125

        def extract(self, texts: list[str]) -> Any:
            return [[len(text), "m" in text] for text in texts]

    profile = oc.profile(pool_of(extractors=[Length()]), QUERIES, LABELS)
    assert profile.feature_sets["length"].shape == (60, 2)
    assert profile.extraction_costs["length"] == 0.125
    run = oc.classify(pool_of(extractors=[Length()]), profile, QUERIES, budget=30)
    assert run.exact_spent <= 30
    assert (run.answers == np.array(LABELS)).mean() > 0.9


def test_a_profile_goes_on(tmp_path: Path) -> None:
    """What was answered before an interruption is not asked again."""

    class Death(BaseException):
        pass

    def progress(done: int, total: int) -> None:
        if done > 20:
            raise Death

    class Unhurried(Picky):
        def predict_proba(self, queries: Any) -> Any:
            time.sleep(0.1)  # or all is answered before a busy machine hears of the first answers
            return super().predict_proba(queries)

    picky = Unhurried()
    with pytest.raises(Death):
        oc.profile(pool_of(picky), QUERIES, LABELS, journal=tmp_path / "j", progress=progress)
    before = len(picky.asked)
    assert before < 60
    profile = oc.profile(pool_of(picky), QUERIES, LABELS, journal=tmp_path / "j")
    assert len(picky.asked) <= 60 + 16
    assert profile.fingerprint == oc.profile(pool_of(Picky()), QUERIES, LABELS).fingerprint
    with pytest.raises(oc.JournalError, match="another labels"):
        oc.profile(pool_of(picky), QUERIES, LABELS[::-1], journal=tmp_path / "j")


def test_a_budget_for_profiling() -> None:
    """Calls that would pass it are not made."""
    picky = Picky()
    with pytest.raises(oc.InvalidInputError, match="budget of 100 for profiling is used up: 'picky' still has"):
        oc.profile(pool_of(picky), QUERIES, LABELS, budget=100)
    assert len(picky.asked) * 2.5 + 60 * 0.5 <= 100


def test_classifiers_that_cannot_be_profiled() -> None:
    """One sentence for those that always fail, have other classes or give NaN."""

    class Wrong(Picky):
        def predict_proba(self, texts: list[str]) -> Any:
            return np.ones((len(texts), 3))

    class Nothing(Picky):
        def predict_proba(self, texts: list[str]) -> Any:
            return np.full((len(texts), 2), np.nan)

    cases = [
        (Wrong(), r"'picky' gives no answers: 'picky' must give probabilities of shape \(16, 2\), got \(16, 3\)"),
        (Nothing(), "'picky' gives no answers: probabilities that are NaN"),
        (Picky(*range(60)), "'picky' gives no answers: ValueError: cannot read"),
    ]
    for classifier, sentence in cases:
        with pytest.raises(oc.OccamError, match=sentence) as caught:
            oc.profile(pool_of(classifier), QUERIES, LABELS)
        assert "\n" not in str(caught.value)


def test_a_classifier_that_often_fails_is_no_extractor_by_default() -> None:
    """Its failures count against it, and do not take rows along."""
    profile = oc.profile(pool_of(Picky(*range(0, 60, 6))), QUERIES, LABELS)
    assert len(profile) == 60
    assert list(profile.feature_sets) == ["guess", "rules"]
    np.testing.assert_allclose(profile.accuracy[2], 50 / 60, atol=1e-6)


def test_bad_arguments_are_refused_before_anything_is_paid() -> None:
    """Labels and groups of the wrong form; and a budget that ends says so, whoever set it."""
    picky = Picky()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"labels": None}, "labels must be a sequence"),
        ({"labels": LABELS, "groups": range(59)}, r"groups must be of shape \(60,\), got \(59,\)"),
        ({"labels": LABELS, "groups": range(61)}, "groups must be"),
        ({"labels": LABELS, "groups": "one"}, "groups must be"),
    ]
    for arguments, sentence in cases:
        with pytest.raises(oc.InvalidInputError, match=sentence):
            oc.profile(pool_of(picky), QUERIES, **arguments)
    assert not picky.asked
    with pytest.raises(oc.InvalidInputError, match="what the ledger has left for profiling is used up"):
        oc.profile(pool_of(), QUERIES, LABELS, ledger=oc.open_ledger("memory:", cap=10))


def test_features_with_some_answers_only() -> None:
    """Where features come with some answers and not with others, those others count as failed: nothing is made up."""

    class Forgetful:
        name, cost, batch_size, calls = "forgetful", 1, 10, 0

        def answer(self, texts: list[str], timeout: float | None = None) -> oc.Answers:
            self.calls += 1
            features = None if self.calls == 3 else np.ones((len(texts), 2))
            return oc.Answers(np.full((len(texts), 2), 0.5), [1] * len(texts), features=features)

    profile = oc.profile(pool_of(Forgetful()), QUERIES, LABELS, extractor="forgetful")
    assert len(profile) == 50
    assert (profile.feature_sets["forgetful"] == 1).all()


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    """A classifier that was broken when a profile was begun is mended, and the same call then gets its answers."""

    class Mended(Picky):
        broken = True

        def predict_proba(self, texts: list[str]) -> Any:
            table = super().predict_proba(texts)
            return np.full_like(table, np.nan) if self.broken else table

    picky = Mended()
    with pytest.raises(oc.OccamError, match="'picky' gives no answers: probabilities that are NaN"):
        oc.profile(pool_of(picky), QUERIES, LABELS, journal=tmp_path / "j")
    picky.broken = False
    profile = oc.profile(pool_of(picky), QUERIES, LABELS, journal=tmp_path / "j")
    assert profile.fingerprint == oc.profile(pool_of(Picky()), QUERIES, LABELS).fingerprint
