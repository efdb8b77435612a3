"""docs/dashboard.md is true: what the page asks for, the command's options, and the pictures."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from dashboard import world
from dashboard.test_serving_pages import made_run, small_plan
from occamroute.charts import COLOURS
from occamroute.cli.open import open_file
from occamroute.reporting.dashboard.making import plan_subject, run_subject
from occamroute.reporting.dashboard.subjects import Subject

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dashboard.md").read_text(encoding="utf-8")
WEB = ROOT / "src" / "occamroute" / "reporting" / "dashboard" / "web"


def test_every_address_is_listed() -> None:
    """Those that the page's modules ask for, those that are answered, and those that are written down."""
    listed = set(re.findall(r"`api/([\w.]+)`", PAGE))
    modules = "".join(file.read_text(encoding="utf-8") for file in WEB.glob("*.js"))
    asked = set(re.findall(r"ask\(\"(\w+)\"|name: \"(queries|bought)\"|`api/(picture)", modules))
    names = {name for found in asked for name in found if name} | {"plan.parquet", "plan.csv"}
    assert names == listed
    explored = Subject("profile", "", world.exploration(30, 3))
    run = run_subject(made_run(small_plan()), "run")
    for name in listed - {"live", "decision", "picture"}:
        assert any(one.answer(name) or one.files(name) for one in (explored, run, plan_subject(small_plan(), ""))), name


def test_every_option_is_listed() -> None:
    """In the table of options."""
    names = set(inspect.signature(open_file).parameters) - {"file"}
    listed = {word.replace("no-", "") for word in re.findall(r"`--([\w-]+)", PAGE)}
    assert {name.replace("as_", "") for name in names} <= listed


def test_every_picture_is_there_and_used() -> None:
    """And light enough to be kept with the code."""
    used = set(re.findall(r"\(pictures/([\w-]+\.png)\)", PAGE))
    kept = {file.name: file.stat().st_size for file in (ROOT / "docs" / "pictures").glob("dashboard-*.png")}
    assert set(kept) == used
    assert max(kept.values()) < 150_000


def test_colours_are_those_of_the_charts() -> None:
    """Distinct without colour vision, and the same as in every other picture of the package."""
    style = (WEB / "style.css").read_text(encoding="utf-8")
    assert [colour for colour in COLOURS if colour.startswith("#") and colour not in style] == []


def test_modules_are_all_preloaded() -> None:
    """A module that is found late is a round trip more."""
    page = (WEB / "index.html").read_text(encoding="utf-8")
    assert set(re.findall(r'href="(\w+\.js)"', page)) | {"main.js"} == {file.name for file in WEB.glob("*.js")}
