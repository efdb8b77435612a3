"""classify() in blocks: features are extracted, and paid, block by block; then planned with; then answers are bought.

A block has one journal for both: answers that came with its features are not bought again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._money import Amount, from_text, money
from occamroute.calls.call_names import lasting_name
from occamroute.calls.sources import sources_of
from occamroute.calls.terms import content_hash, price_list, query_ids_of
from occamroute.errors import BudgetTooSmallError, InvalidInputError
from occamroute.execution.block_runs import (
    NAME,
    ROWS,
    bought_in_blocks,
    in_memory,
    in_order,
    planned_in_all,
    rows_of,
    side_by_side,
    workplace,
)
from occamroute.execution.blocks import EXTRACTED, Asked, Errand, extract_block
from occamroute.execution.buying import MOST_MARGIN
from occamroute.execution.questions import FolderQuestions, Questions, questions_of
from occamroute.execution.runs import Run
from occamroute.execution.shops import Stages
from occamroute.execution.stored_runs import StoredRun
from occamroute.execution.tariffs import Tariff, make_tariff
from occamroute.executors import Executor, opened
from occamroute.part_folders import PartFolder, content_key, part_rows_for
from occamroute.planning.fitting import Planner
from occamroute.planning.plans import Plan
from occamroute.planning.stored_plans import StoredPlan
from occamroute.pool import Pool
from occamroute.pool_files.sending import PoolAt
from occamroute.profiles import Profile
from occamroute.storage import Parts, load, save, whole_file, write

__all__ = ["classify_in_blocks"]

# What is beside the answers: readers of folders pass over names that begin so.
PLAN, PLAN_FOLDER, FEATURES = "_plan.parquet", "_plan", "_features"
Made = TypeVar("Made", Plan, StoredPlan)
Fitted = Callable[[Tariff, int, Executor | None], Planner]


@dataclass
class Classifying:
    """A run on its way.

    ``spent`` is what each block paid for features, by ``extractor``, and ``still`` what it needs at least for answers.
    """

    errand: Errand
    pool: Pool
    budget: Fraction
    known: dict[str, float]
    tariff: Tariff
    workers: Executor | None
    progress: Stages | None
    extractor: str | None = None
    spent: tuple[Fraction, ...] = ()
    still: tuple[Fraction, ...] = ()

    @property
    def folder(self) -> PartFolder:
        """Where everything is written."""
        return self.errand.folder


def classify_in_blocks(
    pool: Pool, profile: Profile, queries: Any, *, budget: Fraction, known: dict[str, float], fitted: Fitted,
    facts: dict[str, str], ids: Any = None, journal: Any = None, ledger: Any = None,
    executor: str | Executor | None = None, out: str | os.PathLike[str] | None = None,
    progress: Stages | None = None,
) -> Run | StoredRun:  # fmt: skip
    """The run; ``fitted`` gives the planner, ``known`` is what members cost on average, ``facts`` what it is about."""
    questions = questions_of(queries)
    if isinstance(questions, FolderQuestions) and ids is not None:
        raise InvalidInputError("ids of queries in a folder are in its files, in a column 'id'.")
    if not isinstance(questions, FolderQuestions):
        questions = replace(questions, names=query_ids_of(ids, questions.queries))
        facts = {**facts, "ids": content_hash(questions.names)}
    key = content_key([facts, questions.fingerprint, price_list(pool), str(budget)])
    large = isinstance(questions, FolderQuestions)
    rows = part_rows_for(len(questions)) if large else ROWS
    with workplace(out, journal, questions) as place, opened(executor) as workers:
        folder = PartFolder.begin(place, "run", key, len(questions), rows)
        errand = Errand(
            run=lasting_name(folder.path / NAME), folder=folder, pool=PoolAt.of(pool, workers),
            questions=questions, share=side_by_side(workers, folder), ledger=ledger,
        )  # fmt: skip
        one = Classifying(errand, pool, budget, known, _tariff(pool, questions, known, large), workers, progress)
        plan = _kept(one)
        if plan is None:
            planner = fitted(one.tariff, len(questions), workers)
            if isinstance(questions, FolderQuestions):
                plan = _plan_of_folder(one, planner, questions)
            else:
                plan = _plan_in_memory(one, planner, questions)
            _keep(one, plan)
        one.errand = replace(errand, plan=plan)
        bought = replace(one.errand, added=_added(one, plan))
        stored = bought_in_blocks(bought, workers, budget, pool, progress)
        return stored if out is not None else in_memory(stored, plan)


def _tariff(pool: Pool, questions: Questions, known: dict[str, float], large: bool) -> Tariff:
    """What is expected of the queries; of a folder, the first of them stand for all."""
    sample = questions.block(0, min(ROWS, len(questions))) if large else questions.block(0, len(questions))
    return make_tariff({name: one for name, one in sources_of(pool).items() if name in known}, sample, known)


def _extract(one: Classifying, profile: Profile, extractor: str, out: Path | None) -> FloatArray:
    """The features of all queries, bought by whoever works; what each block paid for them is noted."""
    share, paid = one.budget / len(one.errand.questions), str(profile.paid_extractor(extractor))
    average = profile.feature_sets[paid].mean(axis=0).astype(np.float32)
    joined = (extractor, profile.text) if extractor in profile.joined else None
    asked = [
        Asked(number, paid, rows * share, one.known, average, _file(out, number), joined)
        for number, rows in enumerate(rows_of(one.folder))
    ]
    found = []
    for number, part in enumerate(in_order(one.workers, extract_block, one.errand, asked, "extracting", one.progress)):
        found.append(part)
        if one.progress is not None:
            one.progress("extracting", one.folder.span(number)[1], one.folder.rows)
    one.extractor, one.spent = paid, tuple(Fraction(part.spent) for part in found)
    one.still = tuple(Fraction(part.still) for part in found)
    return np.concatenate([part.features for part in found])


def _write_text(one: Classifying, profile: Profile, name: str, out: Path) -> None:
    """The features of all queries' texts, as files; nothing is bought."""
    if profile.text is None:
        raise InvalidInputError("the profile has no text features.")
    for number in range(len(one.folder)):
        span, place = one.folder.span(number), out / f"part-{number:06d}.parquet"
        if not place.exists():
            questions = one.errand.questions
            table = profile.text.extract(questions.block(*span))
            columns = {"id": np.array(questions.ids(*span)), f"features:{name}": table}
            write(Parts("features", columns, {}), place)
        if one.progress is not None:
            one.progress("extracting", span[1], one.folder.rows)


