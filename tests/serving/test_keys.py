"""Who may do what: keys, scopes, caps, and everything that no answer, log or file may show."""

from __future__ import annotations

import json
import logging
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

import occamroute as oc
from occamroute.serving.app import OPERATIONS, create_app
from occamroute.serving.keys import SCOPES, KeyFile, read_keys
from occamroute.serving.queries import query_forms
from occamroute.serving.running import Options, service_from
from occamroute.serving.service import Service
from serving import world
from serving.test_deciding import FEATURES, refusal

Keyed: TypeAlias = tuple[httpx.Client, Service, dict[str, str]]

BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/route"): {"features": FEATURES},
    ("POST", "/v1/settle"): {"decision": "0" * 28, "cost": 1},
    ("POST", "/v1/plan"): {"features": [FEATURES], "budget": 9},
    ("POST", "/v1/feedback"): {"decision": "0" * 28, "success": 1},
    ("POST", "/v1/classify"): {"query": "text #cat"},
    ("POST", "/v1/chat/completions"): {"model": "occam-auto", "messages": [{"role": "user", "content": "a"}]},
    ("POST", "/v2/models/occam-auto/infer"): {
        "inputs": [{"name": "query", "shape": [1], "datatype": "BYTES", "data": ["a"]}]
    },
    ("POST", "/v1/correct"): {"key": "0" * 28, "cost": 1},
    ("POST", "/v1/rows"): {"rows": []},
    ("POST", "/v1/classifiers"): {"name": "x", "cost": 1, "success": []},
}
OPEN = {"/healthz", "/readyz", "/docs", "/openapi.json", "/v2/health/live", "/v2/health/ready"}
OPEN |= {"/v2/models/occam-auto/ready"}
# Those for people: tests/dashboard asks them.
PAGES = {"/", "/dashboard", "/dashboard/{path:path}"}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    """A service with a key for each scope, and those keys."""
    state = tmp_path_factory.mktemp("keyed")
    file = KeyFile(state)
    tokens = {str(scope): file.add(f"{scope} key", scopes=[scope], client=scope) for scope in SCOPES}
    service = world.service(state)
    with world.served(service) as client:
        yield client, service, tokens


