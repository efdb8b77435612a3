"""Stores that cannot be reached, written or trusted mean refusal; what was cut off may be sent again."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import pytest

import occamroute as oc
from occamroute.ledger import Ledger
from occamroute.ledger.embedded import SCHEMA

# Newer Pythons warn of forks beside threads, which numerical libraries start; what is forked here uses ledgers only.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

FORK = multiprocessing.get_context("fork")


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger that several processes share can be."""
    return str(request.getfixturevalue("postgres")) if request.param == "postgresql" else f"sqlite:///{tmp_path}/x.db"


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def in_child(work: Callable[[], Any]) -> Any:
    """What a forked child makes of it, or the sentence of its error."""
    results: Any = FORK.SimpleQueue()

    def run() -> None:
        try:
            results.put(work())
        except oc.OccamError as error:
            results.put(f"{type(error).__name__}: {error}")

    process = FORK.Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == 0
    return results.get()


# Addresses


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("paper:", "unknown ledger 'paper:': use one of memory:, sqlite:///FILE, postgresql://…"),
        ("mysql://me:very-secret@host/db", "unknown ledger 'mysql:'"),
        ("spend.db", "unknown ledger 'spend.db'"),
        ("memory:x", "has the address 'memory:' and no more"),
        ("sqlite://spend.db", "an address like sqlite:///spend.db"),
        ("sqlite:///", "an address like sqlite:///spend.db"),
        ("postgresql://me:very-secret@host/db?colour=red", "this one cannot be read"),
        (Path("spend.db"), "address must be a text"),
    ],
)
def test_addresses_that_are_none(address: Any, words: str) -> None:
    """One sentence, without a password."""
    with pytest.raises(oc.InvalidInputError) as caught:
        oc.open_ledger(address, cap=1)
    assert words in str(caught.value)
    assert "very-secret" not in str(caught.value)


def test_passwords_are_not_told(tmp_path: Path) -> None:
    """Neither by an error nor by what a ledger looks like."""
    for port in ("9", "very-secret"):
        with pytest.raises(oc.LedgerError, match="nothing may be spent") as caught:
            oc.open_ledger(f"postgresql://somebody:very-secret@127.0.0.1:{port}/nothing", cap=1)
        assert "very-secret" not in str(caught.value)
        assert "127.0.0.1" in str(caught.value)
    ledger = oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=1, name="mine")
    assert repr(ledger) == f"<SqliteLedger 'mine' at {tmp_path}/x.db>"
    ledger.close()


