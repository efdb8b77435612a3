"""What a run is about, in words and hashes: a journal goes on only with the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from occamroute._arrays import IntArray
from occamroute.errors import InvalidInputError
from occamroute.pool import Pool

__all__ = ["checked_queries", "column_numbers", "content_hash", "price_list", "query_ids_of"]


def content_hash(queries: Any) -> str:
    """A hash of the queries' content in their order."""
    digest = hashlib.sha256()
    if isinstance(queries, np.ndarray) and queries.dtype.kind != "O":
        digest.update(f"{queries.dtype.str} {queries.shape}".encode())
        digest.update(np.ascontiguousarray(queries).tobytes())
        return digest.hexdigest()
    if all(isinstance(query, str) for query in queries):
        digest.update(json.dumps(list(queries)).encode())
        return digest.hexdigest()
    for query in queries:
        content = _content(query)
        digest.update(f"{len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()


def _content(query: Any) -> bytes:
    if isinstance(query, np.ndarray):
        return f"{query.dtype.str} {query.shape} ".encode() + np.ascontiguousarray(query).tobytes()
    if isinstance(query, bytes):
        return query
    if hasattr(query, "tobytes") and hasattr(query, "size"):  # a picture
        return f"{query.size} ".encode() + bytes(query.tobytes())
    return str(query).encode("utf-8", "surrogatepass")


def price_list(pool: Pool) -> str:
    """What each member of the pool asks, and the classes that they answer with."""
    return json.dumps({"prices": pool.prices, "classes": pool.classes}, ensure_ascii=False)


def checked_queries(queries: Any) -> Any:
    """Queries that can be taken by their number: an array, or a list of anything."""
    if isinstance(queries, str | bytes):
        raise InvalidInputError("queries must be a sequence of queries, got a single string.")
    if isinstance(queries, np.ndarray):
        if queries.ndim == 0 or not len(queries):
            raise InvalidInputError(f"queries must not be empty, got shape {queries.shape}.")
        return queries
    if hasattr(queries, "to_numpy"):  # a data frame or a column of one
        return checked_queries(_array_of(queries))
    try:
        listed: Sequence[Any] = queries if isinstance(queries, list | tuple) else list(queries)
    except TypeError:
        raise InvalidInputError(f"queries must be a sequence, got {type(queries).__name__}.") from None
    if not listed:
        raise InvalidInputError("queries must not be empty.")
    return listed


def _array_of(frame: Any) -> Any:
    """A column, or a table of numbers, as an array; the rows of any other table are not queries."""
    array = np.asarray(frame.to_numpy())
    if array.ndim > 1 and array.dtype.kind not in "biufc":
        columns = ", ".join(repr(str(name)) for name in list(getattr(frame, "columns", ()))[:8])
        raise InvalidInputError(
            f"queries must be one column, or a table of numbers only, got a {type(frame).__name__} with the columns "
            f"{columns}: give the column that holds the queries."
        )
    return array


def query_ids_of(ids: Iterable[Any] | None, queries: Any) -> tuple[str, ...]:
    """The queries' ids, by default their numbers."""
    made = tuple(map(str, range(len(queries)) if ids is None else ids))
    if len(made) != len(queries):
        raise InvalidInputError(f"ids must be of length {len(queries)}, got {len(made)}.")
    if len(set(made)) != len(made):
        raise InvalidInputError("ids must differ, and some are there twice.")
    return made


def column_numbers(labels: Any, classes: tuple[str, ...], rows: int) -> IntArray:
    """True labels as column numbers: by the classes' names, or whole numbers from 0."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise InvalidInputError(f"labels must be a sequence, one for each query, got {type(labels).__name__}.")
    listed = list(labels.tolist() if isinstance(labels, np.ndarray) else labels)
    if len(listed) != rows:
        raise InvalidInputError(f"labels must be one for each of the {rows} queries, got {len(listed)}.")
    number = {name: column for column, name in enumerate(classes)}
    if all(str(label) in number for label in listed):
        return np.array([number[str(label)] for label in listed], np.int64)
    whole = all(isinstance(label, int | np.integer) and not isinstance(label, bool) for label in listed)
    if whole and min(listed) >= 0 and max(listed) < len(classes):
        return np.array(listed, np.int64)
    row = next(row for row, label in enumerate(listed) if str(label) not in number)
    raise InvalidInputError(
        f"label {listed[row]!r} of query {row} is none of the {len(classes)} classes: {_some(classes)}."
    )


def _some(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:8]) + (", …" if len(classes) > 8 else "")
