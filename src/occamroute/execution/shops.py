"""Shop: a pool, queries and a budget, ready to buy from; and what came of looking at features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import BoolArray, FloatArray, feature_matrix
from occamroute._money import rounded_up
from occamroute.calls.batch_budget import BatchBudget
from occamroute.calls.buyer import Buyer
from occamroute.calls.journal import Journal, waited_for
from occamroute.calls.sources import Outcome, Source, sources_of
from occamroute.calls.terms import content_hash, price_list, query_ids_of
from occamroute.errors import InvalidInputError
from occamroute.execution.rounds import keep_floors, spent_on
from occamroute.execution.tariffs import Tariff, make_tariff
from occamroute.pool import Pool

__all__ = ["Looked", "Shop", "Stages", "Together", "look", "open_shop", "shelve_features"]

# Called with the name of the stage, what is done of it, and how much there is to do.
Stages = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Together:
    """The terms of a part of a run that any of several processes may work on, and one after the other may.

    ``run`` is what they all call it, ``share`` how many such parts are bought side by side.
    """

    run: str
    share: int


@dataclass
class Shop:
    """A pool, queries, and a budget: everything that buying needs."""

    pool: Pool
    ids: tuple[str, ...]
    budget: Fraction
    tariff: Tariff
    buyer: Buyer
    stages: Stages
    seed: int
    bought: int = 0
    wanted: int = 0

    def tick(self, answers: int) -> None:
        """More answers are there."""
        self.bought += answers
        self.stages("buying", self.bought, self.wanted)

    def extract(self, name: str) -> tuple[FloatArray, BoolArray, dict[int, str]]:
        """Buy the features of all queries: (N, d), for which of them they came, and why not for others."""
        answers = len(self.pool.names)
        tables = [
            np.broadcast_to(costs[..., :answers].min(axis=-1), len(self.ids))
            for costs in (self.tariff.worst, self.tariff.expected)
        ]
        keep_floors(self.buyer.budget, self.tariff, tables)
        self.wanted += len(self.ids)
        bought = self.buyer.buy({name: np.arange(len(self.ids))})
        given = self.buyer.store[name]
        table = np.where(given.there[:, None], given.extracted.astype(np.float32), np.float32(0))
        return table, given.there.copy(), bought.failures.get(name, {})


@dataclass
class Looked:
    """What came of looking at features: whose, for which queries they came, and what that cost."""

    extractor: str | None = None
    there: BoolArray = field(default_factory=lambda: np.ones(0, np.bool_))
    failures: dict[int, str] = field(default_factory=dict)
    spent: Fraction = Fraction(0)


def open_shop(
    pool: Pool,
    queries: Any,
    *,
    ids: Any,
    budget: Fraction,
    known: Mapping[str, float],
    seed: int,
    about: Mapping[str, str],
    journal: Any,
    ledger: Any,
    stages: Stages | None,
    together: Together | None = None,
) -> Shop:
    """Everything ready to buy; ``known`` is what members cost on average, ``about`` what a journal must agree on."""
    offered = sources_of(pool, 1 if together is None else together.share).items()
    sources: dict[str, Source] = {name: one for name, one in offered if name in known}
    names = query_ids_of(ids, queries)
    tariff = make_tariff(sources, queries, known)
    facts = {"queries": content_hash(queries), "ids": content_hash(names), "price list": price_list(pool)}
    if together is None:
        written = Journal(journal, {**about, **facts, "budget": str(rounded_up(budget))})
    else:  # what the run is about, and its budget, is written down once for all its parts
        written = waited_for(journal, facts, together.run)
    account = BatchBudget(budget, ledger=ledger, run=written.run)
    strict = together is not None
    buyer = Buyer(sources, queries, budget=account, journal=written, reserve=tariff.reserve, strict=strict)
    shop = Shop(pool, names, budget, tariff, buyer, stages or (lambda stage, done, total: None), seed)
    buyer.on_progress(shop.tick)
    try:
        buyer.recover()
    except BaseException:
        buyer.close()
        raise
    return shop


def look(shop: Shop, looked: Looked, extractor: str) -> FloatArray:
    """The features of an extractor, bought; what came of it is noted in ``looked``."""
    table, looked.there, looked.failures = shop.extract(extractor)
    looked.extractor = extractor
    looked.spent = spent_on(shop.tariff, extractor, shop.buyer.store[extractor], np.flatnonzero(looked.there))
    return table


def shelve_features(shop: Shop, extractor: str, features: Any) -> None:
    """Features that were paid elsewhere are their classifier's answers too, if they are its probabilities."""
    if isinstance(features, Mapping):
        if extractor not in features:
            raise InvalidInputError(f"features must hold those of {extractor!r}, which the plan looks at.")
        features = features[extractor]
    table = np.asarray(feature_matrix(features), np.float64)
    rows = np.arange(len(shop.ids))
    if len(table) != rows.size:
        raise InvalidInputError(f"features must have {rows.size} rows, got {len(table)}.")
    sums = table.sum(axis=1)
    if table.shape[1] == len(shop.pool.classes) and table.min() >= 0.0 and np.abs(sums - 1.0).max() < 1e-3:
        shop.buyer.store.put(Outcome(extractor, rows, Fraction(0), np.zeros(rows.size), 0.0, table))
