"""Live classifiers from the command line: bad input, interruptions, journals, secrets; real files and processes."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from commands import run, start

MODULE = '''
"""Functions that are called as classifiers; those that are slow write down what they are asked."""

import time


def good(queries):
    return [[0.8, 0.2] if query.endswith("a") else [0.3, 0.7] for query in queries]


def fair(queries):
    return [[0.6, 0.4] if hash_of(query) % 3 else [0.4, 0.6] for query in queries]


def hash_of(query):
    return sum(map(ord, query))


def wide(queries):
    return [[0.8, 0.1, 0.1]] * len(queries)


def short(queries):
    return [[0.8, 0.2]] * (len(queries) - 1)


def nan(queries):
    return [[float("nan"), 1.0]] * len(queries)


def sometimes_nan(queries):
    return [[float("nan"), 1.0] if "7" in query else [0.6, 0.4] for query in queries]


def raising(queries):
    raise RuntimeError("out of\\norder")


def sometimes_raising(queries):
    if any("7" in query for query in queries):
        raise RuntimeError("no sevens")
    return [[0.6, 0.4]] * len(queries)


def leaving(queries):
    raise SystemExit(0)


def slow(queries):
    with open("calls.txt", "a") as file:
        file.writelines(query + "\\n" for query in queries)
    time.sleep(0.1)
    return good(queries)
'''
KEY = "sk-very-secret-0123456789"


def refused(done: subprocess.CompletedProcess[str], sentence: str, code: int = 2) -> None:
    """The exit code of its kind, one line on stderr with the sentence, nothing else."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("occamroute: ")
    assert sentence in done.stderr
    assert done.stderr.endswith(".\n")
    assert done.stderr.count("\n") == 1


def pool_text(function: str, cost: str = "2", batch_size: int = 256) -> str:
    return (
        'classes = ["a", "b"]\n'
        '[classifiers.fair]\nkind = "callable"\nfunction = "rules:fair"\ncost = 1\n'
        f'[classifiers.x]\nkind = "callable"\nfunction = "rules:{function}"\ncost = {cost}\nbatch_size = {batch_size}\n'
    )


