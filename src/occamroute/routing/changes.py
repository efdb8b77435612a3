"""Changes to a profile while a router uses it: rows and classifiers come and go; each can be stored and done again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray, cost_array, probability_matrix
from occamroute._money import Amount, money
from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.profiles import Profile
from occamroute.storage import Parts

__all__ = ["AddClassifier", "AddRows", "Change", "RemoveClassifier", "RemoveRows", "change_from"]


class Change(ABC):
    """An edit of a profile."""

    @abstractmethod
    def __call__(self, profile: Profile) -> Profile:
        """The profile with the change made."""

    @abstractmethod
    def parts(self) -> Parts:
        """The change as a table, to be stored."""


@dataclass(frozen=True, eq=False)
class AddRows(Change):
    """More labelled rows; one whose id is there already takes the place of the old one."""

    more: Profile

    def __call__(self, profile: Profile) -> Profile:
        """Append the rows."""
        more = self._alike(profile)
        new = set(more.ids)
        # Perhaps none: all rows may be labelled anew.
        kept = np.flatnonzero([one not in new for one in profile.ids])
        sets = {name: _joined(table[kept], more.stored_sets[name]) for name, table in profile.stored_sets.items()}
        tables = profile.probabilities if more.probabilities is not None else None
        return replace(
            profile,
            costs=self._costs(profile, kept, more),
            features=profile.as_given(sets),
            success=np.concatenate([profile.success[kept], more.success]),
            ids=(*(profile.ids[row] for row in kept), *more.ids),
            labels=None if profile.labels is None else np.concatenate([profile.labels[kept], more.labels]),
            groups=None if profile.groups is None else np.concatenate([profile.groups[kept], more.groups]),
            probabilities=None if tables is None or more.probabilities is None
            else {name: _joined(table[kept], more.probabilities[name]) for name, table in tables.items()
                  if name in more.probabilities},
        )  # fmt: skip

    def parts(self) -> Parts:
        """The rows as a profile's parts."""
        return replace(self.more, text=None).parts()

    def _alike(self, profile: Profile) -> Profile:
        """The new rows with the profile's classifiers in its order."""
        for name in profile.names:
            if name not in self.more.names:
                raise UnknownNameError("classifier", name, self.more.names)
        mine, theirs = profile.text, self.more.text
        if mine is not None and theirs is not None and mine.fingerprint != theirs.fingerprint:
            raise InvalidInputError("new rows must have the profile's text features: make them with text=profile.text.")
        for name, table in profile.stored_sets.items():
            found = self.more.stored_sets.get(name)
            if found is None or found.shape[1] != table.shape[1]:
                raise InvalidInputError(f"new rows must have the {table.shape[1]} features of {name!r}.")
        if profile.classes is not None and self.more.classes not in (None, profile.classes):
            raise InvalidInputError("new rows must have the profile's classes.")
        for what in ("labels", "groups"):
            if getattr(profile, what) is not None and getattr(self.more, what) is None:
                raise InvalidInputError(f"new rows must have {what}, as the profile has.")
        return self.more.select(profile.names)

    def _costs(self, profile: Profile, kept: IntArray, more: Profile) -> FloatArray:
        """Costs by classifier stay the profile's; where they differ by query, each row keeps its own."""
        if profile.costs.ndim == 1:
            return profile.costs
        return np.concatenate([profile.costs[kept], np.broadcast_to(more.costs, (len(more), len(more.names)))])


@dataclass(frozen=True, eq=False)
class RemoveRows(Change):
    """Rows that are no longer to be looked at, by their ids."""

    ids: tuple[str, ...]

    def __call__(self, profile: Profile) -> Profile:
        """Leave the rows out."""
        gone = set(self.ids)
        unknown = gone - set(profile.ids)
        if unknown:
            raise UnknownNameError("row", min(unknown), ())
        return profile.take(np.flatnonzero([one not in gone for one in profile.ids]))

    def parts(self) -> Parts:
        """The ids."""
        return Parts("removed rows", {"id": np.array(self.ids)}, {})


@dataclass(frozen=True, eq=False)
class AddClassifier(Change):
    """One more classifier: what it costs, and how it did on every labelled row (by id)."""

    name: str
    cost: Amount
    success: Mapping[str, float]
    probabilities: Mapping[str, Iterable[float]] | None = field(default=None, repr=False)

    def __call__(self, profile: Profile) -> Profile:
        """Append the classifier."""
        if self.name in profile.names:
            raise InvalidInputError(f"there is a classifier {self.name!r} already.")
        for what, given in (("success", self.success), ("probabilities", self.probabilities)):
            missing = [] if given is None else [one for one in profile.ids if one not in given]
            if missing:
                raise InvalidInputError(
                    f"{what} of {self.name!r} must be known for every labelled row: {len(missing)} are missing, "
                    f"the first is {missing[0]!r}."
                )
        cost = float(money(self.cost, "cost"))
        own = cost_array([cost], options=1, rows=None)
        kept = dict(profile.probabilities) if profile.probabilities is not None else None
        if self.probabilities is not None:
            table = probability_matrix([self.probabilities[one] for one in profile.ids]).astype(np.float64)
            if kept is not None:
                kept[self.name] = table
        return replace(
            profile,
            names=(*profile.names, self.name),
            costs=np.append(profile.costs, own) if profile.costs.ndim == 1
            else np.column_stack([profile.costs, np.full(len(profile), cost)]),
            success=np.column_stack([profile.success, [self.success[one] for one in profile.ids]]),
            probabilities=kept,
        )  # fmt: skip

    def parts(self) -> Parts:
        """A row for each labelled one."""
        ids = [one for one in self.success if self.probabilities is None or one in self.probabilities]
        columns: dict[str, Any] = {"id": np.array(ids), "success": np.array([self.success[one] for one in ids])}
        if self.probabilities is not None:
            columns["probabilities"] = np.array([list(self.probabilities[one]) for one in ids], np.float64)
        return Parts("classifier", columns, {"name": self.name, "cost": str(self.cost)})


@dataclass(frozen=True, eq=False)
class RemoveClassifier(Change):
    """A classifier that is no longer to be asked."""

    name: str

    def __call__(self, profile: Profile) -> Profile:
        """Leave the classifier out; features that its call yields stay."""
        if self.name not in profile.names:
            raise UnknownNameError("classifier", self.name, profile.names)
        if len(profile.names) == 1:
            raise InvalidInputError(f"{self.name!r} is the only classifier.")
        return profile.select(name for name in profile.names if name != self.name)

    def parts(self) -> Parts:
        """Its name."""
        return Parts("removed classifier", {"name": np.array([self.name])}, {})


def change_from(parts: Parts) -> Change:
    """The change that ``parts`` was made of."""
    columns = parts.columns
    if parts.kind == "profile":
        return AddRows(Profile.from_parts(parts))
    if parts.kind == "removed rows":
        return RemoveRows(tuple(columns["id"].tolist()))
    if parts.kind == "removed classifier":
        return RemoveClassifier(str(columns["name"][0]))
    if parts.kind == "classifier":
        ids = columns["id"].tolist()
        tables = columns.get("probabilities")
        from occamroute._money import from_text

        return AddClassifier(
            parts.metadata["name"],
            from_text(parts.metadata["cost"]),
            dict(zip(ids, columns["success"].tolist(), strict=True)),
            None if tables is None else dict(zip(ids, tables.tolist(), strict=True)),
        )
    raise InvalidInputError(f"{parts.kind!r} is no change that this version knows.")


def _joined(first: Any, second: Any) -> Any:
    return np.concatenate([first, np.asarray(second, first.dtype)])
