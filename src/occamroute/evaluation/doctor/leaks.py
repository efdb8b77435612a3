"""Checks for what should not be known: labels in ids, in the order of rows, in groups or in features."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute._arrays import IntArray, generator
from occamroute.evaluation.doctor.examination import Check, Examination, has_labels, has_neighbours
from occamroute.evaluation.doctor.features import listed
from occamroute.evaluation.doctor.findings import Finding, Severity
from occamroute.evaluation.studies.base import percent

__all__ = ["LEAK_CHECKS"]

# By so much more, in share and in standard errors, must pairs agree than chance has it.
MORE, SURELY = 0.1, 6.0
# A column, or the nearest row, that is right so often while classifiers are not.
PERFECT, NOT_PERFECT = 0.995, 0.98
# Sorted by a column that tells it, rows change their kind in so few of the places where chance would.
FEW_CHANGES = 0.02
FEWEST = 50
ROWS = 5_000
PAIRS = 20_000


def _ids(examination: Examination, _: str) -> Finding:
    """Whether ids tell the label: they hold its name, or what is left without their digits says it."""
    profile, classes = examination.profile, examination.classes
    stems = np.unique([re.sub(r"\d+", "#", name) for name in profile.ids], return_inverse=True)[1]
    agreeing, chance, error = _agreement(stems, classes, examination.seed)
    named = _named(examination)
    facts = {"pairs_of_a_stem_agree": agreeing, "by_chance": chance, "ids_with_their_label": named}
    told = agreeing is not None and agreeing > chance + max(MORE, SURELY * error)
    if told or named > 0.5:
        seen = (
            f"{percent(named, 1)} of the ids hold the name of their label."
            if named > 0.5
            else f"Ids that differ in digits alone have the same label in {percent(agreeing or 0.0, 1)} of the pairs "
            f"(by chance: {percent(chance, 1)})."
        )
        advice = "Make sure that features are not made from ids or paths: labels are in them."
        return Finding("leaking_ids", "warning", seen, advice, facts)
    return Finding("leaking_ids", "ok", "Ids do not tell labels.", "", facts)


def _named(examination: Examination) -> float:
    """The share of ids that hold their label's name as a word of its own, and no other label's."""
    profile = examination.profile
    labels = np.asarray(profile.labels)
    if labels.dtype.kind == "i":
        if profile.classes is None:
            return 0.0
        labels = np.array(profile.classes)[labels]
    names = {str(name).lower() for name in np.unique(labels)}
    hits = 0
    for name, label in zip(profile.ids, labels.tolist(), strict=True):
        words = set(re.split(r"[^\w]+|_", name.lower())) & names
        hits += words == {str(label).lower()}
    return hits / len(labels)


def _agreement(kinds: IntArray, values: IntArray, seed: int) -> tuple[float | None, float, float]:
    """How often two rows of one kind have the same value, how often any two do, and the error of the first."""
    random = generator(seed)
    size = np.bincount(kinds)
    order = np.argsort(kinds, kind="stable")
    start = np.cumsum(size) - size
    first = random.integers(0, kinds.size, PAIRS)
    first = first[size[kinds[first]] > 1]
    shares = np.bincount(values) / values.size
    chance = float((shares**2).sum())
    independent = min(first.size, int(size[size > 1].sum()) // 2)
    if independent < FEWEST or int(size.max()) == kinds.size:
        return None, chance, 1.0
    # Another row of the same kind: the row's place in it, moved on by at least one and less than once around.
    place = np.empty(kinds.size, np.int64)
    place[order] = np.arange(kinds.size) - start[kinds[order]]
    count = size[kinds[first]]
    moved = (place[first] + random.integers(1, count)) % count
    second = order[start[kinds[first]] + moved]
    error = float(np.sqrt(chance * (1.0 - chance) / independent))
    return float((values[first] == values[second]).mean()), chance, error


def _order(examination: Examination, _: str) -> Finding:
    """Whether rows next to each other are alike: then consecutive rows are no random sample."""
    profile = examination.profile
    count = len(profile) - 1
    if count == 0:
        return Finding("ordered_rows", "ok", "There is one row only.", "", {})
    found: dict[str, tuple[float, float]] = {}
    if profile.labels is not None and int(examination.classes.max()) > 0:
        classes = examination.classes
        shares = np.bincount(classes) / classes.size
        found["label"] = float((classes[1:] == classes[:-1]).mean()), float((shares**2).sum())
    right = profile.success >= 0.5
    together, accuracy = (right[1:] == right[:-1]).mean(axis=0), right.mean(axis=0)
    usual = accuracy**2 + (1.0 - accuracy) ** 2
    most = int((together - usual).argmax())
    found["success"] = float(together[most]), float(usual[most])
    facts = {f"{what}_{kind}": value for what, pair in found.items() for kind, value in
             zip(("agrees_with_next", "by_chance"), pair, strict=True)}  # fmt: skip
    alike = {
        what: pair for what, pair in found.items()
        if pair[0] - pair[1] > max(MORE, SURELY * float(np.sqrt(pair[1] * (1.0 - pair[1]) / max(1, count))))
    }  # fmt: skip
    if not alike or count < FEWEST:
        return Finding("ordered_rows", "ok", "Rows next to each other are no more alike than others.", "", facts)
    what, (share, chance) = max(alike.items(), key=lambda item: item[1][0] - item[1][1])
    return Finding(
        "ordered_rows", "warning",
        f"Rows next to each other have the same {what} in {percent(share, 1)} of the pairs (by chance: "
        f"{percent(chance, 1)}).",
        "Shuffle the rows (SampledNeighbors takes consecutive ones as samples), and give rows of one source a group.",
        facts,
    )  # fmt: skip


def _related(examination: Examination, _: str) -> Finding:
    """Rows whose ids differ in their last number alone, in different groups though they are alike."""
    profile = examination.profile
    stems = [re.sub(r"[-_.#/ ]?[a-z]*\d+(\.\w+)?$", "", name, flags=re.IGNORECASE) or name for name in profile.ids]
    kinds = np.unique(stems, return_inverse=True)[1]
    pattern = np.unique(profile.success >= 0.5, axis=0, return_inverse=True)[1].reshape(-1)
    if profile.labels is not None:
        pattern = np.unique(np.column_stack([pattern, examination.classes]), axis=0, return_inverse=True)[1].reshape(-1)
    pairs = np.unique(np.column_stack([kinds, profile.blocks]), axis=0)
    torn = np.bincount(pairs[:, 0]) > 1
    several = int(kinds.max()) + 1 >= FEWEST and int(torn.sum()) >= FEWEST
    agreeing, chance, error = _agreement(kinds, pattern, examination.seed) if several else (None, 0.0, 1.0)
    facts = {
        "stems": int(kinds.max()) + 1, "stems_in_several_groups": int(torn.sum()), "agree": agreeing,
        "by_chance": chance,
    }  # fmt: skip
    if agreeing is not None and agreeing > chance + max(MORE, SURELY * error):
        return Finding(
            "related_rows", "warning",
            f"Rows whose ids differ in their last number alone are alike in {percent(agreeing, 1)} of the pairs (by "
            f"chance: {percent(chance, 1)}), and {int(torn.sum()):,} such families are in several groups.",
            "Give each family one group (groups=), so that none is both learnt from and judged on.", facts,
        )  # fmt: skip
    return Finding("related_rows", "ok", "No families of ids are torn apart.", "", facts)


def _groups(examination: Examination, _: str) -> Finding:
    sizes = np.bincount(examination.profile.blocks)
    share = float(sizes.max() / sizes.sum())
    facts = {"groups": int(sizes.size), "largest_share": share, "median_size": float(np.median(sizes))}
    seen = f"There are {sizes.size:,} groups; the largest holds {percent(share, 1)} of the rows."
    severity: Severity = "problem" if sizes.size == 1 else "warning" if sizes.size < 10 or share > 0.3 else "ok"
    advice = "" if severity == "ok" else "Use finer groups if rows allow it: what is held out is a handful of groups."
    return Finding("groups", severity, seen, advice, facts)


def _features(examination: Examination, extractor: str) -> Finding:
    """Columns that give the label, or a classifier's success, away."""
    profile = examination.profile
    rows = generator(examination.seed).permutation(len(profile))[:ROWS]
    table, right = profile.feature_sets[extractor][rows], profile.success[rows] >= 0.5
    classes = None if profile.labels is None or int(examination.classes.max()) == 0 else examination.classes[rows]
    best = float(profile.accuracy.max())
    mixed = np.flatnonzero((right.mean(axis=0) > 0.01) & (right.mean(axis=0) < 0.99))
    labels, success = [], []
    for column in range(table.shape[1]):
        order = np.argsort(table[:, column], kind="stable")
        if classes is not None and best < NOT_PERFECT and _told(classes[order]):
            labels.append(column)
        if any(_told(right[order, one]) for one in mixed):
            success.append(column)
    facts = {"columns_that_tell_the_label": labels, "columns_that_tell_success": success}
    if labels or success:
        what = "the label" if labels else "who is right"
        return Finding(
            "leaking_features", "problem",
            f"Column {listed(labels or success)} alone tells {what}, which no classifier does.",
            "Leave it out: it will not be known of a new query.", facts, extractor,
        )  # fmt: skip
    return Finding("leaking_features", "ok", "No column alone tells the label or who is right.", "", facts, extractor)