def show(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_every_route_is_guarded(keyed: Keyed) -> None:
    """Without a key, with a wrong one, and with one of another scope: 401, 401, 403; with its own it is let in."""
    client, service, tokens = keyed
    everything: list[Any] = create_app(service).routes
    routes = [route for route in everything if route.include_in_schema]
    assert len(routes) == len(OPERATIONS)
    assert {route.path for route in everything} - {route.path for route in routes} == PAGES
    for route in routes:
        (method,) = route.methods
        path = route.path.replace("{id}", "0" * 28).replace("{name}", "nobody")
        body = BODIES.get((method, route.path))
        asked: dict[str, Any] = {} if body is None else {"json": body}
        if route.path in OPEN:
            assert client.request(method, path).status_code == 200, path
            continue
        for headers in ({}, show("occam_wrong"), {"authorization": "Bearer"}, {"authorization": "Basic eDp5"}):
            reply = client.request(method, path, headers=headers, **asked)
            refusal(reply, 401, "unauthenticated")
            assert reply.headers["www-authenticate"] == "Bearer"
        (scope,) = [one.scope for one in OPERATIONS if (one.method, one.path) == (method, route.path)]
        for other, token in tokens.items():
            reply = client.request(method, path, headers=show(token), **asked)
            if scope in (None, other) or other == "admin":
                assert reply.status_code not in (401, 403), (path, other, reply.text)
            else:
                refusal(reply, 403, "forbidden")


def test_a_body_is_not_read_before_the_key(keyed: Keyed) -> None:
    """Strangers learn nothing about bodies."""
    client, _, _ = keyed
    headers = {"content-type": "application/json"}
    refusal(client.post("/v1/route", content=b"{", headers=headers), 401, "unauthenticated")
    refusal(client.post("/v1/settle", content=b"{", headers=headers), 401, "unauthenticated")


def test_decisions_belong_to_their_client(keyed: Keyed) -> None:
    """Nobody settles or judges what another decided; an admin may."""
    client, _, tokens = keyed
    body = {"features": FEATURES, "hold": True}
    made = client.post("/v1/route", json=body, headers=show(tokens["route"])).json()
    receipt = client.get(f"/v1/decisions/{made['decision']}", headers=show(tokens["read"])).json()
    assert receipt["client"] == "route"
    verdict = {"decision": made["decision"], "success": 1.0}
    refusal(client.post("/v1/feedback", json=verdict, headers=show(tokens["feedback"])), 404, "unknown_decision")
    settled = {"decision": made["decision"], "cost": 0}
    assert client.post("/v1/settle", json=settled, headers=show(tokens["admin"])).status_code == 200
    mine = client.get("/v1/decisions", params={"client": "nobody"}, headers=show(tokens["read"])).json()
    assert mine["decisions"] == []


def test_keys_come_and_go_while_it_runs(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key made now counts within a second or so, but not before its cap does; one that is removed counts no longer.

    The cap stays: the same client may have a key with another service. A key of it that has none takes it away.
    """
    client, service, tokens = keyed
    assert service.key_file is not None
    file = KeyFile(service.key_file.path.parent)
    gone = file.add("gone", scopes=["route"])
    until(lambda: client.post("/v1/route", json={"features": FEATURES}, headers=show(gone)).status_code == 200)

    def busy(cap: Any, *, client: str | None = None) -> None:
        tried.set()
        raise oc.LedgerError("here", "another process has kept it locked for too long")

    with monkeypatch.context() as meanwhile:
        tried = threading.Event()
        meanwhile.setattr(service.router.ledger, "change_cap", busy)
        file.remove("gone")
        token = file.add("late", scopes=["route"], client="late", cap="0.25")
        assert tried.wait(10)
        for shown in (gone, token):
            refusal(client.post("/v1/route", json={"features": FEATURES}, headers=show(shown)), 401, "unauthenticated")
    until(lambda: client.post("/v1/route", json={"features": FEATURES}, headers=show(token)).status_code == 200)
    body = {"features": FEATURES, "hold": True}
    statuses = [client.post("/v1/route", json=body, headers=show(token)).status_code for _ in range(4)]
    assert statuses == [200, 200, 429, 429]
    file.remove("late")
    until(lambda: client.post("/v1/route", json={"features": FEATURES}, headers=show(token)).status_code == 401)
    own = budget_of(client, "late", tokens["read"])
    assert (own["cap"], own["held"]) == ("0.25", "0.2")
    file.add("late again", scopes=["route"], client="late")
    until(lambda: budget_of(client, "late", tokens["read"])["cap"] == "200")


def budget_of(client: httpx.Client, name: str, token: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/budget", params={"client": name}, headers=show(token)).json()
    return found


def until(holds: Any) -> None:
    """Wait until something holds, at most ten seconds."""
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_keys_are_kept_as_digests(tmp_path: Path) -> None:
    """The file holds no key, is the owner's alone, and wrong wishes are refused in one sentence."""
    file = KeyFile(tmp_path / "state")
    token = file.add("app", scopes=["route"], cap="2.5")
    assert token.startswith("occam_")
    assert len(token) > 40
    text = file.path.read_text()
    assert token not in text
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert read_keys(file.path).find(token.encode()) == file.keys.listed[0]
    assert read_keys(file.path).find(token.encode()[:-1]) is None
    wishes: list[tuple[str, dict[str, Any], str]] = [
        ("app", {}, "there is a key 'app' already"),
        ("b", {"scopes": ["fly"]}, "unknown scope 'fly'"),
        ("b", {"scopes": []}, "a key needs a scope"),
        ("b", {"cap": "-1"}, "cap must be a finite number"),
        ("b", {"cap": "5000000000"}, "cap must be at most 4000000000 in a ledger"),
        ("b\n", {}, "printable characters"),
        ("b", {"client": "app", "cap": "3"}, "client 'app' has a cap of 2.5 by key 'app'"),
    ]
    for name, options, sentence in wishes:
        with pytest.raises(oc.InvalidInputError, match=sentence):
            file.add(name, **{"scopes": ["route"], **options})
    with pytest.raises(oc.UnknownNameError, match="unknown key 'b': use one of app"):
        file.remove("b")
    file.path.write_text("[]")
    with pytest.raises(oc.StorageError, match="it is no list of keys"):
        KeyFile(tmp_path / "state")


def test_keys_made_and_removed_at_the_same_time(tmp_path: Path) -> None:
    """None that was shown is lost, and none that was removed comes back."""
    KeyFile(tmp_path).add("old", scopes=["route"])
    with ThreadPoolExecutor(9) as threads:
        made = [threads.submit(KeyFile(tmp_path).add, f"key {number}", scopes=["route"]) for number in range(8)]
        threads.submit(KeyFile(tmp_path).remove, "old").result()
    known = read_keys(tmp_path / "keys.json")
    assert sorted(key.name for key in known.listed) == [f"key {number}" for number in range(8)]
    assert all(known.find(one.result().encode()) for one in made)


def test_others_reach_it_only_with_keys(tmp_path: Path) -> None:
    """Bound to more than loopback, a service begins only with a key, and stays shut when the last one goes."""
    with pytest.raises(oc.InvalidInputError, match="needs a key"):
        world.service(tmp_path, host="0.0.0.0")  # noqa: S104
    file = KeyFile(tmp_path)
    file.add("app", scopes=["route"])
    service = world.service(tmp_path, with_pool=False, host="0.0.0.0")  # noqa: S104
    file.remove("app")
    assert service.key_file is not None
    service.key_file.refresh()
    with world.served(service) as client:
        refusal(client.post("/v1/route", json={"features": FEATURES}), 401, "unauthenticated")


def test_a_service_that_had_keys_stays_shut(tmp_path: Path) -> None:
    """Losing the file of keys opens nothing."""
    file = KeyFile(tmp_path)
    file.add("app", scopes=["route"])
    with world.served(world.service(tmp_path, with_pool=False)) as client:
        refusal(client.get("/v1/budget"), 401, "unauthenticated")
        file.path.unlink()
        time.sleep(1.5)
        refusal(client.get("/v1/budget"), 401, "unauthenticated")


def test_a_key_that_goes_before_anybody_asked(tmp_path: Path) -> None:
    """A service that began with a key stays shut, even if nobody had shown it yet."""
    file = KeyFile(tmp_path)
    file.add("app", scopes=["route"])
    with world.served(world.service(tmp_path, with_pool=False)) as client:
        file.remove("app")
        time.sleep(1.5)
        refusal(client.get("/v1/budget"), 401, "unauthenticated")


def test_a_file_of_keys_that_cannot_be_read_for_a_while(tmp_path: Path) -> None:
    """The keys known before count meanwhile; afterwards those count that the file holds."""
    file = KeyFile(tmp_path)
    token = file.add("app", scopes=["read"])
    with world.served(world.service(tmp_path, with_pool=False)) as client:
        file.path.unlink()
        file.path.symlink_to(file.path)  # leads nowhere
        time.sleep(1.5)
        assert client.get("/v1/budget", headers=show(token)).status_code == 200
        file.path.unlink()
        KeyFile(tmp_path).add("other", scopes=["read"])
        until(lambda: client.get("/v1/budget", headers=show(token)).status_code == 401)


def test_web_pages_do_not_reach_an_open_service(open_service: httpx.Client) -> None:
    """A page that has its own name lead to this machine is refused, as is a form that needs no permission."""
    for host in ("evil.example", "evil.example:8080", "127.evil.example"):
        reply = open_service.post("/v1/route", json={"features": FEATURES}, headers={"host": host})
        refusal(reply, 403, "foreign_host")
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1:99", "[::1]:8080"):
        reply = open_service.post("/v1/route", json={"features": FEATURES}, headers={"host": host})
        assert reply.status_code == 200


FORWARDED = [
    ("Forwarded", "for=203.0.113.7"),
    ("X-Forwarded-For", "203.0.113.7"),
    ("X-Forwarded-Host", "service.example"),
    ("X-Forwarded-Proto", "https"),
    ("X-Real-IP", "203.0.113.7"),
    ("Via", "1.1 proxy"),
]


def test_a_proxy_does_not_open_a_service_without_keys(open_service: httpx.Client) -> None:
    """Other machines behind a proxy on this one are refused, and told how to make a key."""
    for name, value in FORWARDED:
        for path in ("/v1/budget", "/metrics", "/dashboard/", "/dashboard/api/live"):
            detail = refusal(open_service.get(path, headers={name: value}), 403, "forwarded")["detail"]
            assert "occamroute keys add" in detail
        reply = open_service.post("/v1/route", json={"features": FEATURES}, headers={name: value})
        refusal(reply, 403, "forwarded")
    assert open_service.get("/healthz", headers=dict(FORWARDED)).status_code == 200  # which needs no key anyway
    assert open_service.get("/dashboard/").status_code == 200


def test_keys_pass_a_proxy(keyed: Keyed) -> None:
    """With a key it makes no difference whether a request was forwarded."""
    client, _, tokens = keyed
    reply = client.get("/v1/budget", headers=show(tokens["read"]) | dict(FORWARDED))
    assert reply.status_code == 200, reply.text


def test_admin_operations_need_a_key_unless_opened(open_service: httpx.Client, tmp_path: Path) -> None:
    """Without keys a program of this machine may decide and read; ``--open`` lets it change things, too."""
    changes = [(one.method, one.path) for one in OPERATIONS if one.scope == "admin"]
    assert ("POST", "/v1/correct") in changes
    document = open_service.get("/openapi.json").json()["paths"]
    for method, path in changes:
        detail = refusal(open_service.request(method, path, json={}), 401, "unauthenticated")["detail"]
        assert "occamroute keys add" in detail
        assert "--scope admin" in detail
        assert "--open" in detail
        assert document[path][method.lower()]["security"] == [{"key": []}]
    assert "security" not in document["/v1/route"]["post"]
    assert open_service.post("/v1/route", json={"features": FEATURES}).status_code == 200
    with pytest.raises(oc.InvalidInputError, match="--open is for this machine only"):
        world.service(tmp_path, host="0.0.0.0", open=True)  # noqa: S104
    with world.served(world.service(tmp_path, with_pool=False, open=True)) as client:
        refusal(client.request("DELETE", "/v1/rows", params={"id": "stranger"}), 404, "unknown_name")
        reply = client.request("DELETE", "/v1/rows", params={"id": "stranger"}, headers=dict(FORWARDED))
        refusal(reply, 403, "forwarded")


def test_no_request_names_a_file_or_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that look like paths or addresses are texts: nothing is opened, and nobody is called."""
    import builtins
    import socket

    with world.served(world.service(tmp_path)) as client:
        client.post("/v1/classify", json={"query": "warm up"})
        opened: list[str] = []
        really = builtins.open
        connect = socket.socket.connect

        def watched(file: Any, *arguments: Any, **options: Any) -> Any:
            opened.append(str(file))
            return really(file, *arguments, **options)

        def connected(self: socket.socket, address: Any) -> Any:
            opened.append(str(address))
            return connect(self, address)

        monkeypatch.setattr(builtins, "open", watched)
        monkeypatch.setattr(socket.socket, "connect", connected)
        canary = tmp_path / "canary.txt"
        for query in (str(canary), f"file://{canary}", "http://203.0.113.7/x", "../../etc/passwd", "~/.ssh/id_rsa"):
            client.post("/v1/classify", json={"query": query})
            client.get("/v1/decisions", params={"classifier": query, "client": query})
            client.delete(f"/v1/classifiers/{query.replace('/', '%2F')}")
            client.delete("/v1/rows", params={"id": query})
            client.get(f"/docs/{query}")
        found = [one for one in opened if "canary" in one or "203.0.113" in one or "passwd" in one or "id_rsa" in one]
    assert found == []


def test_texts_never_reach_classifiers_that_open_files(tmp_path: Path) -> None:
    """Kinds that take a text for an image's path get none, unless the operator says that their model reads texts."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(4, 3)
    member = oc.classifier("net", module, classes=world.CLASSES, cost=1)
    pool = oc.Pool([*world.classifiers(), member], world.CLASSES)
    assert query_forms(None, pool) == {"numbers", "bytes"}
    with pytest.raises(oc.InvalidInputError, match="cannot be text"):
        query_forms(["text"], pool)
    assert query_forms(None, world.pool()) == {"text", "numbers", "bytes"}
    assert query_forms(["text"], world.pool()) == {"text"}
    with pytest.raises(oc.UnknownNameError, match="form of queries"):
        query_forms(["paths"], pool)
    known = world.profile()
    service = service_from(known, pool, Options(budget=100, window="day", state=tmp_path, extractor=None))
    with world.served(service) as client:
        refusal(client.post("/v1/classify", json={"query": "/etc/passwd"}), 422, "invalid_request")


def test_secrets_show_up_nowhere(
    keyed: Keyed,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither a caller's key nor what an exception of the inside says is in an answer, a log, a metric or a file."""
    client, service, tokens = keyed
    caplog.set_level(logging.DEBUG)

    def broken(*_: Any) -> Any:
        raise RuntimeError("canary-inside: postgresql://user:canary-password@host/db")

    headers = show(tokens["admin"])
    seen = []
    for operation in OPERATIONS:
        body = BODIES.get((operation.method, operation.path))
        path = operation.path.replace("{id}", "0" * 28).replace("{name}", "nobody")
        seen.append(client.request(operation.method, path, headers=headers, json=body))
    monkeypatch.setattr(service.router, "frontier", broken)
    failed = client.get("/v1/frontier", headers=headers)
    refusal(failed, 500, "internal")
    assert "RuntimeError" in caplog.text
    assert "frontier" in caplog.text
    assert service.key_file is not None
    texts = [reply.text + str(reply.headers) for reply in [*seen, failed]]
    texts += [file.read_bytes().decode("latin-1") for file in service.key_file.path.parent.iterdir() if file.is_file()]
    texts += [record.getMessage() for record in caplog.records if not record.name.startswith("http")]
    for secret in (*tokens.values(), "canary-inside", "canary-password"):
        assert [text for text in texts if secret in text] == []


def test_metrics_need_a_key_that_may_read(keyed: Keyed) -> None:
    """Prometheus reads them with a key; its parser finds the counters and the money."""
    parser = pytest.importorskip("prometheus_client.parser")
    client, _, tokens = keyed
    reply = client.get("/metrics", headers=show(tokens["read"]))
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in parser.text_string_to_metric_families(reply.text)}
    assert {sample.labels["path"] for sample in families["occamroute_requests"].samples} >= {"/v1/route", "/metrics"}
    assert families["occamroute_request_seconds"].type == "histogram"
    budget = {sample.labels["what"]: sample.value for sample in families["occamroute_budget"].samples}
    assert budget["cap"] == 200.0
    assert json.dumps(budget)
