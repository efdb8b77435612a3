"""forecast(): what classify would do and what that would cost, with nothing bought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from occamroute._arrays import seed_number
from occamroute._money import Amount, exact, money
from occamroute.calls.sources import sources_of
from occamroute.calls.terms import checked_queries, query_ids_of
from occamroute.execution.buying import within
from occamroute.execution.classifying import expected_costs, fitted, matching
from occamroute.execution.shops import Stages
from occamroute.execution.tariffs import make_tariff
from occamroute.planning.plans import Plan
from occamroute.pool import Pool
from occamroute.profiles import Profile

__all__ = ["Forecast", "forecast"]


@dataclass(frozen=True, eq=False)
class Forecast:
    """The plan that is to be expected, and the bill.

    Without an ``extractor`` it is the very plan. Otherwise features would have to be bought first, so rows of the
    profile stand in for the queries: usage and accuracy are then what queries like those come to.
    """

    plan: Plan
    extractor: str | None
    extraction_cost: float
    answers_cost: float
    set_aside: float

    def summary(self) -> dict[str, Any]:
        """The forecast for JSON."""
        return {
            "exact": self.extractor is None,
            "n_queries": len(self.plan),
            "budget": float(self.plan.budget) + self.set_aside,
            "extractor": self.extractor,
            "extraction_cost": self.extraction_cost,
            "answers_cost": self.answers_cost,
            "planned_cost": self.plan.planned_cost,
            "set_aside": self.set_aside,
            "usage": self.plan.usage,
            "expected_accuracy": self.plan.expected_accuracy,
            "accuracy_interval": list(self.plan.accuracy_interval or ()),
        }


def forecast(
    pool: Pool,
    profile: Profile,
    queries: Any,
    *,
    budget: Amount,
    ids: Any = None,
    combine: bool = True,
    seed: int | np.random.Generator = 0,
    progress: Stages | None = None,
) -> Forecast:
    """What ``classify`` with the same arguments would do; no classifier is called."""
    pool, profile = matching(pool, profile)
    number = seed_number(seed)
    queries = checked_queries(queries)
    names = query_ids_of(ids, queries)
    known = expected_costs(profile)
    tariff = make_tariff({name: one for name, one in sources_of(pool).items() if name in known}, queries, known)
    stages = progress or (lambda stage, done, total: None)
    planner = fitted(pool, profile, tariff, queries=len(queries), combine=combine, seed=number, stages=stages)
    total = money(budget)
    rows = np.random.default_rng(number).integers(0, len(profile), len(queries))
    costs = tariff.expected[..., : len(profile.names)]

    def planned(amount: Amount) -> Plan:
        return planner.plan(lambda name: profile.feature_sets[name][rows], budget=amount, costs=costs, ids=names)

    plan = within(total, tariff, planned)
    extraction = exact(plan.problem.overhead) * len(plan)
    return Forecast(
        plan=plan,
        extractor=plan.made_from["extractor"],
        extraction_cost=float(extraction),
        answers_cost=float(exact(plan.planned_cost) - extraction),
        set_aside=float(total - money(plan.budget)),
    )
