"""The dashboard of a service: the router explored, the budget now, and keys that a browser can show."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

import httpx
import pytest
from playwright.sync_api import Page
from serving import world

from dashboard.test_browser import assert_readable, assert_shows, keep_picture, settled, value
from dashboard.test_serving_pages import WEB
from occamroute.reporting.dashboard.replies import POLICY
from occamroute.serving.exploring import explore_snapshot
from occamroute.serving.keys import KeyFile
from occamroute.serving.service import Service

Served: TypeAlias = tuple[httpx.Client, Service]


@pytest.fixture(scope="module")
def open_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service without keys that has answered some queries."""
    service = world.service(tmp_path_factory.mktemp("open"))
    with world.served(service) as client:
        for number in range(30):
            assert client.post("/v1/classify", json={"query": world.text(1000 + number)}).status_code == 200
        yield client, service


def basic(password: str, user: str = "anybody") -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_the_page_is_the_same(open_world: Served) -> None:
    """The same files under the same policy as without a service; the ways there lead there."""
    client, _ = open_world
    for file in WEB.iterdir():
        reply = client.get(f"/dashboard/{file.name}")
        assert reply.content == file.read_bytes()
        assert reply.headers["content-security-policy"] == POLICY
    for path in ("/", "/dashboard"):
        assert client.get(path).headers["location"] == "/dashboard/"
    assert client.get("/dashboard/").content == (WEB / "index.html").read_bytes()
    assert client.get("/dashboard/nothing").status_code == 404
    assert client.head("/dashboard/").content == b""
    assert client.post("/dashboard/api/at").status_code == 405
    assert client.get("/dashboard/api/about", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get("/dashboard/", headers={"host": "evil.example"}).status_code == 403
    assert 'path="/dashboard/"' in client.get("/metrics").text


def test_the_router_is_explored_on_held_out_rows(open_world: Served) -> None:
    """Their estimates are those of the other folds; every number is the solver's."""
    client, service = open_world
    exploration = explore_snapshot(service.router.snapshot)
    assert exploration.estimate.success is service.router.snapshot.held.success
    shown = client.get("/dashboard/api/at", params={"budget": "60"}).json()
    plan = exploration.estimate.plan(60, seed=service.router.snapshot.seed)
    assert shown["expected_accuracy"] == plan.expected_accuracy
    assert shown["planned_cost"] == plan.planned_cost
    receipt = client.get("/dashboard/api/receipt", params={"budget": "60", "row": "3"}).json()
    assert receipt["id"] not in {one["id"] for one in receipt["neighbours"]}
    assert "refused" in client.get("/dashboard/api/at", params={"budget": "0.001"}).json()


def test_how_things_stand(open_world: Served) -> None:
    """The ledger's own amounts, the latest decisions, and a receipt with what is known of its neighbours."""
    client, service = open_world
    now = client.get("/dashboard/api/live").json()
    balance = client.get("/v1/budget").json()
    assert [now["budget"][name] for name in ("cap", "spent", "held")] == [
        balance[name] for name in ("cap", "spent", "held")
    ]
    assert Decimal(now["budget"]["spent"]) > 0
    assert len(now["decisions"]) == 20
    assert now["drift"]["alarms"] == []
    name = now["decisions"][0]["id"]
    receipt = client.get("/dashboard/api/decision", params={"id": name}).json()
    plain = client.get(f"/v1/decisions/{name}").json()
    assert receipt["estimates"] == plain["estimates"]
    assert [one["id"] for one in receipt["neighbours"]] == [one["id"] for one in plain["neighbours"]]
    profile = service.router.snapshot.profile
    first = profile.ids.index(receipt["neighbours"][0]["id"])
    assert receipt["neighbours"][0]["success"]["small"] == profile.success[first, 0]
    assert client.get("/dashboard/api/decision", params={"id": "0" * 28}).status_code == 404
    assert client.get("/dashboard/api/decision", params={"id": "'; --"}).status_code == 404


def test_it_looks_without_features_too(tmp_path: Path) -> None:
    """A router that looks at no features has one estimate for all rows, and a page."""
    with world.served(world.service(tmp_path, with_pool=False, extractor=None)) as client:
        about = client.get("/dashboard/api/about").json()
        assert about["n_queries"] == 240
        assert about["extractor"] is None
        assert client.get("/dashboard/api/at", params={"budget": "100"}).json()["planned_cost"] <= 100
        made = client.post("/v1/route", json={}).json()["decision"]
        assert client.get("/dashboard/api/decision", params={"id": made}).json()["neighbours"] == []


def test_rows_that_change_change_the_page(tmp_path: Path) -> None:
    """What is explored is the router as it is now."""
    with world.served(world.service(tmp_path, with_pool=False, open=True)) as client:
        assert len(client.get("/dashboard/api/about").json()["names"]) == 2
        body = {"name": "<b>new</b>", "cost": 0.5, "success": [1] * 240}
        assert client.post("/v1/classifiers", json=body).status_code == 200
        assert client.get("/dashboard/api/about").json()["names"][-1] == "<b>new</b>"


def test_a_page_that_is_older_than_the_router_says_so(tmp_path: Path, opened: Callable[..., Page]) -> None:
    """Its curve would be that of other rows than its table."""
    with world.served(world.service(tmp_path, with_pool=False, open=True)) as client:
        page = opened(f"{client.base_url}/dashboard/")
        page.wait_for_selector("#live[data-seen]")
        assert page.is_hidden("#changed")
        body = {"name": "new", "cost": 0.5, "success": [1] * 240}
        assert client.post("/v1/classifiers", json=body).status_code == 200
        page.wait_for_selector("#changed")
        page.reload()
        page.wait_for_selector("#live[data-seen]")
        assert page.is_hidden("#changed")
        page.close()  # before its server goes


def test_keys_that_a_browser_can_show(tmp_path: Path, opened: Callable[..., Page]) -> None:
    """Every file needs one that may read; as a password it opens the dashboard alone, and nothing that spends."""
    file = KeyFile(tmp_path)
    reader, router = file.add("reader", scopes=["read"]), file.add("router", scopes=["route"])
    with world.served(world.service(tmp_path)) as client:
        for path in [
            "/",
            "/dashboard",
            "/dashboard/",
            "/dashboard/api/live",
            *(f"/dashboard/{one.name}" for one in WEB.iterdir()),
        ]:
            for headers in ({}, basic("wrong"), basic("", user=reader), {"authorization": "Basic %%%"}):
                reply = client.get(path, headers=headers)
                assert reply.status_code == 401, path
                assert reply.headers["www-authenticate"].startswith("Basic ")
            assert client.get(path, headers=basic(router)).status_code == 403
            assert client.get(path, headers=basic(reader)).status_code in (200, 307)
            assert client.get(path, headers={"authorization": f"Bearer {reader}"}).status_code in (200, 307)
        for path in ("/v1/budget", "/v1/decisions", "/metrics"):
            reply = client.get(path, headers=basic(reader))
            assert reply.status_code == 401
            assert reply.headers["www-authenticate"] == "Bearer"
        admin = file.add("admin", scopes=["admin"])
        body = {"features": [0.2, 0.3, 0.5]}
        assert client.post("/v1/route", json=body, headers=basic(admin)).status_code == 401
        password = {"username": "me", "password": reader}
        page = opened(f"{client.base_url}/dashboard/", http_credentials=password)
        page.wait_for_selector("#live[data-seen]")
        assert settled(page)
        page.close()  # before its server goes


def test_the_page_of_a_service(open_world: Served, opened: Callable[..., Page]) -> None:
    """Moves as any other; shows money as the ledger counts it, and why a query went where it went."""
    client, service = open_world
    page = opened(f"{client.base_url}/dashboard/", timed=True)
    page.wait_for_selector("#live[data-seen]")
    balance = client.get("/v1/budget").json()
    assert value(page, "live-spent") == float(balance["spent"])
    assert "Nothing has drifted" in page.inner_text("#live-drift")
    estimate = explore_snapshot(service.router.snapshot).estimate
    page.focus("#slider")
    page.keyboard.press("PageUp")
    assert_shows(page, estimate.plan(Decimal(settled(page)), seed=service.router.snapshot.seed))
    seen = page.get_attribute("#live", "data-seen")
    client.post("/v1/classify", json={"query": world.text(5000)})
    page.clock.fast_forward(3_000)
    page.wait_for_function(f"() => document.getElementById('live').dataset.seen !== '{seen}'")
    page.evaluate("document.activeElement.blur(); scrollTo({ top: 0, behavior: 'instant' })")
    keep_picture(page, "dashboard-service")
    assert_readable(page)
    page.click("#decisions .link >> nth=0")
    page.wait_for_selector("#receipt[open] .wide tbody tr")
    assert "times the cost beyond the features" in page.inner_text("#receipt-body")
    assert_readable(page)
    page.keyboard.press("Escape")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(
        "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.clock.fast_forward(60_000)
    page.wait_for_timeout(300)
    assert asked == []  # nobody looks
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_function("() => performance.now() > 0")
    page.wait_for_timeout(300)
    assert any(url.endswith("api/live?") for url in asked)
