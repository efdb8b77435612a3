"""Checks of outcomes: whether labels and success are right, and known from enough rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from occamroute._arrays import BoolArray, FloatArray, IntArray
from occamroute.evaluation.doctor.examination import Check, Examination, has_groups, has_neighbours, has_outputs
from occamroute.evaluation.doctor.features import listed
from occamroute.evaluation.doctor.findings import Finding, Severity
from occamroute.evaluation.studies.base import percent
from occamroute.planning.combining import standard_error
from occamroute.planning.fitting import FEWEST_ROWS

__all__ = ["OUTCOME_CHECKS"]

# Two-sided, 95 %.
QUANTILE = 1.959963984540054
# The surest rows, from half of them to the first twentieth.
SUREST = (0.5, 0.3, 0.2, 0.1, 0.05)
# Shares of wrong labels, surely, from which on there is a note, a warning, a problem.
NOISE: dict[float, Severity] = {0.01: "note", 0.03: "warning", 0.1: "problem"}
# The same by neighbours, where weak classifiers also fail on rows that should be easy.
NOISE_BY_NEIGHBOURS: dict[float, Severity] = {0.03: "note", 0.1: "warning"}
# Half-widths of the best classifier's accuracy from which on there is a note, a warning, a problem.
WIDTHS: dict[float, Severity] = {0.01: "note", 0.03: "warning", 0.1: "problem"}
# Shares of rows on which success is not that of the most likely label.
CONTRADICTED: dict[float, Severity] = {0.01: "warning", 0.2: "problem"}
WORST = 10


def _graded(value: float, grades: dict[float, Severity]) -> Severity:
    """The severity of the highest grade that is passed."""
    return next((severity for least, severity in reversed(grades.items()) if value > least), "ok")


def _label_noise(examination: Examination, _: str) -> Finding:
    """Where classifiers are surest, nearly all that is left to be wrong is the label.

    Sure of one label are the good classifiers' probabilities together; without probabilities, rows whose neighbours
    are answered rightly are those that classifiers should be sure of, and all of them failing speaks against the
    label. If labels are wrong as often anywhere, no share of the surest has fewer wrong ones; the share with the
    lowest upper bound says most.
    """
    by_outputs = has_outputs(examination) is None
    sure, against, rows = _by_outputs(examination) if by_outputs else _by_neighbours(examination)
    order = np.argsort(-sure, kind="stable")
    found = []
    for share in SUREST:
        some = against[order[: max(1, int(share * order.size))]]
        found.append((*_interval(float(some.mean()), some.size), float(some.mean()), some.size))
    low, high, noise, size = min(found, key=lambda one: one[1])
    doubtful = order[against[order]][:WORST]
    ids = [examination.profile.ids[rows[row]] for row in doubtful]
    facts = {
        "share": noise, "interval": [low, high], "judged_on": size, "ids": ids,
        "judged_by": "probabilities" if by_outputs else "neighbours",
    }  # fmt: skip
    severity = _graded(low, NOISE if by_outputs else NOISE_BY_NEIGHBOURS)
    seen = (
        f"Of the {size:,} rows about which the classifiers should be surest, {percent(noise, 1)} have a label that "
        "speaks against all of them."
    )
    advice = "" if severity == "ok" else f"Look at the labels of the most doubtful rows first: {listed(ids)}."
    return Finding("label_noise", severity, seen, advice, facts)


def _by_outputs(examination: Examination) -> tuple[FloatArray, BoolArray, IntArray]:
    """How sure the good classifiers are together, and whether of another label, for all rows."""
    profile = examination.profile
    kept = profile.probabilities or {}
    good = [profile.names[column] for column in examination.good if profile.names[column] in kept] or list(kept)
    rows = np.arange(len(profile))
    mean = np.zeros(kept[good[0]].shape)
    for name in good:
        mean += kept[name] / kept[name].sum(axis=1, keepdims=True) / len(good)
    return mean.max(axis=1), mean.argmax(axis=1) != examination.columns, rows


def _by_neighbours(examination: Examination) -> tuple[FloatArray, BoolArray, IntArray]:
    """How right classifiers are on a row's neighbours, and whether all good ones fail on the row."""
    near, success = examination.near(examination.first_set), examination.profile.success
    weights = near.kept / near.kept.sum(axis=1, keepdims=True)
    sure = (success[near.others].mean(axis=2) * weights).sum(axis=1)
    failed = (success[near.rows][:, list(examination.good)] < 0.5).all(axis=1)
    return np.asarray(sure), np.asarray(failed), near.rows


