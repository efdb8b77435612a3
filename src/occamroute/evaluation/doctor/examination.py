"""What several checks look at, computed once: neighbours, held-out estimates, labels as numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from occamroute._arrays import BoolArray, FloatArray, IntArray, generator
from occamroute.estimation.kernel import cross_fit
from occamroute.estimation.ordered import are_probabilities
from occamroute.evaluation.doctor.findings import Finding
from occamroute.neighbors import PoolIndex
from occamroute.planning.candidates import Candidate
from occamroute.planning.combining import tuned_combination
from occamroute.planning.held_out import Folds, Member
from occamroute.profiles import Profile

__all__ = ["NO_FEATURES", "Check", "Examination", "Near", "has_groups", "has_labels", "has_neighbours", "has_outputs"]

# Rows whose neighbours are looked up, and how many of them; rows that estimates are held out for.
ROWS, NEIGHBOURS, HELD_OUT = 4_000, 10, 5_000


class Near(NamedTuple):
    """Some rows and their nearest others, those of the row's own group left out."""

    rows: IntArray  # (r,)
    distances: FloatArray  # (r, k), infinite where the other is left out
    others: IntArray  # (r, k)

    @property
    def kept(self) -> BoolArray:
        """Which of the others count, (r, k)."""
        return np.isfinite(self.distances)

    @property
    def first(self) -> IntArray:
        """The nearest other row of each, (r,)."""
        place = self.distances.argmin(axis=1)
        return np.asarray(np.take_along_axis(self.others, place[:, np.newaxis], axis=1)[:, 0])


@dataclass(frozen=True, eq=False)
class Examination:
    """A profile under examination; whatever draws does so from ``seed``."""

    profile: Profile
    seed: int

    @cached_property
    def sample(self) -> IntArray:
        """Rows to look at where all would take too long, in their order."""
        return np.sort(generator(self.seed).permutation(len(self.profile))[:ROWS])

    @cached_property
    def classes(self) -> IntArray:
        """The labels as numbers from 0, (n,)."""
        return np.asarray(np.unique(np.asarray(self.profile.labels), return_inverse=True)[1])

    @cached_property
    def columns(self) -> IntArray:
        """The labels as column numbers of the probabilities, (n,); −1 where there is no such column."""
        labels, tables = self.profile.labels, self.profile.probabilities
        if labels is None or not tables:
            return np.full(len(self.profile), -1)
        places = {name: number for number, name in enumerate(self.profile.classes or ())}
        numbers = labels if labels.dtype.kind == "i" else np.array([places.get(one, -1) for one in labels.tolist()])
        width = min(table.shape[1] for table in tables.values())
        return np.where((numbers >= 0) & (numbers < width), numbers, -1)

    @cached_property
    def good(self) -> tuple[int, ...]:
        """The classifiers that are right about as often as the best, by number."""
        accuracy = self.profile.accuracy
        return tuple(int(column) for column in np.flatnonzero(accuracy >= accuracy.max() - 0.1))

    @cached_property
    def first_set(self) -> str:
        """The feature set that the profile is used with where none is named."""
        return self.profile.extractor or next(iter(self.profile.feature_sets))

    @cached_property
    def _near(self) -> dict[str, Near]:
        return {}

    def near(self, extractor: str) -> Near:
        """The nearest others of the sample's rows under l∞."""
        if extractor not in self._near:
            self._near[extractor] = self._look_up(extractor)
        return self._near[extractor]

    def _look_up(self, extractor: str) -> Near:
        table, blocks, rows = self.profile.feature_sets[extractor], self.profile.blocks, self.sample
        # Of larger groups, rows whose nearest are all of their own group drop out of what is counted.
        own = min(int(np.bincount(blocks).max()), NEIGHBOURS)
        found = PoolIndex(table).search(table[rows], min(NEIGHBOURS + own, len(table)))
        same = blocks[found.rows] == blocks[rows, np.newaxis]
        distances = np.where(same, np.inf, found.distances)
        some = np.isfinite(distances).any(axis=1)
        return Near(rows[some], distances[some], found.rows[some])

    @cached_property
    def folds(self) -> Folds:
        """Rows to estimate on, and the rows to fit on for each."""
        return Folds.draw(self.profile, generator(self.seed), most=HELD_OUT)

    @cached_property
    def mixture(self) -> Candidate:
        """The estimate that looks at no features."""
        success = self.profile.success
        tables = [np.tile(success[pool].mean(axis=0), (held.size, 1)) for pool, held in self.folds]
        return Candidate(None, (), None, np.concatenate(tables), success[self.folds.rows])

    @cached_property
    def _candidates(self) -> dict[str, Candidate]:
        return {}

    def candidate(self, extractor: str) -> Candidate:
        """Kernel ridge regression on a feature set, held out; answers combined where that is possible."""
        if extractor not in self._candidates:
            profile, folds = self.profile, self.folds
            combination = tuned_combination(profile, extractor, folds.whole(len(profile)))
            targets = profile.success if combination is None else combination.success
            table = profile.feature_sets[extractor]
            standardize = not are_probabilities(table)
            estimates = cross_fit(table, targets, list(folds), standardize=standardize, seed=self.seed)[0]
            member = Member("kernel", lambda rows: None)  # judged here, never built
            self._candidates[extractor] = Candidate(
                extractor, ((member, 1.0),), combination, np.clip(estimates, 0.0, 1.0), targets[folds.rows]
            )
        return self._candidates[extractor]


@dataclass(frozen=True)
class Check:
    """One question asked of a profile, or of each of its feature sets.

    ``run`` gets the name of the feature set, or "" for the profile; each of ``needs`` gives the reason why it cannot
    be asked, or None.
    """

    code: str
    run: Callable[[Examination, str], Finding]
    needs: tuple[Callable[[Examination], str | None], ...] = ()
    each_set: bool = False


def has_labels(examination: Examination) -> str | None:
    """Labels of at least two classes."""
    labels = examination.profile.labels
    if labels is None:
        return "the profile keeps no labels"
    return "all labels are the same" if int(examination.classes.max()) == 0 else None


NO_FEATURES = "the profile has no features"


def has_outputs(examination: Examination) -> str | None:
    """Labels that are columns of the probabilities kept."""
    if not examination.profile.probabilities:
        return "the profile keeps no probabilities"
    return "the labels are not columns of the probabilities" if int(examination.columns.min()) < 0 else None


def has_groups(examination: Examination) -> str | None:
    """At least two rows that do not belong together."""
    return "all rows belong together" if int(examination.profile.blocks.max()) == 0 else None


def has_neighbours(examination: Examination) -> str | None:
    """Rows whose nearest others do not all belong to them."""
    sets = examination.profile.feature_sets
    if not sets:
        return NO_FEATURES
    if has_groups(examination) is None and all(examination.near(name).rows.size for name in sets):
        return None
    return "all rows near each other belong together"
