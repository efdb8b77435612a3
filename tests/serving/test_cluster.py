"""The service on Ray Serve: two replicas in processes of their own, one of which dies, and one ledger in PostgreSQL."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import httpx
import pytest

import occamroute as oc
from occamroute.cli import main
from occamroute.serving import replicas
from occamroute.serving.cluster import build
from occamroute.serving.keys import KeyFile
from occamroute.serving.replicas import Replica, check_ledger
from occamroute.serving.settings import Settings, settings_from
from serving import world

CAP = Decimal(4)
COST = Decimal("0.1")
PASSWORD = "canary-password"  # noqa: S105
SHORT = 0.2
POOL = """
classes = ["cat", "dog", "eel"]
[classifiers.small]
kind = "callable"
function = "sleepy:answers"
cost = 0.1
[classifiers.large]
kind = "callable"
function = "sleepy:answers"
cost = 0.1
"""
FUNCTIONS = """
import time

def answers(texts):
    time.sleep(3.0 if "slowly" in texts[0] else 0.0)
    return ["cat"] * len(texts)
"""


class Cluster:
    """The command and its replicas."""

    def __init__(self, folder: Path, ledger: str) -> None:
        self.folder, self.state, self.ledger = folder, folder / "state", ledger
        self.token = KeyFile(self.state).add("all", scopes=["admin"])
        words = ["--profile", "profile.parquet", "--pool", "pool.toml", "--extractor", "none", "--json", "--port", "0"]
        words += ["--budget", str(CAP), "--window", "total", "--arrivals", "40", "--state", "state", "--ledger", ledger]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "occamroute", "serve", *words, "--engine", "ray", "--replicas", "2"],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()
        self.about = json.loads(line)

    def client(self) -> httpx.Client:
        """A client that shows the key."""
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.about["address"], timeout=60, headers=headers)

    def opened(self) -> dict[int, list[str]]:
        """The files that each replica's process has open."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                files = [os.readlink(file) for file in (entry / "fd").iterdir()] if entry.name.isdigit() else []
            except OSError:  # it has ended, or is somebody else's
                continue
            if any(file.startswith(f"{self.state}/replica-") and file.endswith("service.lock") for file in files):
                found[int(entry.name)] = files
        return found

    def settle(self, client: httpx.Client, name: str, cost: Decimal = Decimal(0)) -> int:
        return client.post("/v1/settle", json={"decision": name, "cost": str(cost)}).status_code

    def books(self) -> Counter[str]:
        """How often each kind of thing happened; the cap was kept after each, and they add up to the balance."""
        ledger, held, spent, events = oc.open_ledger(self.ledger), Decimal(0), Decimal(0), Counter[str]()
        for entry in ledger.entries():
            held, spent, events = held + entry.held, spent + entry.spent, events + Counter([entry.event])
            assert held + spent <= CAP, entry
        balance = ledger.balance()
        ledger.close()
        assert (held, spent) == (balance.held, balance.spent)
        return events


