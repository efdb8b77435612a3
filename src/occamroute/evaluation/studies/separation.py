"""Are classes apart? Distances between queries of different classes, and equal queries with different labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray, generator
from occamroute.charts import Series, line_chart
from occamroute.evaluation.studies.base import Result, Row, Study, percent
from occamroute.evaluation.studies.bench import Bench
from occamroute.evaluation.studies.subjects import Subject
from occamroute.neighbors import METRICS, GroupIndex

__all__ = ["DUPLICATES", "SEPARATION", "duplicate_counts", "pair_distances"]

PAIRS, BLOCK, BINS, QUERIES, FROM_A_CLASS = 100_000, 10_000, 40, 2000, 100


def pair_distances(table: FloatArray, first: IntArray, second: IntArray, metric: str) -> FloatArray:
    """Distances between rows ``first[p]`` and ``second[p]``, (P,)."""
    order = {"l1": 1, "l2": 2, "linf": np.inf}[metric]
    found = [
        np.linalg.norm(table[first[start : start + BLOCK]] - table[second[start : start + BLOCK]], ord=order, axis=1)
        for start in range(0, first.size, BLOCK)
    ]
    return np.concatenate(found)


def duplicate_counts(tables: Sequence[FloatArray], labels: npt.NDArray[np.generic]) -> tuple[int, int]:
    """Rows equal to another in all tables, and those of them whose equals do not all have one label."""
    together = np.ascontiguousarray(np.column_stack(tables))
    keys = together.view(np.dtype((np.void, together.dtype.itemsize * together.shape[1])))[:, 0]
    _, group, size = np.unique(keys, return_inverse=True, return_counts=True)
    _, label = np.unique(labels, return_inverse=True)
    pairs = np.unique(np.column_stack([group, label]), axis=0)
    kinds = np.bincount(pairs[:, 0], minlength=size.size)
    return int(size[size > 1].sum()), int(size[kinds > 1].sum())


def _lacks_labels(subject: Subject) -> str | None:
    if subject.profile.labels is None or subject.test.labels is None:
        return "the profile keeps no labels"
    if np.unique(subject.profile.labels).size < 2:
        return "all labels are the same"
    return None


def _separation(bench: Bench) -> Result:
    random = generator(bench.seed)
    labels = np.unique(np.asarray(bench.profile.labels), return_inverse=True)[1]
    pairs = random.integers(0, len(labels), (2, bench.size(PAIRS, 5000)))
    first, second = pairs[:, labels[pairs[0]] != labels[pairs[1]]]
    rows: list[Row] = []
    bins: list[Row] = []
    charts = {}
    for extractor, table in bench.profile.feature_sets.items():
        series = []
        for metric in METRICS:
            distances = pair_distances(table, first, second, metric)
            near = _nearest_of_classes(bench, extractor, metric)
            rows.append(
                {"extractor": extractor, "metric": metric, "pairs": int(first.size)} | _summary(distances) | near
            )
            counts, edges = np.histogram(distances / (distances.max() or 1.0), bins=BINS, range=(0.0, 1.0))
            middle = (edges[:-1] + edges[1:]) / 2
            bins += [
                {"extractor": extractor, "metric": metric, "share_of_largest": float(x), "share_of_pairs": float(y)}
                for x, y in zip(middle, counts / counts.sum(), strict=True)
            ]
            series.append(Series(metric, middle, counts / counts.sum()))
        charts[f"figure-06-separation-{extractor}"] = line_chart(
            series, title=f"Distances between queries of different classes, {extractor}, {bench.subject.title}",
            x_label="distance, as a share of the largest", y_label="share of the pairs",
            y_format=lambda y: percent(y, 0),
        )  # fmt: skip
    return Result({"figures-05-06-separation": rows, "figure-06-distances": bins}, charts, _separation_finding(rows))


def _summary(distances: FloatArray) -> Row:
    found: Row = {f"quantile_{level:g}": float(np.quantile(distances, level)) for level in (0.0, 0.01, 0.1, 0.5)}
    return found | {"mean_distance": float(distances.mean()), "share_at_zero": float((distances == 0.0).mean())}


def _nearest_of_classes(bench: Bench, extractor: str, metric: str) -> Row:
    """How near some queries come to rows of each class: the least is an upper bound of the separation r."""
    random = generator(bench.seed)
    names, labels = np.unique(np.asarray(bench.profile.labels), return_inverse=True)
    size = min(FROM_A_CLASS, int(np.bincount(labels).min()))
    groups = np.stack([random.permutation(np.flatnonzero(labels == one))[:size] for one in range(names.size)])
    chosen = random.permutation(len(bench.test))[: bench.size(QUERIES, 100)]
    chosen = chosen[np.isin(np.asarray(bench.test.labels)[chosen], names)]
    own = np.searchsorted(names, np.asarray(bench.test.labels)[chosen])
    index = GroupIndex(bench.profile.feature_sets[extractor], groups, metric=metric)
    distances = index.search(bench.test.feature_sets[extractor][chosen]).distances
    mine = distances[np.arange(own.size), own]
    others = distances.copy()
    others[np.arange(own.size), own] = np.inf
    nearest = others.min(axis=1)
    return {
        "rows_of_a_class": size,
        "least_distance_to_another_class": float(nearest.min()),
        "median_distance_to_another_class": float(np.median(nearest)),
        "median_distance_to_own_class": float(np.median(mine)),
        "another_class_is_nearer": float((nearest < mine).mean()),
    }


def _separation_finding(rows: Sequence[Row]) -> str:
    sentences = "; ".join(
        f"on {row['extractor']}'s features under l∞ two queries of different classes are {row['quantile_0.5']:.3g} "
        f"apart at the median, but the nearest found are {row['least_distance_to_another_class']:.2g} apart, and "
        f"{percent(row['another_class_is_nearer'], 1)} of the queries are nearer to a row of another class than to "
        "any of their own"
        for row in rows
        if row["metric"] == "linf"
    )
    least = min(row["least_distance_to_another_class"] / (row["quantile_0.5"] or 1.0) for row in rows)
    return (
        f"{sentences[:1].upper()}{sentences[1:]}. The separation r is the distance of the closest pair of all, and so "
        "at "
        f"most {least:.1e} of the median distance: what is typical says little about it."
    )


def _duplicates(bench: Bench) -> Result:
    rows: list[Row] = []
    for split, part in (("profile", bench.profile), ("test", bench.test)):
        kept = bench.profile_rows if split == "profile" else bench.test_rows
        labels = np.asarray(part.labels)
        tables = {f"features of {name}": np.asarray(table) for name, table in part.feature_sets.items()}
        hidden = {
            f"last layer of {name}": np.asarray(both[0 if split == "profile" else 1][kept])
            for name, both in bench.subject.embeddings.items()
        }
        kinds = {name: [table] for name, table in (tables | hidden).items()}
        kinds["everything known"] = [table.astype(np.float32) for table in (tables | hidden).values()]
        for what, known in kinds.items():
            equal, conflicting = duplicate_counts(known, labels)
            rows.append({"rows": split, "judged_on": what, "n_rows": len(part), "equal_to_another": equal,
                         "with_different_labels": conflicting})  # fmt: skip
    first = next(row for row in rows if row["judged_on"] == f"features of {bench.extractor}")
    everything = next(row for row in rows if row["judged_on"] == "everything known")
    text = (
        f"Of {first['n_rows']:,} labelled rows {first['equal_to_another']:,} share their features (of "
        f"{bench.extractor}) with "
        f"another, {first['with_different_labels']:,} of them with one of another label. Judged on everything known "
        "of a "
        f"query, {everything['equal_to_another']:,} have an equal and {everything['with_different_labels']:,} one of "
        "another "
        "label. Images are not at hand: equal features do not prove equal images."
    )
    return Result({"appendix-duplicates": rows}, {}, text)


SEPARATION = Study(
    name="separation",
    title="Distances between classes",
    places="Figures 5 and 6",
    paper="Images of different classes are typically a clear distance apart in the features of three extractors under "
    "three metrics, which is taken as evidence that classes are separated.",
    run=_separation,
    lacks=_lacks_labels,
)
DUPLICATES = Study(
    name="duplicates",
    title="Equal queries with different labels",
    places="Appendix on separation (text)",
    paper="None on CIFAR-10, 3 in 20,000 images on CIFAR-100, 4 in 40,000 on Tiny ImageNet, 8 in 40,000 on "
    "ImageNet-1K.",
    run=_duplicates,
    lacks=_lacks_labels,
)
