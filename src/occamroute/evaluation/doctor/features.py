"""Checks of the features: whether they tell rows apart, what columns look like, whether rows are there twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray, generator
from occamroute.estimation.ordered import are_probabilities
from occamroute.evaluation.doctor.examination import NO_FEATURES, Check, Examination, has_labels, has_neighbours
from occamroute.evaluation.doctor.findings import Finding, Severity
from occamroute.evaluation.studies.base import percent
from occamroute.evaluation.studies.lipschitz import slopes
from occamroute.evaluation.studies.separation import duplicate_counts

__all__ = ["FEATURE_CHECKS", "listed"]

PAIRS = 20_000
# Of what chance gives: above the first share neighbours tell little, above the second next to nothing.
LITTLE, NOTHING = 0.8, 0.97
# A value that stands for "missing" is shared by so many rows, and so far from the others, in their own ranges.
SENTINEL_SHARE, SENTINEL_RANGES = 0.01, 10.0
# A column that decides so many of the distances, among columns whose spreads differ so much.
DECIDES, SPREADS = 0.8, 30.0
# Rows that repeat another: more than this is worth a word where most rows are all different.
REPEATED = 0.01


def _separation(examination: Examination, extractor: str) -> Finding:
    """Whether the nearest other row is of the same class; the paper's r is the least distance between classes."""
    near, classes = examination.near(extractor), examination.classes
    other = classes[near.others] != classes[near.rows, np.newaxis]
    nearest = float((classes[near.first] != classes[near.rows]).mean())
    shares = np.bincount(classes) / classes.size
    chance = 1.0 - float((shares**2).sum())
    apart = np.where(other, near.distances, np.inf)
    least = float(apart.min())
    usual = float(np.median(near.distances.min(axis=1)))
    facts = {
        "nearest_is_of_another_class": nearest, "by_chance": chance,
        "least_distance_to_another_class": least if np.isfinite(least) else None,
        "median_distance_to_nearest": usual, "rows": int(near.rows.size),
    }  # fmt: skip
    severity: Severity = "warning" if nearest > NOTHING * chance else "note" if nearest > LITTLE * chance else "ok"
    seen = (
        f"The nearest other row is of another class for {percent(nearest, 1)} of the rows (by chance: "
        f"{percent(chance, 1)})."
    )
    advice = "" if severity == "ok" else "Try features of another extractor: these hardly separate the classes."
    return Finding("separation", severity, seen, advice, facts, extractor)


def _smoothness(examination: Examination, extractor: str) -> Finding:
    """Whether a row's success is more like its neighbours' than like that of any rows."""
    near, success = examination.near(extractor), examination.profile.success
    gap = np.abs(success[near.rows][:, np.newaxis] - success[near.others])
    kept = near.kept
    differ = float(gap.mean(axis=2)[kept].mean())
    random = generator(examination.seed)
    first, second = random.integers(0, len(success), (2, PAIRS))
    usual = float(np.abs(success[first] - success[second]).mean())
    error = float(gap.mean(axis=(1, 2)).std()) / np.sqrt(near.rows.size)
    ratio = differ / usual if usual > 0.0 else 0.0
    pairs = slopes(success[near.rows], success[near.first], near.distances.min(axis=1))
    facts = {
        "differ_from_neighbours": differ, "differ_from_any": usual, "ratio": ratio,
        "slope_quantile_0.9": _finite(float(np.quantile(pairs, 0.9, method="lower"))),
        "equal_features_other_success": int(np.isinf(pairs).any(axis=1).sum()), "rows": int(near.rows.size),
    }  # fmt: skip
    seen = (
        f"Success differs between a row and its neighbours in {percent(differ, 1)} of the pairs, between any two rows "
        f"in {percent(usual, 1)}."
    )
    if usual > 0.0 and differ > usual - 2.0 * error:
        return Finding(
            "smoothness", "warning", seen,
            "Do not route by these features: their neighbours say nothing about who is right.", facts, extractor,
        )  # fmt: skip
    if ratio > NOTHING:
        return Finding(
            "smoothness", "note", seen, "Try features that tell hard queries from easy ones.", facts, extractor
        )
    return Finding("smoothness", "ok", seen, "", facts, extractor)


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _constant(examination: Examination, extractor: str) -> Finding:
    table = examination.profile.feature_sets[extractor]
    constant = np.flatnonzero(table.min(axis=0) == table.max(axis=0)).tolist()
    facts = {"columns": constant, "of": int(table.shape[1])}
    if not constant:
        return Finding("constant_columns", "ok", "No column has the same value in all rows.", "", facts, extractor)
    everything = len(constant) == table.shape[1]
    return Finding(
        "constant_columns", "problem" if everything else "note",
        f"{len(constant)} of {table.shape[1]} columns {'has' if len(constant) == 1 else 'have'} the same value in all "
        f"rows ({listed(constant)}).",
        "Check how features are extracted: these know nothing." if everything
        else "Leave these columns out, or check how they are made.", facts, extractor,
    )  # fmt: skip


