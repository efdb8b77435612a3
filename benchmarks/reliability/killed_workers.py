"""Paid calls on Ray's workers while these are killed; the billing server's books are checked, and a miss is an error.

    python benchmarks/reliability/killed_workers.py [TRIAL …] [--kills 12] [--queries 600] [--out FOLDER]

keys      a service that bills each Idempotency-Key once: every query is billed once a classifier, the run has spent
          what the server billed, and its answers are those of the local engine.
tight     the same on a third of the budget that the plan would like, where money runs short at the end of blocks.
no keys   a service that knows no keys: a call under way counts as spent and is not made again. Every query is billed
          once a classifier, the bill is no more than what was spent, and others answer in the place of what was lost.
ledger    one ledger in a file beside it: what it says was spent is what was billed, and nothing stays held.
driver    the command itself is killed and typed again: billed once, and the answers are the same.

Workers are killed with kill -9 while they have a journal open, at random moments. FOLDER gets killed_workers.json and
killed_workers.md; trials that are not run again stay as they were.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import occamroute as oc
from occamroute.execution import block_classifying, block_runs
from occamroute.executors.ray import RayExecutor

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from servers import BillingServer, billing_server

LABELS = ("cat", "dog", "eel")
PRICES = {"mini": (0.15, 0.6), "medium": (1.5, 6), "large": (7.5, 30)}
ROWS = 100
Found = dict[str, Any]


def texts(rows: int, seed: int) -> list[str]:
    """Notes of different lengths, each with its truth in it."""
    draw = random.Random(seed)  # noqa: S311  # texts, no secrets
    return [f"note {seed}-{row} about #{draw.choice(LABELS)} " + "word " * draw.randint(1, 30) for row in range(rows)]


def write_pool(folder: Path, server: BillingServer, *, keys: bool) -> oc.Pool:
    """A pool file with three models of the server."""
    lines = [f"classes = {json.dumps(list(LABELS))}"]
    for name, (read, written) in PRICES.items():
        lines += [
            f"[classifiers.{name}]", 'kind = "openai"', f'base_url = "{server.url}/v1"', f'model = "{name}"',
            f"cost = {{ per_million_input = {read}, per_million_output = {written} }}", "concurrency = 8",
            f"idempotent = {str(keys).lower()}",
        ]  # fmt: skip
    (folder / "occamroute.toml").write_text("\n".join(lines), encoding="utf-8")
    return oc.read_pool(folder / "occamroute.toml")


def buyers(folder: Path) -> list[int]:
    """The processes that have a journal of the run open."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(place)
        except OSError:
            continue
        if target.startswith(f"{folder}/") and ".journal" in target:
            found.add(int(place.parts[2]))
    return sorted(found - {os.getpid()})


def killed_while(server: BillingServer, folder: Path, work: Callable[[], Any], kills: int, every: int) -> Any:
    """What the work gives while its workers are killed, each after some more requests; and how many were."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    draw, done, until = random.Random(1), 0, server.bill()["requests"] + every  # noqa: S311  # moments, no secrets
    while thread.is_alive():
        if done < kills and server.bill()["requests"] >= until:
            for process in draw.sample(buyers(folder), 1) if buyers(folder) else ():
                os.kill(process, signal.SIGKILL)
                done += 1
                until = server.bill()["requests"] + draw.randint(1, every)
        time.sleep(0.003)
    thread.join()
    assert result, "the run ended with an error"
    return result[0], done


class World:
    """A server, a profile of its models, queries, and Ray's workers."""

    def __init__(self, folder: Path, server: BillingServer, wish: argparse.Namespace) -> None:
        self.folder, self.server, self.kills = folder, server, wish.kills
        self.queries = texts(wish.queries, 2)
        old = texts(300, 1)
        labels = [found.group(1) for text in old if (found := re.search(r"#(\w+)", text))]
        self.profile = oc.profile(write_pool(folder, server, keys=True), old, labels, extractor="mini")
        oc.save(self.profile, folder / "profile.parquet")

    def budget(self, share: float) -> float:
        """A share of what the dearest model would cost for all queries."""
        return round(share * float(self.profile.mean_costs.max()) * len(self.queries), 6)

    def both(self, share: float, *, keys: bool, ledger: Any = None) -> tuple[Any, Any, dict[str, Any], int]:
        """The run here, the run on workers that are killed, the server's books of that, and how many were killed."""
        pool, budget = write_pool(self.folder, self.server, keys=keys), self.budget(share)
        place = Path(tempfile.mkdtemp(dir=self.folder))
        here = oc.classify(pool, self.profile, self.queries, budget=budget, out=place / "here")
        self.server.meet()
        with RayExecutor(workers=2, retries=self.kills + 1) as workers:
            there, killed = killed_while(
                self.server, place / "there", kills=self.kills, every=len(self.queries) * 2 // (self.kills + 2),
                work=lambda: oc.classify(
                    pool, self.profile, self.queries, budget=budget, out=place / "there", executor=workers,
                    ledger=ledger,
                ),
            )  # fmt: skip
        bill = self.server.bill()
        assert max(bill["billed_by"].values()) == 1, "a query was billed twice"
        assert bill["spent"] <= there.exact_spent <= Fraction(str(budget)), "the cap was passed"
        return here, there, bill, killed


def different(here: Any, there: Any) -> int:
    """How many answers differ."""
    return sum(
        int((here.block(number).answers != there.block(number).answers).sum()) for number in range(here.n_blocks)
    )


def keys(world: World) -> Found:
    """Calls are made again under their keys."""
    here, there, bill, killed = world.both(2.0, keys=True)
    assert bill["spent"] == there.exact_spent == here.exact_spent
    assert different(here, there) == there.failures == 0
    return {"kills": killed, "calls billed": bill["billed"], "made again": bill["repeated"], "billed twice": 0}