def test_other_packages_add_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package registers a home of ledgers by entry point, and its addresses then work."""
    (tmp_path / "paper_ledgers.py").write_text("def open_paper(address, cap, **options):\n    return address, cap\n")
    about = tmp_path / "paper_ledgers-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: paper-ledgers\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[occamroute.ledgers]\npaper = paper_ledgers:open_paper\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    ledger: Any = oc.open_ledger("paper://desk", cap=3)
    assert ledger == ("paper://desk", 3)
    with pytest.raises(oc.UnknownNameError, match="paper:…"):
        oc.open_ledger("stone:", cap=3)


# Files


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """No folder, a folder instead of a file, no database, one of another format."""
    (tmp_path / "text.db").write_text("hello " * 500)
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute(SCHEMA)
    other.execute(
        "INSERT INTO occamroute_ledgers (name, format, cap, time_window, clock) VALUES ('default', 7, 1, 'x', 0)"
    )
    other.close()
    for file, words in {
        "nowhere/x.db": "the folder .* does not exist",
        ".": "cannot be opened",
        "text.db": "no SQLite database",
        "other.db": "its format is 7, this version of occamroute reads 1 to 2",
    }.items():
        with pytest.raises(oc.LedgerError, match=words):
            oc.open_ledger(f"sqlite:///{tmp_path}/{file}", cap=1)


def test_a_folder_that_may_not_be_written() -> None:
    """Neither begun nor opened there, without rights."""
    with tempfile.TemporaryDirectory() as folder:
        oc.open_ledger(f"sqlite:///{folder}/x.db", cap=1).close()
        Path(folder, "x.db").chmod(0o444)
        Path(folder).chmod(0o555)

        def work(file: str) -> Any:
            if os.getuid() == 0:
                os.setuid(65534)  # root may write everywhere
            return oc.open_ledger(f"sqlite:///{folder}/{file}", cap=1).reserve(0.1, key="x")

        assert "LedgerError" in in_child(lambda: work("new.db"))
        assert "it may not be written" in in_child(lambda: work("x.db"))
        Path(folder).chmod(0o755)


def test_a_file_that_is_removed_or_replaced(tmp_path: Path) -> None:
    """It is not begun anew behind the spender's back: that would be another full cap."""
    path = tmp_path / "x.db"
    ledger = oc.open_ledger(f"sqlite:///{path}", cap=1)
    hold = ledger.reserve(0.9, key="a")
    for file in tmp_path.iterdir():
        file.rename(tmp_path / f"away-{file.name}")
    calls: list[Callable[[], Any]] = [
        lambda: ledger.reserve(0.9, key="b"), lambda: ledger.settle(hold, 0.1), ledger.balance,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(oc.LedgerError, match="removed or replaced"):
            call()
    assert not path.exists()
    oc.open_ledger(f"sqlite:///{path}", cap=1).close()
    with pytest.raises(oc.LedgerError, match="removed or replaced"):
        ledger.reserve(0.9, key="b")
    for file in tmp_path.glob("x.db*"):
        file.unlink()
    for file in tmp_path.glob("away-*"):
        file.rename(tmp_path / file.name.removeprefix("away-"))
    assert ledger.balance().held == Decimal("0.9")
    ledger.close()


def test_a_ledger_that_is_deleted(shared_address: str, name: str) -> None:
    """One whose row is gone from the store refuses."""
    ledger: Any = oc.open_ledger(shared_address, cap=1, name=name)
    words = f"DELETE FROM occamroute_ledgers WHERE name = '{name}'"  # noqa: S608
    if hasattr(ledger, "_line"):
        ledger._line.talk(lambda connection: connection.execute(words))
    else:
        ledger._connection.execute(words)
    for call in (lambda: ledger.reserve(0.1, key="x"), ledger.balance, lambda: ledger.change_cap(2)):
        with pytest.raises(oc.LedgerError, match="is not in it any more"):
            call()
    ledger.close()


# A full disk


def spend_until_refused(ledger: Ledger) -> int:
    """How many reservations of 0.001 went through."""
    for number in range(100_000):
        try:
            ledger.reserve(0.001, key=f"{number:0200}")
        except oc.LedgerError:
            return number
    raise AssertionError("the disk never filled")


def check_books(ledger: Ledger, holds: int) -> None:
    """All that was let in is in the books, and nothing else."""
    assert ledger.balance().held == holds * Decimal("0.001")
    assert sum(entry.held for entry in ledger.entries()) == ledger.balance().held


def test_a_full_database(tmp_path: Path) -> None:
    """SQLite says that the disk is full: a refusal, and all is well when there is room again."""
    ledger: Any = oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=1000)
    ledger._connection.execute("PRAGMA max_page_count=40")
    done = spend_until_refused(ledger)
    assert done > 10
    with pytest.raises(oc.LedgerError, match="the disk is full"):
        ledger.reserve(0.001, key="x" * 300)
    check_books(ledger, done)
    ledger._connection.execute("PRAGMA max_page_count=4000")
    ledger.reserve(0.001, key="room again")
    check_books(ledger, done + 1)
    ledger.close()


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """The system refuses to write: the same, and with the real file, also after opening it anew."""
    address = f"sqlite:///{tmp_path}/x.db"
    oc.open_ledger(address, cap=1000).close()

    def work() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
        ledger = oc.open_ledger(address)
        done = spend_until_refused(ledger)
        check_books(ledger, done)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        ledger.reserve(0.001, key="room again")
        return done + 1

    done = in_child(work)
    assert isinstance(done, int), done
    assert done > 10
    ledger = oc.open_ledger(address)
    check_books(ledger, done)
    ledger.close()


