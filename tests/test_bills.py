"""Against a server that bills every request: its bill never passes the budget, whatever fails and whoever dies."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import process, run
from servers import BillingServer, billing_server

import occamroute as oc
from occamroute.adapters.openai import ChatClassifier

LABELS = ("cat", "dog", "eel")
PRICES = {"mini": (0.15, 0.6), "medium": (1.5, 6), "large": (7.5, 30)}
# Every kill needs a new process, whose start takes most of the time; a study may kill more often.
KILLS = int(os.environ.get("OCCAMROUTE_KILLS", "5"))
KEY = os.environ["BILLING_KEY"]


def texts(rows: int, seed: int) -> list[str]:
    draw = random.Random(seed)  # noqa: S311  # texts, no secrets
    return [f"note {seed}-{row} about #{draw.choice(LABELS)} " + "word " * draw.randint(1, 30) for row in range(rows)]


def truth(queries: list[str]) -> list[str]:
    found = [re.search(r"#(\w+)", query) for query in queries]
    return [one.group(1) for one in found if one]


def pool_of(server: BillingServer, timeout: float = 2.0) -> oc.Pool:
    # Long enough that a busy machine is not taken for a server that hangs: answers that come too late are bought again.
    return oc.Pool(
        [
            ChatClassifier(
                name, oc.PerToken(*price), classes=LABELS, base_url=f"{server.url}/v1", model=name, timeout=timeout
            )
            for name, price in PRICES.items()
        ],
        LABELS,
    )


@pytest.fixture(scope="module")
def server() -> Iterator[BillingServer]:
    with billing_server("--hang", "30", "--drip", "0.2") as started:
        yield started


@pytest.fixture(scope="module")
def profile(server: BillingServer) -> oc.Profile:
    queries = texts(400, 1)
    server.meet()
    made = oc.profile(pool_of(server, 10), queries, truth(queries), extractor="mini")
    assert made.made_from["costs"]["large"]["kind"] == "by query"
    # What the server billed is what the profile says that calls cost.
    assert server.bill()["spent"] == sum(Fraction(str(cost)) for cost in made.costs.reshape(-1).tolist())
    return made


FAULTS = ("_429", "_500", "reset", "hang", "garbage", "nousage", "cut")


@pytest.mark.parametrize(("share", "faults"), [(0.05, 0.0), (0.3, 0.0), (0.04, 0.3), (0.15, 0.1), (0.5, 0.3)])
def test_the_servers_bill_never_passes_the_budget(
    server: BillingServer, profile: oc.Profile, share: float, faults: float
) -> None:
    """With 429, 500, resets, hangs, garbage, missing usage and cut bodies: bill ≤ budget, no answer bought twice."""
    queries = texts(250, 2)
    server.meet(**dict.fromkeys(FAULTS, faults / len(FAULTS)))
    budget = Fraction(str(share)) * Fraction(str(profile.mean_costs.max())) * len(queries)
    run = oc.classify(pool_of(server), profile, queries, budget=budget)
    bill = server.bill()
    assert bill["spent"] <= run.exact_spent <= budget
    assert max(bill["served_by"].values()) == 1
    if not faults:
        assert bill["spent"] == run.exact_spent
        assert not run.failures
        assert run.spent > 0.85 * float(budget)
    for row in range(len(queries)):
        assert (run.answers[row] != "") != (row in run.failures)
        assert run.reason[row]
    right = float(np.mean(run.answers == np.array(truth(queries))))
    assert right > run.expected_accuracy - 0.08
    if share >= 0.15:
        assert not run.failures


def test_faults_one_by_one(server: BillingServer, profile: oc.Profile) -> None:
    """Each fault alone on a third of the requests: the rest of the budget still buys answers."""
    queries = texts(30, 3)
    budget = Fraction(str(profile.mean_costs.max())) * len(queries)
    for fault in (*FAULTS, "drip", "shape", "wrong", "huge"):
        slow = fault in ("hang", "drip")
        server.meet(**{fault: 0.3})
        run = oc.classify(pool_of(server, 0.5 if slow else 2.0), profile, queries, budget=budget)
        bill = server.bill()
        assert bill["spent"] <= run.exact_spent <= budget, fault
        assert slow or max(bill["served_by"].values()) == 1, fault
        assert len(run.failures) <= 4, (fault, run.failures)


def test_a_server_that_goes_away(profile: oc.Profile) -> None:
    """A server that dies in the middle: what was answered stays, the rest has a reason, a resumed run goes on."""
    with billing_server("--delay", "0.02") as server:
        queries = texts(150, 4)
        budget = Fraction(str(profile.mean_costs.max())) * len(queries)

        def progress(stage: str, done: int, total: int) -> None:
            if stage == "buying" and done > 200:
                server.process.kill()

        pool = pool_of(server, 2)
        for one in pool.classifiers:
            one.retries = 1
        run = oc.classify(pool, profile, queries, budget=budget, progress=progress)
        assert run.exact_spent <= budget
        assert len(run.failures) + run.usage["mini"] > 0
        for reason in run.failures.values():
            assert "cannot reach" in reason or "down" in reason


def write_project(folder: Path, server: BillingServer, profile: oc.Profile) -> None:
    oc.save(profile, folder / "profile.parquet")
    with (folder / "queries.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        writer.writerows((f"q{row}", query) for row, query in enumerate(texts(200, 5)))
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
        ]
    (folder / "occamroute.toml").write_text("\n".join(lines))


def classify_words(out: str, budget: float) -> list[str]:
    files = ["occamroute.toml", "profile.parquet", "queries.csv"]
    return ["classify", *files, "--budget", f"{budget:.6f}", "--out", out]


def killed(server: BillingServer, folder: Path, words: list[str], *, times: int, requests: int) -> None:
    """Start a command and kill it, so many times, each after a random number of requests."""
    draw = random.Random(0)  # noqa: S311  # moments, no secrets
    for _ in range(times):
        until = server.bill()["requests"] + draw.randint(1, requests)
        started = subprocess.Popen(process(*words), cwd=folder, stdout=subprocess.DEVNULL)
        while started.poll() is None and server.bill()["requests"] < until:
            time.sleep(0.005)
        assert started.poll() is None, "it ended before it could be killed"
        started.send_signal(signal.SIGKILL)
        started.wait()


def test_kill_and_resume(profile: oc.Profile, tmp_path: Path) -> None:
    """Killed at random moments (kill -9), then resumed: the same file, and only calls under way were paid again."""
    with billing_server("--delay", "0.03", "--key", KEY) as server:
        write_project(tmp_path, server, profile)
        budget = 4 * float(profile.mean_costs.max()) * 200
        whole = run(*classify_words("whole.csv", budget), cwd=tmp_path)
        assert whole.returncode == 0, whole.stderr
        assert KEY not in whole.stdout + whole.stderr
        calls = sum(server.bill()["served_by"].values())
        server.meet()
        killed(server, tmp_path, classify_words("killed.csv", budget), times=KILLS, requests=14)
        done = run(*classify_words("killed.csv", budget), "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        bill = server.bill()
        spent = json.loads(done.stdout)["spent"]
        again = sum(bill["served_by"].values()) - calls
        assert (tmp_path / "killed.csv").read_text() == (tmp_path / "whole.csv").read_text()
        assert bill["spent"] <= Fraction(str(round(spent, 9))) <= Fraction(str(round(budget, 6)))
        assert again <= KILLS * (4 + 1)
        leaked = [file.name for file in tmp_path.iterdir() if KEY.encode() in file.read_bytes()]
        assert not leaked


def test_killed_on_a_tight_budget(profile: oc.Profile, tmp_path: Path) -> None:
    """Where money is short, what is lost with a kill is missing: still no query is paid twice, and the cap is kept."""
    with billing_server("--delay", "0.03", "--key", KEY) as server:
        write_project(tmp_path, server, profile)
        budget = 0.4 * float(profile.mean_costs.max()) * 200
        killed(server, tmp_path, classify_words("tight.csv", budget), times=2, requests=90)
        done = run(*classify_words("tight.csv", budget), "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        bill = server.bill()
        summary = json.loads(done.stdout)
        assert summary["answered"] == 200
        assert bill["spent"] <= Fraction(str(round(summary["spent"], 9))) <= Fraction(f"{budget:.6f}")
        dear = [key.partition(" ")[2] for key, count in bill["served_by"].items() if not key.startswith("mini")]
        assert len(dear) - len(set(dear)) <= 3 * 4  # answered twice: only what was under way


def test_two_processes_do_not_share_a_journal(server: BillingServer, profile: oc.Profile, tmp_path: Path) -> None:
    """While one run writes a journal another one is refused, and pays nothing."""
    queries = texts(20, 6)
    budget = Fraction(str(profile.mean_costs.max())) * len(queries)
    refused: list[str] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "buying" and not refused:
            with pytest.raises(oc.JournalError, match="another process is writing it") as caught:
                oc.classify(pool_of(server), profile, queries, budget=budget, journal=tmp_path / "one.journal")
            refused.append(str(caught.value))

    server.meet()
    run: Any = oc.classify(
        pool_of(server), profile, queries, budget=budget, journal=tmp_path / "one.journal", progress=progress
    )
    assert refused
    assert server.bill()["spent"] == run.exact_spent
