"""occamroute budget, and batches that share a ledger with others."""

from __future__ import annotations

import json
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from commands import run
from test_cli_live import MODULE, pool_text, refused, write_queries

import occamroute as oc


def said(*words: object, cwd: Path) -> dict[str, Any]:
    """What a command prints as JSON."""
    done = run(*words, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_show_and_set(tmp_path: Path) -> None:
    """A ledger is begun and its cap changed; what is held and spent stays."""
    address = "sqlite:///spend.db"
    refused(run("budget", "show", address, cwd=tmp_path), "there is no ledger 'default' yet")
    refused(run("budget", "set", address, "nan", cwd=tmp_path), "amount")
    assert not (tmp_path / "spend.db").exists()
    found = said("budget", "set", address, "2.50", "--window", "month", cwd=tmp_path)
    assert (found["cap"], found["available"]) == ("2.5", "2.5")
    assert found["until"].endswith("-01T00:00:00+00:00")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        ledger = oc.open_ledger(address)
    ledger.settle(ledger.reserve(1, key="a", client="web"), 0.75)
    ledger.reserve(0.5, key="b")
    assert said("budget", "set", address, 1, cwd=tmp_path) == {
        "client": None, "cap": "1", "held": "0.5", "spent": "0.75", "available": "0", "until": found["until"],
    }  # fmt: skip
    refused(run("budget", "set", address, 1, "--window", "day", cwd=tmp_path), "it cannot be opened with day")
    found = said("budget", "set", address, 1, "--client", "web", cwd=tmp_path)
    assert (found["client"], found["cap"], found["spent"]) == ("web", "1", "0.75")
    assert said("budget", "set", address, "none", "--client", "web", cwd=tmp_path)["cap"] == "1"
    refused(run("budget", "set", address, "none", cwd=tmp_path), "amount")
    done = run("budget", "show", address, cwd=tmp_path)
    assert done.stdout.splitlines()[:4] == ["cap        1", "held       0.5", "spent      0.75", "available  0"]
    ledger.close()


def test_compact(tmp_path: Path) -> None:
    """What ended long ago is folded, and the balance stays; ledgers that share a store are told apart by name."""
    address = f"sqlite:///{tmp_path}/spend.db"
    for name in ("default", "other"):
        assert said("budget", "set", address, 10, "--name", name, cwd=tmp_path)["cap"] == "10"
    with closing(oc.open_ledger(address, name="other")) as ledger:
        for number in range(3):
            ledger.settle(ledger.reserve(1, key=str(number)), 0.5)
        ledger.reserve(1, key="held", lease_seconds=10**9)
        # As if the file system's clock had shown the year 2040 since.
        ledger._connection.execute("UPDATE occamroute_ledgers SET clock = 2210000000000 WHERE name = 'other'")  # type: ignore[attr-defined]
    command = ("budget", "compact", address, "--keep-days")
    assert said(*command, 400, cwd=tmp_path) == {"entries": 0, "holds": 0}
    assert said(*command, 10_000, "--name", "other", cwd=tmp_path) == {"entries": 0, "holds": 0}
    done = run(*command, 400, "--name", "other", cwd=tmp_path)
    assert done.stdout.splitlines() == ["entries    5 removed", "holds      3 removed"]
    found = said("budget", "show", address, "--name", "other", cwd=tmp_path)
    assert (found["held"], found["spent"]) == ("1", "1.5")
    refused(run(*command, 0, cwd=tmp_path), "keep_days must be a number from 1 to")
    refused(run(*command, 400, "--name", "nobody", cwd=tmp_path), "there is no ledger 'nobody' yet")


def test_batches_share_a_cap(tmp_path: Path) -> None:
    """A profile and a run book every call to the ledger, whose cap counts beside their budgets."""
    address = f"sqlite:///{tmp_path / 'spend.db'}"
    (tmp_path / "rules.py").write_text(MODULE)
    (tmp_path / "pool.toml").write_text(pool_text("good"))
    write_queries(tmp_path / "train.csv", 40)
    write_queries(tmp_path / "new.csv", 40, first=100)
    profiling = ("profile", "pool.toml", "train.csv", "--out", "profile.parquet", "--ledger", address)
    refused(run(*profiling, cwd=tmp_path), "make one with 'occamroute budget set ADDRESS AMOUNT'")
    assert not (tmp_path / "spend.db").exists()
    said("budget", "set", address, 170, cwd=tmp_path)
    said(*profiling, cwd=tmp_path)
    assert said("budget", "show", address, cwd=tmp_path)["spent"] == "120"
    words = ("classify", "pool.toml", "profile.parquet", "new.csv", "--budget", 80, "--ledger", address)
    found = said(*words, "--out", "answers.csv", cwd=tmp_path)
    balance = said("budget", "show", address, cwd=tmp_path)
    assert Decimal(balance["spent"]) == 120 + Decimal(found["spent"]) <= 170
    assert balance["held"] == "0"
    assert float(found["spent"]) > 40  # more than the cheapest for all: what the ledger leaves is used
    said("budget", "set", address, 0, cwd=tmp_path)
    refused(
        run(*words, "--out", "more.csv", "--journal", "other.journal", cwd=tmp_path),
        "none of the 40 queries was answered",
        code=2,
    )
