"""The documents say what the code does: their examples run, their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import occamroute as oc

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/**/*.md"),
    ]
)


def test_readme_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's Python, block after block, in an empty folder; the plan that it saves verifies."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)  # noqa: S102  # the project's own page
    oc.verify(oc.load(tmp_path / "plan.parquet"))


def test_the_router_of_its_page_spends_its_budget() -> None:
    """The page's own example ends with what it promises."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "routing.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, "routing.md", "exec"), {})  # noqa: S102  # the project's own page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page is a file of the repository."""
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_changelog_has_this_version() -> None:
    """What users notice is written down for the version that the package has."""
    assert f"## {oc.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
