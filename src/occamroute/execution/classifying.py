"""classify() and execute(): extract what is worth it, plan, buy the answers, and plan again when facts differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, seed_number
from occamroute._money import Amount, exact, from_text, money
from occamroute._version import __version__
from occamroute.errors import BudgetTooSmallError, InvalidInputError
from occamroute.execution.results import make_run
from occamroute.execution.rounds import Rounds
from occamroute.execution.runs import Run
from occamroute.execution.shops import Looked, Shop, Stages, look, open_shop, shelve_features
from occamroute.execution.tariffs import Tariff
from occamroute.planning.fitting import Planner, fit
from occamroute.planning.plans import Plan
from occamroute.pool import Pool
from occamroute.profiles import Profile
from occamroute.purchasing.terms import checked_queries, content_hash
from occamroute.storage import from_bytes, to_bytes

__all__ = ["classify", "execute", "expected_costs", "fitted", "matching", "within"]

PLAN = "plan.parquet"
# For the last call's worst case no more than this share of the budget is set aside.
MOST_MARGIN = Fraction(1, 20)


def classify(
    pool: Pool,
    profile: Profile,
    queries: Any,
    *,
    budget: Amount,
    ids: Iterable[Any] | None = None,
    combine: bool = True,
    seed: int | np.random.Generator = 0,
    journal: str | os.PathLike[str] | None = None,
    ledger: Any = None,
    progress: Stages | None = None,
) -> Run:
    """Answers for new queries, as many right as the budget buys: extract, plan, buy, and plan again.

    Nothing is ever spent above ``budget`` (nor above the ``ledger``'s cap, if one is given): the most that a call can
    cost is set aside before it is made. With a ``journal`` (a path) everything is written as it comes, and the same
    call goes on where an interrupted one stopped: no answer that came is bought twice.
    """
    pool, profile = matching(pool, profile)
    number = seed_number(seed)
    queries = checked_queries(queries)
    about = {"purpose": "classify", "profile": profile.fingerprint, "seed": str(number), "combine": str(combine)}
    shop = open_shop(
        pool, queries, ids=ids, budget=money(budget), known=expected_costs(profile), seed=number, about=about,
        journal=journal, ledger=ledger, stages=progress,
    )  # fmt: skip
    try:
        looked = Looked()
        plan = _kept_plan(shop, looked)
        if plan is None:
            planner = fitted(
                pool, profile, shop.tariff, queries=len(queries), combine=combine, seed=number, stages=shop.stages
            )
            plan = _planned(shop, planner, looked)
            shop.buyer.journal.keep(PLAN, to_bytes(plan))
        return _buy(shop, plan, looked, profile)
    finally:
        shop.buyer.close()


def execute(
    plan: Plan,
    pool: Pool,
    queries: Any,
    *,
    features: Any = None,
    journal: str | os.PathLike[str] | None = None,
    ledger: Any = None,
    progress: Stages | None = None,
) -> Run:
    """Buys what a plan asks for, within its budget.

    Where the plan looks at features and none are given, they are extracted and paid first; ``features`` given were paid
    already, and their cost is taken off the budget. The rest is as in ``classify``.
    """
    if not isinstance(plan, Plan):
        raise InvalidInputError(f"a plan is needed to execute, got {type(plan).__name__}.")
    if not isinstance(pool, Pool):
        raise InvalidInputError(f"a pool is needed to execute a plan, got {type(pool).__name__}.")
    pool = pool.select(plan.names)
    queries = checked_queries(queries)
    if len(queries) != len(plan):
        raise InvalidInputError(f"the plan is for {len(plan)} queries, got {len(queries)}.")
    budget = money(plan.budget)
    if features is not None:
        budget -= exact(plan.problem.overhead) * len(plan)
    extractor = _extractor_in(pool, plan, given=features is not None)
    known = dict(zip(plan.names, np.atleast_2d(plan.problem.cost).mean(axis=0).tolist(), strict=True))
    if extractor is not None:
        known[extractor] = float(plan.problem.overhead)
    about = {"purpose": "execute", "plan": content_hash(plan.choice), "extractor": str(extractor)}
    about["features"] = "none" if features is None else "given"
    seed = int(plan.made_from.get("plan_seed", 0))
    shop = open_shop(
        pool, queries, ids=plan.ids, budget=budget, known=known, seed=seed, about=about, journal=journal, ledger=ledger,
        stages=progress,
    )  # fmt: skip
    try:
        looked = Looked(extractor, np.ones(len(plan), np.bool_))
        if extractor is not None and features is None:
            look(shop, looked, extractor)
        elif extractor in pool.names:
            shelve_features(shop, str(extractor), features)
        return _buy(shop, plan, looked, None)
    finally:
        shop.buyer.close()


def matching(pool: Any, profile: Any) -> tuple[Pool, Profile]:
    """Pool and profile with the same classifiers in the same order."""
    if not isinstance(pool, Pool) or not isinstance(profile, Profile):
        found = f"{type(pool).__name__} and {type(profile).__name__}"
        raise InvalidInputError(f"classify needs a pool and a profile, got {found}.")
    for name in pool.names:
        if name not in profile.names:
            raise InvalidInputError(f"classifier {name!r} of the pool is not in the profile: profile the pool again.")
    if profile.classes is not None and profile.classes != pool.classes:
        raise InvalidInputError("the pool's classes are not the profile's, or in another order.")
    names = [name for name in profile.names if name in pool.names]
    extractors = {one.name for one in pool.extractors}
    sets = {name: table for name, table in profile.feature_sets.items() if name in names or name in extractors}
    if not sets:
        raise InvalidInputError(
            f"no member of the pool extracts the profile's features: {', '.join(profile.feature_sets)}."
        )
    if len(sets) < len(profile.feature_sets):
        costs = {name: profile.extraction_costs[name] for name in sets}
        first = profile.extractor if profile.extractor in sets else next(iter(sets))
        profile = replace(profile, features=sets, extractor_cost=costs, extractor=first)
    return pool.select(names), profile if tuple(names) == profile.names else profile.select(names)


def expected_costs(profile: Profile) -> dict[str, float]:
    """What the profile says that each of its classifiers and extractors costs on average."""
    known = {name: float(cost) for name, cost in profile.extraction_costs.items()}
    return known | dict(zip(profile.names, profile.mean_costs.tolist(), strict=True))


def fitted(
    pool: Pool, profile: Profile, tariff: Tariff, *, queries: int, combine: bool, seed: int, stages: Stages
) -> Planner:
    """Everything chosen on held-out rows; today's prices of extractors count."""
    sources = tariff.sources
    prices = {
        name: float(sources[name].member.cost) if sources[name].fixed is not None else cost
        for name, cost in profile.extraction_costs.items()
        if name not in pool.names
    }
    if prices:
        profile = replace(profile, extractor_cost={**profile.extraction_costs, **prices})
    return fit(
        profile, budgets=(), n_queries=queries, combine=combine, seed=seed,
        progress=lambda done, total: stages("choosing", done, total),
    )  # fmt: skip


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


def _planned(shop: Shop, planner: Planner, looked: Looked) -> Plan:
    """The plan for the queries; what it looks at is extracted, and paid, on the way."""
    names = planner.profile.names
    costs = shop.tariff.expected[..., : len(names)]
    looked.there = np.ones(len(shop.ids), np.bool_)

    def features(name: str) -> FloatArray:
        table = look(shop, looked, name)
        known = planner.profile.feature_sets[name]
        if looked.there.any() and table.shape[1] != known.shape[1]:
            return table  # the planner says what is wrong with it
        # Queries of which no features came are looked at as the average one, and then not believed.
        average = np.broadcast_to(known.mean(axis=0), (len(table), known.shape[1]))
        return np.where(looked.there[:, None], table, average) if looked.there.any() else average

    def plan(budget: Amount) -> Plan:
        return planner.plan(features, budget=budget, costs=costs, ids=shop.ids)

    return within(shop.budget, shop.tariff, plan)


def _kept_plan(shop: Shop, looked: Looked) -> Plan | None:
    """The plan of a run that was interrupted after it was made."""
    content = shop.buyer.journal.kept(PLAN)
    if content is None:
        return None
    plan: Plan = from_bytes(content, "the journal's plan")
    looked.there = np.ones(len(plan), np.bool_)
    extractor = plan.made_from["extractor"]
    if extractor is not None:
        look(shop, looked, extractor)
    return plan


def _extractor_in(pool: Pool, plan: Plan, *, given: bool) -> str | None:
    """The member of the pool that the plan's features are of; None where they came from elsewhere."""
    extractor: str | None = plan.made_from.get("extractor")
    if extractor in (*pool.names, *(one.name for one in pool.extractors)):
        return extractor
    if plan.problem.overhead and not given:
        raise InvalidInputError(
            f"the plan pays for the features of {extractor!r}, which is not in the pool: add it, or give features."
        )
    return None


def _buy(shop: Shop, plan: Plan, looked: Looked, profile: Profile | None) -> Run:
    names = plan.names
    value = np.array(plan.problem.value)
    choice = np.array(plan.choice, np.int64)
    if not looked.there.all():
        level = plan.problem.value.mean(axis=0) if profile is None else profile.accuracy
        value[~looked.there] = level
    free = np.column_stack([shop.buyer.shelf[name].there & (name == looked.extractor) for name in names])
    rounds = Rounds(
        buyer=shop.buyer, tariff=shop.tariff, value=value, choice=choice, free=free, budget=shop.budget,
        margin=_margin(shop.tariff, shop.budget), seed=shop.seed, consumed=looked.spent,
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
