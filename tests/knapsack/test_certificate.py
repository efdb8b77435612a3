"""verify refuses whatever does not follow from the problem, the choice and the price."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import occamroute as oc
from occamroute.knapsack import Problem, solve_problem
from occamroute.knapsack.certificate import Certificate, bound_from, check
from occamroute.knapsack.exact import score_sums
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


def claiming_optimality(plan: oc.Plan, choice: np.ndarray) -> oc.Plan:
    """The plan with another choice, every sum made to match, and the bound stated as the value."""
    rows = np.arange(choice.size)
    value = float(plan.problem.value[rows, choice].mean())
    success = plan.success + (plan.problem.value[rows, choice] - plan.problem.value[rows, plan.choice])
    return replace(
        plan, choice=choice, value=value, bound=value, mean_bound=value, gap=0.0, status="optimal",
        planned_cost=plan.problem.cost_of(plan.problem.paid(choice)),
        success=success, expected_accuracy=float(success.mean()),
    )  # fmt: skip


@pytest.mark.parametrize("shared", [True, False], ids=["shared costs", "costs by query"])
def test_the_cheapest_options_that_claim_to_be_best_are_refused_at_once(shared: bool) -> None:
    """10,000 × 7: the search for a better choice ends as soon as it has one."""
    random = np.random.default_rng(0)
    success = np.clip(np.linspace(0.5, 0.9, 7) + 0.2 * random.normal(size=(10_000, 7)), 0, 1)
    cost = np.geomspace(0.01, 1.0, 7) if shared else np.sort(random.random((10_000, 7)), axis=1)
    plan = Estimate(tuple("abcdefg"), cost, success, np.zeros(7)).plan(3000.0)
    forged = claiming_optimality(plan, np.zeros(10_000, np.int64))
    with pytest.raises(oc.CertificateError, match=r"bound does not hold.*a better choice within the budget"):
        oc.verify(forged)


def tied(queries: int = 2000) -> oc.Plan:
    """A plan where value is cost: all options tie at the price, and nearly every sum of costs is another state."""
    cost = np.random.default_rng(queries).integers(1, 10**6, (queries, 2)) / 1e6
    return Estimate(("a", "b"), cost, cost, np.zeros(2)).plan(float(np.ceil(cost.sum() * 0.46)))


def test_a_proof_that_would_take_forever_is_refused() -> None:
    """Where the better choices lie behind more combinations than the solver itself would visit, the check gives up."""
    plan = tied()
    worse = plan.choice.copy()
    worse[:1000] = plan.problem.cost[:1000].argmin(axis=1)
    with pytest.raises(oc.CertificateError, match=r"bound does not hold.*more choices.* than a proof can rule out"):
        oc.verify(claiming_optimality(plan, worse))


@pytest.mark.parametrize("limit", ["MOST_STATES_AT_ONCE", "MOST_STATES", "STATES_FOR_A_PROOF"])
def test_each_limit_ends_the_search(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """A true proof that needs more states than are allowed is refused, not believed."""
    random = np.random.default_rng(1)
    problem = Problem(random.random((40, 3)), random.random((40, 3)), 15.0)
    choice, certificate = certified(problem)
    check(problem, choice, certificate)
    monkeypatch.setattr(f"occamroute.knapsack.certificate.{limit}", 1)
    with pytest.raises(oc.CertificateError, match="more choices"):
        check(problem, choice, certificate)


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


def test_a_plan_one_unit_above_its_budget_is_refused() -> None:
    """Everything else stated of it would pass."""
    problem = Problem(np.tile([0.0, 1.0], (2, 1)), np.array([0.0, 1.0]), 1.0)
    check(problem, np.array([0, 1]), Certificate(1.0, 1.0, 1.0, 0.0, 1.0, 0.5))
    with pytest.raises(oc.CertificateError, match=r"the plan's cost does not hold: it states at most 1\.0"):
        check(problem, np.array([1, 1]), Certificate(2.0, 2.0, 2.0, 0.0, 1.0, 1.0))


def test_for_min_the_bound_is_the_worst_value() -> None:
    """A higher bound with the gap that follows from it is refused."""
    problem = Problem(np.array([[0.1, 0.5], [0.6, 0.95]]), np.array([0.0, 1.0]), 1.0, "min")
    choice, true = certified(problem)
    with pytest.raises(oc.CertificateError, match="bound"):
        check(problem, choice, replace(true, bound=0.6, gap=(0.6 - 0.5) / 0.5))


@pytest.mark.parametrize("step", [None, 1 / 40, 1.0])
def test_only_the_best_of_all_choices_can_claim_to_be_best(step: float | None) -> None:
    """Of small problems, every worse choice is refused: one step worse too, and where the better one spends it all."""
    random = np.random.default_rng(4)
    for _ in range(12):
        value = random.random((4, 3)) if step is None else random.integers(0, 8, (4, 3)) * step
        cost = random.integers(0, 4, (4, 3)).astype(np.float64)
        problem = Problem(value, cost, float(cost.min(axis=1).sum()) + 2.0)
        _, true = certified(problem)
        for options in itertools.product(range(3), repeat=4):
            choice = np.array(options)
            total = float(value[np.arange(4), choice].sum())
            paid = problem.paid(choice)
            if paid > problem.room:
                continue
            claimed = Certificate(total, problem.cost_of(paid), total, 0.0, true.price, total / 4)
            if total > true.value - 1e-9:
                check(problem, choice, replace(claimed, bound=true.bound, gap=true.gap, mean_bound=true.mean_bound))
            else:
                with pytest.raises(oc.CertificateError, match="bound"):
                    check(problem, choice, claimed)


def test_the_bound_is_rounded_up() -> None:
    """Computed in floats, it is never below the bound in exact fractions."""
    random = np.random.default_rng(0)
    for _ in range(50):
        problem = Problem(random.random((6, 3)), random.integers(0, 5, (6, 3)).astype(np.float64), 9.0)
        if problem.spare < 0:
            continue
        price = float(random.random())
        scores = [
            max(Fraction(value) - Fraction(price) * int(cost) for value, cost in zip(values, costs, strict=True))
            for values, costs in zip(problem.value.tolist(), problem.extra.tolist(), strict=True)
        ]
        _, best = score_sums(problem.value, problem.extra, np.zeros(6, np.int64), price)
        assert Fraction(bound_from(problem, best, price, -1.0)) >= sum(scores) + Fraction(price) * problem.spare


def test_the_bound_on_the_grid_is_rounded_up() -> None:
    """Tenths are no floats: what ten of them add up to is not above the bound that the next multiple gives."""
    values = np.tile([0.0, 0.1], (10, 1))
    problem = Problem(values, np.array([0.0, 1.0]), 10.0)
    assert problem.step is not None
    exactly = sum(map(Fraction, values[:, 1].tolist()))
    assert exactly > 1
    assert Fraction(bound_from(problem, 1.04, 0.0, -1.0)) >= exactly


def test_what_rounding_alone_adds_to_the_bound_is_no_gap() -> None:
    """A value that the bound exceeds by rounding is its own bound, and one by more is not."""
    problem = Problem(np.random.default_rng(0).random((100, 3)), np.array([0.0, 1.0, 2.0]), 50.0)
    slack = 100 * problem.rounding
    assert bound_from(problem, 60.0, 0.0, 60.0 - 2.0 * slack) == 60.0 - 2.0 * slack
    assert bound_from(problem, 60.0, 0.0, 60.0 - 9.0 * slack) > 60.0
