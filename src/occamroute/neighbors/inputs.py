"""What the two indexes accept, refused in one sentence where it is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, feature_matrix
from occamroute.errors import InvalidInputError

__all__ = [
    "device_of",
    "excluded_of",
    "frozen",
    "groups_of",
    "neighbor_count",
    "queries_of",
    "values_of",
    "weights_of",
]


def frozen(array: npt.NDArray[Any], dtype: type = np.float64) -> npt.NDArray[Any]:
    """The array C-ordered and read-only, as all inputs are: kernels are compiled for that one kind."""
    view: npt.NDArray[Any] = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view


def device_of(device: Any) -> str | None:
    """The name of a device, or None for the one that suits."""
    if device not in (None, "cpu", "cuda"):
        raise InvalidInputError(f"device must be None, 'cpu' or 'cuda', got {device!r}.")
    return None if device is None else str(device)


def queries_of(queries: Any, width: int) -> FloatArray:
    """Queries (Q, d) with as many columns as the rows."""
    array = feature_matrix(queries, "queries")
    if array.shape[1] != width:
        raise InvalidInputError(f"queries must have the rows' {width} columns, got shape {array.shape}.")
    return array


def values_of(values: Any, rows: int) -> FloatArray:
    """Values (n, M) as float64, one line for each row."""
    array = frozen(feature_matrix(values, "values"))
    if len(array) != rows:
        raise InvalidInputError(f"values must have one line for each of the {rows} rows, got shape {array.shape}.")
    return array


def weights_of(weights: Any, available: int) -> FloatArray:
    """Weights by rank (W, k), k no more than the rows available."""
    array = frozen(feature_matrix(weights, "weights"))
    if array.shape[1] > available:
        raise InvalidInputError(f"weights must rank at most the {available} rows available, got shape {array.shape}.")
    return array


def neighbor_count(k: Any, available: int, name: str = "k") -> int:
    """A whole number from 1 to the rows available."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= available:
        raise InvalidInputError(f"{name} must be a whole number from 1 to {available}, got {k!r}.")
    return int(k)


def groups_of(groups: Any, rows: int) -> npt.NDArray[np.int64]:
    """Row numbers (K, s)."""
    array = _row_numbers(groups, "groups", ndim=2, shape="(K, s)")
    if array.size == 0:
        raise InvalidInputError(f"groups must not be empty, got shape {array.shape}.")
    return _within(array, "groups", 0, rows)


def excluded_of(exclude: Any, queries: int, rows: int) -> npt.NDArray[np.int64]:
    """For each query the row to leave out, or −1."""
    if exclude is None:
        return frozen(np.full(queries, -1), np.int64)
    array = _row_numbers(exclude, "exclude", ndim=1, shape=f"({queries},)")
    if len(array) != queries:
        raise InvalidInputError(f"exclude must be of shape ({queries},), got {array.shape}.")
    return _within(array, "exclude", -1, rows)


def _row_numbers(value: Any, name: str, *, ndim: int, shape: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise InvalidInputError(f"{name} must be an array of shape {shape}, got ragged rows.") from None
    if array.ndim != ndim:
        raise InvalidInputError(f"{name} must be of shape {shape}, got {array.shape}.")
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidInputError(f"{name} must hold whole numbers, got dtype {array.dtype}.")
    return array


def _within(array: npt.NDArray[Any], name: str, low: int, rows: int) -> npt.NDArray[np.int64]:
    for seen in (int(array.min()), int(array.max())):
        if not low <= seen < rows:
            raise InvalidInputError(f"{name} must hold row numbers from {low} to {rows - 1}, got {seen}.")
    return frozen(array, np.int64)
