"""The public surface of occamroute: everything that users may rely on, as data, and what a change to it breaks.

Usage::

    python scripts/public_surface.py                     # write docs/public-surface.md
    python scripts/public_surface.py --freeze VERSION    # keep the surface of a release in tests/public_surface/

``tests/test_public_surface.py`` compares the code with every kept surface: names, parameters, options, fields and
metrics may be added, never removed.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, TypeAlias

from make_reference import BESIDE, commands, openapi, pool_schema, small_service

import occamroute as oc
from occamroute import errors, testing

__all__ = ["breaks", "page", "surface"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "public-surface.md"
FROZEN = ROOT / "tests" / "public_surface"

Surface: TypeAlias = dict[str, Any]

# Import paths in the documentation below ``occamroute`` itself.
MODULES = (
    *(path for paths in BESIDE.values() for path in paths),
    *(f"occamroute.testing.{name}" for name in testing.__all__),
    "occamroute.recipes.image_pools.PAPER",
    "occamroute.recipes.image_pools.train_pool",
    "occamroute.serving.cluster.build",
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Classes whose objects functions and methods of the package give: what their constructors take may change.
GIVEN = _names(
    "Alarm Checkup Decision Done Estimate FeatureWatch FeedbackWatch Frontier Ledger Novelty Plan Planner Receipts "
    "Report Run Solution StoredEstimate StoredPlan StoredRun TextFeatures"
)
# Members that only other modules of the package use, by class; "" are those of any class.
INTERNAL: Mapping[str, frozenset[str]] = {
    "": _names("blocks columns from_folder from_parts from_state parts shrunk state"),
    "Decision": _names("coin distances instead rows snapshot spread terms"),
    "Frontier": _names("least planner rows values"),
    "Guide": _names("weights"),
    "Planner": _names("candidates choice folds stack"),
    "Pool": _names("file prices"),
    "Problem": _names(
        "cheapest cost_of extra hull largest least_gain paid require room rounding spare step stepped tie total "
        "unit_costs units within"
    ),
    "Profile": _names("as_given feature_sets joined paid_extractor stored_sets"),
    "Receipts": _names("add close feedback find flush outcome"),
    "Router": _names("alive change checked held listen look submit"),
    "TextFeatures": _names("center characters from_stored spread stored words"),
    "StoredEstimate": _names("block fingerprint n_blocks rows"),
    "StoredPlan": _names("about block checked_parts counted fingerprint n_blocks rows"),
    "StoredRun": _names("about answered block fingerprint n_blocks rows"),
}
ENTRY_POINTS = {
    "occamroute.classifiers": "kinds of classifiers in pool files",
    "occamroute.extractors": "kinds of extractors in pool files",
    "occamroute.estimators": "estimators by name",
    "occamroute.ledgers": "ledgers by the scheme of their address",
}
ENVIRONMENT = {
    "RAY_ADDRESS": "the Ray to connect to, where `--ray-address` names none",
    "RAY_AUTH_MODE": "`token`: the Ray to connect to asks for a token",
}
EXIT_CODES = {
    "0": "done",
    "2": "bad usage or bad data",
    "3": "the budget is too small",
    "4": "a certificate or a ledger refused",
    "130": "interrupted (Ctrl-C)",
    "143": "ended by SIGTERM",
}
PAGES_SERVED = ("/dashboard", "/docs")
LEDGERS = ("memory:", "sqlite:///PATH", "postgresql://HOST/DATABASE")
FILES = ("profile", "plan", "frontier", "run", "report")


def surface(also: Iterable[str] = ()) -> Surface:
    """The surface of the code as it is; ``also`` names that may live on as deprecated ones."""
    names = dict.fromkeys((*(name for name in oc.__all__ if name != "__version__"), *also))
    return {
        "python": {name: found for name in names if (found := _of_package(name)) is not None},
        "modules": {path: found for path in MODULES if (found := _of_module(path)) is not None},
        "commands": {path or "occamroute": _command(command) for path, command in commands()},
        "exit codes": EXIT_CODES,
        "http": _http(),
        "pages": list(PAGES_SERVED),
        "metrics": _metrics(),
        "entry points": ENTRY_POINTS,
        "pool file": _pool_file(),
        "ledger addresses": list(LEDGERS),
        "saved kinds": list(FILES),
        "environment": ENVIRONMENT,
        "extras": sorted(distribution("occamroute").metadata.get_all("Provides-Extra") or ()),
    }


def _of_package(name: str) -> Surface | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = getattr(oc, name, None)
    return None if found is None else _described(found)


def _of_module(path: str) -> Surface | None:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError:
        return None
    return None if found is None else _described(found)


def _described(found: Any) -> Surface:
    if inspect.isclass(found):
        bases = [base.__name__ for base in found.__mro__[1:] if _public_base(base)]
        given = found.__name__ in GIVEN or issubclass(found, BaseException)
        parameters = {} if given else {"parameters": _parameters(found)}
        return {"kind": "class", "bases": bases, "members": _members(found), **parameters}
    if inspect.isroutine(found):
        return {"kind": "function", "parameters": _parameters(found)}
    return {"kind": "value"}


def _public_base(base: type) -> bool:
    if base.__module__ == "builtins":
        return base not in (object, BaseException)
    return getattr(errors, base.__name__, None) is base


def _parameters(made: Callable[..., Any]) -> list[Surface]:
    try:
        signature = inspect.signature(made)
    except (TypeError, ValueError):
        return []
    return [
        {"name": name, "kind": one.kind.name.lower(), "default": _default(one.default)}
        for name, one in signature.parameters.items()
        if name not in ("self", "cls")
    ]


def _default(value: Any) -> str | None:
    """How a default reads; None where there is none."""
    if value is inspect.Parameter.empty:
        return None
    shown = repr(value)
    return "…" if " at 0x" in shown or shown.startswith("<") else shown


def _members(owner: type) -> Surface:
    """Public methods, properties and fields, with those of our own bases."""
    found: Surface = {}
    internal = INTERNAL[""] | INTERNAL.get(owner.__name__, frozenset())
    for base in reversed(owner.__mro__):
        if not base.__module__.startswith("occamroute"):
            continue
        for name in inspect.get_annotations(base):
            if not name.startswith("_") and name not in internal:
                found[name] = {"kind": "field"}
        for name, value in vars(base).items():
            if name.startswith("_") or name in internal:
                continue
            if isinstance(value, property) or (hasattr(value, "__get__") and not callable(getattr(base, name))):
                found[name] = {"kind": "field"}
            elif callable(getattr(base, name)):
                found[name] = {"kind": "method", "parameters": _parameters(getattr(base, name))}
    return dict(sorted(found.items()))


def _command(command: Any) -> Surface:
    arguments, options = [], {}
    for one in command.params:
        # ``required`` and the default of typer's parameters are strings, numbers, lists or None.
        about = {"required": bool(one.required), "flag": bool(getattr(one, "is_flag", False)), "default": _told(one)}
        if one.param_type_name == "argument":
            arguments.append({"name": one.name, **about})
        else:
            for name in (*one.opts, *one.secondary_opts):
                options[name] = about
    return {"arguments": arguments, "options": dict(sorted(options.items()))}


def _told(parameter: Any) -> str | None:
    default = parameter.default
    return None if default is None or callable(default) else str(default)


def _http() -> Surface:
    from occamroute.serving.app import OPERATIONS
    from occamroute.serving.problems import CODES

    made = openapi()
    found: Surface = {}
    for operation in OPERATIONS:
        said = made["paths"].get(operation.path, {}).get(operation.method.lower(), {})
        found[f"{operation.method} {operation.path}"] = {
            "scope": (operation.scope or "any") if operation.guarded else "none",
            "parameters": {one["name"]: bool(one.get("required")) for one in said.get("parameters", [])},
            "takes": _references(said.get("requestBody", {})),
            "gives": _references(said.get("responses", {}).get("200", {})),
            "problems": sorted(operation.codes),
        }
    return {
        "operations": found,
        "bodies": {
            name: {"fields": sorted(schema.get("properties", {})), "required": sorted(schema.get("required", ()))}
            for name, schema in sorted(made["components"]["schemas"].items())
        },
        "problems": {code: about.status for code, about in sorted(CODES.items())},
    }


def _references(content: Any) -> list[str]:
    return sorted(set(re.findall(r"#/components/schemas/(\w+)", json.dumps(content))))


def _metrics() -> Surface:
    from occamroute.serving.gauges import gauges

    with small_service() as service:
        service.metrics.request("GET", "/healthz", 200, 0.001)
        service.metrics.decisions["small", "plan"] += 1
        families = [*service.metrics.families(), *gauges(service)]
    return {
        name: {"type": kind, "labels": sorted({label for labels, _ in samples for label in labels if label})}
        for name, kind, _, samples in sorted(families)
    }


def _pool_file() -> Surface:
    found: Surface = {}
    for section, schema in pool_schema()["properties"].items():
        kinds = schema.get("additionalProperties", {}).get("oneOf", ()) if schema["type"] == "object" else ()
        found[section] = {
            kind["properties"]["kind"]["const"]: {
                "options": sorted(kind["properties"]), "required": sorted(kind["required"])
            }
            for kind in kinds
        }  # fmt: skip
    return found


# What breaks users.


def breaks(before: Surface, now: Surface) -> list[str]:
    """One sentence for each thing that worked before and no longer does; nothing for what was added."""
    return list(_breaks(before, now))


def _breaks(before: Surface, now: Surface) -> Iterator[str]:
    for section in ("python", "modules"):
        for name, was in before[section].items():
            shown = f"occamroute.{name}" if section == "python" else name
            yield from _changed_name(shown, was, now[section].get(name))
    for name, was in before["commands"].items():
        shown = name if name == "occamroute" else f"occamroute {name}"
        yield from _changed_command(shown, was, now["commands"].get(name))
    yield from _changed_http(before["http"], now["http"])
    for name, was in before["metrics"].items():
        metric = now["metrics"].get(name)
        if metric is None or metric["type"] != was["type"] or not set(was["labels"]) <= set(metric["labels"]):
            yield f"metric {name}: was {was}, is {metric}"
    for section, kinds in before["pool file"].items():
        for kind, was in kinds.items():
            yield from _changed_kind(f"{section}: {kind}", was, now["pool file"].get(section, {}).get(kind))
    for section in ("exit codes", "entry points", "environment", "ledger addresses", "saved kinds", "extras", "pages"):
        for one in before[section]:
            if one not in now[section]:
                yield f"{section}: {one} is gone"
    for code, meaning in before["exit codes"].items():
        if now["exit codes"].get(code, meaning) != meaning:
            yield f"exit codes: {code} meant {meaning!r}"


def _changed_name(name: str, was: Surface, now: Surface | None) -> Iterator[str]:
    if now is None:
        yield f"{name} is gone"
        return
    if was["kind"] != now["kind"] and {was["kind"], now["kind"]} != {"class", "function"}:
        yield f"{name} was a {was['kind']}, is a {now['kind']}"
    yield from _changed_parameters(name, was.get("parameters", []), now.get("parameters", []))
    for base in was.get("bases", ()):
        if base not in now.get("bases", ()):
            yield f"{name} is no longer a {base}"
    for member, its in was.get("members", {}).items():
        present = now.get("members", {}).get(member)
        if present is None:
            yield f"{name}.{member} is gone"
        elif its["kind"] != present["kind"]:
            yield f"{name}.{member} was a {its['kind']}, is a {present['kind']}"
        else:
            yield from _changed_parameters(f"{name}.{member}", its.get("parameters", []), present.get("parameters", []))


def _changed_parameters(name: str, was: list[Surface], now: list[Surface]) -> Iterator[str]:
    present = {one["name"]: one for one in now}
    kinds = {one["kind"] for one in now}
    for one in was:
        other = present.get(one["name"])
        if other is None:
            if one["kind"] == "keyword_only" and "var_keyword" in kinds:
                continue
            yield f"{name}: the parameter {one['name']} is gone"
        elif one["default"] != other["default"] and one["default"] is not None:
            yield f"{name}: the default of {one['name']} was {one['default']}, is {other['default']}"
        elif one["kind"] != other["kind"] and (one["kind"], other["kind"]) not in WIDER:
            yield f"{name}: {one['name']} was {one['kind']}, is {other['kind']}"
    known = {one["name"] for one in was}
    for one in now:
        if one["name"] not in known and one["default"] is None and not one["kind"].startswith("var_"):
            yield f"{name}: the new parameter {one['name']} has no default"
    by_place = [one["name"] for one in was if one["kind"].startswith("positional")]
    if [one["name"] for one in now if one["kind"].startswith("positional")][: len(by_place)] != by_place:
        yield f"{name}: its first parameters were {by_place}"


WIDER = {("keyword_only", "positional_or_keyword"), ("positional_only", "positional_or_keyword")}


def _changed_command(name: str, was: Surface, now: Surface | None) -> Iterator[str]:
    if now is None:
        yield f"{name} is gone"
        return
    arguments = now["arguments"]
    for place, one in enumerate(was["arguments"]):
        if place >= len(arguments) or (arguments[place]["required"] and not one["required"]):
            yield f"{name}: the argument {one['name']} is gone or now required"
    for one in arguments[len(was["arguments"]) :]:
        if one["required"]:
            yield f"{name}: the new argument {one['name']} is required"
    for option, about in was["options"].items():
        other = now["options"].get(option)
        if other is None or other["flag"] != about["flag"] or other["default"] != about["default"]:
            yield f"{name}: {option} was {about}, is {other}"
    for option, about in now["options"].items():
        if about["required"] and not was["options"].get(option, {"required": False})["required"]:
            yield f"{name}: {option} is now required"


def _changed_http(was: Surface, now: Surface) -> Iterator[str]:
    for name, about in was["operations"].items():
        other = now["operations"].get(name)
        if other is None:
            yield f"{name} is gone"
            continue
        if about["scope"] != other["scope"]:
            yield f"{name}: took the scope {about['scope']}, takes {other['scope']}"
        for parameter, required in about["parameters"].items():
            if parameter not in other["parameters"] or (other["parameters"][parameter] and not required):
                yield f"{name}: the parameter {parameter} is gone or now required"
        for side in ("takes", "gives"):
            for body in about[side]:
                yield from _changed_body(name, side, was["bodies"][body], other[side], now["bodies"])
    for code, status in was["problems"].items():
        if now["problems"].get(code) != status:
            yield f"problem {code} had the status {status}, has {now['problems'].get(code)}"


def _changed_body(name: str, side: str, was: Surface, names: list[str], bodies: Mapping[str, Surface]) -> Iterator[str]:
    """A body may go by another name; one of those that are there must have all its fields."""
    candidates = [bodies[one] for one in names]
    fitting = [one for one in candidates if set(was["fields"]) <= set(one["fields"])]
    if side == "takes":
        fitting = [one for one in fitting if set(one["required"]) <= set(was["required"])]
    if not fitting and (was["fields"] or not candidates):
        yield f"{name}: no longer {side} {', '.join(was['fields'])}"


def _changed_kind(name: str, was: Surface, now: Surface | None) -> Iterator[str]:
    if now is None:
        yield f"pool file: {name} is gone"
        return
    for option in was["options"]:
        if option not in now["options"]:
            yield f"pool file: {name}: the option {option} is gone"
    for option in now["required"]:
        if option not in was["required"]:
            yield f"pool file: {name}: the option {option} is now required"


# The page.

INTRODUCTION = """# The public surface

