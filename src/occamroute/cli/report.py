"""occamroute report: one page that a manager can read and an engineer can check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occamroute.cli._inputs import Json, load_profile
from occamroute.cli._screen import print_json, print_table

__all__ = ["report"]


def report(
    file: Annotated[
        str, typer.Argument(help="A saved comparison, plan, run, frontier or profile (.parquet, or the folder of one).")
    ],
    out: Annotated[
        str, typer.Option(help="Where to write it: .html (the page) or .svg (its first chart).")
    ] = "report.html",
    profile: Annotated[
        str | None,
        typer.Option(help="The saved profile it was made from (or cifar10): adds accuracies and the doctor's notes."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="For a run: a table with the queries' labels (by id, or in order) to judge answers by."),
    ] = None,
    label: Annotated[str, typer.Option(help="The column of that table with the labels.")] = "label",
    as_json: Json = False,
) -> None:
    """Write one self-contained page: what was saved, at what accuracy, how sure, and everything to check it by."""
    from datetime import UTC, datetime

    from occamroute.charts import WIDE
    from occamroute.data_files import read_data
    from occamroute.errors import InvalidInputError
    from occamroute.reporting.stories import Source, story_page
    from occamroute.reporting.telling import tell
    from occamroute.storage import load, whole_file

    kind = Path(out).suffix.lower()
    if kind not in (".html", ".svg"):
        raise InvalidInputError(f"--out must end in .html or .svg, got {out}.")
    noun = load(file)
    known = None if profile is None else load_profile(profile)
    # The labels alone are needed: whatever else the table holds is not read as queries.
    judge = None if labels is None else read_data(labels, query=label, label=label)
    source = Source(file, out, datetime.now(UTC), known, profile, judge, labels, label)
    with whole_file(out) as temporary:
        story = tell(noun, source)
        written = story.chart(WIDE) if kind == ".svg" else story_page(story, source)
        temporary.write_text(written, encoding="utf-8")
    if as_json:
        print_json({"out": out, **story.summary()})
        return
    print_table(story.title, f"{story.sentence} {story.aside}".rstrip())
    for warning in story.warnings:
        print_table(f"note: {warning}")
    print_table(f"written: {Path(out).resolve()}")
