"""occamroute study: the paper's tables and figures on its data sets, or on any profile."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from occamroute.cli._inputs import Json, Seed, load_profile
from occamroute.cli._screen import print_json, print_table, progress_bar

if TYPE_CHECKING:
    from occamroute.evaluation.studies.base import Study
    from occamroute.evaluation.studies.running import Record
    from occamroute.evaluation.studies.subjects import Subject

__all__ = ["study"]


def study(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="all, or names of studies; list shows them.")],
    data: Annotated[
        str | None, typer.Option(help="A folder with cifar10.npz and tiny_imagenet.npz; what is there is studied.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="A saved profile of your own instead; without either, the shipped cifar10.")
    ] = None,
    test: Annotated[
        str | None, typer.Option(help="A saved profile to judge on; without it half of --profile is set aside.")
    ] = None,
    out: Annotated[str, typer.Option(help="The folder for tables, charts and the page.")] = "occamroute-study",
    quick: Annotated[bool, typer.Option("--quick", help="Few rows and settings: a first look.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do everything again, also what is there already.")] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Make the paper's tables and figures again: numbers (CSV), charts (SVG), and a page that compares in words."""
    from occamroute.evaluation.studies import STUDIES, find_studies
    from occamroute.evaluation.studies.bench import Bench
    from occamroute.evaluation.studies.running import about, kept_record, run_studies, stamp
    from occamroute.reporting.study_page import study_page
    from occamroute.storage import whole_file

    if names == ["list"]:
        _list(find_studies(["all"]), as_json=as_json)
        return
    wanted = find_studies(names)
    subjects = _subjects(data, profile, test, seed)
    benches = [Bench(subject, seed, quick) for subject in subjects]
    folder = Path(out)
    with progress_bar(f"{len(wanted)} studies") as progress:
        records = run_studies(wanted, benches, folder, fresh=fresh, progress=progress)
    mark = stamp(subjects, seed=seed, quick=quick)
    known = {name: record for name in STUDIES if (record := kept_record(folder, name, mark)) is not None}
    page = study_page(find_studies(["all"]), known, [about(bench) for bench in benches], folder)
    with whole_file(folder / "index.html") as temporary:
        temporary.write_text(page, encoding="utf-8")
    if as_json:
        print_json([asdict(record) for record in records])
    else:
        _show(wanted, records, folder)


def _subjects(data: str | None, profile: str | None, test: str | None, seed: int) -> list[Subject]:
    from occamroute.datasets import DATASETS
    from occamroute.errors import InvalidInputError
    from occamroute.evaluation.studies.subjects import from_folder, from_profile, shipped

    if data is not None and profile is not None:
        raise InvalidInputError("give --data or --profile, not both.")
    if test is not None and profile is None:
        raise InvalidInputError("--test needs --profile.")
    if data is not None:
        return from_folder(Path(data))
    if profile is None or (profile in DATASETS and test is None and not Path(profile).exists()):
        return [shipped()]
    judged = None if test is None else load_profile(test)
    return [from_profile(load_profile(profile), judged, name=Path(profile).stem, seed=seed)]


def _list(studies: list[Study], *, as_json: bool) -> None:
    from occamroute.cli._screen import table

    if as_json:
        print_json([{"name": one.name, "title": one.title, "paper": one.places} for one in studies])
        return
    rows = table("<name", "<what it shows", "<in the paper")
    for one in studies:
        rows.add_row(one.name, one.title, one.places)
    print_table(rows)


def _show(studies: list[Study], records: list[Record], folder: Path) -> None:
    for one, record in zip(studies, records, strict=True):
        took = "there already" if record.kept else f"{record.seconds:.1f} s"
        print_table(f"{one.title} ({one.places}; {took})")
        for title, finding in record.findings.items():
            print_table(f"  {title}: {finding}")
        for title, reason in record.left_out.items():
            print_table(f"  {title}: left out, {reason}")
    print_table(f"page with all charts: {(folder / 'index.html').resolve()}")
