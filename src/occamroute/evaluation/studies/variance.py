"""How the variance of the paper's estimate falls with the number of samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from occamroute._arrays import FloatArray, generator
from occamroute.charts import Series, line_chart
from occamroute.estimation import SampledNeighbors
from occamroute.evaluation.studies.base import Result, Row, Study, slope
from occamroute.evaluation.studies.bench import Bench

__all__ = ["VARIANCE", "estimator_variance"]

COUNTS = (1, 2, 4, 8, 16, 40)
# The law does not depend on the pool; a part of it keeps thousands of searches short.
POOL, QUERIES, REPEATS = 8000, 400, 24


def estimator_variance(
    features: FloatArray, success: FloatArray, queries: FloatArray, *,
    counts: Sequence[int], size: int, repeats: int, independent: bool, seed: int,
) -> FloatArray:  # fmt: skip
    """Variance of the estimate over repeated draws of the samples, averaged over queries and classifiers, by count."""
    found = []
    for count in counts:
        tables = [
            SampledNeighbors(count, size, independent=independent, seed=seed + repeat)
            .fit(features, success)
            .predict(queries)
            for repeat in range(repeats)
        ]
        found.append(float(np.var(tables, axis=0, ddof=1).mean()))
    return np.array(found)


def _variance(bench: Bench) -> Result:
    random = generator(bench.seed)
    profile = bench.profile
    rows = random.permutation(len(profile))[: bench.size(POOL, 800)]
    chosen = random.permutation(len(bench.test))[: bench.size(QUERIES, 60)]
    features = profile.feature_sets[bench.extractor][rows]
    queries = bench.test.feature_sets[bench.extractor][chosen]
    counts = [count for count in bench.size(COUNTS, (1, 2, 4, 8)) if count <= rows.size // 10]
    size = max(1, rows.size // 40)
    measured: dict[str, FloatArray] = {}
    for kind in ("independent", "disjoint"):
        measured[kind] = estimator_variance(
            features, profile.success[rows], queries, counts=counts, size=size, independent=kind == "independent",
            repeats=bench.size(REPEATS, 12), seed=1000 * (bench.seed + 1),
        )  # fmt: skip
    first = float(measured["independent"][0])
    table: list[Row] = [
        {
            "n_samples": count,
            "sample_size": size,
            "pool": int(rows.size),
            "variance_independent_samples": float(measured["independent"][index]),
            "variance_disjoint_slices": float(measured["disjoint"][index]),
            "one_over_k": first / count,
            "one_over_root_k": first / count**0.5,
        }
        for index, count in enumerate(counts)
    ]
    names = {
        "variance_independent_samples": "measured, independent samples",
        "variance_disjoint_slices": "measured, disjoint slices of the rows",
        "one_over_k": "1/K (independent draws)",
        "one_over_root_k": "1/√K (the paper's lemma)",
    }
    series = [
        Series(words, counts, [row[key] for row in table], dashed=key.startswith("one"), points=key.startswith("var"))
        for key, words in names.items()
        if all(row[key] > 0.0 for row in table)
    ]
    chart = line_chart(
        series, title=f"Variance of the estimate against K, {bench.subject.title}", x_label="number of samples K",
        y_label="variance of the estimate", log_x=True, log_y=True, x_ticks=counts,
    )  # fmt: skip
    return Result({"lemma-4-variance": table}, {"lemma-4-variance": chart}, _finding(counts, measured))


def _finding(counts: Sequence[int], measured: dict[str, FloatArray]) -> str:
    if any((values <= 0.0).any() for values in measured.values()):
        return "The estimate does not vary: every draw of the samples finds the same success."
    powers = {kind: slope(counts, values) for kind, values in measured.items()}
    law = "1/K" if abs(powers["independent"] + 1.0) < abs(powers["independent"] + 0.5) else "1/√K"
    text = ", ".join(f"K^{power:.2f} for {kind} ones" for kind, power in powers.items()).replace("-", "−")
    return f"With growing K the variance falls as {text}; of the two laws {law} is the nearer to independent samples."


VARIANCE = Study(
    name="variance",
    title="Variance of the estimate against the number of samples",
    places="Lemma on low variance",
    paper="The lemma says that the variance falls as 1/√K. For K independent samples it is 1/K; we show both curves "
    "and "
    "do not repeat the claim.",
    run=_variance,
)
