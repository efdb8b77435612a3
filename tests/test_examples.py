"""The examples as a reader runs them: a copy of the folder, the commands of its README, and what they promise."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import runpy
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import as_in_a_process, run

from occamroute.adapters.openai import ChatClassifier
from occamroute.pool import PerToken

EXAMPLES = Path(__file__).parent.parent / "examples"


def script(name: str, *words: object, cwd: Path) -> None:
    """Run a script of the example as ``python NAME WORDS`` does."""
    with as_in_a_process([name, *map(str, words)], cwd), redirect_stdout(io.StringIO()):
        runpy.run_path(str(cwd / name), run_name="__main__")


def occamroute(*words: object, cwd: Path) -> dict[str, Any]:
    """What a verb says as JSON. Modules of the example stay: some of its classifiers take seconds to load."""
    done = run(*words, "--json", cwd=cwd, forget=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def copied(name: str, folder: Path) -> Path:
    ignored = shutil.ignore_patterns("*.parquet", "*.journal*", "*.csv", "*.npz", "*.skops", "*.log", "__pycache__")
    return Path(shutil.copytree(EXAMPLES / name, folder / name, ignore=ignored))


def check_plan(folder: Path, budget: float, extractor: str) -> None:
    """From two profiles to a frontier and a plan with a certificate."""
    words = ("profile.parquet", "test-profile.parquet")
    front = occamroute("frontier", *words, "--extractor", extractor, cwd=folder)["points"]
    assert [point["accuracy"] for point in front] == sorted(point["accuracy"] for point in front)
    options = ("--estimator", "bagged", "--extractor", extractor, "--out", "plan.parquet")
    plan = occamroute("plan", *words, "--budget", budget, *options, cwd=folder)
    assert plan["planned_cost"] <= budget
    assert occamroute("verify", "plan.parquet", cwd=folder)["gap"] >= 0


def check_comparison(folder: Path, budget: float) -> None:
    """What is chosen beats what needs no features."""
    report = occamroute(
        "compare", "profile.parquet", "--test", "test-profile.parquet", "--budget", budget,
        "--methods", "best_affordable,mixture,auto", cwd=folder,
    )  # fmt: skip
    reached = {row["method"]: row for row in report["rows"]}
    assert reached["auto"]["cost"] <= budget
    assert reached["auto"]["accuracy"] > reached["mixture"]["accuracy"] + 0.01
    assert reached["auto"]["accuracy"] > reached["best_affordable"]["accuracy"] + 0.01


def classified(folder: Path, test: str, budget: float, *, label: str, timed: bool = False) -> dict[str, Any]:
    """A run within the budget, all queries answered, the answers in a file."""
    ran = occamroute(
        "classify", "occamroute.toml", "profile.parquet", test, "--budget", budget, "--label", label,
        "--out", "answers.csv", cwd=folder,
    )  # fmt: skip
    # The one documented exception: on a machine that stalls, a call paid by the second may take longer than was held.
    with closing(sqlite3.connect(folder / "answers.csv.journal")) as journal:
        calls = journal.execute("SELECT charged, reserved FROM calls").fetchall()
    beyond = sum(max(Fraction(0), Fraction(charged) - Fraction(reserved)) for charged, reserved in calls)
    assert ran["spent"] <= budget + float(beyond)
    assert timed or not beyond
    assert ran["answered"] == ran["n_queries"]
    with (folder / "answers.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == ran["n_queries"]
    assert all(row["answer"] for row in rows)
    return ran


def check_against_singles(ran: dict[str, Any], tested: dict[str, Any], budget: float, points: float) -> None:
    """More answers are right than any affordable classifier's, and about as many as were expected."""
    affordable = [one for one in tested["classifiers"] if one["cost"] * ran["n_queries"] <= budget]
    assert len(affordable) >= 2
    assert ran["accuracy"] > max(one["accuracy"] for one in affordable)
    assert abs(ran["accuracy"] - ran["expected_accuracy"]) < points


def test_digits(tmp_path: Path) -> None:
    """Five models of scikit-learn: nearly the dearest's accuracy at two fifths of its bill; costs typed or measured."""
    folder = copied("digits", tmp_path)
    script("prepare.py", cwd=folder)
    profiled = occamroute("profile", "occamroute.toml", "train.npz", "--extractor", "linear", cwd=folder)
    assert [one["cost"] for one in profiled["classifiers"]] == [1, 2, 4, 30, 40]
    words = ("profile", "occamroute.toml", "test.npz", "--extractor", "linear", "--out", "test-profile.parquet")
    tested = occamroute(*words, cwd=folder)
    check_plan(folder, 28_000, "linear")
    ran = classified(folder, "test.npz", 28_000, label="y")
    check_comparison(folder, 28_000)
    check_against_singles(ran, tested, 28_000, points=0.02)
    dearest = tested["classifiers"][-1]
    assert dearest["cost"] * 1797 > 2.5 * ran["spent"]
    assert ran["accuracy"] > dearest["accuracy"] - 0.01
    measured = occamroute("profile", "measured.toml", "train.npz", "--out", "measured.parquet", cwd=folder)[
        "classifiers"
    ]
    assert {one["kind"] for one in measured} == {"measured"}
    assert [one["accuracy"] for one in measured] == [one["accuracy"] for one in profiled["classifiers"]]
    costs = {one["name"]: one["cost"] for one in measured}
    assert 0 < max(costs["tree"], costs["linear"]) < min(costs["forest"], costs["svm"]) < 0.1


