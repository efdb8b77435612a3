"""Watching whether what decisions rest on still holds, while they are made."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from occamroute.routing.decisions import Decision
from occamroute.routing.drift import Alarm, FeatureWatch, FeedbackWatch
from occamroute.routing.prices import Price, choose
from occamroute.routing.snapshots import Snapshot

__all__ = ["Watches"]

# Queries looked at together, which takes little longer than looking at one.
TOGETHER = 64


class Watches:
    """The alarms of a router: on the features of queries and on feedback, for one snapshot; safe for many threads.

    ``rate`` is the chance that the queries of a whole stream ever raise a false alarm, for each of the two.
    """

    def __init__(self, snapshot: Snapshot, price: Price, *, rate: float = 0.01, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Decision] = []
        self._features = None
        if snapshot.near is not None:
            features = snapshot.profile.feature_sets[str(snapshot.guide.extractor)][snapshot.near.rows]
            self._features = FeatureWatch.of(features, snapshot.near.distances, seed=seed, rate=rate)
        self._feedback = None
        if len(snapshot.held.rows) > 1:
            held = snapshot.held
            coins = np.random.default_rng(seed).random(len(held.rows))
            self._feedback = FeedbackWatch.of(
                snapshot.names,
                held.success,
                held.truth,
                choice=choose(held.success, snapshot.costs, price, coins),
                groups=None if snapshot.profile.groups is None else snapshot.profile.groups[held.rows],
                seed=seed,
                rate=rate,
            )

    def saw(self, decisions: Sequence[Decision]) -> None:
        """Queries came."""
        if self._features is None or not decisions or decisions[0].features.size == 0:
            return
        with self._lock:
            self._waiting += decisions
            if len(self._waiting) >= TOGETHER:
                self._look()

    def _look(self) -> None:
        """Look at the queries that wait, in their order; the lock is held."""
        waiting, self._waiting = self._waiting, []
        if self._features is not None and waiting:
            features = np.stack([decision.features for decision in waiting])
            self._features.update(features, np.array([decision.distances[0] for decision in waiting]))

    def heard(self, classifier: str, estimated: float, success: float) -> None:
        """The truth about an answer came."""
        if self._feedback is None or classifier not in self._feedback.names:
            return
        with self._lock:
            self._feedback.update([classifier], estimated, success)

    def alarms(self) -> list[Alarm]:
        """What is up now."""
        with self._lock:
            self._look()
            found = [watch.alarm for watch in (self._features, self._feedback) if watch is not None]
        return [alarm for alarm in found if alarm is not None]

    def evidence(self) -> dict[str, float]:
        """The evidence for a change by now; an alarm is raised where it passes 1 / rate."""
        watches = {"features": self._features, "feedback": self._feedback}
        with self._lock:
            self._look()
            return {name: float(watch.evidence) for name, watch in watches.items() if watch is not None}

    def reset(self) -> None:
        """Take down the alarms and start anew."""
        with self._lock:
            self._waiting = []
            for watch in (self._features, self._feedback):
                if watch is not None:
                    watch.reset()