def _missing(examination: Examination, extractor: str) -> Finding:
    """A value at the end of a column, shared by many rows and far from all others, as −999 would be."""
    table = examination.profile.feature_sets[extractor]
    found = {}
    # Probabilities that are 0 or 1 in most rows are no marks.
    for column in () if are_probabilities(table) else range(table.shape[1]):
        value = _sentinel(table[:, column])
        if value is not None:
            found[column] = {"value": value, "share": float((table[:, column] == value).mean())}
    facts = {"columns": {str(column): about for column, about in found.items()}}
    if not found:
        return Finding(
            "missing_values", "ok", "No column has a value that looks like a mark for a missing one.", "", facts,
            extractor,
        )  # fmt: skip
    column, about = next(iter(found.items()))
    return Finding(
        "missing_values", "warning",
        f"{len(found)} of {table.shape[1]} columns hold a value far from all others in many rows: column {column} is "
        f"{about['value']:g} in {percent(about['share'], 1)}.",
        "If it stands for a missing value, fill it with a usual one and add a column that says so.", facts, extractor,
    )  # fmt: skip


def _sentinel(column: FloatArray) -> float | None:
    for value in (column.min(), column.max()):
        same = column == value
        if not SENTINEL_SHARE <= same.mean() < 0.9 or same.sum() < 5:
            continue
        low, high = column[~same].min(), column[~same].max()
        gap = low / 2.0 - value / 2.0 if value < low else value / 2.0 - high / 2.0
        # Halves, so that the largest numbers do not overflow. A column with one other value is a switch.
        if high > low and gap > SENTINEL_RANGES * (high / 2.0 - low / 2.0):
            return float(value)
    return None


