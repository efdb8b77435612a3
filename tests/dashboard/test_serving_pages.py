"""The page's own server: what it gives, what it refuses, and the command that starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import occamroute as oc
from dashboard import world
from occamroute.cli.open import _subject as opened
from occamroute.execution.runs import Run
from occamroute.reporting.dashboard.making import plan_subject, profile_subject, run_subject
from occamroute.reporting.dashboard.replies import POLICY
from occamroute.reporting.dashboard.server import make_server, serving
from occamroute.reporting.dashboard.subjects import Subject
from occamroute.storage import from_bytes

WEB = Path(oc.__file__).parent / "reporting" / "dashboard" / "web"


@pytest.fixture(scope="module")
def subject() -> Subject:
    """A profile with hostile names."""
    return profile_subject(world.profile(names=("small", world.BOLD, world.HOSTILE)), "a profile")


@pytest.fixture(scope="module")
def page(subject: Subject) -> Iterator[httpx.Client]:
    """Its server."""
    with serving(subject) as address, httpx.Client(base_url=address) as client:
        yield client


def test_every_file_comes_with_its_policy(page: httpx.Client) -> None:
    """The page and its modules, each of its own type, under a policy that lets nothing in from elsewhere."""
    for path in ["", *(file.name for file in WEB.iterdir())]:
        reply = page.get(path)
        assert reply.status_code == 200, path
        assert reply.headers["content-security-policy"] == POLICY
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.content == (WEB / (path or "index.html")).read_bytes()
    assert "unsafe" not in POLICY


def test_files_name_no_other_host_and_read_no_markup() -> None:
    """No address of another host, no inline script or style, nothing that would take a name for markup."""
    for file in WEB.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, file
        assert "https://" not in text, file
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in text, (file, word)
    page = (WEB / "index.html").read_text(encoding="utf-8")
    assert "style=" not in page
    assert "<script>" not in page


def test_what_is_not_there(page: httpx.Client) -> None:
    """No other file of the package or the machine, and no other method."""
    for path in (
        "nothing.js",
        "../making.py",
        "%2e%2e/making.py",
        "/etc/passwd",
        "api/nothing",
        "api/live",
        "web/main.js",
        "%00.js",
        f"{'x' * 300}.js",
    ):
        assert page.get(path).status_code == 404, path
    for refused in (page.post("api/at"), page.request("OPTIONS", ""), page.request("BREW", "")):
        assert refused.status_code == 501
        assert refused.headers["content-security-policy"] == POLICY
        assert refused.headers["connection"] == "close"
    assert httpx.get(page.base_url.join("/")).headers["location"] == "/dashboard/"


def test_foreign_pages_are_refused(page: httpx.Client) -> None:
    """Under a name that somebody else chose, and where the browser says that another site asks."""
    assert page.get("", headers={"host": "evil.example"}).status_code == 403
    assert page.get("", headers={"host": "localhost:1"}).status_code == 200
    assert page.get("api/about", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert page.get("api/about", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_numbers_travel_whole(page: httpx.Client, subject: Subject) -> None:
    """What comes over HTTP is what the estimate says, with names that hold anything."""
    assert subject.exploration is not None
    estimate = subject.exploration.estimate
    shown = page.get("api/at", params={"budget": "71.3"}).json()
    assert shown["expected_accuracy"] == estimate.plan(71.3).expected_accuracy
    parameters = f"budget=71.3&drop={quote(world.HOSTILE)}&price={quote(f'0.35:{world.BOLD}')}"
    changed = page.get(f"api/at?{parameters}").json()
    assert set(changed["usage"]) == {"small", world.BOLD}
    assert changed["planned_cost"] != shown["planned_cost"]
    assert "price of" in page.get(f"api/at?budget=9&price={quote('x:small')}").json()["refused"]
    assert "unknown" in page.get("api/at?budget=9&drop=nobody").json()["refused"].lower()
    assert "at least one" in page.get("api/at", params={"drop": list(estimate.names)}).json()["refused"]
    assert page.get("api/receipt?budget=71.3&row=x").json()["refused"].startswith("row must be a whole number")


def test_plans_can_be_kept(page: httpx.Client, subject: Subject) -> None:
    """As the file that verify takes, and as CSV."""
    assert subject.exploration is not None
    reply = page.get("api/plan.parquet", params={"budget": "71.3"})
    assert reply.headers["content-disposition"] == 'attachment; filename="plan.parquet"'
    plan = from_bytes(reply.content, "plan")
    oc.verify(plan)
    assert plan.choice.tolist() == subject.exploration.estimate.plan(71.3).choice.tolist()
    lines = page.get("api/plan.csv", params={"budget": "71.3"}).text.splitlines()
    assert lines[0] == "id,classifier,cost,success"
    assert len(lines) == 1 + len(plan)
    assert "too small" in page.get("api/plan.csv", params={"budget": "1"}).json()["refused"]


def made_run(plan: oc.Plan) -> Run:
    """What a pool of two functions gives for a plan."""
    classes = ("cat", "dog")
    pool = oc.Pool(
        [
            oc.classifier(name, lambda texts: [[0.9, 0.1]] * len(texts), classes=classes, cost=cost)
            for name, cost in (("small", 0.1), ("large", 1.0))
        ],
        classes,
    )
    return oc.execute(plan, pool, [f"text {number}" for number in range(len(plan))])


def small_plan() -> oc.Plan:
    profile = oc.Profile(("small", "large"), (0.1, 1.0), [[0.0], [1.0]] * 20, [[0, 1], [1, 1]] * 20)
    return oc.estimate(profile, [[0.1], [0.9]] * 6, estimator="bagged").plan(5)


def test_a_run_is_shown_as_it_is() -> None:
    """What was spent, who answered, and a page of its rows."""
    run = made_run(small_plan())
    with serving(run_subject(run, "run.parquet")) as address, httpx.Client(base_url=address) as client:
        about = client.get("api/about").json()
        assert about["facts"]["spent"] == run.spent
        assert about["facts"]["usage"] == run.usage
        found = client.get("api/bought", params={"classifier": "large", "sort": "cost", "falling": "1"}).json()
        assert found["total"] == run.usage["large"]
        assert {row["answer"] for row in found["rows"]} == {"cat"}
        assert client.get("api/bought", params={"text": "nothing like it"}).json() == {"total": 0, "rows": []}
        assert client.get("api/at?budget=5").status_code == 404


def test_plans_with_a_profile_have_neighbours() -> None:
    """Where the queries' features are given, and only if they fit."""
    profile = world.profile()
    pool, asked = profile.split(0.5, seed=0)
    plan = oc.estimate(pool, asked.features, ids=asked.ids).plan(60)
    subject = plan_subject(plan, "plan", profile=pool, features=asked.features)
    assert subject.budget == "60"
    with serving(subject) as address:
        made = httpx.get(f"{address}api/receipt?budget=60&row=3").json()
    assert len(made["neighbours"]) == 8
    with pytest.raises(oc.InvalidInputError, match="must be of shape"):
        plan_subject(plan, "plan", profile=pool, features=pool.feature_sets["small"][:5])
    with pytest.raises(oc.InvalidInputError, match="not the profile that the plan was made from"):
        plan_subject(plan, "plan", profile=asked, features=asked.features)


