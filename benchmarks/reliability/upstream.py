"""Answers a second of the service, beside a bare FastAPI application that makes the same calls of the same upstream.

    python benchmarks/reliability/upstream.py [TRIAL …] [--seconds 10] [--rounds 3] [--old CHECKOUT] [--out FOLDER]

slow        the upstream takes 1 s: 128 clients, 256 calls under way at most.
quick       the upstream answers at once: 1, 16 and 128 clients.
postgresql  the ledger is in PostgreSQL, 20 ms away: 64 clients, an upstream that answers at once.
crowd       200 clients, each with one request, on an upstream of 1 s that takes 8 calls at a time.

Each process is one of its own: the upstream (a chat model behind plain ASGI), the bare application (one httpx client),
the service, and the clients, whose connections stay open. With CHECKOUT (of another commit, with its virtual
environment) its service is measured in the same run, in turn with this one's. FOLDER gets upstream.json and
upstream.md.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
from ledger import addresses  # type: ignore[import-not-found]  # beside this script

import occamroute as oc

CLASSES = ("cat", "dog", "eel")
UPSTREAM = """
import asyncio, json, sys
import uvicorn

DELAY, under_way, most = float(sys.argv[2]), 0, 0

async def app(scope, receive, send):
    global under_way, most
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    under_way += 1
    most = max(most, under_way)
    content = b""
    while True:
        message = await receive()
        content += message.get("body", b"")
        if not message.get("more_body"):
            break
    if scope["path"] == "/most":
        answer = json.dumps({"most": most}).encode()
    else:
        text = json.loads(content)["messages"][-1]["content"]
        if DELAY:
            await asyncio.sleep(DELAY)
        said = ("cat", "dog", "eel")[int(text.split()[1]) % 3]
        answer = json.dumps({"choices": [{"message": {"content": said}, "finish_reason": "stop"}],
                             "usage": {"prompt_tokens": 40, "completion_tokens": 2}}).encode()
    under_way -= 1
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})

uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", access_log=False, log_level="error", ws="none",
            timeout_keep_alive=120)
"""
BARE = """
import sys
import httpx
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

class Body(BaseModel):
    query: str

app = FastAPI()
client = httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=256, max_keepalive_connections=256))

@app.post("/v1/classify")
async def classify(body: Body):
    wish = {"model": "m", "max_tokens": 5, "messages": [{"role": "system", "content": "Answer with one of the labels."},
                                                        {"role": "user", "content": body.query}]}
    reply = await client.post(sys.argv[2] + "/v1/chat/completions", json=wish)
    said = reply.json()["choices"][0]["message"]["content"]
    return {"label": said, "probabilities": {"cat": 0.1, "dog": 0.1, "eel": 0.8}, "classifier": "m", "cost": "0.1"}

@app.get("/readyz")
async def ready():
    return {}

uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", access_log=False, log_level="error", ws="none",
            timeout_keep_alive=120)
"""
POOL = """
classes = ["cat", "dog", "eel"]

