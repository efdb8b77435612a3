"""A budget sweep as a chart and as one self-contained HTML page."""

from __future__ import annotations

from html import escape

from occamroute._version import __version__
from occamroute.charts import Series, line_chart
from occamroute.evaluation.budget_sweep import Sweep, SweepRow

__all__ = ["headline", "promised", "sweep_chart", "sweep_page"]

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; width: 100% }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #8884 }
td { white-space: nowrap } td.text { white-space: normal }
th:first-child, td:first-child, td.text, th.text { text-align: left }
tr.occamroute { font-weight: 600 }
"""


def percent(value: float) -> str:
    """A share as a percentage."""
    return f"{100.0 * value:.3g} %"


def sweep_chart(result: Sweep, title: str) -> str:
    """Accuracy against budget: each classifier alone, the best mixture, occamroute and the oracle."""
    labels = {
        "occamroute": "occamroute",
        "mixture": "best mixture (no features)",
        "oracle": "oracle (knows the answers)",
    }
    series = []
    for method, label in labels.items():
        rows = result.of(method)
        shares, reached = [row.budget for row in rows], [row.accuracy for row in rows]
        dots, dashes = method == "occamroute", method == "oracle"
        series.append(Series(label, shares, reached, points=dots, dashed=dashes))
    series.append(Series("one classifier for everything", result.shares, result.accuracies, line=False, points=True))
    return line_chart(
        series,
        title=title,
        x_label="budget, as a share of always using the dearest classifier",
        y_label="accuracy on queries not seen before",
        x_format=percent,
        y_format=percent,
        log_x=True,
    )


def headline(result: Sweep) -> str:
    """The sweep in a sentence: where occamroute is as good as the dearest classifier, if it is anywhere."""
    (dearest,) = result.of("dearest")
    enough = [row for row in result.of("occamroute") if row.accuracy >= dearest.accuracy]
    if not enough:
        best = max(result.of("occamroute"), key=lambda row: row.accuracy)
        missing = 100 * (dearest.accuracy - best.accuracy)
        return f"occamroute comes within {missing:.2f} points of the dearest at {percent(best.cost_share)} of its cost."
    first = min(enough, key=lambda row: row.cost_share)
    return f"occamroute is right as often as the dearest classifier at {percent(first.cost_share)} of its cost."


def promised(row: SweepRow) -> str:
    """The accuracy that a plan promised beforehand, with its interval."""
    if row.expected_accuracy is None or row.accuracy_interval is None:
        return ""
    low, high = row.accuracy_interval
    return f"{100 * row.expected_accuracy:.2f} ({100 * low:.1f}–{100 * high:.1f})"


def sweep_page(result: Sweep, *, title: str, about: str) -> str:
    """The page: what was done, the chart, the numbers; nothing to load from anywhere."""
    rows = "".join(_table_row(row) for row in result.rows)
    chart = sweep_chart(result, title)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<p>{escape(about)} <strong>{escape(headline(result))}</strong></p>
{chart}
<table><thead><tr><th class="text">method</th><th>budget</th><th>cost</th><th>accuracy</th><th>promised (90 %)</th>
<th>gap to optimum</th><th class="text">chosen on held-out rows</th></tr></thead><tbody>{rows}</tbody></table>
<p>Budgets and costs are shares of always using the dearest classifier. Accuracy is what the plan really reached on
{result.n_queries:,} queries that took no part in planning; “promised” is what it expected beforehand, from
{result.n_profile:,} labelled ones. The gap is proved: no plan within the budget has a higher estimated value by more.
The oracle knows every answer beforehand: no router can be above it.</p>
<p>Made by occamroute {escape(__version__)}.</p>
</body></html>
"""


def _table_row(row: SweepRow) -> str:
    gap = "" if row.gap is None else f"{row.gap:.1e}"
    cost, accuracy = f"{100 * row.cost_share:.2f} %", f"{100 * row.accuracy:.2f} %"
    return (
        f'<tr class="{escape(row.method)}"><td>{escape(row.method)}</td><td>{percent(row.budget)}</td>'
        f"<td>{cost}</td><td>{accuracy}</td><td>{promised(row)}</td><td>{gap}</td>"
        f'<td class="text">{escape(row.chosen or "")}</td></tr>'
    )