# Processes that stop, fork and share


def test_a_client_that_is_stopped_past_its_lease(shared_address: str, name: str) -> None:
    """Its hold counts as spent meanwhile; when it goes on it corrects that once, and the cap was kept all along."""
    ledger = oc.open_ledger(shared_address, cap=1, name=name)
    ready: Any = FORK.SimpleQueue()

    def work() -> None:
        own = oc.open_ledger(shared_address, name=name)
        hold = own.reserve(0.8, key="slow", lease_seconds=0.2)
        ready.put(None)
        os.kill(os.getpid(), signal.SIGSTOP)
        own.settle(hold, 0.3)
        own.settle(hold, 0.1)

    process = FORK.Process(target=work)
    process.start()
    ready.get()
    time.sleep(0.3)
    assert ledger.balance().spent == Decimal("0.8")
    with pytest.raises(oc.BudgetExceededError):
        ledger.reserve(0.3, key="meanwhile")
    os.kill(process.pid or 0, signal.SIGCONT)
    process.join()
    assert process.exitcode == 0
    assert ledger.balance().spent == Decimal("0.3")
    ledger.close()


def stop_in_the_middle(address: str, name: str, ready: Any) -> None:
    """Take the ledger's lock, and stop."""
    ledger: Any = oc.open_ledger(address, name=name)
    if hasattr(ledger, "_line"):
        ledger._line.talk(lambda connection: connection.execute(
            "BEGIN; SELECT pg_advisory_xact_lock(1868784481, %s)", (ledger._id,)
        ))  # fmt: skip
        ready.put(None)
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        with ledger._writing():
            ready.put(None)
            os.kill(os.getpid(), signal.SIGSTOP)
    ledger.reserve(0.1, key="back again")
    ledger.close()


def test_a_client_that_is_stopped_in_a_transaction(
    shared_address: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server cuts it off, and others go on; a file stays locked, and others are refused in time, until it goes on."""
    monkeypatch.setattr("occamroute.ledger.sqlite.PATIENCE", 0.3)
    ledger = oc.open_ledger(shared_address, cap=1, name=name)
    ready: Any = FORK.SimpleQueue()
    process = FORK.Process(target=stop_in_the_middle, args=(shared_address, name, ready))
    process.start()
    ready.get()
    begun = time.monotonic()
    if shared_address.startswith("sqlite"):
        with pytest.raises(oc.LedgerError, match="another process has kept it locked for too long"):
            ledger.reserve(0.1, key="meanwhile")
        assert ledger.balance().held == 0  # who only looks need not wait
    else:
        ledger.reserve(0.1, key="meanwhile")
    assert time.monotonic() - begun < 4
    os.kill(process.pid or 0, signal.SIGCONT)
    process.join()
    assert process.exitcode == 0
    ledger.reserve(0.1, key="after")
    assert ledger.balance().held == Decimal("0.2" if shared_address.startswith("sqlite") else "0.3")
    ledger.close()


def test_forked_children(shared_address: str, name: str) -> None:
    """Children use what their parent opened, whatever its threads are doing with it at the time."""
    ledger = oc.open_ledger(shared_address, cap=1000, name=name)
    over = threading.Event()

    def work() -> None:
        number = 0
        while not over.is_set():
            number += 1
            ledger.reserve(0.01, key=str(number))

    thread = threading.Thread(target=work)
    thread.start()
    made = [in_child(lambda: ledger.reserve(1, key=uuid.uuid4().hex).fresh) for _ in range(8)]
    over.set()
    thread.join()
    assert made == [True] * 8
    entries = list(ledger.entries())
    assert sum(entry.held for entry in entries) == ledger.balance().held
    assert sum(entry.held == 1 for entry in entries) == 8
    ledger.close()


def test_a_fork_in_the_middle_of_business(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a thread does not let go of the file before a fork, the child has no ledger; the parent has."""
    monkeypatch.setattr("occamroute.ledger.sqlite.PATIENCE", 0.2)
    ledger: Any = oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=1)
    with ledger._lock:
        assert "it was in use when this process was forked" in in_child(lambda: ledger.reserve(0.1, key="x"))
    ledger.reserve(0.1, key="x")
    ledger.close()


