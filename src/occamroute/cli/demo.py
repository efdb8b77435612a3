"""occamroute demo: real plans on real data, and what they really reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from occamroute.cli._inputs import Json, Seed
from occamroute.cli._screen import chart, print_json, print_table, progress_bar, table

if TYPE_CHECKING:
    from occamroute.evaluation.budget_sweep import Sweep

__all__ = ["demo"]

FRACTIONS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
TITLE = "Seven networks, 10,000 CIFAR-10 images, one budget"
ABOUT = (
    "Seven real networks, from a tiny one to one that costs thirty times as much, were run on 20,000 labelled "
    "images. From those outcomes alone occamroute decides for 10,000 other images which network answers which, at "
    "several budgets."
)


def demo(
    out: Annotated[str, typer.Option(help="Where to write the page with the chart.")] = "occamroute-demo.html",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Plan 10,000 real queries at several budgets and show what the plans really reach."""
    from occamroute.datasets import load_dataset
    from occamroute.evaluation.budget_sweep import sweep
    from occamroute.reporting.sweep_page import sweep_page
    from occamroute.storage import whole_file

    with whole_file(out) as temporary:
        profile, test = load_dataset("cifar10")
        with progress_bar("planning 10,000 queries") as progress:
            result = sweep(profile, test, fractions=FRACTIONS, seed=seed, progress=progress)
        temporary.write_text(sweep_page(result, title=TITLE, about=ABOUT), encoding="utf-8")
    if as_json:
        print_json([asdict(row) for row in result.rows])
    else:
        _show(result, out)


def _show(result: Sweep, out: str) -> None:
    print_table(TITLE)
    rows = table("<method", "budget", "cost", "accuracy", "expected (90 %)", "gap", "<how")
    for row in result.rows:
        expected = ""
        if row.expected_accuracy is not None and row.accuracy_interval is not None:
            low, high = row.accuracy_interval
            expected = f"{100 * row.expected_accuracy:.1f} ({100 * low:.1f}–{100 * high:.1f})"
        rows.add_row(
            row.method, f"{row.budget:.3g}", f"{row.cost_share:.4f}", f"{100 * row.accuracy:.2f} %", expected,
            "" if row.gap is None else f"{row.gap:.0e}", row.chosen or "",
        )  # fmt: skip
    print_table(rows)
    lines: list[tuple[str, Sequence[float], Sequence[float]]] = []
    for mark, method in (("o", "oracle"), ("m", "mixture"), ("█", "occamroute")):
        points = [row for row in result.rows if row.method == method]
        lines.append((mark, [row.cost_share for row in points], [row.accuracy for row in points]))
    lines.insert(0, ("x", result.shares, result.accuracies))
    print_table(chart(lines))
    print_table("accuracy against cost: █ occamroute  m best mixture  x one classifier for everything  o oracle")
    print_table("budget and cost are shares of always using the dearest; all accuracies are on queries not seen before")
    print_table(f"page with the chart: {Path(out).resolve()}")
