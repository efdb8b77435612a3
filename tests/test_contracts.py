"""The contracts that plug-in authors run: whoever breaks one is told which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from occamroute.adapters import classifier
from occamroute.errors import InvalidInputError
from occamroute.pool import Answers, Measured
from occamroute.testing import check_classifier, check_extractor

QUERIES = np.arange(12.0).reshape(6, 2)


def table(queries: Any) -> Any:
    """Probabilities that depend on a query alone."""
    first = np.asarray(queries, np.float64)[:, :1] / 20.0
    return np.hstack([first, 1.0 - first])


class Rich:
    """Answers with costs, announces the most, and knows a coroutine."""

    name, cost = "rich", Measured()

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    def answer(self, queries: Any, timeout: float | None = None) -> Answers:
        given: dict[str, Any] = {"probabilities": table(queries), "cost": [0.5] * len(queries), "features": queries}
        return Answers(**{**given, **self._changes})

    async def aanswer(self, queries: Any, timeout: float | None = None) -> Answers:
        return self.answer(queries)

    def max_cost(self, queries: Any) -> list[float]:
        return [0.5] * len(queries)


def test_good_ones_pass() -> None:
    """A function, one that answers richly, and lists as queries."""
    check_classifier(classifier("plain", lambda rows: table(rows), classes="ab"), QUERIES, "ab")
    check_classifier(Rich(), QUERIES, "ab")
    check_classifier(Rich(), QUERIES.tolist(), "ab")


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda rows: table(rows)[:, :1], r"must be of shape \(6, 2\), got \(6, 1\)"),
        (lambda rows: table(rows) * np.nan, "must be finite"),
        (lambda rows: table(rows) - 1.0, "must not be negative"),
        (lambda rows: np.zeros((len(rows), 2)), "needs some weight"),
        (lambda rows: table(rows) / table(rows).max(), "must not depend on the rest of the batch"),
        (lambda rows: np.random.default_rng().random((len(rows), 2)), "must say the same whenever it is asked"),
    ],
)
def test_broken_probabilities_are_told(broken: Callable[[Any], Any], words: str) -> None:
    """What is wrong with them is the whole message."""
    with pytest.raises(AssertionError, match=words):
        check_classifier(classifier("broken", broken, classes="ab"), QUERIES, "ab")


def test_queries_are_not_to_be_changed() -> None:
    """Not even where the answer stays the same."""

    def careless(rows: Any) -> Any:
        answer = table(rows)
        rows[:, 1] = 0.0
        return answer

    with pytest.raises(AssertionError, match="queries must be left alone"):
        check_classifier(classifier("careless", careless, classes="ab"), QUERIES.copy(), "ab")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cost": [0.5]}, "each of 6 queries needs a cost, got 1"),
        ({"cost": [0.75] * 6}, "no charge may be above max_cost"),
        ({"cost": [-0.25] * 6}, "no cost may be negative"),
        ({"features": np.zeros(6)}, r"features must be \(n, d\), got \(6,\)"),
        ({"failures": {2: "no"}}, "answer must answer all these queries, got {2: 'no'}"),
    ],
)
def test_broken_answers_are_told(changes: dict[str, Any], words: str) -> None:
    """So is what is wrong with their costs and features."""
    with pytest.raises(AssertionError, match=words):
        check_classifier(Rich(**changes), QUERIES, "ab")


def test_terms_are_looked_at() -> None:
    """A name, a cost, a way to ask."""
    nameless = Rich()
    nameless.name = ""
    with pytest.raises(AssertionError, match="it needs a name, got ''"):
        check_classifier(nameless, QUERIES, "ab")
    with pytest.raises(InvalidInputError, match="cost must be a finite number"):
        check_classifier(classifier("dear", table, classes="ab", cost=float("nan")), QUERIES, "ab")
    with pytest.raises(AssertionError, match="at least two queries"):
        check_classifier(Rich(), QUERIES[:1], "ab")


class Scaled:
    """Features, made by a function."""

    name, cost = "scaled", 0

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.extract = function


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda rows: rows[:, 0], r"features must be \(n, d\)"),
        (lambda rows: rows * np.inf, "features must be finite"),
        (lambda rows: rows - rows.mean(axis=0), "must not depend on the rest of the batch"),
        (lambda rows: rows + np.random.default_rng().random(), "a second call must give the same"),
    ],
)
def test_broken_extractors_are_told(function: Callable[[Any], Any], words: str) -> None:
    """As classifiers are."""
    check_extractor(Scaled(lambda rows: np.asarray(rows) * 2.0), QUERIES)
    with pytest.raises(AssertionError, match=words):
        check_extractor(Scaled(function), QUERIES + 1.0)
