"""Answers over HTTP: by the service's own way, by OpenAI's and by KServe's; from functions and a real upstream."""

from __future__ import annotations

import base64
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from servers import billing_server

import occamroute as oc
from occamroute.adapters.kserve import KServeClassifier
from occamroute.adapters.openai import ChatClassifier
from occamroute.serving.running import Options, service_from
from serving import world
from serving.test_deciding import refusal


def test_an_answer_is_decided_bought_and_settled(open_service: httpx.Client) -> None:
    """The label comes with who gave it and for how much, and the ledger knows."""
    before = Decimal(open_service.get("/v1/budget").json()["spent"])
    query = world.text(4000)
    reply = open_service.post("/v1/classify", json={"query": query})
    assert reply.status_code == 200, reply.text
    found = reply.json()
    assert found["label"] == max(found["probabilities"], key=found["probabilities"].get)
    assert set(found["probabilities"]) == set(world.CLASSES)
    assert found["calls"][0]["classifier"] == "small"
    assert Decimal(found["cost"]) == sum(Decimal(one["cost"]) for one in found["calls"])
    assert reply.headers["x-occam-model"] == found["classifier"]
    assert reply.headers["x-occam-cost"] == found["cost"]
    balance = open_service.get("/v1/budget").json()
    assert Decimal(balance["spent"]) - before == Decimal(found["cost"])
    assert balance["held"] == "0"


def test_many_at_once_are_mostly_right(open_service: httpx.Client) -> None:
    """Sixty queries from twelve threads: better than the small classifier alone, dearer only where that helps."""
    texts = [world.text(number) for number in range(5000, 5060)]
    with ThreadPoolExecutor(12) as threads:
        replies = list(threads.map(lambda one: open_service.post("/v1/classify", json={"query": one}), texts))
    assert {reply.status_code for reply in replies} == {200}
    right = [reply.json()["label"] == one.rpartition("#")[2] for reply, one in zip(replies, texts, strict=True)]
    alone = [world.difficulty(one) < 0.6 for one in texts]
    assert sum(right) > sum(alone)


def test_given_features_are_not_bought(open_service: httpx.Client) -> None:
    """Features that come with the query were paid for elsewhere."""
    query = world.text(4100)
    features = world.answers([query], 0.6)[0].tolist()
    found = open_service.post("/v1/classify", json={"query": query, "features": features}).json()
    assert Decimal(found["cost"]) == (0 if found["classifier"] == "small" else 1)


def test_the_same_key_is_charged_once(open_service: httpx.Client) -> None:
    """A request that comes again, even at the same time, gets the same answer; another query under its key none."""
    headers = {"Idempotency-Key": "order-66"}
    body = {"query": world.text(4200)}
    spent = Decimal(open_service.get("/v1/budget").json()["spent"])
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(open_service.post, "/v1/classify", json=body, headers=headers) for _ in range(4)]
        replies = [one.result() for one in asked]
    found = [reply.json() for reply in replies]
    assert all(one == found[0] for one in found), found
    paid = Decimal(open_service.get("/v1/budget").json()["spent"]) - spent
    assert paid == Decimal(found[0]["cost"])
    other = open_service.post("/v1/classify", json={"query": "another"}, headers=headers)
    refusal(other, 409, "repeated_key")


def test_an_answer_that_is_given_again_is_no_other_decision(tmp_path: Path) -> None:
    """Metrics count decisions as the ledger does."""
    with world.served(world.service(tmp_path)) as client:
        for _ in range(3):
            client.post("/v1/classify", json={"query": "text #cat"}, headers={"Idempotency-Key": "again"})
        lines = [
            one for one in client.get("/metrics").text.splitlines() if one.startswith("occamroute_decisions_total")
        ]
    assert [line.rpartition(" ")[2] for line in lines] == ["1.0"]


def test_features_that_nobody_extracts(tmp_path: Path) -> None:
    """A pool without the extractor needs them, and says so, also under a key; the key then is as good as new."""
    pool = oc.Pool(world.classifiers()[1:], world.CLASSES)
    options = Options(budget=200, window="day", arrivals=100.0, extractor="small", state=tmp_path)
    with world.served(service_from(world.profile(), pool, options)) as client:
        key, body = {"Idempotency-Key": "a"}, {"query": "text #cat"}
        for headers in ({}, key):
            refused = client.post("/v1/classify", json=body, headers=headers)
            assert "features of 'small' are needed" in refusal(refused, 422, "invalid_request")["detail"]
        reply = client.post("/v1/classify", json={**body, "features": [0.8, 0.1, 0.1]}, headers=key)
        assert reply.status_code == 200, reply.text


