"""Profiles: what they refuse, how they split, select and fingerprint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import occamroute as oc

GOOD: dict[str, Any] = {
    "names": ("a", "b"),
    "costs": (1.0, 2.0),
    "features": np.arange(8.0).reshape(4, 2),
    "success": np.array([[0, 1], [1, 1], [0, 0], [1, 0]]),
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"names": ("a", "a")}, "names must differ, got 'a' twice"),
        ({"names": ()}, "names must not be empty"),
        ({"names": "ab"}, "names must be a sequence of names"),
        ({"names": ("a", "")}, "names must be non-empty strings"),
        ({"names": ("a", "b", "c")}, "success must have one column for each of the 3 names, got 2"),
        ({"costs": (1.0,)}, r"costs must be of shape \(2,\) or \(4, 2\), got \(1,\)"),
        ({"costs": (1.0, -2.0)}, "costs must not be negative, got -2.0"),
        ({"costs": (1.0, np.nan)}, "costs must be finite, got NaN"),
        ({"features": np.zeros((3, 2))}, "features must have one row for each of the 4 of success, got 3"),
        ({"features": np.zeros(4)}, r"features must be of shape \(n, d\), got \(4,\)"),
        ({"features": np.full((4, 2), np.nan)}, "features must be finite, got NaN"),
        ({"features": np.zeros((4, 0))}, "features must not be empty"),
        ({"features": {}}, "features must hold at least one feature set"),
        ({"features": [["x", "y"]] * 4}, "features must hold numbers"),
        ({"success": np.full((4, 2), 1.5)}, r"success must lie in \[0, 1\], got 1.5"),
        ({"success": np.full((4, 2), -0.5)}, r"success must lie in \[0, 1\], got -0.5"),
        ({"success": np.zeros((0, 2))}, "success must not be empty"),
        ({"success": np.zeros(4)}, r"success must be of shape \(n, M\)"),
        ({"extractor": "c"}, "unknown extractor 'c': use one of a, b"),
        ({"features": {"c": np.zeros((4, 1))}}, "unknown extractor 'c': use one of a, b"),
        ({"extractor_cost": {"c": 1.0}}, "unknown extractor 'c'"),
        ({"extractor": "a", "extractor_cost": -1.0}, "extractor_cost must be a finite number ≥ 0"),
        ({"ids": ("x", "y")}, "ids must be of length 4, got 2"),
        ({"ids": ("x", "y", "x", "z")}, "ids must differ, got 'x' twice"),
        ({"labels": [1, 2]}, r"labels must be of shape \(4,\)"),
        ({"labels": [0.5, 1, 2, 3]}, "labels must be whole numbers or strings"),
        ({"labels": [0, 1, 2, 3], "classes": ("x", "y")}, "labels must be whole numbers from 0 to 1"),
        ({"classes": ("x", "x")}, "classes must differ"),
        ({"probabilities": {"c": np.ones((4, 2))}}, "unknown classifier in probabilities 'c'"),
        ({"probabilities": {"a": np.ones((3, 2))}}, r"must be of shape \(4, 2\), got \(3, 2\)"),
        ({"probabilities": {"a": np.zeros((4, 2))}}, "got only zeros in row 0"),
        ({"probabilities": {"a": np.full((4, 2), -1.0)}}, "must not be negative"),
    ],
)
def test_bad_input_gets_one_sentence(change: dict[str, Any], sentence: str) -> None:
    """Whatever is wrong is named, with what was seen and what would do."""
    with pytest.raises(oc.InvalidInputError, match=sentence):
        oc.Profile(**{**GOOD, **change})


def test_arrays_are_safe_from_later_changes() -> None:
    """A profile neither changes with the caller's arrays nor can be written to."""
    features = np.arange(8.0).reshape(4, 2)
    profile = oc.Profile(**{**GOOD, "features": features})
    before = profile.fingerprint
    features[0] = 99.0
    assert oc.Profile(**GOOD).fingerprint == before
    with pytest.raises(ValueError, match="read-only"):
        profile.success[0, 0] = 1.0


@pytest.mark.parametrize("name", ["costs", "features", "success", "labels", "groups", "ids", "extractor_cost"])
def test_fingerprint_changes_with_any_content(small: oc.Profile, name: str) -> None:
    """No part of a profile can change without its fingerprint."""
    changed: Any = {
        "costs": (0.1, 1.1),
        "features": {key: table + 1 for key, table in small.feature_sets.items()},
        "success": 1 - small.success,
        "labels": small.labels[::-1] if small.labels is not None else None,
        "groups": np.arange(60),
        "ids": [str(number) for number in range(60)],
        "extractor_cost": {"hash": 0.02, "small": 0.1},
    }[name]
    assert replace(small, **{name: changed}).fingerprint != small.fingerprint


def test_fingerprint_is_the_same_for_the_same_content(small: oc.Profile) -> None:
    """However the content was given."""
    assert replace(small, costs=np.array([0.1, 1.0], np.float32)).fingerprint == small.fingerprint


def test_split_keeps_groups_together(small: oc.Profile) -> None:
    """Both halves together are the whole, and no group is torn."""
    one, other = small.split(0.3, seed=1)
    assert (len(one), len(other)) == (18, 42)
    assert set(one.ids or ()) | set(other.ids or ()) == set(small.ids or ())
    assert not set(one.groups.tolist()) & set(other.groups.tolist())  # type: ignore[union-attr]
    again, _ = small.split(0.3, seed=1)
    assert again.fingerprint == one.fingerprint
    assert small.split(0.3, seed=2)[0].fingerprint != one.fingerprint


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, float("nan")])
def test_split_refuses_a_silly_fraction(small: oc.Profile, fraction: float) -> None:
    """There must be two parts."""
    with pytest.raises(oc.InvalidInputError, match="fraction must lie between 0 and 1"):
        small.split(fraction)