def _has_witnesses(examination: Examination) -> str | None:
    """Probabilities, or two classifiers and neighbours."""
    if has_outputs(examination) is None:
        return None
    if len(examination.good) < 2:
        return "there are neither probabilities nor two good classifiers"
    return has_neighbours(examination)


def _interval(share: float, count: float) -> tuple[float, float]:
    """Wilson's interval of 95 % for a share."""
    square = QUANTILE**2 / count
    middle = (share + square / 2.0) / (1.0 + square)
    half = QUANTILE / (1.0 + square) * float(np.sqrt(share * (1.0 - share) / count + square / (4.0 * count)))
    return max(0.0, middle - half), min(1.0, middle + half)


def _contradicted(examination: Examination, _: str) -> Finding:
    """Whether recorded success is that of the most likely label."""
    profile = examination.profile
    shares = {}
    for name, table in (profile.probabilities or {}).items():
        right = table.argmax(axis=1) == examination.columns
        recorded = profile.success[:, profile.names.index(name)]
        shares[name] = float((np.abs(recorded - right) > 0.5).mean())
    name = max(shares, key=lambda one: shares[one])
    severity = _graded(shares[name], CONTRADICTED)
    if severity == "ok":
        seen = "Recorded success is that of the most likely label."
        return Finding("contradicted_success", "ok", seen, "", {"shares": shares})
    return Finding(
        "contradicted_success", severity,
        f"On {percent(shares[name], 1)} of the rows the recorded success of {name} is not that of its likeliest label.",
        "Check the order of the classes and of the rows; if success means something else, leave probabilities out.",
        {"shares": shares},
    )  # fmt: skip


def _few_rows(examination: Examination, _: str) -> Finding:
    """How well accuracies are known, and with them the frontier."""
    profile = examination.profile
    groups = int(profile.blocks.max()) + 1
    errors = np.array([standard_error(column, profile.blocks) for column in profile.success.T])
    intervals = [
        # Rows of one group count as what they tell: by the error of the mean, never as more than there are.
        _interval(float(mean), min(len(profile), mean * (1.0 - mean) / error**2 if error > 0.0 else groups))
        for mean, error in zip(profile.accuracy, errors, strict=True)
    ]
    widths = [(high - low) / 2.0 for low, high in intervals]
    best = int(profile.accuracy.argmax())
    close = _close_pairs(examination)
    facts: dict[str, Any] = {
        "rows": len(profile), "groups": groups,
        "accuracy": {
            name: {"mean": float(mean), "interval": list(interval)}
            for name, mean, interval in zip(profile.names, profile.accuracy, intervals, strict=True)
        },
        "rows_to_halve": 4 * len(profile), "steps_not_told_apart": close,
        # Between two classifiers the best mixture is known no worse than the worse known of them.
        "frontier_half_width": max(widths[profile.names.index(name)] for name in profile.pareto().names),
    }  # fmt: skip
    severity = _graded(widths[best], WIDTHS)
    if len(profile) < FEWEST_ROWS:
        severity = "problem"
    seen = (
        f"The accuracy of the best classifier, {profile.names[best]}, is known to ± {100 * widths[best]:.1f} points "
        f"from {len(profile):,} rows, the frontier to ± {100 * facts['frontier_half_width']:.1f}"
    )
    seen += f"; steps to dearer ones that may be none: {listed(close)}." if close else "."
    advice = "" if severity == "ok" else f"Label more rows: {4 * len(profile):,} would halve this."
    return Finding("few_rows", severity, seen, advice, facts)


def _close_pairs(examination: Examination) -> list[str]:
    """Steps of the frontier to a dearer classifier whose gain is not surely above 0."""
    profile = examination.profile
    core = sorted(
        (profile.names.index(name) for name in profile.pareto().names), key=lambda one: profile.mean_costs[one]
    )
    found = []
    for cheap, dear in pairwise(core):
        gain = profile.success[:, dear] - profile.success[:, cheap]
        if float(gain.mean()) < QUANTILE * standard_error(gain, profile.blocks):
            found.append(f"{profile.names[cheap]} to {profile.names[dear]}")
    return found


OUTCOME_CHECKS = (
    Check("label_noise", _label_noise, (_has_witnesses,)),
    Check("contradicted_success", _contradicted, (has_outputs,)),
    Check("few_rows", _few_rows, (has_groups,)),
)
