"""Plans for folders of Parquet files: time, memory and the certificate, from 1 to 20 million queries.

    python benchmarks/scale/out_of_core.py [--millions 1 5 20] [--folder WHERE] [--out benchmarks/scale]

The profile is the shipped one of CIFAR-10 (20,000 rows, seven networks, and an eighth that is the mean of two), the
queries are its test queries drawn again with a little noise. Each plan is made by the command line in a process of its
own with 6 GB of address space; what it took is asked of the system. Ratios count: the machine may have other work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import occamroute as oc

ADDRESS_SPACE = 6 * 10**9
ROWS_A_FILE = 1_000_000
SHARE = 0.2


def eight_classifiers() -> tuple[oc.Profile, oc.Profile]:
    """The shipped profiles with one more classifier."""
    made = []
    for one in oc.load_dataset("cifar10"):
        success = np.column_stack([one.success, one.success[:, 2:4].mean(axis=1)])
        costs = np.append(one.mean_costs, one.mean_costs[2:4].mean())
        made.append(oc.Profile((*one.names, "two-nets"), costs, one.features, success, extractor=one.extractor))
    return made[0], made[1]


def write_queries(folder: Path, test: oc.Profile, rows: int) -> None:
    """Files of a million rows each: features of test queries drawn again, with some noise."""
    folder.mkdir(parents=True, exist_ok=True)
    table = np.asarray(test.features)
    for number in range(-(-rows // ROWS_A_FILE)):
        file = folder / f"queries-{number:03d}.parquet"
        if file.exists():
            continue
        random = np.random.default_rng(number)
        here = min(ROWS_A_FILE, rows - number * ROWS_A_FILE)
        features = table[random.integers(0, len(table), here)] * random.uniform(0.97, 1.03, (here, table.shape[1]))
        column = pa.FixedSizeListArray.from_arrays(pa.array(features.astype(np.float32).reshape(-1)), table.shape[1])
        ids = pa.array(np.arange(here) + number * ROWS_A_FILE).cast(pa.string())
        pq.write_table(pa.table({"id": ids, "features": column}), file.with_suffix(".new"), row_group_size=250_000)
        file.with_suffix(".new").replace(file)


class Taken(NamedTuple):
    """What a command took: seconds on the clock and of processors, the most resident bytes; and what it said."""

    seconds: float
    processor_seconds: float
    resident: int
    said: str


def in_limits(arguments: list[str]) -> Taken:
    """What a command takes that may not have more address space than the limit."""
    read, write = os.pipe()
    begun = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        os.execv(sys.executable, [sys.executable, "-m", "occamroute", *arguments])  # noqa: S606
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    _, status, usage = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{' '.join(arguments)} failed")
    return Taken(time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, said)


def measured(folder: Path, profile: oc.Profile, test: oc.Profile, millions: float) -> dict[str, Any]:
    """What one plan takes."""
    rows = int(millions * 1_000_000)
    queries, plan = folder / f"queries-{millions:g}", folder / f"plan-{millions:g}"
    write_queries(queries, test, rows)
    shutil.rmtree(plan, ignore_errors=True)
    budget = f"{SHARE * float(profile.mean_costs.max()) * rows:.12g}"
    options = ["--estimator", "sampled", "--budget", budget, "--out", str(plan), "--json"]
    planning = in_limits(["plan", str(folder / "profile.parquet"), str(queries), *options])
    checking = in_limits(["verify", str(plan), "--json"])
    shutil.rmtree(plan)
    return {
        "millions": millions,
        "seconds": planning.seconds,
        "processor_seconds": planning.processor_seconds,
        "processor_seconds_a_million": planning.processor_seconds / millions,
        "resident_gb": planning.resident / 1e9,
        "gap": json.loads(planning.said)["gap"],
        "verify_seconds": checking.seconds,
        "verify_resident_gb": checking.resident / 1e9,
    }


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 5, 20])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="occamroute-scale-"))
    folder.mkdir(parents=True, exist_ok=True)
    profile, test = eight_classifiers()
    oc.save(profile, folder / "profile.parquet")
    rows = []
    for millions in options.millions:
        rows.append(measured(folder, profile, test, millions))
        print(rows[-1], flush=True)
    write_results(options.out, rows)


def write_results(out: Path, rows: list[dict[str, Any]]) -> None:
    """The table, for people and for programs."""
    about = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "rows": rows}
    (out / "out_of_core.json").write_text(json.dumps(about, indent=2) + "\n")
    lines = [
        "# Plans larger than memory",
        "",
        f"`benchmarks/scale/out_of_core.py`: 8 classifiers, 10 features, 20,000 profile rows, estimator `sampled`, "
        f"{about['cores']} cores, {ADDRESS_SPACE / 1e9:g} GB of address space.",
        "",
        "| million queries | seconds | processor seconds | a million | resident, GB | gap | verify: seconds | GB |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row['millions']:g} | {row['seconds']:.0f} | {row['processor_seconds']:.0f} | "
        f"{row['processor_seconds_a_million']:.1f} | {row['resident_gb']:.2f} | "
        f"{row['gap']:.1e} | {row['verify_seconds']:.0f} | {row['verify_resident_gb']:.2f} |"
        for row in rows
    ]
    (out / "out_of_core.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
