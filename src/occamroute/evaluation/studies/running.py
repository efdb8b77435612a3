"""Runs studies and writes each one's files as soon as it is finished; what is there already is not done again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import occamroute
from occamroute._version import __version__
from occamroute.errors import InvalidInputError
from occamroute.evaluation.source_hashes import hash_of, source_files
from occamroute.evaluation.studies.base import Result, Row, Study
from occamroute.evaluation.studies.bench import Bench
from occamroute.evaluation.studies.subjects import Subject
from occamroute.storage import whole_file
from occamroute.tables import write_csv

__all__ = ["MEASURED", "Record", "about", "kept_record", "run_studies", "stamp"]

Progress = Callable[[int, int], None]
# The modules that studies measure: results made with other code are made again.
MEASURED = (
    "_arrays.py", "_intervals.py", "_money.py", "estimation", "evaluation/baselines.py", "evaluation/comparing.py",
    "evaluation/resampling.py", "evaluation/scoring.py", "evaluation/studies", "knapsack", "neighbors",
    "planning/candidates.py", "planning/choosing.py", "planning/combining.py", "planning/estimates.py",
    "planning/fitting.py", "planning/held_out.py", "planning/members.py", "planning/plans.py", "profiles.py",
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """What is kept of a finished study: findings by portfolio, why others were left out, and its files.

    ``stamp`` says what it was made from; ``kept`` that it was there already.
    """

    name: str
    stamp: dict[str, Any]
    findings: dict[str, str]
    left_out: dict[str, str]
    tables: tuple[str, ...]
    charts: tuple[str, ...]
    seconds: float
    kept: bool = field(default=False, compare=False)


def stamp(subjects: Sequence[Subject], *, seed: int, quick: bool) -> dict[str, Any]:
    """What results depend on: the version and the source of what is measured, the seed, the sizes and the data."""
    data = {subject.name: subject.fingerprint for subject in subjects}
    package = Path(occamroute.__file__).parent
    source = hash_of({path: content for module in MEASURED for path, content in source_files(package, module).items()})
    return {"version": __version__, "source": source, "seed": seed, "quick": quick, "data": data}


def about(bench: Bench) -> dict[str, Any]:
    """What was studied, for the page."""
    return {
        "title": bench.subject.title,
        "classifiers": len(bench.profile.names),
        "labelled_rows": len(bench.profile),
        "queries": len(bench.test),
        "extractor": bench.extractor,
        "forest_rows": bench.forest_rows(bench.extractor),
    }


def kept_record(folder: Path, name: str, wanted: Mapping[str, Any]) -> Record | None:
    """The record of a study that was finished before for the same stamp and has all its files, if there is one."""
    try:
        content = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        record = Record(**content | {key: tuple(content[key]) for key in ("tables", "charts")})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    files = (*record.tables, *record.charts)
    if record.stamp != wanted or not all((folder / file).is_file() for file in files):
        return None
    return replace(record, kept=True)


def run_studies(
    studies: Sequence[Study],
    benches: Sequence[Bench],
    folder: Path,
    *,
    fresh: bool = False,
    progress: Progress | None = None,
) -> list[Record]:
    """The records of the studies, in their order; files of a study are written when it is finished."""
    if not folder.parent.is_dir():
        raise InvalidInputError(f"cannot write {folder}: the folder {folder.parent} does not exist.")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"cannot write {folder}: {error.strerror}.") from error
    first = benches[0]
    mark = stamp([bench.subject for bench in benches], seed=first.seed, quick=first.quick)
    records = []
    for number, study in enumerate(studies):
        record = None if fresh else kept_record(folder, study.name, mark)
        records.append(record or _run(study, benches, folder, mark))
        if progress is not None:
            progress(number + 1, len(studies))
    return records


def _run(study: Study, benches: Sequence[Bench], folder: Path, mark: dict[str, Any]) -> Record:
    start = time.perf_counter()
    results: dict[str, Result] = {}
    titles, left_out = {}, {}
    for bench in benches:
        reason = study.lacks(bench.subject)
        if reason is not None:
            left_out[bench.subject.title] = reason
            continue
        results[bench.subject.name] = study.run(bench)
        titles[bench.subject.name] = bench.subject.title
    stems = dict.fromkeys(stem for result in results.values() for stem in result.tables)
    tables = []
    for stem in stems:
        rows = [{"data": name} | dict(row) for name, result in results.items() for row in result.tables.get(stem, ())]
        if rows:
            tables.append(f"{stem}.csv")
            write_csv(_columns(rows), folder / tables[-1])
    charts = []
    for name, result in results.items():
        for stem, picture in result.charts.items():
            charts.append(f"{stem}-{name}.svg")
            with whole_file(folder / charts[-1]) as temporary:
                temporary.write_text(picture, encoding="utf-8")
    findings = {titles[name]: result.finding for name, result in results.items()}
    seconds = time.perf_counter() - start
    record = Record(study.name, mark, findings, left_out, tuple(tables), tuple(charts), seconds)
    content = asdict(record)
    del content["kept"]
    with whole_file(folder / f"{study.name}.json") as temporary:
        temporary.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return record


def _columns(rows: Sequence[Row]) -> dict[str, Any]:
    """Columns with every name that any row has; what a row lacks stays empty."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name) for row in rows], dtype=object) for name in names}
