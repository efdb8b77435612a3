"""Profiles that many tests use: the shipped one, and a small generated one."""

from __future__ import annotations

import numpy as np
import pytest

import occamroute as oc


@pytest.fixture(scope="session")
def cifar10() -> tuple[oc.Profile, oc.Profile]:
    """The shipped profile and its test queries."""
    return oc.load_dataset("cifar10")


@pytest.fixture(scope="session")
def cifar10_small(cifar10: tuple[oc.Profile, oc.Profile]) -> tuple[oc.Profile, oc.Profile]:
    """The first 2,000 rows and 1,000 queries of the shipped profile."""
    profile, test = cifar10
    return profile.take(np.arange(2000)), test.take(np.arange(1000))


@pytest.fixture
def small() -> oc.Profile:
    """Sixty rows, two classifiers, every optional field."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 60)
    probabilities = random.dirichlet(np.ones(3), (2, 60))
    return oc.Profile(
        names=("small", "large"),
        costs=(0.1, 1.0),
        features={"small": probabilities[0], "hash": random.random((60, 5)).astype(np.float32)},
        success=np.column_stack([oc.success(table, labels) for table in probabilities]),
        extractor_cost={"hash": 0.01},
        ids=[f"row {number}" for number in range(60)],
        labels=labels,
        classes=("cat", "dog", "eel"),
        groups=np.arange(60) // 2,
        probabilities={"small": probabilities[0], "large": probabilities[1]},
    )
