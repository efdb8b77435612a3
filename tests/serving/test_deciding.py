"""Deciding over HTTP: one query, many queries, and what decisions came to."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import time
from contextlib import closing, suppress
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import httpx
import numpy as np
import pytest

import occamroute as oc
from occamroute.serving.connections import Connection
from occamroute.serving.keys import KeyFile
from occamroute.serving.limits import Limits
from serving import world

FEATURES = [0.9, 0.05, 0.05]


def refusal(reply: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that a reply must be."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = reply.json()
    assert found["code"] == code
    assert found["status"] == status
    assert found["detail"].endswith(".")
    return found


def test_a_decision_has_a_receipt(open_service: httpx.Client) -> None:
    """A decision names a classifier and its cost; its receipt says what it followed from."""
    reply = open_service.post("/v1/route", json={"features": FEATURES})
    assert reply.status_code == 200, reply.text
    made = reply.json()
    assert set(made) == {"decision", "classifier", "cost", "success", "reason", "held"}
    assert made["classifier"] in ("small", "large")
    assert made["cost"] in ("0.1", "1.1")
    assert made["held"] is False
    receipt = open_service.get(f"/v1/decisions/{made['decision']}").json()
    assert receipt["features"] == FEATURES
    assert receipt["classifier"] == made["classifier"]
    assert len(receipt["neighbours"]) == 8
    assert {one["classifier"] for one in receipt["estimates"]} == {"small", "large"}
    found = open_service.get("/v1/decisions", params={"classifier": made["classifier"], "limit": 1}).json()
    assert found["decisions"][0]["id"] == made["decision"]
    assert found["next"] == made["decision"]
    others = open_service.get("/v1/decisions", params={"before": made["decision"]}).json()
    assert made["decision"] not in [one["id"] for one in others["decisions"]]


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_packed_features_are_the_same_as_listed(open_service: httpx.Client, kind: str) -> None:
    """Base64 of little-endian floats decides as the list does."""
    words = base64.b64encode(np.array(FEATURES, np.dtype(kind).newbyteorder("<")).tobytes()).decode()
    packed = open_service.post("/v1/route", json={"features": {kind: words}}).json()
    listed = open_service.post("/v1/route", json={"features": FEATURES}).json()
    assert packed["success"] == pytest.approx(listed["success"], abs=1e-6)
    assert packed["classifier"] == listed["classifier"]


def test_holding_and_settling(tmp_path: Path) -> None:
    """A held cost counts until it is settled, and then what was settled does, once."""
    with world.served(world.service(tmp_path, with_pool=False)) as client:
        made = client.post("/v1/route", json={"features": FEATURES, "hold": True}).json()
        assert made["held"] is True
        assert client.get("/v1/budget").json()["held"] == made["cost"]
        for cost in ("0.05", made["cost"], 0):
            reply = client.post("/v1/settle", json={"decision": made["decision"], "cost": cost})
            assert reply.status_code == 200, reply.text
        balance = client.get("/v1/budget").json()
        assert (balance["held"], balance["spent"], balance["available"]) == ("0", "0.05", "199.95")
        made = client.post("/v1/route", json={"features": FEATURES, "hold": True}).json()
        reply = client.post("/v1/settle", json={"decision": made["decision"], "cost": 1e-15})
        assert reply.json()["cost"] == "0.000000001"  # as the ledger counts
        assert client.get("/v1/budget").json()["spent"] == "0.050000001"
        advice = client.post("/v1/route", json={"features": FEATURES}).json()
        refusal(client.post("/v1/settle", json={"decision": advice["decision"], "cost": 1}), 404, "unknown_decision")
        refusal(client.post("/v1/settle", json={"decision": "0" * 28, "cost": 1}), 404, "unknown_decision")


def test_a_settlement_above_its_hold_is_refused(tmp_path: Path) -> None:
    """A client cannot use up the budget by claiming costs that were never held; an administrator can correct any."""
    keys = KeyFile(tmp_path)
    app, boss = (
        {"authorization": f"Bearer {keys.add(name, scopes=[scope])}"}
        for name, scope in (("app", "route"), ("boss", "admin"))
    )
    with world.served(world.service(tmp_path, with_pool=False)) as client:
        made = client.post("/v1/route", json={"features": FEATURES, "hold": True}, headers=app).json()
        for cost in (999_999_999, 10**9, str(Decimal(made["cost"]) + Decimal("1e-9"))):
            for who in (app, boss):
                reply = client.post("/v1/settle", json={"decision": made["decision"], "cost": cost}, headers=who)
                assert made["cost"] in refusal(reply, 422, "above_hold")["detail"]
        budget = client.get("/v1/budget", headers=boss).json()
        assert (budget["held"], budget["spent"]) == (made["cost"], "0")
        reply = client.post("/v1/settle", json={"decision": made["decision"], "cost": made["cost"]}, headers=app)
        assert reply.status_code == 200, reply.text
        wish = {"key": made["decision"], "cost": "2.5"}
        refusal(client.post("/v1/correct", json=wish, headers=app), 403, "forbidden")
        assert client.post("/v1/correct", json=wish, headers=boss).json() == wish
        assert client.get("/v1/budget", headers=boss).json()["spent"] == "2.5"
        refusal(client.post("/v1/correct", json=wish | {"key": "stranger"}, headers=boss), 404, "unknown_name")


def test_any_process_settles_a_hold(tmp_path: Path) -> None:
    """Receipts are no part of it: another service settles, and so does the next one after all receipts are lost."""
    keys = KeyFile(tmp_path / "here")
    app, other = (
        {"authorization": f"Bearer {keys.add(name, scopes=['route', 'classify'])}"} for name in ("app", "other")
    )
    boss = {"authorization": f"Bearer {keys.add('boss', scopes=['admin'])}"}
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    wish = {"features": FEATURES, "hold": True}
    with world.served(world.service(tmp_path / "here", ledger=ledger)) as client:
        made = [client.post("/v1/route", json=wish, headers=app).json() for _ in range(3)]
        for number in range(50):
            client.post("/v1/route", json=wish | {"features": [number / 50, 0.2, 0.2]}, headers=app)
        texts = {"query": world.text(1)}
        paid = client.post("/v1/classify", json=texts, headers=app).json()
    with closing(apsw.Connection(str(tmp_path / "ledger.db"))) as database:
        assert database.execute("DELETE FROM occamroute_receipts RETURNING id").fetchall()
    for state, one in (("there", made[0]), ("here", made[1])):
        with world.served(world.service(tmp_path / state, ledger=ledger, budget=None, window=None)) as client:
            before = Decimal(client.get("/v1/budget", headers=boss).json()["spent"])
            body = {"decision": one["decision"], "cost": "0.03"}
            refusal(client.post("/v1/settle", json=body, headers=other), 404, "unknown_decision")
            refusal(client.post("/v1/settle", json=body | {"cost": 100}, headers=app), 422, "above_hold")
            assert client.post("/v1/settle", json=body, headers=app).status_code == 200
            after = Decimal(client.get("/v1/budget", headers=boss).json()["spent"])
            assert after == before + Decimal("0.03")
            # What was held for calls of the service's own is not theirs to settle.
            refusal(
                client.post("/v1/settle", json=body | {"decision": paid["decision"]}, headers=app),
                404,
                "unknown_decision",
            )
            inner = client.post("/v1/settle", json=body | {"decision": f"{paid['decision']}/1"}, headers=app)
            assert inner.status_code == 422


def test_a_budget_that_is_spent(tmp_path: Path) -> None:
    """When nothing fits any more, callers hear so, and when to come back."""
    service = world.service(tmp_path, with_pool=False, budget=Decimal("1.2"), arrivals=2.0)
    with world.served(service) as client:
        held = 0
        for _ in range(14):
            reply = client.post("/v1/route", json={"features": FEATURES, "hold": True})
            held += reply.status_code == 200
        refusal(reply, 429, "budget_exhausted")
        assert 0 < int(reply.headers["retry-after"]) <= 86_400
        assert 2 <= held <= 12
        balance = client.get("/v1/budget").json()
        assert Decimal(balance["held"]) <= Decimal("1.2")


def test_a_ledger_that_is_gone(tmp_path: Path) -> None:
    """Without its ledger the service refuses, and does not say where the ledger was."""
    service = world.service(tmp_path, with_pool=False)

    def broken(*_: Any, **__: Any) -> Any:
        raise oc.LedgerError("/secret/place/ledger.db", "the disk is full")

    with world.served(service) as client:
        service.router.ledger.balance = broken  # type: ignore[method-assign]
        service.router.ledger.apply = broken  # type: ignore[method-assign]
        replies = [client.get("/v1/budget"), client.post("/v1/route", json={"features": FEATURES, "hold": True})]
        for reply in replies:
            refusal(reply, 503, "ledger_unavailable")
            assert "secret" not in reply.text
            assert reply.headers["retry-after"] == "5"
        assert client.get("/metrics").status_code == 200


def test_a_plan_is_the_exact_one(open_service: httpx.Client) -> None:
    """The plan keeps its budget, uses it, and is proved; its accuracy is nearly that of the labelled rows."""
    queries = world.answers([world.text(number) for number in range(500, 800)], 0.6)
    packed = base64.b64encode(queries.astype("<f8").tobytes()).decode()
    plans = [
        open_service.post("/v1/plan", json={"features": features, "budget": budget})
        for features, budget in [(queries.tolist(), 150), ({"float64": packed}, "150")]
    ]
    for reply in plans:
        assert reply.status_code == 200, reply.text
    made = plans[0].json()
    assert made == plans[1].json()
    assert made["names"] == ["small", "large"]
    assert len(made["choice"]) == 300
    assert made["planned_cost"] == pytest.approx(30 + sum(made["choice"]))
    assert 140 < made["planned_cost"] <= 150
    assert made["gap"] < 1e-2
    truth = [world.difficulty(world.text(n)) < (0.95 if made["choice"][n - 500] else 0.6) for n in range(500, 800)]
    assert made["expected_accuracy"] == pytest.approx(np.mean(truth), abs=0.08)
    refusal(open_service.post("/v1/plan", json={"features": queries.tolist(), "budget": 1}), 409, "budget_too_small")
    tiny = {"features": queries.tolist(), "budget": 1e-300}
    refusal(open_service.post("/v1/plan", json=tiny), 409, "budget_too_small")
    ragged = [[0.1, 0.2, 0.7], [0.1, 0.9]]
    refusal(open_service.post("/v1/plan", json={"features": ragged, "budget": 9}), 422, "invalid_request")
    short = base64.b64encode(np.zeros(4, "<f8").tobytes()).decode()
    refusal(open_service.post("/v1/plan", json={"features": {"float64": short}, "budget": 9}), 422, "invalid_request")


def test_without_features_none_are_needed(tmp_path: Path) -> None:
    """Where overall accuracies decide, a query is nothing but a query."""
    with world.served(world.service(tmp_path, with_pool=False, extractor=None)) as client:
        made = client.post("/v1/route", json={}).json()
        assert made["reason"] == "no_features"
        plan = client.post("/v1/plan", json={"queries": 10, "budget": 4}).json()
        assert sorted(plan["choice"]) == [0] * 7 + [1] * 3
        refusal(client.post("/v1/plan", json={"budget": 4}), 422, "invalid_request")
        document = client.get("/openapi.json").json()
        assert "queries" in document["components"]["schemas"]["PlanRequest"]["required"]


def test_feedback(open_service: httpx.Client) -> None:
    """The truth about an answer goes into its receipt, the first time."""
    answer = open_service.post("/v1/classify", json={"query": world.text(2000)}).json()
    decision = answer["decision"]
    reply = open_service.post("/v1/feedback", json={"decision": decision, "label": answer["label"]})
    assert reply.json() == {"decision": decision, "success": 1.0}
    again = open_service.post("/v1/feedback", json={"decision": decision, "success": 0.0})
    assert again.json()["success"] == 1.0
    receipt = open_service.get(f"/v1/decisions/{decision}").json()
    assert receipt["feedback"]["success"] == 1.0
    assert receipt["outcome"]["label"] == answer["label"]
    refusal(open_service.post("/v1/feedback", json={"decision": decision}), 422, "invalid_request")
    advice = open_service.post("/v1/route", json={"features": FEATURES}).json()["decision"]
    refusal(open_service.post("/v1/feedback", json={"decision": advice, "label": "cat"}), 409, "conflict")
    refusal(open_service.post("/v1/feedback", json={"decision": "f" * 28, "success": 1}), 404, "unknown_decision")


def test_the_frontier_rises(open_service: httpx.Client) -> None:
    """More money, more accuracy."""
    points = open_service.get("/v1/frontier").json()["points"]
    assert len(points) > 2
    for low, high in pairwise(points):
        assert low["cost"] < high["cost"]
        assert low["accuracy"] <= high["accuracy"]
    assert open_service.get("/v1/alarms").json()["evidence"].keys() == {"features", "feedback"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "malformed_request"),
        (b"\xff\xfe", 400, "malformed_request"),
        (b"[]", 422, "invalid_request"),
        (b"{}", 422, "invalid_request"),
        (b'{"features": [1, 2]}', 422, "invalid_request"),
        (b'{"features": [1, 2, NaN]}', 422, "invalid_request"),
        (b'{"features": [1, 2, 1e999]}', 422, "invalid_request"),
        (b'{"features": [1, 2, "3"]}', 422, "invalid_request"),
        (b'{"features": {"float32": "AAAA"}}', 422, "invalid_request"),
        (b'{"features": {"float32": "AACAfwAAgH8AAIB/"}}', 422, "invalid_request"),
        (b'{"features": {"float32": "****"}}', 422, "invalid_request"),
        (b'{"features": [1, 2, 3], "hold": "yes"}', 422, "invalid_request"),
        (b'{"features": [1, 2, 3], "lease_seconds": 0}', 422, "invalid_request"),
        (b'{"features": [1, 2, 3], "color": "red"}', 422, "invalid_request"),
    ],
)
def test_bodies_that_are_refused(open_service: httpx.Client, body: bytes, status: int, code: str) -> None:
    """Whatever is wrong with a body, one sentence says so."""
    reply = open_service.post("/v1/route", content=body, headers={"content-type": "application/json"})
    refusal(reply, status, code)


def test_requests_that_are_refused(open_service: httpx.Client) -> None:
    """Other addresses, methods and types of bodies; a body that is too large, by its length or by its content."""
    refusal(open_service.get("/v1/nothing"), 404, "not_found")
    refusal(open_service.get("/v1/route/"), 404, "not_found")
    for path, allowed in [("/v1/rows", "DELETE, POST"), ("/v1/route", "POST"), ("/healthz", "GET")]:
        reply = open_service.patch(path)
        refusal(reply, 405, "method_not_allowed")
        assert reply.headers["allow"] == allowed
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        reply = open_service.post("/v1/route", content=b'{"features": [1, 2, 3]}', headers={"content-type": kind})
        refusal(reply, 415, "unsupported_media_type")
    for path, body in (("/v1/route", b'{"features": [1, 2, 3]}'), ("/v1/classify", b'{"query": "text #cat"}')):
        unsaid = open_service.post(path, content=body)
        assert unsaid.request.headers.get("content-type") is None
        assert unsaid.status_code == 200  # as Triton's client does; a page in a browser shows where it comes from
    page = open_service.post("/v1/route", content=b'{"features": [1, 2, 3]}', headers={"origin": "null"})
    refusal(page, 415, "unsupported_media_type")
    large = b'{"features": [' + b"1," * 2_500_000 + b"1]}"
    headers = {"content-type": "application/json"}
    refusal(open_service.post("/v1/route", content=large, headers=headers), 413, "too_large")
    pieces = (large[start : start + 100_000] for start in range(0, len(large), 100_000))
    refusal(open_service.post("/v1/route", content=pieces, headers=headers), 413, "too_large")
    refusal(open_service.get("/v1/decisions", params={"limit": 0}), 422, "invalid_request")
    refusal(open_service.get("/v1/decisions", params={"since": "nan"}), 422, "invalid_request")
    refusal(open_service.get("/v1/decisions/x"), 422, "invalid_request")


@pytest.mark.parametrize("path", ["/v1/route", "/v1/settle", "/v1/plan", "/v1/classify"])
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"query": "\\ud800", "features": null}',
        b'{"query": "\xed\xa0\x80", "features": null}',
        '{"query": "\\ud800", "features": null}'.encode("utf-16"),
        b'{"cost": ' + b"9" * 10_000 + b"}",
        b"\x00" * 100,
        b"",
    ],
    ids=[
        "deep lists",
        "deep objects",
        "half a character",
        "half a character in bytes",
        "UTF-16",
        "a long number",
        "zeros",
        "nothing",
    ],
)
def test_bodies_made_to_hurt(open_service: httpx.Client, path: str, body: bytes) -> None:
    """They are refused like any other, and the service lives on."""
    reply = open_service.post(path, content=body, headers={"content-type": "application/json"})
    assert reply.status_code in (400, 422), reply.text
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "start", "entry", "end"),
    [
        ("/v1/route", '{"features": [', '""', "]}"),
        ("/v1/classify", '{"query": [', "null", "]}"),
        ("/v1/plan", '{"budget": 1, "features": [[', '""', "]]}"),
        ("/v1/chat/completions", '{"model": "occam-auto", "messages": [', "{}", "]}"),
        (
            "/v2/models/occam-auto/infer",
            '{"inputs": [{"name": "query", "shape": [1], "datatype": "BYTES", "data": [',
            "{}",
            "]}]}",
        ),
    ],
    ids=["route", "classify", "plan", "chat", "infer"],
)
def test_many_errors_are_not_gathered(open_service: httpx.Client, path: str, start: str, entry: str, end: str) -> None:
    """A list that is wrong from its first entry on is not read to its end: that would keep everybody waiting."""
    body = start + ",".join([entry] * 100_000) + end
    reply = open_service.post(path, content=body, headers={"content-type": "application/json"})
    assert len(refusal(reply, 422, "invalid_request")["errors"]) < 10


def test_many_tiny_rows_are_not_read(open_service: httpx.Client) -> None:
    """A plan for far too many queries is refused by their number alone."""
    body = b'{"budget": 1, "features": [' + b"[]," * 20_002 + b"[]]}"
    reply = open_service.post("/v1/plan", content=body, headers={"content-type": "application/json"})
    assert "plan in parts" in refusal(reply, 422, "invalid_request")["detail"]


def told(client: httpx.Client, *pieces: bytes) -> bytes:
    """Everything that the service says to these bytes before it closes the connection."""
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=10) as connection:
        with suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        said = b""
        with suppress(ConnectionError):
            while more := connection.recv(65_536):
                said += more
    return said


@pytest.mark.parametrize(
    "pieces",
    [
        [b"\x16\x03\x01 no HTTP\r\n\r\n"],
        [b"BREW /v1/route HTTP/1.1\r\n\r\n"],
        [b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    ],
    ids=["noise", "another method", "a path of bytes"],
)
def test_what_is_no_request(open_service: httpx.Client, pieces: list[bytes]) -> None:
    """What the server below cannot read is a problem, too, and is not kept."""
    said = told(open_service, *pieces)
    head, _, body = said.partition(b"\r\n\r\n")
    if said:  # where bytes are still under way when it closes, the answer may not get through
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"content-type: application/problem+json" in head
        assert json.loads(body)["code"] == "malformed_request"
    assert open_service.get("/healthz").status_code == 200


def test_headers_that_never_come(open_service: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects and does not ask is not waited for; nor is one who has asked before."""
    monkeypatch.setattr(Connection, "seconds", 0.3)
    asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    assert told(open_service) == b""
    assert told(open_service, asked) == b""
    assert told(open_service, asked + b"\r\n" + asked).count(b"HTTP/1.1 200") == 1
    with socket.create_connection((open_service.base_url.host, open_service.base_url.port or 0)) as slow:
        slow.sendall(asked + b"\r\n")
        time.sleep(0.6)  # between requests others wait, for longer
        slow.sendall(asked + b"\r\n")
        time.sleep(0.2)
        assert slow.recv(65_536).count(b"HTTP/1.1 200") == 2


def test_a_body_that_never_comes(tmp_path: Path) -> None:
    """Whoever announces a body and sends none is not waited for."""
    service = world.service(tmp_path, with_pool=False, limits=Limits(patience=0.2))
    with world.served(service) as client:
        address = (client.base_url.host, client.base_url.port or 0)
        with socket.create_connection(address) as connection:
            lines = (
                b"POST /v1/route HTTP/1.1",
                b"Host: localhost",
                b"Content-Type: application/json",
                b"Content-Length: 9",
            )
            connection.sendall(b"\r\n".join([*lines, b"", b"{"]))
            assert b"408" in connection.recv(1000).splitlines()[0]
