"""Accuracy against budget for the paper's method and its rivals, and what a cheaper bill costs in accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from occamroute.evaluation.studies.base import (
    Curves,
    Result,
    Row,
    Study,
    budget_chart,
    count_of,
    joined,
    percent,
    points,
)
from occamroute.evaluation.studies.bench import Bench

__all__ = ["CURVES_L1", "CURVES_L2", "CURVES_LINF", "METHODS", "accuracy_at", "against_mixture", "reductions"]

# Label → what compare calls it.
METHODS = {
    "single best": "single_best",
    "best affordable": "best_affordable",
    "random": "random",
    "best mixture": "mixture",
    "occamroute": "auto",
    "oracle": "oracle",
}
PAPER = "paper"
REDUCTIONS = (0.1, 0.2, 0.4)
FIXED_PENALTY = 5.0
FIXED = f"paper, penalty {FIXED_PENALTY:g}"


def method_rows(bench: Bench, metric: str) -> dict[str, list[Row]]:
    """The rows of each method by label, the paper's with this metric among them."""
    rows = {label: bench.compared(method) for label, method in METHODS.items()}
    rows["FrugalMCT"] = bench.rows(bench.forest())
    rows[FIXED] = bench.rows(bench.paper(metric), dict.fromkeys(bench.shares, FIXED_PENALTY))
    rows[PAPER] = bench.paper_rows(metric)
    return rows


def accuracy_at(rows: Sequence[Mapping[str, Any]]) -> dict[float, float]:
    """Accuracy by budget, the budget as a share of always using the dearest."""
    return {round(float(row["budget_share"]), 9): float(row["accuracy"]) for row in rows}


def against_mixture(rows: Sequence[Mapping[str, Any]], who: str) -> str:
    """At how many budgets one is above the best mixture that looks at no features, how surely, and the verdict."""
    known = [row for row in rows if row.get("difference") is not None]
    if not known:
        return f"{who} answers everything at none of the budgets."
    above = count_of([row["difference"] > 0.0 for row in known], "budgets")
    mean = sum(row["difference"] for row in known) / len(known)
    surely = sum(row["difference_interval"][0] > 0.0 for row in known)
    hardly = sum(row["difference_interval"][1] < 0.0 for row in known)
    verdict = "gains over" if surely > hardly else "loses to" if hardly > surely else "is level with"
    return (
        f"{who} {verdict} the best mixture without features: above it at {above} ({points(mean)} on average), by more "
        f"than chance (90 %) at {surely}, and below it by more than chance at {hardly}."
    )


def reductions(curves: Curves, dearest: float) -> list[Row]:
    """What accuracy is lost, relative to always using the dearest, when its bill is cut."""
    return [
        {"cost_reduction": cut, "method": label, "accuracy_drop": (dearest - curve[round(1.0 - cut, 9)]) / dearest}
        for cut in REDUCTIONS
        for label, curve in curves.items()
        if round(1.0 - cut, 9) in curve
    ]


def _curves(bench: Bench, metric: str, figure: str, table: str) -> Result:
    found = method_rows(bench, metric)
    curves = {label: accuracy_at(rows) for label, rows in found.items()}
    dearest = float(bench.test.accuracy[int(bench.profile.mean_costs.argmax())])
    drops = reductions(curves, dearest)
    rows = [_flat(label, row) for label, lines in found.items() for row in lines]
    chart = budget_chart(curves, title=f"Accuracy against budget, {metric}, {bench.subject.title}")
    return Result({figure: rows, table: drops}, {figure: chart}, _finding(found, drops, metric))


def _flat(label: str, row: Mapping[str, Any]) -> Row:
    """A row for a spreadsheet: intervals as two columns, how often each classifier is used left out."""
    flat: Row = {"method": label}
    for name in ("budget_share", "budget", "accuracy", "cost_share", "expected_accuracy", "difference"):
        flat[name] = row.get(name)
    for name in ("accuracy_interval", "difference_interval"):
        low, high = row.get(name) or (None, None)
        flat |= {f"{name}_low": low, f"{name}_high": high}
    return flat | {"chosen": row.get("chosen")}


def _finding(found: Mapping[str, Sequence[Row]], drops: Sequence[Row], metric: str) -> str:
    paper, forest = accuracy_at(found[PAPER]), accuracy_at(found["FrugalMCT"])
    ahead = count_of([paper[share] > forest[share] for share in paper if share in forest], "budgets")
    text = " ".join(
        (
            against_mixture(found[PAPER], f"The paper's method ({metric}, penalty tuned on held-out rows)"),
            against_mixture(found[FIXED], f"With the paper's penalty of {FIXED_PENALTY:g} it"),
            f"It is above FrugalMCT's forest at {ahead}.",
            against_mixture(found["occamroute"], "What occamroute chooses by itself"),
        )
    )
    words = []
    for cut in REDUCTIONS:
        lost = {row["method"]: row["accuracy_drop"] for row in drops if row["cost_reduction"] == cut}
        if PAPER in lost:
            words.append(
                f"{percent(lost[PAPER])} for {percent(cut, 0)} (mixture {percent(lost['best mixture'])}, "
                f"occamroute {percent(lost['occamroute'])})"
            )
    if words:
        text += (
            f" When the bill is cut, the paper's method gives up this much of the dearest's accuracy: {joined(words)}."
        )
    return text


def _study(metric: str, figure: str, table: str, places: str, paper: str) -> Study:
    return Study(
        name=f"curves-{metric}",
        title=f"Accuracy against budget, and what a cheaper bill costs ({metric})",
        places=places,
        paper=paper,
        run=partial(_curves, metric=metric, figure=figure, table=table),
    )


CURVES_LINF = _study(
    "linf", "figure-03-accuracy-cost-linf", "table-2-cost-reduction-linf", "Figures 1c and 3, Table 2",
    "Above single best, random and FrugalMCT on all four data sets. For 40 % less cost it gives up 0.5 % of accuracy "
    "on CIFAR-10 and 2.8 % on Tiny ImageNet (FrugalMCT 1.2 % and 3.9 %). No mixture without features is shown.",
)  # fmt: skip
CURVES_L1 = _study(
    "l1", "figure-09-accuracy-cost-l1", "table-4-cost-reduction-l1", "Figure 9, Table 4",
    "Like l∞ on CIFAR-10 and Tiny ImageNet (0.4 % and 3.2 % for 40 % less cost); on ImageNet-1K FrugalMCT is ahead.",
)  # fmt: skip
CURVES_L2 = _study(
    "l2", "figure-10-accuracy-cost-l2", "table-5-cost-reduction-l2", "Figure 10, Table 5",
    "Like l∞ on CIFAR-10 and Tiny ImageNet (0.3 % and 2.8 % for 40 % less cost); on ImageNet-1K FrugalMCT is ahead.",
)  # fmt: skip