def wait_until(is_so: Callable[[], bool]) -> None:
    """What replicas tell each other comes within seconds."""
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two replicas; tests may leave less money than they found, but nothing held."""
    import psycopg

    folder = tmp_path_factory.mktemp("cluster")
    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    profile = world.profile(60)
    same = oc.Profile(
        names=profile.names, costs=(0.1, 0.1), features=profile.features, success=profile.success,
        labels=profile.labels, classes=profile.classes,
    )  # fmt: skip
    oc.save(same, folder / "profile.parquet")
    (folder / "pool.toml").write_text(POOL)
    (folder / "sleepy.py").write_text(FUNCTIONS)
    made = Cluster(folder, f"{postgres.replace('/postgres?', f'/{name}?')}&password={PASSWORD}")
    yield made
    made.process.terminate()
    made.process.communicate(timeout=60)


def test_a_stampede(cluster: Cluster) -> None:
    """However many ask at once, on either replica, no more are let in than the cap pays for, and no fewer."""

    def rush(_: int) -> list[tuple[int, Any]]:
        with cluster.client() as client:
            answers = [client.post("/v1/route", json={"hold": True, "lease_seconds": 600}) for _ in range(20)]
            return [(one.status_code, one.json().get("decision")) for one in answers]

    with cluster.client() as client, ThreadPoolExecutor(8) as threads:
        room = int(Decimal(client.get("/v1/budget").json()["available"]) / COST)
        found = [one for some in threads.map(rush, range(8)) for one in some]
        assert Counter(status for status, _ in found) == {200: room, 429: 160 - room}
        assert Decimal(client.get("/v1/budget").json()["available"]) < COST
        both = {f"{os.uname().nodename}-{number}" for number in (0, 1)}

        def who_refused() -> set[str]:
            shares = [line for line in client.get("/metrics").text.splitlines() if 'path="/v1/route"' in line]
            return {line.partition('replica="')[2].partition('"')[0] for line in shares if 'status="429"' in line}

        wait_until(lambda: who_refused() == both)  # each tells the others every few seconds
        held = [name for status, name in found if status == 200]
        assert [cluster.settle(client, name) for name in held] == [200] * room
    assert cluster.books()["reserve"] >= room


def test_a_bank(cluster: Cluster) -> None:
    """Clients hold, settle, give back and let expire at random: the cap is kept at every look, the books add up."""

    def business(number: int) -> None:
        draw = random.Random(number)  # noqa: S311
        holds: list[str] = []
        late: list[str] = []
        end = time.monotonic() + 4.0
        with cluster.client() as client:
            while time.monotonic() < end:
                action = draw.random()
                if action < 0.6:
                    lease = SHORT if draw.random() < 0.1 else 60.0
                    made = client.post("/v1/route", json={"hold": True, "lease_seconds": lease})
                    assert made.status_code in (200, 429), made.text
                    if made.status_code == 200:
                        (late if lease == SHORT else holds).append(made.json()["decision"])
                elif action < 0.9 and holds:
                    cost = Decimal(draw.randint(0, 3)) / 10_000
                    assert cluster.settle(client, holds.pop(draw.randrange(len(holds))), cost) == 200
                else:
                    balance = client.get("/v1/budget").json()
                    assert Decimal(balance["held"]) + Decimal(balance["spent"]) <= CAP
            time.sleep(SHORT)
            assert {cluster.settle(client, name) for name in [*holds, *late]} <= {200}

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(business, range(6)))
    with cluster.client() as client:
        assert client.get("/v1/budget").json()["held"] == "0"
    events = cluster.books()
    assert min(events[event] for event in ("reserve", "settle", "expire")) > 0


def test_replicas_answer_for_each_other(cluster: Cluster) -> None:
    """A client need not know which replica it asks: receipts, feedback, counters and alarms are of all."""
    with cluster.client() as client:
        query, key = {"query": "text"}, {"idempotency-key": "order-17"}
        spent = Decimal(client.get("/v1/budget").json()["spent"])
        replies = [client.post("/v1/classify", json=query, headers=key) for _ in range(6)]
        assert {one.status_code for one in replies} <= {200, 409}  # paid once, whichever replica is asked
        (name,) = {one.json()["decision"] for one in replies if one.status_code == 200}
        assert Decimal(client.get("/v1/budget").json()["spent"]) == spent + COST
        assert [client.get(f"/v1/decisions/{name}").json()["outcome"]["label"] for _ in range(4)] == ["cat"] * 4
        judged = [client.post("/v1/feedback", json={"decision": name, "success": one}) for one in (1, 0, 0, 0)]
        assert [one.json()["success"] for one in judged] == [1.0] * 4
        listed = [client.get("/v1/decisions?limit=1000").json()["decisions"] for _ in range(4)]
        assert all(name in {one["id"] for one in some} for some in listed)
        wait_until(lambda: client.get("/v1/alarms").headers["x-occam-replicas"] == "2")
        assert client.get(f"/v1/decisions/{'0' * 28}").status_code == 404
        assert client.delete("/v1/classifiers/large").json()["code"] == "conflict"
        assert client.get("/readyz").status_code == client.get("/dashboard/").status_code == 200
        assert client.get("/v1/budget", headers={"authorization": "Bearer wrong"}).status_code == 401
    KeyFile(cluster.state).add("late", scopes=["read"])
    assert {path.name for path in cluster.state.iterdir()} == {"keys.json", "keys.lock", "replica-0", "replica-1"}


def test_nothing_secret_is_in_logs(cluster: Cluster) -> None:
    """Neither the ledger's password nor a key is in what Ray, Serve or the replicas write down."""
    files = {file for some in cluster.opened().values() for file in some if "/logs/" in file}
    folders = {Path(file).parents[-4] if "/serve/" not in file else Path(file).parents[1] for file in files}
    logs = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    logs += list(cluster.state.glob("replica-*/service.log"))
    assert len(logs) > 10
    for file in logs:
        content = file.read_bytes()
        assert PASSWORD.encode() not in content, file
        assert cluster.token.encode() not in content, file


