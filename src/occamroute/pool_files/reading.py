"""read_pool(): the pool that a file ``occamroute.toml`` describes, every complaint with its line."""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from occamroute.adapters import Family, adapter, kinds
from occamroute.errors import InvalidInputError, OccamError
from occamroute.pool import Cost, Measured, PerToken, Pool
from occamroute.pool_files.lines import line_of
from occamroute.pool_files.options import converted, in_words, options_of

__all__ = ["SECTIONS", "read_pool"]

TOP = ("classes", "classifiers", "extractors")
KEYS = ("api_key", "key", "token", "password", "secret")
SECTIONS: dict[str, Family] = {"classifiers": "classifier", "extractors": "extractor"}


class _ComplaintError(Exception):
    """Something wrong at a place in the file: ``args`` holds the place and the sentence."""


def read_pool(path: str | os.PathLike[str], *, classes: Iterable[Any] | None = None) -> Pool:
    """The pool in a file; ``classes`` are those to use where the file names none.

    Paths in the file are relative to its folder, and functions are found in modules that lie there.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"cannot read {file}: {(error.strerror or 'it cannot be opened').lower()}.") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"cannot read {file}: it is no text in UTF-8.") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"{file} is no TOML: {error}.") from None
    try:
        return _pool(content, file.resolve().parent, classes)
    except _ComplaintError as complaint:
        place, sentence = complaint.args
        line = line_of(text, place)
        where = f"{file}, line {line}" if line else str(file)
        raise InvalidInputError(f"{where}: {sentence}") from complaint.__cause__


def _pool(content: dict[str, Any], folder: Path, classes: Iterable[Any] | None) -> Pool:
    for key in content:
        if key not in TOP:
            raise _ComplaintError((key,), f"unknown entry {key!r}: use one of {', '.join(TOP)}.")
    labels = content.get("classes", None if classes is None else list(classes))
    if labels is None:
        raise _ComplaintError((), 'classes are missing: list them as classes = ["a", "b"].')
    if not isinstance(labels, list) or not labels or not all(isinstance(one, str | int) for one in labels):
        raise _ComplaintError(("classes",), "classes must be a list of names.")
    if classes is not None and set(map(str, classes)) - set(map(str, labels)):
        unknown = sorted(set(map(str, classes)) - set(map(str, labels)))[0]
        raise _ComplaintError(("classes",), f"label {unknown!r} of the data is none of the {len(labels)} classes.")
    names = tuple(map(str, labels))
    made: dict[str, list[Any]] = {section: [] for section in SECTIONS}
    for section, family in SECTIONS.items():
        tables = content.get(section, {})
        if not isinstance(tables, Mapping):
            raise _ComplaintError((section,), f"{section} must be tables, one for each: [{section}.NAME].")
        for name, options in tables.items():
            if not isinstance(options, Mapping):
                raise _ComplaintError((section, name), f"{section}.{name} must be a table, got {options!r}.")
            made[section].append(_member(family, (section, name), dict(options), names, folder))
    if not made["classifiers"]:
        raise _ComplaintError((), "there is no classifier: add a table [classifiers.NAME].")
    try:
        return Pool(made["classifiers"], names, made["extractors"])
    except InvalidInputError as error:
        raise _ComplaintError(("classes",), str(error)) from error


def _member(
    family: Family, place: tuple[str, str], options: dict[str, Any], classes: tuple[str, ...], folder: Path
) -> Any:
    name = place[1]
    kind = options.pop("kind", None)
    if not isinstance(kind, str):
        raise _ComplaintError(place, f"{family} {name!r} needs a kind: one of {', '.join(kinds(family))}.")
    try:
        made = adapter(family, kind)
    except OccamError as error:
        raise _ComplaintError((*place, "kind"), str(error)) from error
    cost = _cost(place, options.pop("cost", None), name)
    given = _checked_options(made, place, options, kind, folder)
    parameters = inspect.signature(made).parameters
    if "classes" in parameters:
        given["classes"] = classes
    if "folder" in parameters:
        given["folder"] = folder
    try:
        return made(name, cost, **given)
    except OccamError as error:
        raise _ComplaintError(place, f"{family} {name!r}: {error}") from error


def _cost(place: tuple[str, str], given: Any, name: str) -> Cost:
    """A cost as typed: a number, "measure", a price per hour, or prices per million tokens."""
    where = (*place, "cost") if given is not None else place
    try:
        if given == "measure":
            return Measured()
        if isinstance(given, int | float) and not isinstance(given, bool):
            if not 0 <= given < float("inf"):
                raise InvalidInputError(f"a cost must be a finite number ≥ 0, got {given!r}.")
            return given
        if isinstance(given, dict) and set(given) == {"per_hour"}:
            return Measured(given["per_hour"])
        if isinstance(given, dict) and set(given) == {"per_million_input", "per_million_output"}:
            return PerToken(**given)
    except OccamError as error:
        raise _ComplaintError(where, f"cost of {name!r}: {error}") from error
    raise _ComplaintError(
        where,
        f'cost of {name!r} must be a number, "measure", {{ per_hour = … }} or '
        f"{{ per_million_input = …, per_million_output = … }}, got {given!r}.",
    )


def _checked_options(
    made: Any, place: tuple[str, str], options: dict[str, Any], kind: str, folder: Path
) -> dict[str, Any]:
    known = options_of(made)
    checked = {}
    for option, value in options.items():
        where = (*place, option)
        if option not in known and option.lower() in KEYS:
            raise _ComplaintError(
                where,
                "a key does not belong into a file: put it into an environment variable and name that as key_env.",
            )
        if option not in known:
            raise _ComplaintError(where, f"unknown option {option!r} of kind {kind!r}: use one of {', '.join(known)}.")
        fits, result = converted(value, known[option][0], folder)
        if not fits:
            wanted = in_words(known[option][0])
            raise _ComplaintError(where, f"option {option!r} must be {wanted}, got {value!r}.")
        checked[option] = result
    for option, (_, required) in known.items():
        if required and option not in checked:
            raise _ComplaintError(place, f"{place[1]!r} of kind {kind!r} needs the option {option!r}.")
    return checked
