"""Nothing is left undocumented, misspelt or without its counterpart: names, verbs, options, endpoints, the paper."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import make_reference
import pytest
from documentation_words import ROOT, WORDS, allowed_words, words_of
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import occamroute as oc
from occamroute.evaluation.studies import STUDIES
from occamroute.serving.app import OPERATIONS

DOCS = sorted(ROOT.glob("docs/**/*.md"))
OTHERS = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES = [*OTHERS, *DOCS, *sorted(ROOT.glob("examples/**/*.md")), *sorted(ROOT.glob("benchmarks/**/*.md"))]
PUBLIC = [name for name in oc.__all__ if name != "__version__"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name: str) -> None:
    """A public name has a docstring of its own, and so has whatever of it is public."""
    found = getattr(oc, name)
    assert own_docstring(found), name
    if not inspect.isclass(found) or issubclass(found, BaseException):
        return
    for member, value in vars(found).items():
        unwrapped = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not member.startswith("_") and (inspect.isfunction(unwrapped) or isinstance(unwrapped, property)):
            assert inspect.getdoc(unwrapped), f"{name}.{member}"


def own_docstring(found: Any) -> str:
    """What a name says of itself; a dataclass without a docstring says only its signature."""
    text = found.__dict__.get("__doc__") if inspect.isclass(found) else found.__doc__
    return "" if text is None or text.startswith(f"{getattr(found, '__name__', '')}(") else text


def test_a_dataclass_without_words_is_undocumented() -> None:
    """What Python makes up by itself does not count."""
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Bare:
        number: int

    assert not own_docstring(Bare)
    assert own_docstring(oc.Plan)


def test_the_reference_has_every_public_name() -> None:
    """Each name stands under one heading, once."""
    grouped = [name for names in make_reference.grouped_names().values() for name in names]
    assert sorted(grouped) == sorted(PUBLIC)
    page = make_reference.python_page()
    for name in PUBLIC:
        assert len(re.findall(rf":: occamroute\.{name}$", page, re.MULTILINE)) == 1, name
    # So has what pages import from below the package.
    imported = [found for one in DOCS for found in re.findall(r"from (occamroute\.\S+) import (\w+)", one.read_text())]
    assert ("occamroute.executors.ray", "RayExecutor") in imported
    for module, name in imported:
        assert f":: {module}.{name}\n" in page, (module, name)


def test_a_name_from_nowhere_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new public name whose package has no heading stops the build."""
    monkeypatch.setattr(make_reference, "GROUPS", {"Pools": ("pool",)})
    with pytest.raises(KeyError):
        make_reference.grouped_names()


def options_of(command: Any) -> list[Any]:
    return [one for one in command.params if not one.hidden]


COMMANDS = dict(make_reference.commands())


@pytest.mark.parametrize("path", COMMANDS)
def test_verbs_and_options_are_documented(path: str) -> None:
    """Every verb says what it does, every argument and option what it is for, and the reference has all of them."""
    command = COMMANDS[path]
    assert command.help, path
    section = make_reference.command_page().partition(f"## occamroute {path}".rstrip() + "\n")[2].partition("\n## ")[0]
    assert command.help.splitlines()[0].rstrip(".") in section
    for one in options_of(command):
        assert one.help, f"{path} {one.name}"
        assert make_reference._names(one) in section, f"{path} {one.name}"


def test_verbs_are_in_the_pages() -> None:
    """Every verb is used or explained in some page that people wrote."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*OTHERS, *DOCS])
    missing = [path for path in COMMANDS if path and not re.search(rf"occamroute {path}\b", text)]
    assert not missing


def test_endpoints_are_in_the_reference() -> None:
    """Every endpoint has a section with who may ask and how it fails."""
    page = make_reference.http_page()
    for operation in OPERATIONS:
        section = page.partition(f"### `{operation.method} {operation.path}`\n")[2].partition("\n### ")[0]
        assert operation.summary.rstrip(".") in section, operation.path
        assert ("Needs no key" in section) is not operation.guarded
        assert all(f"`{code}`" in section for code in operation.codes)


def test_kinds_of_pool_files_are_in_the_reference() -> None:
    """Every kind of classifier and extractor, with every option."""
    from occamroute.adapters import adapter, kinds
    from occamroute.pool_files.options import options_of as options_of_kind
    from occamroute.pool_files.reading import SECTIONS

    page = make_reference.pool_page()
    for section, family in SECTIONS.items():
        for kind in kinds(family):
            part = page.partition(f"### {section}: {kind}\n")[2].partition("\n### ")[0]
            assert all(f"| `{option}` |" in part for option in options_of_kind(adapter(family, kind))), kind


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_names_in_pages_exist(page: Path) -> None:
    """What a page calls ``oc.plan`` or ``occamroute.knapsack.exact`` can be imported."""
    for path in re.findall(r"`(?:oc|occamroute)\.([a-zA-Z_][\w.]*)", page.read_text(encoding="utf-8")):
        if path not in ENTRY_POINTS and not path.endswith((".toml", ".json")) and path != "toml":
            assert found_at(path), path


# Groups of entry points look like modules, and are none.
ENTRY_POINTS = {"classifiers", "extractors", "estimators", "ledgers", "schema.json"}


def found_at(path: str) -> bool:
    """Whether there is such a name in the package, a class's field or method included."""
    value: Any = oc
    for part in path.rstrip(".").split("."):
        if inspect.isclass(value) and part in getattr(value, "__annotations__", {}):
            return True
        if not hasattr(value, part):
            try:
                value = importlib.import_module(f"{value.__name__}.{part}")
            except ImportError:
                return False
        else:
            value = getattr(value, part)
    return True


