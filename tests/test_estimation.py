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
from occamroute.estimation.kernel import RIDGES, _Landmarks, _Solver, _Sums, cross_fit
from occamroute.estimation.ordered import Ordered, are_probabilities
from occamroute.testing import check_estimator

MAKERS: dict[str, Callable[[], Any]] = {
    "sampled": lambda: oc.SampledNeighbors(n_samples=10),
    "sampled l1": lambda: oc.SampledNeighbors(5, 17, "l1"),
    "sampled independent": lambda: oc.SampledNeighbors(40, 50, independent=True),
    "bagged": oc.BaggedNeighbors,
    "bagged l2": lambda: oc.BaggedNeighbors(7, "l2"),
    "mixture": oc.Mixture,
    "forest": lambda: oc.Forest(10),
    "forest, regularised": lambda: oc.Forest(10, regularized=True),
    "forest of contrasts": lambda: oc.ContrastForest(10),
    "kernel ridge": oc.KernelRidge,
    "kernel ridge, standardised": lambda: oc.KernelRidge(0.01, standardize=True),
    "in order": lambda: Ordered(oc.KernelRidge()),
    "beside their order": lambda: Ordered(oc.BaggedNeighbors(), beside=True),
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
        ("magic", "unknown estimator 'magic': use one of sampled, bagged, forest"),
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


def test_forest_is_scikit_learns() -> None:
    """By default it is scikit-learn's random forest as it comes, one for all classifiers."""
    random = np.random.default_rng(0)
    features, queries = random.random((300, 3)), random.random((40, 3))
    success = (random.random((300, 4)) < features[:, :1]).astype(np.float64)
    ours = oc.Forest(20, seed=5).fit(features, success).predict(queries)
    theirs = RandomForestRegressor(20, random_state=5).fit(features, success).predict(queries)
    assert np.allclose(ours, theirs)


@pytest.mark.parametrize("make", [oc.Forest, oc.ContrastForest])
def test_forests_of_many_classifiers(make: Callable[[], Any]) -> None:
    """Sixty classifiers that follow three patterns are learned from the leading components alone."""
    random = np.random.default_rng(0)
    features = random.random((2000, 3))
    success = np.repeat(features > 0.5, 20, axis=1).astype(np.float64)
    queries = random.random((200, 3))
    error = np.abs(make().fit(features, success).predict(queries) - np.repeat(queries > 0.5, 20, axis=1))
    assert error.mean() < 0.15


def test_contrasts_are_learned_where_difficulty_hides_them() -> None:
    """Where success is mostly shared difficulty, trees that split on differences find them."""
    random = np.random.default_rng(0)
    features, queries = random.random((1200, 12)), random.random((3000, 12))
    easy = (features[:, :11].mean(axis=1, keepdims=True) - 0.5) / 0.1 + 0.5
    better = np.where(features[:, 11:] > 0.5, [[0.1, 0.0]], [[0.0, 0.1]])
    success = (random.random((1200, 1)) < easy + better).astype(np.float64)
    truth = queries[:, 11] > 0.5

    def right(estimator: Any) -> float:
        found = estimator.fit(features, success).predict(queries)
        return float(((found[:, 0] > found[:, 1]) == truth).mean())

    assert right(oc.ContrastForest()) > right(oc.Forest(regularized=True)) + 0.03


def test_left_out_ridge_is_the_best_on_fresh_rows() -> None:
    """The ridge chosen by leaving rows out is near the best one for fresh rows, and both ends are worse."""
    random = np.random.default_rng(0)
    features, queries = random.random((1500, 2)), random.random((4000, 2))

    def chance(rows: Any) -> Any:
        return np.stack([rows[:, 0], 1 - rows[:, 0], 0.5 + 0.3 * np.sin(6 * rows[:, 1])], axis=1)

    success = (random.random((1500, 3)) < chance(features)).astype(np.float64)
    errors = {
        ridge: float(np.square(oc.KernelRidge(ridge).fit(features, success).predict(queries) - chance(queries)).mean())
        for ridge in RIDGES
    }
    chosen = oc.KernelRidge().fit(features, success).ridge_
    assert errors[chosen] < 1.5 * min(errors.values())
    assert errors[RIDGES[0]] > 1.5 * errors[chosen] < errors[RIDGES[-1]]


def test_cross_fitted_ridge_sees_no_held_out_success() -> None:
    """Held-out estimates are those of a solution that was given the success of the pool alone."""
    random = np.random.default_rng(0)
    features, success = random.random((600, 2)), random.integers(0, 2, (600, 3)).astype(np.float64)
    fold = np.arange(600) % 3
    folds = [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in range(3)]
    found, ridge = cross_fit(features, success, folds, standardize=False)
    space = _Landmarks(features, standardize=False, seed=0)
    for number, (pool, held) in enumerate(folds):
        solver = _Solver(space, _Sums.of(space, features, success, pool))  # no row but the pool's
        alone = solver.mean + (space(features[held]) - solver.center) @ solver.solution(ridge)
        assert np.allclose(found[200 * number : 200 * (number + 1)], alone, atol=1e-7)


def test_order_makes_classes_alike() -> None:
    """Estimates from the order of probabilities are the same whatever the classes are called."""
    random = np.random.default_rng(0)
    features = random.dirichlet(np.full(12, 0.3), 500)
    success = (random.random((500, 2)) < features.max(axis=1, keepdims=True)).astype(np.float64)
    queries = random.dirichlet(np.full(12, 0.3), 50)
    fitted = Ordered(oc.BaggedNeighbors(20, "l2")).fit(features, success)
    assert np.allclose(fitted.predict(queries), fitted.predict(queries[:, ::-1]))
    assert are_probabilities(features)
    assert not are_probabilities(features * 1.1)
    assert not are_probabilities(features - 0.01)
    assert not are_probabilities(np.ones((5, 1)))


def test_constant_features_say_nothing() -> None:
    """Rows that are all the same give each classifier's overall accuracy, and nothing breaks."""
    success = np.random.default_rng(0).integers(0, 2, (50, 2)).astype(np.float64)
    for estimator in (oc.KernelRidge(), oc.KernelRidge(standardize=True), oc.ContrastForest(5), oc.Forest(5)):
        found = estimator.fit(np.ones((50, 3)), success).predict(np.ones((4, 3)))
        allowed = 1e-9 if isinstance(estimator, oc.KernelRidge) else 0.1  # trees see random halves of the rows
        assert found == pytest.approx(np.tile(success.mean(axis=0), (4, 1)), abs=allowed)


def test_linear_algebra_gets_its_threads_back() -> None:
    """After many fits side by side, the process has as many BLAS threads as before."""
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_info

    def threads() -> list[int]:
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    random = np.random.default_rng(0)
    features, success = random.random((300, 3)), random.integers(0, 2, (300, 2)).astype(np.float64)
    before = threads()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: oc.KernelRidge(seed=seed).fit(features, success), range(12)))
    assert threads() == before


def test_bagged_samples_are_by_default_a_fortieth_of_the_pool() -> None:
    """The default is the paper's 40 samples, and at least one row each."""
    random = np.random.default_rng(0)
    features, success = random.random((200, 2)), random.random((200, 2))
    for rows, size in ((200, 5), (39, 1)):
        pool, values = features[:rows], success[:rows]
        assert np.array_equal(
            oc.BaggedNeighbors().fit(pool, values).predict(features),
            oc.BaggedNeighbors(size).fit(pool, values).predict(features),
        )


def test_a_shrunk_bagged_estimator_has_smaller_samples() -> None:
    """For a quarter of the pool a sample has a quarter of the rows, and at least one; the default stays the default."""
    made = oc.BaggedNeighbors(40, "l1", threads=2).shrunk(0.25)
    assert (made.sample_size, made.metric, made.threads) == (10, "l1", 2)
    assert oc.BaggedNeighbors(40).shrunk(0.001).sample_size == 1
    assert oc.BaggedNeighbors().shrunk(0.25).sample_size is None
