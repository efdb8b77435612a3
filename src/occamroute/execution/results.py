"""The run that rounds of buying come to: answers, combined where the plan says so, and a reason for each."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._money import from_text
from occamroute.execution.rounds import Rounds
from occamroute.execution.runs import Run
from occamroute.planning.combining import mixed
from occamroute.planning.plans import Plan
from occamroute.pool import Pool

__all__ = ["make_run"]


def make_run(
    pool: Pool, ids: tuple[str, ...], plan: Plan, rounds: Rounds, extractor: str | None,
    *, budget: Fraction, made_from: dict[str, Any],
) -> Run:  # fmt: skip
    """What was bought, as a run."""
    store, queries = rounds.buyer.store, len(ids)
    probabilities = np.full((queries, len(pool.classes)), np.nan)
    cost = np.zeros(queries) if extractor is None else np.where(store[extractor].there, store[extractor].costs, 0.0)
    again = rounds.answered_by != plan.choice
    reason = np.where(again, "planned again", "planned").astype(object)
    for column, name in enumerate(plan.names):
        rows = np.flatnonzero(rounds.answered_by == column)
        if not rows.size:
            continue
        probabilities[rows] = store[name].answers[rows]
        share = float(plan.weights[column])
        if name != extractor:
            cost[rows] += store[name].costs[rows]
            if extractor is not None and share and store[extractor].probabilities is not None:
                both = rows[store[extractor].there[rows]]
                probabilities[both] = mixed(store[extractor].answers[both], store[name].answers[both], share)
                reason[both] += f", combined with {extractor} ({share:g})"
        else:
            reason[rows] += ", paid with the features"
    for row, why in rounds.failures.items():
        reason[row] = why
    answers = np.full(queries, "", dtype=object)
    done = rounds.answered_by >= 0
    answers[done] = np.array(pool.classes, object)[probabilities[done].argmax(axis=1)]
    return Run(
        ids=ids,
        names=plan.names,
        classes=pool.classes,
        answers=answers.astype(np.str_),
        probabilities=probabilities,
        choice=rounds.answered_by,
        cost=cost,
        reason=reason.astype(np.str_),
        failures=dict(sorted(rounds.failures.items())),
        budget=from_text(str(budget)),
        expected_accuracy=_expected(plan, rounds),
        exact_spent=rounds.buyer.budget.spent,
        made_from={
            **made_from,
            "profile": plan.made_from.get("profile"),
            "extractor": extractor,
            "estimator": plan.made_from.get("estimator"),
            "planned_cost": plan.planned_cost,
            "expected_accuracy": plan.expected_accuracy,
            "accuracy_interval": None if plan.accuracy_interval is None else list(plan.accuracy_interval),
            "seed": rounds.seed,
        },
        plan=plan,
    )


def _expected(plan: Plan, rounds: Rounds) -> float:
    """The plan's expected accuracy, or that of what was bought in its place."""
    if (rounds.answered_by == plan.choice).all():
        return plan.expected_accuracy
    rows = np.flatnonzero(rounds.answered_by >= 0)
    values = rounds.value[rows, rounds.answered_by[rows]]
    penalty = plan.problem.value[np.arange(len(plan)), plan.choice] - plan.success  # 0, or what a penalty took off
    correction = float(plan.made_from.get("correction", 0.0)) - float(penalty.mean())
    return float(np.clip((values.sum() + rows.size * correction) / len(plan), 0.0, 1.0))
