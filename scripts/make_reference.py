"""The pages of the reference, made from what the code says of itself: docstrings, the command line's help, OpenAPI.

Each function gives one page in Markdown. ``make_site.py`` puts them into the site; nothing here is kept in a file.
"""

from __future__ import annotations

import inspect
import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import occamroute as oc
from occamroute import testing
from occamroute.adapters import adapter
from occamroute.cli._app import app
from occamroute.pool_files.reading import SECTIONS
from occamroute.pool_files.schema import pool_schema

__all__ = ["BESIDE", "PAGES", "commands", "grouped_names", "openapi", "pool_schema", "small_service"]

# Headings of the Python page, and the packages and modules whose names stand under them.
GROUPS = {
    "Pools": ("pool", "adapters", "pool_files"),
    "Profiles": ("profiles", "text_features", "profiling", "datasets"),
    "Estimators": ("estimation",),
    "Plans": ("planning",),
    "The knapsack": ("knapsack",),
    "Buying": ("execution",),
    "Ledgers": ("ledger",),
    "One query at a time": ("routing",),
    "Judging": ("evaluation",),
    "Where the work is done": ("executors",),
    "Files": ("storage",),
    "Errors": ("errors",),
}
# What public functions give or take without being public names of the package itself.
BESIDE = {
    "Ledgers": ("occamroute.ledger.Ledger", "occamroute.ledger.Hold", "occamroute.ledger.Balance"),
    "One query at a time": (
        "occamroute.routing.receipts.Receipts",
        "occamroute.routing.novelty.Novelty",
        "occamroute.routing.drift.FeatureWatch",
        "occamroute.routing.drift.FeedbackWatch",
        "occamroute.routing.drift.Alarm",
    ),
    "Where the work is done": (
        "occamroute.executors.local.LocalExecutor",
        "occamroute.executors.ray.RayExecutor",
        "occamroute.executors.ray.Done",
    ),
}


def grouped_names() -> dict[str, list[str]]:
    """Every public name of the package under its heading; one whose home has no heading is an error."""
    found: dict[str, list[str]] = {heading: [] for heading in GROUPS}
    headings = {home: heading for heading, homes in GROUPS.items() for home in homes}
    for name in oc.__all__:
        if name == "__version__":
            continue
        home = getattr(oc, name).__module__.removeprefix("occamroute.").partition(".")[0]
        found[headings[home]].append(name)
    return found


def python_page() -> str:
    """Signatures and docstrings of all public names."""
    lines = ["# Python", ""]
    lines += [
        "`import occamroute as oc`: every name below is an attribute of the package, loaded at its first use.",
        "",
    ]
    for heading, names in grouped_names().items():
        lines += [f"## {heading}", ""]
        for name in names:
            lines += _autodoc(f"occamroute.{name}", getattr(oc, name))
        for path in BESIDE.get(heading, ()):
            lines += _autodoc(path, None)
    lines += ["## For authors of plug-ins", ""]
    for name in testing.__all__:
        lines += _autodoc(f"occamroute.testing.{name}", getattr(testing, name))
    return "\n".join(lines)


def _autodoc(path: str, found: Any) -> list[str]:
    if found is not None and inspect.isclass(found) and issubclass(found, BaseException):
        return ["```{eval-rst}", f".. autoexception:: {path}", "   :show-inheritance:", "```", ""]
    kind = "autoclass" if found is None or inspect.isclass(found) else "autofunction"
    members = ["   :members:"] if kind == "autoclass" else []
    return ["```{eval-rst}", f".. {kind}:: {path}", *members, "```", ""]


def commands() -> Iterator[tuple[str, Any]]:
    """Every verb with its path (``pool check``), in the order of the help."""
    from typer.main import get_command

    waiting: list[tuple[str, Any]] = [("", get_command(app))]
    while waiting:
        path, command = waiting.pop(0)
        below = getattr(command, "commands", None)
        if below is None or not path:
            yield path, command
        if below is not None:
            waiting = [(f"{path} {name}".strip(), one) for name, one in below.items()] + waiting


def command_page() -> str:
    """Every verb with its arguments and options."""
    lines = ["# Command line", "", "The same as `occamroute VERB --help` says."]
    lines += ["Exit codes: 0 done, 2 bad usage or bad data, 3 budget too small, 4 certificate or ledger refused.", ""]
    for path, command in commands():
        title = f"occamroute {path}".strip()
        lines += [f"## {title}", "", *_paragraphs(command.help or "")]
        given = " ".join(_label(one) for one in command.params if one.param_type_name == "argument")
        if path:
            lines += ["```text", f"{title} {given} [OPTIONS]".replace("  ", " "), "```", ""]
        rows = [[_names(one), _cell(_about(one))] for one in command.params if not one.hidden]
        lines += [*_table(["", ""], rows), ""]
    return "\n".join(lines)


