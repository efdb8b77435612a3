"""Two services on one ledger's database: any of them answers for both, and neither asks the other."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

import occamroute as oc
from occamroute.serving import sharing
from occamroute.serving.keys import KeyFile
from occamroute.serving.service import Service
from serving import world

FEATURES = [0.8, 0.1, 0.1]


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a ledger that several processes share."""
    return (
        str(request.getfixturevalue("database")) if request.param == "postgresql" else f"sqlite:///{tmp_path}/spend.db"
    )


class Pair:
    """Two services, each with a state folder of its own, and a client of each."""

    def __init__(self, folder: Path, ledger: str, stack: ExitStack, **options: Any) -> None:
        self.services: list[Service] = []
        self.clients: list[httpx.Client] = []
        for number in range(2):
            service = world.service(folder / str(number), ledger=ledger, name=f"host-{number}", **options)
            self.services.append(service)
            self.clients.append(stack.enter_context(world.served(service)))

    def until(self, number: int, path: str, wanted: Any) -> httpx.Response:
        """What one answers, once it is what is wanted: records of the others come within seconds."""
        end = time.monotonic() + 30
        while not wanted(found := self.clients[number].get(path)):
            assert time.monotonic() < end, found.text
            time.sleep(0.05)
        return found


@pytest.fixture
def pair(tmp_path: Path, ledger: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(sharing, "EVERY", 0.2)
    with ExitStack() as stack:
        yield Pair(tmp_path, ledger, stack)


def both(found: httpx.Response) -> bool:
    return str(found.headers.get("x-occam-replicas")) == "2"


def test_a_decision_is_known_to_both(pair: Pair) -> None:
    """Held on one, it is settled, looked up and judged on the other, and listed by both."""
    one, other = pair.clients
    made = one.post("/v1/route", json={"features": FEATURES, "hold": True}).json()["decision"]
    assert other.post("/v1/settle", json={"decision": made, "cost": "0.05"}).json()["cost"] == "0.05"
    assert one.get("/v1/budget").json()["spent"] == "0.05"
    receipt = other.get(f"/v1/decisions/{made}").json()
    assert (receipt["id"], len(receipt["neighbours"])) == (made, 8)
    assert receipt == one.get(f"/v1/decisions/{made}").json()
    assert other.get(f"/dashboard/api/decision?id={made}").json()["neighbours"][0]["success"]
    assert other.post("/v1/feedback", json={"decision": made, "success": 1}).json()["success"] == 1.0
    # What was said first counts, wherever it was said.
    assert one.post("/v1/feedback", json={"decision": made, "success": 0}).json()["success"] == 1.0
    assert one.get(f"/v1/decisions/{made}").json()["feedback"]["success"] == 1.0
    for client in pair.clients:
        assert [found["id"] for found in client.get("/v1/decisions").json()["decisions"]] == [made]
        assert client.get(f"/v1/decisions/{'0' * 28}").status_code == 404


def test_an_answer_is_known_to_both(pair: Pair) -> None:
    """What was answered on one is judged by its label on the other; the live page shows both's decisions."""
    one, other = pair.clients
    made = one.post("/v1/classify", json={"query": world.text(7)}).json()
    assert (
        other.post("/v1/feedback", json={"decision": made["decision"], "label": made["label"]}).json()["success"] == 1
    )
    second = other.post("/v1/classify", json={"query": world.text(8)}).json()["decision"]
    for client in (other, one):  # lists are milliseconds behind what another process has just done
        shown = client.get("/dashboard/api/live").json()["decisions"]
        assert [found["id"] for found in shown] == [second, made["decision"]]
        assert shown[1]["outcome"]["label"] == made["label"]


def test_pages_of_receipts_of_both(pair: Pair) -> None:
    """Newest first, each once, page by page, whichever is asked and whatever comes meanwhile."""
    names = []
    for number in (0, 1, 1, 0, 1, 0, 0):
        names.append(pair.clients[number].post("/v1/route", json={"features": FEATURES}).json()["decision"])
        time.sleep(0.002)
    assert pair.clients[0].get("/v1/decisions").json()["decisions"][0]["id"] == names[-1]
    seen: list[str] = []
    page, more = "", True
    for number in (0, 1, 0, 1):
        found = pair.clients[number].get(f"/v1/decisions?limit=2{page}").json()
        seen += [one["id"] for one in found["decisions"]]
        page, more = f"&before={found['next']}", found["next"] is not None
        pair.clients[1 - number].post("/v1/route", json={"features": FEATURES})
    assert not more
    assert seen == names[::-1]


def test_alarms_of_both(pair: Pair) -> None:
    """An alarm of one is told by the other, with the strongest evidence, on the live page and in the metrics, too."""
    draw = [[0.34 + 0.001 * (number % 7), 0.33, 0.33] for number in range(64)]
    for _ in range(20):
        for features in draw:
            pair.clients[0].post("/v1/route", json={"features": features})
        if pair.services[0].router.alarms():
            break
    (alarm,) = pair.services[0].router.alarms()
    assert pair.services[1].router.alarms() == []
    found = pair.until(1, "/v1/alarms", lambda reply: reply.json()["alarms"])
    assert both(found)
    assert [one["sentence"] for one in found.json()["alarms"]] == [alarm.sentence]
    assert found.json()["evidence"]["features"] >= 100
    assert pair.clients[1].get("/dashboard/api/live").json()["drift"]["alarms"] == found.json()["alarms"]
    assert 'occamroute_alarms{replica="host-0"} 1.0' in pair.clients[1].get("/metrics?replicas=all").text


def test_metrics_of_both(pair: Pair) -> None:
    """A process that is scraped tells its own numbers; behind one address it tells all, each with its replica."""
    pair.clients[0].post("/v1/route", json={"features": FEATURES})
    counted = 'occamroute_requests_total{replica="host-0",method="POST",path="/v1/route",status="200"} 1.0'
    text = pair.until(1, "/metrics?replicas=all", lambda reply: counted in reply.text).text
    assert text.count("# TYPE occamroute_ready gauge\n") == 1
    assert 'occamroute_ready{replica="host-0"} 1.0\n' in text
    assert 'occamroute_ready{replica="host-1"} 1.0\n' in text
    families = [line.split("{")[0].removesuffix("_bucket") for line in text.splitlines() if "# " not in line]
    first = [name for number, name in enumerate(families) if name != families[number - 1]]
    assert len([name for name in first if name == "occamroute_budget"]) == 1
    for path in ("/metrics", "/metrics?replicas=own"):
        own = pair.clients[1].get(path)
        assert "occamroute_ready 1.0\n" in own.text
        assert "replica=" not in own.text
        assert "x-occam-replicas" not in own.headers
    assert pair.clients[1].get("/metrics?replicas=x").status_code == 422


def test_a_process_that_ended_is_not_told_of(tmp_path: Path, ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end a process takes its record away; one that was killed is ignored once its record is old."""
    monkeypatch.setattr(sharing, "EVERY", 0.2)
    with world.served(world.service(tmp_path / "a", ledger=ledger, name="a")) as client:
        with world.served(world.service(tmp_path / "b", ledger=ledger, name="b")) as other:
            for one in (client, other):
                end = time.monotonic() + 30
                while not both(one.get("/v1/alarms")):
                    assert time.monotonic() < end
        assert client.get("/v1/alarms").headers["x-occam-replicas"] == "1"
        with oc.Router(world.profile(60), budget=None, arrivals=100.0, ledger=ledger, state=tmp_path / "c") as router:
            database = router.database
            assert database is not None
            words = "INSERT INTO occamroute_replicas (ledger, name, at, record) VALUES (?, ?, {} - ?, ?)"
            facts = '{"alarms": [], "evidence": {}, "metrics": []}'
            for name, age in (("killed", 10), ("long ago", 20), ("last week", 600_000)):
                database.write([(words.format(database.now), ("default", name, age, facts))])
            database.write([(words.format(database.now), ("another ledger", "stranger", 0, facts))])
            assert client.get("/v1/alarms").headers["x-occam-replicas"] == "2"
            end = time.monotonic() + 30
            names = "SELECT name FROM occamroute_replicas ORDER BY name"
            while len(found := [row[0] for row in database.read(names)]) > 4:
                assert time.monotonic() < end
                time.sleep(0.05)
        assert found == ["a", "killed", "long ago", "stranger"]


def test_a_service_with_a_ledger_of_its_own(tmp_path: Path) -> None:
    """In its own state folder nothing is shared: no label, no header, whatever is asked for."""
    with world.served(world.service(tmp_path)) as client:
        for path in ("/metrics", "/metrics?replicas=all", "/v1/alarms"):
            found = client.get(path)
            assert found.status_code == 200
            assert "x-occam-replicas" not in found.headers
            assert "replica=" not in found.text


def test_clients_see_their_own(tmp_path: Path, ledger: str) -> None:
    """On another process, too, a key judges its own decisions only."""
    tokens = {name: KeyFile(tmp_path / "0").add(name, scopes=["route", "feedback"]) for name in ("ann", "bob")}
    reader = KeyFile(tmp_path / "0").add("reader", scopes=["read"])
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    shown = {name: {"authorization": f"Bearer {token}"} for name, token in {**tokens, "reader": reader}.items()}
    with ExitStack() as stack:
        one, other = Pair(tmp_path, ledger, stack).clients
        made = one.post("/v1/route", json={"features": FEATURES}, headers=shown["ann"]).json()["decision"]
        body = {"decision": made, "success": 1}
        assert other.post("/v1/feedback", json=body, headers=shown["bob"]).json()["code"] == "unknown_decision"
        assert other.post("/v1/feedback", json=body, headers=shown["ann"]).status_code == 200
        found = other.get("/v1/decisions?client=ann", headers=shown["reader"]).json()["decisions"]
        assert [one["id"] for one in found] == [made]
        assert other.get("/v1/decisions?client=%00", headers=shown["reader"]).json()["decisions"] == []


def test_rows_that_the_other_does_not_know(pair: Pair) -> None:
    """After a change on one, the other shows its decisions without neighbours, and takes feedback for them."""
    one, other = pair.clients
    pair.services[0].router.add_classifier("large again", 1.0, [1.0] * 240)
    made = one.post("/v1/route", json={"features": FEATURES, "hold": True}).json()
    known, found = (client.get(f"/v1/decisions/{made['decision']}").json() for client in (one, other))
    for name in ("id", "at", "client", "classifier", "reason", "cost", "price", "features", "budget", "snapshot"):
        assert found[name] == known[name], name
    assert [(row["classifier"], row["success"], row["cost"]) for row in found["estimates"]] == [
        (row["classifier"], row["success"], row["cost"]) for row in known["estimates"]
    ]
    assert len(known["neighbours"]) == 8
    assert (found["neighbours"], found["familiarity"]) == ([], None)
    assert other.get(f"/dashboard/api/decision?id={made['decision']}").json()["known"] == []
    evidence = pair.services[1].router.evidence()
    assert other.post("/v1/feedback", json={"decision": made["decision"], "success": 0.5}).status_code == 200
    assert one.get(f"/v1/decisions/{made['decision']}").json()["feedback"]["success"] == 0.5
    assert pair.services[1].router.evidence() == evidence
    assert other.post("/v1/settle", json={"decision": made["decision"], "cost": "0.01"}).status_code == 200
    assert Decimal(one.get("/v1/budget").json()["spent"]) == Decimal("0.01")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/rows"),
        ("DELETE", "/v1/rows?id=x"),
        ("DELETE", "/v1/classifiers/large"),
        ("POST", "/v1/classifiers"),
    ],
)
def test_replicas_keep_their_rows_and_classifiers(tmp_path: Path, method: str, path: str) -> None:
    """What all must decide by is changed by a new deployment, and nobody changes it for one replica alone."""
    row = {"features": [0.4, 0.3, 0.3], "success": {"small": 0, "large": 1}, "label": 0}
    bodies = {"/v1/rows": {"rows": [row]}, "/v1/classifiers": {"name": "large", "cost": 1, "success": [1.0] * 240}}
    with world.served(world.service(tmp_path, replicated=True, open=True)) as client:
        reply = client.request(method, path, json=bodies.get(path) if method == "POST" else None)
        assert (reply.status_code, reply.json()["code"]) == (409, "conflict")
        assert "deploy the service again" in reply.json()["detail"]


# Idempotency keys


def test_one_key_one_decision_one_hold(pair: Pair) -> None:
    """However often a key comes, to whichever process and at the same time: the same answer, and money held once."""
    body = {"features": FEATURES, "hold": True}

    def ask(number: int) -> httpx.Response:
        return pair.clients[number % 2].post("/v1/route", json=body, headers={"Idempotency-Key": "order-1"})

    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(ask, range(24)))
    assert {reply.status_code for reply in replies} == {200}
    first = replies[0].json()
    assert all(reply.json() == first for reply in replies)
    assert first["held"]
    assert {client.get("/v1/budget").json()["held"] for client in pair.clients} == {first["cost"]}
    settled = pair.clients[1].post("/v1/settle", json={"decision": first["decision"], "cost": first["cost"]})
    assert settled.status_code == 200, settled.text
    assert ask(0).json() == ask(1).json() == first  # also after it was settled
    assert {client.get("/v1/budget").json()["spent"] for client in pair.clients} == {first["cost"]}
    for number in range(2):
        other = {"json": {**body, "lease_seconds": 5}, "headers": {"Idempotency-Key": "order-1"}}
        refused = pair.clients[number].post("/v1/route", **other)  # type: ignore[arg-type]
        assert (refused.status_code, refused.json()["code"]) == (409, "repeated_key")
    fresh = pair.clients[0].post("/v1/route", json=body, headers={"Idempotency-Key": "order-2"}).json()
    assert fresh["decision"] != first["decision"]
    receipt = pair.clients[1].get(f"/v1/decisions/{first['decision']}")
    assert receipt.json()["classifier"] == first["classifier"]


def test_a_process_that_died_before_its_hold(pair: Pair) -> None:
    """Another one makes the hold under the same id, and no second one is made by whoever comes later."""
    body = {"features": FEATURES, "hold": True}
    headers = {"Idempotency-Key": "died"}
    service = pair.services[0]
    names: list[str] = []

    class StoppedError(Exception):
        pass

    async def stopped(*about: Any, **options: Any) -> Any:
        names.append(about[0].id)
        raise StoppedError

    held, service.router.aheld = service.router.aheld, stopped  # type: ignore[method-assign]
    with suppress(StoppedError):
        assert pair.clients[0].post("/v1/route", json=body, headers=headers).status_code == 500
    service.router.aheld = held  # type: ignore[method-assign]
    found = [pair.clients[number % 2].post("/v1/route", json=body, headers=headers).json() for number in (1, 0, 1)]
    assert [one["decision"] for one in found] == 3 * names
    assert found[0] == found[1] == found[2]
    assert pair.clients[0].get("/v1/budget").json()["held"] == found[0]["cost"]


def test_what_one_answered_the_other_gives_again(pair: Pair) -> None:
    """Answers that were paid are given again by the other process, in every protocol, and are not paid again."""
    headers = {"Idempotency-Key": "paid"}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/classify", {"query": world.text(1)}),
        ("/v1/chat/completions", {"model": "occam-auto", "messages": [{"role": "user", "content": world.text(2)}]}),
        (
            "/v2/models/occam-auto/infer",
            {"inputs": [{"name": "query", "shape": [2], "datatype": "BYTES", "data": [world.text(3), world.text(4)]}]},
        ),
    ]
    for path, body in asked:
        keyed = {"Idempotency-Key": headers["Idempotency-Key"] + path.replace("/", "-")}
        first = pair.clients[0].post(path, json=body, headers=keyed)
        assert first.status_code == 200, first.text
        spent = pair.clients[0].get("/v1/budget").json()["spent"]
        again = pair.clients[1].post(path, json=body, headers=keyed)
        assert again.json() == first.json()
        assert again.headers.get("x-occam-decision") == first.headers.get("x-occam-decision")
        assert pair.clients[1].get("/v1/budget").json()["spent"] == spent


def test_advice_under_a_key(pair: Pair) -> None:
    """Without a hold a key gives the same decision again, and nothing is held."""
    for _ in range(2):
        asked = {"json": {"features": FEATURES}, "headers": {"Idempotency-Key": "advice"}}
        replies = [client.post("/v1/route", **asked).json() for client in pair.clients]  # type: ignore[arg-type]
        assert len({reply["decision"] for reply in replies}) == 1
        assert not any(reply["held"] for reply in replies)
    assert pair.clients[0].get("/v1/budget").json()["held"] == "0"


@pytest.mark.parametrize("key", ["", "x" * 201, "with space", "kée"])
def test_keys_that_are_none(pair: Pair, key: str) -> None:
    for path, body in (("/v1/route", {"features": FEATURES}), ("/v1/classify", {"query": "text"})):
        refused = pair.clients[0].post(path, json=body, headers={b"Idempotency-Key": key.encode()})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request"), refused.text
        assert "idempotency-key" in refused.json()["detail"]