def _scales(examination: Examination, extractor: str) -> Finding:
    """Whether one column alone decides which rows are near."""
    table = examination.profile.feature_sets[extractor]
    random = generator(examination.seed)
    first, second = random.integers(0, len(table), (2, min(PAIRS, 2_000_000 // table.shape[1] + 1)))
    half = np.abs(table[first] / 2.0 - table[second] / 2.0).astype(np.float64)
    half /= half.max() or 1.0  # so that sums of the largest numbers do not overflow
    moved = half[half.max(axis=1) > 0.0]
    spread = np.median(half, axis=0) + half.mean(axis=0)
    varying = np.flatnonzero(spread > 0.0)
    if moved.size == 0 or varying.size < 2:
        return Finding("column_scales", "ok", "Fewer than two columns vary.", "", {"ratio": 1.0}, extractor)
    decides = np.bincount(moved.argmax(axis=1), minlength=table.shape[1]) / len(moved)
    top = int(decides.argmax())
    ratio = float(spread[varying].max() / spread[varying].min())
    against = float(spread[top] / np.median(spread[varying]))
    facts = {"ratio": ratio, "column": top, "decides": float(decides[top]), "against_median": against}
    seen = f"Column {top} has the largest difference in {percent(decides[top], 1)} of the pairs of rows"
    if decides[top] > DECIDES and against > SPREADS:
        return Finding(
            "column_scales", "warning", f"{seen}; it varies {against:,.0f} times as much as the median column.",
            "Give the columns a common scale (standardise them) before they become features: distances see one alone.",
            facts, extractor,
        )  # fmt: skip
    return Finding("column_scales", "ok", f"{seen}: distances do not hang on one column.", "", facts, extractor)


def _equal_features(examination: Examination, extractor: str) -> Finding:
    """Rows with equal features whose outcomes differ: no router can tell them apart."""
    profile = examination.profile
    pattern = np.unique(profile.success >= 0.5, axis=0, return_inverse=True)[1].reshape(-1)
    equal, conflicting = duplicate_counts([profile.feature_sets[extractor]], pattern)
    share = conflicting / len(profile)
    facts = {"rows": len(profile), "equal_to_another": equal, "with_other_outcomes": conflicting}
    seen = (
        f"{equal:,} of {len(profile):,} rows share their features with another, {conflicting:,} of them with one on "
        "which other classifiers are right."
    )
    severity: Severity = "warning" if share > 0.5 else "note" if share > 0.05 else "ok"
    advice = "" if severity == "ok" else "Look for features that tell these rows apart: what is equal is routed alike."
    return Finding("equal_features", severity, seen, advice, facts, extractor)


def _has_something_known(examination: Examination) -> str | None:
    """Features or outputs that rows can be compared by."""
    profile = examination.profile
    return None if profile.feature_sets or profile.probabilities else NO_FEATURES


def _duplicates(examination: Examination, _: str) -> Finding:
    """Rows equal in everything known but outcomes: most likely one query twice."""
    profile = examination.profile
    tables = [*profile.feature_sets.values(), *(profile.probabilities or {}).values()]
    kinds = np.column_stack([_kinds(table) for table in tables])
    kind = _kinds(kinds)
    size = np.bincount(kind)
    repeated = int(size[size > 1].sum())
    pairs = np.unique(np.column_stack([kind, profile.blocks]), axis=0)
    torn = int(size[np.bincount(pairs[:, 0], minlength=size.size) > 1].sum())
    conflicting = 0 if profile.labels is None else duplicate_counts([kinds.astype(np.float64)], examination.classes)[1]
    first = np.flatnonzero(size[kind] > 1)[:10]
    facts = {
        "rows": len(profile), "equal_to_another": repeated, "across_groups": torn, "with_other_labels": conflicting,
        "ids": [profile.ids[row] for row in first],
    }  # fmt: skip
    seen = (
        f"{repeated:,} of {len(profile):,} rows equal another in all features and outputs, {torn:,} of them one of "
        "another group."
    )
    few_values = size.size < 0.5 * len(profile)
    if conflicting and not few_values:
        advice = f"Check the labels of {conflicting:,} of them: equal rows have different ones."
        return Finding("duplicates", "warning", seen, advice, facts)
    if torn > REPEATED * len(profile) and not few_values:
        advice = "If these are one query several times, give them one group (groups=): what is held out is not then."
        return Finding("duplicates", "warning", seen, advice, facts)
    if torn and not few_values:
        advice = "If these are one query several times, give them one group (groups=)."
        return Finding("duplicates", "note", seen, advice, facts)
    return Finding("duplicates", "ok", seen, "", facts)


def _kinds(table: npt.NDArray[Any]) -> IntArray:
    """A number for each row, the same for equal rows."""
    rows = np.ascontiguousarray(table)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    return np.asarray(np.unique(keys, return_inverse=True)[1])


def listed(numbers: list[int] | list[str], most: int = 5) -> str:
    """The first few of a list, in words."""
    words = [str(one) for one in numbers[:most]]
    return ", ".join(words) + (f" and {len(numbers) - most} more" if len(numbers) > most else "")


FEATURE_CHECKS = (
    Check("separation", _separation, (has_labels, has_neighbours), each_set=True),
    Check("smoothness", _smoothness, (has_neighbours,), each_set=True),
    Check("constant_columns", _constant, each_set=True),
    Check("missing_values", _missing, each_set=True),
    Check("column_scales", _scales, each_set=True),
    Check("equal_features", _equal_features, each_set=True),
    Check("duplicates", _duplicates, (_has_something_known,)),
)
