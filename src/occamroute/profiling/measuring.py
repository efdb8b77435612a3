"""profile(): run a pool over labelled queries and record success, features and what each call cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._money import Amount, exact, money
from occamroute._version import __version__
from occamroute.calls.answer_store import SourceAnswers
from occamroute.calls.batch_budget import BatchBudget
from occamroute.calls.buyer import Bought, Buyer
from occamroute.calls.journal import Journal
from occamroute.calls.sources import Source, sources_of
from occamroute.calls.terms import checked_queries, column_numbers, content_hash, price_list, query_ids_of
from occamroute.errors import InvalidInputError, UnavailableError, UnknownNameError
from occamroute.executors import Executor, opened
from occamroute.pool import Pool, selected
from occamroute.profiles import Profile, success
from occamroute.profiling.blocks import answered_in_blocks, refuse_blocks, worst_cases
from occamroute.text_features import TextFeatures, of_texts

__all__ = ["profile"]

# Where nobody names an extractor, so many of the cheapest classifiers are kept as such.
CHEAPEST = 3
# Queries on which an extractor fails are left out: none is one by default that would take more than this share along.
MOST_LOST = 0.02
# A measured cost is no better known than to so many digits.
DIGITS = 4


def profile(
    pool: Pool,
    queries: Any,
    labels: Any,
    *,
    extractor: str | Iterable[str] | None = None,
    ids: Iterable[Any] | None = None,
    groups: Any = None,
    budget: Amount | None = None,
    journal: str | os.PathLike[str] | None = None,
    ledger: Any = None,
    executor: str | Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
    text: bool = False,
) -> Profile:
    """What each classifier of the pool does on labelled queries, and what that costs.

    ``labels`` are names of the pool's classes, or column numbers. ``extractor`` names whose features are kept, one
    or several; by default the pool's extractors and the three cheapest classifiers that hardly ever fail. A query on
    which a classifier fails counts as not answered rightly; one of which an extractor fails is left out; both are
    listed in ``made_from``. ``budget`` caps what the calls may cost. With a ``journal`` (a path) everything is written
    as it comes, and a call with the same arguments goes on where an earlier one was interrupted. ``executor`` is where
    blocks of queries are answered: "local", "ray", or an executor; a worker measures the seconds of its own calls.
    ``text`` adds the free feature set "text" of queries that are texts (``oc.TextFeatures``, fitted on them), which a
    pool that has text features among its extractors gets in any case.
    """
    if not isinstance(pool, Pool):
        raise InvalidInputError(f"a pool is needed to profile, got {type(pool).__name__}.")
    queries = checked_queries(queries)
    truth = column_numbers(labels, pool.classes, len(queries))
    names = query_ids_of(ids, queries)
    groups = None if groups is None else np.asarray(groups)
    if groups is not None and groups.shape != (len(queries),):
        raise InvalidInputError(f"groups must be of shape ({len(queries)},), got {groups.shape}.")
    texts = _text_features(pool, queries, text=text)
    wished = _wished(pool, extractor, texts)
    sources = sources_of(pool)
    extractors = [name for name in (_names(pool.extractors) if wished is None else wished) if name in sources]
    wanted = [*pool.names, *(name for name in extractors if name not in pool.names)]
    cap = None if budget is None else money(budget)
    total, done = len(queries) * len(wanted), 0

    def tick(answers: int) -> None:
        nonlocal done
        done += answers
        if progress is not None:
            progress(done, total)

    with opened(executor) as workers:
        if workers is not None:
            answers, bought = answered_in_blocks(
                pool, queries, wanted, workers, budget=cap, journal=journal, ledger=ledger, progress=tick
            )
        else:
            about = {"purpose": "profile", "queries": content_hash(queries), "labels": content_hash(truth)}
            refuse_blocks(journal)
            written = Journal(journal, about | {"price list": price_list(pool)})
            answers, bought = _answered(sources, queries, wanted, written, cap=cap, ledger=ledger, tick=tick)
    _require_answers(bought, answers, cap)
    return _made(pool, sources, answers, bought, wished, truth, names, groups, queries, texts)


def _answered(
    sources: dict[str, Source], queries: Any, wanted: list[str], written: Journal, *, cap: Fraction | None, ledger: Any,
    tick: Callable[[int], None],
) -> tuple[dict[str, SourceAnswers], Bought]:  # fmt: skip
    """All answers, bought by this process."""
    account = BatchBudget(cap, ledger=ledger, run=written.run)
    limited = cap is not None or ledger is not None
    reserve = worst_cases(sources, queries) if limited else lambda name, rows: Fraction(0)
    buyer = Buyer(
        sources,
        queries,
        budget=account,
        journal=written,
        reserve=reserve,
        progress=tick,
        limited=limited,
        careful=False,
    )
    try:
        buyer.recover()
        bought = buyer.buy(dict.fromkeys(wanted, np.arange(len(queries))))
        return {name: buyer.store[name] for name in wanted}, bought
    finally:
        buyer.close()


def _text_features(pool: Pool, queries: Any, *, text: bool) -> TextFeatures | None:
    """The pool's text features, or new ones fitted on the queries; None where neither was asked for."""
    members = [one for one in pool.extractors if of_texts(one)]
    if len(members) > 1:
        raise InvalidInputError(f"a profile has one set of text features, the pool has {len(members)}.")
    if not members:
        return TextFeatures.fit(queries) if text else None
    (member,) = members
    return member if isinstance(member, TextFeatures) else TextFeatures.fit(queries, name=member.name)