What you may rely on. Everything listed here keeps working: a name that changes keeps its old form, with a
`DeprecationWarning`, for at least one release, and has a line in the [changelog](../CHANGELOG.md). Everything else, all
other modules included, may change at any time.

- Parameters, options, fields and metrics may be **added** in any release. After the first two arguments, pass the
  others by keyword.
- Wording of messages, the look of pages and the layout of terminal output may change. Programs use `--json`, exit
  codes, exception types and problem codes.
- Files, ledgers, state folders and journals written by an earlier version, from 0.1.0 on, are read by every later
  one. A later version may write a newer format, which earlier versions refuse in one sentence.

This page is generated from the code by `scripts/public_surface.py`. A test compares the code with the surface of each
release (`tests/public_surface/`). What each name does is in the [reference](reference.md).
"""


def page(found: Surface) -> str:
    """The documentation's page about a surface."""
    lines = [INTRODUCTION, "## Python", "", "`import occamroute as oc`.", ""]
    lines += ["```text", *(line for name, about in found["python"].items() for line in _name_lines(name, about)), "```"]
    lines += ["", "Below the package, at these import paths:", "", "```text"]
    lines += [line for name, about in found["modules"].items() for line in _name_lines(name, about)]
    lines += ["```", "", "## Command line", "", "```text"]
    for name, about in found["commands"].items():
        words = [one["name"].upper() if one["required"] else f"[{one['name'].upper()}]" for one in about["arguments"]]
        lines.append(" ".join(["occamroute", *([] if name == "occamroute" else [name]), *words]))
        lines += _wrapped(about["options"])
    lines += ["```", "", "Exit codes:", "", *_table(("Code", "Meaning"), found["exit codes"].items())]
    lines += ["", "## HTTP", "", "```text"]
    for name, about in found["http"]["operations"].items():
        lines.append(f"{name}  scope: {about['scope']}")
        for side in ("takes", "gives"):
            lines += [f"    {side} {', '.join(about[side])}"] if about[side] else []
    lines += ["```", "", "Bodies (fields with * must be given):", "", "```text"]
    for name, about in found["http"]["bodies"].items():
        lines.append(name)
        lines += _wrapped(f"{field}*" if field in about["required"] else field for field in about["fields"])
    lines += ["```", "", "Codes of problems, with their status: "]
    lines[-1] += ", ".join(f"`{code}` {status}" for code, status in found["http"]["problems"].items()) + "."
    lines += ["", f"Pages for browsers: {', '.join(f'`{one}`' for one in found['pages'])}."]
    lines += ["", "Metrics:", "", "```text"]
    lines += [f"{name} ({', '.join([about['type'], *about['labels']])})" for name, about in found["metrics"].items()]
    lines += ["```", "", "## Pool file", "", "```text"]
    for section, kinds in found["pool file"].items():
        lines.append(section)
        for kind, about in kinds.items():
            options = (f"{name}*" if name in about["required"] else name for name in about["options"])
            lines += [f"    {kind}", *_wrapped(options, indent=8)]
    lines += ["```", "", "## Entry points", ""]
    lines += _table(("Group", "For"), ((f"`{name}`", words) for name, words in found["entry points"].items()))
    lines += ["", "## Environment", "", "Beside those that a pool file names (`key_env`):", ""]
    lines += _table(("Variable", "Meaning"), ((f"`{name}`", words) for name, words in found["environment"].items()))
    lines += ["", "## Files, ledgers and extras", ""]
    lines.append(f"- `oc.save` and `oc.load`: {', '.join(found['saved kinds'])}. [What is in them](files.md).")
    lines.append(f"- Ledgers: {', '.join(f'`{one}`' for one in found['ledger addresses'])}.")
    lines.append(f"- Extras of the package: {', '.join(f'`{one}`' for one in found['extras'])}.")
    return "\n".join(lines) + "\n"


