"""How many requests a second the service takes, beside a bare FastAPI endpoint in the same run, and for how long.

    python benchmarks/reliability/load.py [--rounds 3] [--seconds 10] [--out FOLDER]
    python benchmarks/reliability/load.py --soak 600 [--out FOLDER]

FOLDER gets load.json and load.md; what is not measured again stays as it was.

Real processes on this machine, 16 connections that stay open, by wrk where it is installed, else by a small generator
of our own in a process of its own. Bare: an ``async def`` endpoint with a pydantic body of the same JSON that returns a
small dict, under the same uvicorn settings. The service decides by features (10 or 512 numbers, l-infinity) on 40,000
labelled rows, about 1,000 of which share an estimate; every decision is written down as a receipt, and watched for
drift.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

import occamroute as oc
from occamroute.routing.guides import Guide
from occamroute.routing.router import Router

CONNECTIONS = 16
ROWS = 40_000
# Bodies that are sent in turn.
BODIES = 2_000
BARE = """
import sys
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

class Body(BaseModel):
    features: list[float]
    hold: bool = False

app = FastAPI()

@app.post("/v1/route")
async def route(body: Body):
    return {"decision": "019a0b1c2d3e0123456789abcdef", "classifier": "large", "cost": "0.1", "success": 0.87654321,
            "reason": "best_value", "held": body.hold}

@app.get("/readyz")
async def ready():
    return {}

uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", access_log=False, log_level="error", ws="none")
"""
LUA = """
local requests, number = {{}}, 0
init = function()
  for line in io.lines("{bodies}") do
    requests[#requests + 1] = wrk.format("POST", "/v1/route", {{["Content-Type"] = "application/json"}}, line)
  end
end
request = function()
  number = number % #requests + 1
  return requests[number]
end
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format('{{"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "bad": %d}}\\n', summary.requests,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout))
end
"""


@dataclass(frozen=True)
class Target:
    """A server under test: its process, its port, and the file of bodies to send it."""

    name: str
    process: subprocess.Popen[str]
    port: int
    bodies: Path


def profile(width: int) -> tuple[oc.Profile, np.ndarray[Any, Any]]:
    """The shipped outputs on CIFAR-10, filled up with slightly moved copies of rows, and other queries.

    Features are the 10 probabilities of the smallest network; wider ones are made from their logarithms.
    """
    known, test = oc.load_dataset("cifar10")
    draw = np.random.default_rng(width)
    logits = np.log(np.concatenate([known.feature_sets["resnet8-w8"], test.feature_sets["resnet8-w8"]]) + 1e-6)
    success = np.concatenate([known.success, test.success])
    labelled = len(logits) - BODIES
    rows = np.concatenate([np.arange(labelled), draw.integers(0, labelled, ROWS - labelled)])
    rows = np.concatenate([rows, np.arange(labelled, len(logits))])
    moved = logits[rows] + np.where(np.arange(len(rows)) < labelled, 0.0, 0.05)[:, None] * draw.standard_normal(
        (len(rows), logits.shape[1])
    )
    if width == logits.shape[1]:
        features = np.exp(moved) / np.exp(moved).sum(axis=1, keepdims=True)
    else:
        features = np.tanh(moved @ draw.standard_normal((logits.shape[1], width)) / 10)
        features += 0.05 * draw.standard_normal(features.shape)
    success = success[rows]
    made = oc.Profile(known.names, 1e3 * known.mean_costs, features[:ROWS].astype(np.float32), success[:ROWS])
    return made, features[ROWS:]


def write_bodies(queries: np.ndarray[Any, Any], path: Path) -> Path:
    """One request's body a line."""
    lines = [json.dumps({"features": [round(float(value), 7) for value in row]}) for row in queries]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@contextmanager
