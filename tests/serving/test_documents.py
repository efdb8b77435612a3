"""What the service says about itself is what it does: the page, its examples, the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from occamroute.serving.app import OPERATIONS
from occamroute.serving.problems import CODES
from serving import world

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"```http\n(.*?)```\n(?:\n```json\n(.*?)```)?", re.DOTALL)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The service that the page's examples are of."""
    with world.served(world.service(tmp_path_factory.mktemp("page"), open=True)) as found:
        yield found


def test_examples_of_the_page(client: httpx.Client) -> None:
    """Every example works, answers in the form that is shown, and none of the endpoints is left out."""
    decision, asked = "", set()
    for request, answer in EXAMPLE.findall(PAGE):
        first, *lines = request.replace("{decision}", decision).splitlines()
        method, path = first.split()
        headers = dict(line.split(": ", 1) for line in lines if not line.startswith("{"))
        body = next((line for line in lines if line.startswith("{")), None)
        given = None if body is None else json.loads(body.replace("[1, 1, …]", json.dumps([1] * 240)))
        reply = client.request(method, path, headers=headers, json=given)
        assert reply.status_code == 200, (request, reply.text)
        asked.add((method, path.partition("?")[0].replace(decision or "-", "{id}").replace("/large", "/{name}")))
        if answer:
            assert form(reply.json()) == form(json.loads(answer)), request
        if "json" in reply.headers.get("content-type", "") and "decision" in reply.json():
            decision = reply.json()["decision"]
    assert asked == {(one.method, one.path) for one in OPERATIONS}


def form(value: Any) -> Any:
    """The shape of JSON: names and types; of a list its first entry."""
    if isinstance(value, dict):
        return {name: form(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [form(entry) for entry in value[:1]]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__ if value is not None else "null"
    return "number"


def test_tables_of_the_page() -> None:
    """Endpoints with their scopes, and codes with their status and meaning, are those of the code."""
    rows = re.findall(r"^\| `(GET|POST|DELETE) (\S+)` \| (\w+) \|", PAGE, re.MULTILINE)
    wanted = {(one.method, one.path, (one.scope or "any") if one.guarded else "none") for one in OPERATIONS}
    assert set(rows) == wanted
    codes = re.findall(r"^\| `(\w+)` \| (\d+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert codes == [(code, str(about.status), about.title) for code, about in CODES.items()]


def test_the_document_is_complete(client: httpx.Client) -> None:
    """Every operation, every status with its type, and the exact form of features and rows."""
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for operation in OPERATIONS:
        found = document["paths"][operation.path][operation.method.lower()]
        statuses = {str(CODES[code].status) for code in operation.codes}
        assert set(found["responses"]) == {"200", *statuses}
        for status in statuses:
            assert list(found["responses"][status]["content"]) == ["application/problem+json"]
        for reply in found["responses"].values():
            assert all(set(about) <= {"schema"} for about in reply["content"].values())  # 3.1 knows no itemSchema
    schemas = document["components"]["schemas"]
    assert schemas["RouteRequest"]["properties"]["features"]["minItems"] == 3
    assert schemas["Row"]["properties"]["success"]["required"] == ["small", "large"]
    assert "security" not in document["paths"]["/v1/route"]["post"]
    text = json.dumps(document)
    for name in re.findall(r"#/components/schemas/(\w+)", text):
        assert name in schemas


def test_the_page_needs_nobody_else(client: httpx.Client) -> None:
    """The page of the document names no other host, and its policy allows none."""
    reply = client.get("/docs")
    assert not re.search(r"https?://|src=|//\w+\.\w+", reply.text)
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
