"""Compiled kernels on disk: what another version of the package left there is never used."""

from __future__ import annotations

import multiprocessing
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

# A child that is forked from here has numba already, whose import takes longer than everything else.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
FORK = multiprocessing.get_context("fork")

CALLER = """
import callee
from occamroute._compiled import kernel

@kernel()
def outer(value):
    return inner(value)[0] + FIVE

inner, FIVE = callee.inner, callee.FIVE
result = outer(callee.Pair(1, 2))
stats = outer.stats
told = [result, sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]
"""
CALLEE = """
from typing import NamedTuple
from occamroute._compiled import kernel

class Pair(NamedTuple):
    left: int
    right: int

FIVE = 5

@kernel()
def inner(pair):
    return pair.left * 10, pair.right
"""


def run(folder: Path) -> list[int]:
    """In a process of its own: the kernel's result, how often it was found on disk, how often it was compiled."""
    results: Any = FORK.SimpleQueue()

    def work() -> None:
        sys.path.insert(0, str(folder))
        sys.dont_write_bytecode = True
        results.put(runpy.run_path(str(folder / "caller.py"))["told"])

    process = FORK.Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0
    return list(results.get())


def write(folder: Path, callee: str = CALLEE) -> None:
    """The caller stays as it is; only what it calls differs."""
    if not (folder / "caller.py").exists():
        (folder / "caller.py").write_text(CALLER)
    (folder / "callee.py").write_text(callee)


def test_what_is_on_disk_is_used(tmp_path: Path) -> None:
    """Compiled once, found the next time."""
    write(tmp_path)
    assert run(tmp_path) == [15, 0, 1]
    assert run(tmp_path) == [15, 1, 0]


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        ("* 10", "* 20", 25),  # a kernel that is called
        ("FIVE = 5", "FIVE = 7", 17),  # a constant that is named
        ("pair.left * 10, pair.right", "pair.right * 10, pair.left", 25),
    ],
)
def test_what_was_compiled_from_something_else_is_not(tmp_path: Path, old: str, new: str, result: int) -> None:
    """A change in another file than the kernel's own counts."""
    write(tmp_path)
    assert run(tmp_path)[0] == 15
    write(tmp_path, CALLEE.replace(old, new))
    assert run(tmp_path) == [result, 0, 1]


def test_an_index_that_names_what_is_gone(tmp_path: Path) -> None:
    """A type that was renamed, a damaged file: compiled anew, and kept."""
    write(tmp_path)
    run(tmp_path)
    write(tmp_path, CALLEE.replace("Pair", "Couple") + "\nglobals()['Pa' + 'ir'] = Couple\n")
    assert run(tmp_path)[0] == 15
    write(tmp_path, CALLEE.replace("class Pair", "class Couple") + "\ndef Pair(*both): return Couple(*both)\n")
    assert run(tmp_path) == [15, 0, 1]
    assert run(tmp_path) == [15, 1, 0]
    for index in (tmp_path / "__pycache__").glob("*.nbi"):
        index.write_bytes(index.read_bytes()[:-9])
    assert run(tmp_path) == [15, 0, 1]
    assert run(tmp_path) == [15, 1, 0]
