"""What earlier versions wrote is read: files, folders, journals, ledgers and state folders of every release."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from old_files import make

import occamroute as oc
from occamroute.ledger.base import Find, FindReply, Reply, Reserve
from occamroute.serving.keys import read_keys

RELEASES = sorted(path for path in (Path(__file__).parent / "old_files").iterdir() if (path / "contents.json").exists())


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a release wrote: reading must not need more than that, and may change it."""
    return Path(shutil.copytree(request.param, tmp_path / "old"))


@pytest.fixture
def contents(old: Path) -> Any:
    return json.loads((old / "contents.json").read_text(encoding="utf-8"))


def test_the_first_release_is_kept() -> None:
    assert "0.1.0" in {path.name for path in RELEASES}


def test_profiles(old: Path, contents: Any) -> None:
    profile = oc.load(old / "profile.parquet")
    assert profile.fingerprint == contents["nouns"]["fingerprint"] == make.profile().fingerprint
    assert oc.load(old / "bought.parquet").fingerprint == contents["nouns"]["bought"]


def test_plans_frontiers_runs_and_reports(old: Path, contents: Any) -> None:
    said = contents["nouns"]
    plan, frontier = oc.load(old / "plan.parquet"), oc.load(old / "frontier.parquet")
    oc.verify(plan)
    assert plan.choice.tolist() == said["plan"]["choice"]
    assert (plan.planned_cost, plan.expected_accuracy) == (said["plan"]["cost"], said["plan"]["accuracy"])
    assert frontier.budgets.tolist() == said["frontier"]["budgets"]
    assert frontier.accuracies.tolist() == said["frontier"]["accuracies"]
    run, report = oc.load(old / "run.parquet"), oc.load(old / "report.parquet")
    assert (list(run.answers), run.spent, run.choice.tolist()) == tuple(said["run"].values())
    assert [[row["method"], row["accuracy"]] for row in report.rows] == said["report"]


def test_folders(old: Path, contents: Any) -> None:
    estimate, plan, run = (oc.load(old / name) for name in ("estimates", "plan", "run"))
    said = contents["folders"]
    assert len(estimate) == make.ROWS
    oc.verify(plan)
    assert [plan.planned_cost, plan.expected_accuracy, plan.usage] == list(said["plan"].values())
    assert [run.spent, run.usage] == list(said["run"].values())
    # A folder's plan can still be bought, and an estimate planned with.
    again = estimate.plan(make.BUDGET, out=old / "plan-again")
    assert again.usage == plan.usage


def test_an_interrupted_run_in_a_folder_goes_on(old: Path) -> None:
    """The first part is there, and the second one's journal: nothing of either is bought again."""
    pool = make.pool()
    run = oc.execute(oc.load(old / "plan.parquet"), pool, make.queries(), out=old / "stopped-run")
    whole = oc.load(old / "run")
    assert (run.spent, run.usage) == (whole.spent, whole.usage)
    asked = {row for one in pool.classifiers for row in one.asked}
    assert asked
    assert min(asked) >= make.PART_ROWS


@pytest.mark.usefixtures("all_candidates")  # among which the interrupted run chose
def test_interrupted_classifications_and_profiles_go_on(old: Path, contents: Any) -> None:
    """The same call with the old journal buys what is missing, and ends as one that was never interrupted."""
    bought, paid = oc.load(old / "bought.parquet"), contents["journals"]
    first, second = make.pool(), make.pool()
    run = oc.classify(first, bought, make.queries(1), budget=make.BUDGET, journal=old / "classify.journal")
    whole = oc.classify(make.pool(), bought, make.queries(1), budget=make.BUDGET)
    assert (list(run.answers), run.spent) == (list(whole.answers), whole.spent)
    profile = oc.profile(
        second, make.queries(2), make.truth(2), extractor="small", journal=old / "profile.journal"
    )  # fmt: skip
    fresh = oc.profile(make.pool(), make.queries(2), make.truth(2), extractor="small")
    assert np.array_equal(profile.success, fresh.success)
    for name, pool in (("classify", first), ("profile", second)):
        for one in pool.classifiers:
            assert not set(one.asked) & set(paid[name][one.name]), (name, one.name)
        assert sum(len(rows) for rows in paid[name].values()) > 0


def check_ledger(address: str, contents: Any) -> None:
    """Balances are as they were, holds can be ended, and money can be held again."""
    with closing(oc.open_ledger(address)) as ledger:
        for client, amounts in contents["ledgers"].items():
            balance = ledger.balance(client or None)
            assert [str(getattr(balance, name)) for name in ("cap", "held", "spent", "available")] == amounts
        assert [entry.event for entry in ledger.entries()] == [
            "reserve", "settle", "reserve", "release", "reserve", "expire", "reserve"
        ]  # fmt: skip
        kept = ledger.reserve(2, key="held")
        assert not kept.fresh
        ledger.settle(kept, 1)
        expired = ledger.reserve(1, key="expired", client="ann")
        assert expired.state == "expired"
        ledger.settle(expired, 0.5)
        assert str(ledger.balance().spent) == "1.75"
        assert ledger.reserve(8.25, key="new").fresh
    with pytest.raises(oc.InvalidInputError, match="cap"):
        oc.open_ledger(address, cap=11)


