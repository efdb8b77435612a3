"""Snapshot: everything that decisions rest on at one time; never changed, only replaced by the next."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from occamroute._arrays import FloatArray, IntArray, feature_matrix, generator
from occamroute._money import exact, rounded_up
from occamroute.errors import InvalidInputError
from occamroute.estimation.bagged import rank_weights
from occamroute.neighbors import PoolIndex
from occamroute.planning.combining import combined_success
from occamroute.planning.estimates import charged
from occamroute.planning.held_out import Folds
from occamroute.profiles import Profile, beside
from occamroute.routing.guides import Guide
from occamroute.routing.novelty import Novelty, left_out_distances, one_of_each
from occamroute.routing.prices import Prices

__all__ = ["Guess", "HeldOut", "Snapshot", "cost_list"]

# The weight of far neighbours that is given to the mean of all rows instead of being looked up.
TAIL = 1e-3
# The share of ordinary queries that may be taken for new ones.
NEW = 1e-3
# Rows that prices are made from, rows whose distance to their nearest others is known, rows that a receipt shows.
HELD_OUT, WATCHED, SHOWN = 5_000, 5_000, 8


class Guess(NamedTuple):
    """What is thought of some queries: success (b, M), and where features are looked at the nearest labelled rows."""

    success: FloatArray
    distances: FloatArray  # (b, k)
    rows: IntArray  # (b, k)


class HeldOut(NamedTuple):
    """Estimates of labelled rows from the other folds, and what was true there."""

    success: FloatArray
    truth: FloatArray
    rows: IntArray


class Near(NamedTuple):
    """Some labelled rows, and how far each is from the nearest other one."""

    rows: IntArray
    distances: FloatArray

    @classmethod
    def of(cls, profile: Profile, guide: Guide, *, seed: int) -> Near:
        """One row of each group, a few thousand at most."""
        rows = one_of_each(len(profile), profile.groups, generator(seed))[:WATCHED]
        features = profile.feature_sets[str(guide.extractor)]
        return cls(rows, left_out_distances(features, guide.metric, groups=profile.groups, rows=rows))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The labelled rows and classifiers at one time, ready to be asked; ``seed`` draws the held-out rows.

    The same profile, guide and seed give the same snapshot in any process.
    """

    profile: Profile
    guide: Guide
    seed: int
    prices: Prices = field(repr=False)
    held: HeldOut = field(repr=False)
    near: Near | None = field(repr=False)
    _neighbours: _Neighbours | None = field(repr=False)

    @classmethod
    def of(cls, profile: Profile, guide: Guide, *, seed: int = 0) -> Snapshot:
        """Index the rows, and make prices from held-out ones."""
        targets = _targets(profile, guide)
        costs = charged(profile, guide.extractor, None, 1)[0]
        if guide.extractor is None:
            mean = targets.mean(axis=0)[None]
            held = HeldOut(mean, mean, np.zeros(1, np.int64))
            return cls(profile, guide, seed, Prices.of(mean, costs), held, None, None)
        features = profile.feature_sets[guide.extractor]
        folds = Folds.draw(profile, generator(seed), most=HELD_OUT)
        tables = [_Neighbours(features[pool], targets[pool], guide)(features[rows]).success for pool, rows in folds]
        held = HeldOut(np.concatenate(tables), targets[folds.rows], folds.rows)
        return cls(
            profile, guide, seed, Prices.of(held.success, costs), held, Near.of(profile, guide, seed=seed),
            _Neighbours(features, targets, guide),
        )  # fmt: skip

    @cached_property
    def id(self) -> str:
        """A name that says what is in it."""
        words = json.dumps([self.profile.fingerprint, self.guide.state(), self.seed], sort_keys=True)
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    @cached_property
    def novelty(self) -> Novelty | None:
        """Which distances are out of the ordinary; None where no features are looked at."""
        if self.near is None:
            return None
        return Novelty(np.sort(self.near.distances), self.guide.metric, NEW)

    @property
    def names(self) -> tuple[str, ...]:
        """The classifiers."""
        return self.profile.names

    @cached_property
    def costs(self) -> FloatArray:
        """What an answer of each classifier costs once the features are there, (M,)."""
        return charged(self.profile, self.guide.extractor, None, 1)[0]

    @cached_property
    def overhead(self) -> float:
        """What the features of a query cost."""
        return float(charged(self.profile, self.guide.extractor, None, 1)[1])

    @cached_property
    def least(self) -> float:
        """The least that a query can cost, features included."""
        return self.overhead + float(self.costs.min())

    @cached_property
    def totals(self) -> tuple[Decimal, ...]:
        """What a query costs in all with each classifier, exactly."""
        return _totals(self.profile, self.guide)

    @cached_property
    def cost_list(self) -> str:
        """The same as JSON, by name."""
        return cost_list(self.profile, self.guide)

    @cached_property
    def reliable(self) -> IntArray:
        """Classifiers by their overall accuracy, best first; of equals the cheapest, (M,)."""
        return np.lexsort((self.costs, -_targets(self.profile, self.guide).mean(axis=0)))

    @property
    def width(self) -> int:
        """How many numbers the features of a query are; 0 where none are looked at."""
        return 0 if self.guide.extractor is None else int(self.profile.feature_sets[self.guide.extractor].shape[1])

    @cached_property
    def paid_extractor(self) -> str | None:
        """Whose call the features need; None where none are looked at, or only those of texts."""
        return self.profile.paid_extractor(self.guide.extractor)

    @property
    def looks_at_text(self) -> bool:
        """Whether the text of a query is looked at, alone or beside an extractor's features."""
        return self.paid_extractor != self.guide.extractor

    @property
    def given_width(self) -> int:
        """How many numbers come with a query whose features were paid for elsewhere, its text aside."""
        return self.width if self.paid_extractor is None else int(self._own_set.shape[1])

    @property
    def _own_set(self) -> FloatArray:
        return self.profile.stored_sets[str(self.paid_extractor)]

    def with_text(self, own: FloatArray | None, query: Any) -> FloatArray | None:
        """Features (1, d) of a query from its text, and ``own`` (1, k), those of the extractor that is paid."""
        text = self.profile.text
        if text is None or (own is not None and own.shape[1:] == (self.width,)):
            return own
        row = text.extract([query])
        if self.paid_extractor is None:
            return row if own is None else own
        if own is None:
            raise InvalidInputError(f"features of {self.paid_extractor!r} are needed to decide.")
        table = feature_matrix(own)
        if table.shape[1] != self.given_width:
            raise InvalidInputError(
                f"features must be the {self.given_width} numbers of {self.paid_extractor!r}, got {table.shape[1]}."
            )
        return beside(table, row)

    @property
    def effective_rows(self) -> float:
        """As many equally weighted rows would make estimates as sure as they are."""
        return float(len(self.profile)) if self._neighbours is None else self._neighbours.effective_rows

    def checked(self, features: Any) -> FloatArray:
        """Features of some queries (b, d), or one sentence about what is wrong with them."""
        table = feature_matrix(features)
        if self._neighbours is not None and table.shape[1] != self.width:
            raise InvalidInputError(
                f"features must be the {self.width} numbers of {self.guide.extractor!r}, got {table.shape[1]}."
            )
        return table

    def guess(self, features: FloatArray) -> Guess:
        """Estimated success of each classifier on some queries (b, d), and the labelled rows nearest to them."""
        if self._neighbours is None:
            empty = np.empty((len(features), 0))
            return Guess(np.tile(self.held.success, (len(features), 1)), empty, empty.astype(np.int64))
        return self._neighbours(features)

    def spread(self, success: FloatArray) -> FloatArray:
        """The standard deviation of estimates, were their neighbours drawn anew."""
        return np.asarray(np.sqrt(success * (1.0 - success) / self.effective_rows))


