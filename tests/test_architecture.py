"""The house: imports go one way, heavy ones stay lazy, the public names are what the docs say."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import occamroute as oc

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "occamroute"

# Read → as "may import"; nothing imports to the left. Rooms in one set do not import each other.
ORDER: list[set[str]] = [
    {"__main__"},
    {"cli", "testing"},
    {"serving"},
    {"recipes", "reporting"},
    {"evaluation", "routing"},
    {"execution"},
    {"profiling", "datasets"},
    {"planning"},
    {"estimation"},
    {"profiles", "knapsack", "neighbors"},
    {"pool_files", "calls"},
    {"text_features"},
    {"adapters", "executors"},
    {"tables", "data_files", "folders", "part_folders"},
    {"pool"},
    {"storage", "charts", "ledger"},
    {"_money", "_intervals"},
    {"_arrays", "_compiled", "_csv_text", "_loops", "_optional"},
    {"errors", "_version"},
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
ONLY_IN = {
    "typer": {"cli"},
    "rich": {"cli"},
    "sklearn": {"adapters", "estimation", "text_features"},
    "numba": {"_compiled"},
    "pyarrow": {"storage", "tables", "data_files", "folders", "part_folders"},
    "scipy": {"knapsack", "planning"},
    "apsw": {"ledger", "routing"},
    "psycopg": {"ledger"},
    "ray": {"executors", "serving"},
    "sqlite3": {"calls"},
    "threadpoolctl": {"executors"},
    "onnxruntime": {"adapters"},
    "PIL": {"adapters"},
    "safetensors": {"adapters", "recipes"},
    "httpx": {"adapters"},
    "sentence_transformers": {"adapters"},
    "skops": {"adapters"},
    "timm": {"adapters"},
    "torch": {"adapters", "neighbors", "recipes"},
    "torchvision": {"adapters"},
    "transformers": {"adapters"},
    "triton": {"neighbors"},
}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            modules.add(node.module or "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "require":
            # An optional library, imported when it is needed.
            modules |= {str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)}
    return modules


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    """A room imports only rooms further down, and outside packages only where they belong."""
    room = room_of(path)
    for module in imported_modules(path):
        top, _, rest = module.partition(".")
        if top in ONLY_IN:
            assert room in ONLY_IN[top], f"{module} does not belong into {room}"
        if top != "occamroute" or not rest:
            continue
        other = rest.split(".")[0]
        assert other == room or LEVEL[other] > LEVEL[room], f"{room} must not import {other}"


def test_no_drawer_for_odds_and_ends() -> None:
    """A module is named for its one idea."""
    assert not {path.stem for path in FILES} & {"utils", "core", "common", "helpers", "manager"}


def test_importing_starts_nothing() -> None:
    """Neither the package nor the command's help load arrays, compilers or tables."""
    code = (
        "import sys, occamroute, occamroute.cli._app; "
        "heavy = {'numpy', 'numba', 'pyarrow', 'scipy', 'sklearn'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_sorted_and_there() -> None:
    """Everything in __all__ exists and is in order; dir shows it."""
    assert oc.__all__ == sorted(oc.__all__)
    assert dir(oc) == oc.__all__
    for name in oc.__all__:
        assert getattr(oc, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        oc.nothing  # noqa: B018  # the access is the test


def test_errors_survive_a_process() -> None:
    """Every error keeps its sentence when it is copied by its args, and has a built-in parent."""
    examples: list[oc.OccamError] = [
        oc.InvalidInputError("a must be b."),
        oc.UnknownNameError("solver", "x", ("exact", "highs")),
        oc.StorageError("p.parquet", "there is no such file"),
        oc.BudgetTooSmallError(1, 2),
        oc.CertificateError("cost", 1, 2),
        oc.SolverError("highs", "time is up"),
        oc.ExecutorError("ray", "a worker died"),
        oc.MissingExtraError("kind 'torch'", "torch"),
        oc.BudgetExceededError(1, 2),
        oc.LedgerError("spend.db", "the disk is full"),
        oc.JournalError("run.journal", "it is closed"),
        oc.CallRefusedError("slow down", 3.0),
        oc.CallLostError("a reset"),
        oc.UnavailableError("no such model"),
        oc.RepeatedKeyError("order-17", "held"),
    ]
    for error in examples:
        again = type(error)(*error.args)
        assert str(again) == str(error)
        assert str(error).endswith(".")
        assert isinstance(error, ValueError | RuntimeError | ImportError)