def test_a_key_that_another_service_is_busy_with(tmp_path: Path) -> None:
    """Services that share a ledger do not pay twice for one key."""
    hurry = threading.Event()

    def slow(texts: list[str]) -> Any:
        hurry.wait(30)
        return world.answers(texts, 0.95)

    members = [oc.classifier("small", slow, classes=world.CLASSES, cost=0.1)]
    ledger = f"sqlite:///{tmp_path / 'shared.db'}"
    options = {"budget": 10, "window": "day", "ledger": ledger, "extractor": None}
    services = [
        service_from(
            world.profile().select(["small"]),
            oc.Pool(members, world.CLASSES),
            Options(**options, state=tmp_path / name),  # type: ignore[arg-type]
        )
        for name in ("one", "two")
    ]
    with world.served(services[0]) as one, world.served(services[1]) as two, ThreadPoolExecutor(1) as threads:
        asked = {"json": {"query": "text #cat"}, "headers": {"Idempotency-Key": "k"}}
        first = threads.submit(one.post, "/v1/classify", **asked)  # type: ignore[arg-type]
        while one.get("/v1/budget").json()["held"] == "0":
            pass
        refusal(two.post("/v1/classify", **asked), 409, "in_progress")  # type: ignore[arg-type]
        hurry.set()
        assert first.result().json()["label"] == "cat"
        again = two.post("/v1/classify", **asked)  # type: ignore[arg-type]
        assert again.json() == first.result().json()
        assert again.headers["x-occam-decision"] == first.result().headers["x-occam-decision"]
        other = {**asked, "json": {"query": "text #dog"}}
        refusal(two.post("/v1/classify", **other), 409, "repeated_key")  # type: ignore[arg-type]
        assert one.get("/v1/budget").json()["spent"] == "0.1"


def test_openai_clients(open_service: httpx.Client) -> None:
    """A chat completion is a label; the last message of the user counts; a stream is one delta."""
    query = world.text(4300)
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "text #eel"}]
    messages += [{"role": "assistant", "content": "eel"}, {"role": "user", "content": query}]
    body = {"model": "occam-auto", "messages": messages, "temperature": 0}
    reply = open_service.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    label = reply.json()["choices"][0]["message"]["content"]
    assert label == open_service.post("/v1/classify", json={"query": query}).json()["label"]
    assert reply.headers["x-occam-model"] in ("small", "large")
    assert open_service.get(f"/v1/decisions/{reply.headers['x-occam-decision']}").status_code == 200
    stream = open_service.post("/v1/chat/completions", json={**body, "stream": True})
    assert stream.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in stream.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == label
    wanted = {**body, "stream": True, "stream_options": {"include_usage": True}}
    stream = open_service.post("/v1/chat/completions", json=wanted)
    chunks = [json.loads(line.removeprefix("data: ")) for line in stream.text.splitlines()[:-2] if line]
    assert [chunk["usage"] for chunk in chunks] == [None, None, reply.json()["usage"]]
    assert chunks[-1]["choices"] == []
    (model,) = open_service.get("/v1/models").json()["data"]
    assert model == open_service.get("/v1/models/occam-auto").json()
    assert model["id"] == "occam-auto"
    parts = [{"type": "text", "text": query}]
    again = open_service.post("/v1/chat/completions", json={**body, "messages": [{"role": "user", "content": parts}]})
    assert again.json()["choices"][0]["message"]["content"] == label


