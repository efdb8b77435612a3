"""A JSON schema of pool files."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path
from typing import Any, Literal

from occamroute.adapters import Family, adapter, kinds
from occamroute.pool_files.options import alternatives, options_of
from occamroute.pool_files.reading import SECTIONS

__all__ = ["pool_schema"]


def pool_schema() -> dict[str, Any]:
    """A JSON schema of pool files, for editors that check while one types."""
    sections = {
        section: {
            "type": "object",
            "additionalProperties": {"oneOf": [_kind_schema(family, kind) for kind in kinds(family)]},
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
            "classes": {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1},
            **sections,
        },
    }


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
                {"type": "object", "properties": {"per_hour": amount}, "required": ["per_hour"]},
                {"type": "object", "properties": prices, "required": list(prices)},
            ]
        },
    }
    options = options_of(made)
    properties |= {name: _type_schema(hint) for name, (hint, _) in options.items()}
    required = ["kind", "cost", *(name for name, (_, needed) in options.items() if needed)]
    about = (inspect.getdoc(made) or "").partition("\n")[0]
    return {
        "type": "object", "description": about, "properties": properties, "required": required,
        "additionalProperties": False,
    }  # fmt: skip


def _type_schema(kind: Any) -> dict[str, Any]:
    words = {str: "string", int: "integer", float: "number", bool: "boolean", Path: "string"}
    found: list[dict[str, Any]] = []
    for one in alternatives(kind):
        origin = typing.get_origin(one)
        if origin is Literal:
            found.append({"enum": list(typing.get_args(one))})
        elif origin in (tuple, list):
            found.append({"type": "array"})
        elif origin is dict:
            found.append({"type": "object"})
        elif one in words:
            found.append({"type": words[one]})
    return found[0] if len(found) == 1 else {"anyOf": found}
