"""verify refuses whatever does not follow from the problem, the choice and the price."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import occamroute as oc
from occamroute.knapsack import Problem, solve_problem
from occamroute.knapsack.certificate import Certificate, check
from occamroute.planning.estimates import Estimate
from occamroute.testing import random_problem


def certified(problem: Problem, **knobs: Any) -> tuple[np.ndarray, Certificate]:
    found = solve_problem(problem, **knobs)
    return found.choice, Certificate(found.value, found.cost, found.bound, found.gap, found.price, found.mean_bound)


@pytest.fixture(params=["grid", "smooth"])
def plan(request: pytest.FixtureRequest) -> oc.Plan:
    random = np.random.default_rng(5)
    success = random.integers(0, 41, (500, 4)) / 40 if request.param == "grid" else random.random((500, 4))
    estimate = Estimate(("a", "b", "c", "d"), np.array([0.1, 0.3, 0.9, 2.0]), success, np.full(4, 0.3), 0.05)
    return estimate.plan(321.0, penalty=0.5)


def test_a_true_plan_passes(plan: oc.Plan) -> None:
    """What the solver states is what the check finds, with every objective and solver."""
    oc.verify(plan)
    random = np.random.default_rng(0)
    for number in range(400):
        problem = random_problem(random)
        try:
            check(problem, *certified(problem, seed=number))
        except oc.BudgetTooSmallError:
            continue


def test_a_plan_of_the_other_solver_passes() -> None:
    """HiGHS finds its own choice; the certificate of the same kind holds."""
    random = np.random.default_rng(2)
    problem = Problem(random.random((200, 4)), random.random((200, 4)), 60.0)
    check(problem, *certified(problem, solver="highs"))


def test_a_changed_choice_is_refused(plan: oc.Plan) -> None:
    """One query sent elsewhere changes cost and value."""
    choice = plan.choice.copy()
    choice[7] = (choice[7] + 1) % 4
    with pytest.raises(oc.CertificateError):
        oc.verify(replace(plan, choice=choice))


def test_a_choice_that_swaps_two_queries_is_refused(plan: oc.Plan) -> None:
    """The same usage and cost with other queries is another value."""
    one, other = int((plan.choice == 0).argmax()), int((plan.choice == 3).argmax())
    choice = plan.choice.copy()
    choice[[one, other]] = choice[[other, one]]
    with pytest.raises(oc.CertificateError, match="value"):
        oc.verify(replace(plan, choice=choice))


@pytest.mark.parametrize("choice", [np.zeros(3, np.int64), np.full(500, 9), np.full(500, -1), np.zeros(500)])
def test_a_choice_that_is_none_is_refused(plan: oc.Plan, choice: np.ndarray) -> None:
    """Too short, out of range, or not whole numbers."""
    with pytest.raises(oc.CertificateError, match="choice"):
        oc.verify(replace(plan, choice=choice))


@pytest.mark.parametrize("factor", [1 - 1e-6, 1 + 1e-6, 0.5, 2.0])
@pytest.mark.parametrize("name", ["planned_cost", "value", "bound", "price", "mean_bound", "expected_accuracy"])
def test_a_changed_number_is_refused(plan: oc.Plan, name: str, factor: float) -> None:
    """Each stated number is recomputed: a millionth off is too much."""
    with pytest.raises(oc.CertificateError):
        oc.verify(replace(plan, **{name: getattr(plan, name) * factor}))


def test_a_changed_gap_is_refused(plan: oc.Plan) -> None:
    """The gap follows from bound and value."""
    with pytest.raises(oc.CertificateError, match="gap"):
        oc.verify(replace(plan, gap=plan.gap + 1e-6))


def test_a_changed_budget_is_refused(plan: oc.Plan) -> None:
    """The plan's budget is its problem's."""
    with pytest.raises(oc.CertificateError, match="budget"):
        oc.verify(replace(plan, budget=1000.0))


@pytest.mark.parametrize("price", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_price_that_is_none_is_refused(plan: oc.Plan, price: float) -> None:
    """Prices are finite, not negative, and not free where money is short."""
    with pytest.raises(oc.CertificateError, match="price"):
        oc.verify(replace(plan, price=price))


def test_a_plan_above_its_budget_is_refused(plan: oc.Plan) -> None:
    """Even when all other numbers are made to fit."""
    choice = np.full(500, 3)
    cost = float(plan.problem.total(plan.problem.paid(choice)))
    value = float(plan.problem.value[:, 3].mean())
    with pytest.raises(oc.CertificateError, match="cost"):
        oc.verify(replace(plan, choice=choice, planned_cost=cost, value=value, status="within gap"))


def test_a_worse_choice_that_claims_to_be_best_is_refused() -> None:
    """A consistent lie, with the bound set to the lower value, does not survive the search for a better choice."""
    random = np.random.default_rng(1)
    problem = Problem(random.random((40, 3)), random.random((40, 3)), 15.0)
    choice, _ = certified(problem)
    worse = choice.copy()
    dear = int(problem.cost[np.arange(40), choice].argmax())
    worse[dear] = int(problem.cost[dear].argmin())
    total = float(problem.value[np.arange(40), worse].sum())
    cost = float(problem.total(problem.paid(worse)))
    _, true = certified(problem)
    with pytest.raises(oc.CertificateError, match="bound"):
        check(problem, worse, Certificate(total, cost, total, 0.0, true.price, total / 40))


def test_a_low_worst_value_that_claims_to_be_best_is_refused() -> None:
    """For the objective min, the next higher worst value must be out of reach."""
    problem = Problem(np.array([[0.1, 0.5], [0.6, 0.95]]), np.array([0.0, 1.0]), 1.0, "min")
    with pytest.raises(oc.CertificateError, match="value"):
        check(problem, np.array([0, 1]), Certificate(0.1, 1.0, 0.1, 0.0, 0.4, 0.525))


def test_only_plans_can_be_verified() -> None:
    """Anything else gets a sentence."""
    with pytest.raises(oc.InvalidInputError, match="only a plan can be verified, got dict"):
        oc.verify({})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"expected_accuracy": float("nan")},
        {"status": "sure"},
        {"success": np.ones(500), "expected_accuracy": 1.0},
        {"ids": ("a", "b")},
        {"names": ("a",)},
        {"weights": np.zeros(2)},
        {"choice": [0] * 500},
        {"budget": None},
        {"made_from": {}},
        {"made_from": {"penalty": 0.5, "correction": 5.0}},
    ],
    ids=lambda change: "-".join(change),
)
def test_other_forgeries_are_refused(plan: oc.Plan, change: dict[str, Any]) -> None:
    """Fields that do not fit together, or numbers that are none."""
    with pytest.raises(oc.CertificateError):
        oc.verify(replace(plan, **change))


def test_estimates_must_be_the_values_where_nothing_is_penalised(plan: oc.Plan) -> None:
    """Without a penalty, what is promised for a query is what was optimised for it."""
    estimate = Estimate(plan.names, plan.problem.cost, np.clip(plan.problem.value, 0, 1), np.zeros(4))
    free = estimate.plan(300.0)
    oc.verify(free)
    raised = np.clip(free.success + 0.1, 0, 1)
    with pytest.raises(oc.CertificateError, match="success"):
        oc.verify(replace(free, success=raised, expected_accuracy=float(raised.mean())))


@pytest.mark.parametrize("seed", range(16))
def test_proofs_of_larger_problems_hold(seed: int) -> None:
    """Thousands of queries with values in steps, so that several searches take part: what is stated can be proved."""
    random = np.random.default_rng(seed)
    queries, options = int(random.integers(4100, 7000)), int(random.integers(2, 8))
    skill = np.sort(random.random(options)) + 0.2 * random.normal(size=(queries, 1))
    value = random.binomial((2, 5, 10, 40)[seed % 4], np.clip(skill, 0, 1)) / (2, 5, 10, 40)[seed % 4]
    cost = np.sort(random.random((queries, options) if seed % 3 else options))
    table = np.broadcast_to(cost, value.shape)
    low, high = float(table.min(axis=1).sum()), float(table.max(axis=1).sum())
    problem = Problem(value, cost, low + 1e-6 + (high - low) * float(random.random()))
    choice, certificate = certified(problem, seed=seed)
    check(problem, choice, certificate)
    assert certificate.gap < 1e-5
