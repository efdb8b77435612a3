"""Buying on Ray's workers: a worker that is killed costs time, and no query is paid twice."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import process, run
from servers import BillingServer, billing_server

import occamroute as oc
from occamroute.adapters.openai import ChatClassifier
from occamroute.execution import block_runs
from occamroute.executors.ray import RayExecutor
from occamroute.profiling import blocks as profiling_blocks

LABELS = ("cat", "dog", "eel")
PRICES = {"mini": (0.15, 0.6), "large": (7.5, 30)}
KEY = os.environ["BILLING_KEY"]


def texts(rows: int, seed: int) -> list[str]:
    draw = random.Random(seed)  # noqa: S311  # texts, no secrets
    return [f"note {seed}-{row} about #{draw.choice(LABELS)} " + "word " * draw.randint(1, 30) for row in range(rows)]


def truth(queries: list[str]) -> list[str]:
    return [found.group(1) for query in queries if (found := re.search(r"#(\w+)", query))]


@pytest.fixture(scope="module")
def workers(ray_cluster: None) -> Iterator[RayExecutor]:
    with RayExecutor(retries=8) as executor:
        yield executor


@pytest.fixture(scope="module")
def server() -> Iterator[BillingServer]:
    with billing_server("--delay", "0.03", "--key", KEY, "--models", "mini:0.15:0.6:0.7,large:7.5:30:0.97") as started:
        yield started


def write_pool(folder: Path, server: BillingServer, *, idempotent: bool = True) -> oc.Pool:
    lines = [f"classes = {json.dumps(list(LABELS))}"]
    for name, (read, written) in PRICES.items():
        lines += [
            f"[classifiers.{name}]",
            'kind = "openai"',
            f'base_url = "{server.url}/v1"',
            f'model = "{name}"',
            'key_env = "BILLING_KEY"',
            f"cost = {{ per_million_input = {read}, per_million_output = {written} }}",
            "concurrency = 4",
            f"idempotent = {str(idempotent).lower()}",
        ]
    (folder / "occamroute.toml").write_text("\n".join(lines))
    return oc.read_pool(folder / "occamroute.toml")


@pytest.fixture(scope="module")
def known(server: BillingServer, workers: RayExecutor, tmp_path_factory: pytest.TempPathFactory) -> oc.Profile:
    """A profile that Ray's workers made; what they paid is what this process would have paid."""
    queries = texts(160, 1)
    pool = write_pool(tmp_path_factory.mktemp("pool"), server)
    server.meet()
    here = oc.profile(pool, queries, truth(queries), extractor="mini")
    bill = server.bill()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiling_blocks, "ROWS", 64)
        server.meet()
        there = oc.profile(pool, queries, truth(queries), extractor="mini", executor=workers)
    assert there.fingerprint == here.fingerprint
    assert server.bill()["spent"] == bill["spent"]
    assert max(server.bill()["billed_by"].values()) == 1
    return there


