"""A JSON schema of pool files."""

from __future__ import annotations

import inspect
import typing
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from occamroute.adapters import Family, adapter, kinds
from occamroute.pool_files.options import alternatives, default_cost, options_of
from occamroute.pool_files.reading import SECTIONS

__all__ = ["pool_schema"]

LABEL: dict[str, Any] = {"type": ["string", "integer"]}


def pool_schema() -> dict[str, Any]:
    """A JSON schema of pool files, for editors that check while one types."""
    sections = {
        section: {
            "type": "object",
            "minProperties": int(family == "classifier"),
            "propertyNames": {"minLength": 1},
            "additionalProperties": {"oneOf": _kind_schemas(family)},
        }
        for section, family in SECTIONS.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A pool of classifiers for occamroute",
        "type": "object",
        "additionalProperties": False,
        "required": ["classifiers"],
        "properties": {
            "classes": {"type": "array", "items": LABEL, "minItems": 1, "uniqueItems": True},
            **sections,
        },
    }


def _kind_schemas(family: Family) -> list[dict[str, Any]]:
    """The schemas of all kinds; one of another package that cannot be loaded cannot be used either, and is left out."""
    found = []
    for kind in kinds(family):
        with suppress(ImportError, AttributeError):
            found.append(_kind_schema(family, kind))
    return found


def _kind_schema(family: Family, kind: str) -> dict[str, Any]:
    made = adapter(family, kind)
    amount = {"type": "number", "minimum": 0}
    prices = dict.fromkeys(("per_million_input", "per_million_output"), amount)
    properties: dict[str, Any] = {
        "kind": {"const": kind},
        "cost": {
            "oneOf": [
                amount,
                {"const": "measure"},
                _table({"per_hour": amount}),
                _table(prices),
            ]
        },
    }
    options = options_of(made)
    properties |= {name: _type_schema(hint) for name, (hint, _) in options.items()}
    stated = [] if default_cost(made) is not None else ["cost"]
    required = ["kind", *stated, *(name for name, (_, needed) in options.items() if needed)]
    about = (inspect.getdoc(made) or "").partition("\n")[0]
    return {"description": about, **_table(properties, required)}


def _table(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    """An object with these properties and no others; all of them are required unless it is said which."""
    needed = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _type_schema(kind: Any) -> dict[str, Any]:
    words = {str: "string", int: "integer", float: "number", bool: "boolean", Path: "string"}
    found: list[dict[str, Any]] = []
    for one in alternatives(kind):
        origin = typing.get_origin(one)
        if origin is Literal:
            found.append({"enum": list(typing.get_args(one))})
        elif origin in (tuple, list):
            found.append({"type": "array", "items": _part_schema(typing.get_args(one)[0])})
        elif origin is dict:
            found.append({"type": "object", "additionalProperties": _part_schema(typing.get_args(one)[1])})
        elif one in words:
            found.append({"type": words[one]})
    return found[0] if len(found) == 1 else {"anyOf": found}


def _part_schema(kind: Any) -> dict[str, Any]:
    return {} if kind is Any else LABEL if kind is str else _type_schema(kind)
