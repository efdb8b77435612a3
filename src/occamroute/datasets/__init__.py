"""Real profiles that ship with the package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.resources import as_file, files

import numpy as np

from occamroute._arrays import FloatArray, name_tuple
from occamroute.errors import StorageError, UnknownNameError
from occamroute.profiles import Profile, success
from occamroute.storage import Parts, load, read

__all__ = ["DATASETS", "load_dataset", "profile_at"]

DATASETS = ("cifar10",)


def load_dataset(name: str, *, extractor: str | Sequence[str] | None = None) -> tuple[Profile, Profile]:
    """``(profile, test)``: real outputs of seven networks on 20,000 labelled images, and on 10,000 others.

    ``extractor`` is the classifier whose class probabilities are the features (by default the cheapest), or
    several of them. Costs are measured GPU seconds per image.
    """
    if name not in DATASETS:
        raise UnknownNameError("data set", name, DATASETS)
    with as_file(files("occamroute.datasets") / f"{name}.parquet") as path:
        parts = read(path)
    names = tuple(parts.metadata["names"])
    if extractor is None:
        extractor = names[int(np.argmin(parts.metadata["costs"]))]
    wanted = (extractor,) if isinstance(extractor, str) else name_tuple(extractor, "extractor")
    for entry in wanted:
        if entry not in names:
            raise UnknownNameError("extractor", entry, names)
    several = not isinstance(extractor, str)
    profile, test = (_profile(parts, split, wanted, several) for split in ("val", "test"))
    return profile, test


def profile_at(source: str) -> Profile:
    """The profile in a file, or one that ships with the package."""
    if source in DATASETS and not os.path.exists(source):
        return load_dataset(source)[0]
    found = load(source)
    if not isinstance(found, Profile):
        raise StorageError(source, f"it holds a {type(found).__name__.lower()}, a profile is needed")
    return found


def _profile(parts: Parts, split: str, extractors: Sequence[str], several: bool) -> Profile:
    names = parts.metadata["names"]
    rows = parts.columns["split"] == split
    labels = parts.columns["label"][rows]
    probabilities = {name: _softmax(parts.columns[f"logits:{name}"][rows]) for name in names}
    sets = {name: probabilities[name] for name in extractors}
    return Profile(
        names=tuple(names),
        costs=np.array(parts.metadata["costs"]),
        features=sets if several else probabilities[extractors[0]],
        success=np.column_stack([success(probabilities[name], labels) for name in names]),
        extractor=None if several else extractors[0],
        ids=tuple(f"{split}-{row}" for row in range(labels.size)),
        labels=labels,
        classes=tuple(parts.metadata["classes"]),
        probabilities=probabilities,
    )


def _softmax(logits: FloatArray) -> FloatArray:
    exponentials = np.exp(logits.astype(np.float32) - logits.max(axis=1, keepdims=True).astype(np.float32))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