[classifiers.model]
kind = "openai"
base_url = "{address}/v1"
model = "m"
max_tokens = 5
concurrency = {concurrency}
cost = {{ per_million_input = 1, per_million_output = 2 }}
"""
Found = dict[str, Any]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def process(*words: Any, path: str = "/readyz", port: int, **options: Any) -> Iterator[int]:
    """A server in a process of its own, once it answers; its port."""
    started = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, **options)
    try:
        for _ in range(600):
            try:
                connection = HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", path)
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
            assert started.poll() is None, "the server has ended"
            time.sleep(0.1)
        yield port
    finally:
        started.terminate()
        started.wait(timeout=60)


def upstream(delay: float) -> Any:
    """The model."""
    port = free_port()
    return process(sys.executable, "-c", UPSTREAM, port, delay, path="/most", port=port)


def bare(address: str) -> Any:
    """The peer."""
    port = free_port()
    return process(sys.executable, "-c", BARE, port, address, port=port)


@contextmanager
def service(checkout: Path, folder: Path, address: str, concurrency: int, ledger: str | None = None) -> Iterator[int]:
    """The service of a checkout as users start it: every query goes to the one model, and each call is paid."""
    folder.mkdir(parents=True)
    (folder / "occamroute.toml").write_text(POOL.format(address=address, concurrency=concurrency), encoding="utf-8")
    rows = 60
    labels = np.arange(rows) % 3
    success = np.ones((rows, 1))
    made = oc.Profile(("model",), np.array([5e-5]), np.zeros((rows, 1)), success, labels=labels, classes=CLASSES)
    oc.save(made, folder / "profile.parquet")
    port = free_port()
    words = ["-m", "occamroute", "serve", "--profile", folder / "profile.parquet", "--pool", folder / "occamroute.toml",
             "--port", port, "--budget", 1000, "--window", "day", "--arrivals", 1_000_000, "--extractor", "none",
             "--state", folder / "state", *(["--ledger", ledger] if ledger else [])]  # fmt: skip
    with process(checkout / ".venv" / "bin" / "python", *words, port=port, cwd=folder) as found:
        yield found


async def clients(port: int, number: int, seconds: float) -> Found:
    """So many clients, each of which sends its next request as soon as the last is answered."""
    took: list[float] = []
    statuses: dict[str, int] = {}
    end = time.perf_counter() + seconds

    async def one(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sent = first
        while (begun := time.perf_counter()) < end:
            status, _, body = await ask(reader, writer, sent)
            took.append(time.perf_counter() - begun)
            statuses[status] = statuses.get(status, 0) + 1
            assert status != "200" or json.loads(body)["label"] == CLASSES[sent % 3], body
            sent += number
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(one(first) for first in range(number)))
    p50, p99 = 1e3 * np.quantile(took, [0.5, 0.99])
    answered = statuses.get("200", 0) / (time.perf_counter() - begun)
    return {"answers_a_second": answered, "p50_ms": float(p50), "p99_ms": float(p99), "statuses": statuses}


async def ask(reader: Any, writer: Any, number: int) -> tuple[str, bytes, bytes]:
    """The status, the headers and the body that answer one query."""
    body = json.dumps({"query": f"text {number} of a stream of queries"}).encode()
    head = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    writer.write(head + str(len(body)).encode() + b"\r\n\r\n" + body)
    headers = await reader.readuntil(b"\r\n\r\n")
    length = int(headers.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return headers[9:12].decode(), headers.lower(), await reader.readexactly(length)


def loaded(port: int, number: int, seconds: float) -> Found:
    """What clients in a process of their own see."""
    words = [sys.executable, __file__, "--clients", str(port), str(number), str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: Found = json.loads(done.stdout)
    return found


def in_turn(servers: dict[str, int], number: int, wish: argparse.Namespace) -> Found:
    """The median of several rounds, in which all servers take their turn."""
    runs: dict[str, list[Found]] = {name: [] for name in servers}
    for port in servers.values():
        loaded(port, number, 2)
    for _ in range(wish.rounds):
        for name, port in servers.items():
            runs[name].append(loaded(port, number, wish.seconds))
    found: Found = {}
    for name, of_one in runs.items():
        bad = {status: count for run in of_one for status, count in run["statuses"].items() if status != "200"}
        assert not bad or name == "before", (name, bad)
        found[name] = {
            key: round(statistics.median(run[key] for run in of_one), 2)
            for key in ("answers_a_second", "p50_ms", "p99_ms")
        }
        if "bare" in runs and name != "bare":
            pairs = zip(of_one, runs["bare"], strict=True)
            share = statistics.median(own["answers_a_second"] / peer["answers_a_second"] for own, peer in pairs)
            found[name]["share_of_bare"] = round(share, 3)
    return found


def checkouts(wish: argparse.Namespace) -> dict[str, Path]:
    """This checkout, and the other one."""
    here = {"now": Path(__file__).resolve().parents[2]}
    return here | ({"before": wish.old} if wish.old else {})


def against_bare(delay: float, numbers: list[int], wish: argparse.Namespace) -> Found:
    """All servers on one upstream."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = f"http://127.0.0.1:{stack.enter_context(upstream(delay))}"
        servers = {"bare": stack.enter_context(bare(address))}
        for name, checkout in checkouts(wish).items():
            servers[name] = stack.enter_context(service(checkout, folder / name, address, 256))
        return {f"{number} clients": in_turn(servers, number, wish) for number in numbers}


def slow(wish: argparse.Namespace) -> Found:
    """An upstream of 1 s."""
    return against_bare(1.0, [128], wish)


def quick(wish: argparse.Namespace) -> Found:
    """An upstream that answers at once."""
    return against_bare(0.0, [1, 16, 128], wish)


