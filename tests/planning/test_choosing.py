"""Choosing on held-out rows: the transfer test, cross-fitting, penalties, and the promise of an interval."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import occamroute as oc
from occamroute._arrays import FloatArray
from occamroute._intervals import QUANTILE
from occamroute.estimation import Mixture
from occamroute.planning.candidates import Candidate
from occamroute.planning.choosing import Choice, best_choice, trial
from occamroute.planning.held_out import Folds, Member

ROWS = 1000


def single_classifier() -> tuple[oc.Profile, Folds]:
    """A profile with one classifier: every plan chooses it, so that a candidate's truth is what its plan reaches."""
    profile = oc.Profile(("only",), (1.0,), np.zeros((ROWS, 1)), np.ones((ROWS, 1)), extractor_cost=0.0)
    return profile, Folds.draw(profile, np.random.default_rng(0))


def candidate(name: str | None, reached: FloatArray) -> Candidate:
    """A candidate whose plan reaches this on each held-out row; without a name it is the mixture."""
    members: Any = () if name is None else ((Member(name, lambda rows: Mixture()), 1.0),)
    truth = reached[:, None]
    return Candidate(None if name is None else "features", members, None, np.full(truth.shape, 0.5), truth)


def on_halves(folds: Folds, first: float, second: float) -> FloatArray:
    """The first part of each half is correct, so that the halves have these accuracies."""
    reached = np.zeros(folds.rows.size)
    for half, accuracy in ((folds.first_half, first), (~folds.first_half, second)):
        rows = np.flatnonzero(half)
        reached[rows[: round(accuracy * rows.size)]] = 1.0
    return reached


def test_features_must_beat_the_mixture_on_the_half_that_did_not_choose_them() -> None:
    """Each of two estimators is lucky on one half: better than the mixture overall, but chance does not transfer."""
    profile, folds = single_classifier()
    mixture = candidate(None, on_halves(folds, 0.6, 0.6))
    lucky = [candidate("a", on_halves(folds, 0.9, 0.55)), candidate("b", on_halves(folds, 0.55, 0.9))]
    chosen = best_choice(profile, folds, [mixture, *lucky], Fraction(1), seed=0)
    assert chosen.candidate is mixture
    good = candidate("a", on_halves(folds, 0.75, 0.75))
    assert best_choice(profile, folds, [mixture, good], Fraction(1), seed=0).candidate is good


def test_each_half_is_scored_by_the_choice_of_the_other() -> None:
    """The accuracy stated is that of what the other half chose, not the best of each half nor the best overall."""
    profile, folds = single_classifier()
    allowed = [candidate("a", on_halves(folds, 0.9, 0.5)), candidate("b", on_halves(folds, 0.5, 0.9))]
    chosen = best_choice(profile, folds, allowed, Fraction(1), seed=0)
    assert chosen.accuracy == pytest.approx(0.5)
    assert chosen.correction == pytest.approx(0.0)


def promised(mean: float, queries: int, *, correction: float = 0.0, error: float = 0.03) -> Any:
    one = candidate(None, np.ones(4))
    return Choice(one, 0.0, 0.7, correction, error, 400, 0.4, "", {}).promise(mean, queries)


def test_an_interval_has_the_noise_of_the_correction_and_of_the_queries() -> None:
    """With endless queries the held-out rows' own noise is left; with few, both add up as variances."""
    expected, (low, high) = promised(0.7, 10**12)
    assert (expected - low, high - expected) == pytest.approx((QUANTILE * 0.03, QUANTILE * 0.03), rel=1e-4)
    expected, (low, high) = promised(0.7, 100)
    assert (expected - low, high - expected) == pytest.approx((QUANTILE * 0.05, QUANTILE * 0.05))


@pytest.mark.parametrize(("mean", "correction", "expected"), [(0.98, 0.05, 1.0), (0.02, -0.05, 0.0), (0.5, 0.1, 0.6)])
def test_an_expected_accuracy_is_between_0_and_1(mean: float, correction: float, expected: float) -> None:
    """A correction never takes the expectation, nor its interval, out of what an accuracy can be."""
    found, (low, high) = promised(mean, 1000, correction=correction)
    assert found == pytest.approx(expected)
    assert 0.0 <= low <= found <= high <= 1.0


def test_a_trial_subtracts_the_penalty() -> None:
    """With a penalty the plan prefers the classifier whose estimates are always right to one that looks better."""
    profile = oc.Profile(("sure", "unsure"), (1.0, 1.0), np.zeros((100, 1)), np.ones((100, 2)), extractor_cost=0.0)
    folds = Folds.draw(profile, np.random.default_rng(0))
    truth = np.column_stack([np.full(100, 0.6), np.arange(100) % 2])
    one = Candidate(
        "features", ((Member("a", lambda rows: Mixture()), 1.0),), None, np.tile([0.6, 0.7], (100, 1)), truth
    )
    for penalty, column in ((0.0, 1), (1.0, 0)):
        made = trial(profile, folds, one, penalty, Fraction(1), seed=0)
        assert made is not None
        assert np.array_equal(made.outcome, truth[:, column])