def _file(out: Path | None, number: int) -> Path | None:
    return None if out is None else out / f"part-{number:06d}.parquet"


def _plan_in_memory(one: Classifying, planner: Planner, questions: Questions) -> Plan:
    costs = one.tariff.expected[..., : len(planner.profile.names)]
    kept: dict[str, FloatArray] = {}

    def features(name: str) -> Any:
        if planner.profile.text is not None and name == planner.profile.text.name:
            return questions.block(0, len(questions))  # the planner makes features of texts
        if name not in kept:
            kept[name] = _extract(one, planner.profile, name, None)
        return kept[name]

    def plan(budget: Amount) -> Plan:
        return planner.plan(features, budget=budget, costs=costs, ids=questions.ids(0, len(questions)))

    return _within(one, plan)


def _plan_of_folder(one: Classifying, planner: Planner, questions: FolderQuestions) -> StoredPlan:
    """The extractor first, since its features fill a folder; then the plan, in another."""
    sources = one.tariff.sources
    costs = [
        float(sources[name].member.cost) if sources[name].fixed is not None else one.known[name]
        for name in planner.profile.names
    ]

    def plan(budget: Amount) -> StoredPlan:
        extractor = planner.extractor(budget)
        place = one.folder.path / FEATURES
        if extractor is None:
            # Whatever is named here is not looked at: no features are worth their cost.
            extractor, place = next(iter(planner.profile.feature_sets)), questions.folder.path
        elif one.extractor is None:
            place.mkdir(exist_ok=True)
            if planner.profile.paid_extractor(extractor) is None:
                _write_text(one, planner.profile, extractor, place)
            else:
                _extract(one, planner.profile, extractor, place)
        return planner.plan(
            {extractor: place}, budget=budget, costs=costs, executor=one.workers, out=one.folder.path / PLAN_FOLDER
        )

    return _within(one, plan)