def write_queries(path: Path, rows: int, first: int = 0) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label"])
        writer.writerows((f"q{row}", f"t{row}{'ab'[row % 2]}", "ab"[row % 2]) for row in range(first, first + rows))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pool, its profile, and new queries; tests copy it."""
    folder = tmp_path_factory.mktemp("story")
    (folder / "rules.py").write_text(MODULE)
    (folder / "pool.toml").write_text(pool_text("good"))
    write_queries(folder / "train.csv", 80)
    write_queries(folder / "new.csv", 40, first=100)
    done = run("profile", "pool.toml", "train.csv", "--out", "profile.parquet", cwd=folder)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return folder


@pytest.fixture
def folder(story: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(story, tmp_path / "user"))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"__pycache__"}


CHAT = (
    'classes = ["a", "b"]\n[classifiers.x]\nkind = "openai"\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
    'key_env = "LIVE_KEY"\ncost = 1\nretries = 1\n'
)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("profile", "none.toml", "train.csv"), "none.toml: no such file"),
        (("profile", "pool.toml", "none.csv"), "none.csv: there is no such file"),
        (("profile", "pool.toml", "train.csv", "--label", "language"), "no column 'language', only id, text, label"),
        (("profile", "pool.toml", "train.csv", "--query", "words"), "no column 'words', only id, text, label"),
        (("profile", "pool.toml", "plain.csv"), "it has no labels"),
        (("profile", "pool.toml", "other.csv"), "pool.toml, line 1: label 'c' of the data is none of the 2 classes"),
        (("profile", "pool.toml", "train.csv", "--extractor", "y"), "unknown extractor 'y': use one of fair, x"),
        (("profile", "pool.toml", "train.csv", "--out", "x.csv"), "--out must end in .parquet"),
        (("profile", "pool.toml", "train.csv", "--out", "no/x.parquet"), "the folder no does not exist"),
        (("profile", "pool.toml", "train.csv", "--budget", "-1"), "budget must be a finite number"),
        (("profile", "kind.toml", "train.csv"), "kind.toml, line 3: unknown kind of classifier 'magic'"),
        (("profile", "pickle.toml", "train.csv"), "pickle.toml, line 4: classifier 'x': "),
        (("profile", "chat.toml", "train.csv"), "'LIVE_KEY', which is not set"),
        (("classify", "pool.toml", "none.parquet", "new.csv", "--budget", "99"), "there is no such file"),
        (("classify", "pool.toml", "profile.parquet", "none.csv", "--budget", "99"), "there is no such file"),
        (("classify", "pool.toml", "profile.parquet", "new.csv", "--budget", "lots"), "budget must be a finite"),
        (("classify", "pool.toml", "profile.parquet", "new.csv", "--budget", "99", "--out", "a.txt"), "--out must"),
        (("classify", "third.toml", "profile.parquet", "new.csv", "--budget", "99"), "is not in the profile"),
        (("classify", "classes.toml", "profile.parquet", "new.csv", "--budget", "99"), "none of the 2 classes"),
        (("classify", "pool.toml", "profile.parquet", "twice.csv", "--budget", "99"), "ids must differ"),
        (("execute", "profile.parquet", "pool.toml", "new.csv"), "it holds a profile, a plan is needed"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence_and_no_file(words: tuple[str, ...], sentence: str, folder: Path) -> None:
    """No traceback, nothing written, nothing called, and the exit code of its kind."""
    (folder / "plain.csv").write_text("text\nhi\n")
    (folder / "other.csv").write_text("text,label\nhi,c\n")
    (folder / "twice.csv").write_text("id,text\n1,a\n1,b\n")
    (folder / "kind.toml").write_text('classes = ["a", "b"]\n[classifiers.x]\nkind = "magic"\ncost = 1\n')
    (folder / "pickle.toml").write_text(
        'classes = ["a", "b"]\n[classifiers.x]\nkind = "sklearn"\npath = "model.pkl"\ncost = 1\n'
    )
    (folder / "model.pkl").write_bytes(b"\x80\x04cos\nsystem\n(S'touch called'\ntR.")
    (folder / "chat.toml").write_text(CHAT)
    (folder / "third.toml").write_text(pool_text("good").replace("[classifiers.x]", "[classifiers.y]"))
    (folder / "classes.toml").write_text(pool_text("good").replace('["a", "b"]', '["a", "c"]'))
    before = names(folder)
    refused(run(*words, cwd=folder), sentence)
    assert names(folder) == before


def test_a_budget_that_was_too_small_can_be_raised(folder: Path) -> None:
    """The refusal leaves no journal behind that the same command with more money would stumble over."""
    words = ("classify", "pool.toml", "profile.parquet", "new.csv", "--label", "label", "--json", "--budget")
    before = names(folder)
    refused(run(*words, 39, cwd=folder), "is too small: answering every query takes at least 40", 3)
    assert names(folder) == before
    done = run(*words, 40, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answered"] == 40


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("wide", "'x' must give probabilities of shape (16, 2), got (16, 3)"),
        ("short", "'x' must give probabilities of shape (16, 2), got (15, 2)"),
        ("nan", "'x' gives no answers: probabilities that are NaN, infinite, negative or all zero"),
        ("raising", "'x' gives no answers: RuntimeError: out of order"),
        ("leaving", "'x' gives no answers: SystemExit: 0"),
    ],
)
def test_a_classifier_that_never_answers(function: str, sentence: str, folder: Path) -> None:
    """Profiling says whose fault it is and writes no profile; what others answered is kept in the journal."""
    (folder / "bad.toml").write_text(pool_text(function))
    before = names(folder)
    refused(run("profile", "bad.toml", "train.csv", "--out", "bad.parquet", cwd=folder), sentence)
    assert names(folder) == before | {"bad.parquet.journal"}


def test_a_run_without_answers_is_an_error(folder: Path) -> None:
    """Exit code 2 and one sentence that says whose fault it is; no file of empty answers is written."""
    (folder / "rules.py").write_text(MODULE + "\nfair = good = raising\n")
    words = (
        "classify",
        "pool.toml",
        "profile.parquet",
        "new.csv",
        "--label",
        "label",
        "--budget",
        60,
        "--out",
        "no.csv",
    )
    done = run(*words, cwd=folder)
    refused(done, "none of the 40 queries was answered")
    assert "RuntimeError: out of order" in done.stderr
    assert not (folder / "no.csv").exists()


def test_classifiers_that_sometimes_answer(folder: Path) -> None:
    """Queries without an answer are failures with a reason; everything else goes on, in profiles and in runs."""
    (folder / "bad.toml").write_text(
        pool_text("sometimes_nan")
        + '[classifiers.y]\nkind = "callable"\nfunction = "rules:sometimes_raising"\ncost = 1.5\n'
    )
    words = ("profile", "bad.toml", "train.csv", "--out", "bad.parquet", "--extractor", "fair", "--json")
    profiled = run(*words, cwd=folder)
    assert profiled.returncode == 0, profiled.stderr
    found = json.loads(profiled.stdout)
    assert found["n_queries"] == 80
    sevens = {f"q{number}" for number in range(80) if "7" in str(number)}
    for name, reason in (("x", "probabilities that are NaN"), ("y", "RuntimeError: no sevens")):
        assert set(found["failures"][name]) == sevens
        assert all(said.startswith(reason) for said in found["failures"][name].values())
    done = run(
        "classify", "bad.toml", "bad.parquet", "new.csv", "--budget", 160, "--out", "a.csv", "--json", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["answered"] == 40  # the one that never fails answers what the others do not
    assert summary["spent"] <= 160
    with (folder / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["classifier"] for row in rows if "7" in row["id"]} == {"fair"}
    assert {row["answer"] for row in rows} <= {"a", "b"}


def test_an_unreachable_host_and_a_secret(folder: Path) -> None:
    """Nobody is there: one sentence soon, and the key is in no output and no file."""
    (folder / "chat.toml").write_text(CHAT)
    started = time.monotonic()
    done = run("profile", "chat.toml", "train.csv", "--out", "chat.parquet", cwd=folder, LIVE_KEY=KEY)
    refused(done, "'x' has no connection to http://127.0.0.1:9/v1")
    assert time.monotonic() - started < 30
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert folder / "chat.parquet.journal" in written
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
    assert KEY not in done.stdout + done.stderr
    checked = run("pool", "check", "chat.toml", "--json", cwd=folder, LIVE_KEY=KEY)
    assert checked.returncode == 0
    assert KEY not in checked.stdout + checked.stderr


def called(folder: Path) -> Counter[str]:
    """How often the slow classifier was asked each query."""
    path = folder / "calls.txt"
    return Counter(path.read_text().split() if path.exists() else ())


def wait_for_calls(folder: Path, started: subprocess.Popen[str], number: int) -> None:
    until = time.monotonic() + 60
    while called(folder).total() < number:
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_dry_run_buys_nothing(folder: Path) -> None:
    """The plan and the bill, no call, no file."""
    (folder / "slow.toml").write_text(pool_text("slow"))
    before = names(folder)
    words = ("classify", "slow.toml", "profile.parquet", "new.csv", "--budget", 120, "--dry-run")
    done = run(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "bill" in done.stdout
    assert done.stdout.rstrip().endswith("nothing was bought")
    assert names(folder) == before


@pytest.mark.parametrize("way", ["SIGINT", "SIGKILL"])
def test_an_interrupted_profile_goes_on(way: str, folder: Path) -> None:
    """The profile is the uninterrupted one's, and only what was under way when it was killed is asked again."""
    (folder / "slow.toml").write_text(pool_text("slow", batch_size=4))
    words = ("profile", "slow.toml", "train.csv", "--out", "slow.parquet", "--json")
    with start(*words, cwd=folder) as started:
        wait_for_calls(folder, started, 12)
        started.send_signal(getattr(signal, way))
        stdout, stderr = started.communicate(timeout=60)
    assert stdout == ""
    assert "slow.parquet" not in names(folder)
    if way == "SIGINT":
        assert started.returncode == 130
        assert stderr == "occamroute: interrupted; the same command goes on where this one stopped.\n"
    else:
        assert started.returncode == -signal.SIGKILL
    before = called(folder)
    assert 12 <= before.total() < 80
    under_way = unfinished(folder, "slow.parquet.journal", "x")
    done = run(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    after = called(folder)
    assert len(after) == 80
    repeated = {query for query, times in after.items() if times > 1}
    assert repeated <= under_way
    assert len(under_way) <= (0 if way == "SIGINT" else 44)
    assert json.loads(done.stdout)["fingerprint"] == whole_fingerprint(folder)
    assert not list(folder.glob("slow.parquet.*"))


def unfinished(folder: Path, journal: str, source: str) -> set[str]:
    """The queries of calls that the journal says were made and not ended."""
    copy = folder / "copy"
    copy.mkdir()
    for path in folder.glob(f"{journal}*"):
        shutil.copy(path, copy)
    base = sqlite3.connect(copy / journal)
    rows = [
        row
        for (content,) in base.execute("SELECT queries FROM calls WHERE charged IS NULL AND source = ?", (source,))
        for row in np.frombuffer(content, np.int64).tolist()
    ]
    base.close()
    shutil.rmtree(copy)
    return {f"t{row}{'ab'[row % 2]}" for row in rows}


def whole_fingerprint(folder: Path) -> str:
    """The fingerprint of the same profile made without an interruption, by a classifier that answers the same."""
    (folder / "quick.toml").write_text(pool_text("good", batch_size=4))
    done = run("profile", "quick.toml", "train.csv", "--out", "quick.parquet", "--json", cwd=folder)
    return str(json.loads(done.stdout)["fingerprint"])


def test_an_interrupted_run_goes_on(folder: Path) -> None:
    """SIGTERM while answers are bought, a second process meanwhile, and the same command again."""
    (folder / "slow.toml").write_text(pool_text("slow", batch_size=2))
    words = ("classify", "slow.toml", "profile.parquet", "new.csv", "--budget", 120, "--json", "--out", "slow.csv")
    with start(*words, cwd=folder) as started:
        wait_for_calls(folder, started, 4)
        started.send_signal(signal.SIGSTOP)  # or it might be done before the other has begun
        refused(run(*words, cwd=folder), "another process is writing it")
        started.send_signal(signal.SIGTERM)
        started.send_signal(signal.SIGCONT)
        stdout, stderr = started.communicate(timeout=60)
    assert (started.returncode, stdout) == (128 + signal.SIGTERM, "")
    assert stderr == "occamroute: interrupted; the same command goes on where this one stopped.\n"
    assert "slow.csv" not in names(folder)
    done = run(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["answered"], summary["lost"]) == (40, 0)
    assert max(called(folder).values()) == 1
    (folder / "slow.toml").write_text(pool_text("good", batch_size=2))
    whole = run(*words[:-1], "whole.csv", cwd=folder)
    assert whole.returncode == 0, whole.stderr
    assert json.loads(whole.stdout)["spent"] == summary["spent"]
    assert (folder / "whole.csv").read_text() == (folder / "slow.csv").read_text()


def test_a_journal_of_another_run(folder: Path) -> None:
    """Another profile, price, order or budget: the journal is refused, said which, and left as it is."""
    words: tuple[object, ...] = (
        "classify", "pool.toml", "profile.parquet", "new.csv", "--budget", 99, "--out", "a.csv",
    )  # fmt: skip
    assert run(*words, cwd=folder).returncode == 0
    journal = (folder / "a.csv.journal").read_bytes()
    rows = (folder / "new.csv").read_text().splitlines()
    (folder / "turned.csv").write_text("\n".join([rows[0], *reversed(rows[1:])]) + "\n")
    (folder / "dear.toml").write_text(pool_text("good", cost="2.5"))
    made = run("profile", "pool.toml", "new.csv", "--out", "other.parquet", cwd=folder)
    assert made.returncode == 0, made.stderr
    for place, word, sentence in [
        (2, "other.parquet", "it was begun with another profile"),
        (1, "dear.toml", "it was begun with another price list"),
        (3, "turned.csv", "it was begun with another queries"),
        (5, 100, "it was begun with another budget (99, now 100)"),
    ]:
        other = list(words)
        other[place] = word
        done = run(*other, cwd=folder)
        refused(done, f"cannot go on with the journal a.csv.journal: {sentence}")
        assert "name another journal, or remove this one to begin anew" in done.stderr
    assert (folder / "a.csv.journal").read_bytes() == journal
    (folder / "a.csv.journal").write_text("hello" * 1000)
    refused(run(*words, cwd=folder), "it is no journal of occamroute, or it is damaged")