def test_select_keeps_features_and_their_cost(small: oc.Profile) -> None:
    """Without the classifier that yields them, features still cost what its call costs."""
    large = small.select(["large"])
    assert large.names == ("large",)
    assert large.extraction_costs == {"small": 0.1, "hash": 0.01}
    assert list(large.probabilities or {}) == ["large"]
    with pytest.raises(oc.UnknownNameError, match="unknown classifier 'x': use one of small, large"):
        small.select(["x"])


def test_pareto_keeps_the_core_set_and_the_extractor() -> None:
    """Dominated classifiers go, of equals one stays, and the extractor stays whatever it is."""
    success = np.array([[1, 0, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0]])
    profile = oc.Profile(
        ("cheap", "bad", "best", "twin", "dear", "eyes"),
        (1, 2, 3, 3, 9, 8),
        np.eye(2),
        success,
        extractor="eyes",
    )
    assert profile.pareto().names == ("cheap", "best", "eyes")


def test_costs_by_query_are_averaged_for_the_extractor() -> None:
    """Where a classifier's cost differs by query, extraction costs its mean."""
    profile = oc.Profile(**{**GOOD, "costs": np.arange(8.0).reshape(4, 2), "extractor": "b"})
    assert profile.extraction_costs == {"b": 4.0}
    assert profile.mean_costs.tolist() == [3.0, 4.0]


def test_default_ids_come_from_the_content() -> None:
    """The same row has the same id wherever it stands; repeated rows are numbered."""
    features = np.array([[1.0], [2.0], [1.0], [1.0]])
    ids = oc.Profile(**{**GOOD, "features": features}).ids or ()
    assert ids[2] == f"{ids[0]}-2"
    assert ids[3] == f"{ids[0]}-3"
    assert ids[1] == (oc.Profile(**{**GOOD, "features": features[::-1]}).ids or ())[2]


def test_success_is_nearly_right_or_wrong() -> None:
    """At the paper's temperature, the probability on the true label is sharpened to nearly 0 or 1."""
    table = np.array([[0.6, 0.4, 0.0], [0.3, 0.3, 0.4], [0.5, 0.5, 0.0]])
    assert oc.success(table, [0, 0, 1]).tolist() == pytest.approx([1.0, 0.0, 0.5])
    assert oc.success(table, [0, 0, 1], temperature=1.0).tolist() == pytest.approx([0.6, 0.3, 0.5])
    with pytest.raises(oc.InvalidInputError, match="labels must be whole numbers from 0 to 2"):
        oc.success(table, [0, 0, 3])
    with pytest.raises(oc.InvalidInputError, match="temperature must be a finite number > 0"):
        oc.success(table, [0, 0, 1], temperature=0.0)


def test_shipped_data_are_real(cifar10: tuple[oc.Profile, oc.Profile]) -> None:
    """20,000 and 10,000 rows of seven networks, with their probabilities kept."""
    profile, test = cifar10
    assert (profile.success.shape, test.success.shape) == ((20_000, 7), (10_000, 7))
    assert profile.extractor == profile.names[0] == "resnet8-w8"
    assert np.all(np.diff(profile.costs) > 0)
    assert 0.68 < test.accuracy[0] < 0.70
    assert 0.87 < test.accuracy[-1] < 0.88
    assert set(profile.probabilities or {}) == set(profile.names)
    assert profile.features is (profile.probabilities or {})["resnet8-w8"] or np.array_equal(
        profile.feature_sets["resnet8-w8"], (profile.probabilities or {})["resnet8-w8"]
    )


def test_shipped_data_with_other_extractors() -> None:
    """Any classifier's probabilities can be the features, or several classifiers'."""
    profile, _ = oc.load_dataset("cifar10", extractor=("resnet8-w8", "resnet18-w64"))
    assert list(profile.feature_sets) == ["resnet8-w8", "resnet18-w64"]
    assert profile.extraction_costs["resnet18-w64"] == profile.costs[4]
    with pytest.raises(oc.UnknownNameError, match="unknown extractor 'vgg'"):
        oc.load_dataset("cifar10", extractor="vgg")
    with pytest.raises(oc.UnknownNameError, match="unknown data set 'mnist': use one of cifar10"):
        oc.load_dataset("mnist")


@pytest.mark.parametrize("rows", [3, 60, 7000])
def test_means_of_costs_by_query_are_exact(rows: int) -> None:
    """The mean of tenths is a tenth, however many there are."""
    table = np.full((rows, 2), 0.1)
    profile = oc.Profile(("a", "b"), table, np.random.default_rng(0).random((rows, 2)), np.ones((rows, 2)))
    assert profile.mean_costs.tolist() == [0.1, 0.1]


def test_fingerprint_tells_names_apart() -> None:
    """Wherever one ends and the next begins."""
    one, other = (oc.Profile(**GOOD, classes=classes).fingerprint for classes in (("a\0b", "c"), ("a", "b\0c")))
    assert one != other


def test_names_must_be_writable() -> None:
    """Text that no file can hold is refused at once."""
    with pytest.raises(oc.InvalidInputError, match="got a lone surrogate"):
        oc.Profile(**{**GOOD, "names": ("a", "\ud800")})


def test_the_dearest_of_equals_is_the_most_accurate() -> None:
    """A weak classifier at the same price would flatter whatever is compared with the dearest."""
    success = np.array([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    profile = oc.Profile(("cheap", "weak", "strong"), (1.0, 2.0, 2.0), np.zeros((2, 1)), success)
    assert profile.names[profile.dearest] == "strong"
