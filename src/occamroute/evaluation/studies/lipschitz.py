"""An empirical Lipschitz constant of success, and the bound on the estimation error that it gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from occamroute._arrays import FloatArray, generator
from occamroute.charts import Series, line_chart
from occamroute.evaluation.studies.base import Result, Row, Study, percent
from occamroute.evaluation.studies.bench import Bench
from occamroute.evaluation.studies.neighbours import sample_sizes
from occamroute.neighbors import GroupIndex, PoolIndex

__all__ = ["LIPSCHITZ", "slopes"]

QUERIES, NEAREST, SAMPLES = 2000, 10, 5
LEVELS = (0.5, 0.9, 0.99, 1.0)


def slopes(success: FloatArray, other: FloatArray, distances: FloatArray) -> FloatArray:
    """|difference of success| / distance for pairs (P, M); infinite where success differs at distance 0."""
    gap = np.abs(success - other)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = gap / distances[:, np.newaxis]
    return np.asarray(np.where(gap == 0.0, 0.0, ratio))


def _lipschitz(bench: Bench) -> Result:
    """Pairs are rows of the profile and their nearest others; the bound is checked on the test queries."""
    random = generator(bench.seed)
    pool, success = bench.profile.feature_sets[bench.extractor], bench.profile.success
    nearest = min(bench.size(NEAREST, 5), len(pool) - 1)
    mine = random.permutation(len(pool))[: bench.size(QUERIES, 150)]
    found = PoolIndex(pool).search(pool[mine], nearest + 1)
    # The row itself is among those at distance 0; any one of them stands for it.
    pairs, others = np.repeat(mine, nearest), found.rows[:, 1:].reshape(-1)
    distances = found.distances[:, 1:].reshape(-1)
    ratio = slopes(success[pairs], success[others], distances)
    differ = np.abs(success[pairs] - success[others]) >= 0.5
    finite = np.where(np.isfinite(ratio), ratio, 0.0)
    table: list[Row] = []
    for column, name in enumerate(bench.profile.names):
        row: Row = {"classifier": name, "pairs": int(pairs.size), "pairs_that_differ": float(differ[:, column].mean()),
                    "pairs_at_zero_that_differ": int((differ[:, column] & (distances == 0.0)).sum())}  # fmt: skip
        row |= {f"slope_quantile_{level:g}": float(np.quantile(finite[:, column], level)) for level in LEVELS}
        table.append(row)
    constant, usual = finite.max(axis=0), np.quantile(finite, 0.9, axis=0)
    bounds = _bounds(bench, random, constant, usual)
    series = [
        Series("measured error of one neighbour", [row["sample_size"] for row in bounds],
               [row["measured_error"] for row in bounds], points=True),
        Series("bound from the largest slope seen", [row["sample_size"] for row in bounds],
               [row["bound"] for row in bounds], dashed=True),
        Series("the same from the 90 % quantile (no bound)", [row["sample_size"] for row in bounds],
               [row["bound_from_quantile"] for row in bounds], dashed=True),
    ]  # fmt: skip
    drawn = [one for one in series if min(one.y) > 0.0]
    chart = line_chart(
        drawn, title=f"Measured error and Lipschitz bound against sample size, {bench.subject.title}", log_x=True,
        log_y=True, x_label="size of the sample s, l∞", y_label="mean error of estimated success",
    )  # fmt: skip
    return Result(
        {"lemmas-1-to-3-lipschitz-constant": table, "lemmas-1-to-3-error-bound": bounds},
        {"lemmas-1-to-3-error-bound": chart},
        _finding(table, bounds, constant),
    )


def _bounds(bench: Bench, random: np.random.Generator, constant: FloatArray, usual: FloatArray) -> list[Row]:
    pool, success = bench.profile.feature_sets[bench.extractor], bench.profile.success
    chosen = random.permutation(len(bench.test))[: bench.size(1000, 100)]
    queries, truth = bench.test.feature_sets[bench.extractor][chosen], bench.test.success[chosen]
    rows: list[Row] = []
    for size in sample_sizes(bench):
        groups = np.stack([random.permutation(len(pool))[:size] for _ in range(SAMPLES)])
        found = GroupIndex(pool, groups).search(queries)
        error = np.abs(success[found.rows] - truth[:, np.newaxis, :]).mean()
        distance = float(found.distances.mean())
        rows.append({
            "sample_size": size, "mean_distance": distance, "measured_error": float(error),
            "bound": float(constant.mean()) * distance, "bound_from_quantile": float(usual.mean()) * distance,
        })  # fmt: skip
    return rows


def _finding(table: Sequence[Row], bounds: Sequence[Row], constant: FloatArray) -> str:
    infinite = sum(row["pairs_at_zero_that_differ"] for row in table)
    text = ""
    if infinite:
        text = f"{infinite:,} pairs have equal features and different success: strictly no constant exists. "
    last = bounds[-1]
    differ = float(np.mean([row["pairs_that_differ"] for row in table]))
    holds = "says nothing, since no error can pass 1" if last["bound"] >= 1.0 else "is below 1"
    ratio = last["measured_error"] / (bounds[0]["measured_error"] or 1.0)
    return (
        f"{text}Success differs between a row and its nearest others in {percent(differ, 1)} of the pairs. The largest "
        f"slope seen is {constant.mean():.3g} on average over classifiers, so that the bound at s = "
        f"{last['sample_size']:,} "
        f"is {last['bound']:.3g}: it {holds}. The measured error there is {percent(last['measured_error'], 1)}, "
        f"{percent(ratio, 0)} of what it is at s = {bounds[0]['sample_size']:,}, while the mean distance is at "
        f"{percent(last['mean_distance'] / (bounds[0]['mean_distance'] or 1.0), 0)}."
    )


LIPSCHITZ = Study(
    name="lipschitz",
    title="Is success smooth? An empirical Lipschitz constant and its error bound",
    places="Lemmas on continuity and unbiasedness",
    paper="If classes are separated and classifiers are Lipschitz continuous, success is too, and the error of a "
    "neighbour's success is at most the constant times the distance. The constant is never measured there.",
    run=_lipschitz,
)