async def delayed(port: int, there: str, delay: float) -> None:
    """A server that passes everything on to a socket, this much later in both directions."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while content := await reader.read(65536):
            loop.call_later(delay, writer.write, content)
        loop.call_later(delay, writer.close)

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, on = await asyncio.open_unix_connection(there)
        await asyncio.gather(pipe(reader, on), pipe(back, writer), return_exceptions=True)

    server = await asyncio.start_server(met, "127.0.0.1", port)
    await server.serve_forever()


def postgresql(wish: argparse.Namespace) -> Found:
    """A ledger that is 20 ms away: 10 ms there, 10 ms back."""
    import psycopg

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        near = stack.enter_context(addresses())["postgresql"]
        known = psycopg.conninfo.conninfo_to_dict(near)
        far = free_port()
        relay = subprocess.Popen([sys.executable, __file__, "--relay", str(far), f"{known['host']}/.s.PGSQL.5432"])
        stack.callback(relay.wait)
        stack.callback(relay.terminate)
        address = f"http://127.0.0.1:{stack.enter_context(upstream(0.0))}"
        servers = {}
        for name, checkout in checkouts(wish).items():
            with psycopg.connect(near, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            ledger = f"postgresql://postgres@127.0.0.1:{far}/{name}"
            servers[name] = stack.enter_context(service(checkout, folder / name, address, 256, ledger))
        found = in_turn(servers, 64, wish)
        if wish.old:
            found["times"] = round(found["now"]["answers_a_second"] / found["before"]["answers_a_second"], 1)
        return {"64 clients": found}


async def crowded(port: int) -> Found:
    """200 clients, one request each; what they are told, and when."""

    async def one(number: int) -> tuple[str, float, bool]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        begun = time.perf_counter()
        status, headers, _ = await ask(reader, writer, number)
        writer.close()
        return status, time.perf_counter() - begun, b"retry-after: " in headers

    told = await asyncio.gather(*(one(number) for number in range(200)))
    refused = [one for one in told if one[0] == "503"]
    return {
        "statuses": {status: sum(one[0] == status for one in told) for status in sorted({one[0] for one in told})},
        "slowest_answer_s": round(max(one[1] for one in told if one[0] == "200"), 2),
        "slowest_503_s": round(max((one[1] for one in refused), default=0.0), 2),
        "retry_after": all(one[2] for one in refused),
    }


def crowd(wish: argparse.Namespace) -> Found:
    """Twice, for the second time the service knows how long a call takes."""
    found: Found = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = f"http://127.0.0.1:{stack.enter_context(upstream(1.0))}"
        for name, checkout in checkouts(wish).items():
            port = stack.enter_context(service(checkout, folder / name, address, 8))
            for time_ in ("first", "second"):
                found.setdefault(f"{time_} crowd", {})[name] = asyncio.run(crowded(port))
    return found


TRIALS = {"slow": slow, "quick": quick, "postgresql": postgresql, "crowd": crowd}


def table(results: Found) -> str:
    """The results as a page."""
    lines = [
        "# The service and its upstream", "",
        "Made by `python benchmarks/reliability/upstream.py`, which says what each trial is and checks the answers.",
        "`bare` is a FastAPI application that makes the same calls with `httpx`; `before` an earlier commit of the "
        "service, measured in the same run.", "",
        "| Trial | Clients | Server | Answers a second | Of bare | p50, ms | p99, ms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for trial in ("slow", "quick", "postgresql"):
        for number, servers in results.get(trial, {}).items():
            for name, one in servers.items() if isinstance(servers, dict) else ():
                if isinstance(one, dict):
                    lines.append(
                        f"| {trial} | {number.split()[0]} | {name} | {one['answers_a_second']:,.1f} "
                        f"| {one.get('share_of_bare', '')} | {one['p50_ms']:.0f} | {one['p99_ms']:.0f} |"
                    )
    lines += ["", "| 200 clients at once | Server | Answers by status | Slowest answer, s | Slowest 503, s |",
              "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for which, servers in results.get("crowd", {}).items():
        for name, one in servers.items() if isinstance(servers, dict) else ():
            statuses = ", ".join(f"{count} × {status}" for status, count in one["statuses"].items())
            lines.append(f"| {which} | {name} | {statuses} | {one['slowest_answer_s']} | {one['slowest_503_s']} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help="all of them, if none is named")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--clients", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--relay", nargs=2, help=argparse.SUPPRESS)
    wish = parser.parse_args()
    if wish.clients:
        port, number, seconds = wish.clients
        print(json.dumps(asyncio.run(clients(int(port), int(number), float(seconds)))))
        return
    if wish.relay:
        asyncio.run(delayed(int(wish.relay[0]), wish.relay[1], 0.01))
        return
    file = None if wish.out is None else wish.out / "upstream.json"
    results: Found = json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else {}
    for trial in wish.trials or TRIALS:
        found = TRIALS[trial](wish)
        print(trial, json.dumps(found, indent=1), flush=True)
        about = f"{platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        results[trial] = {**found, "date": str(dt.date.today()), "machine": about}
    if file is not None:
        file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        file.with_suffix(".md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
