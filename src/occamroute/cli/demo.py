"""occamroute demo: real plans on real data, and what they really reach."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from occamroute.cli._inputs import Json, Seed, check_out
from occamroute.cli._screen import chart, print_json, print_table, progress_bar, table

if TYPE_CHECKING:
    from occamroute.evaluation.budget_sweep import Sweep

__all__ = ["demo"]

FRACTIONS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.6, 1.0)
EXTRACTORS = ("resnet20-w16", "resnet18-w64")
TITLE = "Seven networks, 10,000 CIFAR-10 images, one budget"
ABOUT = (
    "Seven real networks, from a tiny one to one that costs thirty times as much, were run on 20,000 labelled "
    "images. From those outcomes alone occamroute decides for 10,000 other images which network answers which, at "
    "several budgets. It may first ask one of two cheaper networks what an image looks like, where that is worth "
    "its cost, and may then average that network's answer with another's."
)


def demo(
    out: Annotated[str, typer.Option(help="Where to write the page with the chart: .html.")] = "occamroute-demo.html",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Plan 10,000 real queries at several budgets and show what the plans really reach."""
    from occamroute.datasets import load_dataset
    from occamroute.evaluation.budget_sweep import sweep
    from occamroute.reporting.sweep_page import sweep_page
    from occamroute.storage import whole_file

    check_out(out, ".html")
    with whole_file(out) as temporary:
        profile, test = load_dataset("cifar10", extractor=EXTRACTORS)
        with progress_bar("planning 10,000 queries") as progress:
            result = sweep(profile, test, fractions=FRACTIONS, seed=seed, progress=progress)
        temporary.write_text(sweep_page(result, title=TITLE, about=ABOUT), encoding="utf-8")
    if as_json:
        print_json([asdict(row) for row in result.rows])
    else:
        _show(result, out)


def _show(result: Sweep, out: str) -> None:
    from occamroute.reporting.sweep_page import headline, promised

    print_table(TITLE)
    rows = table(
        "budget", "cost", "occamroute", "promised (90 %)", "best mixture", "oracle", "<chosen on held-out rows"
    )
    for budget in dict.fromkeys(row.budget for row in result.of("occamroute")):
        ours, mixture, oracle = (
            next(row for row in result.of(method) if row.budget == budget)
            for method in ("occamroute", "mixture", "oracle")
        )
        rows.add_row(
            f"{budget:g}", f"{ours.cost_share:.4f}", _percent(ours.accuracy), promised(ours),
            _percent(mixture.accuracy), _percent(oracle.accuracy), ours.chosen or "",
        )  # fmt: skip
    print_table(rows)
    for method in ("cheapest", "dearest"):
        (row,) = result.of(method)
        right = _percent(row.accuracy)
        print_table(f"always the {method:<9} {row.chosen:<11} costs {row.cost_share:.4f} and is right on {right}")
    print_table(headline(result), "")
    lines = [
        ("x", list(zip(result.shares, result.accuracies, strict=True))),
        ("m", [(row.cost_share, row.accuracy) for row in result.of("mixture")]),
        ("█", [(row.cost_share, row.accuracy) for row in result.of("occamroute")]),
    ]
    print_table(*chart(lines, joined="█").splitlines())
    print_table("accuracy against cost: █ occamroute   m best mixture, no features   x one classifier for everything")
    print_table(
        "budget and cost are shares of always using the dearest; accuracies are what plans really reached on images "
        "that took no part in planning;\nthe oracle knows every answer beforehand: no router can be above it"
    )
    print_table(f"page with the chart: {Path(out).resolve()}")


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
