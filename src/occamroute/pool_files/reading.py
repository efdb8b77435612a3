"""read_pool(): the pool that a file ``occamroute.toml`` describes, every complaint with its line."""

from __future__ import annotations

import inspect
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from occamroute.adapters import Family, adapter, kinds
from occamroute.errors import InvalidInputError, OccamError
from occamroute.pool import Cost, Measured, PerToken, Pool
from occamroute.pool_files.lines import line_of
from occamroute.pool_files.options import converted, default_cost, in_words, options_of

__all__ = ["SECTIONS", "read_pool"]

TOP = ("classes", "classifiers", "extractors")
# Options of these names hold a key, whatever is before the last underscore.
KEYS = ("key", "apikey", "token", "password", "secret", "authorization")
SECTIONS: dict[str, Family] = {"classifiers": "classifier", "extractors": "extractor"}


class _ComplaintError(Exception):
    """Something wrong at a place in the file: ``args`` holds the place and the sentence."""


def read_pool(path: str | os.PathLike[str], *, classes: Iterable[Any] | None = None) -> Pool:
    """The pool in a file; ``classes`` are those to use where the file names none.

    Paths in the file are relative to its folder, and functions are found in modules that lie there.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors put a byte-order mark in front
    except OSError as error:
        raise InvalidInputError(f"cannot read {file}: {(error.strerror or 'it cannot be opened').lower()}.") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"cannot read {file}: it is no text in UTF-8.") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"{file} is no TOML: {error}.") from None
    except RecursionError:
        raise InvalidInputError(f"{file} is no pool file: its lists or tables are nested too deeply.") from None
    try:
        made = _pool(content, file.resolve().parent, classes)
        object.__setattr__(made, "file", str(file.resolve()))
        return made
    except _ComplaintError as complaint:
        place, sentence = complaint.args
        line = line_of(text, place)
        where = f"{file}, line {line}" if line else str(file)
        raise InvalidInputError(f"{where}: {sentence}") from complaint.__cause__


def _pool(content: dict[str, Any], folder: Path, classes: Iterable[Any] | None) -> Pool:
    for key in content:
        if key not in TOP:
            _refuse_key((key,))
            raise _ComplaintError((key,), f"unknown entry {key!r}: use one of {', '.join(TOP)}.")
    labels = content.get("classes", None if classes is None else list(classes))
    if labels is None:
        raise _ComplaintError((), 'classes are missing: list them as classes = ["a", "b"].')
    if not isinstance(labels, list) or not labels or not all(type(one) in (str, int) for one in labels):
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
            if not name:
                raise _ComplaintError((section, name), f"a {family} needs a name: [{section}.NAME].")
            if section == "extractors" and name in content.get("classifiers", {}):
                raise _ComplaintError((section, name), f"{name!r} is the name of a classifier, too: take another.")
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
    except Exception as error:  # another package's kind, which may break in any way
        raise _ComplaintError((*place, "kind"), f"kind {kind!r} cannot be loaded: {_in_words(error)}.") from error
    cost = _cost(place, options.pop("cost", default_cost(made)), name)
    if isinstance(cost, PerToken) and not (hasattr(made, "answer") or hasattr(made, "aanswer")):
        raise _ComplaintError(
            (*place, "cost"),
            f"cost of {name!r}: kind {kind!r} reports no tokens, so give a number or a price per hour.",
        )
    given = _checked_options(made, place, options, kind, folder)
    parameters = inspect.signature(made).parameters
    if "classes" in parameters:
        given["classes"] = classes
    if "folder" in parameters:
        given["folder"] = folder
    try:
        return made(name, cost, **given)
    except OccamError as error:
        sentence = str(error)
        raise _ComplaintError((*place, *_blamed(sentence, options)), f"{family} {name!r}: {sentence}") from error
    except Exception as error:  # it may run anybody's code
        raise _ComplaintError(place, f"{family} {name!r} cannot be made: {_in_words(error)}.") from error


def _blamed(sentence: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """The option that a sentence is about: it begins with its name, or it quotes its value."""
    for option in options:
        if sentence.startswith(f"{option} "):
            return (option,)
    quoted = [option for option, value in options.items() if isinstance(value, str) and value and value in sentence]
    return (max(quoted, key=lambda option: len(options[option])),) if quoted else ()


def _in_words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".:")[:300]


def _refuse_key(place: tuple[str, ...]) -> None:
    """A complaint about an option that holds a key; the key itself is not shown."""
    name = place[-1].lower().replace("-", "_")
    if name.rpartition("_")[2] in KEYS:
        raise _ComplaintError(
            place, "a key does not belong into a file: put it into an environment variable and name that as key_env."
        )


def _cost(place: tuple[str, str], given: Any, name: str) -> Cost:
    """A cost as typed: a number, "measure", a price per hour, or prices per million tokens."""
    if given is None:
        raise _ComplaintError(place, f'{name!r} needs a cost: a number, "measure", or prices.')
    where = (*place, "cost")
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
        if option not in known:
            _refuse_key(where)
            raise _ComplaintError(where, f"unknown option {option!r} of kind {kind!r}: use one of {', '.join(known)}.")
        if option == "key_env" and not (isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value)):
            # What is no name may be the key itself: it is not shown.
            raise _ComplaintError(where, "option 'key_env' must be the name of an environment variable.")
        fits, result = converted(value, known[option][0], folder)
        if not fits:
            wanted = in_words(known[option][0])
            raise _ComplaintError(where, f"option {option!r} must be {wanted}, got {value!r}.")
        checked[option] = result
    for option, (_, required) in known.items():
        if required and option not in checked:
            raise _ComplaintError(place, f"{place[1]!r} of kind {kind!r} needs the option {option!r}.")
    return checked
