"""Buy what a plan asks for, from a shop that is open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._money import Amount, exact, from_text, money
from occamroute._version import __version__
from occamroute.calls.terms import content_hash
from occamroute.errors import BudgetTooSmallError, InvalidInputError
from occamroute.execution.results import make_run
from occamroute.execution.rounds import Rounds
from occamroute.execution.runs import Run
from occamroute.execution.shops import Looked, Shop, Stages, Together, look, open_shop, shelve_features
from occamroute.execution.tariffs import Tariff
from occamroute.planning.plans import Plan, paid_extractor
from occamroute.pool import Pool
from occamroute.profiles import Profile

__all__ = ["budget_of", "buy", "buy_plan", "extractor_in", "open_for", "within"]

# For the last call's worst case no more than this share of the budget is set aside.
MOST_MARGIN = Fraction(1, 20)


def _margin(tariff: Tariff, budget: Fraction) -> Fraction:
    """What is set aside for the last call's worst case."""
    return min(tariff.margin, budget * MOST_MARGIN)


def within(budget: Fraction, tariff: Tariff, plan: Callable[[Amount], Plan]) -> Plan:
    """A plan that sets something aside for the last call's worst case, if the budget allows that."""
    margin = _margin(tariff, budget)
    if margin:
        with suppress(BudgetTooSmallError):
            return plan(from_text(str(budget - margin)))
    return plan(from_text(str(budget)))


def extractor_in(pool: Pool, plan: Any, *, given: bool) -> str | None:
    """The member of the pool that the plan's features are of; None where they came from elsewhere."""
    extractor = paid_extractor(plan)
    if extractor in (*pool.names, *(one.name for one in pool.extractors)):
        return extractor
    if plan.problem.overhead and not given:
        raise InvalidInputError(
            f"the plan pays for the features of {extractor!r}, which is not in the pool: add it, or give features."
        )
    return None


def budget_of(plan: Any, features: Any) -> Fraction:
    """What a plan may spend; features that are given were paid elsewhere."""
    paid = 0 if features is None else exact(plan.problem.overhead) * len(plan)
    return money(plan.budget) - paid


def open_for(
    plan: Plan, pool: Pool, queries: Any, *, features: Any, budget: Fraction, journal: Any, ledger: Any,
    stages: Stages | None, together: Together | None = None,
) -> tuple[Shop, Looked]:  # fmt: skip
    """A shop in which a plan's answers can be bought."""
    extractor = extractor_in(pool, plan, given=features is not None)
    known = dict(zip(plan.names, np.atleast_2d(plan.problem.cost).mean(axis=0).tolist(), strict=True))
    if extractor is not None:
        known[extractor] = float(plan.problem.overhead)
    about = {"purpose": "execute", "plan": content_hash(plan.choice), "extractor": str(extractor)}
    about["features"] = "none" if features is None else "given"
    seed = int(plan.made_from.get("plan_seed", 0))
    shop = open_shop(
        pool, queries, ids=plan.ids, budget=budget, known=known, seed=seed, about=about, journal=journal, ledger=ledger,
        stages=stages, together=together,
    )  # fmt: skip
    return shop, Looked(extractor, np.ones(len(plan), np.bool_))


def buy_plan(shop: Shop, plan: Plan, looked: Looked, features: Any) -> Run:
    """Features first, where the plan looks at some and none are given; then the answers."""
    extractor = looked.extractor
    if extractor is not None and features is None:
        look(shop, looked, extractor)
    elif extractor in shop.pool.names:
        shelve_features(shop, str(extractor), features)
    return buy(shop, plan, looked, None)


def buy(shop: Shop, plan: Plan, looked: Looked, profile: Profile | None) -> Run:
    """The answers that a plan asks for; others where facts differ from it."""
    names = plan.names
    value = np.array(plan.problem.value)
    choice = np.array(plan.choice, np.int64)
    if not looked.there.all():
        level = plan.problem.value.mean(axis=0) if profile is None else profile.accuracy
        value[~looked.there] = level
    free = np.column_stack([shop.buyer.store[name].there & (name == looked.extractor) for name in names])
    rounds = Rounds(
        buyer=shop.buyer, tariff=shop.tariff, value=value, choice=choice, free=free, budget=shop.budget,
        margin=_margin(shop.tariff, shop.budget), seed=shop.seed, richer=shop.budget > money(plan.budget),
        consumed=looked.spent,
    )  # fmt: skip
    shop.buyer.reserve = rounds.reserve
    shop.wanted += len(shop.ids)
    if looked.extractor in names:
        rounds.barred[list(looked.failures), names.index(str(looked.extractor))] = True
    rounds.run()
    return make_run(
        shop.pool, shop.ids, plan, rounds, looked.extractor,
        budget=shop.budget, made_from={"version": __version__, "prices": shop.pool.prices},
    )  # fmt: skip
