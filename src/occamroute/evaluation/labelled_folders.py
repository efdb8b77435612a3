"""Folders of saved profiles to judge on, which may be larger than memory: read as one, some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, success_matrix
from occamroute._money import from_text
from occamroute.errors import InvalidInputError, OccamError, StorageError
from occamroute.executors import Executor
from occamroute.folders import QueryFolder
from occamroute.part_folders import content_key
from occamroute.planning.stored_estimates import PREFIX, Progress, StoredEstimate, store_estimate
from occamroute.profiles import Profile
from occamroute.storage import read_metadata
from occamroute.tables import features_in

__all__ = ["LabelledFolder", "store_success"]

# What all files must say alike, and what it is called.
ALIKE = {
    "names": "classifiers",
    "costs": "costs",
    "extractor": "extractor",
    "extractor_cost": "extraction costs",
    "feature_sets": "feature sets",
}


@dataclass(frozen=True, eq=False)
class LabelledFolder:
    """The rows of all profiles that were saved to a folder, in the order of the files' names.

    ``first`` is the profile of the first row alone: it says all that is the same for every row. ``fingerprint`` is
    that of the profile where there is one file, else made from those of all files.
    """

    folder: QueryFolder = field(repr=False)
    first: Profile
    fingerprint: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> LabelledFolder:
        """The folder of that name, or a single file; refused where rows cannot be judged one by one."""
        folder = QueryFolder(path)
        places = [folder.path / name for name in folder.files]
        said = [_said(place) for place in places]
        for place, one in zip(places[1:], said[1:], strict=True):
            for name, words in ALIKE.items():
                if one[name] != said[0][name]:
                    raise StorageError(place, f"its {words} are not those of {folder.files[0]}")
        if said[0]["costs"] is None:
            raise InvalidInputError("queries in a folder have one cost for each classifier, got costs by query.")
        if "group" in folder.columns:
            raise InvalidInputError("queries in a folder are judged one by one, got groups that belong together.")
        prints = [one["fingerprint"] for one in said]
        return cls(folder, _first(folder, said[0]), prints[0] if len(prints) == 1 else content_key(prints))

    def __len__(self) -> int:
        return len(self.folder)

    @property
    def mean_costs(self) -> FloatArray:
        """Each classifier's cost, (M,)."""
        return self.first.mean_costs


def _said(place: Path) -> dict[str, Any]:
    """What a file says of its profile."""
    said = read_metadata(place)
    if said["kind"] != "profile":
        raise StorageError(place, f"it holds a {said['kind']}, a saved profile is needed")
    try:
        said["extractor_cost"] = {name: from_text(cost) for name, cost in said["extractor_cost"].items()}
        return {name: said[name] for name in (*ALIKE, "fingerprint")}
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise StorageError(place, f"part of the profile is missing or broken ({error})") from error


def _first(folder: QueryFolder, said: Mapping[str, Any]) -> Profile:
    """The profile of the first row."""
    sets = {name: f"features:{name}" for name in said["feature_sets"]}
    success = [f"{PREFIX}{name}" for name in said["names"]]
    place = folder.place(0)
    for column in (*sets.values(), *success):
        if column not in folder.columns:
            raise StorageError(place, f"it has no column {column!r}")
    table = folder.read(0, 1, [*sets.values(), *success])
    try:
        return Profile(
            names=said["names"],
            costs=np.array(said["costs"], np.float64),
            features={name: features_in(table, [column], place) for name, column in sets.items()},
            success=features_in(table, success, place),
            extractor=said["extractor"],
            extractor_cost=said["extractor_cost"],
        )
    except OccamError as error:
        raise StorageError(place, f"part of the profile is broken: {str(error).rstrip('.')}") from error


class _AsRead:
    """Gives what it reads: success that is known needs no estimator."""

    def predict(self, success: Any) -> FloatArray:
        return success_matrix(success)

    def __repr__(self) -> str:
        return "true success"


def store_success(
    test: LabelledFolder, out: Path, *, executor: Executor | None, progress: Progress | None = None
) -> StoredEstimate:
    """The rows' true success in parts, checked once.

    It is looked at in many passes, part by part, and a row group of the files cannot be begun in the middle.
    """
    first = test.first
    return store_estimate(
        test.folder,
        _AsRead(),
        extractor=None,
        width=len(first.names),
        names=first.names,
        costs=first.costs,
        sigma=np.zeros(len(first.names)),
        overhead=0,
        made_from={"test": test.fingerprint},
        knobs="success",
        out=out,
        executor=executor,
        progress=progress,
        columns=[f"{PREFIX}{name}" for name in first.names],
    )
