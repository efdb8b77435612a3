"""How a comparison is read: which method and which row stand for it, and its rows in words and as lines."""

from __future__ import annotations

from typing import Any

from occamroute.charts import Canvas, Series, line_chart
from occamroute.charts.pictures import named_points, spread_out
from occamroute.charts.words import plain_percent, points, short_share
from occamroute.evaluation.reports import Report

__all__ = [
    "Row",
    "compared",
    "cost_chart",
    "dearest_interval",
    "headline_row",
    "leading_method",
    "main_chart",
]

Row = dict[str, Any]
YARDSTICKS = ("oracle", "mixture", "random", "single_best", "best_affordable")


def leading_method(report: Report) -> str:
    """The method that the page is about: auto, else one that promises something, else the first of the others."""
    methods = report.methods
    promising = [method for method in methods if any(row["expected_accuracy"] is not None for row in report.of(method))]
    others = [method for method in methods if method not in YARDSTICKS and method != report.about["reference"]]
    return next(iter([*(["auto"] if "auto" in methods else []), *promising, *others, *methods]))


def headline_row(report: Report, method: str) -> Row:
    """The row that the page starts with.

    The cheapest that is as accurate as always using the dearest; else the cheapest that cannot be told apart from it;
    else the most accurate that saves something.
    """
    rows = report.of(method)
    saving = [row for row in rows if row["cost_share"] < 1.0] or rows
    enough = [row for row in saving if row["accuracy"] >= report.about["dearest_accuracy"]]
    alike = [row for row in saving if row["dearest_difference_interval"] and row["dearest_difference_interval"][1] >= 0]
    if enough or alike:
        return min(enough or alike, key=lambda row: float(row["cost_share"]))
    return max(saving, key=lambda row: (row["accuracy"], -row["cost_share"]))


def compared(row: Row, reference: str) -> str:
    """How a row does against the reference at the same budget, in a sentence that also says when it loses."""
    difference, interval = row["difference"], row["difference_interval"]
    known = f"the best {reference} (which looks at no features)" if reference == "mixture" else reference
    told = f"{points(difference, interval)} points of accuracy"
    if interval is None:
        return f"Against {known} at the same budget: {told}."
    low, high = interval
    if difference == low == high == 0.0:
        return f"At this budget it does the same as {known}."
    if low > 0.0:
        return f"It gains on {known} at the same budget: {told}."
    if high < 0.0:
        return f"It loses against {known} at the same budget: {told}."
    return f"At this budget it cannot be told apart from {known}: {told}."


def dearest_interval(report: Report) -> tuple[float, float] | None:
    """How sure the dearest classifier's accuracy is."""
    about = report.about
    if "accuracy_intervals" not in about:
        return None
    low, high = about["accuracy_intervals"][about["names"].index(about["dearest"])]
    return float(low), float(high)


def main_chart(report: Report, method: str, canvas: Canvas) -> str:
    """The leading method and the mixture with their bands, and each classifier alone with its bar."""
    about = report.about
    row = headline_row(report, method)
    lines = [report.series(method, labels=["" if one is not row else _label(row) for one in report.of(method)])]
    if "mixture" in report.methods and method != "mixture":
        lines.append(report.series("mixture", dashed=True))
    ends = about.get("accuracy_intervals", [])
    lines.append(
        Series(
            "one classifier for everything", about["cost_shares"], about["accuracies"], line=False, points=True,
            low=[low for low, _ in ends], high=[high for _, high in ends],
            labels=named_points(about["names"], about["cost_shares"], about["accuracies"]),
            tips=[
                f"{name}: {plain_percent(right)}"
                for name, right in zip(about["names"], about["accuracies"], strict=True)
            ],
            colour="currentColor",
        )
    )  # fmt: skip
    return cost_chart(lines, "Accuracy against cost", canvas)


def _label(row: Row) -> str:
    return f"{100 * (1 - row['cost_share']):.0f} % saved" if row["cost_share"] else ""


def cost_chart(lines: list[Series], title: str, canvas: Canvas) -> str:
    """Series against shares of the dearest's cost."""
    return line_chart(
        lines, title=title, x_label="cost, as a share of always asking the dearest", y_label="accuracy",
        x_format=short_share, y_format=short_share, log_x=spread_out([x for one in lines for x in one.x]),
        canvas=canvas,
    )  # fmt: skip
