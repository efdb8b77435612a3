"""The OpenAPI document, as exact as the service is: how many features, which classifiers, whether keys count."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from occamroute.serving.problems import CODES
from occamroute.serving.service import Service

__all__ = ["document", "document_bytes", "page"]

SECURITY = "key"
PROBLEM = {
    "title": "Problem",
    "description": "What is wrong (RFC 9457); programs look at the code.",
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": sorted(CODES)},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {"type": "object", "properties": {"at": {"type": "string"}, "problem": {"type": "string"}}},
        },
        "error": {"description": "The same for clients of other protocols."},
    },
}
NUMBER = {"type": "number", "minimum": -3e38, "maximum": 3e38}
WITHIN = {"minimum": -(2**62), "maximum": 2**62}
PACKED = {
    "description": 'Numbers may also be packed, {"float32": …} or {"float64": …} with the base64 of little-endian '
    "floats, row after row. They must be finite, which no schema of a text can say."
}


def document_bytes(app: FastAPI) -> bytes:
    """The document as JSON, made again only when the service has changed."""
    service: Service = app.state.service
    stamp = (service.router.snapshot.id, service.open_scopes)
    known: tuple[Any, bytes] | None = getattr(app.state, "document", None)
    if known is None or known[0] != stamp:
        known = (stamp, json.dumps(document(app)).encode())
        app.state.document = known
    return known[1]


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of an application as it stands."""
    service: Service = app.state.service
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = made["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = PROBLEM
    _say_features(schemas, service)
    _say_rows(schemas, service)
    _say_queries(schemas, service)
    made["components"]["securitySchemes"] = {
        SECURITY: {"type": "http", "scheme": "bearer", "description": "A key made by `occamroute keys add`."}
    }
    for operations in made["paths"].values():
        for operation in operations.values():
            _say_security(operation, service)
            _say_headers(operation)
    return made


def _say_security(operation: dict[str, Any], service: Service) -> None:
    if "x-scope" in operation and (operation["x-scope"] or "read") not in service.open_scopes:
        operation["security"] = [{SECURITY: []}]
    if "x-scope" in operation and operation["x-scope"] is None:
        operation["x-scope"] = "any"


def _say_headers(operation: dict[str, Any]) -> None:
    headers = {"401": "WWW-Authenticate", "429": "Retry-After", "503": "Retry-After"}
    for status, header in headers.items():
        if status in operation["responses"]:
            operation["responses"][status]["headers"] = {header: {"schema": {"type": "string"}}}


def _say_features(schemas: dict[str, Any], service: Service) -> None:
    """How many numbers features are, and where none are looked at."""
    snapshot, most = service.router.snapshot, service.limits.rows
    width = snapshot.width
    plan = schemas["PlanRequest"]
    if width == 0:
        for name in ("RouteRequest", "ClassifyRequest", "PlanRequest"):
            schemas[name]["properties"].pop("features")
        schemas["RouteRequest"]["properties"].pop("query")
        plan["properties"]["queries"] = {"type": "integer", "minimum": 1, "maximum": most}
        plan["required"].append("queries")
        return
    row = {"type": "array", "items": NUMBER, "minItems": width, "maxItems": width}
    plan["properties"].pop("queries")
    plan["properties"]["features"] = {"type": "array", "items": row, "minItems": 1, "maxItems": most} | PACKED
    schemas["RouteRequest"]["properties"]["features"] = row | PACKED
    given = row | dict.fromkeys(("minItems", "maxItems"), snapshot.given_width)
    schemas["ClassifyRequest"]["properties"]["features"] = {"anyOf": [given, {"type": "null"}]} | PACKED
    schemas["PlanRequest"].setdefault("required", []).append("features")
    if not snapshot.looks_at_text:
        schemas["RouteRequest"]["properties"].pop("query")
        schemas["RouteRequest"].setdefault("required", []).append("features")
        return
    schemas["RouteRequest"]["properties"]["features"] = schemas["ClassifyRequest"]["properties"]["features"]
    if snapshot.paid_extractor is not None:
        schemas["RouteRequest"].setdefault("required", []).extend(("features", "query"))


def _say_rows(schemas: dict[str, Any], service: Service) -> None:
    """Which features, successes, labels and groups new rows have: those of the rows that are there."""
    profile = service.router.snapshot.profile
    row = schemas["Row"]["properties"]
    share = {"type": "number", "minimum": 0, "maximum": 1}
    row["success"] = _record(dict.fromkeys(profile.names, share))
    tables = {
        name: {"type": "array", "items": NUMBER, "minItems": table.shape[1], "maxItems": table.shape[1]}
        for name, table in profile.stored_sets.items()
    }
    row["features"] = next(iter(tables.values())) if len(tables) == 1 else _record(tables)
    for what, known in (("label", profile.labels), ("group", profile.groups)):
        if known is None:
            row[what] = {"type": "null"}
            continue
        row[what] = {"type": "string"} if known.dtype.kind == "U" else {"type": "integer"} | WITHIN
        if what == "label" and known.dtype.kind != "U" and profile.classes is not None:
            row[what] |= {"minimum": 0, "maximum": len(profile.classes) - 1}
        schemas["Row"]["required"].append(what)


def _record(properties: dict[str, Any]) -> dict[str, Any]:
    """An object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _say_queries(schemas: dict[str, Any], service: Service) -> None:
    """Only the forms that queries of this service may have."""
    query = schemas["ClassifyRequest"]["properties"]["query"]
    forms = {"text": "string", "numbers": "array", "bytes": "#/components/schemas/PackedBytes"}
    allowed = [forms[form] for form in service.forms]
    query["anyOf"] = [one for one in query["anyOf"] if one.get("type", one.get("$ref")) in allowed]
    query["description"] = PACKED["description"]
    if "text" in service.forms:
        # No schema can say that a shape fits its data: it shows the tensor of one query.
        tensor = schemas["InputTensor"]
        tensor["description"] = "A query. Several are n texts of shape [n] or [n, 1]."
        tensor["properties"]["shape"] = {"type": "array", "items": {"const": 1}, "minItems": 1, "maxItems": 2}
        tensor["properties"]["datatype"] = {"const": "BYTES"}
        tensor["properties"]["data"] = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1}


@lru_cache(maxsize=1)
def page() -> tuple[bytes, str]:
    """The page that shows the document, and the policy under which only its own script and style count."""
    content = files("occamroute.serving").joinpath("docs.html").read_bytes()
    hashes = {}
    for tag in ("script", "style"):
        name = tag.encode()
        parts = re.findall(b"<" + name + b">(.*?)</" + name + b">", content, re.DOTALL)
        hashes[tag] = " ".join(f"'sha256-{_digest(part)}'" for part in parts)
    policy = (
        f"default-src 'none'; connect-src 'self'; script-src {hashes['script']}; style-src {hashes['style']}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return content, policy


def _digest(part: bytes) -> str:
    return base64.b64encode(hashlib.sha256(part).digest()).decode()
