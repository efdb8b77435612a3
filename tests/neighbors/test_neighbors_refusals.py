"""What is refused, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.neighbors import GroupIndex, PoolIndex

ROWS = np.arange(12.0).reshape(6, 2)
GROUPS = np.arange(6).reshape(2, 3)
VALUES = np.ones((6, 1))
QUERIES = np.ones((2, 2))

CASES: list[tuple[Callable[[], Any], str]] = [
    (lambda: GroupIndex([[np.nan]], [[0]]), "rows must be finite, got NaN in it."),
    (lambda: GroupIndex([[np.inf]], [[0]]), "rows must be finite, got inf in it."),
    (lambda: GroupIndex([1.0], [[0]]), "rows must be of shape (n, d), got (1,)."),
    (lambda: GroupIndex(np.ones((0, 2)), [[0]]), "rows must not be empty, got shape (0, 2)."),
    (lambda: GroupIndex(ROWS, [0, 1]), "groups must be of shape (K, s), got (2,)."),
    (lambda: GroupIndex(ROWS, [[0], [1, 2]]), "groups must be an array of shape (K, s), got ragged rows."),
    (lambda: GroupIndex(ROWS, [[0.5]]), "groups must hold whole numbers, got dtype float64."),
    (lambda: GroupIndex(ROWS, [[0, 6]]), "groups must hold row numbers from 0 to 5, got 6."),
    (lambda: GroupIndex(ROWS, [[-1, 2]]), "groups must hold row numbers from 0 to 5, got -1."),
    (lambda: GroupIndex(ROWS, np.ones((0, 3), int)), "groups must not be empty, got shape (0, 3)."),
    (
        lambda: GroupIndex(ROWS, GROUPS).search([[1.0]]),
        "queries must have the rows' 2 columns, got shape (1, 1).",
    ),
    (lambda: GroupIndex(ROWS, GROUPS).search([[np.nan, 1.0]]), "queries must be finite, got NaN in it."),
    (
        lambda: GroupIndex(ROWS, GROUPS).average(QUERIES, VALUES[:3]),
        "values must have one line for each of the 6 rows, got shape (3, 1).",
    ),
    (lambda: PoolIndex(ROWS).search(QUERIES, 0), "k must be a whole number from 1 to 6, got 0."),
    (lambda: PoolIndex(ROWS).search(QUERIES, 7), "k must be a whole number from 1 to 6, got 7."),
    (lambda: PoolIndex(ROWS).search(QUERIES, True), "k must be a whole number from 1 to 6, got True."),
    (
        lambda: PoolIndex(ROWS).average(QUERIES, VALUES, np.ones((1, 7))),
        "weights must rank at most the 6 rows available, got shape (1, 7).",
    ),
    (
        lambda: PoolIndex(ROWS).average(QUERIES, VALUES, np.ones((1, 6)), [0, -1]),
        "weights must rank at most the 5 rows available, got shape (1, 6).",
    ),
    (
        lambda: PoolIndex(ROWS).average(QUERIES, VALUES, np.ones((1, 2)), [0]),
        "exclude must be of shape (2,), got (1,).",
    ),
    (
        lambda: PoolIndex(ROWS).average(QUERIES, VALUES, np.ones((1, 2)), [0, 6]),
        "exclude must hold row numbers from -1 to 5, got 6.",
    ),
    (
        lambda: PoolIndex(ROWS).averager(VALUES, np.ones((1, 2)), show=0),
        "show must be a whole number from 1 to 6, got 0.",
    ),
    (
        lambda: PoolIndex(ROWS).average(QUERIES, VALUES, np.ones((1, 2)), [0, -1], show=6),
        "show must be a whole number from 1 to 5, got 6.",
    ),
    (
        lambda: PoolIndex(ROWS).averager(VALUES, np.ones((1, 2))).average([[np.nan, 1.0]]),
        "queries must be finite, got NaN in it.",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), CASES)
def test_one_sentence(call: Callable[[], Any], sentence: str) -> None:
    """Bad input is refused with one sentence that names the argument and the value seen."""
    with pytest.raises(InvalidInputError) as raised:
        call()
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    "index", [lambda: GroupIndex(ROWS, GROUPS, metric="cosine"), lambda: PoolIndex(ROWS, metric="cosine")]
)
def test_unknown_metric(index: Callable[[], Any]) -> None:
    """An unknown metric is answered with those there are."""
    with pytest.raises(UnknownNameError, match="unknown metric 'cosine': use one of l1, l2, linf"):
        index()
