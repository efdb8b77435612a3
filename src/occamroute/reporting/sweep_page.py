"""A budget sweep as a chart and as one self-contained HTML page."""

from __future__ import annotations

from html import escape

from occamroute.charts import WIDE, Canvas, Series, line_chart
from occamroute.charts.words import between, percent, plain_percent, proved_gap, short_share
from occamroute.evaluation.budget_sweep import Sweep, SweepRow
from occamroute.reporting.frame import page
from occamroute.reporting.pieces import Cell, paragraph, shown, table

__all__ = ["headline", "promised", "sweep_chart", "sweep_page"]


def sweep_chart(result: Sweep, title: str, canvas: Canvas = WIDE) -> str:
    """Accuracy against budget: each classifier alone, the best mixture, occamroute and the oracle."""
    labels = {
        "occamroute": "occamroute",
        "mixture": "best mixture (no features)",
        "oracle": "oracle (knows the answers)",
    }
    series = [_series(result, method, label) for method, label in labels.items()]
    series.append(
        Series(
            "one classifier for everything", result.shares, result.accuracies, line=False, points=True,
            low=[low for low, _ in result.bounds], high=[high for _, high in result.bounds], tips=result.names,
        )
    )  # fmt: skip
    return line_chart(
        series,
        title=title,
        x_label="budget, as a share of always using the dearest classifier",
        y_label="accuracy on queries not seen before",
        x_format=short_share,
        y_format=short_share,
        log_x=True,
        canvas=canvas,
    )


def _series(result: Sweep, method: str, label: str) -> Series:
    rows = result.of(method)
    bounds = [row.accuracy_bounds for row in rows if row.accuracy_bounds is not None]
    return Series(
        label, [row.budget for row in rows], [row.accuracy for row in rows], points=method == "occamroute",
        dashed=method == "oracle", low=[low for low, _ in bounds], high=[high for _, high in bounds],
        tips=[f"{short_share(row.budget)}: {percent(row.accuracy, row.accuracy_bounds)}" for row in rows],
    )  # fmt: skip


def headline(result: Sweep) -> str:
    """The sweep in a sentence: where occamroute is as good as the dearest classifier, if it is anywhere."""
    (dearest,) = result.of("dearest")
    enough = [row for row in result.of("occamroute") if row.accuracy >= dearest.accuracy]
    if not enough:
        best = max(result.of("occamroute"), key=lambda row: row.accuracy)
        missing = 100 * (dearest.accuracy - best.accuracy)
        share = short_share(best.cost_share)
        return f"occamroute comes within {missing:.2f} points of the dearest at {share} of its cost."
    first = min(enough, key=lambda row: row.cost_share)
    return f"occamroute is right as often as the dearest classifier at {short_share(first.cost_share)} of its cost."


def promised(row: SweepRow) -> str:
    """The accuracy that a plan promised beforehand, with its interval."""
    if row.expected_accuracy is None or row.accuracy_interval is None:
        return ""
    low, high = row.accuracy_interval
    return f"{100 * row.expected_accuracy:.2f} ({100 * low:.1f}–{100 * high:.1f})"


def sweep_page(result: Sweep, *, title: str, about: str) -> str:
    """The page: what was done, the chart, the numbers; nothing to load from anywhere."""
    strong = [number for number, row in enumerate(result.rows) if row.method == "occamroute"]
    numbers = table(
        ("method", "budget", "cost (exact)", "accuracy (90 %)", "promised (90 %)", "gap to optimum", "chosen"),
        [_cells(row) for row in result.rows], text=(6,), strong=strong,
        caption="What every method reached; budgets and costs are shares of always using the dearest classifier",
    )  # fmt: skip
    body = (
        f"<h1>{escape(title)}</h1>{paragraph(headline(result), 'lead')}{paragraph(about)}"
        f"{shown(lambda canvas: sweep_chart(result, title, canvas), 'Bands and bars are 90 % intervals.')}{numbers}"
        + paragraph(
            f"Accuracy is what the plan really reached on {result.n_queries:,} queries that took no part in planning; "
            f"“promised” is what it expected beforehand, from {result.n_profile:,} labelled ones, on which everything "
            "was chosen. The gap is proved: no plan within the budget has a higher estimated value by more. The oracle "
            "knows every answer beforehand: no router can be above it."
        )
    )
    return page(title, body, kind="demo")


def _cells(row: SweepRow) -> tuple[str | Cell, ...]:
    return (
        row.method,
        short_share(row.budget),
        plain_percent(row.cost_share),
        Cell(plain_percent(row.accuracy), between(row.accuracy_bounds)),
        promised(row),
        "" if row.gap is None else proved_gap(row.gap),
        row.chosen or "",
    )
