"""The command line as a user has it: real files, one story, and real processes where these matter."""

from __future__ import annotations

import csv
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import process, run, start

import occamroute as oc
from occamroute.cli._ending import end_like_an_interrupt
from occamroute.cli.plan import _show as show_plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a profile, and new queries in every format that is read."""
    folder = tmp_path_factory.mktemp("user")
    profile, test = oc.load_dataset("cifar10")
    profile, test = profile.take(np.arange(1500)), test.take(np.arange(400))
    oc.save(profile, folder / "profile.parquet")
    oc.save(test, folder / "test.parquet")
    features = np.asarray(test.features, np.float64)
    np.save(folder / "queries.npy", features)
    pq.write_table(pa.table({"id": list(test.ids or ()), "features": list(features)}), folder / "queries.parquet")
    columns = {f"p{column}": features[:, column] for column in range(10)}
    pq.write_table(
        pa.table({"id": pa.array(test.ids or ()), **{name: pa.array(column) for name, column in columns.items()}}),
        folder / "columns.parquet",
    )
    with (folder / "queries.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *columns])
        writer.writerows([name, *row] for name, row in zip(test.ids or (), features.tolist(), strict=True))
    return folder


BUDGET = 0.0025


def test_plan_verify_story(folder: Path) -> None:
    """Plan from files, read the assignment, verify it; then change it and be refused."""
    done = run("plan", "profile.parquet", "queries.csv", "--budget", BUDGET, "--out", "plan.parquet", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "expected accuracy" in done.stdout
    assert "0.0e+00" not in done.stdout
    assert "optimistic" not in done.stdout  # it is corrected
    table = pq.read_table(folder / "plan.parquet").to_pydict()
    assert table["id"][0] == "test-0"
    assert sum(table["cost"]) <= BUDGET * (1 + 1e-12)
    checked = run("verify", "plan.parquet", cwd=folder)
    assert (checked.returncode, checked.stdout[:22]) == (0, "the certificate holds:"), checked.stderr
    plan = pq.read_table(folder / "plan.parquet")
    names = plan.column("classifier").to_pylist()
    names[0] = "wrn28-10" if names[0] != "wrn28-10" else "resnet8-w8"
    place = plan.column_names.index("classifier")
    pq.write_table(plan.set_column(place, "classifier", pa.array(names)), folder / "forged.parquet")
    refused = run("verify", "forged.parquet", cwd=folder)
    assert refused.returncode == 4
    assert refused.stderr.startswith("occamroute: the plan's ")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "queries", ["queries.npy", "queries.parquet", "columns.parquet", "queries.csv", "test.parquet"]
)
def test_every_format_gives_the_same_plan(queries: str, folder: Path) -> None:
    """Arrays, list columns, plain columns, CSV and a saved profile hold the same features."""
    done = run("plan", "profile.parquet", queries, "--budget", BUDGET, "--estimator", "bagged", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    profile, test = oc.load(folder / "profile.parquet"), oc.load(folder / "test.parquet")
    plan = oc.estimate(profile, np.asarray(test.features, np.float64)).plan(BUDGET)
    assert summary["usage"] == plan.usage
    assert summary["planned_cost"] <= BUDGET
    assert summary["n_queries"] == 400


def test_what_a_plan_says_of_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """A plain mean of estimates is called optimistic, and a plan that none can beat is called that."""
    success = np.array([[0.5, 0.9]] * 3)
    estimate = oc.Estimate(
        ("small", "large"), np.array([0.0, 1.0]), success, np.zeros(2), 0, made_from={"estimator": ""}
    )
    show_plan(estimate.plan(2), None)
    said = " ".join(capsys.readouterr().out.split())
    assert "76.67 %, a plain mean of estimates, which is optimistic" in said
    assert "proved no plan within the budget is better, by the same estimates" in said


def test_plan_as_csv(folder: Path) -> None:
    """The assignment for a spreadsheet: a row for each query."""
    words = ("plan", "profile.parquet", "queries.csv", "--budget", BUDGET, "--estimator", "sampled",
             "--penalty", "0.5", "--objective", "min", "--out", "plan.csv", "--json")  # fmt: skip
    done = run(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    with (folder / "plan.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 400
    assert set(rows[0]) == {"id", "classifier", "cost", "success"}
    assert json.loads(done.stdout)["made_from"]["objective"] == "min"


def test_frontier(folder: Path) -> None:
    """A picture of text, JSON, and files with all points."""
    done = run("frontier", "profile.parquet", "queries.npy", "--out", "front.parquet", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "supported points for 400 queries" in done.stdout
    assert "•" in done.stdout
    points = oc.load(folder / "front.parquet")
    shown = json.loads(run("frontier", "profile.parquet", "queries.npy", "--json", cwd=folder).stdout)
    assert shown["n_points"] == len(points)
    assert shown["points"][-1]["accuracy"] == pytest.approx(points.accuracies[-1])
    assert run("frontier", "profile.parquet", "queries.npy", "--out", "f.svg", cwd=folder).returncode == 0
    assert (folder / "f.svg").read_text().startswith("<svg")
    assert run("frontier", "profile.parquet", "queries.npy", "--out", "f.csv", cwd=folder).returncode == 0
    assert (folder / "f.csv").read_text().startswith("budget,accuracy,price,value")


def test_demo(tmp_path: Path) -> None:
    """Real plans at several budgets, what they reach, and a page that needs nothing from outside."""
    done = run("demo", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    by_method = {row["method"] for row in rows}
    assert by_method == {"cheapest", "dearest", "mixture", "occamroute", "oracle"}
    for row in rows:
        assert row["cost_share"] <= row["budget"] * (1 + 1e-9)
        assert 0.6 < row["accuracy"] < 1.0
    ours = {row["budget"]: row["accuracy"] for row in rows if row["method"] == "occamroute"}
    dearest = next(row["accuracy"] for row in rows if row["method"] == "dearest")
    assert max(ours.values()) > dearest - 0.005
    page = (tmp_path / "occamroute-demo.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "https://" not in page
    assert "src=" not in page


def wait_until_kernels_are_loaded(pid: int) -> None:
    """However busy the machine is: a plan that has loaded its kernels is being made."""
    maps = Path(f"/proc/{pid}/maps")
    end = time.monotonic() + (60 if maps.exists() else 2.5)
    while time.monotonic() < end and not (maps.exists() and "llvmlite" in maps.read_text()):
        time.sleep(0.05)
    time.sleep(0.5)


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_plan_leaves_nothing(way: signal.Signals, folder: Path) -> None:
    """Ctrl-C in the middle, or a polite end: the exit code that shells expect, one sentence, no file."""
    words = ("plan", "cifar10", "queries.npy", "--budget", "1", "--out", "never.parquet")
    with start(*words, cwd=folder, quick=False) as started:
        wait_until_kernels_are_loaded(started.pid)
        started.send_signal(way)
        _, stderr = started.communicate()
    # Python ends itself by SIGINT if that came while a string was run, as imports do; shells say 130 all the same.
    assert started.returncode in ((130, -2) if way == signal.SIGINT else (143,))
    assert stderr == "occamroute: interrupted.\n"
    assert not list(folder.glob("*never*")) + list(folder.glob(".*never*"))


def _imported_and_slept(name: str) -> None:
    importlib.import_module(name)
    time.sleep(5)


def test_no_import_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM in the middle of one waits for its end: a lock that it left behind would stop the command for good."""
    lines = ("import os, signal, time", "os.kill(os.getpid(), signal.SIGTERM)", "time.sleep(0.1)", "whole = True")
    (tmp_path / "imported_slowly.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        came = end_like_an_interrupt()
        with pytest.raises(KeyboardInterrupt):
            _imported_and_slept("imported_slowly")
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert came
    assert sys.modules.pop("imported_slowly").whole


class _EndedWhileCleanedUp:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)


