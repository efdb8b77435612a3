"""execute() in blocks: on the workers of an executor, or one after the other where queries are larger than memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from occamroute._money import exact, from_text, money
from occamroute.calls.call_names import lasting_name
from occamroute.calls.terms import content_hash, price_list
from occamroute.errors import InvalidInputError, JournalError, NoAnswersError
from occamroute.execution.blocks import BlockToBuy, Errand, Receipt, buy_block, planned
from occamroute.execution.buying import budget_of, extractor_in
from occamroute.execution.leftovers import Leftovers
from occamroute.execution.questions import FolderQuestions, Questions, questions_of
from occamroute.execution.runs import Run
from occamroute.execution.shops import Stages
from occamroute.execution.stored_runs import StoredRun
from occamroute.executors import Executor, Task, opened
from occamroute.part_folders import PartFolder, content_key
from occamroute.planning.plans import Plan
from occamroute.planning.stored_plans import StoredPlan
from occamroute.pool import Pool
from occamroute.pool_files.sending import PoolAt
from occamroute.storage import load

__all__ = [
    "NAME",
    "ROWS",
    "bought_in_blocks",
    "execute_in_blocks",
    "in_memory",
    "in_order",
    "planned_in_all",
    "rows_of",
    "side_by_side",
    "workplace",
]

Item = TypeVar("Item")
Result = TypeVar("Result")

# Queries in a block of a run whose plan is in memory: enough of them that a worker's start does not count.
ROWS = 4096
NAME, GIVEN = "_run.json", "_leftovers.jsonl"


def execute_in_blocks(
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
    """Buys what a plan asks for, block by block."""
    pool = pool.select(plan.names)
    questions = questions_of(queries)
    if len(questions) != len(plan):
        raise InvalidInputError(f"the plan is for {len(plan)} queries, got {len(questions)}.")
    if features is not None and isinstance(plan, StoredPlan):
        raise InvalidInputError("a plan in a folder extracts its features as it is executed: leave features out.")
    extractor_in(pool, plan, given=features is not None)
    facts = ["execute", _name_of(plan), questions.fingerprint, price_list(pool)]
    facts.append("none" if features is None else _content(features))
    rows = plan.parts.part_rows if isinstance(plan, StoredPlan) else ROWS
    with workplace(out, journal, questions) as place, opened(executor) as workers:
        folder = PartFolder.begin(place, "run", content_key(facts), len(plan), rows)
        errand = Errand(
            run=lasting_name(folder.path / NAME), folder=folder, pool=PoolAt.of(pool, workers),
            questions=questions, plan=plan, added=_added(plan, folder, features), share=side_by_side(workers, folder),
            ledger=ledger, features=features,
        )  # fmt: skip
        stored = bought_in_blocks(errand, workers, budget_of(plan, features), pool, progress)
        return stored if out is not None else in_memory(stored, plan)


def bought_in_blocks(
    errand: Errand, workers: Executor | None, budget: Fraction, pool: Pool, progress: Stages | None
) -> StoredRun:
    """The run, all of it bought."""
    folder = errand.folder
    if folder.finished is not None:
        return StoredRun.from_folder(folder.path)
    receipts: list[Receipt] = []
    done = 0
    numbers = range(len(folder))
    leftovers = Leftovers(folder.path / GIVEN, budget, rows_of(folder))
    # Made one after the other while blocks are bought: each is told what those before it have left over by then.
    blocks = (BlockToBuy(number, leftovers.for_block(number)) for number in numbers)
    for number, receipt in enumerate(in_order(workers, buy_block, errand, blocks, "buying", progress)):
        receipts.append(receipt)
        leftovers.finished(Fraction(receipt.budget) - Fraction(receipt.spent))
        done += receipt.rows
        if progress is not None:
            progress("buying", done, folder.rows)
        if number == 0:
            made_from = _first(folder, errand)
    made = _summed_up(errand, receipts, budget, pool, made_from)
    if made.failures == len(made):
        raise NoAnswersError(len(made), str(made.exact_spent), made.block(0).failures)
    folder.finish(made.about())
    _tidy(folder)
    return made


def in_order(
    workers: Executor | None, task: Task[Errand, Item, Result], errand: Errand, items: Iterable[Item], stage: str,
    progress: Stages | None,
) -> Iterator[Result]:  # fmt: skip
    """What a task makes of every item; in this process one after the other, where an interrupt is heard at once."""
    if workers is not None:
        yield from workers.map(task, errand, items)
        return
    before = shown = 0

    def within_the_whole(own: str, done: int, total: int) -> None:
        nonlocal shown
        if progress is not None:
            rows = min(errand.folder.part_rows, errand.folder.rows - before)
            # What a block has to do turns out as it goes on.
            shown = max(shown, before + done * rows // max(1, total))
            progress(stage, shown, errand.folder.rows)

    here = replace(errand, stages=within_the_whole)
    for item in items:
        yield task(here, item)
        before = min(before + errand.folder.part_rows, errand.folder.rows)


def side_by_side(workers: Executor | None, folder: PartFolder) -> int:
    """How many blocks are bought at once: so many share what classifiers allow."""
    return min(len(folder), max(1, int(getattr(workers, "at_once", 1))))


@contextmanager
def workplace(out: Any, journal: Any, questions: Questions) -> Iterator[Path]:
    """The folder in which blocks are written: one to keep, or one that is gone afterwards."""
    if out is not None and journal is not None:
        raise InvalidInputError("journals of a run that is written to a folder are kept there: leave journal out.")
    if out is not None or journal is not None:
        place = Path(out if out is not None else journal).absolute()
        if isinstance(questions, FolderQuestions):
            questions.folder.require_apart(place)
        if out is None and place.is_file():
            raise JournalError(journal, "it was begun without an executor: go on without one, or name another")
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="occamroute-run-") as temporary:
        yield Path(temporary)


def _added(plan: Plan | StoredPlan, folder: PartFolder, features: Any) -> tuple[Fraction, ...]:
    """What each block may spend beyond what its plan costs: its share of what the whole leaves over.

    All blocks together may spend the plan's budget, to the last digit, without features that are given.
    """
    paid = 0 if features is None else exact(plan.problem.overhead)
    spare = (money(plan.budget) - planned_in_all(plan)) / len(plan) - paid
    return tuple(rows * spare for rows in rows_of(folder))


def rows_of(folder: PartFolder) -> list[int]:
    """How many queries each block has."""
    spans = [folder.span(number) for number in range(len(folder))]
    return [stop - start for start, stop in spans]


def planned_in_all(plan: Plan | StoredPlan) -> Fraction:
    """What a plan costs, exactly: what its queries cost, and not what is said of them, so that caps hold."""
    if isinstance(plan, Plan):
        return planned(plan, 0, len(plan))
    units = plan.problem.units
    return (plan.problem.paid(plan.counted()) + units.overhead * len(plan)) * units.size


def _name_of(plan: Plan | StoredPlan) -> Any:
    if isinstance(plan, StoredPlan):
        return plan.fingerprint
    return [content_hash(plan.choice), content_hash(plan.problem.value), content_hash(plan.ids), str(plan.budget)]


def _content(features: Any) -> str:
    tables = features if isinstance(features, dict) else {"": features}
    return content_key([(name, content_hash(np.asarray(table))) for name, table in tables.items()])


def _first(folder: PartFolder, errand: Errand) -> dict[str, Any]:
    made: Run = load(folder.file(0))
    plan = errand.plan
    interval = None if plan is None else plan.accuracy_interval
    return made.made_from | {
        "planned_cost": None if plan is None else plan.planned_cost,
        "expected_accuracy": None if plan is None else plan.expected_accuracy,
        "accuracy_interval": None if interval is None else list(interval),
    }


def _summed_up(
    errand: Errand, receipts: Sequence[Receipt], budget: Fraction, pool: Pool, made_from: dict[str, Any]
) -> StoredRun:
    plan, rows = errand.plan, errand.folder.rows
    expected = sum(receipt.expected for receipt in receipts) / rows
    if plan is not None and all(receipt.as_planned for receipt in receipts):
        expected = plan.expected_accuracy
    return StoredRun(
        parts=errand.folder,
        names=pool.names,
        classes=pool.classes,
        budget=from_text(str(budget)),
        exact_spent=sum((Fraction(receipt.spent) for receipt in receipts), Fraction(0)),
        usage={name: sum(receipt.usage[name] for receipt in receipts) for name in pool.names},
        failures=sum(receipt.failures for receipt in receipts),
        expected_accuracy=float(expected),
        made_from=made_from,
    )


def _tidy(folder: PartFolder) -> None:
    """What workers that died left behind: journals of blocks that are done, and half-written parts."""
    for pattern in ("part-*.journal*", ".part-*.tmp"):
        for leftover in folder.path.glob(pattern):
            leftover.unlink(missing_ok=True)


def in_memory(stored: StoredRun, plan: Plan | StoredPlan | None) -> Run:
    """The whole of a run that is kept in parts."""
    blocks = [stored.block(number) for number in range(stored.n_blocks)]
    starts = [stored.rows(number)[0] for number in range(stored.n_blocks)]
    return Run(
        ids=tuple(one for block in blocks for one in block.ids),
        names=stored.names,
        classes=stored.classes,
        answers=np.concatenate([block.answers for block in blocks]),
        probabilities=np.concatenate([block.probabilities for block in blocks]),
        choice=np.concatenate([block.choice for block in blocks]),
        cost=np.concatenate([block.cost for block in blocks]),
        reason=np.concatenate([block.reason for block in blocks]),
        failures={
            start + row: why for start, block in zip(starts, blocks, strict=True) for row, why in block.failures.items()
        },
        budget=stored.budget,
        expected_accuracy=stored.expected_accuracy,
        exact_spent=stored.exact_spent,
        made_from=stored.made_from,
        plan=plan if isinstance(plan, Plan) else None,
    )
