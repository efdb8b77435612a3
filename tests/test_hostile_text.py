"""Names and ids that spreadsheets or terminals would obey: they are written so that nothing runs, and come back."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import occamroute as oc
from occamroute.cli import main
from occamroute.cli._app import app
from occamroute.cli._screen import print_json, print_table, table, visible
from occamroute.data_files import read_data
from occamroute.reporting.dashboard.subjects import _csv as dashboard_csv
from occamroute.tables import read_queries, write_csv

FORMULAS = ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"]
HARMLESS = ["plain", "-1.5", "+2e3", "a=b", "'quoted'", "'"]
TRICKY = ["'=1", "''-x", "'-1.5"]  # these begin with quotes themselves
IDS = [*FORMULAS, *HARMLESS, *TRICKY]


def columns() -> dict[str, np.ndarray]:
    return {"id": np.array(IDS), "x": np.linspace(-1.5, 1.5, len(IDS))}


@pytest.mark.parametrize("writer", ["file", "dashboard"])
def test_no_cell_of_text_is_a_formula(writer: str, tmp_path: Path) -> None:
    """Text that a spreadsheet would run has a single quote in front; numbers stay numbers."""
    path = tmp_path / "out.csv"
    write_csv(columns(), path)
    text = path.read_bytes().decode() if writer == "file" else dashboard_csv(columns()).decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
    cells = [row[0] for row in rows]
    assert cells[: len(FORMULAS)] == [f"'{formula}" for formula in FORMULAS]
    assert cells[len(FORMULAS) : -len(TRICKY)] == HARMLESS
    assert [float(row[1]) for row in rows] == columns()["x"].tolist()
    assert rows[0][1] == "-1.5"


def test_ids_labels_and_groups_come_back_from_csv(tmp_path: Path) -> None:
    """Exactly the quote that was added is taken away, by both readers."""
    write_csv(columns(), tmp_path / "q.csv")
    assert read_queries(tmp_path / "q.csv").ids == tuple(IDS)
    names = np.array(IDS)
    write_csv({"id": names, "label": names, "group": names, "x": columns()["x"]}, tmp_path / "d.csv")
    found = read_data(tmp_path / "d.csv")
    assert (found.ids, found.labels, found.groups) == (IDS, IDS, IDS)


def test_column_names_are_no_formulas_either(tmp_path: Path) -> None:
    """They hold names of classifiers."""
    write_csv({"=1+1": np.ones(1)}, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "'=1+1\n1.0\n"


HOSTILE = "\x1b]0;owned\x07[red]bold[/red] :cat: \x7f\x9b31m\u202egnp\u2066\r\n\x08x"
SHOWN = r"\x1b]0;owned\x07[red]bold[/red] :cat: \x7f\x9b31m\u202egnp\u2066\r\n\x08x"
OBEYED = [chr(code) for code in (*range(10), *range(11, 32), *range(127, 160), 0x202E, 0x2066)]


def hostile_profile() -> oc.Profile:
    random = np.random.default_rng(0)
    return oc.Profile((HOSTILE, "b"), (0.1, 1.0), random.random((40, 2)), random.random((40, 2)))


def test_terminals_are_shown_controls_and_markup_but_obey_none(capsys: pytest.CaptureFixture[str]) -> None:
    """In lines, cells, headings and titles."""
    rows = table("<" + HOSTILE, title=HOSTILE)
    rows.add_row(HOSTILE)
    print_table(HOSTILE, rows)
    written = capsys.readouterr().out
    assert written.count(SHOWN) == 4
    assert not [code for code in OBEYED if code in written]
    assert visible("ü ✓ 日本 λ\\x1b") == "ü ✓ 日本 λ\\x1b"


def test_json_is_ascii_without_controls(capsys: pytest.CaptureFixture[str]) -> None:
    """C0, DEL, C1 and bidi marks are escaped, and come back as they were."""
    print_json({HOSTILE: HOSTILE})
    written = capsys.readouterr().out
    assert json.loads(written) == {HOSTILE: HOSTILE}
    assert not [code for code in OBEYED if code in written]
    assert written.isascii()


def test_commands_print_hostile_names_literally(tmp_path: Path) -> None:
    """A classifier's name in a plan's table, and the same in a sentence."""
    oc.save(hostile_profile(), tmp_path / "p.parquet")
    called = ["plan", str(tmp_path / "p.parquet"), str(tmp_path / "p.parquet"), "--budget", "10"]
    run = CliRunner().invoke(app, [*called, "--estimator", "mixture"])
    assert run.exit_code == 0, run.output
    assert SHOWN in run.output
    assert not [code for code in OBEYED if code in run.output]


def test_errors_that_quote_files_are_one_harmless_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence on stderr may quote what a file holds."""
    (tmp_path / "q.csv").write_text(f'"id","a{HOSTILE}"\n1,x\n', "utf-8", newline="")
    oc.save(hostile_profile(), tmp_path / "p.parquet")
    words = ["report", "p.parquet", "--out", "p.html", "--labels", "q.csv", "--label", "truth"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["occamroute", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert (ended.value.code, told.count("\n")) == (2, 1)
    assert told == f"occamroute: cannot read q.csv: it has no column 'truth', only id, a{SHOWN}.\n"
