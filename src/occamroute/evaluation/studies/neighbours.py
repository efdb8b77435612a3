"""Nearest neighbours come closer, and estimates become better, as samples grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from occamroute._arrays import generator
from occamroute.charts import Series, line_chart
from occamroute.estimation import SampledNeighbors
from occamroute.evaluation.studies.base import Result, Row, Study, count_of, percent
from occamroute.evaluation.studies.bench import Bench
from occamroute.neighbors import METRICS, GroupIndex

__all__ = ["ESTIMATION_ERROR", "NEIGHBOUR_DISTANCE", "sample_sizes"]

SIZES = (10, 50, 100, 500, 1000, 5000, 10000)
QUERIES, SAMPLES = 1000, 5


def sample_sizes(bench: Bench) -> list[int]:
    """Sizes of a sample, up to half the rows."""
    sizes = bench.size(SIZES, (10, 50, 200))
    return [size for size in sizes if size <= len(bench.profile) // 2]


def _neighbour_distance(bench: Bench) -> Result:
    random = generator(bench.seed)
    chosen = random.permutation(len(bench.test))[: bench.size(QUERIES, 100)]
    rows: list[Row] = []
    for extractor, pool in bench.profile.feature_sets.items():
        queries = bench.test.feature_sets[extractor][chosen]
        for size in sample_sizes(bench):
            groups = np.stack([random.permutation(len(pool))[:size] for _ in range(SAMPLES)])
            for metric in METRICS:
                distances = GroupIndex(pool, groups, metric=metric).search(queries).distances
                rows.append({
                    "extractor": extractor, "metric": metric, "sample_size": size,
                    "mean_distance": float(distances.mean()), "median_distance": float(np.median(distances)),
                    "share_at_zero": float((distances == 0.0).mean()),
                })  # fmt: skip
    stem = "figure-07-neighbour-distance"
    return Result({stem: rows}, {f"{stem}-{name}": _distance_chart(bench, rows, name) for name in _extractors(rows)},
                  _distance_finding(rows))  # fmt: skip


def _extractors(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["extractor"] for row in rows))


def _distance_chart(bench: Bench, rows: Sequence[Row], extractor: str) -> str:
    series = []
    for metric in METRICS:
        mine = [row for row in rows if row["extractor"] == extractor and row["metric"] == metric]
        sizes, distances = [row["sample_size"] for row in mine], [row["mean_distance"] for row in mine]
        series.append(Series(metric, sizes, distances, points=True))
    return line_chart(
        series, title=f"Distance to the nearest neighbour against sample size, {extractor}, {bench.subject.title}",
        x_label="size of the sample s", y_label="mean distance to the nearest neighbour", log_x=True,
    )  # fmt: skip


def _distance_finding(rows: Sequence[Row]) -> str:
    text = []
    for extractor in _extractors(rows):
        mine = [row for row in rows if row["extractor"] == extractor]
        low, high = min(row["sample_size"] for row in mine), max(row["sample_size"] for row in mine)
        by = {(row["metric"], row["sample_size"]): row["mean_distance"] for row in mine}
        text.append(
            f"from s = {low:,} to {high:,} the mean l∞ distance falls from {by['linf', low]:.3g} to "
            f"{by['linf', high]:.3g} "
            f"on {extractor}'s features"
        )
    sizes = {(row["extractor"], row["sample_size"]) for row in rows}
    table = {(row["extractor"], row["sample_size"], row["metric"]): row["mean_distance"] for row in rows}
    ordered = [table[(*key, "linf")] <= table[(*key, "l2")] <= table[(*key, "l1")] for key in sizes]
    left = min(row["mean_distance"] for row in rows if row["sample_size"] == max(s for _, s in sizes))
    return (
        f"{'; '.join(text)[:1].upper()}{'; '.join(text)[1:]}. l∞ ≤ l2 ≤ l1 holds in {count_of(ordered, 'cases')}, as "
        "it "
        f"must for any two points; it says nothing about which metric estimates better. Even the largest sample leaves "
        f"a mean distance of {left:.3g}."
    )


def _estimation_error(bench: Bench) -> Result:
    test = bench.test
    chosen = generator(bench.seed).permutation(len(test))[: bench.size(2000, 150)]
    truth = test.success[chosen]
    rows: list[Row] = []
    extractors = list(bench.profile.feature_sets)
    for extractor in extractors:
        for size in sample_sizes(bench):
            fitted = SampledNeighbors(40, size, independent=True, seed=bench.seed)
            fitted.fit(bench.profile.feature_sets[extractor], bench.profile.success)
            found = fitted.predict(test.feature_sets[extractor][chosen])
            rows += [
                {"extractor": extractor, "sample_size": size, "classifier": name,
                 "mean_absolute_error": float(np.abs(found[:, column] - truth[:, column]).mean()),
                 "root_mean_squared_error": float(np.sqrt(((found[:, column] - truth[:, column]) ** 2).mean())),
                 "error_of_overall_accuracy": float(found[:, column].mean() - truth[:, column].mean())}
                for column, name in enumerate(test.names)
            ]  # fmt: skip
    constant = np.abs(bench.profile.accuracy - truth).mean(axis=0)
    stem = "figure-08-estimation-error"
    rows += [
        {"extractor": "none (overall accuracy)", "sample_size": len(bench.profile), "classifier": name,
         "mean_absolute_error": float(constant[column]),
         "root_mean_squared_error": float(np.sqrt(((bench.profile.accuracy - truth) ** 2).mean(axis=0)[column])),
         "error_of_overall_accuracy": float(bench.profile.accuracy[column] - truth[:, column].mean())}
        for column, name in enumerate(test.names)
    ]  # fmt: skip
    charts = {f"{stem}-{name}": _error_chart(bench, rows, name) for name in extractors}
    return Result({stem: rows}, charts, " ".join(_error_finding(rows, name) for name in extractors))


def _error_chart(bench: Bench, rows: Sequence[Row], extractor: str) -> str:
    series = []
    for name in bench.test.names:
        mine = [row for row in rows if row["extractor"] == extractor and row["classifier"] == name]
        sizes, errors = [row["sample_size"] for row in mine], [row["mean_absolute_error"] for row in mine]
        series.append(Series(name, sizes, errors, points=True))
    return line_chart(
        series, title=f"Error of the estimate against sample size, {extractor}, {bench.subject.title}", log_x=True,
        x_label="size of a sample s, 40 samples, l∞", y_label="mean absolute error",
    )  # fmt: skip


def _error_finding(rows: Sequence[Row], extractor: str) -> str:
    mine = [row for row in rows if row["extractor"] == extractor]
    low, high = min(row["sample_size"] for row in mine), max(row["sample_size"] for row in mine)
    by = {(row["classifier"], row["sample_size"]): row for row in mine}
    names = list(dict.fromkeys(row["classifier"] for row in mine))
    falls = [by[name, high]["mean_absolute_error"] < by[name, low]["mean_absolute_error"] for name in names]
    squared = [by[name, high]["root_mean_squared_error"] < by[name, low]["root_mean_squared_error"] for name in names]
    first, last = (np.mean([by[name, size]["mean_absolute_error"] for name in names]) for size in (low, high))
    return (
        f"On {extractor}'s features, from s = {low:,} to {high:,} the mean absolute error falls for "
        f"{count_of(falls, 'classifiers')} (mean {percent(float(first), 1)} to {percent(float(last), 1)}), the root "
        "mean "
        f"squared error for {count_of(squared, 'classifiers')}."
    )


NEIGHBOUR_DISTANCE = Study(
    name="neighbour-distance",
    title="Distance to the nearest neighbour against sample size",
    places="Figure 7",
    paper="The distance falls quickly towards zero as samples grow, for three extractors and three metrics on Tiny "
    "ImageNet; it is least under l∞, which is why the authors prefer l∞.",
    run=_neighbour_distance,
)
ESTIMATION_ERROR = Study(
    name="estimation-error",
    title="Error of the estimate against sample size",
    places="Figure 8",
    paper="The error keeps falling for all seven classifiers as samples grow.",
    run=_estimation_error,
)
