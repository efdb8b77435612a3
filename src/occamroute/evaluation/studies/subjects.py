"""The portfolios to study: raw outputs in a folder, a user's profile, or the profile that ships."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.datasets import load_dataset
from occamroute.errors import InvalidInputError, StorageError
from occamroute.profiles import Profile

__all__ = ["FEWEST_QUERIES", "FEWEST_ROWS", "Subject", "from_folder", "from_profile", "shipped"]

# File in the folder → how the data set is called.
FILES = {"cifar10": "CIFAR-10", "tiny_imagenet": "Tiny ImageNet"}
EXTRACTORS = ("resnet8-w8", "resnet20-w16", "resnet18-w64")
FEWEST_ROWS, FEWEST_QUERIES = 200, 50


@dataclass(frozen=True, eq=False)
class Subject:
    """One portfolio: labelled rows to estimate from, and other labelled queries to judge on.

    ``embeddings`` maps a classifier to its last hidden layer on both, (n, d) and (N, d); ``parameters`` (M,) is the
    number of weights; ``seconds`` says that costs are seconds of computing.
    """

    name: str
    title: str
    profile: Profile
    test: Profile
    embeddings: Mapping[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)
    parameters: tuple[int, ...] | None = None
    seconds: bool = False

    def __post_init__(self) -> None:
        profile, test = self.profile, self.test
        if profile.names != test.names:
            raise InvalidInputError("the profile and the test queries must be of the same classifiers in one order.")
        if set(profile.feature_sets) != set(test.feature_sets):
            raise InvalidInputError("the profile and the test queries must have the same feature sets.")
        for name, table in profile.feature_sets.items():
            if table.shape[1] != test.feature_sets[name].shape[1]:
                raise InvalidInputError(f"the test queries' features of {name!r} must have {table.shape[1]} columns.")
        if len(profile.names) < 2:
            raise InvalidInputError("a study needs at least 2 classifiers, got 1.")
        if float(profile.mean_costs.max()) <= 0.0 or float(test.mean_costs.max()) <= 0.0:
            raise InvalidInputError("a study needs a classifier that costs something: budgets are shares of its cost.")
        if len(profile) < FEWEST_ROWS or len(test) < FEWEST_QUERIES:
            raise InvalidInputError(
                f"a study needs at least {FEWEST_ROWS} labelled rows and {FEWEST_QUERIES} queries to judge on, "
                f"got {len(profile)} and {len(test)}."
            )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that a study may look at."""
        digest = hashlib.sha256(f"{self.name} {self.profile.fingerprint} {self.test.fingerprint}".encode())
        for name, tables in self.embeddings.items():
            digest.update(name.encode())
            for table in tables:
                digest.update(np.ascontiguousarray(table).tobytes())
        return digest.hexdigest()


def from_folder(folder: Path) -> list[Subject]:
    """The portfolios whose raw outputs lie in a folder as ``cifar10.npz`` and ``tiny_imagenet.npz``."""
    if not folder.is_dir():
        raise InvalidInputError(f"--data must be a folder, got {folder}.")
    found = [name for name in FILES if (folder / f"{name}.npz").is_file()]
    if not found:
        wanted = " nor ".join(f"{name}.npz" for name in FILES)
        raise InvalidInputError(f"{folder} holds neither {wanted}.")
    return [_from_file(folder / f"{name}.npz") for name in found]


def from_profile(profile: Profile, test: Profile | None, *, name: str, seed: int) -> Subject:
    """A user's profile; without queries of their own to judge on, half of its rows are set aside for that."""
    if test is None:
        profile, test = profile.split(0.5, seed=seed)
    return Subject(name, name, profile, test)


def shipped() -> Subject:
    """The profile that ships with the package, with three extractors."""
    profile, test = load_dataset("cifar10", extractor=EXTRACTORS)
    return Subject("cifar10", FILES["cifar10"], profile, test, seconds=True)


def _from_file(path: Path) -> Subject:
    try:
        with np.load(path, allow_pickle=False) as raw:
            arrays = {name: raw[name] for name in raw.files if not name.startswith(("p_true", "top1", "margin"))}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise StorageError(path, "it is no plain .npz archive, or it is cut off") from error
    try:
        names = [str(name) for name in arrays["names"]]
        extractors = [name for name in names if f"embedding_{name}_val" in arrays]
        profile, test = (_profile(arrays, names, extractors, split) for split in ("val", "test"))
        embeddings = {
            name: (_floats(arrays[f"embedding_{name}_val"]), _floats(arrays[f"embedding_{name}_test"]))
            for name in extractors
        }
        parameters = tuple(arrays["parameters"].tolist())
    except (KeyError, IndexError, StopIteration) as error:
        raise StorageError(path, f"an array is missing or of another shape ({error})") from error
    return Subject(path.stem, FILES[path.stem], profile, test, embeddings, parameters, seconds=True)


def _profile(arrays: dict[str, Any], names: list[str], extractors: list[str], split: str) -> Profile:
    """Success is whether the most likely label is the true one; features are an extractor's class probabilities."""
    labels = arrays[f"y_{split}"].astype(np.int64)
    logits = _logits(arrays, names, split)
    probabilities = {name: softmax(table) for name, table in logits.items()}
    return Profile(
        names=names,
        costs=arrays["seconds_batch1024"],
        features={name: probabilities[name] for name in extractors},
        success=arrays[f"prediction_{split}"] == labels[:, np.newaxis],
        extractor=extractors[0],
        ids=[f"{split}-{row}" for row in range(labels.size)],
        labels=labels,
        classes=[str(name) for name in arrays["classes"]],
        probabilities=probabilities,
    )


def _logits(arrays: dict[str, Any], names: list[str], split: str) -> dict[str, FloatArray]:
    together = arrays.get(f"logits_{split}")
    if together is not None:
        return {name: together[:, column] for column, name in enumerate(names)}
    return {name: arrays[f"logits_{name}_{split}"] for name in names if f"logits_{name}_{split}" in arrays}


def _floats(table: Any) -> FloatArray:
    return np.asarray(table, np.float32)


def softmax(logits: FloatArray) -> FloatArray:
    """Class probabilities (n, C)."""
    shifted = logits.astype(np.float32) - logits.max(axis=1, keepdims=True).astype(np.float32)
    exponentials = np.exp(shifted)
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
