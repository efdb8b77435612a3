"""What lies around a plan, by calls of the solver on its own problem."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from occamroute._money import exact
from occamroute.charts.words import amount, proved_gap
from occamroute.errors import BudgetTooSmallError
from occamroute.knapsack import solve_problem
from occamroute.planning.plans import Plan
from occamroute.reporting.pieces import Section, paragraph, table

__all__ = ["around_section"]

# Budgets to look at, as parts of the plan's own.
PARTS = (Fraction(1, 2), Fraction(3, 4), Fraction(9, 10), Fraction(1), Fraction(11, 10), Fraction(5, 4), Fraction(2))


def around_section(plan: Plan) -> Section:
    """The best plans at budgets around the plan's own."""
    rows: list[tuple[str, ...]] = []
    own = 0
    for part in PARTS:
        budget = exact(plan.budget) * part
        problem = replace(plan.problem, budget=budget)
        try:
            solution = solve_problem(problem, seed=int(plan.made_from.get("plan_seed", 0)))
        except BudgetTooSmallError:
            continue
        scale = 1 if problem.objective == "min" else len(plan)
        used = np.bincount(solution.choice, minlength=len(plan.names))
        most = int(used.argmax())
        if part == 1:
            own = len(rows)
        rows.append(
            (
                amount(float(budget)), amount(solution.cost), f"{solution.value / scale:.6f}", proved_gap(solution.gap),
                f"{solution.price:.4g}", f"{plan.names[most]} ({used[most]:,})",
            )
        )  # fmt: skip
    what = "worst value" if plan.problem.objective == "min" else "mean value"
    body = table(
        ("budget", "cost", what, "gap", "price", "most queries go to"), rows, text=(5,), strong=[own],
        caption="The optimum at budgets around this one, each a call of the solver; costs and gaps are exact",
    ) + paragraph(
        "Values are means of estimates (after the penalty, if any): exact for the estimates, optimistic for the truth, "
        "with no interval known. The price is how many more right answers the next unit of money is estimated to buy."
    )  # fmt: skip
    return Section("around", "What a little more or less would buy", body)
