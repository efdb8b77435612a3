"""The only validation of arrays, names, costs and seeds; what passes comes back as read-only arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from occamroute.errors import InvalidInputError

__all__ = [
    "LEAST",
    "BoolArray",
    "FloatArray",
    "IntArray",
    "all_finite",
    "cost_array",
    "feature_matrix",
    "generator",
    "name_tuple",
    "probability_matrix",
    "read_only",
    "row_labels",
    "seed_number",
    "success_matrix",
    "value_matrix",
]

# Amounts and sums of values must stay within what a float can hold.
LEAST = 1e-250

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


def read_only(array: npt.NDArray[Any], *, copy: bool = True) -> npt.NDArray[Any]:
    """The array, C-ordered and safe to share: copied unless nobody can write to it or ``copy`` is off."""
    result = np.ascontiguousarray(array)
    if result is array and copy and array.flags.writeable:
        result = array.copy()
    result = result.view()
    result.flags.writeable = False
    return result


def all_finite(array: npt.NDArray[Any]) -> bool:
    """Whether no entry is NaN or infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        # A finite sum has finite terms; only an overflowing one needs the look at each.
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


def _real(value: Any, name: str, *, ndim: int | tuple[int, ...], shape: str) -> npt.NDArray[Any]:
    """``value`` as an array of finite floats with the right number of axes."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise InvalidInputError(f"{name} must be an array of shape {shape}, got ragged rows.") from None
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if array.dtype.kind == "f" and array.dtype.itemsize != 4:
        array = array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, copy=False)
    if array.dtype.kind != "f":
        raise InvalidInputError(f"{name} must hold numbers, got dtype {array.dtype}.")
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if array.ndim not in allowed:
        raise InvalidInputError(f"{name} must be of shape {shape}, got {array.shape}.")
    if array.size == 0:
        raise InvalidInputError(f"{name} must not be empty, got shape {array.shape}.")
    if not all_finite(array):
        kind = "NaN" if np.isnan(array).any() else "inf"
        raise InvalidInputError(f"{name} must be finite, got {kind} in it.")
    return array


def feature_matrix(value: Any, name: str = "features", *, copy: bool = False) -> FloatArray:
    """Features (n, d), float32 or float64 as they came; other numbers become float64."""
    return read_only(_real(value, name, ndim=2, shape="(n, d)"), copy=copy)


def value_matrix(value: Any, name: str = "value") -> FloatArray:
    """Values (N, M) as float64, shared with the caller."""
    array = _real(value, name, ndim=2, shape="(N, M)").astype(np.float64, copy=False)
    largest = max(abs(float(array.max())), abs(float(array.min())))
    if largest > 1.0 / LEAST:
        raise InvalidInputError(f"{name} must not be above {1.0 / LEAST:g} in size, got {largest!r}.")
    return read_only(array, copy=False)


def success_matrix(value: Any, name: str = "success") -> FloatArray:
    """Success (n, M) as float64 within [0, 1]."""
    array = _real(value, name, ndim=2, shape="(n, M)").astype(np.float64, copy=False)
    low, high = float(array.min()), float(array.max())
    if low < 0.0 or high > 1.0:
        raise InvalidInputError(f"{name} must lie in [0, 1], got {low if low < 0.0 else high!r}.")
    return read_only(array)


def probability_matrix(value: Any, name: str = "probabilities") -> FloatArray:
    """Class probabilities (n, C), not negative, each row with something in it."""
    array = _real(value, name, ndim=2, shape="(n, C)")
    if float(array.min()) < 0.0:
        raise InvalidInputError(f"{name} must not be negative, got {float(array.min())!r}.")
    if float(array.max(axis=1).min()) <= 0.0:
        row = int(array.max(axis=1).argmin())
        raise InvalidInputError(f"{name} must give each row some weight, got only zeros in row {row}.")
    return read_only(array)


def cost_array(value: Any, *, options: int, rows: int | None, name: str = "costs") -> FloatArray:
    """Costs as float64, (M,) or (rows, M): finite, not negative.

    A float32 means the shortest decimal that prints it, so 0.1 stays one tenth.
    """
    shape = f"({options},)" + ("" if rows is None else f" or ({rows}, {options})")
    given = value if isinstance(value, np.ndarray) else np.asarray(value)
    array = _real(given, name, ndim=(1, 2), shape=shape)
    if array.shape != (options,) and array.shape != (rows, options):
        raise InvalidInputError(f"{name} must be of shape {shape}, got {array.shape}.")
    if float(array.min()) < 0.0:
        raise InvalidInputError(f"{name} must not be negative, got {float(array.min())!r}.")
    if given.dtype.kind == "f" and given.dtype.itemsize < 8:
        array = given.astype("U").astype(np.float64)
    if given.dtype.kind in "iu" and int(given.max()) > 2**53:  # a float may hold less than the whole number
        array = np.where(given > 2**53, np.nextafter(array, np.inf), array)
    smallest, largest = LEAST, 1.0 / LEAST
    if float(array.max()) > largest or bool(((array > 0.0) & (array < smallest)).any()):
        raise InvalidInputError(f"{name} must be 0 or between {smallest:g} and {largest:g}.")
    return read_only(array)


def name_tuple(value: Iterable[str], name: str = "names") -> tuple[str, ...]:
    """Names, none empty, none twice."""
    if isinstance(value, str):
        raise InvalidInputError(f"{name} must be a sequence of names, got the single string {value!r}.")
    names = tuple(value)
    if not names:
        raise InvalidInputError(f"{name} must not be empty.")
    for entry in names:
        if not isinstance(entry, str) or not entry:
            raise InvalidInputError(f"{name} must be non-empty strings, got {entry!r}.")
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{name} must be text that can be written to a file, got a lone surrogate.") from None
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise InvalidInputError(f"{name} must differ, got {twice!r} twice.")
    return tuple(str(entry) for entry in names)


def row_labels(value: Any, rows: int, name: str) -> npt.NDArray[Any]:
    """One whole number or string per row."""
    array = np.asarray(value)
    if array.shape != (rows,):
        raise InvalidInputError(f"{name} must be of shape ({rows},), got {array.shape}.")
    if array.dtype.kind == "O" and all(isinstance(entry, str) for entry in array):
        array = array.astype(np.str_)
    if array.dtype.kind in "iu":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iU":
        raise InvalidInputError(f"{name} must be whole numbers or strings, got dtype {array.dtype}.")
    return read_only(array)


def generator(seed: int | np.random.Generator) -> np.random.Generator:
    """A random generator from a whole number ≥ 0, or the one given."""
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidInputError(f"seed must be a whole number ≥ 0 or a numpy Generator, got {seed!r}.")
    return np.random.default_rng(int(seed))


def seed_number(seed: int | np.random.Generator) -> int:
    """A whole number from 0 to 2**62 for code that takes no generator: drawn from it, or the one given."""
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**62))
    generator(seed)
    return int(seed) % 2**62
