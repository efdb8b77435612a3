"""The page's own server: what it gives, what it refuses, and the command that starts it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

import occamroute as oc
from dashboard import world
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
    ):
        assert page.get(path).status_code == 404, path
    assert page.post("api/at").status_code == 501
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
    assert subject.budget == "60.0"
    with serving(subject) as address:
        made = httpx.get(f"{address}api/receipt?budget=60&row=3").json()
    assert len(made["neighbours"]) == 8
    with pytest.raises(oc.InvalidInputError, match="must be of shape"):
        plan_subject(plan, "plan", profile=pool, features=pool.feature_sets["small"][:5])


def test_a_port_that_is_taken(subject: Subject) -> None:
    """Is said in one sentence."""
    with make_server(subject) as server, pytest.raises(oc.InvalidInputError, match="cannot listen"):
        make_server(subject, port=server.server_address[1])


@pytest.mark.parametrize("kind", ["profile", "plan", "run"])
def test_the_command(tmp_path: Path, kind: str) -> None:
    """It prints where the page is, serves it without FastAPI, and Ctrl-C ends it with 0."""
    made = world.profile() if kind == "profile" else small_plan() if kind == "plan" else made_run(small_plan())
    oc.save(made, tmp_path / "file.parquet")
    # No module of a service may be needed.
    blocked = "import sys; sys.modules.update(dict.fromkeys(('fastapi', 'starlette', 'uvicorn'))); "
    code = blocked + "from occamroute.cli import main; main()"
    words = [sys.executable, "-c", code, "open", "file.parquet", "--no-browser", "--json"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert line["kind"] == kind
        assert httpx.get(f"{line['address']}api/about").json()["title"] == "file.parquet"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    """A file of another kind, and options that go with a plan alone."""
    oc.save(small_plan(), tmp_path / "plan.parquet")
    front = world.estimate(20, 3).frontier()
    oc.save(front, tmp_path / "front.parquet")
    oc.save(world.profile(), tmp_path / "profile.parquet")
    wrong = {
        ("front.parquet",): "a profile, a plan or a run is needed",
        ("nothing.parquet",): "there is no such file",
        ("profile.parquet", "--profile", "profile.parquet"): "go with a plan",
    }
    for words, sentence in wrong.items():
        command = [sys.executable, "-m", "occamroute", "open", "--no-browser", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert sentence in done.stderr