def tight(world: World) -> Found:
    """The same where money is short."""
    here, there, bill, killed = world.both(0.3, keys=True)
    return {
        "kills": killed, "calls billed": bill["billed"], "made again": bill["repeated"], "billed twice": 0,
        "spent of the budget": f"{100 * there.spent / float(there.budget):.1f} %", "without an answer": there.failures,
        "answers unlike the local engine's": different(here, there),
    }  # fmt: skip


def no_keys(world: World) -> Found:
    """Calls are not made again."""
    here, there, bill, killed = world.both(2.0, keys=False)
    lost = there.exact_spent - bill["spent"]
    return {
        "kills": killed, "calls billed": bill["billed"], "billed twice": 0, "without an answer": there.failures,
        "counted above the bill": f"{100 * float(lost / there.exact_spent):.1f} %",
        "answers unlike the local engine's": different(here, there),
    }  # fmt: skip


def with_ledger(world: World) -> Found:
    """The cap is a ledger's, too."""
    place = Path(tempfile.mkdtemp(dir=world.folder))
    ledger = oc.open_ledger(f"sqlite:///{place}/spend.db", cap=world.budget(2.0))
    here, there, bill, killed = world.both(2.0, keys=True, ledger=ledger)
    balance = ledger.balance()
    assert balance.held == 0
    # A ledger counts in billionths, each call rounded up.
    assert 0 <= Fraction(balance.spent) - bill["spent"] <= Fraction(bill["billed"], 10**9)
    assert different(here, there) == 0
    return {"kills": killed, "calls billed": bill["billed"], "made again": bill["repeated"], "billed twice": 0}


def driver(world: World) -> Found:
    """The command is killed, and typed again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_pool(world.folder, world.server, keys=True)
    place = Path(tempfile.mkdtemp(dir=world.folder))
    (place / "queries").mkdir()
    pq.write_table(pa.table({"text": world.queries}), place / "queries" / "0.parquet")
    words = [sys.executable, "-m", "occamroute", "classify", "occamroute.toml", "profile.parquet", f"{place}/queries"]
    words += ["--budget", str(world.budget(2.0)), "--engine", "ray", "--json", "--out"]
    world.server.meet()
    whole = subprocess.run([*words, f"{place}/whole"], cwd=world.folder, capture_output=True, text=True, check=True)
    requests = world.server.bill()["requests"]
    world.server.meet()
    for moment in (1, 2, 3):
        process = subprocess.Popen([*words, f"{place}/killed"], cwd=world.folder, stdout=subprocess.DEVNULL)
        while process.poll() is None and world.server.bill()["requests"] < requests * moment // 4:
            time.sleep(0.005)
        assert process.poll() is None, "it ended before it could be killed"
        process.kill()
        process.wait()
    done = subprocess.run([*words, f"{place}/killed"], cwd=world.folder, capture_output=True, text=True, check=True)
    bill = world.server.bill()
    assert max(bill["billed_by"].values()) == 1, "a query was billed twice"
    found, expected = json.loads(done.stdout), json.loads(whole.stdout)
    assert found["usage"] == expected["usage"]
    assert found["spent"] == expected["spent"] == float(bill["spent"])
    assert different(oc.load(f"{place}/whole"), oc.load(f"{place}/killed")) == 0
    return {"kills": 3, "calls billed": bill["billed"], "made again": bill["repeated"], "billed twice": 0}


TRIALS: dict[str, Callable[[World], Found]] = {
    "keys": keys,
    "tight": tight,
    "no keys": no_keys,
    "ledger": with_ledger,
    "driver": driver,
}


def table(results: Found) -> str:
    """The results as a page."""
    lines = [
        "# Workers killed in the middle of paid calls",
        "",
        "Made by `python benchmarks/reliability/killed_workers.py --out benchmarks/reliability`, which says what each",
        "trial is and checks the books of the billing server.",
        "One machine, two Ray workers.",
        "",
        "| Trial | Result | Date, machine |",
        "| --- | --- | --- |",
    ]
    for trial, found in results.items():
        facts = ", ".join(f"{name} {some}" for name, some in found.items() if name not in ("date", "machine"))
        lines.append(f"| {trial} | {facts} | {found['date']}, {found['machine']} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help="all of them, if none is named")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--queries", type=int, default=600)
    parser.add_argument("--out", type=Path)
    wish = parser.parse_args()
    setattr(block_runs, "ROWS", ROWS)  # noqa: B010  # small blocks, so that there are several of them
    setattr(block_classifying, "ROWS", ROWS)  # noqa: B010
    file = None if wish.out is None else wish.out / "killed_workers.json"
    results: Found = json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else {}
    cores = len(os.sched_getaffinity(0))
    about = {
        "date": str(dt.date.today()),
        "machine": f"{platform.system()}, {cores} cores, Python {platform.python_version()}",
    }
    models = ",".join(f"{name}:{price[0]}:{price[1]}:{skill}" for (name, price), skill in zip(
        PRICES.items(), (0.7, 0.85, 0.97), strict=True
    ))  # fmt: skip
    with tempfile.TemporaryDirectory() as place, billing_server("--delay", "0.03", "--models", models) as server:
        world = World(Path(place).resolve(), server, wish)
        for trial in wish.trials or TRIALS:
            server.meet()
            results[trial] = {**TRIALS[trial](world), **about}
            print(trial, results[trial], flush=True)
            if file is not None:  # after each, so that a later one that fails does not take the others with it
                file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
                file.with_suffix(".md").write_text(table(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
