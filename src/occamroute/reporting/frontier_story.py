"""The story of a frontier: what every budget would buy."""

from __future__ import annotations

import numpy as np

from occamroute.charts.pictures import frontier_chart
from occamroute.charts.words import amount, brief, counted, plain_percent
from occamroute.planning.frontiers import Frontier
from occamroute.reporting.pieces import Section, paragraph, table
from occamroute.reporting.provenance import again_section, data_section, typed
from occamroute.reporting.stories import Figure, Source, Story

__all__ = ["ESTIMATED", "frontier_story"]

ESTIMATED = (
    "Accuracies on a frontier are plain means of chosen estimates, which is optimistic; no interval is known for them. "
    "`oc.plan` at a budget gives an accuracy corrected on held-out rows, with its interval."
)
NEARLY = 0.99
SHOWN = 16


def frontier_story(front: Frontier, source: Source) -> Story:
    """What a frontier tells."""
    low, high = float(front.accuracies[0]), float(front.accuracies[-1])
    # With a penalty, accuracies need not rise with the budget.
    enough = int(np.argmax(front.accuracies >= low + NEARLY * (high - low))) if high > low else 0
    cost, most = float(front.budgets[enough]), float(front.budgets[-1])
    share = cost / most if most else 1.0
    return Story(
        kind="frontier",
        title=f"{100 * NEARLY:g} % of the gain for {100 * share:.3g} % of the money" if high > low
        else "More money is not estimated to buy more right answers",
        sentence=(
            f"For {counted(front.n_queries, 'query', 'queries')}, budgets from {brief(float(front.budgets[0]))} to "
            f"{brief(most)} are estimated to buy accuracies from {plain_percent(low)} to {plain_percent(high)}; most "
            f"of that is there at {brief(cost)}. These are estimates with no interval known."
        ),
        figures=(
            Figure(
                "Least budget", brief(float(front.least)), f"exact; estimated {plain_percent(low)}", float(front.least)
            ),
            Figure(
                f"{100 * NEARLY:g} % of the gain", brief(cost),
                f"exact; estimated {plain_percent(float(front.accuracies[enough]))}", cost,
            ),
            Figure("Nothing more to buy from", brief(most), f"exact; estimated {plain_percent(high)}", most),
        ),
        chart=lambda canvas: frontier_chart(*front.spread(300).points(), canvas=canvas),
        caption="The best plan at every budget. The line is a mean of estimates: optimistic, with no interval known.",
        sections=(
            _points(front),
            data_section({"queries": f"{front.n_queries:,}", "supported points": f"{len(front):,}"}, made_by=None),
            again_section(
                source, origin=typed("frontier", "PROFILE", "QUERIES", "--out", source.path),
                note="PROFILE and QUERIES, and the estimator's options, are those that the frontier was made with: its "
                "file does not name them.",
            ),
        ),
        warnings=(ESTIMATED,),
    )  # fmt: skip


def _points(front: Frontier) -> Section:
    rows = [
        (amount(row["budget"]), plain_percent(row["accuracy"]), f"{row['price']:.4g}")
        for row in front.spread(SHOWN).rows()
    ]
    body = table(
        ("budget (exact)", "mean estimate", "right answers per unit more"), rows,
        caption=f"Some of the {len(front):,} supported points: each is the optimum at its own cost",
    )  # fmt: skip
    body += paragraph("Between two points the straight line is only an upper bound; planning gives the optimum.")
    return Section("points", "Points", body)
