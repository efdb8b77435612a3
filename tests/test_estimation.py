"""Estimators: the contract all keep, and the one equal to the mean of many of the other."""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

import occamroute as oc
from occamroute.estimation.bagged import rank_weights
from occamroute.testing import check_estimator

MAKERS: dict[str, Callable[[], Any]] = {
    "sampled": lambda: oc.SampledNeighbors(n_samples=10),
    "sampled l1": lambda: oc.SampledNeighbors(5, 17, "l1"),
    "sampled independent": lambda: oc.SampledNeighbors(40, 50, independent=True),
    "bagged": oc.BaggedNeighbors,
    "bagged l2": lambda: oc.BaggedNeighbors(7, "l2"),
    "mixture": oc.Mixture,
    "neighbours of scikit-learn": lambda: KNeighborsRegressor(5),
    "forest of scikit-learn": lambda: RandomForestRegressor(5, random_state=0),
}


@pytest.mark.parametrize("name", MAKERS)
def test_contract(name: str) -> None:
    """Ours and scikit-learn's keep the same contract."""
    check_estimator(MAKERS[name])


def test_contract_can_fail() -> None:
    """The suite refuses what does not keep it."""

    class Careless(oc.Mixture):
        def predict(self, features: Any) -> Any:
            return super().predict(features)[:, :-1]

    with pytest.raises(AssertionError, match="one column a classifier"):
        check_estimator(Careless)


@pytest.mark.parametrize(("pool", "size"), [(10, 3), (30, 30), (50, 1), (200, 20)])
def test_rank_weights_are_the_chances(pool: int, size: int) -> None:
    """The r-th nearest of n is the nearest of a random subset of s with probability C(n-r, s-1) / C(n, s)."""
    chances = [comb(pool - rank, size - 1) / comb(pool, size) for rank in range(1, pool + 1)]
    weights = rank_weights(pool, size)
    assert weights == pytest.approx(chances[: weights.size], rel=1e-12)
    assert 1 - 1e-6 <= weights.sum() <= 1 + 1e-12


@pytest.mark.parametrize("metric", ["l1", "l2", "linf"])
def test_bagged_is_the_mean_of_many_samples(metric: str) -> None:
    """With ties everywhere, bagged equals the mean of 4,000 independent samples within its standard error."""
    random = np.random.default_rng(1)
    features = random.integers(0, 5, (60, 2)).astype(np.float64)
    success = random.random((60, 3))
    queries = random.integers(0, 5, (40, 2)) + random.choice([0.0, 0.5], (40, 2))
    bagged = oc.BaggedNeighbors(8, metric).fit(features, success).predict(queries)
    draws = np.stack([
        oc.SampledNeighbors(200, 8, metric, independent=True, seed=seed).fit(features, success).predict(queries)
        for seed in range(20)
    ])  # fmt: skip
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    score = (draws.mean(axis=0) - bagged) / np.maximum(error, 1e-12)
    assert np.abs(score).mean() < 1.1
    assert np.abs(score).max() < 6.0


def test_sampled_takes_consecutive_slices_in_row_order() -> None:
    """The default samples are the disjoint slices of the authors' notebooks; a seed shuffles them."""
    features = np.arange(12.0)[:, None]
    success = features / 12
    plain = oc.SampledNeighbors(3).fit(features, success)
    # Slices 0–3, 4–7, 8–11: the nearest to 5.1 are rows 3, 5 and 8.
    assert plain.predict([[5.1]])[0, 0] == pytest.approx((3 + 5 + 8) / 3 / 12)
    shuffled = oc.SampledNeighbors(3, seed=1).fit(features, success)
    assert shuffled.predict([[5.1]])[0, 0] != plain.predict([[5.1]])[0, 0]


def test_tied_neighbours_share() -> None:
    """Rows at the same distance count the same, whichever stands first."""
    features = [[0.0], [0.0], [1.0], [5.0]]
    success = [[1.0], [0.0], [1.0], [0.0]]
    assert oc.SampledNeighbors(1).fit(features, success).predict([[0.0]])[0, 0] == 0.5
    assert oc.SampledNeighbors(1).fit(features, success).predict([[0.5]])[0, 0] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (oc.BaggedNeighbors(0), "sample_size must be a whole number ≥ 1, got 0"),
        (oc.BaggedNeighbors(101), "sample_size must be at most the pool's 100 rows, got 101"),
        (oc.SampledNeighbors(0), "n_samples must be a whole number ≥ 1, got 0"),
        (oc.SampledNeighbors(3, 101), "sample_size must be at most the pool's 100 rows"),
        (oc.BaggedNeighbors(metric="cosine"), "unknown metric 'cosine'"),
        ("magic", "unknown estimator 'magic': use one of sampled, bagged, mixture"),
        (object(), "an estimator needs fit and predict, got object"),
    ],
)
def test_bad_knobs_get_one_sentence(estimator: Any, sentence: str) -> None:
    """Whatever is wrong is named."""
    profile = oc.Profile(("a",), [1.0], np.random.default_rng(0).random((100, 2)), np.ones((100, 1)))
    with pytest.raises(oc.InvalidInputError, match=sentence):
        oc.estimate(profile, np.zeros((1, 2)), estimator=estimator)


def test_any_regressor_works_in_their_place(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """A multi-output regressor of scikit-learn estimates, is clipped to [0, 1], and is not changed itself."""
    profile, test = cifar10_small
    ridge = Ridge()
    estimate = oc.estimate(profile, test.features, estimator=ridge)
    assert estimate.success.shape == (1000, 7)
    assert estimate.success.min() >= 0.0
    assert estimate.success.max() <= 1.0
    assert not hasattr(ridge, "coef_")
    assert estimate.distance is None


def test_bagged_is_at_least_as_accurate_as_sampled(cifar10: tuple[oc.Profile, oc.Profile]) -> None:
    """On real data, averaged over budgets, integrating the samples out does not hurt."""
    profile, test = cifar10
    full = float(profile.costs.max()) * len(test)
    reached = {}
    for estimator in (oc.SampledNeighbors(40), oc.BaggedNeighbors(500)):
        estimate = oc.estimate(profile, test.features, estimator=estimator)
        plans = [estimate.plan(share * full) for share in (0.1, 0.15, 0.2, 0.3, 0.4, 0.6)]
        reached[type(estimator).__name__] = np.mean(
            [test.success[np.arange(len(test)), plan.choice].mean() for plan in plans]
        )
    assert reached["BaggedNeighbors"] >= reached["SampledNeighbors"]
