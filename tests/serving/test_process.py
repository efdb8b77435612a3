"""The service as a process: how it starts, how it refuses to, and how it stops."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import httpx
import pytest

import occamroute as oc
from occamroute.cli import main
from occamroute.serving.gate import Gate
from occamroute.serving.limits import Limits
from occamroute.serving.metrics import Metrics
from occamroute.serving.running import listening
from occamroute.serving.service import Service
from serving import world

Refused: TypeAlias = Callable[..., tuple[int, str]]

POOL = """
classes = ["cat", "dog", "eel"]
[classifiers.small]
kind = "callable"
function = "slow_answers:small"
cost = 0.1
[classifiers.large]
kind = "callable"
function = "slow_answers:large"
cost = 1.0
"""
FUNCTIONS = """
import time

def small(texts):
    time.sleep(1.5 if "slowly" in texts[0] else 0.0)
    return ["cat"] * len(texts)

def large(texts):
    return ["cat"] * len(texts)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile and a pool file."""
    made = tmp_path_factory.mktemp("served")
    oc.save(world.profile(60), made / "profile.parquet")
    (made / "occamroute.toml").write_text(POOL)
    (made / "slow_answers.py").write_text(FUNCTIONS)
    return made


def words(*more: object) -> list[str]:
    start = [sys.executable, "-m", "occamroute", "serve", "--profile", "profile.parquet", "--port", "0", "--json"]
    return [*start, *map(str, more)]


@contextmanager
def process(folder: Path, *more: object) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A service that runs, and a client."""
    started = subprocess.Popen(
        words(*more), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    try:
        assert started.stdout is not None
        line = started.stdout.readline()
        assert line, started.communicate()
        with httpx.Client(base_url=json.loads(line)["address"], timeout=30) as client:
            yield started, client
    finally:
        started.kill()
        started.communicate()


@pytest.fixture
def refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refused:
    """The verb in this process, which saves the time of a start: its exit code and everything that it said."""
    monkeypatch.chdir(folder)

    def ran(*more: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["occamroute", *words("--state", tmp_path / "state", *more)[3:]])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out + said.err

    return ran


def run(folder: Path, *more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(*more), cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_a_service_stops_in_order(folder: Path) -> None:
    """Told to stop it is not ready any more, finishes what is under way, and ends without a word."""
    more = ("--pool", "occamroute.toml", "--budget", 100, "--arrivals", 1000, "--state", "state")
    with process(folder, *more) as (started, client), ThreadPoolExecutor(1) as threads:
        assert client.get("/readyz").json()["status"] == "ok"
        assert client.post("/v1/classify", json={"query": "text"}).json()["label"] == "cat"
        twice = run(folder, *more)
        assert (twice.returncode, "another service uses the state folder" in twice.stderr) == (2, True)
        under_way = threads.submit(client.post, "/v1/classify", json={"query": "slowly"})
        time.sleep(0.5)
        started.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        assert under_way.result().json()["label"] == "cat"
        stdout, stderr = started.communicate(timeout=20)
        assert (started.returncode, stdout, stderr) == (0, "", "")
    ledger = oc.open_ledger(f"sqlite:///{folder / 'state' / 'ledger.db'}")
    assert ledger.balance().held == 0
    assert ledger.balance().spent > 0
    ledger.close()


def test_it_goes_on_where_it_stopped(folder: Path) -> None:
    """A second start needs no budget, knows old receipts, and Ctrl-C ends it as well."""
    options = ("--state", "again", "--extractor", "small")
    with process(folder, "--budget", 100, "--arrivals", 1000, *options) as (_, client):
        made = client.post("/v1/route", json={"features": [0.8, 0.1, 0.1], "hold": True}).json()
        assert client.get(f"/v1/decisions/{made['decision']}").status_code == 200
    with process(folder, "--arrivals", 1000, *options) as (started, client):  # the first one was killed
        balance = client.get("/v1/budget").json()
        assert balance["held"] == made["cost"]
        settled = client.post("/v1/settle", json={"decision": made["decision"], "cost": "0.07"})
        assert settled.status_code == 200, settled.text
        assert client.get("/v1/budget").json()["spent"] == "0.07"
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=20)
        assert started.returncode == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_processes_on_one_ledger(kind: str, folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Held by one, settled and judged by the other, which lives on when the first is killed; each tells of both."""
    ledger = str(request.getfixturevalue("database")) if kind == "postgresql" else f"sqlite:///{tmp_path}/spend.db"
    options = ("--ledger", ledger, "--budget", 100, "--arrivals", 1000, "--extractor", "small")
    with process(folder, *options, "--state", tmp_path / "b") as (_, other):
        with process(folder, *options, "--state", tmp_path / "a") as (started, one):
            wish = {"features": [0.8, 0.1, 0.1], "hold": True}
            made = [one.post("/v1/route", json=wish).json()["decision"] for _ in range(3)]
            assert other.get(f"/v1/decisions/{made[2]}").json()["id"] == made[2]
            assert other.post("/v1/settle", json={"decision": made[0], "cost": "0.01"}).status_code == 200
            assert other.post("/v1/feedback", json={"decision": made[0], "success": 1}).json()["success"] == 1
            assert one.post("/v1/feedback", json={"decision": made[0], "success": 0}).json()["success"] == 1
            lists = [client.get("/v1/decisions").json()["decisions"] for client in (one, other)]
            assert [[found["id"] for found in some] for some in lists] == [made[::-1]] * 2
            names = {f'replica="{socket.gethostname()}:{client.base_url.port}"' for client in (one, other)}
            end = time.monotonic() + 30
            while any(name not in other.get("/metrics?replicas=all").text for name in names):
                assert time.monotonic() < end
                time.sleep(0.1)
            assert other.get("/v1/alarms").headers["x-occam-replicas"] == "2"
            started.send_signal(signal.SIGKILL)
            started.wait()
        assert other.post("/v1/settle", json={"decision": made[1], "cost": "0.01"}).status_code == 200
        assert other.get(f"/v1/decisions/{made[0]}").json()["feedback"]["success"] == 1
        assert other.get("/v1/budget").json()["spent"] == "0.02"


@pytest.mark.parametrize(
    ("more", "status", "sentence"),
    [
        (("--budget", 100, "--host", "0.0.0.0"), 2, "a service that others reach needs a key"),  # noqa: S104
        (("--budget", 100, "--host", "0.0.0.0", "--open"), 2, "--open is for this machine only"),  # noqa: S104
        ((), 2, "there is no ledger"),
        (("--budget", "x"), 2, "budget must be a finite number"),
        (("--budget", 1, "--window", "week"), 2, "unknown window 'week'"),
        (("--budget", 1, "--window", "total"), 2, "needs arrivals"),
        (("--budget", 1, "--arrivals", 1000), 3, "a budget of 1 is too small"),
        (("--budget", 1, "--ledger", "sqlite:///no/such/folder/x.db"), 4, "nothing may be spent"),
        (("--budget", 1, "--extractor", "nobody"), 2, "unknown extractor 'nobody'"),
        (("--budget", 1, "--pool", "none.toml"), 2, "cannot read none.toml"),
        (("--budget", 1, "--port", 1, "--host", "192.0.2.1"), 2, "cannot listen on 192.0.2.1:1"),
    ],
)
def test_what_it_does_not_start_with(refused: Refused, more: tuple[Any, ...], status: int, sentence: str) -> None:
    """One sentence and an exit code."""
    code, said = refused(*more)
    assert code == status, said
    assert sentence in said
    assert len(said.splitlines()) == 1


def test_two_that_bind_before_either_listens(refused: Refused, tmp_path: Path) -> None:
    """The one that is late says so in one sentence, too."""
    with listening("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        prepare = Service.prepare

        def overtaken(service: Service) -> None:
            other.listen()
            prepare(service)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Service, "prepare", overtaken)
            status, said = refused("--budget", 100, "--arrivals", 1000, "--port", port)
    assert (status, said) == (2, f"occamroute: cannot listen on 127.0.0.1:{port}: address already in use.\n")


def test_what_outlasts_the_end_hears_so() -> None:
    """A request that is called off when the service stops gets a problem, like everybody."""
    sent: list[Any] = []

    async def endless(*_: Any) -> None:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    async def called_off() -> None:
        service: Any = SimpleNamespace(in_flight=0, limits=Limits(), metrics=Metrics())
        scope = {"type": "http", "method": "POST", "path": "/v1/classify"}
        asked = asyncio.create_task(Gate(endless, service, {})(scope, endless, send))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        asked.cancel()
        await asked

    asyncio.run(called_off())
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["code"] == "not_ready"


def test_the_password_of_a_ledger_is_not_shown(refused: Refused) -> None:
    """A database that cannot be reached is named without its password."""
    status, said = refused("--budget", 1, "--ledger", "postgresql://user:canary-password@127.0.0.1:1/none")
    assert status == 4
    assert "canary" not in said


def test_keys_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    """A key is shown once; it is listed by its name, and removed."""

    def keys(*more: str) -> str:
        line = [sys.executable, "-m", "occamroute", "keys", *more, "--state", str(tmp_path / "state")]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout

    token = keys("add", "app", "--scope", "route", "--scope", "read", "--cap", "2.50").strip()
    assert re.fullmatch(r"occam_[\w-]{43}", token)
    listed = json.loads(keys("list", "--json"))
    assert listed == {"keys": [{"name": "app", "client": "app", "scopes": ["route", "read"], "cap": "2.50"}]}
    assert token not in keys("list")
    keys("remove", "app")
    assert json.loads(keys("list", "--json")) == {"keys": []}


def test_without_the_extra(folder: Path, tmp_path: Path) -> None:
    """Without its libraries the verb says what to install; everything else works."""
    (tmp_path / "fastapi.py").write_text("raise ModuleNotFoundError(\"No module named 'fastapi'\", name='fastapi')\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        words("--budget", 1), cwd=folder, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 2
    assert (
        done.stderr
        == "occamroute: a service needs libraries that are not installed: pip install 'occamroute[serve]'.\n"
    )
