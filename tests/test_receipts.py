"""Receipts in a ledger's database, SQLite or PostgreSQL: shared by all who share the ledger, and brought over once."""

from __future__ import annotations

import os
import shutil
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

import occamroute as oc
from occamroute.ledger.database import Database, SqliteDatabase
from occamroute.ledger.postgres_database import PostgresDatabase
from occamroute.routing import receipts as module
from occamroute.routing.history import History
from occamroute.routing.receipts import Receipts

OLD = Path(__file__).parent / "old_files" / "0.1.0"
GUIDE = oc.Guide("features", "linf", 5)
OLD_GUIDE = oc.Guide("small", "linf", 10)


def profile_of(rows: int = 60, costs: tuple[float, ...] = (0.1, 1.0)) -> oc.Profile:
    """Four features that say nothing, and classifiers that are right by chance."""
    random = np.random.default_rng(rows)
    return oc.Profile(
        names=tuple(f"model {number}" for number in range(len(costs))),
        costs=costs,
        features=random.random((rows, 4)),
        success=(random.random((rows, len(costs))) < 0.7).astype(float),
    )


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger is that several processes share."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("database"))
    return f"sqlite:///{tmp_path}/spend.db"


@contextmanager
def router_of(address: str, state: Path, profile: oc.Profile | None = None, **options: Any) -> Iterator[Any]:
    """A router on a ledger; ``name`` is the ledger's."""
    ledger = oc.open_ledger(address, cap=1000, name=options.pop("name", "default"))
    given = {"arrivals": 20, "guide": GUIDE, "ledger": ledger, "state": state, **options}
    with closing(ledger), oc.Router(profile_of() if profile is None else profile, **given) as router:
        yield router


def test_what_one_process_writes_the_others_find(address: str, tmp_path: Path) -> None:
    """A decision, its outcome and its feedback are the same for all; it replays where its rows are known."""
    with router_of(address, tmp_path / "a") as one, router_of(address, tmp_path / "b") as other:
        decision = one.route(np.zeros(4), client="ann")
        assert other.receipts.decision(decision.id).name == decision.name
        assert other.receipts.replay(decision.id)
        one.receipts.outcome(decision.id, {"label": "cat", "cost": "0.1"})
        assert other.feedback(decision.id, label="cat") == 1.0
        assert one.feedback(decision, label="dog") == 1.0
        assert one.receipts.get(decision.id) == other.receipts.get(decision.id)
        assert one.receipts.get(decision.id)["feedback"]["label"] == "cat"
        assert not (tmp_path / "a" / "receipts.db").exists()
    with router_of(address, tmp_path / "b") as again:
        assert list(again.receipts.names()) == [decision.id]
        assert again.receipts.search(client="ann")[0]["feedback"]["success"] == 1.0


def test_ledgers_of_one_database_stay_apart(address: str, tmp_path: Path) -> None:
    """Receipts are those of a ledger, by its name."""
    with router_of(address, tmp_path / "a", name="one") as one, router_of(address, tmp_path / "b", name="two") as two:
        decision = one.route(np.zeros(4))
        two.receipts.keep = 1
        for _ in range(20):
            two.route(np.ones(4))
            two.receipts.flush()
        assert (len(one.receipts), len(two.receipts)) == (1, 1)
        assert two.receipts.get(decision.id) is None
        with pytest.raises(oc.UnknownNameError, match="unknown decision"):
            two.feedback(decision.id, success=1)
        assert one.receipts.get(decision.id)["feedback"] is None


def test_the_first_feedback_counts(address: str, tmp_path: Path) -> None:
    """Of many who judge the same decision at once, in two processes' stead, one is the first for all."""
    with router_of(address, tmp_path / "a") as one, router_of(address, tmp_path / "b") as other:
        heard: list[float] = []
        for router in (one, other):
            router._watches.heard = lambda *facts: heard.append(facts[-1])
        for _ in range(5):
            name = one.route(np.zeros(4)).id
            one.receipts.flush()
            with ThreadPoolExecutor(8) as threads:
                said = [
                    threads.submit((one, other)[number % 2].feedback, name, success=number / 8) for number in range(8)
                ]
            (first,) = {future.result() for future in said}
            assert other.receipts.get(name)["feedback"]["success"] == first
            assert heard == [first]
            heard.clear()