def test_memory_is_not_copied() -> None:
    """A forked child has no ledger in memory: a copy of a cap would be another cap."""
    ledger = oc.open_ledger("memory:", cap=1)
    assert "belongs to the process that opened it" in in_child(lambda: ledger.reserve(0.5, key="x"))
    ledger.close()
    with pytest.raises(oc.LedgerError):
        ledger.balance()


def test_two_ledgers_on_one_file(shared_address: str, name: str) -> None:
    """Two objects in one process, each with threads, and one of them closed half-way: one cap."""
    ledgers = [oc.open_ledger(shared_address, cap=2, name=name) for _ in range(2)]
    admitted: list[str] = []

    def work(who: int) -> None:
        for number in range(20):
            try:
                admitted.append(ledgers[who % 2].reserve(0.1, key=f"{who}-{number}").key)
            except oc.BudgetExceededError:
                continue
        if who == 1:
            ledgers[1].close()  # the next call opens it again

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 20
    assert [ledger.balance().held for ledger in ledgers] == [2, 2]
    for ledger in ledgers:
        ledger.close()


# What is written


def test_refusals_and_looks_write_nothing(shared_address: str, name: str, tmp_path: Path) -> None:
    """What does not fit, what is known and how things stand cost no write to the disk."""
    ledger: Any = oc.open_ledger(shared_address, cap=1, name=name)
    ledger.reserve(1, key="all")

    def written() -> int:
        if hasattr(ledger, "_line"):
            ask = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
            return int(ledger._line.talk(lambda connection: connection.execute(ask).fetchone()[0]))
        return (tmp_path / "x.db-wal").stat().st_mtime_ns

    before = written()
    for number in range(50):
        with pytest.raises(oc.BudgetExceededError):
            ledger.reserve(0.5, key=str(number))
        ledger.reserve(1, key="all")
        ledger.balance()
    # The server may have had business of its own.
    assert written() - before < (20 if hasattr(ledger, "_line") else 1)
    ledger.close()


def test_statements_find_rows_by_index(tmp_path: Path) -> None:
    """None walks through a table, so that a ledger stays fast whatever it has seen."""
    ledger: Any = oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=1)
    seen: set[str] = set()
    ledger._connection.set_exec_trace(lambda cursor, words, values: not seen.add(words))  # type: ignore[func-returns-value]
    ledger.reserve(0.1, key="a", client="x", lease_seconds=0.001)
    time.sleep(0.01)
    ledger.settle(ledger.reserve(0.1, key="b"), 0.1)
    ledger.balance("x")
    list(ledger.entries(newest=True, limit=3))
    ledger._connection.set_exec_trace(None)
    statements = [words for words in seen if words.startswith(("SELECT", "UPDATE"))]
    assert len(statements) > 7
    for words in statements:
        numbered = [int(number) for number in re.findall(r"\?(\d+)", words)]
        values = (1,) * max(numbered, default=words.count("?"))
        plan = [row[3] for row in ledger._connection.execute(f"EXPLAIN QUERY PLAN {words}", values)]
        assert all(step.startswith(("SEARCH", "SCALAR SUBQUERY")) for step in plan), (words, plan)
    assert ledger._connection.pragma("synchronous") == 2
    assert ledger._connection.pragma("journal_mode") == "wal"
    ledger.close()


# A line that breaks


