"""Replicas that answer for each other: what is passed on, what is gathered, and what is not."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

import occamroute as oc
from occamroute.serving.app import create_app
from occamroute.serving.peers import Asked, Heard, Peers, Reply, answered
from serving import world

JSON = ((b"content-type", b"application/json"), (b"host", b"localhost"))
Answer = tuple[int, dict[str, str], Any]


class Cluster:
    """Two services in this process that ask each other; ``away`` are those that do not answer."""

    def __init__(self, folder: Path) -> None:
        ledger = f"sqlite:///{folder}/ledger.db"
        self.services = [
            world.service(folder / str(number), ledger=ledger, replicated=True, open=True) for number in range(2)
        ]
        self.apps = [create_app(service) for service in self.services]
        self.peers = [Peers(app, f"host-{number}", self._asking(1 - number)) for number, app in enumerate(self.apps)]
        self.away: set[int] = set()

    def _asking(self, other: int) -> Any:
        async def ask(asked: Asked) -> Heard:
            if other in self.away:
                return Heard([], 1)
            return Heard([await answered(self.apps[other], f"host-{other}", asked)])

        return ask

    async def ask(self, number: int, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """What a replica says when it is asked by a client."""
        path, _, query = path.partition("?")
        given = (*JSON, *((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()))
        content = b"" if body is None else json.dumps(body).encode()
        asked = Asked(method, path, query.encode(), given, content)
        reply = await answered(self.peers[number], "client", asked)
        shown = {name.decode(): value.decode() for name, value in reply.headers}
        assert int(shown["content-length"]) == len(reply.body)
        return reply.status, shown, json.loads(reply.body) if reply.body[:1] == b"{" else reply.body.decode()


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    """How to run a coroutine of a cluster, begun and ended around it."""

    def run(work: Any) -> None:
        async def whole() -> None:
            made = Cluster(tmp_path)
            for service in made.services:
                await service.begin()
            try:
                await work(made)
            finally:
                for service in made.services:
                    await service.end()

        asyncio.run(whole())

    return run


def test_a_decision_is_known_to_all(cluster: Any) -> None:
    """Whoever is asked, a decision is found, settled and judged where it was made; nobody knows one that is not."""

    async def work(made: Cluster) -> None:
        body = {"features": [0.8, 0.1, 0.1], "hold": True}
        _, _, decision = await made.ask(0, "POST", "/v1/route", body)
        name = decision["decision"]
        for number in (0, 1):
            status, _, receipt = await made.ask(number, "GET", f"/v1/decisions/{name}")
            assert (status, receipt["id"]) == (200, name)
            assert (await made.ask(number, "GET", f"/dashboard/api/decision?id={name}"))[0] == 200
        status, _, settled = await made.ask(1, "POST", "/v1/settle", {"decision": name, "cost": "0.05"})
        assert (status, settled["cost"]) == (200, "0.05")
        assert str((await made.ask(0, "GET", "/v1/budget"))[2]["spent"]) == "0.05"
        assert (await made.ask(1, "POST", "/v1/feedback", {"decision": name, "success": 1}))[0] == 200
        assert (await made.ask(0, "GET", f"/v1/decisions/{name}"))[2]["feedback"]["success"] == 1
        assert (await made.ask(1, "GET", f"/v1/decisions/{'0' * 28}"))[0] == 404
        made.away = {0}
        status, headers, problem = await made.ask(1, "GET", f"/v1/decisions/{name}")
        assert (status, problem["code"], headers["retry-after"]) == (503, "not_ready", "2")
        assert (await made.ask(0, "GET", f"/v1/decisions/{name}"))[0] == 200

    cluster(work)


def test_a_key_has_one_answer_everywhere(cluster: Any) -> None:
    """A request that comes again to another replica gets the first answer, and is not paid again."""

    async def work(made: Cluster) -> None:
        query = {"query": "text 7 #dog"}
        status, _, first = await made.ask(0, "POST", "/v1/classify", query, idempotency_key="order-17")
        assert status == 200
        spent = (await made.ask(0, "GET", "/v1/budget"))[2]["spent"]
        assert (await made.ask(1, "POST", "/v1/classify", query, idempotency_key="order-17"))[2] == first
        status, _, problem = await made.ask(1, "POST", "/v1/classify", {"query": "other"}, idempotency_key="order-17")
        assert (status, problem["code"]) == (409, "repeated_key")
        assert (await made.ask(0, "GET", "/v1/budget"))[2]["spent"] == spent
        made.away = {0}
        status, _, problem = await made.ask(1, "POST", "/v1/classify", query, idempotency_key="order-17")
        assert (status, problem["code"]) == (409, "repeated_key")

    cluster(work)


def test_receipts_of_all_in_pages(cluster: Any) -> None:
    """Receipts in short come from all replicas, newest first, each once, page by page, whoever is asked."""

    async def work(made: Cluster) -> None:
        names = []
        for number in (0, 1, 1, 0, 1, 0, 0):
            _, _, decision = await made.ask(number, "POST", "/v1/route", {"features": [0.8, 0.1, 0.1]})
            names.append(decision["decision"])
            await asyncio.sleep(0.002)  # ids tell the time in milliseconds
        seen: list[str] = []
        page, more = "", True
        for number in (0, 1, 0, 1):
            status, headers, found = await made.ask(number, "GET", f"/v1/decisions?limit=2{page}")
            assert (status, headers["x-occam-replicas"]) == (200, "2")
            seen += [one["id"] for one in found["decisions"]]
            page, more = f"&before={found['next']}", found["next"] is not None
        assert not more
        assert seen == names[::-1]
        assert (await made.ask(0, "GET", "/v1/decisions?limit=0"))[0] == 422
        made.away = {1}
        status, headers, found = await made.ask(0, "GET", "/v1/decisions")
        assert (headers["x-occam-replicas"], len(found["decisions"])) == ("1", 4)
        made.away = set()
        assert len((await made.ask(1, "GET", "/dashboard/api/live"))[2]["decisions"]) == 7

    cluster(work)


def test_what_each_counts_is_told_by_all(cluster: Any) -> None:
    """Counters carry the replica's name, families stay together; the strongest evidence of a change counts."""

    async def work(made: Cluster) -> None:
        await made.ask(0, "POST", "/v1/route", {"features": [0.8, 0.1, 0.1]})
        _, headers, text = await made.ask(1, "GET", "/metrics")
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        assert text.count("# TYPE occamroute_ready gauge\n") == 1
        assert 'occamroute_ready{replica="host-0"} 1.0\n' in text
        assert 'occamroute_ready{replica="host-1"} 1.0\n' in text
        assert 'occamroute_requests_total{replica="host-0",method="POST",path="/v1/route",status="200"} 1.0' in text
        families = [line.split("{")[0].removesuffix("_bucket") for line in text.splitlines() if "# " not in line]
        first = [name for number, name in enumerate(families) if name != families[number - 1]]
        assert len([name for name in first if name == "occamroute_budget"]) == 1
        own = [service.router.evidence()["features"] for service in made.services]
        _, _, alarms = await made.ask(1, "GET", "/v1/alarms")
        assert alarms["evidence"]["features"] == max(own)

    cluster(work)


