"""auto: the choice is made by the data it is given, and is the better one on fresh rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import occamroute as oc
from occamroute.planning.combining import combined_success

ROWS = 4000


def drawn(random: np.random.Generator, chances: Any) -> Any:
    return (random.random(chances.shape) < chances).astype(np.float64)


def noise(seed: int) -> oc.Profile:
    """Features that cost little and say nothing."""
    random = np.random.default_rng(seed)
    success = drawn(random, np.tile([0.6, 0.75, 0.9], (ROWS, 1)))
    return oc.Profile(("a", "b", "c"), (1, 3, 10), random.normal(size=(ROWS, 4)), success, extractor_cost=0.1)


def specialists(seed: int) -> oc.Profile:
    """Two cheap classifiers that are each good on their side of the feature space, and a dear one that is fair."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(ROWS, 3))
    side = 1 / (1 + np.exp(-4 * features[:, 0]))
    chances = np.stack([0.4 + 0.5 * side, 0.9 - 0.5 * side, np.full(ROWS, 0.75)], axis=1)
    return oc.Profile(("a", "b", "c"), (1, 1, 10), features, drawn(random, chances), extractor_cost=0.1)


def two_extractors(seed: int) -> oc.Profile:
    """The same, with features that are nearly free and blurred beyond use, or dearer and sharp."""
    random = np.random.default_rng(seed + 100)
    sharp = specialists(seed)
    assert isinstance(sharp.features, np.ndarray)
    blurred = sharp.features + 8 * random.normal(size=sharp.features.shape)
    sets = {"blurred": blurred, "sharp": sharp.features}
    return oc.Profile(sharp.names, sharp.costs, sets, sharp.success, extractor_cost={"blurred": 0.01, "sharp": 0.5})


def reached(plan: oc.Plan, fresh: oc.Profile) -> float:
    return float(fresh.success[np.arange(len(fresh)), plan.choice].mean())


def planned(known: oc.Profile, fresh: oc.Profile, estimator: str, budget: float, **names: Any) -> float:
    return reached(oc.estimate(known, fresh.features, estimator=estimator, **names).plan(budget), fresh)


def test_noise_is_left_unbought() -> None:
    """Pure noise: the plan is the mixture's, and better than plans that look."""
    known, fresh = noise(0), noise(1)
    budget = 4.0 * ROWS
    plan = oc.plan(known, fresh.features, budget=budget)
    assert plan.made_from["extractor"] is None
    assert plan.made_from["estimator"] == "Mixture()"
    assert "no features that this budget pays" in plan.made_from["why"]
    for estimator in ("bagged", "forest", "sampled"):
        assert reached(plan, fresh) > planned(known, fresh, estimator, budget) + 0.005


def test_specialists_are_found() -> None:
    """Features that tell two specialists apart: bought, and far better than the mixture."""
    known, fresh = specialists(0), specialists(1)
    budget = 2.0 * ROWS
    plan = oc.plan(known, fresh.features, budget=budget)
    assert plan.made_from["extractor"] == "features"
    assert "on held-out rows its plan reached" in plan.made_from["why"]
    assert reached(plan, fresh) > planned(known, fresh, "mixture", budget) + 0.05
    for estimator in ("bagged", "forest", "sampled"):
        assert reached(plan, fresh) > planned(known, fresh, estimator, budget) - 0.003


def test_the_extractor_that_pays_is_chosen() -> None:
    """Fifty times dearer and worth it; where the budget cannot pay it, the mixture."""
    known, fresh = two_extractors(0), two_extractors(1)
    planner = oc.fit(known, budgets=[1.7 * ROWS, 1.2 * ROWS], n_queries=ROWS)
    assert planner.extractor(1.7 * ROWS) == "sharp"
    plan = planner.plan(fresh.features, budget=1.7 * ROWS)
    cheap = planned(known, fresh, "bagged", 1.7 * ROWS, extractor="blurred")
    mixture = planned(known, fresh, "mixture", 1.7 * ROWS, extractor="sharp")
    assert reached(plan, fresh) > max(cheap, mixture) + 0.05
    assert planner.extractor(1.2 * ROWS) in (None, "blurred")


def test_noise_stays_noise_at_every_budget_and_seed() -> None:
    """With free noise, real success and nine budgets, auto never strays from the mixture by more than a hair."""
    profile = oc.load_dataset("cifar10")[0]
    strayed = 0
    for seed in range(3):
        random = np.random.default_rng(seed)
        rows = random.permutation(len(profile))[:3000]
        known = oc.Profile(profile.names, profile.costs, random.normal(size=(3000, 6)), profile.success[rows])
        fresh = random.normal(size=(1000, 6))
        full = float(profile.costs.max()) * 1000
        planner = oc.fit(known, budgets=[], n_queries=1000, seed=seed)
        for share in (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0):
            strayed += planner.plan(fresh, budget=share * full).made_from["extractor"] is not None
    assert strayed == 0


