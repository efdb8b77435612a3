"""Intervals of 90 %: over hundreds of draws they hold about nine times in ten, and expectations are hardly biased."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import occamroute as oc
from occamroute._arrays import FloatArray
from occamroute.planning.candidates import Candidate
from occamroute.planning.fitting import Planner
from occamroute.planning.held_out import Folds, Member, bagged_tables, cross_fitted

DRAWS, KNOWN, FRESH = 300, 200, 400
# Where intervals hold 90 times in 100, the number of 300 that do is in here 99 times in 100.
LEAST, MOST = binom.interval(0.99, DRAWS, 0.9)

Offer = Callable[[oc.Profile, Folds], list[Candidate]]


class Arbitrary:
    """An estimator that learns only overall accuracies: what it adds depends on the features, but means nothing."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, features: Any, success: FloatArray) -> Arbitrary:
        self.mean = success.mean(axis=0)
        self.directions = np.random.default_rng(self.seed).normal(size=(features.shape[1], success.shape[1]))
        return self

    def predict(self, features: Any) -> FloatArray:
        return np.asarray(np.clip(self.mean + 0.3 * np.sin(1e4 * (features @ self.directions)), 0.0, 1.0))


def mixture(profile: oc.Profile, folds: Folds) -> list[Candidate]:
    """No features: which queries are sent where is chance, and part of the noise."""
    means = np.concatenate([np.tile(profile.success[pool].mean(axis=0), (held.size, 1)) for pool, held in folds])
    return [Candidate(None, (), None, means, profile.success[folds.rows])]


def useful(profile: oc.Profile, folds: Folds) -> list[Candidate]:
    """The mixture and bagged neighbours of three smoothings: features tell something."""
    truth = profile.success[folds.rows]
    ((name, features),) = profile.feature_sets.items()
    tables = bagged_tables(features, profile.success, folds, "linf", (10, 40, 160))
    return mixture(profile, folds) + [Candidate(name, ((member, 1.0),), None, table, truth) for member, table in tables]


def equally_good(profile: oc.Profile, folds: Folds) -> list[Candidate]:
    """Twelve that differ by chance alone: the best of them on held-out rows was lucky there."""
    ((name, features),) = profile.feature_sets.items()
    found = []
    for seed in range(12):
        table = cross_fitted(features, profile.success, folds, partial(Arbitrary, seed))
        member = Member(f"arbitrary {seed}", lambda rows, seed=seed: Arbitrary(seed))  # type: ignore[misc]
        found.append(Candidate(name, ((member, 1.0),), None, table, profile.success[folds.rows]))
    return found


def drawn(profile: oc.Profile, offered: Offer) -> tuple[int, FloatArray]:
    """How many intervals hold what a plan reaches on fresh rows, and the errors of expected accuracies (draws,)."""
    covered, errors = 0, []
    for seed in range(DRAWS):
        rows = np.random.default_rng(seed).permutation(len(profile))[: KNOWN + FRESH]
        known, fresh = profile.take(rows[:KNOWN]), profile.take(rows[KNOWN:])
        folds = Folds.draw(known, np.random.default_rng(seed))
        planner = Planner(known, FRESH, seed, folds, tuple(offered(known, folds)))
        plan = planner.plan(fresh.features, budget=0.2 * float(profile.costs.max()) * FRESH)
        reached = float(fresh.success[np.arange(FRESH), plan.choice].mean())
        low, high = plan.accuracy_interval or (0.0, 0.0)
        covered += low <= reached <= high
        errors.append(plan.expected_accuracy - reached)
    return covered, np.array(errors)


# Over 1,500 draws with 200 labelled rows each, 88 % of the intervals hold for the first two, and plans reach 0.6 points
# less than expected (the standard error is 0.07 points): the limits on the bias allow for that.
@pytest.mark.parametrize(("offered", "most_biased"), [(mixture, 0.01), (useful, 0.01), (equally_good, 0.006)])
def test_nine_of_ten_intervals_hold_what_plans_reach(
    offered: Offer, most_biased: float, cifar10: tuple[oc.Profile, oc.Profile]
) -> None:
    """On 300 random splits of real rows; about 270 intervals hold, neither fewer nor more."""
    profile = replace(cifar10[0], probabilities=None, labels=None, classes=None)
    covered, errors = drawn(profile, offered)
    assert LEAST <= covered <= MOST
    assert abs(float(errors.mean())) < most_biased
