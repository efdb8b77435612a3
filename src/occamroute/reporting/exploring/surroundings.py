"""Surroundings: the labelled rows around each query, which its estimates came from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from occamroute._arrays import FloatArray, IntArray
from occamroute.neighbors import PoolIndex
from occamroute.profiles import Profile

__all__ = ["Surroundings", "label_of"]

# Labelled rows that a receipt shows.
SHOWN = 8


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Labelled rows (n, d) of a profile, the queries' own features (N, d), and how far is far."""

    profile: Profile
    extractor: str
    queries: FloatArray
    metric: str = "linf"
    # Where the queries are rows of the profile themselves, their numbers (N,): no row is its own neighbour.
    own: IntArray | None = None

    @cached_property
    def index(self) -> PoolIndex:
        """The labelled rows, ready to be asked."""
        return PoolIndex(self.profile.feature_sets[self.extractor], metric=self.metric)

    def near(self, query: int) -> list[dict[str, Any]]:
        """The nearest labelled rows of a query: how far they are, their label, and who was right on them."""
        own = None if self.own is None else int(self.own[query])
        wanted = min(SHOWN + (own is not None), len(self.profile))
        found = self.index.search(self.queries[[query]], wanted)
        pairs = zip(found.rows[0].tolist(), found.distances[0].tolist(), strict=True)
        return [self.row(row, distance) for row, distance in pairs if row != own][:SHOWN]

    def row(self, row: int, distance: float) -> dict[str, Any]:
        """One labelled row."""
        profile = self.profile
        return {
            "id": profile.ids[row],
            "distance": distance,
            "label": label_of(profile, row),
            "success": dict(zip(profile.names, profile.success[row].tolist(), strict=True)),
        }

    def features(self, query: int) -> list[dict[str, Any]]:
        """What was known of a query: by class where the features are a classifier's probabilities."""
        values = self.queries[query].tolist()
        classes = self.profile.classes
        if classes is None or len(classes) != len(values) or self.extractor not in self.profile.names:
            return []
        return [{"label": name, "value": value} for name, value in zip(classes, values, strict=True)]


def label_of(profile: Profile, row: int) -> str | None:
    """The label of a labelled row, by its name where classes have names."""
    if profile.labels is None:
        return None
    label = profile.labels[row]
    if profile.classes is not None and profile.labels.dtype.kind == "i":
        return profile.classes[int(label)]
    return str(label)
