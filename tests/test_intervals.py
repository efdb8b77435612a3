"""Intervals of means: Wilson's, for rows of which some may belong together."""

from __future__ import annotations

import numpy as np
import pytest

from occamroute._intervals import QUANTILE, bounds_from, mean_bounds


def test_the_interval_is_wilsons() -> None:
    """Both ends solve (p - mean)² = z² p (1 - p) / n."""
    outcomes = (np.arange(40)[:, None] < [1, 10, 25, 39]).astype(np.float64)
    bounds = mean_bounds(outcomes)
    for end in bounds.T:
        assert (end - outcomes.mean(axis=0)) ** 2 == pytest.approx(QUANTILE**2 * end * (1 - end) / 40)
    assert (bounds[:, 0] < outcomes.mean(axis=0)).all()
    assert (outcomes.mean(axis=0) < bounds[:, 1]).all()


def test_copies_of_a_row_tell_no_more_than_the_row() -> None:
    """Four copies in one group make the interval of one row, whether or not the rows differ in outcome."""
    outcomes = np.random.default_rng(0).integers(0, 2, (30, 3)).astype(np.float64)
    outcomes[:, 2] = 1.0
    copies, groups = np.repeat(outcomes, 4, axis=0), np.repeat(np.arange(30), 4)
    assert mean_bounds(copies, groups) == pytest.approx(mean_bounds(outcomes))
    assert np.array_equal(mean_bounds(outcomes, np.arange(30)), mean_bounds(outcomes))
    narrow, wide = np.diff(mean_bounds(copies)), np.diff(mean_bounds(copies, groups))
    assert (narrow < 0.7 * wide).all()


def test_ten_correct_answers_are_not_certainty() -> None:
    """Where rows do not vary, their number says how sure the mean is."""
    low = 10 / (10 + QUANTILE**2)
    assert mean_bounds(np.ones((10, 1))) == pytest.approx(np.array([[low, 1.0]]))
    assert mean_bounds(np.zeros((10, 1))) == pytest.approx(np.array([[0.0, 1.0 - low]]))


def test_the_mean_is_inside_and_the_ends_are_probabilities() -> None:
    """Rounding moves an end neither past the mean nor out of [0, 1]."""
    for count in range(1, 400):
        mean = np.array([0.0, 1.0, 1 / 3])
        bounds = bounds_from(mean, np.array([0.0, 0.0, mean[2] * (1 - mean[2]) / count]), count)
        assert (bounds[:, 0] <= mean).all(), count
        assert (mean <= bounds[:, 1]).all(), count
        assert bounds.min() >= 0.0, count
        assert bounds.max() <= 1.0, count