def _name_lines(name: str, about: Surface) -> list[str]:
    if name.endswith("Error"):
        return [f"{name}: {', '.join(about['bases'])}"]
    lines = [f"{name}({_written(about['parameters'])})" if "parameters" in about else name]
    for member, its in about.get("members", {}).items():
        call = f"({_written(its['parameters'])})" if its["kind"] == "method" else ""
        lines.append(f"    .{member}{call}")
    return lines


def _written(parameters: list[Surface]) -> str:
    words, bare = [], False
    for one in parameters:
        if one["kind"] == "keyword_only" and not bare:
            bare = True
            words.append("*")
        if one["kind"].startswith("var_"):
            words.append(("*" if one["kind"] == "var_positional" else "**") + one["name"])
            bare = True
        else:
            words.append(one["name"] if one["default"] is None else f"{one['name']}={one['default']}")
    return ", ".join(words)


def _wrapped(words: Iterable[str], indent: int = 4, width: int = 120) -> list[str]:
    lines = [" " * indent]
    for word in words:
        if len(lines[-1]) + len(word) + 1 > width:
            lines.append(" " * indent)
        lines[-1] += ("" if lines[-1].isspace() else " ") + word
    return lines if lines[-1].strip() else lines[:-1]


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (heads, ("---",) * len(heads), *rows)]


def main() -> None:
    """Write the page, and keep the surface of a release where that is asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--freeze", metavar="VERSION", help="keep the surface as that of this release")
    given = parser.parse_args()
    found = surface()
    PAGE.write_text(page(found), encoding="utf-8")
    if given.freeze:
        FROZEN.mkdir(exist_ok=True)
        content = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
        (FROZEN / f"{given.freeze}.json").write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