class _Neighbours:
    """Bagged neighbours as a guide prescribes them."""

    def __init__(self, features: FloatArray, targets: FloatArray, guide: Guide) -> None:
        weights = rank_weights(len(features), min(guide.sample_size, len(features)), tail=TAIL)
        index = PoolIndex(features, metric=guide.metric)
        self.averager = index.averager(targets, weights[None], show=min(SHOWN, len(features)))
        self.belief, self.mean = guide.belief, targets.mean(axis=0)
        # Weights as they are after shrinking towards the mean of all rows.
        ranks = guide.belief * weights
        rest = 1.0 - float(ranks.sum())
        self.effective_rows = 1.0 / float((ranks**2).sum() + rest**2 / len(features))

    def __call__(self, features: FloatArray) -> Guess:
        found = self.averager.average(features)
        success = np.clip(self.mean + self.belief * (found.means[0] - self.mean), 0.0, 1.0)
        return Guess(success, *found.nearest)


def cost_list(profile: Profile, guide: Guide) -> str:
    """What a query costs in all with each classifier, exactly: JSON of texts by name."""
    return json.dumps({name: f"{cost:f}" for name, cost in zip(profile.names, _totals(profile, guide), strict=True)})


def _totals(profile: Profile, guide: Guide) -> tuple[Decimal, ...]:
    costs, overhead = charged(profile, guide.extractor, None, 1)
    return tuple(rounded_up(exact(overhead) + exact(float(cost))) for cost in costs)


def _targets(profile: Profile, guide: Guide) -> FloatArray:
    """What is estimated: the success of answers, the extractor's share in them included."""
    weights = guide.weights(profile.names)
    if guide.extractor is None or not weights.any():
        return profile.success
    return combined_success(profile, guide.extractor, weights)