def profile_languages(folder: Path, train: str, test: str, label: str) -> tuple[dict[str, Any], float]:
    """What the detectors do on the test rows, and half of the dearest's bill for them by the other rows' profile."""
    words = ("profile", "occamroute.toml", "--extractor", "cld2", "--label", label)
    profiled = occamroute(*words, train, cwd=folder)
    tested = occamroute(*words, test, "--out", "test-profile.parquet", cwd=folder)
    return tested, max(one["cost"] for one in profiled["classifiers"]) / 2 * tested["n_queries"]


def test_language_id(tmp_path: Path) -> None:
    """Seven detectors paid by the second: within half of the dearest's time, better than any of them alone."""
    folder = copied("language_id", tmp_path)
    script("prepare.py", "--rows", 1500, cwd=folder)
    tested, budget = profile_languages(folder, "train.csv", "test.csv", "label")
    assert {one["kind"] for one in tested["classifiers"]} == {"measured"}
    ran = classified(folder, "test.csv", budget, label="label", timed=True)
    # With so many rows to learn from and to judge on, the standard error of the difference is about a point.
    check_against_singles(ran, tested, budget, points=0.03)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the example with its files made, its service running, and its address in the pool file."""
    folder = copied("llm_labels", tmp_path_factory.mktemp("service"))
    script("prepare.py", cwd=folder)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "server.py", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            address = re.search(r"http://\S+", process.stdout.readline())
            assert address is not None
            pool = folder / "occamroute.toml"
            pool.write_text(
                re.sub(r"http://[^\"]+", address.group(), pool.read_text(encoding="utf-8")), encoding="utf-8"
            )
            yield folder
        finally:
            process.kill()


def test_llm_labels(service: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three chat models paid by the token: the whole story, on some of the texts."""
    monkeypatch.setenv("LLM_KEY", "any-will-do")
    for name, rows in (("train.csv", 400), ("test.csv", 300)):
        with (service / name).open(newline="", encoding="utf-8") as file:
            kept = list(csv.reader(file))[: rows + 1]
        with (service / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(kept)
    occamroute("profile", "occamroute.toml", "train.csv", cwd=service)
    tested = occamroute("profile", "occamroute.toml", "test.csv", "--out", "test-profile.parquet", cwd=service)
    dearest = max(one["cost"] for one in tested["classifiers"])
    budget = round(0.6 * dearest * 300, 4)
    ran = classified(service, "test.csv", budget, label="label")
    check_against_singles(ran, tested, budget, points=0.05)


def test_models_differ_in_accuracy_and_price(service: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that cost more are better; costs are below the worst case; probabilities come from the model."""
    monkeypatch.setenv("LLM_KEY", "any")
    pool = tomllib.loads((service / "occamroute.toml").read_text(encoding="utf-8"))
    with (service / "test.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert pool["classes"] == sorted({row["label"] for row in rows})
    rows = rows[:150]
    right, costs = [], []
    for name, entry in pool["classifiers"].items():
        model = ChatClassifier(
            name,
            PerToken(**entry["cost"]),
            classes=tuple(pool["classes"]),
            base_url=entry["base_url"],
            model=entry["model"],
            key_env=entry["key_env"],
        )
        answers = [model.answer([row["text"]]) for row in rows]
        found = [pool["classes"][int(answer.probabilities.argmax())] for answer in answers]
        right.append(np.mean([label == row["label"] for label, row in zip(found, rows, strict=True)]))
        charged = [np.asarray(answer.cost, object)[0] for answer in answers]
        assert all(a <= b for a, b in zip(charged, model.max_cost([row["text"] for row in rows]), strict=True))
        assert 0.2 < np.mean([answer.probabilities.max() for answer in answers]) < 0.95
        costs.append(sum(charged))
    assert 0.4 < right[0] < right[1] - 0.05 < right[2] - 0.05 < 0.9
    assert costs[2] > 4 * costs[1] > 36 * costs[0]


@pytest.mark.parametrize("name", ["digits", "language_id", "llm_labels"])
def test_readme_and_script_say_the_same(name: str) -> None:
    """The commands that are shown are those that the script runs, in the same order."""
    script = (EXAMPLES / name / "run").read_text(encoding="utf-8")
    shown = (EXAMPLES / name / "README.md").read_text(encoding="utf-8").partition("## The commands")[2]
    shown = shown.partition("```sh")[2].partition("```")[0]
    commands = [_bare(line.removeprefix("tell ")) for line in script.splitlines() if line.startswith("tell occamroute")]
    assert commands == [_bare(line) for line in shown.splitlines() if line.startswith("occamroute")]
    assert len(commands) >= 6
    assert os.access(EXAMPLES / name / "run", os.X_OK)


def _bare(command: str) -> str:
    """A command without its comment; amounts and lists of the script stand for those that are shown."""
    command = command.partition("#")[0].replace('"${features[@]}"', "$features")
    return " ".join(re.sub(r"--budget \S+", "--budget", command).split())


def test_index_names_every_example() -> None:
    """Each folder is in the list, and each link leads to a file."""
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([^)]+)\)", text)
    assert {link.partition("/")[0] for link in linked} == {path.parent.name for path in EXAMPLES.glob("*/README.md")}
    assert all((EXAMPLES / link).is_file() for link in linked)
