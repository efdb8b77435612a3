"""The options of a kind, read off its constructor's signature: what a file may hold, and what it must."""

from __future__ import annotations

import inspect
import types
import typing
from pathlib import Path
from typing import Any, Literal

__all__ = ["alternatives", "converted", "default_cost", "in_words", "options_of"]

# What a constructor gets from the file's frame, not from its options.
FRAME = {"self", "name", "cost", "classes", "folder"}


def options_of(made: Any) -> dict[str, tuple[Any, bool]]:
    """The options of a kind: their types, and whether they must be given."""
    parameters = inspect.signature(made).parameters
    hints = typing.get_type_hints(made.__init__ if inspect.isclass(made) else made)
    return {
        name: (hints.get(name, Any), parameter.default is inspect.Parameter.empty)
        for name, parameter in parameters.items()
        if name not in FRAME and _allowed(hints.get(name, Any))
    }


def default_cost(made: Any) -> Any:
    """The cost of a kind where a file states none; None if it must."""
    parameter = inspect.signature(made).parameters.get("cost")
    return None if parameter is None or parameter.default is inspect.Parameter.empty else parameter.default


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the type alone."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def _allowed(kind: Any) -> bool:
    """Whether a file can hold a value of this type: objects are for callers from Python."""
    return any(
        one in (str, int, float, bool, Path) or typing.get_origin(one) in (Literal, tuple, dict, list)
        for one in alternatives(kind)
    )


def converted(value: Any, kind: Any, folder: Path) -> tuple[bool, Any]:
    """Whether a value is of a type, and the value as the constructor takes it."""
    for one in alternatives(kind):
        origin = typing.get_origin(one)
        if one is Any:
            return True, value
        if one is Path and isinstance(value, str):
            return True, folder / value
        if origin is Literal and value in typing.get_args(one):
            return True, value
        if origin in (tuple, list) and isinstance(value, list):
            parts = [_part(part, typing.get_args(one)[0], folder) for part in value]
            return all(fits for fits, _ in parts), tuple(part for _, part in parts)
        if origin is dict and isinstance(value, dict):
            entries = {key: _part(part, typing.get_args(one)[1], folder) for key, part in value.items()}
            return all(fits for fits, _ in entries.values()), {key: part for key, (_, part) in entries.items()}
        if one is float and isinstance(value, int | float) and not isinstance(value, bool):
            return True, float(value)
        if one in (str, int, bool) and type(value) is one:
            return True, value
    return False, None


def _part(value: Any, kind: Any, folder: Path) -> tuple[bool, Any]:
    """One of several values; labels that are whole numbers count as text, as they do among the classes."""
    return converted(str(value) if kind is str and type(value) is int else value, kind, folder)


def in_words(kind: Any) -> str:
    """What a value of this type is called in a complaint."""
    words = {str: "a string", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    found = []
    for one in alternatives(kind):
        origin = typing.get_origin(one)
        if origin is Literal:
            found.append("one of " + ", ".join(map(str, typing.get_args(one))))
        elif origin in (tuple, list):
            found.append("a list" + _of_what(typing.get_args(one)[0]))
        elif origin is dict:
            found.append("a table" + _of_what(typing.get_args(one)[1]))
        elif one in words:
            found.append(words[one])
    return " or ".join(found)


def _of_what(kind: Any) -> str:
    return {str: " of strings", int: " of whole numbers", float: " of numbers"}.get(kind, "")
