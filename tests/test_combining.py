"""Combined answers: the extractor's probabilities averaged into another classifier's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import occamroute as oc
from occamroute.planning.combining import can_combine, combined_success, tuned_combination

FOLDS = [np.arange(3000)[number::3] for number in range(3)]


def pair(rows: int = 3000, *, seed: int = 0) -> oc.Profile:
    """Two classifiers whose errors are independent, so that they are better together, and a third without outputs."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, rows)
    truth = np.eye(4)[labels]
    tables = {}
    for name, strength in (("small", 1.0), ("large", 1.4)):
        logits = strength * truth + random.normal(size=(rows, 4))
        tables[name] = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    success = np.column_stack([*(oc.success(table, labels) for table in tables.values()), random.random(rows) < 0.5])
    return oc.Profile(
        ("small", "large", "mute"), (0.1, 1.0, 0.2), tables["small"], success, extractor="small", labels=labels,
        probabilities=tables,
    )  # fmt: skip


def test_combined_success_is_that_of_the_weighted_average() -> None:
    """Against a loop over rows; where the share is 0, the recorded success stays."""
    profile = pair(200)
    found = combined_success(profile, "small", np.array([0.0, 0.3, 0.0]))
    kept = profile.probabilities or {}
    labels = profile.labels
    assert labels is not None
    for row in range(200):
        mixed = 0.3 * kept["small"][row] + 0.7 * kept["large"][row]
        if np.diff(np.sort(mixed)[-2:]) > 0.01 * mixed.max():  # the soft success of a near tie lies between
            assert found[row, 1] == pytest.approx(float(mixed.argmax() == labels[row]), abs=0.001)
    assert np.array_equal(found[:, [0, 2]], profile.success[:, [0, 2]])


def test_shares_are_tuned_on_other_folds() -> None:
    """A row's combined success has the share that the other folds chose, never its own."""
    profile = pair()
    found = tuned_combination(profile, "small", FOLDS)
    assert found is not None
    assert found.weights[0] == found.weights[2] == 0.0
    assert 0.1 <= found.weights[1] <= 0.6
    assert found.final[:, 1].mean() > profile.accuracy[1] + 0.02
    assert found.success[:, 1].mean() == pytest.approx(found.final[:, 1].mean(), abs=0.01)
    # Change the labels of one fold: what its own rows were scored with stays what the others chose.
    labels = np.array(profile.labels)
    labels[FOLDS[0]] = (labels[FOLDS[0]] + 1) % 4
    kept = profile.probabilities or {}
    success = np.column_stack([*(oc.success(kept[name], labels) for name in ("small", "large")), profile.success[:, 2]])
    changed = replace(profile, labels=labels, success=success)
    other = tuned_combination(changed, "small", FOLDS)
    assert other is not None
    shares = [
        share for share in np.arange(10) / 10
        if np.allclose(
            combined_success(changed, "small", np.array([0, share, 0]))[FOLDS[0]],
            other.success[FOLDS[0]],
        )
    ]  # fmt: skip
    assert any(
        np.allclose(combined_success(profile, "small", np.array([0, share, 0]))[FOLDS[0]], found.success[FOLDS[0]])
        for share in shares
    )


def test_what_cannot_be_combined_is_left_alone() -> None:
    """No labels, no probabilities of the extractor, or a success that is not that of the most likely label."""
    profile = pair()
    assert can_combine(profile, "small")
    assert not can_combine(profile, None)
    assert not can_combine(profile, "mute")
    assert not can_combine(replace(profile, labels=None), "small")
    assert not can_combine(replace(profile, probabilities=None), "small")
    kept = profile.probabilities or {}
    assert not can_combine(replace(profile, probabilities={"small": kept["small"]}), "small")
    other = replace(profile, success=np.random.default_rng(0).random((3000, 3)))
    assert tuned_combination(other, "small", FOLDS) is None


def test_labels_may_be_names_of_classes() -> None:
    """Text labels are looked up among the classes."""
    profile = pair()
    classes = ("ant", "bee", "cat", "dog")
    assert profile.labels is not None
    named = replace(profile, labels=np.array(classes)[profile.labels], classes=classes)
    numbers, words = (tuned_combination(one, "small", FOLDS) for one in (profile, named))
    assert numbers is not None
    assert words is not None
    assert np.array_equal(numbers.success, words.success)
    assert not can_combine(replace(named, labels=np.full(3000, "eel")), "small")


def test_auto_combines_where_it_helps_and_says_so() -> None:
    """The plan's weights reach on fresh rows what is promised, and more than answers that are not combined."""
    known, fresh = pair(4000), pair(4000, seed=1)
    budget = 0.7 * len(fresh)
    combined = oc.plan(known, fresh.features, budget=budget)
    alone = oc.plan(known, fresh.features, budget=budget, combine=False)
    assert combined.made_from["combined"]
    assert not alone.made_from["combined"]
    assert combined.weights[1] > 0.0
    assert not alone.weights.any()
    rows = np.arange(len(fresh))
    reached = combined_success(fresh, "small", combined.weights)[rows, combined.choice].mean()
    assert reached > fresh.success[rows, alone.choice].mean() + 0.015
    assert combined.expected_accuracy == pytest.approx(reached, abs=0.02)
    oc.verify(combined)
    assert np.array_equal(oc.load(saved(combined)).weights, combined.weights)


def saved(plan: oc.Plan) -> str:
    import tempfile

    path = f"{tempfile.mkdtemp()}/plan.parquet"
    oc.save(plan, path)
    return path


def test_copies_are_no_evidence() -> None:
    """Thirty rows, each forty times in one group, say no more than thirty rows."""
    few = pair(30)
    rows = np.repeat(np.arange(30), 40)
    many = oc.Profile(
        few.names, few.costs, np.asarray(few.features)[rows], few.success[rows], extractor="small",
        labels=np.asarray(few.labels)[rows], groups=rows,
        probabilities={name: table[rows] for name, table in (few.probabilities or {}).items()},
    )  # fmt: skip
    halves = [np.flatnonzero(rows % 2 == number) for number in range(2)]
    once = tuned_combination(few, "small", [np.arange(30)[number::2] for number in range(2)])
    copied = tuned_combination(many, "small", halves)
    assert (once is None) == (copied is None)