def test_a_port_that_is_taken(subject: Subject) -> None:
    """Is said in one sentence."""
    with make_server(subject) as server, pytest.raises(oc.InvalidInputError, match="cannot listen"):
        make_server(subject, port=server.server_address[1])


def test_the_command(tmp_path: Path) -> None:
    """It prints where the page is, serves it without FastAPI, and Ctrl-C ends it with 0."""
    oc.save(made_run(small_plan()), tmp_path / "file.parquet")
    # No module of a service may be needed.
    blocked = "import sys; sys.modules.update(dict.fromkeys(('fastapi', 'starlette', 'uvicorn'))); "
    code = blocked + "from occamroute.cli import main; main()"
    words = [sys.executable, "-c", code, "open", "file.parquet", "--no-browser"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.fullmatch(r"file.parquet is at (\S+) \(Ctrl-C ends\)\n", process.stdout.readline())
        assert found is not None
        assert httpx.get(f"{found[1]}api/about").json()["kind"] == "run"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_browser_in_the_terminal(tmp_path: Path) -> None:
    """It runs until its reader leaves, and the page is served meanwhile."""
    oc.save(made_run(small_plan()), tmp_path / "file.parquet")
    reader = tmp_path / "reader"
    reader.write_text("#!/bin/sh\necho $1 > asked\nexec sleep 20 >/dev/null 2>&1\n")
    reader.chmod(0o700)
    words = [sys.executable, "-m", "occamroute", "open", "file.parquet", "--json"]
    environment = {**os.environ, "BROWSER": str(reader)}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        assert httpx.get(f"{address}api/about", timeout=10).json()["kind"] == "run"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    assert (tmp_path / "asked").read_text().strip() == address


def test_the_command_knows_what_a_file_holds(tmp_path: Path) -> None:
    """A profile, a plan with all that goes with it, or a run; anything else is refused in a sentence."""
    profile = world.profile()
    pool, asked = profile.split(0.5, seed=0)
    plan = oc.estimate(pool, asked.features, ids=asked.ids).plan(60)
    nouns: dict[str, Any] = {"profile": pool, "queries": asked, "plan": plan, "run": made_run(small_plan())}
    files = {name: str(tmp_path / f"{name}.parquet") for name in (*nouns, "front", "nothing")}
    for name, noun in nouns.items():
        oc.save(noun, files[name])
    oc.save(world.estimate(20, 3).frontier(), files["front"])
    knobs: dict[str, Any] = {"estimator": "bagged", "extractor": None, "seed": 0}
    kinds = [opened(files[name], None, None, None, **knobs).kind for name in ("profile", "plan", "run")]
    assert kinds == ["profile", "plan", "run"]
    known = opened(files["plan"], files["profile"], files["queries"], None, **knobs)
    assert known.exploration is not None
    assert known.exploration.surroundings is not None
    for name, beside, sentence in (
        ("front", None, "a profile, a plan or a run is needed"),
        ("nothing", None, "there is no such file"),
        ("profile", files["profile"], "go with a plan"),
        ("plan", files["profile"], "need both --profile and --features"),
    ):
        with pytest.raises(oc.OccamError, match=sentence):
            opened(files[name], beside, None, None, **knobs)


def test_the_command_shows_the_queries(tmp_path: Path) -> None:
    """With the file that the profile was made from their texts are beside their ids, and can be searched."""
    lines = [json.dumps({"text": f"query {number}", "label": "cat"}) for number in range(40)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    classes = ("cat", "dog")
    members = [oc.classifier(name, lambda texts: [[0.9, 0.1]] * len(texts), classes=classes, cost=1) for name in "ab"]
    texts = [f"query {number}" for number in range(40)]
    oc.save(oc.profile(oc.Pool(members, classes), texts, ["cat"] * 40, extractor="a"), tmp_path / "profile.parquet")
    words = [sys.executable, "-m", "occamroute", "open", "profile.parquet", "--data", "data.jsonl", "--no-browser"]
    with subprocess.Popen([*words, "--json"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        found = httpx.get(f"{address}api/queries?budget=40&text=query").json()
        assert found["total"] == 20
        assert {row["text"] for row in found["rows"]} <= set(texts)
        receipt = httpx.get(f"{address}api/receipt?budget=40&row=0").json()
        assert {receipt["text"], *(one["text"] for one in receipt["neighbours"])} <= set(texts)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
