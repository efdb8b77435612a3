"""Estimates, plans, frontiers and the planner that chooses on held-out rows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import occamroute as oc
from occamroute.planning.choosing import PENALTIES

SHARES = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6)


def accuracy(plan: oc.Plan, test: oc.Profile) -> float:
    return float(test.success[np.arange(len(test)), plan.choice].mean())


def exact_cost(plan: oc.Plan, profile: oc.Profile) -> Fraction:
    """The bill from first principles: extraction for every query, then each answer but the extractor's own."""
    name = plan.made_from["extractor"]
    amount = Fraction(0) if name is None else Fraction(str(profile.extraction_costs[name])) * len(plan)
    for column, count in enumerate(plan.usage.values()):
        if profile.names[column] != name:
            amount += count * Fraction(repr(float(profile.mean_costs[column])))
    return amount


def test_extraction_is_charged_and_frees_the_extractor(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Features cost a call of the extractor for every query, and its own answer then costs nothing."""
    profile, test = cifar10_small
    estimate = oc.estimate(profile, test.features)
    assert estimate.overhead == profile.costs[0]
    assert estimate.costs[0] == 0.0
    assert estimate.costs[1:].tolist() == profile.costs[1:].tolist()
    least = float(profile.costs[0]) * len(test)
    cheapest = estimate.plan(least * 1.0001)
    assert cheapest.usage["resnet8-w8"] == len(test)
    assert cheapest.planned_cost == pytest.approx(least, rel=1e-12)
    with pytest.raises(oc.BudgetTooSmallError):
        estimate.plan(least * 0.999)


def test_mixture_is_charged_nothing_and_frees_nothing(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Without features there is nothing to pay for, and no answer is free."""
    profile, test = cifar10_small
    estimate = oc.estimate(profile, test.features, estimator="mixture")
    assert estimate.overhead == 0
    assert estimate.costs.tolist() == profile.costs.tolist()
    assert np.allclose(estimate.success, profile.accuracy)


@pytest.mark.parametrize("estimator", ["bagged", "sampled", "mixture"])
def test_plans_keep_their_budget_exactly(estimator: str, cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """The bill, added up as fractions, never passes the budget, and the certificate holds."""
    profile, test = cifar10_small
    estimate = oc.estimate(profile, test.features, estimator=estimator)
    full = float(profile.costs.max()) * len(test)
    for share in SHARES:
        plan = estimate.plan(share * full, penalty=0.5)
        oc.verify(plan)
        assert exact_cost(plan, profile) <= Fraction(repr(share * full))
        assert plan.planned_cost <= plan.budget
        assert plan.costs.sum() == pytest.approx(plan.planned_cost)


def test_sigma_comes_from_held_out_rows(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Both spreads that the paper and its authors use, neither from the queries that are judged."""
    profile, test = cifar10_small
    error = oc.estimate(profile, test.features).sigma
    fewer = oc.estimate(profile, test.take(np.arange(10)).features).sigma
    assert np.array_equal(error, fewer)
    assert np.all((error > 0.2) & (error < 0.5))
    spread = oc.estimate(profile, test.features, sigma="estimator").sigma
    assert np.all((spread > 0) & (spread < error))
    with pytest.raises(oc.UnknownNameError, match="unknown sigma 'x': use one of error, estimator"):
        oc.estimate(profile, test.features, sigma="x")  # type: ignore[call-overload]


def test_penalty_changes_the_choice_but_never_the_expected_accuracy(
    cifar10_small: tuple[oc.Profile, oc.Profile],
) -> None:
    """What is promised is the mean of the plain estimates of what was chosen."""
    profile, test = cifar10_small
    estimate = oc.estimate(profile, test.features)
    budget = 0.2 * float(profile.costs.max()) * len(test)
    plan = estimate.plan(budget, penalty=5.0)
    assert not np.array_equal(plan.choice, estimate.plan(budget).choice)
    chosen = estimate.success[np.arange(len(test)), plan.choice]
    assert plan.expected_accuracy == pytest.approx(chosen.mean())
    assert plan.bound < plan.expected_accuracy
    for penalty in (-1.0, float("nan")):
        with pytest.raises(oc.InvalidInputError, match="penalty must be a finite number ≥ 0"):
            estimate.plan(budget, penalty=penalty)


@pytest.mark.parametrize("rows", [30, 10_000])
@pytest.mark.parametrize("penalty", [0.0, 0.4])
def test_frontier_plans_are_the_point_plans(rows: int, penalty: float, cifar10: tuple[oc.Profile, oc.Profile]) -> None:
    """At random budgets both ways give the same plan; supported points are optimal at their own cost."""
    profile, test = cifar10
    features = test.take(np.arange(rows)).features
    estimate = oc.estimate(profile.take(np.arange(4000)), features, estimator=oc.SampledNeighbors(40))
    front = estimate.frontier(penalty=penalty)
    assert np.all(np.diff(front.budgets) > 0)
    assert np.all(np.diff(front.prices) <= 0)
    assert front.prices[-1] == 0.0
    random = np.random.default_rng(0)
    for budget in random.uniform(front.budgets[0], 1.05 * front.budgets[-1], 20 if rows > 30 else 200):
        point = estimate.plan(float(budget), penalty=penalty)
        assert np.array_equal(front.plan(float(budget)).choice, point.choice)
        assert point.value <= front.bound(float(budget)) + 1e-12
        assert point.bound <= front.bound(float(budget)) + 1e-9
    for index in random.integers(0, len(front), 20):
        plan = front.plan(float(front.budgets[index]))
        assert plan.value == pytest.approx(front.values[index], abs=1e-9)
        assert plan.price == pytest.approx(front.prices[index])
        if penalty == 0.0:
            assert plan.expected_accuracy == pytest.approx(front.accuracies[index], abs=1e-9)


def test_frontier_refuses_what_no_plan_can_pay(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Below its first point there is nothing, and the error says what would do."""
    profile, test = cifar10_small
    front = oc.estimate(profile, test.features).frontier()
    with pytest.raises(oc.BudgetTooSmallError) as caught:
        front.bound(front.budgets[0] * 0.99)
    front.bound(caught.value.needed)


def test_costs_by_query_are_planned_as_given() -> None:
    """New queries may have their own costs; without them each classifier's mean is used."""
    random = np.random.default_rng(0)
    profile = oc.Profile(
        ("a", "b"),
        random.random((50, 2)),
        random.random((50, 3)),
        random.integers(0, 2, (50, 2)),
        extractor="a",
    )
    queries, costs = random.random((20, 3)), random.random((20, 2))
    plan = oc.estimate(profile, queries, costs=costs).plan(15.0)
    bill: Fraction | int = sum(Fraction(repr(float(cost))) for cost in costs[:, 0])
    bill += sum(Fraction(repr(float(costs[row, 1]))) for row in range(20) if plan.choice[row] == 1)
    assert bill <= 15
    assert plan.planned_cost == pytest.approx(float(bill))
    assert oc.estimate(profile, queries).costs.tolist() == pytest.approx([0.0, profile.costs[:, 1].mean()])


def test_several_feature_sets_must_be_named(small: oc.Profile) -> None:
    """With several feature sets and no default, the caller says which; mappings name them."""
    queries = small.feature_sets["hash"]
    with pytest.raises(oc.InvalidInputError, match="name one of small, hash as extractor"):
        oc.estimate(small, queries)
    by_name = oc.estimate(small, queries, extractor="hash")
    by_mapping = oc.estimate(small, {"hash": queries})
    assert np.array_equal(by_name.success, by_mapping.success)
    assert by_name.overhead == 0.01
    assert by_name.costs.tolist() == [0.1, 1.0]
    with pytest.raises(oc.InvalidInputError, match="features must have the profile's 5 columns, got 3"):
        oc.estimate(small, small.feature_sets["small"], extractor="hash")


def test_automatic_plan_is_honest(cifar10: tuple[oc.Profile, oc.Profile]) -> None:
    """On the average over budgets the promise is within half a point of what is reached; intervals are sensible."""
    profile, test = cifar10
    full = float(profile.costs.max()) * len(test)
    planner = oc.fit(profile, budgets=[share * full for share in SHARES], n_queries=len(test))
    errors = []
    for share in SHARES:
        plan = planner.plan(test.features, budget=share * full)
        oc.verify(plan)
        assert exact_cost(plan, profile) <= Fraction(repr(share * full))
        assert plan.accuracy_interval is not None
        low, high = plan.accuracy_interval
        assert low < plan.expected_accuracy < high < low + 0.03
        reached = accuracy(plan, test)
        errors.append(plan.expected_accuracy - reached)
        mixture = oc.estimate(profile, test.features, estimator="mixture").plan(share * full)
        assert reached > accuracy(mixture, test) - 0.01
    assert abs(float(np.mean(errors))) < 0.005


def test_one_call_is_both_steps(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """oc.plan is oc.fit and planner.plan; what was chosen and why is in the plan."""
    profile, test = cifar10_small
    budget = 0.3 * float(profile.costs.max()) * len(test)
    seen: list[tuple[int, int]] = []
    plan = oc.plan(profile, test.features, budget=budget, ids=test.ids, progress=lambda *at: seen.append(at))
    planner = oc.fit(profile, budgets=[budget], n_queries=len(test))
    assert np.array_equal(plan.choice, planner.plan(test.features, budget=budget).choice)
    assert plan.ids == test.ids
    assert plan.made_from["profile"] == profile.fingerprint
    assert plan.made_from["extractor"] == planner.extractor(budget)
    assert plan.made_from["penalty"] in PENALTIES
    assert plan.made_from["held_out_accuracy"] == pytest.approx(plan.expected_accuracy, abs=0.02)
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


def test_only_the_chosen_features_are_extracted() -> None:
    """With several extractors, the callable is asked for one of them, or for none where none is worth its cost."""
    profile, test = oc.load_dataset("cifar10", extractor=("resnet8-w8", "resnet18-w64"))
    profile, test = profile.take(np.arange(1500)), test.take(np.arange(500))
    full = float(profile.costs.max()) * len(test)
    planner = oc.fit(profile, budgets=[], n_queries=len(test))
    for share in (0.04, 0.3):
        asked: list[str] = []

        def extract(name: str, asked: list[str] = asked) -> Any:
            asked.append(name)
            return test.feature_sets[name]

        plan = planner.plan(extract, budget=share * full)
        wanted = planner.extractor(share * full)
        assert asked == ([] if wanted is None else [wanted])
        assert len(plan) == 500
    assert planner.extractor(0.04 * full) is None or planner.extractor(0.04 * full) == "resnet8-w8"


def test_noise_is_not_worth_its_cost() -> None:
    """Features that say nothing and cost something are not bought."""
    random = np.random.default_rng(0)
    success = random.random((2000, 3)) < [0.5, 0.7, 0.9]
    profile = oc.Profile(("a", "b", "c"), (1, 2, 4), {"noise": random.random((2000, 4))}, success,
                         extractor_cost={"noise": 0.5})  # fmt: skip
    planner = oc.fit(profile, budgets=[2500.0], n_queries=1000)
    assert planner.extractor(2500.0) is None
    plan = planner.plan({"noise": random.random((1000, 4))}, budget=2500.0)
    assert plan.made_from["estimator"] == "Mixture()"
    assert plan.expected_accuracy == pytest.approx(0.75, abs=0.02)


def test_groups_are_not_torn_between_fitting_and_judging() -> None:
    """Copies of a row in one group do not make features look better than they are."""
    random = np.random.default_rng(0)
    features = np.repeat(random.random((300, 2)), 4, axis=0)
    success = np.repeat((random.random((300, 2)) < [0.6, 0.65]), 4, axis=0)
    names, costs = ("a", "b"), (1.0, 1.2)
    torn = oc.Profile(names, costs, features, success)
    whole = oc.Profile(names, costs, features, success, groups=np.repeat(np.arange(300), 4))
    queries = random.random((500, 2))
    hoped, honest = (oc.plan(profile, queries, budget=600.0).expected_accuracy for profile in (torn, whole))
    assert hoped > honest + 0.1
    assert honest < 0.75


def test_planner_refuses_in_one_sentence(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Budgets, shapes and sizes that cannot be."""
    profile, test = cifar10_small
    with pytest.raises(oc.BudgetTooSmallError) as caught:
        oc.plan(profile, test.features, budget=1e-9)
    assert caught.value.needed == pytest.approx(float(profile.costs[0]) * len(test))
    for budget in (-1.0, float("nan")):
        with pytest.raises(oc.InvalidInputError, match="budget must be a finite number"):
            oc.plan(profile, test.features, budget=budget)
    with pytest.raises(oc.InvalidInputError, match="needs at least 10 rows"):
        oc.plan(profile.take(np.arange(9)), test.features, budget=1.0)
    with pytest.raises(oc.InvalidInputError, match="must have the profile's 10 columns, got 3"):
        oc.plan(profile, np.zeros((5, 3)), budget=1.0)
    with pytest.raises(oc.InvalidInputError, match="must be finite, got NaN"):
        oc.plan(profile, np.full((5, 10), np.nan), budget=1.0)
    with pytest.raises(oc.InvalidInputError, match="n_queries must be a whole number"):
        oc.fit(profile, budgets=[1.0], n_queries=0)
    with pytest.raises(oc.InvalidInputError, match="seed must be a whole number"):
        oc.fit(profile, budgets=[1.0], n_queries=5, seed=-1)


def odd(names: tuple[str, ...] = ("a", "b"), **fields: Any) -> oc.Profile:
    random = np.random.default_rng(0)
    given: dict[str, Any] = {"costs": (0.1, 0.2), "features": random.random((40, 2)), "extractor": "a", **fields}
    return oc.Profile(names, success=random.random((40, len(names))), **given)


def test_new_queries_may_cost_otherwise() -> None:
    """Cheaper or dearer than the profile's rows: whatever fits the real costs is planned."""
    queries = np.random.default_rng(1).random((5, 2))
    cheaper = oc.plan(odd(), queries, budget=0.05, costs=np.full((5, 2), 0.01))
    assert cheaper.planned_cost <= 0.05
    dearer = oc.plan(odd(), queries, budget=55.0, costs=[10.0, 20.0])
    assert dearer.usage == {"a": 5, "b": 0}
    with pytest.raises(oc.BudgetTooSmallError, match=r"at least 50\b"):
        oc.plan(odd(), queries, budget=45.0, costs=[10.0, 20.0])


def test_extraction_follows_the_new_costs() -> None:
    """Features that are a classifier's call cost what that call costs for the new queries, not for the profile's."""
    queries = np.random.default_rng(1).random((5, 2))
    estimate = oc.estimate(odd(), queries, costs=[10.0, 20.0])
    assert estimate.overhead == 10.0
    assert estimate.costs.tolist() == [0.0, 20.0]
    by_query = oc.estimate(odd(), queries, costs=np.column_stack([[1, 2, 3, 4, 5], np.full(5, 9)]))
    assert by_query.overhead == 3.0
    stated = oc.estimate(odd(extractor_cost=0.5), queries, costs=[10.0, 20.0])
    assert stated.overhead == 0.5


def test_budgets_that_only_unoffered_features_could_pay() -> None:
    """A free feature set that the caller does not have does not count."""
    random = np.random.default_rng(1)
    sets = {"a": random.random((40, 2)), "free": random.random((40, 2))}
    profile = odd(features=sets, extractor=None, extractor_cost={"free": 0.0}, costs=(0.3, 0.4))
    with pytest.raises(oc.BudgetTooSmallError):
        oc.plan(profile, {"a": random.random((5, 2))}, budget=0.1)
    planner = oc.fit(profile, budgets=[], n_queries=5)
    with pytest.raises(oc.BudgetTooSmallError):
        planner.extractor(0.1)


def test_promises_stay_within_reason() -> None:
    """The expected accuracy is never above 1 nor outside its interval."""
    random = np.random.default_rng(0)
    features = random.random((40, 1))
    success = np.column_stack([features[:, 0] < 0.5, np.ones(40)])
    profile = oc.Profile(("a", "b"), (0.1, 0.2), features, success, extractor="a")
    for budget in (5.0, 8.0, 20.0):
        plan = oc.plan(profile, random.choice([0.2, 0.45], (40, 1)), budget=budget)
        low, high = plan.accuracy_interval or (0.0, 0.0)
        assert low <= plan.expected_accuracy <= high <= 1.0
        if plan.expected_accuracy == 1.0:  # forty rows that were all right make nothing certain
            assert 0.8 < low < 0.95
        oc.verify(plan)
    assert plan.expected_accuracy == 1.0


def test_odd_arguments_get_one_sentence(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """Ids of another length, penalties that are no numbers, a budget where several are meant, one group for all."""
    profile, test = cifar10_small
    with pytest.raises(oc.InvalidInputError, match="ids must be of length 1000, got 2"):
        oc.estimate(profile, test.features, ids=["a", "b"])
    with pytest.raises(oc.InvalidInputError, match="ids must be of length 1000, got 2"):
        oc.plan(profile, test.features, budget=1.0, ids=["a", "b"])
    with pytest.raises(oc.InvalidInputError, match="penalty must be a finite number"):
        oc.estimate(profile, test.features, estimator="mixture").plan(1.0, penalty="a")  # type: ignore[arg-type]
    with pytest.raises(oc.InvalidInputError, match="budgets must be a sequence of amounts"):
        oc.fit(profile, budgets=1.0, n_queries=5)  # type: ignore[arg-type]
    with pytest.raises(oc.InvalidInputError, match="at least 2 groups"):
        oc.plan(odd(groups=np.zeros(40, np.int64)), np.zeros((5, 2)), budget=1.0)


def test_sigma_keeps_groups_together() -> None:
    """Copies of a held-out row in the pool would make the error look small."""
    random = np.random.default_rng(0)
    features = np.repeat(random.random((100, 2)), 4, axis=0)
    success = np.repeat(random.integers(0, 2, (100, 2)), 4, axis=0)
    torn = oc.Profile(("a", "b"), (1, 2), features, success)
    whole = oc.Profile(("a", "b"), (1, 2), features, success, groups=np.repeat(np.arange(100), 4))
    small, large = (
        oc.estimate(profile, features[:5], estimator=oc.BaggedNeighbors(300)).sigma for profile in (torn, whole)
    )
    assert np.all(small < 0.5 * large)


def test_nouns_introduce_themselves_briefly(cifar10_small: tuple[oc.Profile, oc.Profile]) -> None:
    """What an interactive session shows is one line, whatever the number of queries."""
    profile, test = cifar10_small
    estimate = oc.estimate(profile, test.features, estimator="mixture")
    for noun in (profile, estimate, estimate.plan(1.0), estimate.frontier()):
        assert len(repr(noun)) < 200
        assert repr(noun).startswith(type(noun).__name__)