@pytest.fixture(params=["sqlite", "postgresql"])
def old_ledger(request: pytest.FixtureRequest, old: Path) -> str:
    """The address of a ledger as a release left it."""
    if request.param == "sqlite":
        return f"sqlite:///{old}/ledger.db"
    import psycopg

    address: str = request.getfixturevalue("database")
    with psycopg.connect(address) as connection:
        connection.execute((old / "ledger.sql").read_text(encoding="utf-8").encode())
    return address


def test_a_ledger(old_ledger: str, contents: Any) -> None:
    check_ledger(old_ledger, contents)


def rows_of(address: str, table: str) -> set[tuple[Any, ...]]:
    """The rows of one of the ledger's tables, read without occamroute."""
    words = f"SELECT * FROM occamroute_{table}"  # noqa: S608  # our own words
    if address.startswith("sqlite"):
        with closing(sqlite3.connect(address.removeprefix("sqlite:///"))) as file:
            return set(file.execute(words))
    import psycopg

    with psycopg.connect(address) as connection:
        return set(connection.execute(words.encode()))


def reserve_with_a_reply(address: str, who: int, results: Any) -> None:
    with closing(oc.open_ledger(address)) as ledger:
        results.put([ledger.apply([Reserve("shared", 0.5, reply=Reply("x", str(who))), FindReply("shared")]), who])


def test_a_ledger_is_migrated_when_several_processes_open_it(old_ledger: str) -> None:
    """Nothing is lost, one of them makes the table of replies, and all can use it at once."""
    tables = ("ledgers", "clients", "accounts", "holds", "entries")
    before = {table: rows_of(old_ledger, table) for table in tables}
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    workers = [context.Process(target=reserve_with_a_reply, args=(old_ledger, who, results)) for who in range(6)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    makers = [who for (hold, _), who in found if hold.fresh]
    assert len(makers) == 1
    assert all(reply == Reply("x", str(makers[0])) for (_, reply), _ in found)
    after = {table: rows_of(old_ledger, table) for table in tables}
    assert [row[1:5] for row in after["ledgers"]] == [("default", 2, 10 * 10**9, "total")]
    assert after["clients"] == before["clients"]
    for table in ("holds", "entries"):
        assert after[table] > before[table]
        assert len(after[table]) == len(before[table]) + 1
    assert after["accounts"] - before["accounts"] == {(1, "", 0, 2_500_000_000, 1_250_000_000)}


def test_a_role_that_may_not_make_tables(old: Path, database: str) -> None:
    """It cannot migrate a ledger; once the owner has, it uses everything as before, replies too."""
    import psycopg

    role = f"user_{uuid.uuid4().hex}"
    with psycopg.connect(database) as connection:
        connection.execute((old / "ledger.sql").read_text(encoding="utf-8").encode())
        for words in (
            f"CREATE ROLE {role} LOGIN",
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
        ):
            connection.execute(words.encode())
    other = database.replace("postgres@", f"{role}@").replace("postgres:@", f"{role}:@")
    assert other != database
    with pytest.raises(oc.LedgerError, match="permission denied for schema public"):
        oc.open_ledger(other)
    with closing(oc.open_ledger(database)) as ledger:
        assert len(list(ledger.entries())) == 7
    with closing(oc.open_ledger(other)) as ledger:
        done = ledger.apply([Reserve("a", 1, reply=Reply("x", "y")), Find("a"), FindReply("a")])
        assert done[2] == Reply("x", "y")


def test_a_state_folder(old: Path, contents: Any) -> None:
    """A router goes on where it stopped: rows and classifiers that came, receipts that replay, holds, the ledger."""
    state, said = old / "state", contents["state"]
    bought = oc.load(old / "bought.parquet")
    with oc.Router(bought, arrivals=40, ledger=f"sqlite:///{state}/ledger.db", state=state) as router:
        assert list(router.names) == said["classifiers"]
        assert len(router.snapshot.profile) == said["rows"]
        receipts: Any = router.receipts
        assert list(receipts.names()) == said["ids"]
        assert [receipts.decision(one).name for one in said["ids"]] == said["names"]
        assert all(receipts.replay(one) for one in said["ids"])
        assert receipts.get(said["ids"][5])["feedback"] is not None
        # Leases of what was held then are over by now, and count in full until they are settled.
        balance = router.ledger.balance()
        assert float(balance.held + balance.spent) == pytest.approx(float(said["held"]) + float(said["spent"]))
        waiting = receipts.decision(said["ids"][4])
        router.settle(waiting, 0)
        assert router.ledger.balance().spent < balance.held + balance.spent
        assert router.route(bought.features[0]).name in said["classifiers"]
    keys = read_keys(state / "keys.json")
    assert [(key.name, key.client, set(key.scopes)) for key in keys.listed] == [("cashier", "ann", {"route", "read"})]
