"""Stamps of kept results: the commit and the hashes of the modules that each was measured with.

``benchmarks/stamps.json`` holds one stamp for each result in ``RESULTS``. ``benchmarks/current.py --stamp NAME`` writes
one after a result was made; without options it lists results whose stamp no longer fits.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from occamroute.evaluation.source_hashes import hash_of, source_hashes
from occamroute.evaluation.studies.running import MEASURED

__all__ = ["RESULTS", "Finding", "Result", "Tree", "check", "record", "stamp", "stamp_at"]

LIBRARIES = ("numpy", "numba", "scikit-learn", "scipy", "pyarrow")
PLANNING = ("_arrays.py", "_money.py", "estimation", "knapsack", "neighbors", "planning", "profiles.py")
ROUTING = ("_money.py", "ledger", "routing")


@dataclass(frozen=True)
class Result:
    """A kept result: its files (patterns below ``benchmarks``), the modules it measures, and how to make it again."""

    files: tuple[str, ...]
    modules: tuple[str, ...]
    command: str


def _pair(stem: str, modules: tuple[str, ...], command: str) -> Result:
    return Result((f"{stem}.json", f"{stem}.md"), modules, command)


RESULTS: Mapping[str, Result] = {
    "gpu": _pair("gpu/results", ("neighbors",), "python benchmarks/gpu/neighbors.py"),
    "paper": Result(
        ("paper/*.csv", "paper/*.json", "paper/index.html"),
        MEASURED,
        "occamroute study all --data DIR --out benchmarks/paper",
    ),
    "reliability/cluster": _pair(
        "reliability/cluster",
        (*ROUTING, "executors", "serving"),
        "python benchmarks/reliability/cluster.py --out benchmarks/reliability",
    ),
    "reliability/killed_workers": _pair(
        "reliability/killed_workers",
        ("_money.py", "execution", "executors", "ledger", "calls"),
        "python benchmarks/reliability/killed_workers.py --out benchmarks/reliability",
    ),
    "reliability/ledger": _pair(
        "reliability/ledger",
        ("_money.py", "ledger"),
        "python benchmarks/reliability/ledger.py --out benchmarks/reliability",
    ),
    "reliability/load": _pair(
        "reliability/load",
        (*ROUTING, "neighbors", "serving"),
        "python benchmarks/reliability/load.py --out benchmarks/reliability",
    ),
    "reliability/online": Result(
        ("reliability/online.md",),
        (*PLANNING, "ledger", "routing"),
        "python benchmarks/reliability/online.py --out benchmarks/reliability/online.md",
    ),
    "reliability/replicas": _pair(
        "reliability/replicas",
        (*ROUTING, "calls", "serving"),
        "python benchmarks/reliability/replicas.py --out benchmarks/reliability",
    ),
    "reliability/upstream": _pair(
        "reliability/upstream",
        (*ROUTING, "adapters/_http.py", "adapters/_wire.py", "adapters/openai.py", "calls", "serving"),
        "python benchmarks/reliability/upstream.py --out benchmarks/reliability",
    ),
    "results/drift": Result(
        ("results/drift.md",),
        ("estimation/bagged.py", "neighbors", "routing/drift.py", "routing/martingales.py", "routing/novelty.py"),
        "python benchmarks/drift.py --data DIR --out benchmarks/results/drift.md",
    ),
    "results/languages": Result(
        ("results/languages.md",),
        (*PLANNING, "execution", "calls"),
        "python benchmarks/languages.py --data FILE",
    ),
    "results/text": Result(
        ("results/text.md",),
        (*PLANNING, "text_features.py"),
        "python benchmarks/text.py --data DIR --out benchmarks/results/text.md",
    ),
    "scale/out_of_core": _pair(
        "scale/out_of_core",
        (*PLANNING, "executors", "folders.py", "part_folders.py", "storage.py"),
        "python benchmarks/scale/out_of_core.py",
    ),
    "scale/sizing": _pair(
        "scale/sizing",
        (*PLANNING, "executors", "folders.py", "part_folders.py", "storage.py"),
        "python benchmarks/scale/sizing.py",
    ),
}


@dataclass(frozen=True)
class Tree:
    """A checkout: the package, the results and their stamps."""

    root: Path = field(default_factory=lambda: Path(__file__).parents[1])

    @property
    def package(self) -> Path:
        """The package's folder."""
        return self.root / "src" / "occamroute"

    @property
    def stamps(self) -> Path:
        """The file of all stamps."""
        return self.root / "benchmarks" / "stamps.json"

    def read(self) -> dict[str, dict[str, Any]]:
        """The stamps by result."""
        if not self.stamps.exists():
            return {}
        known: dict[str, dict[str, Any]] = json.loads(self.stamps.read_text(encoding="utf-8"))
        return known

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Keep a result's stamp."""
        known = self.read() | {name: dict(content)}
        self.stamps.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def result_hash(self, result: Result) -> str:
        """One hash of the result's own files."""
        folder = self.root / "benchmarks"
        files = [file for pattern in result.files for file in folder.glob(pattern)]
        return hash_of({file.relative_to(folder).as_posix(): file.read_bytes() for file in files})

    def git(self, *words: str) -> bytes | None:
        """What git says about this checkout; None where there is no git or no repository."""
        try:
            done = subprocess.run(["git", "-C", str(self.root), *words], capture_output=True, check=True)  # noqa: S607
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout


def stamp(modules: Iterable[str], tree: Tree | None = None) -> dict[str, Any]:
    """What is measured now: commit, module hashes, date, library versions and machine."""
    tree = tree or Tree()
    commit = tree.git("rev-parse", "HEAD")
    return {
        "commit": None if commit is None else commit.decode().strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "modules": source_hashes(tree.package, modules),
        "libraries": {"python": platform.python_version()} | {name: _version(name) for name in LIBRARIES},
        "machine": f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores",
    }


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def stamp_at(commit: str, modules: Iterable[str], tree: Tree | None = None) -> dict[str, Any]:
    """The stamp of a result that was measured at an earlier commit, whose libraries and machine are not known."""
    tree = tree or Tree()
    said = tree.git("show", "-s", "--format=%H %as", commit)
    if said is None:
        raise SystemExit(f"git does not know the commit {commit!r}.")
    full, date = said.decode().split()
    hashes = {}
    for module in modules:
        # A commit's tree lists a folder's files recursively, and a file as itself.
        listed = tree.git("ls-tree", "-r", "--name-only", "-z", full, f"src/occamroute/{module}") or b""
        paths = [path for path in listed.decode().split("\0") if path.endswith(".py")]
        files = {path.removeprefix("src/occamroute/"): tree.git("show", f"{full}:{path}") or b"" for path in paths}
        hashes[module] = hash_of(files)
    return {"commit": full, "date": date, "modules": hashes, "libraries": None, "machine": None}


def record(name: str, tree: Tree | None = None, *, commit: str | None = None) -> None:
    """Stamp a result that was just written, or with ``commit`` one that was measured at that commit.

    A result is as old as its oldest part: where only some of its trials were run again, give the commit of the others.
    """
    tree = tree or Tree()
    result = RESULTS[name]
    content = stamp(result.modules, tree) if commit is None else stamp_at(commit, result.modules, tree)
    tree.write(name, content | {"result": tree.result_hash(result)})


@dataclass(frozen=True)
class Finding:
    """Whether a result is current, and why not."""

    name: str
    reasons: tuple[str, ...]
    command: str

    @property
    def current(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons


def check(tree: Tree | None = None) -> list[Finding]:
    """Each kept result, with the reasons why it is out of date."""
    tree = tree or Tree()
    known = tree.read()
    return [
        Finding(name, tuple(_reasons(known.get(name), result, tree)), result.command)
        for name, result in RESULTS.items()
    ]


def _reasons(known: Mapping[str, Any] | None, result: Result, tree: Tree) -> Iterable[str]:
    if known is None:
        yield "it has no stamp"
        return
    if known["result"] != tree.result_hash(result):
        yield "its files were changed after they were stamped"
    now = source_hashes(tree.package, result.modules)
    changed = [module for module, value in now.items() if known["modules"].get(module) != value]
    if changed:
        since = f"commit {known['commit'][:7]}" if known["commit"] else "it was measured"
        yield f"changed since {since} ({known['date']}): {', '.join(changed)}"
