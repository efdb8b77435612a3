"""The estimators that chosen candidates are made of, each fitted on the whole profile once."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.estimation import Mixture
from occamroute.executors import Executor
from occamroute.planning.candidates import Candidate
from occamroute.planning.estimates import predicted
from occamroute.planning.held_out import Member
from occamroute.profiles import Profile

__all__ = ["Members", "Stack"]

# One for all planners: fitting and searching use all cores anyway.
_LOCK = threading.Lock()
Key = tuple[str, bool, Member]
Found = tuple[FloatArray, FloatArray | None]


@dataclass(frozen=True, repr=False)
class Stack:
    """Fitted estimators with their weights: how far each is believed to be right about more than the mean (M,)."""

    mean: FloatArray
    fitted: tuple[tuple[Any, float], ...]
    stacked: bool

    def predict_with_distance(self, table: FloatArray) -> Found:
        """Estimated success (N, M), and the distance to the nearest labelled row where it is known."""
        success, distance = np.tile(self.mean, (len(table), 1)), None
        for estimator, weight in self.fitted:
            own, nearest = predicted(estimator, table, self.mean.size)
            success += weight * (own - self.mean)
            distance = nearest if distance is None else distance
        return success, distance

    def __repr__(self) -> str:
        if not self.fitted:
            return repr(Mixture())
        return " + ".join(f"{weight:.2g}·{one!r}" if self.stacked else repr(one) for one, weight in self.fitted)


@dataclass
class Members:
    """Fitted estimators, and what they said of the queries asked about last: budgets share both."""

    fitted: dict[Key, Any] = field(default_factory=dict)
    found: dict[Key, Found] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)

    def estimates(
        self, profile: Profile, candidate: Candidate, table: FloatArray, executor: Executor | None = None
    ) -> tuple[FloatArray, FloatArray | None, str]:
        """Estimated success (N, M), the distance to the nearest labelled row if known, and the estimator in words."""
        with _LOCK:
            return self._estimates(profile, candidate, table, executor)

    def _estimates(
        self, profile: Profile, candidate: Candidate, table: FloatArray, executor: Executor | None
    ) -> tuple[FloatArray, FloatArray | None, str]:
        combination = candidate.combination
        targets = profile.success if combination is None else combination.final
        mean = targets.mean(axis=0)
        if not candidate.members:
            return np.tile(mean, (len(table), 1)), None, repr(Mixture())
        self._forget(str(candidate.extractor), table)
        success, distance = np.tile(mean, (len(table), 1)), None
        for member, weight in candidate.members:
            self._fit(profile, candidate, member, targets)
            own, nearest = self._found(candidate, member, table, executor)
            success += weight * (own - mean)
            distance = nearest if distance is None else distance
        fitted = tuple((self.fitted[_key(candidate, member)], weight) for member, weight in candidate.members)
        return np.clip(success, 0.0, 1.0), distance, repr(Stack(mean, fitted, candidate.stacked))

    def stack(self, profile: Profile, candidate: Candidate) -> Stack:
        """The candidate as one fitted estimator, which may be sent elsewhere."""
        targets = profile.success if candidate.combination is None else candidate.combination.final
        with _LOCK:
            for member, _ in candidate.members:
                self._fit(profile, candidate, member, targets)
            fitted = tuple((self.fitted[_key(candidate, member)], weight) for member, weight in candidate.members)
        return Stack(targets.mean(axis=0), fitted, candidate.stacked)

    def _forget(self, extractor: str, table: FloatArray) -> None:
        """Drop what was found for other queries."""
        content = np.ascontiguousarray(table)
        digest = f"{content.dtype} {content.shape} {hashlib.blake2b(content.tobytes(), digest_size=16).hexdigest()}"
        if self.queries.get(extractor) != digest:
            self.queries[extractor] = digest
            self.found = {key: found for key, found in self.found.items() if key[0] != extractor}

    def _fit(self, profile: Profile, candidate: Candidate, member: Member, targets: FloatArray) -> None:
        key = _key(candidate, member)
        if key not in self.fitted:
            pool = profile.feature_sets[key[0]]
            self.fitted[key] = member.make(len(profile)).fit(pool, targets)

    def _found(self, candidate: Candidate, member: Member, table: FloatArray, executor: Executor | None) -> Found:
        key = _key(candidate, member)
        if key not in self.found:
            self.found[key] = predicted(self.fitted[key], table, candidate.truth.shape[1], executor)
        return self.found[key]


def _key(candidate: Candidate, member: Member) -> Key:
    return str(candidate.extractor), candidate.combination is not None, member