def test_a_replica_is_killed(cluster: Cluster) -> None:
    """Nothing is overspent, what it held counts as spent in the end, and its receipts stay known."""
    with cluster.client() as client:
        made = [client.post("/v1/route", json={"hold": True, "lease_seconds": 3}).json() for _ in range(6)]
        kept = client.post("/v1/route", json={"hold": True, "lease_seconds": 600}).json()["decision"]
        spent = Decimal(client.get("/v1/budget").json()["spent"])
        time.sleep(0.3)  # receipts of the last milliseconds are not promised
        before = set(cluster.opened())
        os.kill(min(before), signal.SIGKILL)
        end = time.monotonic() + 60
        seen: Counter[int] = Counter()
        while (
            not set(cluster.opened()) - before
            or seen[200] < 1
            or client.get("/v1/alarms").headers.get("x-occam-replicas") != "2"
        ):
            assert time.monotonic() < end, seen
            seen[client.get(f"/v1/decisions/{kept}").status_code] += 1
            balance = client.get("/v1/budget")
            if balance.status_code == 200:
                assert Decimal(balance.json()["held"]) + Decimal(balance.json()["spent"]) <= CAP
        assert 404 not in seen
        assert len(set(cluster.opened()) - before) == 1
        assert [client.get(f"/v1/decisions/{one['decision']}").status_code for one in made] == [200] * 6
        time.sleep(max(0.0, 3.0 - (time.time() - int(made[-1]["decision"][:12], 16) / 1000)) + 0.2)
        assert Decimal(client.get("/v1/budget").json()["spent"]) == spent + 6 * COST
        assert [cluster.settle(client, one["decision"]) for one in made] == [200] * 6
        assert cluster.settle(client, kept) == 200
        balance = client.get("/v1/budget").json()
        assert (balance["held"], Decimal(balance["spent"])) == ("0", spent)
    cluster.books()


def test_it_stops_in_order(cluster: Cluster) -> None:
    """Told to stop it is not ready any more, finishes what is under way, and ends without a word."""
    with cluster.client() as client, ThreadPoolExecutor(1) as threads:
        under_way = threads.submit(client.post, "/v1/classify", json={"query": "slowly"})
        time.sleep(0.5)
        cluster.process.send_signal(signal.SIGTERM)
        while (status := client.get("/readyz").status_code) == 200:
            time.sleep(0.05)
        # Serve's proxy, which on a busy machine may take a second for a request, knows no more of it in the end.
        assert status in (503, 404)
        assert not under_way.done()
        assert under_way.result().json()["label"] == "cat"
        stdout, stderr = cluster.process.communicate(timeout=60)
    assert (cluster.process.returncode, stdout) == (0, "")
    # Ray has told of the replica that was killed, and of nothing else but that the machine is busy.
    expected = ("(raylet)", "Failed to get queue length from Replica")
    assert all(any(words in line for words in expected) for line in stderr.splitlines()), stderr
    assert cluster.opened() == {}
    assert cluster.books()["reserve"] > 0
    assert all((cluster.state / f"replica-{number}" / "service.log").read_text() == "" for number in (0, 1))


Refused: TypeAlias = Callable[..., tuple[int, str]]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """The verb in this process: its exit code and what it said."""
    oc.save(world.profile(60), tmp_path / "profile.parquet")
    monkeypatch.chdir(tmp_path)

    def ran(*more: object) -> tuple[int, str]:
        words = ["occamroute", "serve", "--profile", "profile.parquet", "--budget", "100", *map(str, more)]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out + said.err

    return ran


