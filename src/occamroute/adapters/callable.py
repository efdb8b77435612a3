"""Functions as classifiers and extractors."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.errors import InvalidInputError
from occamroute.pool import Cost

__all__ = ["CallableClassifier", "CallableExtractor", "found", "table_of_labels"]


class CallableClassifier:
    """A function as a classifier.

    ``function`` is the function or "package.module:name". It gets a list of queries (or, with ``each``, one query)
    and gives, for each, a label, a mapping from label to probability, or all probabilities in the order of
    ``classes``. A label that is none of the classes counts as knowing nothing.
    """

    def __init__(
        self,
        name: str,
        cost: Cost,
        *,
        classes: tuple[str, ...],
        function: str | Callable[..., Any],
        each: bool = False,
        batch_size: int = 256,
        folder: Path | None = None,
    ) -> None:
        self.name, self.cost, self.classes, self.batch_size = name, cost, classes, batch_size
        if batch_size < 1:
            raise InvalidInputError(f"batch_size of {name!r} must be at least 1, got {batch_size}.")
        self._function = found(function, folder)
        self._each = each

    def predict_proba(self, queries: Any, /) -> FloatArray:
        """Probabilities (n, classes)."""
        given = [self._function(query) for query in queries] if self._each else self._function(queries)
        return table_of_labels(given, self.classes)


class CallableExtractor:
    """A function as an extractor: a list of queries (or, with ``each``, one query) gives features, (n, d) or (d,)."""

    def __init__(
        self,
        name: str,
        cost: Cost,
        *,
        function: str | Callable[..., Any],
        each: bool = False,
        batch_size: int = 256,
        folder: Path | None = None,
    ) -> None:
        self.name, self.cost, self.batch_size = name, cost, batch_size
        if batch_size < 1:
            raise InvalidInputError(f"batch_size of {name!r} must be at least 1, got {batch_size}.")
        self._function = found(function, folder)
        self._each = each

    def extract(self, queries: Any, /) -> FloatArray:
        """Features (n, d)."""
        given = [self._function(query) for query in queries] if self._each else self._function(queries)
        return np.asarray(given, np.float64)


def found(function: str | Callable[..., Any], folder: Path | None = None) -> Callable[..., Any]:
    """The function that "package.module:name" means; modules in ``folder`` are found too."""
    if not isinstance(function, str):
        if not callable(function):
            raise InvalidInputError(f"function must be callable, got {type(function).__name__}.")
        return function
    module, _, name = function.partition(":")
    if not module or not name:
        raise InvalidInputError(f"function must be given as 'package.module:name', got {function!r}.")
    try:
        value: Any = import_module(module) if folder is None else _from_folder(module, str(folder))
    except Exception as error:  # importing runs anybody's code
        words = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".:")[:300]
        raise InvalidInputError(f"function {function!r} cannot be imported ({words}).") from error
    for part in name.split("."):
        if not hasattr(value, part):
            raise InvalidInputError(f"function {function!r} is not there: {module} has no {name!r}.")
        value = getattr(value, part)
    if not callable(value):
        raise InvalidInputError(f"function {function!r} must be callable, got {type(value).__name__}.")
    made: Callable[..., Any] = value
    return made


# Modules of folders by their names: those that have the names of another folder's are put aside for it.
_put_aside: dict[str, dict[str, ModuleType]] = {}
_importing = threading.Lock()


def _from_folder(name: str, folder: str) -> ModuleType:
    """A module, which may lie in a folder, and never one of the same name in another folder of this kind."""
    with _importing:
        first = name.partition(".")[0]
        if sys.path[0] == folder and name in sys.modules and _lies_in(sys.modules[name], folder):
            return sys.modules[name]
        own = _put_aside.setdefault(folder, {})
        for other, aside in _put_aside.items():
            if other != folder:
                aside.update({known: sys.modules.pop(known) for known in _loaded_from(other) if _has(folder, known)})
        if first in sys.modules and _has(folder, first, whole=True) and not _lies_in(sys.modules[first], folder):
            raise ImportError(
                f"module {first!r} in {folder} has the name of another that is loaded already: give it another name"
            )
        sys.modules.update({known: module for known, module in own.items() if known not in sys.modules})
        sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]
        invalidate_caches()
        return import_module(name)


def _has(folder: str, module: str, *, whole: bool = False) -> bool:
    """Whether a folder has a module or package of this name at its top; with ``whole``, more than a bare folder."""
    place = Path(folder) / module.partition(".")[0]
    return place.with_name(f"{place.name}.py").is_file() or (place / "__init__.py" if whole else place).exists()


def _loaded_from(folder: str) -> list[str]:
    return [name for name, module in list(sys.modules.items()) if _lies_in(module, folder)]


def _lies_in(module: ModuleType, folder: str) -> bool:
    about = getattr(module, "__dict__", {})  # not by attribute: modules may make those up
    places = [about.get("__file__"), *(about.get("__path__") or ())]
    return any(str(place).startswith(folder + os.sep) for place in places if place)


def table_of_labels(given: Any, classes: tuple[str, ...]) -> FloatArray:
    """Probabilities (n, classes) from labels, mappings from label to probability, or probabilities."""
    if isinstance(given, np.ndarray) and given.ndim == 2:
        return given
    column = {label: number for number, label in enumerate(classes)}
    rows = []
    for entry in given:
        if not isinstance(entry, str | Mapping | np.integer | int):
            rows.append(np.asarray(entry, np.float64))
            continue
        row = np.zeros(len(classes))
        for label, weight in entry.items() if isinstance(entry, Mapping) else ((str(entry), 1.0),):
            if str(label) in column:
                row[column[str(label)]] += weight
        rows.append(row if row.any() else np.full(len(classes), 1.0 / len(classes)))
    try:
        return np.array(rows, np.float64).reshape(len(rows), -1)
    except ValueError:
        raise InvalidInputError("a classifier's probabilities must have as many columns in every row.") from None
