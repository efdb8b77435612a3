"""The classifiers themselves: what each costs and reaches, and how far they are right on the same queries."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.charts import Series, heat_map, line_chart
from occamroute.evaluation.studies.base import Result, Row, Study, count_of, joined, percent
from occamroute.evaluation.studies.bench import Bench

__all__ = ["AGREEMENT", "CLASSIFIERS", "COMPLEMENTARITY", "agreement_matrix", "complementarity_matrix"]


def agreement_matrix(success: FloatArray) -> FloatArray:
    """Share of the queries that the row's classifier gets right on which the column's is right too, (M, M)."""
    right = (success >= 0.5).astype(np.float64)
    both = right.T @ right
    own = np.diag(both)[:, np.newaxis]
    return np.asarray(np.divide(both, own, out=np.zeros_like(both), where=own > 0.0))


def complementarity_matrix(success: FloatArray) -> FloatArray:
    """Share of all queries that the row's classifier gets right and the column's gets wrong, (M, M)."""
    right = (success >= 0.5).astype(np.float64)
    return np.asarray(right.T @ (1.0 - right) / len(right))


def _classifiers(bench: Bench) -> Result:
    profile, test = bench.profile, bench.test
    core = set(profile.pareto().names)
    cost = profile.mean_costs
    rows: list[Row] = []
    for column, name in enumerate(profile.names):
        row: Row = {
            "classifier": name,
            "cost": float(cost[column]),
            "normalized_cost": float(cost[column] / cost.max()),
        }
        if bench.subject.parameters is not None:
            row["parameters"] = bench.subject.parameters[column]
        row |= {
            "accuracy": float(test.accuracy[column]),
            "accuracy_on_profile": float(profile.accuracy[column]),
            "pareto": name in core,
        }
        rows.append(row)
    order = np.argsort(cost, kind="stable")
    rises = [bool(test.accuracy[after] > test.accuracy[before]) for before, after in pairwise(order)]
    best, dearest = int(test.accuracy.argmax()), int(order[-1])
    top = f"{profile.names[best]} is the most accurate ({percent(test.accuracy[best])})"
    if best != dearest:
        top += f", the dearest, {profile.names[dearest]}, reaches {percent(test.accuracy[dearest])}"
    finding = (
        f"Accuracy rises with cost in {count_of(rises, 'steps from one classifier to the next dearer')}; "
        f"{top}. The cheapest costs "
        f"{percent(cost[order[0]] / cost.max(), 1)} of the dearest and reaches {percent(test.accuracy[order[0]])}."
    )
    shares = [row["normalized_cost"] for row in rows]
    reached = [row["accuracy"] for row in rows]
    chart = line_chart(
        [Series("one classifier for everything", shares, reached, line=False, points=True, labels=profile.names)],
        title=f"Accuracy against cost of each classifier, {bench.subject.title}",
        x_label="cost of a call, as a share of the dearest", y_label="accuracy", log_x=min(shares) > 0.0,
        x_format=lambda x: f"{100 * x:.3g} %", y_format=lambda y: percent(y, 0),
    )  # fmt: skip
    return Result({"figure-01a-table-1-classifiers": rows}, {"figure-01a-table-1-classifiers": chart}, finding)


def _pairs(names: tuple[str, ...], matrix: FloatArray, what: str) -> list[Row]:
    return [
        {"row": row, "column": column, what: float(matrix[i, j])}
        for i, row in enumerate(names)
        for j, column in enumerate(names)
    ]


def _agreement(bench: Bench) -> Result:
    names, matrix = bench.test.names, agreement_matrix(bench.test.success)
    cheapest, dearest = int(bench.profile.mean_costs.argmin()), int(bench.profile.mean_costs.argmax())
    finding = (
        f"Of the queries that the dearest ({names[dearest]}) gets right, the cheapest ({names[cheapest]}) gets "
        f"{percent(matrix[dearest, cheapest], 1)} right too; the other way round it is "
        f"{percent(matrix[cheapest, dearest], 1)}."
    )
    chart = heat_map(
        names, names, matrix, title=f"Agreement of the classifiers, {bench.subject.title}", row_label="right:",
        column_label="is right too, on this share of what the row gets right", text=lambda value: percent(value, 0),
    )  # fmt: skip
    stem = "figure-01b-agreement"
    rows = _pairs(names, matrix, "share_of_row_right")
    both = matrix * (bench.test.success >= 0.5).mean(axis=0)[:, np.newaxis]
    for row, share in zip(rows, both.reshape(-1).tolist(), strict=True):
        row["share_of_queries"] = share
    return Result({stem: rows}, {stem: chart}, finding)


def _complementarity(bench: Bench) -> Result:
    success = bench.test.success
    names, matrix = bench.test.names, complementarity_matrix(success)
    cheapest, dearest = int(bench.profile.mean_costs.argmin()), int(bench.profile.mean_costs.argmax())
    someone, best = float((success >= 0.5).any(axis=1).mean()), float(bench.test.accuracy.max())
    helpers = [name for column, name in enumerate(names) if column != dearest and matrix[column, dearest] > 0.0]
    finding = (
        f"The cheapest is right where the dearest fails on {percent(matrix[cheapest, dearest], 1)} of the queries, the "
        f"dearest where the cheapest fails on {percent(matrix[dearest, cheapest], 1)}. {joined(helpers) or 'None'} can "
        f"correct {names[dearest]}: at least one classifier is right on {percent(someone, 1)}, the best alone on "
        f"{percent(best, 1)}."
    )
    chart = heat_map(
        names, names, matrix, title=f"Complementarity of the classifiers, {bench.subject.title}", row_label="right:",
        column_label="is wrong, share of all queries", text=lambda value: percent(value, 1),
    )  # fmt: skip
    stem = "figure-15-complementarity"
    return Result({stem: _pairs(names, matrix, "share_of_queries")}, {stem: chart}, finding)


CLASSIFIERS = Study(
    name="classifiers",
    title="Accuracy against cost of each classifier",
    places="Figure 1a and Table 1",
    paper="The larger and dearer a network, the more accurate; the cheapest of seven costs 15 % of the dearest.",
    run=_classifiers,
)
AGREEMENT = Study(
    name="agreement",
    title="How often classifiers are right together",
    places="Figure 1b",
    paper="On Tiny ImageNet the smallest network gets about three quarters of what the largest gets right.",
    run=_agreement,
)
COMPLEMENTARITY = Study(
    name="complementarity",
    title="How often one is right where another fails",
    places="Figure 15",
    paper="On Tiny ImageNet the smallest network is right where the largest fails on 5 % of the queries, the largest "
    "where the smallest fails on 24 %; so a good assignment can beat the best single network.",
    run=_complementarity,
)