def test_the_paper_is_covered() -> None:
    """Every equation, lemma, table and figure of the paper, and every study, is in the page about it."""
    page = text_of("docs/paper-and-product.md")
    expanded = re.sub(r"(Lemmas) (\d) and (\d)", r"Lemma \2, Lemma \3", page)
    wanted = [f"Figure {number}" for number in range(1, 16)] + [f"Table {number}" for number in range(1, 8)]
    wanted += [f"Equation {number}" for number in range(1, 5)] + [f"Lemma {number}" for number in range(1, 5)]
    for item in [*wanted, "Algorithm 1"]:
        assert re.search(rf"{item}(?!\d)", expanded), item
    assert all(f"`{name}`" in page for name in STUDIES)


def test_numbers_about_the_paper_were_measured() -> None:
    """Shares with a decimal in the page about the paper are in the findings that are kept."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "benchmarks" / "paper").glob("*.json")]
    found = " ".join(text for record in records for text in record["findings"].values())
    numbers = re.findall(r"\d+\.\d+ %", text_of("docs/paper-and-product.md"))
    assert len(numbers) >= 6
    assert [number for number in numbers if number not in found] == []


def test_every_symbol_of_the_paper_is_in_the_glossary() -> None:
    """The symbols of the problem, the method and Algorithm 1."""
    glossary = text_of("docs/concepts.md").partition("## Glossary")[2]
    symbols = ["𝒳", "dist", "[C]", "f_M", "b_i", "c_i", "x_N", "O(x)", "| B |", "μ", "μ*", "Accuracy(μ)", "Cost(μ)"]
    symbols += ["f_i(x)[j]", "SP_i(x)", "ŜP_i(x)", "NN_S(x)", "S_K", "; s;", "K |", "σ_i", "λ", "t_{i,j}", "τ", "z_k"]
    symbols += ["| r |", "L_i", "l∞", "ILPSolver", "SampleAccuracy", "𝟙{·}", "normalized cost"]
    assert [symbol for symbol in symbols if symbol not in glossary] == []


def test_words_are_spelt_right() -> None:
    """Every word is in the dictionary, or in the list of those that are right all the same."""
    from spellchecker import SpellChecker

    checker, allowed = SpellChecker(language="en"), allowed_words()
    assert checker.unknown(["neihgbour"])  # the dictionary is there, and does not know everything
    wrong = {
        page.relative_to(ROOT).as_posix(): sorted(unknown)
        for page in PAGES
        if (unknown := {word for word in checker.unknown(words_of(page)) if len(word) > 1} - allowed)
    }
    assert not wrong, f"misspelt, or to be added to {WORDS.relative_to(ROOT)}: {wrong}"


def test_the_list_of_words_is_in_order() -> None:
    """Sorted and without doubles, so that two changes to it seldom collide."""
    lines = WORDS.read_text(encoding="utf-8").splitlines()
    assert lines == sorted(set(lines))


def test_no_common_misspelling() -> None:
    """Pages, docstrings and comments, by codespell's list of what people often get wrong."""
    places = [
        "src",
        "tests",
        "scripts",
        "docs",
        "examples",
        "benchmarks",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
    ]
    skipped = "*.svg,*.json,*.csv,*.html,*.parquet,*.png,words.txt,detectors.py,occamroute.toml,test_documentation.py"
    words = ["--skip", skipped, "--ignore-words-list", "sav,te,als"]
    done = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *words, *places], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def pins(name: str) -> dict[str, str]:
    """Version by package of a file of pins."""
    lines = text_of(f"scripts/{name}").splitlines()
    pairs = (line.partition(";")[0].strip().split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(package): version for package, version in pairs}


def test_pins_hold_all_that_the_site_needs() -> None:
    """What ``scripts/docs`` installs without looking for dependencies is complete, and agrees with the other pins."""
    given = pins("pins-run.txt") | pins("pins-docs.txt")
    for package, version in (pins("pins-test.txt") | pins("pins-run.txt")).items():
        assert given.get(package, version) == version, package
    waiting, seen = ["sphinx", "myst-parser", "furo", "fastapi", "uvicorn", "httptools", "codespell"], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        wanted = [Requirement(line) for line in distribution(name).requires or []]
        needed = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
        waiting += [canonicalize_name(one.name) for one in needed]
    assert seen <= set(given)