def _names(members: Iterable[Any]) -> list[str]:
    return [one.name for one in members]


def _wished(pool: Pool, extractor: str | Iterable[str] | None, text: TextFeatures | None) -> list[str] | None:
    """The extractors that are asked for, which may be none but text features; None where nothing was said."""
    if extractor is None:
        return None
    wished = [extractor] if isinstance(extractor, str) else list(extractor)
    free = [] if text is None else [text.name]
    known = list(dict.fromkeys([*pool.names, *_names(pool.extractors), *free]))
    for name in wished:
        if name not in known:
            raise UnknownNameError("extractor", name, known)
    return [name for name in wished if name not in free] if wished else None


def _require_answers(bought: Bought, answers: dict[str, SourceAnswers], budget: Fraction | None) -> None:
    for name, reason in bought.down.items():
        raise UnavailableError(f"{name!r} gives no answers: {reason}")
    for name, rows in bought.unaffordable.items():
        cap = "what the ledger has left" if budget is None else f"the budget of {float(budget):.12g}"
        raise InvalidInputError(f"{cap} for profiling is used up: {name!r} still has {rows.size} queries to answer.")
    for name, of_source in answers.items():
        if not of_source.there.any():
            reasons = bought.failures.get(name, {0: "no answer came"})
            raise InvalidInputError(f"{name!r} failed on every query: {next(iter(reasons.values())).rstrip('.')}.")


