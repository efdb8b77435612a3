"""auto beside every baseline on CIFAR-10 and Tiny ImageNet: each extractor alone, and all of them offered.

    python benchmarks/auto.py --data DIR [--out FILE.csv] [--only NAME] [--without METHOD]

DIR holds ``cifar10.npz`` and ``tiny_imagenet.npz``. For each portfolio it prints accuracy by budget, how far auto is
below the best baseline at its worst budget, and its lead over each baseline's mean over the budgets that all can pay.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import occamroute as oc
from occamroute.evaluation.comparing import DEFAULT_METHODS
from occamroute.evaluation.studies.subjects import from_folder
from occamroute.tables import write_csv

SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)


def portfolios(folder: Path) -> Iterator[tuple[str, oc.Profile, oc.Profile]]:
    """Each data set with one extractor at a time, then with all; answers combined only where the name says so."""
    for subject in from_folder(folder):
        profile, test = subject.profile, subject.test
        sets = profile.feature_sets
        for name in sets:
            yield f"{subject.name}, {name}", _only(profile, name), _only(test, name)
        yield f"{subject.name}, all", replace(profile, probabilities=None), replace(test, probabilities=None)
        yield f"{subject.name}, all, combined", profile, test


def _only(profile: oc.Profile, name: str) -> oc.Profile:
    return replace(
        profile,
        features={name: profile.feature_sets[name]},
        extractor=None,
        extractor_cost={name: profile.extraction_costs[name]},
        probabilities=None,
    )


def study(name: str, profile: oc.Profile, test: oc.Profile, without: str) -> list[dict[str, object]]:
    """Compare, print, and give the rows."""
    full = float(profile.mean_costs.max()) * len(test)
    started = time.perf_counter()
    methods = [method for method in DEFAULT_METHODS if method != without]
    report = oc.compare(profile, test, budgets=[share * full for share in SHARES], methods=methods)
    print(f"\n{name}: {time.perf_counter() - started:.0f} s, auto {report.about['seconds']['auto']:.0f} s")
    for method in report.methods:
        found = {round(row["budget_share"], 6): row["accuracy"] for row in report.of(method)}
        cells = " ".join(f"{100 * found[share]:6.2f}" if share in found else " " * 6 for share in SHARES)
        print(f"  {method:20} {cells}")
    baselines = [method for method in report.methods if method not in ("auto", "oracle")]
    reached = {row["budget"]: row["accuracy"] for row in report.of("auto")}
    worst = max(row["accuracy"] - reached[row["budget"]] for method in baselines for row in report.of(method))
    print(f"  below the best baseline at worst by {100 * worst:.2f} points")
    for method in baselines:
        rows = report.of(method)
        lead = np.mean([reached[row["budget"]] - row["accuracy"] for row in rows])
        print(f"  above {method:20} by {100 * lead:6.2f} points on the average of its {len(rows)} budgets")
    promised = [row["expected_accuracy"] - row["accuracy"] for row in report.of("auto")]
    covered = [
        row["accuracy_interval"][0] <= row["accuracy"] <= row["accuracy_interval"][1] for row in report.of("auto")
    ]
    print(
        f"  promised less reached: {100 * np.mean(promised):+.2f} points; "
        f"inside the interval {sum(covered)}/{len(covered)}"
    )
    for row in report.of("auto"):
        print(f"    {row['budget_share']:.3g}: {row['chosen'][:150]}")
    return [{"portfolio": name, **row} for row in report.rows]


def main() -> None:
    """Run every portfolio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--without", default="", help="a method to leave out: forest takes minutes on 200 features")
    given = parser.parse_args()
    rows = [row for one in portfolios(given.data) if given.only in one[0] for row in study(*one, given.without)]
    if given.out is not None:
        columns = ("portfolio", "method", "budget_share", "accuracy", "cost_share", "difference", "expected_accuracy")
        write_csv({name: np.array([row[name] for row in rows]) for name in columns}, given.out)


if __name__ == "__main__":
    main()
