"""The story of a comparison: what was saved at what accuracy, and how sure that is."""

from __future__ import annotations

from occamroute.charts.words import between, brief, counted, part_of, percent, plain_percent
from occamroute.evaluation.reports import Report
from occamroute.reporting.comparison_reading import (
    Row,
    compared,
    dearest_interval,
    headline_row,
    leading_method,
    main_chart,
)
from occamroute.reporting.comparison_sections import comparison_sections
from occamroute.reporting.stories import Figure, Source, Story

__all__ = ["comparison_story"]

OLD = "Made by a version that kept fewer intervals: run compare again to have them all."
# A difference from the dearest that may be larger than this is not called "about as accurate".
LOOSE = 0.02


def comparison_story(report: Report, source: Source) -> Story:
    """What a comparison tells."""
    method = leading_method(report)
    row = headline_row(report, method)
    missing = row["accuracy_bounds"] is None or row["dearest_difference_interval"] is None
    return Story(
        kind="comparison",
        title=_title(report, row),
        sentence=_sentence(report, method, row),
        figures=_figures(report, row),
        chart=lambda canvas: main_chart(report, method, canvas),
        caption=(
            f"What {method} reached on {_queries(report)} that took no part in planning, beside the "
            "best mixture, which looks at no features, and each classifier alone. Bands and bars are 90 % intervals; "
            "costs are exact."
        ),
        sections=comparison_sections(report, method, row, source),
        warnings=(OLD,) if missing else (),
        aside=_aside(report, method, row),
    )


def _title(report: Report, row: Row) -> str:
    cost = f"for {part_of(row['cost_share'])} of its cost"
    dearest = report.about["dearest"]
    if not report.about["dearest_cost"]:
        return f"Right on {plain_percent(row['accuracy'])}, where nothing costs anything"
    if row["cost_share"] >= 1.0:
        return f"Nothing saved against always asking {dearest}"
    interval = row["dearest_difference_interval"]
    if interval is None:
        return f"Right on {plain_percent(row['accuracy'])}, {cost.replace('its cost', f'the cost of {dearest}')}"
    low, high = interval
    if low > 0.0:
        return f"More accurate than the dearest classifier, {cost}"
    if high < 0.0:
        return f"{-100 * row['dearest_difference']:.2f} points less accurate than the dearest classifier, {cost}"
    if low < -LOOSE:  # so few queries cannot tell: a headline must not
        return (
            f"From {-100 * low:.2f} points less to {100 * high:.2f} more accurate than the dearest classifier, {cost}"
        )
    if row["dearest_difference"] >= 0.0:
        return f"As accurate as the dearest classifier, {cost}"
    return f"About as accurate as the dearest classifier, {cost}"


def _sentence(report: Report, method: str, row: Row) -> str:
    about = report.about
    return (
        f"On {_queries(report)} that took no part in planning, {method} was right on "
        f"{percent(row['accuracy'], row['accuracy_bounds'])}, always asking {about['dearest']} on "
        f"{percent(about['dearest_accuracy'], dearest_interval(report))}."
    )


def _queries(report: Report) -> str:
    return counted(report.about["n_queries"], "query", "queries")


def _aside(report: Report, method: str, row: Row) -> str:
    """How far the yardstick alone would have come."""
    if row["difference"] is None or method == report.about["reference"]:
        return ""
    return compared(row, report.about["reference"])


def _figures(report: Report, row: Row) -> tuple[Figure, ...]:
    about = report.about
    saved = 1.0 - row["cost_share"] if about["dearest_cost"] else 0.0
    bounds, interval = row["accuracy_bounds"], row["dearest_difference_interval"]
    difference = row["dearest_difference"]
    if difference is None:
        difference = row["accuracy"] - about["dearest_accuracy"]
    return (
        Figure(
            "Cost saved", f"{100 * saved:.1f} %".replace("-", "−"),
            f"exact: {brief(row['cost'])} instead of {brief(about['dearest_cost'])}", saved,
        ),
        Figure("Accuracy", plain_percent(row["accuracy"]), f"90 %: {between(bounds)}", row["accuracy"], bounds),
        Figure(
            "Against always asking the dearest", f"{100 * difference:+.2f} points".replace("-", "−"),
            f"90 %: {between(interval, signed=True)}", difference, interval,
        ),
    )  # fmt: skip