def _within(one: Classifying, plan: Callable[[Amount], Made]) -> Made:
    """A plan that leaves something for the worst cases of every block's last call, if the budget allows that."""
    margin = min(one.tariff.margin * len(one.folder), one.budget * MOST_MARGIN)
    if margin:
        with suppress(BudgetTooSmallError):
            return plan(from_text(str(one.budget - margin)))
    return plan(from_text(str(one.budget)))


def _paid_for_features(plan: Plan | StoredPlan) -> Fraction:
    """What of a plan's cost is for features."""
    return plan.problem.units.overhead * plan.problem.units.size * len(plan)


def _added(one: Classifying, plan: Plan | StoredPlan) -> tuple[Fraction, ...]:
    """What each block may spend beyond what its plan costs: what its features really cost, and its share of the rest.

    All blocks together may spend the budget, to the last digit, and none less than it has spent.
    """
    spent = one.spent or (Fraction(0),) * len(one.folder)
    features = _paid_for_features(plan)
    left = one.budget - sum(spent, Fraction(0)) - (planned_in_all(plan) - features)
    if left < 0:
        return _when_features_were_dear(one, features / len(plan))
    spare = (left - features) / len(plan)
    return tuple(paid + rows * spare for paid, rows in zip(spent, rows_of(one.folder), strict=True))


def _when_features_were_dear(one: Classifying, feature: Fraction) -> tuple[Fraction, ...]:
    """The same where the budget does not reach for what was planned, each ``feature`` of which was to cost less.

    An answer for every query goes first, then each block gets the same share of what its plan asks for beyond that.
    """
    costs = [money(one.errand.plan_of(number).budget) for number in range(len(one.folder))]
    answers = [cost - rows * feature for cost, rows in zip(costs, rows_of(one.folder), strict=True)]
    left = max(Fraction(0), one.budget - sum(one.spent, Fraction(0)))
    first = _shared_out(left, one.still)
    rest = _shared_out(
        left - sum(first), [max(Fraction(0), planned - sure) for planned, sure in zip(answers, first, strict=True)]
    )
    blocks = zip(one.spent, first, rest, costs, strict=True)
    return tuple(spent + sure + more - cost for spent, sure, more, cost in blocks)


def _shared_out(amount: Fraction, wishes: Sequence[Fraction]) -> list[Fraction]:
    """All that is wished for, or the same share of every wish where the amount does not reach."""
    total = sum(wishes, Fraction(0))
    return [wish * min(Fraction(1), amount / total) if total else wish for wish in wishes]


def _keep(one: Classifying, plan: Plan | StoredPlan) -> None:
    """Write down the plan, and what features cost: from now on only answers are bought."""
    place = one.folder.path
    if isinstance(plan, Plan):
        save(plan, place / PLAN)
    said = {
        "plan": PLAN if isinstance(plan, Plan) else plan.path.name,
        "extractor": one.extractor,
        "spent": [str(amount) for amount in one.spent],
        "still": [str(amount) for amount in one.still],
    }
    with whole_file(place / EXTRACTED) as temporary:
        temporary.write_text(json.dumps(said), "utf-8")


def _kept(one: Classifying) -> Plan | StoredPlan | None:
    """The plan of a run that was interrupted after it was made."""
    place = one.folder.path / EXTRACTED
    if not place.exists():
        return None
    said = json.loads(place.read_text("utf-8"))
    one.extractor, one.spent = said["extractor"], tuple(map(Fraction, said["spent"]))
    one.still = tuple(map(Fraction, said["still"]))
    plan: Plan | StoredPlan = load(one.folder.path / said["plan"])
    return plan