def test_rows_and_classifiers_stay(cluster: Any) -> None:
    """What all must decide by is changed by a new deployment, and nobody changes it for one replica alone."""

    async def work(made: Cluster) -> None:
        before = [service.router.snapshot.id for service in made.services]
        row = {"features": [0.4, 0.3, 0.3], "success": {"small": 0, "large": 1}, "label": 0}
        for method, path, body in (
            ("POST", "/v1/rows", {"rows": [row]}),
            ("DELETE", f"/v1/rows?id={made.services[0].router.snapshot.profile.ids[0]}", None),
            ("DELETE", "/v1/classifiers/large", None),
            ("POST", "/v1/classifiers", {"name": "large", "cost": 1, "success": [1.0] * 240}),
        ):
            status, _, problem = await made.ask(0, method, path, body)
            assert (status, problem["code"]) == (409, "conflict"), problem
            assert "deploy the service again" in problem["detail"]
        assert [service.router.snapshot.id for service in made.services] == before

    cluster(work)


def test_what_is_passed_on_is_not_shown() -> None:
    """Neither keys nor queries are in what a log would show of a request that is passed on."""
    asked = Asked("POST", "/v1/settle", b"", ((b"authorization", b"Bearer canary"),), b"canary")
    assert "canary" not in repr(asked)
    assert "canary" not in repr(Reply("host-0", 200, ((b"set", b"canary"),), b"canary"))


def test_receipts_before_one_that_is_not_here(tmp_path: Path) -> None:
    """Of the receipts of several routers those older than any id can be had."""
    with oc.Router(world.profile(60), budget=100, arrivals=100, state=tmp_path, extractor=None) as router:
        receipts = router.receipts
        assert receipts is not None
        made = []
        for _ in range(4):
            made.append(router.route(hold=False).id)
            time.sleep(0.002)  # ids tell the time in milliseconds
        between = f"{int(made[2][:12], 16) - 1:012x}{'f' * 16}"
        assert [one["id"] for one in receipts.search(before=between)] == made[1::-1]
        assert [one["id"] for one in receipts.search(before=made[2])] == made[1::-1]
        assert receipts.search(before="0" * 28) == []
        assert len(receipts.search(before="f" * 28)) == 4
