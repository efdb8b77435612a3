"""Held-out rows: how they are divided, and plans made with the knobs that were judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import occamroute as oc
from occamroute.estimation.kernel import cross_fit
from occamroute.planning.held_out import SMOOTHINGS, Folds, Judged, _kernel_work, _sampled_work, bagged_tables


def profile_of(rows: int) -> oc.Profile:
    random = np.random.default_rng(0)
    features = random.normal(size=(rows, 2))
    success = np.column_stack([features[:, 0] > 0.0, features[:, 0] <= 0.0]).astype(float)
    return oc.Profile(("a", "b"), (1.0, 2.0), features, success, extractor_cost=0.1)


def judged(profile: oc.Profile) -> Judged:
    folds = Folds.draw(profile, np.random.default_rng(0))
    return Judged(profile.feature_sets["features"], profile.success, folds, 0)


def test_halves_are_as_even_as_five_folds_can_be() -> None:
    """Three folds judge what two chose, and the other way round; no fold is in both halves."""
    folds = Folds.draw(profile_of(100), np.random.default_rng(0))
    parts = np.split(folds.first_half, np.cumsum([held.size for held in folds.held])[:-1])
    assert [part.mean() for part in parts] == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert folds.first_half.sum() == 60


@pytest.mark.parametrize("most", [1, 48, 50, 100, 1000])
def test_held_out_rows_are_limited_and_pools_are_not(most: int) -> None:
    """At most as many rows are judged as asked for, rounded up to the folds; estimators still see all other folds."""
    folds = Folds.draw(profile_of(100), np.random.default_rng(0), most=most)
    assert [held.size for held in folds.held] == [min(20, -(-most // 5))] * 5
    assert [pool.size for pool in folds.pools] == [80] * 5


def test_bagged_members_are_planned_with_the_sample_size_that_was_judged() -> None:
    """A pool of four fifths of the rows sets the sample size, also where the estimator is fitted on all rows."""
    work = judged(profile_of(800))
    found = bagged_tables(work.features, work.targets, work.folds, "l2", SMOOTHINGS)
    made = [member.make(800) for member, _ in found]
    assert [one.sample_size for one in made] == [640 // 10, 640 // 40, 640 // 160]
    assert [one.metric for one in made] == ["l2"] * 3


def test_only_the_smoothest_bagged_member_may_be_stacked() -> None:
    """Estimates from few neighbours are too noisy to be given a weight."""
    work = judged(profile_of(800))
    found = bagged_tables(work.features, work.targets, work.folds, "l2", SMOOTHINGS)
    assert [member.smooth for member, _ in found] == [False, False, True]


def test_the_sampled_member_is_planned_with_samples_of_the_size_that_was_judged() -> None:
    """Forty samples of a pool of 640 rows have 16 each; all 800 rows give 50 such samples."""
    ((member, _),) = _sampled_work(judged(profile_of(800)))
    made: Any = member.make(800)
    assert (made.n_samples, made.sample_size) == (50, 16)
    assert not member.smooth


def test_kernel_estimates_are_clipped() -> None:
    """Kernel ridge overshoots at a step from 0 to 1; its held-out estimates are probabilities all the same."""
    work = judged(profile_of(200))
    raw, _ = cross_fit(work.features, work.targets, list(work.folds), standardize=False, seed=0)
    assert raw.min() < -0.01
    assert raw.max() > 1.01
    ((_, table),) = _kernel_work(work)
    assert np.array_equal(table, np.clip(raw, 0.0, 1.0))