def _told(kinds: npt.NDArray[Any]) -> bool:
    """Whether rows sorted by a column fall into one stretch for each kind, all but a few."""
    shares = np.unique(kinds, return_counts=True)[1] / kinds.size
    changes = int((kinds[1:] != kinds[:-1]).sum())
    by_chance = kinds.size * (1.0 - float((shares**2).sum()))
    return kinds.size >= FEWEST and changes <= shares.size - 1 + FEW_CHANGES * by_chance


def _knowing_neighbours(examination: Examination, extractor: str) -> Finding:
    """Nearest rows that know the label while no classifier does, or an extractor that is never wrong."""
    profile, near, classes = examination.profile, examination.near(extractor), examination.classes
    agree = float((classes[near.first] == classes[near.rows]).mean())
    others = [one for column, one in enumerate(profile.accuracy.tolist()) if profile.names[column] != extractor]
    best = max(others, default=1.0)
    own = float(profile.accuracy[profile.names.index(extractor)]) if extractor in profile.names else None
    facts = {"nearest_has_the_label": agree, "accuracy": own, "best_of_the_others": best}
    if len(profile) >= FEWEST and own is not None and own > PERFECT and best < NOT_PERFECT:
        return Finding(
            "perfect_extractor", "warning",
            f"{extractor} is right on {percent(own, 1)} of the rows, the best of the others on {percent(best, 1)}.",
            "If it was trained on these rows, profile it on others: it will not be as good on new queries.", facts,
            extractor,
        )  # fmt: skip
    if len(profile) >= FEWEST and agree > PERFECT and max(best, own or 0.0) < NOT_PERFECT:
        return Finding(
            "perfect_extractor", "warning",
            f"The nearest row has the same label for {percent(agree, 1)} of the rows, while no classifier is right on "
            f"more than {percent(max(best, own or 0.0), 1)}.",
            "Check that the label did not get into the features, and that rows of one source have a group.", facts,
            extractor,
        )  # fmt: skip
    return Finding(
        "perfect_extractor", "ok", "Features are not better than an extractor that never saw the rows could make them.",
        "", facts, extractor,
    )  # fmt: skip


def _has_named_groups(examination: Examination) -> str | None:
    return "the profile has no groups" if examination.profile.groups is None else None


LEAK_CHECKS = (
    Check("leaking_ids", _ids, (has_labels,)),
    Check("ordered_rows", _order),
    Check("related_rows", _related),
    Check("groups", _groups, (_has_named_groups,)),
    Check("leaking_features", _features, each_set=True),
    Check("perfect_extractor", _knowing_neighbours, (has_labels, has_neighbours), each_set=True),
)