def buyers(folder: Path) -> set[int]:
    """The processes that have a journal of a run open: those that are in the middle of buying."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(place)
        except OSError:
            continue
        if target.startswith(f"{folder}/") and ".journal" in target:
            found.add(int(place.parts[2]))
    return found - {os.getpid()}


def kill_while(server: BillingServer, folder: Path, work: Any, *, times: int, every: int) -> Any:
    """What ``work`` gives, while so many of its workers are killed, each after some more requests."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    draw, killed, until = random.Random(0), 0, server.bill()["requests"] + every  # noqa: S311  # moments, no secrets
    while thread.is_alive():
        if killed < times and server.bill()["requests"] >= until:
            for process in sorted(buyers(folder))[:1]:
                os.kill(process, signal.SIGKILL)
                killed += 1
                until = server.bill()["requests"] + draw.randint(every // 2, every)
        time.sleep(0.005)
    thread.join()
    assert killed == times, "it ended before its workers could be killed"
    assert result, "it ended with an error"
    return result[0]


def test_killed_workers_pay_nothing_twice(
    server: BillingServer, known: oc.Profile, workers: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed -9 in the middle of paid calls: each query is billed once a classifier, and the answers are the same."""
    monkeypatch.setattr(block_runs, "ROWS", 64)
    monkeypatch.setattr("occamroute.execution.block_classifying.ROWS", 64)
    pool, queries = write_pool(tmp_path, server), texts(256, 2)
    budget = round(2.0 * float(known.mean_costs.max()) * len(queries), 6)
    server.meet()
    here = oc.classify(pool, known, queries, budget=budget, out=tmp_path / "here")
    bill = server.bill()
    assert bill["spent"] == here.exact_spent <= budget

    server.meet()
    place = tmp_path / "there"
    there = kill_while(
        server, place, times=2, every=90,
        work=lambda: oc.classify(pool, known, queries, budget=budget, out=place, executor=workers),
    )  # fmt: skip
    bill = server.bill()
    assert bill["repeated"] > 0  # calls were under way when a worker died, and were made again
    assert max(bill["billed_by"].values()) == 1
    assert bill["spent"] == there.exact_spent == here.exact_spent
    assert there.failures == 0
    for number in range(there.n_blocks):
        mine, theirs = here.block(number), there.block(number)
        np.testing.assert_array_equal(mine.answers, theirs.answers)
        np.testing.assert_array_equal(mine.reason, theirs.reason)
        np.testing.assert_array_equal(mine.cost, theirs.cost)
    written = [file for file in place.rglob("*") if file.is_file()]
    assert not [file.name for file in written if ".journal" in file.name or ".tmp" in file.name]
    assert not [file.name for file in written if KEY.encode() in file.read_bytes()]


def test_services_without_keys_are_not_asked_again(
    server: BillingServer, known: oc.Profile, workers: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a service would bill a call twice, one that was under way counts as spent, and somebody else answers."""
    monkeypatch.setattr(block_runs, "ROWS", 64)
    pool, queries = write_pool(tmp_path, server, idempotent=False), texts(128, 3)
    features = np.zeros((len(queries), len(LABELS)))
    free = oc.Profile(names=known.names, costs=known.mean_costs, features=known.features, success=known.success)
    plan = oc.estimate(free, features).plan(4.0 * float(known.mean_costs.max()) * len(queries))
    server.meet()
    place = tmp_path / "journal"
    run = kill_while(
        server, place, times=1, every=40,
        work=lambda: oc.execute(plan, pool, queries, journal=place, executor=workers),
    )  # fmt: skip
    bill = server.bill()
    assert bill["repeated"] == 0
    assert max(bill["billed_by"].values()) == 1
    assert bill["spent"] < run.exact_spent <= plan.budget
    assert not run.failures
    assert 0 < (run.choice != plan.choice).sum() <= 4
    again = oc.execute(plan, pool, queries, journal=place, executor=workers)
    np.testing.assert_array_equal(again.answers, run.answers)
    assert server.bill()["requests"] == bill["requests"]


def test_a_ledger_is_shared_by_workers(
    server: BillingServer, known: oc.Profile, workers: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cap for all workers; a hold of a worker that died is settled by the one that goes on."""
    monkeypatch.setattr(block_runs, "ROWS", 32)
    pool, queries = write_pool(tmp_path, server), texts(96, 4)
    free = oc.Profile(names=known.names, costs=known.mean_costs, features=known.features, success=known.success)
    plan = oc.estimate(free, np.zeros((96, len(LABELS)))).plan(4.0 * float(known.mean_costs.max()) * 96)
    ledger = oc.open_ledger(f"sqlite:///{tmp_path}/spend.db", cap=plan.budget)
    server.meet()
    place = tmp_path / "journal"
    run = kill_while(
        server, place, times=1, every=30,
        work=lambda: oc.execute(plan, pool, queries, journal=place, executor=workers, ledger=ledger),
    )  # fmt: skip
    balance = ledger.balance()
    assert balance.held == 0
    assert abs(float(balance.spent) - run.spent) < 1e-6
    assert server.bill()["spent"] == run.exact_spent
    with pytest.raises(oc.InvalidInputError, match="a ledger in memory cannot be sent"):
        oc.execute(plan, pool, queries, executor=workers, ledger=oc.open_ledger("memory:", cap=1))


def test_a_key_is_billed_once(server: BillingServer, workers: RayExecutor) -> None:
    """Two requests of the same key get the same answer for one charge; another body has another key."""
    price = oc.PerToken(*PRICES["large"])
    one = ChatClassifier(
        "large", price, classes=LABELS, base_url=f"{server.url}/v1", model="large", key_env="BILLING_KEY",
        idempotent=True,
    )  # fmt: skip
    server.meet()
    first = one.answer(["a note about #cat"], key="k")
    again = one.answer(["a note about #cat"], key="k")
    np.testing.assert_array_equal(first.probabilities, again.probabilities)
    bill = server.bill()
    assert (bill["billed"], bill["repeated"]) == (1, 1)
    one._given_up = frozenset({"logprobs"})
    one.answer(["a note about #cat"], key="k")
    one.answer(["a note about #cat"])
    bill = server.bill()
    assert (bill["billed"], bill["repeated"]) == (3, 1)


def test_a_command_that_was_killed_pays_once(server: BillingServer, known: oc.Profile, tmp_path: Path) -> None:
    """Without Ray, too: what was under way is asked again under the same key, and billed once."""
    write_pool(tmp_path, server)
    oc.save(known, tmp_path / "profile.parquet")
    lines = ["id,text", *(f"q{row},{text}" for row, text in enumerate(texts(150, 5)))]
    (tmp_path / "queries.csv").write_text("\n".join(lines) + "\n")
    budget = f"{2.0 * float(known.mean_costs.max()) * 150:.6f}"
    words = ("classify", "occamroute.toml", "profile.parquet", "queries.csv", "--budget", budget, "--json")
    server.meet()
    started = subprocess.Popen(process(*words), cwd=tmp_path, stdout=subprocess.DEVNULL)
    while started.poll() is None and server.bill()["requests"] < 40:
        time.sleep(0.005)
    assert started.poll() is None, "it ended before it could be killed"
    started.kill()
    started.wait()
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    bill = server.bill()
    assert bill["repeated"] > 0
    assert max(bill["billed_by"].values()) == 1
    assert json.loads(done.stdout)["spent"] == float(bill["spent"])