def bare(bodies: Path) -> Iterator[Target]:
    """The peer."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with _process([sys.executable, "-c", BARE, str(port)]) as process:
        _wait_until_ready(port)
        yield Target("bare", process, port, bodies)


@contextmanager
def service(width: int, folder: Path) -> Iterator[Target]:
    """The service as users start it, on a state folder where the metric and the number of neighbours are prescribed.

    Width 0 means that no features are looked at: what is left is everything but the search.
    """
    made, queries = profile(width or 10)
    oc.save(made, folder / f"profile-{width}.parquet")
    state, ledger = folder / f"state-{width}", f"sqlite:///{folder}/ledger-{width}.db"
    wishes: dict[str, Any] = {"arrivals": 100_000.0, "ledger": ledger, "state": state}
    extractor = "features" if width else None
    guide = Guide(extractor, metric="linf", sample_size=ROWS // 160, belief=0.7)
    with Router(made, budget=700, window="day", guide=guide, extractor=extractor, **wishes) as begun:
        begun.ledger.close()
    words = ["serve", "--profile", str(folder / f"profile-{width}.parquet"), "--port", "0", "--json"]
    words += ["--extractor", extractor or "none"]
    words += [word for name, value in wishes.items() for word in (f"--{name}", str(value))]
    with _process([sys.executable, "-m", "occamroute", *words]) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert line["guide"]["metric"] == "linf", line
        target = Target(
            f"{width} features", process, int(line["address"].rpartition(":")[2]),
            write_bodies(queries, folder / f"bodies-{width}.jsonl"),
        )  # fmt: skip
        if width:
            check(target)
        yield target


def check(target: Target) -> None:
    """The answers are decisions that were looked up, and there is a receipt for each."""
    connection = HTTPConnection("127.0.0.1", target.port, timeout=60)
    lines = target.bodies.read_text(encoding="utf-8").splitlines()[:50]
    chosen = set()
    for line in lines:
        connection.request("POST", "/v1/route", line, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        found = json.loads(reply.read())
        assert reply.status == 200, found
        assert found["reason"] in ("best_value", "unlike_profile"), found
        chosen.add(found["classifier"])
    assert len(chosen) > 1, chosen
    connection.request("GET", f"/v1/decisions/{found['decision']}")
    receipt = json.loads(connection.getresponse().read())
    assert receipt["features"] == json.loads(lines[-1])["features"], receipt
    assert len(receipt["neighbours"]) == 8, receipt


def loaded(target: Target, seconds: float, folder: Path) -> dict[str, float]:
    """Requests a second, latencies in milliseconds, processor time a request in microseconds."""
    before, begun = _processor_seconds(target), time.monotonic()
    if shutil.which("wrk"):
        script = folder / "wrk.lua"
        script.write_text(LUA.format(bodies=target.bodies), encoding="utf-8")
        words = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(script)]
        words.append(f"http://127.0.0.1:{target.port}")
    else:
        words = [sys.executable, __file__, "--generate", str(target.port), str(target.bodies), str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert time.monotonic() - begun < seconds + 30
    assert found["bad"] == 0, done.stdout
    return {
        "requests_a_second": found["requests"] / found["seconds"],
        "p50_ms": found["p50"],
        "p99_ms": found["p99"],
        "processor_us": 1e6 * (_processor_seconds(target) - before) / found["requests"],
    }


def compared(targets: list[Target], rounds: int, seconds: float, folder: Path) -> dict[str, Any]:
    """The median of several rounds of each, taken in turn so that all see the same weather."""
    runs: dict[str, list[dict[str, float]]] = {target.name: [] for target in targets}
    for target in targets:
        loaded(target, 2, folder)
    for _ in range(rounds):
        for target in targets:
            runs[target.name].append(loaded(target, seconds, folder))
    results: dict[str, Any] = {
        name: {key: round(statistics.median(run[key] for run in found), 2) for key in found[0]}
        for name, found in runs.items()
    }
    for name in list(results)[1:]:
        pairs = zip(runs[name], runs["bare"], strict=True)
        share = statistics.median(own["requests_a_second"] / peer["requests_a_second"] for own, peer in pairs)
        results[name]["share_of_bare"] = round(share, 3)
    return results


def soaked(target: Target, seconds: float, folder: Path) -> dict[str, Any]:
    """Under load for so long: nothing fails, and after a minute (a tenth, if that is shorter) memory stays as it is."""
    end, samples, requests = time.monotonic() + seconds, [], 0.0
    while time.monotonic() < end:
        piece = max(1, round(min(10.0, seconds / 20)))
        found = loaded(target, piece, folder)
        requests += found["requests_a_second"] * piece
        samples.append(_mebibytes(target))
        print(f"{len(samples) * piece:5d} s  {found['requests_a_second']:7.0f}/s  {samples[-1]:7.1f} MiB", flush=True)
    settled = samples[max(1, len(samples) // 10) :]
    growth = statistics.mean(settled[-3:]) / statistics.mean(settled[:3]) - 1
    assert growth < 0.05, samples
    return {
        "seconds": seconds,
        "requests": round(requests),
        "mebibytes": round(settled[-1], 1),
        "growth": round(growth, 4),
    }


async def _generate(port: int, bodies: list[bytes], seconds: float) -> dict[str, float]:
    """A small load generator: each connection sends its next request as soon as the last is answered."""
    took: list[float] = []
    bad = 0
    end = time.perf_counter() + seconds

    async def connection(first: int) -> None:
        nonlocal bad
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        number = first
        while (begun := time.perf_counter()) < end:
            body = bodies[number % len(bodies)]
            number += CONNECTIONS
            head = b"POST /v1/route HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
            writer.write(head + str(len(body)).encode() + b"\r\n\r\n" + body)
            headers = await reader.readuntil(b"\r\n\r\n")
            length = int(headers.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            took.append(time.perf_counter() - begun)
            bad += not headers.startswith(b"HTTP/1.1 200")
        writer.close()

    await asyncio.gather(*(connection(number) for number in range(CONNECTIONS)))
    p50, p99 = 1e3 * np.quantile(took, [0.5, 0.99])
    return {"requests": len(took), "seconds": seconds, "p50": float(p50), "p99": float(p99), "bad": bad}


def _processor_seconds(target: Target) -> float:
    words = Path(f"/proc/{target.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _mebibytes(target: Target) -> float:
    pages = int(Path(f"/proc/{target.process.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def _process(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()


def _wait_until_ready(port: int) -> None:
    for _ in range(300):
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"nobody answers on port {port}")


def main() -> None:
    """Run what is asked for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--widths", type=int, nargs="*", default=[0, 10, 512])
    parser.add_argument("--soak", type=float, default=0.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--generate", nargs=3, help=argparse.SUPPRESS)
    wish = parser.parse_args()
    if wish.generate:
        port, bodies, seconds = wish.generate
        lines = Path(bodies).read_bytes().splitlines()
        print(json.dumps(asyncio.run(_generate(int(port), lines, float(seconds)))))
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        results: dict[str, Any]
        if wish.soak:
            results = {"soak": soaked(stack.enter_context(service(10, folder)), wish.soak, folder)}
        else:
            targets = [stack.enter_context(service(width, folder)) for width in wish.widths]
            targets.insert(0, stack.enter_context(bare(targets[0].bodies)))
            results = compared(targets, wish.rounds, wish.seconds, folder)
    for name, found in results.items():
        print(name, found)
    if wish.out is not None:
        keep(results, wish.out / "load.json")


def keep(results: dict[str, Any], file: Path) -> None:
    """Write the results beside those of other runs, and the page that shows them all."""
    known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    about = {"date": time.strftime("%Y-%m-%d"), "machine": f"{os.cpu_count()} cores, {platform.system()}"}
    known |= {name: {**found, **about} for name, found in results.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    file.with_suffix(".md").write_text(page(known), encoding="utf-8")


def page(known: dict[str, Any]) -> str:
    """The results as a table."""
    lines = [
        "# The service under load", "",
        "Made by `python benchmarks/reliability/load.py`, which says what is measured and checks the answers first.",
        "", "| Endpoint | Requests a second | Of bare | p50, ms | p99, ms | Processor, µs a request | Date, machine |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    names = {"bare": "bare FastAPI", "0 features": "`/v1/route`, no features"}
    for name, found in known.items():
        if name != "soak":
            share = f"{found['share_of_bare']:.2f}" if "share_of_bare" in found else ""
            lines.append(
                f"| {names.get(name, f'`/v1/route`, {name}')} | {found['requests_a_second']:,.0f} | {share} "
                f"| {found['p50_ms']:.1f} | {found['p99_ms']:.1f} | {found['processor_us']:.0f} "
                f"| {found['date']}, {found['machine']} |"
            )
    if "soak" in known:
        found = known["soak"]
        lines += [
            "",
            f"Soak with 10 features: {found['requests']:,} requests in {found['seconds']:.0f} s, none failed; memory "
            f"grew by {100 * found['growth']:.2f} % to {found['mebibytes'] * 1.048576:.0f} MB ({found['date']}).",
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
