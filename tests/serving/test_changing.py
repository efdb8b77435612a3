"""Rows and classifiers that come and go while the service decides."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import httpx

from serving import world
from serving.test_deciding import FEATURES, refusal


def row(number: int, **changes: Any) -> dict[str, Any]:
    """A labelled row as a request holds it."""
    features = world.answers([world.text(number)], 0.6)[0].tolist()
    return {"id": f"new {number}", "features": features, "success": {"small": 0.0, "large": 1.0}, **changes}


def labelled(number: int, client: httpx.Client, **changes: Any) -> dict[str, Any]:
    """The same with what the service's document asks for beside."""
    schema = client.get("/openapi.json").json()["components"]["schemas"]["Row"]
    return row(number, **({"label": number % 3} if "label" in schema["required"] else {}), **changes)


def test_rows_come_and_go(tmp_path: Path) -> None:
    """New rows change estimates, stay after a restart, and can be taken back."""
    with world.served(world.service(tmp_path, with_pool=False, open=True)) as client:
        before = client.post("/v1/route", json={"features": FEATURES}).json()["success"]
        rows = [labelled(number, client, features=FEATURES) for number in range(300, 340)]
        reply = client.post("/v1/rows", json={"rows": rows})
        assert reply.status_code == 200, reply.text
        assert reply.json()["rows"] == 280
        receipt = client.post("/v1/route", json={"features": FEATURES}).json()["decision"]
        estimates = client.get(f"/v1/decisions/{receipt}").json()["estimates"]
        assert estimates[0]["success"] < 0.5 < estimates[1]["success"]
        refusal(client.post("/v1/rows", json={"rows": [row(1, success={"small": 1})]}), 422, "invalid_request")
        refusal(client.post("/v1/rows", json={"rows": [row(1, features=[1.0])]}), 422, "invalid_request")
        refusal(client.post("/v1/rows", json={"rows": []}), 422, "invalid_request")
    with world.served(world.service(tmp_path, with_pool=False, open=True)) as client:
        gone = client.delete("/v1/rows", params={"id": [f"new {number}" for number in range(300, 340)]})
        assert gone.status_code == 200, gone.text
        assert gone.json()["rows"] == 240
        assert client.post("/v1/route", json={"features": FEATURES}).json()["success"] == before
        refusal(client.delete("/v1/rows", params={"id": "new 300"}), 404, "unknown_name")
        refusal(client.delete("/v1/rows"), 422, "invalid_request")
        history = tmp_path / "history.jsonl"
        history.rename(tmp_path / "elsewhere")
        history.mkdir()
        reply = client.post("/v1/rows", json={"rows": rows})
        refusal(reply, 503, "storage_unavailable")
        assert str(tmp_path) not in reply.text
        refusal(client.delete("/v1/rows", params={"id": "new 300"}), 404, "unknown_name")


def test_classifiers_come_and_go(tmp_path: Path) -> None:
    """One that is removed is not chosen any more; it comes back with its success on every row."""
    with world.served(world.service(tmp_path, open=True)) as client:
        reply = client.delete("/v1/classifiers/large")
        assert reply.json()["classifiers"] == ["small"]
        assert client.post("/v1/route", json={"features": FEATURES}).json()["classifier"] == "small"
        known = client.get("/openapi.json").json()["components"]["schemas"]["Row"]["properties"]
        assert known["success"]["required"] == ["small"]
        refusal(client.delete("/v1/classifiers/large"), 404, "unknown_name")
        refusal(client.delete("/v1/classifiers/small"), 409, "conflict")
        body: dict[str, Any] = {"name": "large", "cost": 1.0, "success": [1.0] * 240}
        refusal(client.post("/v1/classifiers", json=body | {"success": [1.0]}), 409, "conflict")
        refusal(client.post("/v1/classifiers", json=body | {"name": "stranger"}), 404, "unknown_name")
        reply = client.post("/v1/classifiers", json=body)
        assert reply.status_code == 200, reply.text
        assert reply.json()["classifiers"] == ["small", "large"]
        refusal(client.post("/v1/classifiers", json=body), 409, "conflict")
        assert client.post("/v1/classify", json={"query": world.text(7)}).status_code == 200


def test_long_work_keeps_nobody_waiting(tmp_path: Path) -> None:
    """While a change is made others are decided about; those that want the same wait, but not too many of them."""
    service = world.service(tmp_path, with_pool=False, open=True)
    hurry, change = Event(), service.router.change

    def slow(edit: Any) -> Any:
        hurry.wait(30)
        return change(edit)

    service.router.change = slow  # type: ignore[method-assign, assignment]
    most = service.limits.waiting
    with world.served(service) as client, ThreadPoolExecutor(most + 3) as threads:
        path = "/v1/rows"
        asked = [threads.submit(client.delete, path, params={"id": f"none {number}"}) for number in range(most + 3)]
        for refused in islice(iter_done(asked), 2):
            refusal(refused, 503, "overloaded")
            assert refused.headers["retry-after"] == "10"
        assert client.post("/v1/route", json={"features": FEATURES}).status_code == 200
        hurry.set()
        codes = sorted(one.result().json()["code"] for one in asked)
    assert codes == sorted(["overloaded"] * 2 + ["unknown_name"] * (most + 1))


def iter_done(asked: list[Any]) -> Any:
    """Replies as they come."""
    from concurrent.futures import as_completed

    for one in as_completed(asked, timeout=30):
        yield one.result()


def test_too_many_requests_at_once(tmp_path: Path) -> None:
    """Beyond the limit requests are refused at once, while health is still told."""
    from occamroute.serving.limits import Limits

    service = world.service(tmp_path, with_pool=False, open=True, limits=Limits(in_flight=2))
    hurry, look = Event(), service.router.look

    def slow(*arguments: Any, **options: Any) -> Any:
        hurry.wait(30)
        return look(*arguments, **options)

    with world.served(service) as client, ThreadPoolExecutor(6) as threads:
        service.router.look = slow  # type: ignore[method-assign]
        asked = [threads.submit(client.post, "/v1/route", json={"features": FEATURES}) for _ in range(6)]
        for refused in islice(iter_done(asked), 4):
            refusal(refused, 503, "overloaded")
            assert refused.headers["retry-after"] == "1"
        for path in ("/healthz", "/readyz", "/v2/health/ready", "/v2/models/occam-auto/ready"):
            assert client.get(path).status_code == 200
        hurry.set()
        statuses = sorted(one.result().status_code for one in asked)
    assert statuses == [200, 200, 503, 503, 503, 503]
