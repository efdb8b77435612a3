"""From what a model gives to probabilities in the pool's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute.errors import InvalidInputError

__all__ = ["blocks", "columns_of", "in_columns", "mapped", "sigmoid_pair", "softmax", "with_columns"]


def softmax(scores: Any) -> FloatArray:
    """Probabilities (n, C) from logits (n, C)."""
    table = np.asarray(scores, np.float64)
    table = np.exp(table - table.max(axis=1, keepdims=True))
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def sigmoid_pair(scores: Any) -> FloatArray:
    """Probabilities (n, 2) from the scores (n,) of the second class."""
    score = np.asarray(scores, np.float64).reshape(-1)
    return softmax(np.column_stack([np.zeros_like(score), score]))


def columns_of(name: str, labels: Iterable[Any], classes: tuple[str, ...]) -> IntArray:
    """The pool's column of each of a model's labels (compared as text); a label that the pool lacks is an error."""
    known = {label: number for number, label in enumerate(classes)}
    labels = [str(label) for label in labels]
    missing = [label for label in labels if label not in known]
    if missing:
        shown = ", ".join(map(repr, missing[:5])) + (", …" if len(missing) > 5 else "")
        raise InvalidInputError(
            f"classifier {name!r} answers with classes that the pool lacks: {shown}; "
            f"the pool's {len(classes)} classes begin with {', '.join(map(repr, classes[:5]))}."
        )
    return np.array([known[label] for label in labels], np.int64)


def in_columns(name: str, table: Any, columns: IntArray, width: int) -> FloatArray:
    """Probabilities (n, width) with a model's columns in their places, and 0 for classes that it does not know."""
    given = with_columns(name, table, columns.size)
    placed = np.zeros((len(given), width))
    for own, column in enumerate(columns):  # several of its labels may stand for one class
        placed[:, column] += given[:, own]
    return placed


def with_columns(name: str, table: Any, number: int) -> FloatArray:
    """The table, if it has so many columns."""
    given = np.asarray(table, np.float64)
    if given.ndim != 2 or given.shape[1] != number:
        raise InvalidInputError(
            f"classifier {name!r} must give (n, {number}), one output for each class, got shape {given.shape}."
        )
    return given


def blocks(queries: Any, size: int) -> Iterator[Any]:
    """The queries in their order, at most ``size`` at a time."""
    for start in range(0, len(queries), size):
        yield queries[start : start + size]


def mapped(labels: Iterable[Any], names: Mapping[str, str] | None) -> list[str]:
    """A model's own labels as the pool calls them."""
    return [(names or {}).get(str(label), str(label)) for label in labels]