def test_pages_of_several_writers(address: str, tmp_path: Path) -> None:
    """While two write, pages hold every decision that was there before them once, newest first."""
    with router_of(address, tmp_path / "a") as one, router_of(address, tmp_path / "b") as other:
        made = [router.route(np.zeros(4), hold=False).id for _ in range(20) for router in (one, other)]
        one.receipts.flush()
        other.receipts.flush()
        seen: list[str] = []
        while page := one.receipts.search(limit=7, before=seen[-1] if seen else None):
            seen += [found["id"] for found in page]
            for router in (one, other):
                router.route(np.zeros(4), hold=False)
                router.receipts.flush()
        assert seen == made[::-1]
        assert list(other.receipts.names())[:40] == made
        # The id need not be that of a receipt.
        assert [found["id"] for found in other.receipts.search(before=f"{made[2][:-1]}~", limit=1)] == [made[2]]
        assert other.receipts.search(before="0" * 28) == []


def test_only_so_many_are_kept(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go, whichever process wrote them, some at a time."""
    monkeypatch.setattr(module, "AT_ONCE", 10)
    with router_of(address, tmp_path / "a") as one, router_of(address, tmp_path / "b") as other:
        made = [one.route(np.zeros(4), hold=False).id for _ in range(50)]
        one.receipts.flush()
        other.receipts.keep = 20
        made += [decision.id for decision in other.look(np.zeros((30, 4)))]
        assert list(other.receipts.names()) == made[-20:]


def test_rows_that_are_not_known_here(address: str, tmp_path: Path) -> None:
    """A process with other rows and classifiers shows the decision without them, and takes feedback for it."""
    unlike = profile_of(80, costs=(0.2, 0.5, 2.0))
    with router_of(address, tmp_path / "a") as one, router_of(address, tmp_path / "b", unlike) as other:
        decision = one.route(np.full(4, 0.5), client="ann")
        whole, found = one.receipts.get(decision.id), other.receipts.get(decision.id)
        assert {**whole, **{name: found[name] for name in whole if found[name] in (None, [])}, "estimates": []} == {
            **found,
            "estimates": [],
        }
        for known, shown in zip(whole["estimates"], found["estimates"], strict=True):
            assert shown == {**known, "spread": None, "score": None}
        assert (found["cost"], found["neighbours"], found["flips"]) == (f"{decision.cost:f}", [], [])
        assert other.receipts.search(classifier=decision.name)[0]["id"] == decision.id
        evidence = other.evidence()
        assert other.feedback(decision.id, success=0.25) == 0.25
        assert other.evidence() == evidence  # its own rows say nothing of that estimate
        assert one.receipts.get(decision.id)["feedback"]["success"] == 0.25
        with pytest.raises(oc.InvalidInputError, match=r"labelled rows that are not known here: .*/b\.$") as raised:
            other.receipts.replay(decision.id)
        assert str(raised.value).count(".") == 1 + str(tmp_path).count(".")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The state folder that 0.1.0 left behind."""
    return Path(shutil.copytree(OLD / "state", tmp_path / "state"))


@pytest.fixture
def said() -> Any:
    import json

    return json.loads((OLD / "contents.json").read_text(encoding="utf-8"))["state"]


def check_old_receipts(found: Any, said: Any) -> None:
    assert list(found.names()) == said["ids"]
    assert [found.decision(name).name for name in said["ids"]] == said["names"]
    assert all(found.replay(name) for name in said["ids"])
    assert found.get(said["ids"][5])["feedback"]["success"] == 1.0
    for name in said["ids"]:
        stored = found.find(name)
        assert stored.cost == found.decision(name).cost
    assert [one["client"] for one in found.search(client="ann")] == ["ann"] * 5


def test_receipts_of_010_are_brought_over(old: Path, said: Any, address: str, tmp_path: Path) -> None:
    """Once, into the ledger's database; the file stays under another name, and others find the receipts, too."""
    bought = oc.load(OLD / "bought.parquet")
    for _ in range(2):
        with router_of(address, old, bought, guide=OLD_GUIDE) as router:
            check_old_receipts(router.receipts, said)
    assert sorted(path.name for path in old.glob("receipts*")) == ["receipts-moved-1.db"]
    with router_of(address, tmp_path / "b") as other:
        found = other.receipts.get(said["ids"][0])
        assert [one["classifier"] for one in found["estimates"]] == ["small", "large"]
        assert found["cost"] in ("0.1", "1")
    # A router with a ledger in memory wrote here meanwhile.
    with oc.Router(bought, budget=20, arrivals=40, guide=OLD_GUIDE, state=old) as router:
        later = router.route(bought.features[0]).id
    with router_of(address, old, bought, guide=OLD_GUIDE) as router:
        assert list(router.receipts.names()) == [*said["ids"], later]
        assert router.receipts.replay(later)
    assert sorted(path.name for path in old.glob("receipts*")) == ["receipts-moved-1.db", "receipts-moved-2.db"]


def test_bringing_over_may_be_interrupted(old: Path, said: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the middle, it is done again at the next start; what was said meanwhile of a receipt stays."""
    bought = oc.load(OLD / "bought.parquet")
    monkeypatch.setattr("occamroute.routing.old_receipts.OLD", module_old(3))
    count, cost_list = 0, History.cost_list

    def stopped(self: History, name: str) -> str:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return cost_list(self, name)

    monkeypatch.setattr(History, "cost_list", stopped)
    with pytest.raises(KeyboardInterrupt), router_of(address, old, bought, guide=OLD_GUIDE):
        pass
    assert (old / "receipts.db").exists()
    ledger: Any = oc.open_ledger(address)
    with closing(ledger), closing(ledger.database()) as database, closing(Receipts(database, History(old))) as half:
        assert 0 < len(half) < len(said["ids"])
        half.feedback(said["ids"][0], {"label": None, "success": 0.5, "at": 1.0})
    with router_of(address, old, bought, guide=OLD_GUIDE) as router:
        check_old_receipts(router.receipts, said)
        assert router.receipts.get(said["ids"][0])["feedback"]["success"] == 0.5
    assert not (old / "receipts.db").exists()


def module_old(limit: int) -> str:
    from occamroute.routing.old_receipts import AT_ONCE, OLD

    return OLD.replace(f"LIMIT {AT_ONCE}", f"LIMIT {limit}")


def test_a_file_of_010_stays_a_file_without_a_database(old: Path, said: Any) -> None:
    """With a ledger in memory receipts stay in the folder, and old ones are read from it."""
    for _ in range(2):
        with closing(Receipts(old / "receipts.db", History(old))) as found:
            check_old_receipts(found, said)
    with closing(SqliteDatabase(old / "receipts.db")) as file:
        tables = [row[0] for row in file.read("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    assert "receipts" not in tables


def test_a_ledger_of_another_package(tmp_path: Path) -> None:
    """It need not know of databases: receipts are in the folder then."""

    class Foreign:
        def __init__(self) -> None:
            inner = oc.open_ledger("memory:", cap=1000)
            for name in ("reserve", "settle", "release", "balance", "find", "apply"):
                setattr(self, name, getattr(inner, name))

    foreign: Any = Foreign()
    with oc.Router(profile_of(), arrivals=20, guide=GUIDE, ledger=foreign, state=tmp_path) as router:
        decision = router.route(np.zeros(4))
    with closing(Receipts(tmp_path / "receipts.db", History(tmp_path))) as found:
        assert found.replay(decision.id)


def test_a_database_that_is_away(tmp_path: Path) -> None:
    """Decisions go on while another process keeps the file locked; what waits is written when it is free."""
    address = f"sqlite:///{tmp_path}/spend.db"
    with router_of(address, tmp_path / "a") as router:
        old = router.route(np.zeros(4), hold=False)
        router.receipts.flush()
        with closing(apsw.Connection(str(tmp_path / "spend.db"))) as other:
            other.execute("BEGIN IMMEDIATE")
            begun = time.monotonic()
            made = [router.route(np.zeros(4), hold=False).id for _ in range(300)]
            assert time.monotonic() - begun < 3.0
            with pytest.raises(oc.StorageError, match=r"^cannot read .*spend\.db: .*(locked|busy).*\.$"):
                router.feedback(old.id, success=1)
            other.execute("ROLLBACK")
        deadline = time.monotonic() + 20
        while len(router.receipts) < 301:
            assert time.monotonic() < deadline
        assert set(made) <= set(router.receipts.names())
        assert router.receipts.dropped == 0


def test_a_server_that_is_away(tmp_path: Path) -> None:
    """Nobody is there: one sentence that holds no password, and whoever asks gets it, not a hanging thread."""
    place = "postgresql://ann:secret-word@127.0.0.1:1/spend"
    with closing(PostgresDatabase(place)) as database, pytest.raises(oc.StorageError) as raised:
        database.read("SELECT 1")
    assert "secret-word" not in str(raised.value)
    assert str(raised.value).startswith("cannot read postgresql://127.0.0.1/spend: ")
    assert str(raised.value).endswith(".")


def test_the_bound_of_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing can be written only so many wait, and what comes on top is counted."""
    monkeypatch.setattr(module, "WAITING", 50)
    with router_of(f"sqlite:///{tmp_path}/spend.db", tmp_path / "a") as router:
        database, write = router.database, router.database.write

        def full(_: Any) -> None:
            raise oc.StorageError(database.place, "the disk is full")

        monkeypatch.setattr(database, "write", full)
        for _ in range(20):
            router.look(np.zeros((5, 4)))
        assert router.receipts.dropped == 100 - 55
        monkeypatch.setattr(database, "write", write)
        deadline = time.monotonic() + 20
        while len(router.receipts) < 55:
            assert time.monotonic() < deadline


def test_texts_that_a_database_cannot_hold(address: str, tmp_path: Path) -> None:
    """They are dropped and counted, and take nobody else's receipt with them."""
    with router_of(address, tmp_path / "a") as router:
        names = [one.id for one in router.look(np.zeros((4, 4)), clients=["ann", "\ud800", None, "bob"])]
        router.receipts.outcome(names[0], {"error": "a lone \udce4, a \0", "label": "ä"})
        assert list(router.receipts.names()) == [names[0], names[2], names[3]]
        assert router.receipts.dropped == 1
        assert router.receipts.get(names[0])["outcome"]["error"] == "a lone \udce4, a \0"
        assert router.receipts.search(client="\ud800") == []
        if address.startswith("postgresql"):
            assert router.receipts.search(client="\0") == []


def test_who_may_not_create_tables(database: str, tmp_path: Path) -> None:
    """Can use those that are there; where there are none, hears so in one sentence."""
    import psycopg

    name = f"user_{os.getpid()}_{time.time_ns()}"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret-word'")
        admin.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        with closing(oc.open_ledger(database, cap=1000)):
            pass
        rights = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}"
        admin.execute(rights)
        address = database.replace("postgres:@", f"{name}:secret-word@")
        with pytest.raises(oc.StorageError, match="permission denied") as raised, router_of(address, tmp_path / "a"):
            pass
        assert "secret-word" not in str(raised.value)
        with router_of(database, tmp_path / "b"):
            pass
        admin.execute(rights)
        with router_of(address, tmp_path / "a") as router:
            decision = router.route(np.zeros(4))
            assert router.feedback(decision.id, success=1) == 1
        admin.execute(f"DROP OWNED BY {name}")
        admin.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_forked_child_opens_the_database_anew(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Parent and child write at once, while a thread of the parent is at work, and no row is lost."""
    made: Database = (
        SqliteDatabase(tmp_path / "x.db") if kind == "sqlite" else PostgresDatabase(request.getfixturevalue("database"))
    )
    made.create("numbers", "CREATE TABLE numbers (who TEXT NOT NULL, number INTEGER NOT NULL)")
    stop = threading.Event()

    def work(who: str) -> None:
        for number in range(50):
            made.write([("INSERT INTO numbers VALUES (?, ?)", (who, number))])

    def read() -> None:
        while not stop.is_set():
            made.read("SELECT count(*) FROM numbers")

    thread = threading.Thread(target=read)
    if kind == "sqlite":  # a connection in use is nothing that a fork may copy, which psycopg cannot prevent
        thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        with suppress(BaseException):
            work("child")
            os._exit(0)
        os._exit(1)
    work("parent")
    assert os.waitpid(child, 0)[1] == 0
    stop.set()
    if kind == "sqlite":
        thread.join()
    found: dict[str, int] = dict(made.read("SELECT who, count(*) FROM numbers GROUP BY who"))
    made.close()
    assert found == {"parent": 50, "child": 50}


def test_the_ledger_waits_for_no_long_transaction(tmp_path: Path) -> None:
    """While thousands of receipts are written beside it, an operation of the ledger takes milliseconds."""
    with router_of(f"sqlite:///{tmp_path}/spend.db", tmp_path / "a") as router:
        router.look(np.zeros((20_000, 4)))
        took: list[float] = []
        while len(took) < 20 or router.receipts._waiting:
            begun = time.monotonic()
            router.ledger.release(router.ledger.reserve(0.1, key=f"key {len(took)}"))
            took.append(time.monotonic() - begun)
        assert np.median(took) < 0.25
        assert len(router.receipts) == 20_000


def test_a_plain_reader_can_use_the_table(tmp_path: Path) -> None:
    """It is a table like any other: costs, outcome and feedback are JSON."""
    with router_of(f"sqlite:///{tmp_path}/spend.db", tmp_path / "a") as router:
        decision = router.route(np.zeros(4), client="ann")
        router.feedback(decision, success=0.5)
    words = "SELECT ledger, client, costs ->> 'model 1', feedback ->> 'success' FROM occamroute_receipts WHERE id = ?"
    with closing(apsw.Connection(str(tmp_path / "spend.db"))) as connection:
        assert connection.execute(words, (decision.id,)).fetchall() == [("default", "ann", "1", 0.5)]
