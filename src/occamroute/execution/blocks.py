"""A run in blocks of queries, each a task that may be begun more than once and is paid once.

A block has a journal of its own, which one process at a time can write. Whoever comes second waits, and then finds
the answers, or goes on where the first one died: calls that nobody saw the end of are made again under the same key
where they are charged once, and counted as spent and left alone where they are not. What a block may spend is fixed
before it begins, and all blocks together may spend no more than the budget: no worker needs to hear of another.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._money import exact, from_text, money
from occamroute.errors import InvalidInputError, JournalError
from occamroute.execution.buying import buy_plan, open_for
from occamroute.execution.questions import Questions
from occamroute.execution.runs import Run
from occamroute.execution.shops import Looked, Shop, Stages, Together, look, open_shop
from occamroute.part_folders import PartFolder
from occamroute.planning.plans import Plan
from occamroute.planning.stored_plans import StoredPlan
from occamroute.pool_files.sending import PoolAt
from occamroute.profiles import beside
from occamroute.storage import Parts, load, save, write
from occamroute.text_features import TextFeatures

__all__ = [
    "EXTRACTED",
    "Asked",
    "BlockToBuy",
    "Errand",
    "Extracted",
    "Receipt",
    "buy_block",
    "extract_block",
    "journal_of",
    "planned",
]

# Says that features are extracted, what they cost, and what was planned with them: from then on answers are bought.
EXTRACTED = "_extracted.json"


@dataclass(frozen=True, eq=False)
class Errand:
    """What every task of a run needs: its queries, its pool, what to buy, and where answers are written.

    A block may spend what its plan costs and what is ``added`` to that, exactly. ``features`` (N, d) were paid
    elsewhere. ``stages`` hears of progress, in tasks of this process.
    """

    run: str
    folder: PartFolder
    pool: PoolAt
    questions: Questions
    plan: Plan | StoredPlan | None = None
    added: tuple[Fraction, ...] = ()
    share: int = 1
    ledger: Any = None
    features: Any = None
    stages: Stages | None = None

    def together(self, number: int) -> Together:
        """What all processes call the purchases of a block."""
        return Together(f"{self.run}-{number}", self.share)

    def plan_of(self, number: int) -> Plan:
        """The plan of one block."""
        if isinstance(self.plan, StoredPlan):
            return self.plan.block(number)
        if self.plan is None:
            raise InvalidInputError("there is no plan yet.")
        return part_of(self.plan, *self.folder.span(number))


@dataclass(frozen=True)
class BlockToBuy:
    """A block to buy: its number, and what it may spend beyond its plan and what is ``added`` to that."""

    number: int
    extra: Fraction = Fraction(0)


@dataclass(frozen=True)
class Receipt:
    """What came of a block, in short: ``spent`` of its ``budget``, exactly, and ``expected`` correct answers."""

    rows: int
    budget: str
    spent: str
    usage: dict[str, int]
    failures: int
    expected: float
    as_planned: bool

    @classmethod
    def of(cls, run: Run) -> Receipt:
        """The receipt of a run of one block."""
        as_planned = run.made_from.get("expected_accuracy") == run.expected_accuracy
        return cls(
            rows=len(run),
            budget=str(exact(run.budget)),
            spent=str(run.exact_spent),
            usage=run.usage,
            failures=len(run.failures),
            expected=run.expected_accuracy * len(run),
            as_planned=as_planned,
        )


@dataclass(frozen=True, eq=False)
class Extracted:
    """The features (n, d) of a block's queries, where they are not written, and what was spent on them exactly.

    ``still`` is the least that makes sure of an answer for each query that has none yet.
    """

    features: FloatArray
    spent: str
    still: str


def planned(plan: Plan, start: int, stop: int) -> Fraction:
    """What consecutive queries of a plan cost, exactly, in the units of the whole: parts add up to it."""
    units = plan.problem.units
    table = plan.problem.unit_costs
    chosen = table[0 if len(table) == 1 else np.arange(start, stop), plan.choice[start:stop]]
    return (sum(map(int, chosen.tolist())) + units.overhead * (stop - start)) * units.size


def part_of(plan: Plan, start: int, stop: int) -> Plan:
    """Consecutive queries of a plan; their budget is what they cost."""
    problem, rows = plan.problem, slice(start, stop)
    amount = from_text(str(planned(plan, start, stop)))
    cost = problem.cost if problem.cost.ndim == 1 else problem.cost[rows]
    success = plan.success[rows]
    return replace(
        plan,
        ids=plan.ids[rows],
        choice=plan.choice[rows],
        budget=amount,
        planned_cost=float(amount),
        expected_accuracy=float(np.clip(success.mean() + float(plan.made_from.get("correction", 0.0)), 0.0, 1.0)),
        accuracy_interval=None,
        success=success,
        problem=replace(problem, value=problem.value[rows], cost=cost, budget=amount),
    )


def journal_of(part: Path) -> Path:
    """Where the calls of a block are written down."""
    return part.with_name(f"{part.name}.journal")


def buy_block(errand: Errand, block: BlockToBuy) -> Receipt:
    """Buy the answers of one block and write them down; what is there already is not bought again."""
    part = _place_of(errand, block.number)
    try:
        if not part.exists():
            _buy_part(errand, block, part)
    except JournalError:
        # Who was here before removes the journal once the answers are there, also under the hands of who waits for it.
        if not part.exists():
            raise
    return Receipt.of(load(part))


def _buy_part(errand: Errand, block: BlockToBuy, part: Path) -> None:
    with _shop_for(errand, block) as (shop, looked, plan):
        # Somebody else may have finished while this one waited for its turn.
        if not part.exists():
            span = errand.folder.span(block.number)
            features = None if errand.features is None else _rows_of(errand.features, *span)
            save(buy_plan(shop, plan, looked, features), part)
    _remove(journal_of(part))


@contextmanager
def _shop_for(errand: Errand, block: BlockToBuy) -> Iterator[tuple[Shop, Looked, Plan]]:
    number = block.number
    plan = errand.plan_of(number)
    shop, looked = open_for(
        plan, errand.pool.pool, errand.questions.block(*errand.folder.span(number)), features=errand.features,
        budget=money(plan.budget) + errand.added[number] + block.extra, journal=journal_of(errand.folder.file(number)),
        ledger=errand.ledger, stages=errand.stages, together=errand.together(number),
    )  # fmt: skip
    try:
        yield shop, looked, plan
    finally:
        shop.buyer.close()


@dataclass(frozen=True)
class Asked:
    """Features to be extracted for a block: whose, for how much at most, and what members cost on average.

    Where none come, those of an ``average`` query (d,) stand in. With ``out`` they are written to that file, where a
    ``joined`` feature set is wanted beside those of the texts and under its name.
    """

    number: int
    extractor: str
    cap: Fraction
    known: dict[str, float]
    average: FloatArray
    out: Path | None = None
    joined: tuple[str, TextFeatures | None] | None = None


def extract_block(errand: Errand, asked: Asked) -> Extracted:
    """Buy the features of one block."""
    number = asked.number
    part = _place_of(errand, number)
    start, stop = errand.folder.span(number)
    shop = open_shop(
        errand.pool.pool, errand.questions.block(start, stop), ids=errand.questions.ids(start, stop),
        budget=asked.cap, known=asked.known, seed=0, about={}, journal=journal_of(part), ledger=errand.ledger,
        stages=errand.stages, together=errand.together(number),
    )  # fmt: skip
    try:
        if (errand.folder.path / EXTRACTED).exists():
            # Only somebody whom all others believe dead comes this late: the journal may be gone.
            raise JournalError(journal_of(part), "all features of its run were extracted before")
        looked = Looked()
        table = _filled(look(shop, looked, asked.extractor), looked, asked)
        if asked.out is not None and not asked.out.exists():  # a plan may have been begun with it
            name, whole = asked.extractor, table
            if asked.joined is not None and asked.joined[1] is not None:
                name, whole = asked.joined[0], beside(table, asked.joined[1].extract(shop.buyer.queries))
            write(Parts("features", {"id": np.array(shop.ids), f"features:{name}": whole}, {}), asked.out)
        features = table if asked.out is None else table[:0]
        return Extracted(features, str(shop.buyer.budget.spent), str(_still_needed(shop, looked)))
    finally:
        shop.buyer.close()


def _still_needed(shop: Shop, looked: Looked) -> Fraction:
    """The worst cases of the cheapest answers to queries that have none."""
    cheapest = np.broadcast_to(shop.tariff.worst[..., : len(shop.pool.names)].min(axis=-1), len(shop.ids))
    return exact(math.fsum(cheapest[~looked.there] if looked.extractor in shop.pool.names else cheapest))


def _filled(table: FloatArray, looked: Looked, asked: Asked) -> FloatArray:
    """Features; queries of which none came are looked at as the average one, and not believed when they are bought."""
    if not looked.there.any():
        return np.tile(asked.average, (len(table), 1))
    if table.shape[1] != asked.average.size:
        found, known = table.shape[1], asked.average.size
        raise InvalidInputError(
            f"features of {asked.extractor!r} must have the profile's {known} columns, got {found}."
        )
    return np.where(looked.there[:, None], table, asked.average)


def _place_of(errand: Errand, number: int) -> Path:
    """Where a block's answers are written; every machine must see the same."""
    part = errand.folder.file(number)
    if not part.parent.is_dir():
        raise InvalidInputError(
            f"a worker does not see the folder {part.parent}: answers and journals must be on a disk that all see."
        )
    return part


def _rows_of(features: Any, start: int, stop: int) -> Any:
    if isinstance(features, dict):
        return {name: table[start:stop] for name, table in features.items()}
    return features[start:stop]


def _remove(journal: Path) -> None:
    """A journal whose answers are all written elsewhere, with what its database keeps beside it."""
    for ending in ("", "-wal", "-shm", "-journal"):
        Path(f"{os.fspath(journal)}{ending}").unlink(missing_ok=True)