class Proxy:
    """A server of its own before PostgreSQL's socket, which breaks when it is told.

    ``losses`` is how many answers are lost: the connection is cut when they are there, so that what was asked is done
    but nobody is told. ``silent``: it is not cut either.
    """

    def __init__(self, address: str) -> None:
        self._folder = address.partition("host=")[2]
        self.losses = 0
        self.silent = False
        self.connections = 0
        self._open: list[socket.socket] = []
        self._listen(0)

    def _listen(self, port: int) -> None:
        self._server = socket.create_server(("127.0.0.1", port))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, args=(self._server,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?sslmode=disable"

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                client = server.accept()[0]
            except OSError:
                return
            self.connections += 1
            behind = socket.socket(socket.AF_UNIX)
            behind.connect(f"{self._folder}/.s.PGSQL.5432")
            self._open += [client, behind]
            threading.Thread(target=self._carry, args=(client, behind), daemon=True).start()

    def _carry(self, client: socket.socket, behind: socket.socket) -> None:
        asked = b""
        try:
            while True:
                for end in select.select([client, behind], [], [], 10)[0]:
                    data = end.recv(65536)
                    if end is client:
                        asked = data
                        behind.sendall(data)
                    elif self._lost(asked):
                        return
                    else:
                        client.sendall(data)
                    if not data:
                        return
        except OSError:
            return
        finally:
            client.close()
            behind.close()

    def _lost(self, asked: bytes) -> bool:
        """Whether the answer does not arrive: only operations are cut off, not what opens a connection."""
        while self.silent and b"EXECUTE" in asked:
            time.sleep(0.05)
        if self.losses == 0 or b"EXECUTE" not in asked:
            return False
        self.losses -= 1
        return True

    def stop(self) -> None:
        """No connection is accepted, and those that are there are cut."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for end in self._open:
            with suppress(OSError):  # it may have been cut already
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def start(self) -> None:
        """At the same port again."""
        self._listen(self.port)


@pytest.fixture
def proxy(postgres: str) -> Iterator[Proxy]:
    """A line to the server that can be cut."""
    line = Proxy(postgres)
    yield line
    line.silent = False
    line.stop()


def test_answers_that_are_lost(proxy: Proxy, name: str) -> None:
    """The connection breaks after the commit: the call is made once more, nothing counts twice, and it is fresh."""
    ledger = oc.open_ledger(proxy.address, cap=1, name=name)

    def loses_one(call: Callable[[], Any]) -> Any:
        before, proxy.losses = proxy.connections, 1
        result = call()
        assert (proxy.connections, proxy.losses) == (before + 1, 0)
        return result

    hold = loses_one(lambda: ledger.reserve(0.6, key="a"))
    assert (hold.fresh, hold.state) == (True, "held")
    loses_one(lambda: ledger.settle(hold, 0.25))
    other = ledger.reserve(0.5, key="b")
    loses_one(lambda: ledger.release(other))
    assert loses_one(ledger.balance).spent == Decimal("0.25")
    assert [entry.event for entry in ledger.entries()] == ["reserve", "settle", "reserve", "release"]
    ledger.close()


def test_calls_of_unknown_outcome_may_be_made_again(proxy: Proxy, name: str) -> None:
    """Both tries were done and nobody was told: an error, after which the same call finds what was done."""
    ledger = oc.open_ledger(proxy.address, cap=1, name=name)

    def lost(call: Callable[[], Any]) -> None:
        proxy.losses = 2
        with pytest.raises(oc.LedgerError, match="nothing may be spent"):
            call()

    lost(lambda: ledger.reserve(0.6, key="a"))
    hold = ledger.reserve(0.6, key="a")
    assert (hold.fresh, hold.state) == (False, "held")
    assert ledger.balance().held == Decimal("0.6")
    lost(lambda: ledger.settle(hold, 0.25))
    ledger.settle(hold, 0.25)
    other = ledger.reserve(0.5, key="b")
    lost(lambda: ledger.release(other))
    ledger.release(other)
    assert ledger.balance().spent == Decimal("0.25")
    assert [entry.event for entry in ledger.entries()] == ["reserve", "settle", "reserve", "release"]
    ledger.close()


def test_a_server_that_goes_away(proxy: Proxy, name: str) -> None:
    """Refusals while it is away; the ledger finds it again by itself."""
    ledger = oc.open_ledger(proxy.address, cap=1, name=name)
    ledger.reserve(0.1, key="before")
    proxy.stop()
    for _ in range(2):
        with pytest.raises(oc.LedgerError, match="nothing may be spent"):
            ledger.reserve(0.1, key="meanwhile")
    proxy.start()
    assert ledger.reserve(0.1, key="after").fresh
    proxy.stop()
    proxy.start()
    assert ledger.balance().held == Decimal("0.2")  # nobody called while it was away, nobody is told
    ledger.close()


def test_a_server_that_says_nothing(proxy: Proxy, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for longer than there is patience."""
    ledger = oc.open_ledger(proxy.address, cap=1, name=name)
    monkeypatch.setattr("occamroute.ledger.postgres_line.PATIENCE", 0.5)
    proxy.silent = True
    begun = time.monotonic()
    with pytest.raises(oc.LedgerError, match="has not answered in time"):
        ledger.reserve(0.1, key="x")
    assert time.monotonic() - begun < 2
    proxy.silent = False
    assert ledger.balance().held == Decimal("0.1")
    ledger.close()


def test_a_server_that_ends_connections(postgres: str, name: str) -> None:
    """It was restarted, or an administrator tidied up: the next call makes a new connection."""
    ledger: Any = oc.open_ledger(postgres, cap=1, name=name)
    other: Any = oc.open_ledger(postgres, name=name)
    number = ledger._line.talk(lambda connection: connection.info.backend_pid)
    other._line.talk(lambda connection: connection.execute("SELECT pg_terminate_backend(%s, 1000)", (number,)))
    assert ledger.reserve(0.1, key="x").fresh
    ledger.close()
    other.close()


def test_databases_in_other_alphabets(postgres: str, name: str) -> None:
    """What was begun by a server without a locale has no encoding, an old one a small one: keys are kept or refused."""
    ledger: Any = oc.open_ledger(postgres, cap=1, name=name)
    for encoding in ("SQL_ASCII", "LATIN1"):
        made = f"CREATE DATABASE in_{encoding} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        ledger._line.talk(lambda connection, words=made: connection.execute(words))
        address = postgres.replace("/postgres?", f"/in_{encoding.lower()}?")
        assert address != postgres
        other = oc.open_ledger(address, cap=5, window="day", clients={"größe": 2})
        hold = other.reserve(1, key="naïve", client="größe")
        assert (hold.state, hold.fresh) == ("held", True)
        assert other.balance("größe").cap == 2
        assert [entry.key for entry in other.entries()] == ["naïve"]
        if encoding == "LATIN1":
            with pytest.raises(oc.LedgerError, match="no equivalent"):
                other.reserve(1, key="🙂")
        other.settle(hold, 1)
        other.close()
    ledger.close()


def test_other_isolation_levels(postgres: str, name: str) -> None:
    """Options in the address stay, but none that would let a transaction see old news."""
    address = f"{postgres}&options=-c%20default_transaction_isolation%3Dserializable%20-c%20work_mem%3D5MB"
    ledger: Any = oc.open_ledger(address, cap=1, name=name)
    ask = "SELECT current_setting('transaction_isolation'), current_setting('work_mem')"
    found = ledger._line.talk(lambda connection: connection.execute(ask).fetchone())
    assert found == ("read committed", "5MB")
    ledger.close()


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    """Closed by all, a ledger is one file, to be copied as it is."""
    ledger = oc.open_ledger(f"sqlite:///{tmp_path}/x.db", cap=1)
    ledger.reserve(0.1, key="x")
    ledger.close()
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]
    shutil.copy(tmp_path / "x.db", tmp_path / "copy.db")
    copy = oc.open_ledger(f"sqlite:///{tmp_path}/copy.db")
    assert copy.balance().held == Decimal("0.1")
    copy.close()
