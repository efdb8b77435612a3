"""Blocks of labelled queries, each a task: every classifier answers them, and each call is paid once.

A block has a journal of its own beside the run's, which one process at a time can write: a task that is begun again
goes on from it. Seconds are measured by the worker that makes the call.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from occamroute._arrays import IntArray
from occamroute.calls.answer_store import SourceAnswers
from occamroute.calls.batch_budget import BatchBudget
from occamroute.calls.buyer import Bought, Buyer
from occamroute.calls.call_names import lasting_name
from occamroute.calls.journal import Journal, waited_for
from occamroute.calls.sources import Source, sources_of
from occamroute.calls.terms import content_hash, price_list
from occamroute.errors import InvalidInputError, JournalError
from occamroute.executors import Executor
from occamroute.pool import Pool
from occamroute.pool_files.sending import PoolAt

__all__ = ["ROWS", "answered_in_blocks", "name_of", "refuse_blocks", "worst_cases"]

# Queries in a block: whole batches, so that blocks make the calls that one run would make.
ROWS = 2048


@dataclass(frozen=True, eq=False)
class Survey:
    """What every task needs: ``caps`` is the most that each block may cost, None for no limit."""

    run: str
    journal: str
    pool: PoolAt
    queries: Any
    wanted: tuple[str, ...]
    rows: int
    share: int
    caps: tuple[Fraction, ...] | None
    ledger: Any

    def place(self, number: int) -> Path:
        """Where the calls of a block are written down."""
        return Path(f"{self.journal}-block-{number:05d}")

    def block(self, number: int) -> Any:
        """The queries of a block."""
        return self.queries[number * self.rows : (number + 1) * self.rows]


@dataclass(frozen=True, eq=False)
class Answered:
    """What a block came to: answers by source, and what became of the rest."""

    answers: dict[str, SourceAnswers]
    bought: Bought


def answered_in_blocks(
    pool: Pool, queries: Any, wanted: list[str], workers: Executor, *, budget: Fraction | None, journal: Any,
    ledger: Any, progress: Callable[[int], None],
) -> tuple[dict[str, SourceAnswers], Bought]:  # fmt: skip
    """Answers to all queries by source, and what became of the rest; ``progress`` hears how many answers came."""
    blocks = -(-len(queries) // ROWS)
    with _beside(journal) as place:
        survey = Survey(
            run=lasting_name(name_of(place)), journal=place, pool=PoolAt.of(pool, workers),
            queries=queries, wanted=tuple(wanted), rows=ROWS, share=min(blocks, max(1, getattr(workers, "at_once", 1))),
            caps=None, ledger=ledger,
        )  # fmt: skip
        if budget is not None:
            survey = replace(survey, caps=_caps(survey, pool, budget, blocks))
        answers = {name: SourceAnswers(len(queries)) for name in wanted}
        bought = Bought()
        for number, answered in enumerate(workers.map(_answer_block, survey, range(blocks))):
            _add(answers, bought, answered, number * ROWS)
            progress(sum(of_source.there.size for of_source in answered.answers.values()))
            if bought.down or bought.unaffordable:
                break  # there will be no profile
    return answers, bought


def name_of(journal: str) -> Path:
    """Where a run's name is kept, as long as it goes on."""
    return Path(f"{journal}-run.json")


@contextmanager
def _beside(journal: Any) -> Iterator[str]:
    if journal is not None:
        place = Path(journal).absolute()
        if not place.parent.is_dir():
            raise InvalidInputError(f"cannot write {journal}: the folder {place.parent} does not exist.")
        if place.exists():
            raise JournalError(journal, "it was begun without an executor: go on without one, or name another")
        yield str(place)
        return
    with tempfile.TemporaryDirectory(prefix="occamroute-profile-") as folder:
        yield f"{folder}/journal"