def _label(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_label(parameter)}`"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} {_kind(parameter)}"


def _kind(parameter: Any) -> str:
    kinds = {"str": "text", "Path": "path", "int": "whole number", "float": "number"}
    annotation = parameter.type_descriptor.annotation
    return kinds.get(getattr(annotation, "__name__", ""), "text")


def _about(parameter: Any) -> str:
    """The help, with what must be given and what is taken otherwise."""
    help_text, default = parameter.help or "", parameter.default
    if parameter.required:
        return f"{help_text} **Needed.**" if parameter.param_type_name == "option" else help_text
    if default is None or callable(default) or default in ("", (), []):
        return help_text
    if isinstance(default, bool):
        return f"{help_text} By default on." if default and parameter.secondary_opts else help_text
    return f"{help_text} By default `{default}`."


@contextmanager
def small_service() -> Iterator[Any]:
    """A service with three classes, two classifiers and the features of the cheaper one."""
    from occamroute.serving.running import Options, service_from

    with tempfile.TemporaryDirectory() as folder:
        options = Options(budget=100, window="day", state=Path(folder), extractor="small")
        service = service_from(_small_profile(), None, options)
        try:
            yield service
        finally:
            service.router.close()


def openapi() -> dict[str, Any]:
    """The OpenAPI document of a small service."""
    from occamroute.serving.app import create_app
    from occamroute.serving.documents import document

    with small_service() as service:
        return document(create_app(service))


def _small_profile() -> oc.Profile:
    random = np.random.default_rng(0)
    features = random.dirichlet(np.ones(3), 120)
    success = np.column_stack([features.max(axis=1) > 0.6, np.ones(120)]).astype(float)
    return oc.Profile(
        ("small", "large"), (0.1, 1), features, success,
        extractor="small", labels=np.arange(120) % 3, classes=("cat", "dog", "eel"),
    )  # fmt: skip


HTTP = (
    "Made from the OpenAPI document of a service with the classes cat, dog and eel, and the classifiers `small` (whose "
    "three probabilities are the features) and `large`. A service of yours says the same of its own at `GET /docs` and "
    "`GET /openapi.json`.",
)


def http_page() -> str:
    """Every endpoint: who may ask, what it takes and gives, and how it fails."""
    made = openapi()
    schemas = made["components"]["schemas"]
    lines = ["# HTTP", "", *HTTP, ""]
    families: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            families.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    for family, operations in families.items():
        lines += [f"## {family.capitalize()}", ""]
        for method, path, operation in operations:
            lines += _operation(method, path, operation)
    lines += ["## Bodies", ""]
    for name, schema in sorted(schemas.items()):
        lines += [f"### {name}", "", *_paragraphs(schema.get("description", "")), *_fields(schema), ""]
    return "\n".join(lines)


def _operation(method: str, path: str, operation: dict[str, Any]) -> list[str]:
    lines = [f"### `{method} {path}`", "", _sentence(operation["summary"]), ""]
    # The document leaves out a scope where any key will do.
    needed = f"Scope of the key: {operation.get('x-scope', 'any')}."
    facts = [needed if "401" in operation["responses"] else "Needs no key."]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        facts.append(f"Takes {_type(body)}.")
    gives = operation["responses"].get("200", {}).get("content", {})
    for media, about in gives.items():
        facts.append(f"Gives {_type(about['schema'])} (`{media}`)." if about.get("schema") else f"Gives `{media}`.")
    lines += [" ".join(facts), ""]
    parameters = operation.get("parameters", [])
    if parameters:
        rows = [
            [f"`{one['name']}`", one["in"], _type(one["schema"]), _cell(one.get("description", ""))]
            for one in parameters
        ]
        lines += [*_table(["Parameter", "In", "Type", ""], rows), ""]
    codes = [
        f"{status} {code}"
        for status, about in sorted(operation["responses"].items())
        for code in re.findall(r"^(`\w+`):", about.get("description", ""), re.MULTILINE)
    ]
    return [*lines, f"[Problems](serving.md#problems): {', '.join(codes)}.", ""]


def _fields(schema: dict[str, Any]) -> list[str]:
    needed = set(schema.get("required", ()))
    rows = [
        [f"`{name}`", _type(about), "yes" if name in needed else "", _cell(about.get("description", ""))]
        for name, about in schema.get("properties", {}).items()
    ]
    return _table(["Field", "Type", "Needed", ""], rows) if rows else []


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[several]))
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    if kind == "object" and "properties" in schema:
        return "object (" + ", ".join(f"`{name}`" for name in schema["properties"]) + ")"
    return str(kind)


def pool_page() -> str:
    """Every kind of classifier and extractor with its options, from the schema of pool files."""
    schema = pool_schema()
    lines = ["# Pool file", "", "The same as `occamroute pool schema` says, for people.", ""]
    for section in SECTIONS:
        lines += [f"## {section.capitalize()}", ""]
        for kind in schema["properties"][section]["additionalProperties"]["oneOf"]:
            lines += [f"### {section}: {kind['properties']['kind']['const']}", ""]
            lines += _paragraphs(adapter(SECTIONS[section], kind["properties"]["kind"]["const"]).__doc__ or "")
            needed = set(kind["required"])
            rows = [
                [f"`{name}`", _type(about), "yes" if name in needed else ""]
                for name, about in kind["properties"].items()
                if name != "kind"
            ]
            lines += [*_table(["Option", "Type", "Needed"], rows), ""]
    return "\n".join(lines)


def _paragraphs(text: str) -> list[str]:
    return [line for block in inspect.cleandoc(text).split("\n\n") if block for line in (_plain(block), "")]


def _plain(text: str) -> str:
    """Docstrings' double backticks as Markdown's single ones; what looks like HTML as text."""
    return text.replace("``", "`").replace("<", "&lt;")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def _cell(text: str) -> str:
    return _plain(" ".join(text.split())).replace("|", "\\|")


def _table(headings: Iterable[str], rows: Iterable[list[str]]) -> list[str]:
    heads = list(headings)
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


# File of the page → what makes it.
PAGES = {
    "reference-python.md": python_page,
    "reference-commands.md": command_page,
    "reference-http.md": http_page,
    "reference-pool-file.md": pool_page,
}