def test_one_fit_serves_every_budget_and_is_seeded() -> None:
    """The same seed gives the same plans, whether budgets are asked for together or one by one."""
    known, fresh = specialists(2).take(np.arange(800)), specialists(3).take(np.arange(300))
    budgets = [450.0, 900.0, 2000.0]
    planner = oc.fit(known, budgets=budgets, n_queries=300, seed=7)
    for budget in budgets:
        together, alone = (
            planner.plan(fresh.features, budget=budget),
            oc.plan(known, fresh.features, budget=budget, seed=7),
        )
        assert np.array_equal(together.choice, alone.choice)
        assert together.made_from == alone.made_from
        assert together.expected_accuracy == alone.expected_accuracy


def test_other_queries_are_not_mistaken_for_the_last() -> None:
    """A planner keeps what it estimated, but never for other features."""
    known, fresh = specialists(2).take(np.arange(800)), specialists(3).take(np.arange(300))
    planner = oc.fit(known, budgets=[], n_queries=300)
    first = planner.plan(fresh.features, budget=900.0)
    assert isinstance(fresh.features, np.ndarray)
    turned = planner.plan(fresh.features[::-1], budget=900.0)
    again = planner.plan(fresh.features, budget=900.0)
    assert np.array_equal(first.success, again.success)
    assert np.mean(first.choice == turned.choice[::-1]) > 0.95
    assert np.mean(first.choice == turned.choice) < 0.9


@pytest.mark.parametrize("odd", ["one classifier", "always right", "twelve rows", "ties", "same cost", "huge features"])
def test_odd_profiles_are_planned(odd: str) -> None:
    """Degenerate profiles give a plan within the budget, not an error from inside an estimator."""
    random = np.random.default_rng(0)
    rows, options = (12 if odd == "twelve rows" else 200), (1 if odd == "one classifier" else 3)
    drawn = random.integers(0, 2, (rows, 3)) if odd == "ties" else random.dirichlet(np.ones(5), rows)
    features = drawn * (1e160 if odd == "huge features" else 1.0)
    success = np.ones((rows, options)) if odd == "always right" else random.integers(0, 2, (rows, options))
    costs = np.ones(options) if odd == "same cost" else np.arange(1, options + 1)
    profile = oc.Profile([f"c{number}" for number in range(options)], costs, features, success)
    plan = oc.plan(profile, features[:9], budget=20.0)
    oc.verify(plan)
    assert plan.planned_cost <= 20.0


def test_combining_beats_the_dearest_network() -> None:
    """CIFAR-10, two extractors offered: at a fifth of its cost, more right than the dearest network alone."""
    profile, test = oc.load_dataset("cifar10", extractor=("resnet8-w8", "resnet18-w64"))
    full = float(profile.costs.max()) * len(test)
    plan = oc.plan(profile, test.features, budget=0.2 * full)
    truth = combined_success(test, plan.made_from["extractor"], plan.weights)
    right = float(truth[np.arange(len(test)), plan.choice].mean())
    assert plan.made_from["combined"]
    assert right >= 0.878
    assert right > test.accuracy[-1]
    assert plan.expected_accuracy == pytest.approx(right, abs=0.006)
    bare, some = replace(profile.take(np.arange(2000)), probabilities=None), test.take(np.arange(1000))
    assert not oc.plan(bare, some.features, budget=0.02 * full).made_from["combined"]


def test_an_extractor_may_be_all_that_a_budget_pays() -> None:
    """Features that say nothing, from an extractor whose own answer is then free and cheaper than any other."""
    random = np.random.default_rng(0)
    success = drawn(random, np.tile([0.6, 0.7], (400, 1)))
    profile = oc.Profile(("a", "b"), (0.3, 0.4), random.normal(size=(400, 2)), success, "a", extractor_cost=0.05)
    plan = oc.plan(profile, random.normal(size=(50, 2)), budget=2.8)
    assert plan.made_from["extractor"] == "a"
    assert plan.usage == {"a": 50, "b": 0}
    assert plan.planned_cost == pytest.approx(2.5)


def test_threads_share_a_planner() -> None:
    """Plans for different queries at the same time are what they would be one after the other."""
    known, fresh = specialists(2).take(np.arange(600)), specialists(3)
    assert isinstance(fresh.features, np.ndarray)
    parts = np.array_split(fresh.features[:800], 8)
    planner = oc.fit(known, budgets=[], n_queries=100)
    alone = [planner.plan(part, budget=200.0).choice for part in parts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda part: planner.plan(part, budget=200.0).choice, parts))
    assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))


def test_columns_of_very_different_size_are_planned() -> None:
    """Context lengths beside a score: squared distances that cancel are no reason to fail."""
    random = np.random.default_rng(0)
    score = random.normal(size=800)
    features = np.column_stack([random.choice([4096, 128000, 200000], p=[0.75, 0.15, 0.1], size=800), score])
    success = (score[:, None] + random.normal(size=(800, 3)) < [-1, 0, 1]).astype(float)
    profile = oc.Profile(("a", "b", "c"), (1, 2, 3), features, success)
    assert len(oc.plan(profile, features[:100], budget=200.0)) == 100


def test_planner_tells_queries_apart_by_type_and_shape() -> None:
    """Zeros are zeros in any type: what was found for others is not taken for them."""
    planner = oc.fit(specialists(2).take(np.arange(300)), budgets=[], n_queries=100)
    first = planner.plan(np.zeros((100, 3), np.float32), budget=300.0)
    assert len(planner.plan(np.zeros((50, 3)), budget=150.0)) == 50
    assert len(first) == 100