def _caps(survey: Survey, pool: Pool, budget: Fraction, blocks: int) -> tuple[Fraction, ...]:
    """A budget divided among blocks by the most that each can cost, or by its queries where nobody knows that.

    What an earlier run has spent, on whatever budget, goes off first: blocks may spend no more than this one in all.
    """
    reserve = worst_cases(sources_of(pool), survey.queries)
    spans = [np.arange(len(survey.queries))[at * survey.rows : (at + 1) * survey.rows] for at in range(blocks)]
    spent = [_spent_before(survey, pool, number) for number in range(blocks)]
    left = max(Fraction(0), budget - sum(spent))
    worst = [sum((reserve(name, rows) for name in survey.wanted), Fraction(0)) for rows in spans]
    unpaid = [max(Fraction(0), most - paid) for most, paid in zip(worst, spent, strict=True)]
    shares = unpaid if sum(unpaid) else [Fraction(rows.size) for rows in spans]
    return tuple(paid + left * share / sum(shares) for paid, share in zip(spent, shares, strict=True))


def _spent_before(survey: Survey, pool: Pool, number: int) -> Fraction:
    """What is in the journal of a block that was begun before."""
    if not survey.place(number).exists():
        return Fraction(0)
    written = _journal(survey, pool, number)
    try:
        with written.reading():
            return sum(written.spending(), Fraction(0))
    finally:
        written.close()


def _journal(survey: Survey, pool: Pool, number: int) -> Journal:
    """The journal of a block, once nobody else writes it."""
    queries = survey.block(number)
    about = {"purpose": "profile", "queries": content_hash(queries), "price list": price_list(pool)}
    return waited_for(survey.place(number), about, f"{survey.run}-{number}")


def _answer_block(survey: Survey, number: int) -> Answered:
    """Every answer to the queries of one block."""
    queries, pool, place = survey.block(number), survey.pool.pool, survey.place(number)
    if not place.parent.is_dir():
        raise InvalidInputError(f"a worker does not see the folder {place.parent}: journals must be where all do.")
    sources = sources_of(pool, survey.share)
    written = _journal(survey, pool, number)
    cap = None if survey.caps is None else survey.caps[number]
    account = BatchBudget(cap, ledger=survey.ledger, run=written.run)
    limited = cap is not None or survey.ledger is not None
    reserve = worst_cases(sources, queries) if limited else lambda name, rows: Fraction(0)
    buyer = Buyer(
        sources, queries, budget=account, journal=written, reserve=reserve, limited=limited, careful=False, strict=True
    )
    try:
        if not name_of(survey.journal).exists():
            # Only somebody whom all others believe dead comes this late: the profile is made, its journals are removed.
            raise JournalError(place, "its run has ended")
        buyer.recover()
        bought = buyer.buy(dict.fromkeys(survey.wanted, np.arange(len(queries))))
        return Answered({name: buyer.store[name] for name in survey.wanted}, bought)
    finally:
        buyer.close()


def _add(answers: dict[str, SourceAnswers], bought: Bought, answered: Answered, first: int) -> None:
    """Put what a block came to where it belongs."""
    for name, part in answered.answers.items():
        answers[name].take_in(part, first)
    for name, reasons in answered.bought.failures.items():
        bought.failures.setdefault(name, {}).update({row + first: reason for row, reason in reasons.items()})
    for there, new in ((bought.unaffordable, answered.bought.unaffordable), (bought.unasked, answered.bought.unasked)):
        for name, rows in new.items():
            there[name] = np.concatenate([there.get(name, np.empty(0, np.int64)), rows + first])
    bought.down.update(answered.bought.down)


def refuse_blocks(journal: Any) -> None:
    """Raise where a journal was begun in blocks: what is paid there would be paid again."""
    if journal is not None and list(Path(journal).absolute().parent.glob(f"{Path(journal).name}-block-*")):
        raise JournalError(journal, "it was begun with an executor: go on with one, or name another")


def worst_cases(sources: dict[str, Source], queries: Any) -> Callable[[str, IntArray], Fraction]:
    """The most that calls can cost; nothing is known beforehand of what is measured by time."""
    most = {name: source.most(queries) for name, source in sources.items()}

    def reserve(name: str, rows: IntArray) -> Fraction:
        amounts = most[name]
        return Fraction(0) if amounts is None else sum((amounts[int(row)] for row in rows), Fraction(0))

    return reserve