def test_openai_clients_are_refused_in_their_words(open_service: httpx.Client) -> None:
    """Problems carry the error where such clients look for it; nothing is ever fetched."""
    body: dict[str, Any] = {"model": "gpt-4", "messages": [{"role": "user", "content": "hello"}]}
    found = refusal(open_service.post("/v1/chat/completions", json=body), 404, "unknown_name")
    assert found["error"]["message"] == found["detail"]
    image = [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/cat.png"}}]
    body = {"model": "occam-auto", "messages": [{"role": "user", "content": image}]}
    refusal(open_service.post("/v1/chat/completions", json=body), 422, "invalid_request")
    several = {"model": "occam-auto", "n": 2, "messages": [{"role": "user", "content": "hello"}]}
    refusal(open_service.post("/v1/chat/completions", json=several), 422, "invalid_request")
    body["messages"] = [{"role": "system", "content": "hello"}]
    refusal(open_service.post("/v1/chat/completions", json=body), 422, "invalid_request")


def test_own_adapters_are_clients(open_service: httpx.Client) -> None:
    """A service is a classifier of another pool, by either protocol."""
    address = str(open_service.base_url).rstrip("/")
    # Easy ones, on which all agree: the budget decides which classifier answers, and may do so otherwise the next time.
    texts = [one for one in map(world.text, range(4400, 4440)) if world.difficulty(one) < 0.5][:6]
    wanted = [open_service.post("/v1/classify", json={"query": one}).json()["label"] for one in texts]
    chat = ChatClassifier("chat", 0.1, classes=world.CLASSES, base_url=f"{address}/v1", model="occam-auto")
    kserve = KServeClassifier("kserve", 0.1, classes=world.CLASSES, base_url=address, model="occam-auto")
    for member in (chat, kserve):
        pool = oc.Pool([member], world.CLASSES)
        made = oc.profile(pool, texts, [one.rpartition("#")[2] for one in texts])
        assert made.probabilities is not None
        labels = [world.CLASSES[row] for row in made.probabilities[member.name].argmax(axis=1)]
        assert labels == wanted


def test_kserve_clients(open_service: httpx.Client) -> None:
    """Tensors in, tensors out; what does not fit is refused in the protocol's words, too."""
    about = open_service.get("/v2/models/occam-auto").json()
    assert about["inputs"] == [{"name": "query", "datatype": "BYTES", "shape": [-1]}]
    assert "versions" not in about  # none can be asked for
    assert open_service.get("/v2").json()["name"] == "occamroute"
    assert open_service.get("/v2/health/live").json() == {"live": True}
    assert open_service.get("/v2/health/ready").json() == {"ready": True}
    assert open_service.get("/v2/models/occam-auto/ready").json() == {"name": "occam-auto", "ready": True}
    texts = [world.text(number) for number in (4500, 4501)]
    tensor: dict[str, Any] = {"name": "query", "shape": [2, 1], "datatype": "BYTES", "data": texts}
    reply = open_service.post("/v2/models/occam-auto/infer", json={"id": "7", "inputs": [tensor]}).json()
    assert reply["id"] == "7"
    outputs = {one["name"]: one for one in reply["outputs"]}
    assert outputs["probabilities"]["shape"] == [2, 3]
    assert len(outputs["label"]["data"]) == 2
    nested = {"inputs": [tensor | {"data": [[text] for text in texts]}], "outputs": [{"name": "label"}]}
    again = open_service.post("/v2/models/occam-auto/infer", json=nested).json()
    assert again == {"model_name": "occam-auto", "outputs": [outputs["label"]]}
    unknown = {"inputs": [tensor], "outputs": [{"name": "nothing"}]}
    refusal(open_service.post("/v2/models/occam-auto/infer", json=unknown), 422, "invalid_request")
    changes: list[dict[str, Any]] = [{"shape": [3]}, {"datatype": "FP32"}, {"shape": [1, 2]}]
    changes += [{"shape": [1000], "data": ["a"] * 1000}, {"data": [texts, []]}, {"shape": [2], "data": [["a"], ["b"]]}]
    for change in changes:
        bad = open_service.post("/v2/models/occam-auto/infer", json={"inputs": [tensor | change]})
        assert refusal(bad, 422, "invalid_request")["error"]


def test_some_queries_of_a_tensor_have_no_answer(tmp_path: Path) -> None:
    """The others have theirs, which are paid for; under a key only those without are paid for when it comes again."""
    broken = [True]

    class Remote:
        concurrency, retries = 4, 0

        def __init__(self, name: str, cost: float) -> None:
            self.name, self.cost = name, cost

        def answer(self, queries: list[str], timeout: float | None = None) -> Any:
            if broken[0] and "#dog" in queries[0]:
                raise oc.UnavailableError("no dogs today")
            return world.answers(queries, 0.95)

    members = [Remote("small", 0.1), Remote("large", 1)]
    options = Options(budget=200, window="day", arrivals=1000.0, extractor=None, state=tmp_path)
    service = service_from(world.profile(), oc.Pool(members, world.CLASSES), options)
    texts = [world.text(number) for number in (6, 7, 9, 10)]
    body = {"inputs": [{"name": "query", "shape": [4], "datatype": "BYTES", "data": texts}]}
    with world.served(service, headers={"idempotency-key": "once"}) as client:
        reply = client.post("/v2/models/occam-auto/infer", json=body)
        assert reply.status_code == 200, reply.text
        outputs = {one["name"]: one["data"] for one in reply.json()["outputs"]}
        assert outputs["label"] == ["cat", "", "cat", ""]
        assert [error.partition(":")[0] for error in outputs["error"]] == ["", "no_classifier_answered"] * 2
        assert outputs["probabilities"][3:6] == [0.0] * 3
        assert outputs["cost"][1] == outputs["decision"][3] == ""
        broken[0] = False
        before = Decimal(client.get("/v1/budget").json()["spent"])
        again = client.post("/v2/models/occam-auto/infer", json=body).json()
        outputs = {one["name"]: one["data"] for one in again["outputs"]}
        assert set(outputs["error"]) == {""}
        assert outputs["label"] == ["cat", "dog", "cat", "dog"]
        spent = Decimal(client.get("/v1/budget").json()["spent"]) - before
        assert spent == sum(Decimal(outputs["cost"][number]) for number in (1, 3))
        only = {"inputs": [{"name": "query", "shape": [1], "datatype": "BYTES", "data": texts[1:2]}]}
        broken[0] = True
        reply = client.post("/v2/models/occam-auto/infer", json=only, headers={"idempotency-key": "other"})
        refusal(reply, 502, "no_classifier_answered")


def test_without_a_pool(tmp_path: Path) -> None:
    """A service that only routes says so."""
    with world.served(world.service(tmp_path, with_pool=False)) as client:
        refusal(client.post("/v1/classify", json={"query": "a"}), 404, "no_pool")
        body = {"model": "occam-auto", "messages": [{"role": "user", "content": "hello"}]}
        refusal(client.post("/v1/chat/completions", json=body), 404, "no_pool")


def test_numbers_and_images(tmp_path: Path) -> None:
    """Queries may be numbers or the bytes of an image's file; what a pool cannot take is refused."""
    from PIL import Image

    def bright(queries: list[Any]) -> list[str]:
        read = [np.asarray(Image.open(io.BytesIO(one))) if isinstance(one, bytes) else one for one in queries]
        return ["bright" if np.mean(one) > 0.5 else "dark" for one in read]

    rows = np.linspace(0, 1, 40)[:, None] * np.ones((40, 4))
    pool = oc.Pool([oc.classifier("rule", bright, classes=("dark", "bright"), cost=1)], ("dark", "bright"))
    labels = ["bright" if row[0] > 0.5 else "dark" for row in rows]
    known = oc.profile(pool, list(rows), labels)
    options = Options(budget=100, window="day", state=tmp_path, extractor=None, queries=("numbers", "bytes"))
    file = io.BytesIO()
    Image.new("L", (8, 8), 200).save(file, "PNG")
    packed = base64.b64encode(np.full(4, 0.9, "<f4").tobytes()).decode()
    with world.served(service_from(known, pool, options)) as client:
        for query, label in [
            ([0.1, 0.2, 0.1, 0.1], "dark"),
            ({"float32": packed}, "bright"),
            ({"base64": base64.b64encode(file.getvalue()).decode()}, "bright"),
        ]:
            reply = client.post("/v1/classify", json={"query": query})
            assert reply.status_code == 200, reply.text
            assert reply.json()["label"] == label
        refusal(client.post("/v1/classify", json={"query": "a text"}), 422, "invalid_request")
        tensor = {"name": "query", "shape": [2, 4], "datatype": "FP32", "data": [0.1] * 4 + [0.9] * 4}
        reply = client.post("/v2/models/occam-auto/infer", json={"inputs": [tensor]})
        assert reply.json()["outputs"][0]["data"] == ["dark", "bright"]


@pytest.fixture
def upstream_key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The key of an upstream, in the environment as pool files want it."""
    monkeypatch.setenv("UPSTREAM_KEY", "canary-upstream-4711")
    return "canary-upstream-4711"


def test_a_real_upstream_and_its_key(tmp_path: Path, upstream_key: str, caplog: pytest.LogCaptureFixture) -> None:
    """Answers come from a server that bills; its key shows up nowhere, even where that server quotes it."""
    models = "mini:0.15:0.6:0.7,large:15:60:0.95"
    with billing_server("--models", models, "--labels", ",".join(world.CLASSES), "--key", upstream_key) as upstream:
        members = [
            ChatClassifier(
                name, oc.PerToken(*prices), classes=world.CLASSES, base_url=f"{upstream.url}/v1", model=name,
                key_env="UPSTREAM_KEY", retries=0,
            )
            for name, prices in (("mini", (0.15, 0.6)), ("large", (15, 60)))
        ]  # fmt: skip
        pool = oc.Pool(members, world.CLASSES)
        texts = [world.text(number) for number in range(60)]
        known = oc.profile(pool, texts, [one.rpartition("#")[2] for one in texts], extractor="mini")
        service = service_from(known, pool, Options(budget=1, window="day", state=tmp_path, arrivals=1000.0))
        upstream.meet()
        with world.served(service) as client:
            reply = client.post("/v1/classify", json={"query": world.text(100)})
            assert reply.status_code == 200, reply.text
            assert Decimal(client.get("/v1/budget").json()["spent"]) >= Decimal(str(float(upstream.bill()["spent"])))
            seen = [reply.text]
            upstream.meet(echo=1.0)
            failed = client.post("/v1/classify", json={"query": world.text(101)})
            refusal(failed, 502, "no_classifier_answered")
            listed = client.get("/v1/decisions").json()["decisions"]
            seen += [failed.text, json.dumps(listed), client.get("/metrics").text]
            seen += [client.get(f"/v1/decisions/{one['id']}").text for one in listed]
    assert all(upstream_key not in one for one in [*seen, caplog.text])
    assert all(upstream_key.encode() not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
