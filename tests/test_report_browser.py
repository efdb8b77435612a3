"""Reports in a real Chromium, from disk, with the network off; and the same pictures in a real notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_reading import ReadPage
from typer.testing import CliRunner

import occamroute as oc
from occamroute.cli._app import app

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 812}, "color_scheme": "light"},
}
NASTY = "<script>document.title = 'run'</script>"
PICTURES = Path(__file__).parent.parent / "docs" / "pictures"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cifar10_small: tuple[oc.Profile, oc.Profile]) -> Path:
    """A page of each kind, one of them with names that would run if they could."""
    place = tmp_path_factory.mktemp("pages")
    profile, test = cifar10_small
    budget = 0.2 * float(profile.costs.max()) * len(test)
    several, queries = oc.load_dataset("cifar10", extractor=("resnet20-w16", "resnet18-w64"))
    full = float(several.costs.max()) * len(queries)
    estimate = oc.estimate(profile, test.features)
    random = np.random.default_rng(0)
    features = random.random((200, 2))
    right = (random.random((200, 2)) < 0.8).astype(float)
    nasty = oc.Profile((NASTY, "a & b" + "c" * 300), (0.1, 1.0), features, right)
    nouns: dict[str, Any] = {
        "comparison": oc.compare(
            several.take(np.arange(1500)), queries, methods=["best_affordable", "auto"],
            budgets=[share * full for share in (0.05, 0.1, 0.15, 0.2, 0.4, 0.9)],
        ),
        "plan": oc.plan(profile, test.features, budget=budget),
        "plain": estimate.plan(budget),
        "frontier": estimate.frontier(),
        "nasty": nasty,
    }  # fmt: skip
    for name, noun in nouns.items():
        oc.save(noun, place / f"{name}.parquet")
        called = ["report", str(place / f"{name}.parquet"), "--out", str(place / f"{name}.html"), "--json"]
        assert CliRunner().invoke(app, called).exit_code == 0
    return place


def watched(page: Any) -> dict[str, Any]:
    """What goes on in a page, from now on."""
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    return {"complaints": complaints, "requests": requests}


def looked_at(pages: list[Path], chromium: str) -> list[dict[str, Any]]:
    """What a browser without a network sees of each page, in each look."""
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for path in pages:
            for look, options in LOOKS.items():
                context = browser.new_context(offline=True, **options)
                page = context.new_page()
                seen = watched(page) | {"page": path.name, "look": look}
                page.goto(path.as_uri())
                seen["width"] = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                seen["widest name"] = page.evaluate(
                    "Math.max(0, ...[...document.querySelectorAll('tbody th')].map(one => one.clientWidth))"
                )
                seen["title"], seen["h1"] = page.title(), page.locator("h1").inner_text()
                seen["charts"] = page.locator("svg:visible").count()
                seen["text"] = page.locator("body").inner_text()
                seen["figures"] = page.locator(".figures .value").all_inner_texts()
                if os.environ.get("OCCAMROUTE_PICTURES") == "1" and path.stem == "comparison":
                    PICTURES.mkdir(exist_ok=True)
                    page.screenshot(path=PICTURES / f"report-{look}.png")
                # Every kind of page in the dark, the longest in every look.
                if look == "dark" or path.stem == "comparison":
                    seen["serious"] = [
                        f"{one['id']}: {one['nodes'][0]['html'][:120]}"
                        for one in Axe().run(page).response["violations"]
                        if one["impact"] in ("serious", "critical")
                    ]
                if look == "light" and path.stem == "comparison":
                    page.emulate_media(media="print")
                    seen["contents when printed"] = page.locator("nav").is_visible()
                    seen["pdf"] = len(page.pdf())
                found.append(seen)
                context.close()
        browser.close()
    return found


@pytest.fixture(scope="module")
def views(folder: Path, chromium: str) -> list[dict[str, Any]]:
    # A thread of its own: one thread can run one Playwright, and other tests may have theirs open.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(looked_at, sorted(folder.glob("*.html")), chromium).result()


def test_pages_open_from_disk_without_a_network(views: list[dict[str, Any]]) -> None:
    """No request but the file, no message, no sideways scroll on a phone, no serious violation that axe finds."""
    assert len(views) == 15
    assert sum("serious" in view for view in views) == 7
    assert sum("pdf" in view for view in views) == 1
    for view in views:
        place = f"{view['page']} ({view['look']})"
        assert view["complaints"] == [], place
        assert len(view["requests"]) == 1, place
        assert view["width"] <= 0, place
        assert view["widest name"] < 480, place  # the numbers beside it are seen
        assert view.get("serious", []) == [], place
        assert view["charts"] >= 1, place


def test_names_stay_text_in_the_browser(views: list[dict[str, Any]]) -> None:
    """A script in a name neither runs nor vanishes."""
    for view in views:
        if view["page"] == "nasty.html":
            assert view["title"] == "2 classifiers on 200 labelled queries"
            assert NASTY in view["text"]


def test_people_see_the_numbers(views: list[dict[str, Any]], folder: Path) -> None:
    """The three numbers of the first screen are those of the report, in every look; paper needs no contents."""
    report = oc.load(folder / "comparison.parquet")
    cheapest = [row for row in report.of("auto") if row["cost_share"] < 1.0]
    for view in views:
        if "pdf" in view:
            assert not view["contents when printed"]
            assert view["pdf"] > 1000
        if view["page"] == "comparison.html":
            assert view["figures"][1] in {f"{100 * row['accuracy']:.2f} %" for row in cheapest}


NOTEBOOK = """
import json, sys
import nbformat
from nbclient import NotebookClient

cells = [nbformat.v4.new_code_cell(source) for source in json.loads(sys.stdin.read())]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
shown = [output["data"] for cell in notebook.cells for output in cell.outputs if "data" in output]
print(json.dumps([data.get("text/html", "") for data in shown]))
"""


def test_a_notebook_shows_the_nouns(folder: Path) -> None:
    """A real kernel displays each noun as a picture; several in one notebook share no id and no style of their own."""
    nouns = ("nasty", "frontier", "plan", "comparison")
    cells = ["import occamroute as oc", *(f"oc.load({str(folder / name)!r} + '.parquet')" for name in nouns)]
    cells.append("oc.load_dataset('cifar10')[0].take(range(200))")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NOTEBOOK], input=json.dumps(cells), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    shown = json.loads(done.stdout)
    assert len(shown) == 5
    for name, html in zip(nouns, shown, strict=False):
        assert html == oc.load(folder / f"{name}.parquet")._repr_html_()
    for html in shown:
        page = ReadPage(html)
        assert "svg" in page.tags
        assert page.ids == []
        assert not page.tags & {"script", "img", "link", "body", "h1"}
        # The one style is that of a picture, under a class of its own.
        rules = html.partition("<style>")[2].partition("</style>")[0].replace("@media (prefers-color-scheme: dark)", "")
        assert all(".occam-chart" in rule for rule in rules.split("}") if "{" in rule)
        assert len(html) < 60_000
    assert NASTY in ReadPage(shown[0]).text
