"""Labelled rows of a request as a profile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from occamroute.profiles import Profile
from occamroute.serving.bodies import Row
from occamroute.serving.problems import ProblemError

__all__ = ["as_profile"]


def as_profile(known: Profile, rows: list[Row]) -> Profile:
    """Rows as a profile with the classifiers, prices and feature sets of the one that is known."""
    sets = {name: [_features(row, name, known) for row in rows] for name in known.stored_sets}
    success = [_success(row, known.names) for row in rows]
    labels = _column(known.labels, [row.label for row in rows], "label")
    groups = _column(known.groups, [row.group for row in rows], "group")
    made = Profile(
        names=known.names,
        costs=known.mean_costs,
        features=known.as_given(sets),
        success=success,
        extractor=known.extractor,
        extractor_cost=known.extractor_cost,
        labels=labels,
        classes=known.classes,
        groups=groups,
    )
    return replace(made, ids=tuple(row.id or own for row, own in zip(rows, made.ids, strict=True)))


def _features(row: Row, name: str, known: Profile) -> list[float]:
    found = row.features.get(name) if isinstance(row.features, dict) else row.features
    if isinstance(row.features, list) and len(known.stored_sets) > 1:
        found = None
    width = known.feature_sets[name].shape[1]
    if found is None or len(found) != width:
        raise ProblemError("invalid_request", f"every row needs the {width} features of {name!r}.")
    return found


def _success(row: Row, names: tuple[str, ...]) -> list[float]:
    if set(row.success) != set(names):
        raise ProblemError("invalid_request", f"every row needs the success of {', '.join(names)}, and of nobody else.")
    return [row.success[name] for name in names]


def _column(known: Any, values: list[Any], what: str) -> list[Any] | None:
    """Labels or groups of the type that is known; None where there are none."""
    if known is None:
        if any(value is not None for value in values):
            raise ProblemError("invalid_request", f"rows must have no {what}, as those that are there have none.")
        return None
    kind = str if known.dtype.kind == "U" else int
    if not all(type(value) is kind for value in values):
        raise ProblemError(
            "invalid_request", f"every row needs a {what}, {'a text' if kind is str else 'a whole number'}."
        )
    return values