def _made(
    pool: Pool, sources: dict[str, Source], answers: dict[str, SourceAnswers], bought: Bought, wished: list[str] | None,
    truth: IntArray, ids: tuple[str, ...], groups: Any, queries: Any, text: TextFeatures | None,
) -> Profile:  # fmt: skip
    costs = {name: _cost(sources[name], of_source) for name, of_source in answers.items()}
    kept = _default_extractors(pool, answers, costs) if wished is None else wished
    usable = np.logical_and.reduce([np.ones(len(ids), np.bool_), *(answers[name].there for name in kept)])
    if not usable.any():
        raise InvalidInputError(f"no query has the features of all of {', '.join(kept)}.")
    rows = np.flatnonzero(usable)
    probabilities = {name: _filled(answers[name], rows) for name in pool.names}
    features = {name: answers[name].extracted[rows].astype(np.float32) for name in kept}
    by_query = any(np.ndim(costs[name]) for name in pool.names)
    table = [np.broadcast_to(costs[name], len(ids))[rows] for name in pool.names]
    several = len(kept) != 1 or kept[0] not in pool.names
    return Profile(
        names=pool.names,
        costs=np.column_stack(table) if by_query else [float(costs[name]) for name in pool.names],
        features=(features if several else features[kept[0]]) if kept else None,
        success=np.column_stack([
            success(probabilities[name], truth[rows]) * answers[name].there[rows] for name in pool.names
        ]),
        extractor=kept[0] if kept else None,
        extractor_cost={name: float(np.mean(costs[name])) for name in kept if name not in pool.names} or None,
        ids=[ids[row] for row in rows],
        labels=truth[rows],
        classes=pool.classes,
        groups=None if groups is None else groups[rows],
        text=text,
        texts=None if text is None else selected(queries, rows),
        probabilities={name: table.astype(np.float32) for name, table in probabilities.items()},
        made_from={
            "version": __version__,
            "costs": {name: _how_measured(sources[name], of_source) for name, of_source in answers.items()},
            "failures": {
                name: {ids[row]: reason for row, reason in sorted(reasons.items())}
                for name, reasons in bought.failures.items()
            },
        },
    )  # fmt: skip


def _default_extractors(pool: Pool, answers: dict[str, SourceAnswers], costs: dict[str, Any]) -> list[str]:
    """The pool's extractors and the cheapest classifiers, without those whose failures would cost many rows."""
    answered = {name: int(answers[name].there.sum()) for name in pool.names}
    reliable = [name for name in pool.names if answered[name] >= (1.0 - MOST_LOST) * max(answered.values())]
    cheapest = sorted(reliable, key=lambda name: (float(np.mean(costs[name])), pool.names.index(name)))
    return [*(name for name in _names(pool.extractors) if name in answers), *cheapest[:CHEAPEST]]


def _filled(of_source: SourceAnswers, rows: IntArray) -> FloatArray:
    """Probabilities; a query without an answer says nothing of any class."""
    table = of_source.answers[rows]
    return np.where(of_source.there[rows, None], table, 1.0 / table.shape[1])


def _cost(source: Source, of_source: SourceAnswers) -> Any:
    """What one query costs: typed, measured (a median over calls), or by query (n,)."""
    if source.timed:
        seconds = _seconds(of_source)
        return float(_rounded(source.member.cost.of(1.0) * exact(float(np.median(seconds)))))
    if source.fixed is not None and not hasattr(source.member, "answer"):
        return float(source.member.cost)
    there = of_source.there
    if np.ptp(of_source.costs[there]) == 0.0:
        return float(of_source.costs[there][0])
    return np.where(there, of_source.costs, of_source.costs[there].mean())


def _seconds(of_source: SourceAnswers) -> FloatArray:
    """Seconds a query of each call, of whole batches where there are any."""
    sizes = np.array([size for size, _ in of_source.batches])
    seconds = np.array([seconds for _, seconds in of_source.batches])
    whole = sizes == sizes.max()
    return np.asarray(seconds[whole] / sizes[whole])


def _rounded(amount: Fraction) -> Decimal:
    short = Context(prec=DIGITS, rounding=ROUND_UP)
    return short.divide(Decimal(amount.numerator), Decimal(amount.denominator))


def _how_measured(source: Source, of_source: SourceAnswers) -> dict[str, Any]:
    """How the cost of a source came about: typed, measured, or stated with every answer."""
    seconds = _seconds(of_source)
    low, median, high = np.quantile(seconds, (0.25, 0.5, 0.75))
    kind = "measured" if source.timed else "typed" if source.fixed is not None else "by query"
    return {
        "kind": kind,
        "price": str(source.member.cost),
        "batch_size": int(max(size for size, _ in of_source.batches)),
        "calls": len(of_source.batches),
        "median_seconds": float(median),
        "spread_seconds": float(high - low),
    }
