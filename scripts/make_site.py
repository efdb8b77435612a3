"""Build the documentation: the repository's pages and the reference as one static site.

    scripts/docs [--out FOLDER]

Pages are plain Markdown and link to each other as files of the repository. For the site they are copied into one
folder, docs/ at its top, with their links turned to where everything lies there. The sections and links of
docs/index.md become the table of contents. A warning is an error.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from make_reference import PAGES

__all__ = ["ROOT", "build", "pages"]

ROOT = Path(__file__).resolve().parent.parent
# Pages beside docs/ that belong to the site.
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "examples/**/*.md", "benchmarks/**/*.md")
FENCE = re.compile(r"^(```.*?^```[^\S\n]*$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?\)")
# Where docs/reference.md wants the pages that are made.
MADE = re.compile(r"<!-- made: (\S+) -->")


def pages() -> dict[str, str]:
    """Every page of the site: its path in the repository → its path in the site, both with slashes."""
    found = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    beside = [path.relative_to(ROOT).as_posix() for pattern in BESIDE for path in sorted(ROOT.glob(pattern))]
    # The README opens the repository as the index opens the site.
    return (
        {f"docs/{name}": name for name in sorted(found)} | {name: name for name in beside} | {"README.md": "index.md"}
    )


def stage(folder: Path) -> None:
    """Write all sources of the site into a folder."""
    known = pages()
    for name in ("conf.py", "icon.svg"):
        shutil.copy(ROOT / "docs" / name, folder)
    listed = contents(turned("docs/index.md", known, lambda _: None))
    for source, target in known.items():
        if source == "README.md":
            continue
        text = turned(source, known, lambda path: _attach(path, folder))
        if source == "docs/index.md":
            text += _toctrees(listed, known)
        elif source == "docs/reference.md":
            text = MADE.sub(lambda match: f"```{{toctree}}\n:maxdepth: 2\n\n{match[1]}\n```", text)
        elif target not in _flat(listed) and not source.startswith("docs/"):
            text = f"---\norphan: true\n---\n{text}"
        _write(folder / target, text)
    for name, make in PAGES.items():
        _write(folder / name, make())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def turned(source: str, known: dict[str, str], attach: Callable[[str], str | None]) -> str:
    """A page with links that hold in the site; ``attach`` gives the place of a file that is no page."""
    here = PurePosixPath(source).parent
    home = PurePosixPath(known[source]).parent

    def turn(match: re.Match[str]) -> str:
        before, target, anchor = match[1], match[2], match[3] or ""
        if re.match(r"\w+:", target):
            return match[0]
        path = os.path.normpath(here / target)
        # What is not there stays as it is: Sphinx says so.
        place = known.get(path) or ((ROOT / path).is_file() and attach(path)) or path
        return f"{before}{os.path.relpath(place, home)}{anchor})"

    parts = FENCE.split((ROOT / source).read_text(encoding="utf-8"))
    return "".join(part if part.startswith("```") else LINK.sub(turn, part) for part in parts)


def _attach(path: str, folder: Path) -> str:
    """Copy a file that pages link to; pictures of docs/ lie beside its pages."""
    place = path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / path, folder / place)
    return place


def contents(index: str) -> dict[str, list[str]]:
    """The table of contents: the index's sections, and the pages that each lists."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        listed = re.findall(r"^- \[[^\]]+\]\(([^)#]+\.md)\)", text, re.MULTILINE)
        if listed:
            found[title] = listed
    return found


def _flat(listed: dict[str, list[str]]) -> set[str]:
    return {name for names in listed.values() for name in names}


def _toctrees(listed: dict[str, list[str]], known: dict[str, str]) -> str:
    """The table of contents as Sphinx wants it; pages of docs/ that the index forgot come last."""
    ours = [target for source, target in known.items() if source.startswith("docs/") and target != "index.md"]
    forgotten = [name for name in ours if name not in _flat(listed)]
    made = ""
    for title, names in {**listed, **({"More": forgotten} if forgotten else {})}.items():
        body = "\n".join(name.removesuffix(".md") for name in names)
        made += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{body}\n```\n"
    return made


def build(out: Path) -> int:
    """Build the site into a folder, which is emptied before; 0 if there was no warning."""
    from sphinx.cmd.build import build_main

    with tempfile.TemporaryDirectory() as temporary:
        sources, kept = Path(temporary) / "sources", Path(temporary) / "kept"
        sources.mkdir()
        stage(sources)
        made = Path(temporary) / "made"
        words = ["-q", "-E", "-W", "--keep-going", "-b", "html", "-d", str(kept), str(sources), str(made)]
        status = build_main(words)
        if status == 0:
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(made, out)
        return status


def main() -> None:
    """Build, and say where it is."""
    parser = argparse.ArgumentParser(description="Build the documentation as one static site.")
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="the folder to write (by default site/)")
    out = parser.parse_args().out
    status = build(out)
    if status == 0:
        sys.stdout.write(f"{out / 'index.html'}\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
