"""Stamps of benchmark results: what was measured with which code, and which results are out of date."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import stamping
from stamping import Result, Tree, check, record

RESULT = Result(("numbers.json",), ("ledger", "_money.py"), "python benchmarks/numbers.py")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A repository with one result, which measures a folder and a module."""
    monkeypatch.setattr(stamping, "RESULTS", {"numbers": RESULT})
    package = tmp_path / "src" / "occamroute"
    (package / "ledger").mkdir(parents=True)
    (package / "ledger" / "sqlite.py").write_text("RULE = 1\n")
    (package / "_money.py").write_text("UNIT = 9\n")
    (package / "charts.py").write_text("WIDTH = 80\n")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "numbers.json").write_text("[1]")
    tree = Tree(tmp_path)
    tree.git("init", "-q")
    commit(tree)
    return tree


def commit(tree: Tree) -> str:
    """Commit everything."""
    tree.git("add", "-A")
    tree.git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "all")
    return (tree.git("rev-parse", "HEAD") or b"").decode().strip()


def reasons(tree: Tree) -> tuple[str, ...]:
    """Why the result is out of date."""
    (found,) = check(tree)
    assert found.current == (not found.reasons)
    return found.reasons


def test_a_result_is_current_until_what_it_measures_changes(tree: Tree) -> None:
    """Modules that it does not measure may change; a file that is added to a measured folder counts."""
    assert reasons(tree) == ("it has no stamp",)
    record("numbers", tree)
    assert reasons(tree) == ()
    (tree.package / "charts.py").write_text("WIDTH = 100\n")
    assert reasons(tree) == ()
    (tree.package / "ledger" / "memory.py").write_text("RULE = 2\n")
    (reason,) = reasons(tree)
    assert reason.endswith(": ledger")
    (tree.package / "_money.py").write_text("UNIT = 6\n")
    (reason,) = reasons(tree)
    assert reason.endswith(": ledger, _money.py")


def test_a_result_that_was_edited_is_out_of_date(tree: Tree) -> None:
    """Numbers that no run has written are noticed."""
    record("numbers", tree)
    (tree.root / "benchmarks" / "numbers.json").write_text("[2]")
    assert reasons(tree) == ("its files were changed after they were stamped",)


def test_a_result_of_an_earlier_commit(tree: Tree) -> None:
    """It is stamped with the modules as they were then."""
    earlier = (tree.git("rev-parse", "HEAD") or b"").decode().strip()
    (tree.package / "ledger" / "sqlite.py").write_text("RULE = 3\n")
    commit(tree)
    record("numbers", tree, commit=earlier)
    (reason,) = reasons(tree)
    assert reason.startswith(f"changed since commit {earlier[:7]} (")
    assert reason.endswith(": ledger")
    tree.git("checkout", "-q", earlier)
    assert json.loads(tree.stamps.read_text())["numbers"]["commit"] == earlier
    assert reasons(tree) == ()
    with pytest.raises(SystemExit, match="does not know the commit"):
        record("numbers", tree, commit="0" * 40)


def test_the_command_lists_every_result() -> None:
    """It is a reminder: it exits with 0 even where results are out of date."""
    here = Path(__file__).parents[1] / "benchmarks" / "current.py"
    words = [sys.executable, str(here), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = {row["result"]: row for row in json.loads(done.stdout)}
    assert found.keys() == stamping.RESULTS.keys()
    assert all(row["current"] == (not row["reasons"]) for row in found.values())
    assert all("it has no stamp" not in row["reasons"] for row in found.values())
