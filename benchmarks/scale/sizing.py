"""What a million queries take, in seconds and memory, against classifiers, profile rows and dimensions.

    python benchmarks/scale/sizing.py [--out benchmarks/scale]

Every line is two plans from folders of Parquet files by the command line, for few queries and for more, each in a
process of its own: their difference is what further queries take, without the start. Features are drawn from 50
clusters; success depends on them. Seconds are of processors, all cores together, so that other work on the machine
counts little.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import occamroute as oc


class Case(NamedTuple):
    """One line of the table."""

    estimator: str
    queries: int
    classifiers: int
    profile_rows: int
    dimensions: int


BASE = Case("sampled", 400_000, 8, 20_000, 10)


def cases() -> Iterator[Case]:
    """One thing at a time is changed."""
    yield BASE
    yield from (BASE._replace(queries=queries) for queries in (100_000, 1_600_000))
    yield from (BASE._replace(classifiers=classifiers) for classifiers in (2, 32))
    yield from (BASE._replace(profile_rows=rows) for rows in (5_000, 80_000))
    yield from (BASE._replace(dimensions=width, queries=queries) for width, queries in ((64, 100_000), (512, 20_000)))
    yield BASE._replace(estimator="mixture")
    yield BASE._replace(estimator="bagged", queries=100_000)
    yield BASE._replace(estimator="bagged", queries=20_000, dimensions=512)


def drawn(case: Case, rows: int, seed: int) -> tuple[Any, Any]:
    """Features (rows, d) near 50 centres, and success (rows, M) that depends on the centre."""
    fixed = np.random.default_rng(0)
    centres = fixed.normal(size=(50, case.dimensions))
    rates = np.sort(fixed.uniform(0.2, 0.99, (50, case.classifiers)), axis=1)
    random = np.random.default_rng(seed)
    which = random.integers(0, 50, rows)
    features = centres[which] + 0.5 * random.normal(size=(rows, case.dimensions))
    return features.astype(np.float32), random.uniform(size=(rows, case.classifiers)) < rates[which]


def prepare(case: Case, folder: Path) -> None:
    """A profile, and a folder of queries."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    features, success = drawn(case, case.profile_rows, 1)
    names = tuple(f"classifier-{number}" for number in range(case.classifiers))
    costs = np.round(np.geomspace(0.01, 1.0, case.classifiers), 4)
    profile = oc.Profile(names, costs, {"net": features}, success.astype(float), extractor_cost={"net": 0})
    oc.save(profile, folder / "profile.parquet")
    for part, rows in (("few", case.queries // 4), ("more", case.queries)):
        (folder / part).mkdir()
        for number in range(-(-rows // 200_000)):
            here = min(200_000, rows - 200_000 * number)
            table, _ = drawn(case, here, 2 + number)
            column = pa.FixedSizeListArray.from_arrays(pa.array(table.reshape(-1)), case.dimensions)
            pq.write_table(
                pa.table({"features:net": column}), folder / part / f"{number}.parquet", row_group_size=50_000
            )


def timed(case: Case, folder: Path, part: str) -> tuple[float, float]:
    """Seconds of processors and resident gigabytes of one plan."""
    rows = case.queries // 4 if part == "few" else case.queries
    shutil.rmtree(folder / "plan", ignore_errors=True)
    options = ["--estimator", case.estimator, "--budget", str(0.2 * rows), "--out", str(folder / "plan")]
    words = ["-m", "occamroute", "plan", str(folder / "profile.parquet"), str(folder / part), *options]
    child = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{case} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e9


def measured(case: Case, folder: Path) -> dict[str, Any]:
    """What further queries take."""
    prepare(case, folder)
    timed(case, folder, "few")  # the kernels are compiled by now
    few, _ = timed(case, folder, "few")
    more, resident = timed(case, folder, "more")
    a_million = (more - few) / (0.75 * case.queries) * 1e6
    return {**case._asdict(), "processor_seconds": more, "a_million": a_million, "resident_gb": resident}


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="occamroute-sizing-") as folder:
        for case in cases():
            rows.append(measured(case, Path(folder) / "case"))
            print(rows[-1], flush=True)
    write_results(options.out, rows)


def write_results(out: Path, rows: list[dict[str, Any]]) -> None:
    """The table, for people and for programs."""
    about = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "rows": rows}
    (out / "sizing.json").write_text(json.dumps(about, indent=2) + "\n")
    lines = [
        "# What a million queries take",
        "",
        f"`benchmarks/scale/sizing.py`, {about['cores']} cores; processor seconds (all cores together) of estimating, "
        "planning and writing, without the start.",
        "",
        "| estimator | queries | classifiers | profile rows | dimensions | seconds a million | resident, GB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row['estimator']} | {row['queries']:,} | {row['classifiers']} | {row['profile_rows']:,} | "
        f"{row['dimensions']} | {row['a_million']:.1f} | {row['resident_gb']:.2f} |"
        for row in rows
    ]
    (out / "sizing.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