def _cleaned_up_and_slept() -> None:
    _EndedWhileCleanedUp()
    time.sleep(5)


def test_no_wish_to_end_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM while an object is cleaned up, whose errors Python passes over, comes again."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        end_like_an_interrupt()
        with pytest.raises(KeyboardInterrupt):
            _cleaned_up_and_slept()
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_a_reader_may_stop_reading(folder: Path) -> None:
    """Output into a pipe that closes early is no error worth a traceback."""
    command = f"{sys.executable} -m occamroute frontier profile.parquet queries.npy | head -n 1"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "%" in done.stdout


BARE_COMMAND = """
import typer
app = typer.Typer()
app.command("one")(lambda: None)
app.command("two")(lambda: None)
app()
"""


def quickest(*command: str, cwd: Path) -> float:
    """The seconds of the quickest of five runs."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.alone
def test_help_is_quick(tmp_path: Path) -> None:
    """Help takes half a second; on a slow machine at most twice the time of a command line with nothing behind it."""
    slow_machine = 2 * quickest("-c", BARE_COMMAND, "--help", cwd=tmp_path)
    assert quickest("-m", "occamroute", "--help", cwd=tmp_path) < max(0.5, slow_machine)


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    """Help is written without the libraries that do the work."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "occamroute", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "typer" in loaded
    assert not loaded & {"numpy", "pyarrow", "numba", "scipy", "sklearn", "torch", "ray", "fastapi", "httpx", "pandas"}


def test_every_verb_has_json(tmp_path: Path) -> None:
    """The verbs that print a result can print it for programs."""
    for verb in ("demo", "plan", "frontier", "verify"):
        assert "--json" in run(verb, "--help", cwd=tmp_path).stdout
    assert run("--version", cwd=tmp_path).stdout == f"occamroute {oc.__version__}\n"


