"""The contract of classifiers and extractors."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._money import exact, money
from occamroute.pool import Answers, Measured, PerToken, selected

__all__ = ["check_classifier", "check_extractor"]

ALONE = 3  # so many queries are asked one at a time


def check_classifier(classifier: Any, queries: Any, classes: Iterable[Any], *, tolerance: float = 1e-5) -> None:
    """Raise ``AssertionError`` unless a classifier of these classes answers real queries as it must.

    At least two queries. It has a name and a cost; gives finite probabilities (n, C) with some weight in every row,
    the same however the queries are batched and whenever they are asked; leaves the queries alone; says the same
    through each of the ways to ask it; and charges every query, never more than the most that it announced. Numbers
    are the same up to ``tolerance``: a GPU that rounds inputs of its products needs about 1e-3.
    """
    queries, columns = _few(queries, classifier), len(tuple(classes))
    number, before = len(queries), copy.deepcopy(queries)
    _check_terms(classifier)
    ways = [way for way in ("predict_proba", "answer", "aanswer") if hasattr(classifier, way)]
    _demand(bool(ways), "it must offer predict_proba, answer or aanswer")
    first = _ask(classifier, ways[0], queries)
    _check_table(first.probabilities, number, columns)
    for way in ways:
        found = _ask(classifier, way, queries)
        _check_table(found.probabilities, number, columns)
        again = f"{way} must say the same whenever it is asked"
        _close(found.probabilities, first.probabilities, again, tolerance)
        _check_features(found, number)
        _check_charges(classifier, found, queries, stated=way != "predict_proba")
        for rows in _parts(number):
            part = _ask(classifier, way, selected(queries, rows))
            alone = "an answer must not depend on the rest of the batch"
            _close(part.probabilities, first.probabilities[rows], alone, tolerance)
    _demand(_same(queries, before), "queries must be left alone")


def check_extractor(extractor: Any, queries: Any, *, tolerance: float = 1e-5) -> None:
    """Raise ``AssertionError`` unless an extractor gives real queries features as it must.

    At least two queries. It has a name and a cost; gives finite features (n, d), the same however the queries are
    batched and whenever they are asked, up to ``tolerance``; and leaves the queries alone.
    """
    queries = _few(queries, extractor)
    number, before = len(queries), copy.deepcopy(queries)
    _check_terms(extractor)
    table = np.asarray(extractor.extract(queries), np.float64)
    _demand(table.ndim == 2 and table.shape[0] == number, f"features must be (n, d), got {table.shape}")
    _demand(bool(np.isfinite(table).all()), "features must be finite")
    _close(extractor.extract(queries), table, "a second call must give the same", tolerance)
    for rows in _parts(number):
        part = extractor.extract(selected(queries, rows))
        _close(part, table[rows], "features must not depend on the rest of the batch", tolerance)
    _demand(_same(queries, before), "queries must be left alone")


def _few(queries: Any, member: Any) -> Any:
    _demand(len(queries) >= 2, "the check needs at least two queries")
    return selected(queries, np.arange(min(len(queries), getattr(member, "batch_size", None) or len(queries))))


def _parts(number: int) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    every = np.arange(number)
    return [*(part for part in np.array_split(every, 2) if part.size), *(every[[row]] for row in every[:ALONE])]


def _check_terms(member: Any) -> None:
    _demand(isinstance(member.name, str) and member.name != "", f"it needs a name, got {member.name!r}")
    if not isinstance(member.cost, Measured | PerToken):
        money(member.cost, "cost")


def _ask(classifier: Any, way: str, queries: Any) -> Answers:
    given = getattr(classifier, way)(queries)
    if way == "aanswer":
        given = asyncio.run(given)
    if way == "predict_proba":
        return Answers(np.asarray(given, np.float64), ())
    _demand(isinstance(given, Answers), f"{way} must give Answers, got {type(given).__name__}")
    _demand(not given.failures, f"{way} must answer all these queries, got {dict(given.failures)}")
    return Answers(np.asarray(given.probabilities, np.float64), given.cost, features=given.features)


def _check_table(table: FloatArray, number: int, columns: int) -> None:
    shape = (number, columns)
    _demand(table.shape == shape, f"probabilities must be of shape {shape}, got {table.shape}")
    _demand(bool(np.isfinite(table).all()), "probabilities must be finite")
    _demand(bool((table >= 0.0).all()), "probabilities must not be negative")
    _demand(bool((table.sum(axis=1) > 0.0).all()), "every row of probabilities needs some weight")


def _check_features(found: Answers, number: int) -> None:
    if found.features is not None:
        table = np.asarray(found.features)
        _demand(table.ndim == 2 and len(table) == number, f"features must be (n, d), got {table.shape}")
        _demand(bool(np.isfinite(table).all()), "features must be finite")


def _check_charges(classifier: Any, found: Answers, queries: Any, *, stated: bool) -> None:
    number = len(queries)
    most = None if isinstance(classifier.cost, Measured | PerToken) else [exact(classifier.cost)] * number
    if hasattr(classifier, "max_cost"):
        most = [exact(amount) for amount in classifier.max_cost(queries)]
    _demand(most is None or len(most) == number, "max_cost must give one amount a query")
    if not stated:
        return
    charged = [exact(amount) for amount in np.asarray(found.cost, object).reshape(-1)]
    _demand(len(charged) == number, f"each of {number} queries needs a cost, got {len(charged)}")
    _demand(min(charged) >= 0, "no cost may be negative")
    if most is not None:
        _demand(
            all(a <= b for a, b in zip(charged, most, strict=True)),
            "no charge may be above max_cost, or above a fixed cost",
        )


def _close(one: Any, other: Any, sentence: str, tolerance: float) -> None:
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    holds = one.shape == other.shape and np.allclose(one, other, rtol=tolerance, atol=tolerance)
    _demand(bool(holds), sentence)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    return len(one) == len(other) and all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in zip(one, other, strict=True)
    )


def _demand(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(f"{sentence}.")