@pytest.mark.parametrize(
    ("more", "status", "sentence"),
    [
        (("--engine", "ray"), 2, "replicas need a ledger that outlives them"),
        (("--engine", "ray", "--ledger", "memory:"), 2, "replicas need a ledger that outlives them"),
        (("--engine", "ray", "--ledger", "sqlite:///x.db"), 2, "a ledger in SQLite does not do for 2 replicas"),
        (("--replicas", 2), 2, "for more, take the engine ray"),
        (("--engine", "ray", "--ledger", "postgresql://a:b@127.0.0.1:1/x"), 4, "nothing may be spent"),
        (("--engine", "ray", "--ledger", "postgresql://x", "--host", "192.0.2.1"), 2, "needs a key"),
        (("--engine", "ray", "--ledger", "sqlite:///x.db", "--replicas", 1, "--arrivals", 10000), 3, "too small"),
    ],
)
def test_what_replicas_do_not_start_with(refused: Refused, more: tuple[Any, ...], status: int, sentence: str) -> None:
    """One sentence and an exit code, before any Ray is started."""
    code, said = refused(*more)
    assert (code, sentence in said, len(said.splitlines())) == (status, True, 1), said


def test_an_application_for_serve(tmp_path: Path, database: str) -> None:
    """Arguments of a configuration file, or texts of the command line, become an application; no password may be."""
    oc.save(world.profile(60), tmp_path / "profile.parquet")
    given = {
        "profile": str(tmp_path / "profile.parquet"), "ledger": database, "budget": 100, "arrivals": "1000",
        "state": str(tmp_path / "state"), "host": "127.0.0.1", "replicas": "3", "combine": "false",
    }  # fmt: skip
    settings = settings_from(given)
    assert (settings.replicas, settings.arrivals, settings.budget, settings.combine) == (3, 1000.0, "100", False)
    assert database not in repr(settings)
    assert type(build(given)).__name__ == "Application"
    for change, sentence in (
        ({"host": "0.0.0.0"}, "a service that others reach needs a key"),  # noqa: S104
        ({"ledger": f"{database}&password=x"}, "must hold no password"),
        ({"ledger": "postgresql://user:x@127.0.0.1/x"}, "must hold no password"),
        ({"ledger": None}, "replicas need a ledger"),
        ({"replicas": "many"}, "replicas must be a whole number, got 'many'"),
        ({"replicas": 0}, "replicas must be 1 or more"),
        ({"combine": "yes"}, "combine must be true or false, got 'yes'"),
        ({"arrivals": "x"}, "arrivals must be a number"),
        ({"colour": 1}, "unknown argument 'colour'"),
    ):
        with pytest.raises(oc.OccamError, match=sentence):
            build({**given, **change})
    with pytest.raises(oc.InvalidInputError, match="the argument profile is needed"):
        build({})


def test_other_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with another version of the package, or a Ray without what is needed, is refused."""
    with pytest.raises(oc.ExecutorError, match=r"a replica has occamroute .*, and this is 0\.0\.0"):
        Replica(Settings("profile.parquet"), {}, "0.0.0")
    monkeypatch.setattr(replicas, "OLDEST", (99, 0))
    with pytest.raises(oc.ExecutorError, match=r"too old to serve with, it must be 99\.0 or newer"):
        replicas.the_serve()
    monkeypatch.setitem(sys.modules, "ray.serve", None)
    with pytest.raises(oc.MissingExtraError, match=r"pip install 'occamroute\[ray-serve\]'"):
        replicas.the_serve()


def test_a_ledger_of_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite does for one replica, as long as there is no other machine on which it could be started again."""
    nodes = [{"Alive": True}, {"Alive": False}]
    ray = type("Ray", (), {"nodes": lambda: nodes, "is_initialized": lambda: True})
    monkeypatch.setattr(replicas, "the_ray", lambda: ray)
    check_ledger("sqlite:///x.db", 1)
    nodes[1]["Alive"] = True
    with pytest.raises(oc.InvalidInputError, match="does not do for a replica on one of 2 machines"):
        check_ledger("sqlite:///x.db", 1)
    check_ledger("postgresql://x", 2)
