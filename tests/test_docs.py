"""The documents say what the code does: every block of every page runs, as a reader would run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from documentation_snippets import NOT_RUN, ROOT, Block, Reader, blocks
from serving import world

import occamroute as oc
from occamroute.pool_files.schema import pool_schema

OTHERS = ("README.md", "CONTRIBUTING.md", "examples/README.md", "benchmarks/paper/README.md")
PAGES = sorted([*(ROOT / name for name in OTHERS), *ROOT.glob("docs/**/*.md")])
# These run elsewhere: tests/test_examples.py does what they say, and tests/test_recipes.py what the last one says.
ELSEWHERE = {f"examples/{name}/README.md" for name in ("digits", "language_id", "llm_labels", "paper_images")}
# Blocks of these languages do something. What a service is asked and answers is tried in tests/serving.
RUN = {"python", "sh", "console", "toml"}
SHOWN = {"text", "http", "json", "csv", "yaml"}
# So many blocks may say that they cannot run here.
MOST_NOT_RUN = 5


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader of a page has: a pool file, labelled and new queries, a profile, features of new queries."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "my_models.py").write_text(
        "from serving import world\n\n\n"
        "def rules(texts):\n    return world.answers(texts, 0.6)\n\n\n"
        "def careful(texts):\n    return world.answers(texts, 0.95)\n",
        encoding="utf-8",
    )
    (folder / "occamroute.toml").write_text(
        'classes = ["cat", "dog", "eel"]\n\n[classifiers]\n'
        'small = { kind = "callable", function = "my_models:rules", cost = 0.01 }\n'
        'large = { kind = "callable", function = "my_models:careful", cost = 0.1 }\n',
        encoding="utf-8",
    )
    old, new = range(120), range(240, 300)
    for name, rows in {"labelled.csv": old, "train.csv": old, "new.csv": new, "test.csv": new}.items():
        lines = [f"q{row},{world.text(row)},{world.CLASSES[row % 3]}" for row in rows]
        (folder / name).write_text("\n".join(["id,text,label", *lines]) + "\n", encoding="utf-8")
    profile = world.profile()
    oc.save(profile, folder / "profile.parquet")
    features = np.asarray(world.answers([world.text(row) for row in range(240, 360)], 0.6))
    np.savetxt(folder / "queries.csv", features, delimiter=",", header="a,b,c", comments="")
    oc.save(oc.plan(profile, features, budget=60), folder / "plan.parquet")
    return folder


@pytest.fixture(scope="module")
def chat_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that speaks OpenAI's wire format and bills by the token."""
    server = Path(__file__).parent / "servers" / "billing.py"
    models = "mini:0.15:0.6:0.7,large:15:60:0.95"
    command = [sys.executable, str(server), "--models", models, "--labels", "cat,dog,eel"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_runs(
    page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From top to bottom in one folder, with what a reader has there; only what says why is left out."""
    for path in prepared.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    small = request.getfixturevalue("cifar10_small")
    monkeypatch.setattr(oc, "load_dataset", lambda name: small, raising=False)  # its first rows, to save minutes
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.setenv("EXAMPLE_KEY", "any will do")
    reader = Reader(
        tmp_path,
        {
            "postgresql://occam@db.example.com/occam": lambda: str(request.getfixturevalue("database")),
            "https://api.example.com": lambda: str(request.getfixturevalue("chat_service")),
        },
    )
    try:
        for block in blocks(page):
            if (block.language in RUN or block.file is not None) and block.reason is None:
                reader.read(block)
    finally:
        reader.close()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_is_of_a_known_kind(page: Path) -> None:
    """No block is passed over because nobody knows what it is."""
    assert {block.language for block in blocks(page)} <= RUN | SHOWN


def test_no_page_is_forgotten() -> None:
    """A page with something to run is run here, or named with who runs it."""
    others = [page for pattern in ("*.md", "benchmarks/**/*.md", "examples/**/*.md") for page in ROOT.glob(pattern)]
    forgotten = {named(page) for page in others if page not in PAGES and {one.language for one in blocks(page)} & RUN}
    assert forgotten == ELSEWHERE


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks(page)]


def test_few_blocks_are_not_run() -> None:
    """Those that cannot run here say why; there are few of them."""
    left_out = [(block.page, block.line, block.reason) for block in all_blocks() if block.reason is not None]
    assert len(left_out) <= MOST_NOT_RUN, left_out
    assert all(len(reason.split()) >= 3 for _, _, reason in left_out if reason)


def test_pool_files_are_right() -> None:
    """Every pool file that is shown keeps to the schema of pool files."""
    import tomllib

    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    validator = Draft202012Validator(pool_schema())
    shown = [block for block in all_blocks() if block.language == "toml"]
    assert len(shown) >= 4
    for block in shown:
        found = [error.message for error in validator.iter_errors(tomllib.loads(block.text))]
        assert not found, (block.page, block.line, found)


def test_readme_is_short() -> None:
    """Two minutes: the words that are read, blocks and tables left out."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    words = [word for line in text.splitlines() if not line.startswith("|") for word in line.split()]
    assert len(words) < 480


def test_changelog_has_this_version() -> None:
    """What users notice is written down for the version that the package has."""
    assert f"## {oc.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_marks_stand_before_blocks() -> None:
    """A line that says why a block is not run stands right before one."""
    marks = [line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines() if NOT_RUN.match(line)]
    assert len(marks) == len([block for block in all_blocks() if block.reason is not None])


def test_json_of_pages_is_json() -> None:
    """What is shown as an answer can be read as one."""
    for block in all_blocks():
        if block.language == "json":
            json.loads(block.text)
