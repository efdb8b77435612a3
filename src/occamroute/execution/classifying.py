"""classify() and execute(): extract what is worth it, plan, buy the answers, and plan again when facts differ."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, overload

import numpy as np

from occamroute._arrays import seed_number
from occamroute._money import Amount, money
from occamroute.calls.terms import checked_queries
from occamroute.errors import InvalidInputError
from occamroute.execution.block_classifying import classify_in_blocks
from occamroute.execution.block_runs import execute_in_blocks
from occamroute.execution.buying import budget_of, buy, buy_plan, open_for, within
from occamroute.execution.questions import in_folder
from occamroute.execution.runs import Run, with_answers
from occamroute.execution.shops import Looked, Shop, Stages, look, open_shop
from occamroute.execution.stored_runs import StoredRun
from occamroute.execution.tariffs import Tariff
from occamroute.executors import Executor
from occamroute.planning.fitting import Planner, fit
from occamroute.planning.plans import Plan, paid_extractor
from occamroute.planning.stored_plans import StoredPlan
from occamroute.pool import Pool
from occamroute.profiles import Profile
from occamroute.storage import from_bytes, to_bytes

__all__ = ["classify", "execute", "expected_costs", "fitted", "matching"]

PLAN = "plan.parquet"


@overload
def classify(
    pool: Pool, profile: Profile, queries: Any, *, budget: Amount, ids: Iterable[Any] | None = None,
    combine: bool = True, seed: int | np.random.Generator = 0, journal: str | os.PathLike[str] | None = None,
    ledger: Any = None, executor: str | Executor | None = None, out: None = None, progress: Stages | None = None,
) -> Run: ...  # fmt: skip


@overload
def classify(
    pool: Pool, profile: Profile, queries: Any, *, budget: Amount, ids: Iterable[Any] | None = None,
    combine: bool = True, seed: int | np.random.Generator = 0, journal: str | os.PathLike[str] | None = None,
    ledger: Any = None, executor: str | Executor | None = None, out: str | os.PathLike[str],
    progress: Stages | None = None,
) -> StoredRun: ...  # fmt: skip


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
    executor: str | Executor | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Stages | None = None,
) -> Run | StoredRun:
    """Answers for new queries, as many right as the budget buys: extract, plan, buy, and plan again.

    Nothing is ever spent above ``budget`` (nor above the ``ledger``'s cap, if one is given): the most that a call can
    cost is set aside before it is made. With a ``journal`` (a path) everything is written as it comes, and the same
    call goes on where an interrupted one stopped: no answer that came is bought twice.

    ``executor`` is where blocks of queries are worked on: "local", "ray", or an executor; ``journal`` is then a folder,
    on a disk that all workers see. ``queries`` may be a folder of Parquet files, larger than memory. With ``out``, a
    folder, answers are written there as they come, and the same call goes on where it stopped.
    """
    pool, profile = matching(pool, profile)
    number = seed_number(seed)
    about = {"purpose": "classify", "profile": profile.fingerprint, "seed": str(number), "combine": str(combine)}
    if in_blocks(queries, executor, out):

        def planner_for(tariff: Tariff, rows: int, workers: Executor | None) -> Planner:
            return fitted(
                pool, profile, tariff, queries=rows, combine=combine, seed=number, executor=workers,
                stages=progress or (lambda stage, done, total: None),
            )  # fmt: skip

        return classify_in_blocks(
            pool, profile, queries, budget=money(budget), known=expected_costs(profile), fitted=planner_for,
            facts=about, ids=ids, journal=journal, ledger=ledger, executor=executor, out=out, progress=progress,
        )  # fmt: skip
    queries = checked_queries(queries)
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
        return with_answers(buy(shop, plan, looked, profile))
    finally:
        shop.buyer.close()


@overload
def execute(
    plan: Plan | StoredPlan, pool: Pool, queries: Any, *, features: Any = None,
    journal: str | os.PathLike[str] | None = None, ledger: Any = None, executor: str | Executor | None = None,
    out: None = None, progress: Stages | None = None,
) -> Run: ...  # fmt: skip


@overload
def execute(
    plan: Plan | StoredPlan, pool: Pool, queries: Any, *, features: Any = None,
    journal: str | os.PathLike[str] | None = None, ledger: Any = None, executor: str | Executor | None = None,
    out: str | os.PathLike[str], progress: Stages | None = None,
) -> StoredRun: ...  # fmt: skip


def execute(
    plan: Plan | StoredPlan,
    pool: Pool,
    queries: Any,
    *,
    features: Any = None,
    journal: str | os.PathLike[str] | None = None,
    ledger: Any = None,
    executor: str | Executor | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Stages | None = None,
) -> Run | StoredRun:
    """Buys what a plan asks for, within its budget.

    Where the plan looks at features and none are given, they are extracted and paid first; ``features`` given were paid
    already, and their cost is taken off the budget. A plan in a folder goes with queries in a folder. The rest is as
    in ``classify``.
    """
    if not isinstance(plan, Plan | StoredPlan):
        raise InvalidInputError(f"a plan is needed to execute, got {type(plan).__name__}.")
    if not isinstance(pool, Pool):
        raise InvalidInputError(f"a pool is needed to execute a plan, got {type(pool).__name__}.")
    if isinstance(plan, StoredPlan) or in_blocks(queries, executor, out):
        return execute_in_blocks(
            plan, pool, queries, features=features, journal=journal, ledger=ledger, executor=executor, out=out,
            progress=progress,
        )  # fmt: skip
    pool = pool.select(plan.names)
    queries = checked_queries(queries)
    if len(queries) != len(plan):
        raise InvalidInputError(f"the plan is for {len(plan)} queries, got {len(queries)}.")
    shop, looked = open_for(
        plan, pool, queries, features=features, budget=budget_of(plan, features), journal=journal, ledger=ledger,
        stages=progress,
    )  # fmt: skip
    try:
        return with_answers(buy_plan(shop, plan, looked, features))
    finally:
        shop.buyer.close()


def in_blocks(queries: Any, executor: str | Executor | None, out: Any) -> bool:
    """Whether a run is bought in blocks: on workers, from a folder, or into one."""
    return executor not in (None, "local") or out is not None or in_folder(queries)


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
    if profile.text is not None:  # whatever the pool holds: the profile's own text features need nobody's call
        extractors.add(profile.text.name)
    stored = profile.stored_sets
    sets = {name: table for name, table in stored.items() if name in names or name in extractors}
    if stored and not sets:
        raise InvalidInputError(f"no member of the pool extracts the profile's features: {', '.join(stored)}.")
    if len(sets) < len(stored):
        costs = {name: profile.extraction_costs[name] for name in sets}
        first = profile.extractor if profile.extractor in sets else next(iter(sets))
        profile = replace(profile, features=sets, extractor_cost=costs, extractor=first)
    return pool.select(names), profile if tuple(names) == profile.names else profile.select(names)


def expected_costs(profile: Profile) -> dict[str, float]:
    """What the profile says that each of its classifiers and extractors costs on average."""
    known = {name: float(cost) for name, cost in profile.extraction_costs.items()}
    return known | dict(zip(profile.names, profile.mean_costs.tolist(), strict=True))


def fitted(
    pool: Pool, profile: Profile, tariff: Tariff, *, queries: int, combine: bool, seed: int, stages: Stages,
    executor: Executor | None = None,
) -> Planner:  # fmt: skip
    """Everything chosen on held-out rows; today's prices of extractors count."""
    sources = tariff.sources
    prices = {
        name: float(sources[name].member.cost) if sources[name].fixed is not None else cost
        for name, cost in profile.extractor_cost.items()
        if name not in pool.names and name in sources
    }
    if prices:
        profile = replace(profile, extractor_cost={**profile.extractor_cost, **prices})
    return fit(
        profile, budgets=(), n_queries=queries, combine=combine, seed=seed, executor=executor,
        progress=lambda done, total: stages("choosing", done, total),
    )  # fmt: skip


def _planned(shop: Shop, planner: Planner, looked: Looked) -> Plan:
    """The plan for the queries; what it looks at is extracted, and paid, on the way."""
    names = planner.profile.names
    costs = shop.tariff.expected[..., : len(names)]
    looked.there = np.ones(len(shop.ids), np.bool_)

    def features(name: str) -> Any:
        if planner.profile.text is not None and name == planner.profile.text.name:
            return shop.buyer.queries  # the planner makes features of texts
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
    extractor = paid_extractor(plan)
    if extractor is not None:
        look(shop, looked, extractor)
    return plan
