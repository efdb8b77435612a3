"""Two plain `occamroute serve` processes on one ledger in PostgreSQL, as behind any load balancer; answers are checked.

    python benchmarks/reliability/replicas.py [TRIAL …] [--decisions 1000000] [--rounds 20] [--out FOLDER]

settle    cost held by one process is settled at the other, and never twice.
kill      a process is killed (kill -9) after it held a cost; it is started again, and either process settles it.
newer     a cost is held, then both processes make many newer decisions: it is settled at its true cost.
keys      one idempotency key sent to both processes 200 times at once: one decision, one hold.

FOLDER gets replicas.json and replicas.md; trials that are not run again stay as they were.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
from ledger import addresses  # type: ignore[import-not-found]  # beside this script
from upstream import free_port  # type: ignore[import-not-found]  # beside this script

import occamroute as oc

Found = dict[str, Any]
ROUTE = {"features": [0.5], "hold": True, "lease_seconds": 3600}


class Process:
    """A service in a process of its own, with a state folder of its own."""

    def __init__(self, folder: Path, number: int, ledger: str) -> None:
        self.port, self._folder = free_port(), folder
        self._words = [
            sys.executable, "-m", "occamroute", "serve", "--profile", folder / "profile.parquet", "--port", self.port,
            "--ledger", ledger, "--budget", 1_000_000, "--window", "total", "--arrivals", 10_000_000,
            "--state", folder / f"state-{number}",
        ]  # fmt: skip
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to serve; returns once it answers."""
        self._running = subprocess.Popen([str(word) for word in self._words], stdout=subprocess.DEVNULL)
        for _ in range(600):
            try:
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            assert self._running.poll() is None, "the service has ended"
            time.sleep(0.1)
        raise TimeoutError

    def end(self, how: int = signal.SIGTERM) -> None:
        """Have it end; it is waited for."""
        if self._running is not None:
            self._running.send_signal(how)
            self._running.wait(timeout=60)
            self._running = None

    def ask(self, method: str, path: str, body: Found | None = None, **headers: str) -> tuple[int, Any]:
        """The status and what the answer says."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        content = None if body is None else json.dumps(body)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, content, {"content-type": "application/json", **names})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text[:1] == b"{" else None

    def held(self) -> Found:
        """A decision whose cost is held."""
        status, decision = self.ask("POST", "/v1/route", ROUTE)
        assert status == 200, decision
        found: Found = decision
        return found

    def settle(self, decision: str, cost: str) -> None:
        """Say what a decision cost."""
        status, answer = self.ask("POST", "/v1/settle", {"decision": decision, "cost": cost})
        assert status == 200, answer

    def spent(self) -> Decimal:
        """What the budget says."""
        return Decimal(self.ask("GET", "/v1/budget")[1]["spent"])


def settle(pair: list[Process], wish: argparse.Namespace) -> Found:
    """Hold at one, settle at the other, in turn; a second settlement changes nothing."""
    before = pair[0].spent()
    for number in range(wish.rounds):
        one, other = pair[number % 2], pair[1 - number % 2]
        decision = one.held()["decision"]
        other.settle(decision, "0.01")
        one.settle(decision, "0.02")
    assert pair[0].spent() == pair[1].spent() == before + wish.rounds * Decimal("0.01")
    return {"rounds": wish.rounds}


def kill(pair: list[Process], wish: argparse.Namespace) -> Found:
    """Kill the process that held, and settle at the other or at the one that was started again."""
    before, rounds = pair[1].spent(), max(2, wish.rounds // 4)
    for number in range(rounds):
        decision = pair[0].held()["decision"]
        pair[0].end(signal.SIGKILL)
        if number % 2:
            pair[1].settle(decision, "0.01")
        pair[0].start()
        if not number % 2:
            pair[0].settle(decision, "0.01")
    assert pair[0].spent() == pair[1].spent() == before + rounds * Decimal("0.01")
    return {"kills": rounds}


async def advised(port: int, number: int) -> None:
    """Many decisions without a hold, over 32 connections."""

    async def one(count: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"features":[0.5]}'
        head = b"POST /v1/route HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += b"Content-Length: 18\r\n\r\n"
        for _ in range(count):
            writer.write(head + body)
            headers = await reader.readuntil(b"\r\n\r\n")
            assert headers[9:12] == b"200", headers
            await reader.readexactly(int(headers.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        writer.close()

    await asyncio.gather(*(one(number // 32) for _ in range(32)))


def newer(pair: list[Process], wish: argparse.Namespace) -> Found:
    """Hold, have both make many decisions, settle."""
    before, decisions = pair[0].spent(), [pair[0].held()["decision"], pair[1].held()["decision"]]
    begun = time.perf_counter()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda one: asyncio.run(advised(one.port, wish.decisions // 2)), pair))
    seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    pair[1].settle(decisions[0], "0.01")
    pair[0].settle(decisions[1], "0.01")
    took = (time.perf_counter() - begun) / 2
    assert pair[0].spent() == before + Decimal("0.02")
    return {
        "decisions": wish.decisions, "decisions_a_second": round(wish.decisions / seconds),
        "settled_in_ms": round(1e3 * took, 1),
    }  # fmt: skip


def keys(pair: list[Process], _: argparse.Namespace) -> Found:
    """The same key from many clients at once, at both."""
    before = Decimal(pair[0].ask("GET", "/v1/budget")[1]["held"])

    def ask(number: int) -> tuple[int, Any]:
        return pair[number % 2].ask("POST", "/v1/route", ROUTE, Idempotency_Key=f"key {os.getpid()}".replace(" ", "-"))

    with ThreadPoolExecutor(32) as threads:
        answers = list(threads.map(ask, range(200)))
    assert {status for status, _ in answers} == {200}
    assert len({answer["decision"] for _, answer in answers}) == 1
    held = Decimal(pair[1].ask("GET", "/v1/budget")[1]["held"]) - before
    assert held == Decimal(answers[0][1]["cost"])
    return {"requests": 200, "holds": 1}


TRIALS = {"settle": settle, "kill": kill, "newer": newer, "keys": keys}


def table(results: Found) -> str:
    """The results as a page."""
    lines = [
        "# Two plain services on one PostgreSQL", "",
        "Made by `python benchmarks/reliability/replicas.py`, which says what each trial is and checks the answers.",
        "",
        "| Trial | Found | Date |", "| --- | --- | --- |",
    ]  # fmt: skip
    for trial, found in results.items():
        said = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in found.items() if name[:2] != "on")
        lines.append(f"| {trial} | {said} | {found['on']} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help="all of them, if none is named")
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    wish = parser.parse_args()
    file = None if wish.out is None else wish.out / "replicas.json"
    results: Found = json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else {}
    with ExitStack() as stack:
        ledger = stack.enter_context(addresses())["postgresql"]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        random = np.random.default_rng(0)
        success = (random.random((200, 2)) < (0.7, 0.9)).astype(float)
        oc.save(
            oc.Profile(("small", "large"), (0.01, 0.1), random.random((200, 1)), success), folder / "profile.parquet"
        )
        pair = [Process(folder, number, ledger) for number in range(2)]
        for one in pair:
            stack.callback(one.end)
            one.start()
        for trial in wish.trials or TRIALS:
            found = TRIALS[trial](pair, wish)
            about = f"{platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}"
            print(trial, json.dumps(found), flush=True)
            results[trial] = {**found, "on": f"{dt.date.today()}, {about}"}
    if file is not None:
        file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        file.with_suffix(".md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