def test_a_process_says_the_same(folder: Path) -> None:
    """What other tests see without a process of its own is what ``python -m occamroute`` writes and exits with."""
    cases: tuple[tuple[object, ...], ...] = (
        ("plan", "profile.parquet", "queries.csv", "--budget", BUDGET, "--estimator", "bagged", "--json"),
        ("plan", "profile.parquet", "queries.npy", "--budget", "0.0001"),
    )
    for words in cases:
        there = subprocess.run(process(*words, quick=False), cwd=folder, capture_output=True, text=True, check=False)
        here = run(*words, cwd=folder)
        assert (there.returncode, there.stdout, there.stderr) == (here.returncode, here.stdout, here.stderr)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("plan", "none.parquet", "queries.npy", "--budget", "1"), 2, "there is no such file"),
        (("plan", "profile.parquet", "none.npy", "--budget", "1"), 2, "there is no such file"),
        (("plan", "profile.parquet", "queries.txt", "--budget", "1"), 2, "its name must end in"),
        (("plan", "text.parquet", "queries.npy", "--budget", "1"), 2, "it is no Parquet file"),
        (("plan", "columns.parquet", "queries.npy", "--budget", "1"), 2, "not one that occamroute wrote"),
        (("plan", "profile.parquet", "text.npy", "--budget", "1"), 2, "no plain .npy array"),
        (("plan", "profile.parquet", "pickle.npy", "--budget", "1"), 2, "no plain .npy array"),
        (("plan", "profile.parquet", "words.csv", "--budget", "1"), 2, "something that is not a number"),
        (("plan", "profile.parquet", "ragged.csv", "--budget", "1"), 2, "line 3 has 1 fields, the header has 2"),
        (("plan", "profile.parquet", "empty.csv", "--budget", "1"), 2, "it holds no features"),
        (("plan", "profile.parquet", "narrow.npy", "--budget", "1"), 2, "must have the profile's 10 columns"),
        (("plan", "profile.parquet", "nan.npy", "--budget", "1"), 2, "must be finite, got NaN"),
        (("plan", "profile.parquet", "queries.npy", "--budget", "-1"), 2, "budget must be a finite number"),
        (("plan", "profile.parquet", "queries.npy", "--budget", "nan"), 2, "budget must be a finite number"),
        (("plan", "profile.parquet", "queries.npy", "--budget", "lots"), 2, "budget must be a finite number"),
        (("plan", "profile.parquet", "queries.npy", "--budget", "0.0001"), 3, "takes at least 0.000355"),
        (("plan", "profile.parquet", "queries.npy", "--budget", "1", "--out", "x.xlsx"), 2, "--out must end in"),
        (("plan", "profile.parquet", "queries.npy", "--budget", "1", "--out", "no/x.csv", "--estimator", "mixture"),
         2, "the folder no does not exist"),
        (("plan", "profile.parquet", "queries.npy", "--budget", "1", "--estimator", "magic"), 2, "unknown estimator"),
        (("plan", "profile.parquet", "queries.npy", "--budget", "1", "--extractor", "x"), 2, "unknown extractor"),
        (("plan", "profile.parquet", "queries.npy", "--budget", "1", "--penalty", "2"), 2, "auto chooses for itself"),
        (("frontier", "profile.parquet", "queries.npy", "--out", "x.png"), 2, "--out must end in"),
        (("verify", "profile.parquet"), 2, "it holds a profile, a plan is needed"),
        (("verify", "none.parquet"), 2, "there is no such file"),
        (("demo", "--out", "no/x.html"), 2, "the folder no does not exist"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence_and_no_file(
    words: tuple[str, ...], code: int, sentence: str, folder: Path
) -> None:
    """No traceback, nothing half-written, and the exit code of its kind."""
    (folder / "text.parquet").write_text("hello")
    (folder / "text.npy").write_text("hello")
    np.save(folder / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    (folder / "words.csv").write_text("a,b\n1,x\n")
    (folder / "ragged.csv").write_text("a,b\n1,2\n3\n")
    (folder / "empty.csv").write_text("")
    np.save(folder / "narrow.npy", np.zeros((3, 2)))
    np.save(folder / "nan.npy", np.full((3, 10), np.nan))
    before = sorted(folder.iterdir())
    done = run(*words, cwd=folder)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert sentence in done.stderr
    assert done.stderr.startswith("occamroute: ")
    assert done.stderr.count("\n") == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("words", [("plan",), ("nothing",), ("plan", "a", "b", "--budget")])
def test_bad_usage_has_code_2(words: tuple[str, ...], tmp_path: Path) -> None:
    """Missing or unknown words are usage errors."""
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
