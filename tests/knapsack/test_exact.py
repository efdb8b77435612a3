"""The exact solver against brute force, against HiGHS, and on the sizes that users have."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import occamroute as oc
from occamroute.knapsack import Problem, exact, solve_problem
from occamroute.knapsack.exact import samples
from occamroute.testing import check_solver


@pytest.mark.parametrize("part", range(4))
def test_equals_brute_force(part: int) -> None:
    """6,000 small problems with every kind of trouble have the optimum that brute force finds."""
    check_solver(lambda problem: solve_problem(problem, seed=part), instances=1500, seed=part)


def test_highs_equals_brute_force() -> None:
    """The cross-check itself is right, and keeps budgets exactly."""
    check_solver(lambda problem: solve_problem(problem, solver="highs"), instances=300, seed=9, extreme=False)


@pytest.mark.parametrize("seed", range(6))
def test_equals_highs(seed: int) -> None:
    """At 300 queries both solvers find the same total, for shared and for per-query costs."""
    random = np.random.default_rng(seed)
    value = random.random((300, 6)) if seed % 2 else random.integers(0, 41, (300, 6)) / 40
    cost = np.exp(random.normal(size=6)) if seed < 3 else random.random((300, 6))
    budget = 300 * float(np.median(cost)) * 0.9
    ours, peer = oc.solve(value, cost, budget), oc.solve(value, cost, budget, solver="highs")
    assert ours.value == pytest.approx(peer.value, abs=1e-9)


def steps_of_a_fortieth(seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    random = np.random.default_rng(seed)
    skill = np.linspace(0.5, 0.9, 7) + random.normal(size=(10_000, 1)) * 0.2 + random.normal(size=(10_000, 7)) * 0.1
    value = random.binomial(40, np.clip(skill, 0, 1)) / 40
    return value, np.sort(random.random(7)), 10_000 * (0.2 + 0.1 * seed)


@pytest.mark.parametrize("seed", range(4))
def test_gap_is_closed_where_values_tie_by_the_thousand(seed: int) -> None:
    """10,000 × 7 values in steps of 1/40: the proved gap is at most a millionth, and the budget is kept exactly."""
    value, cost, budget = steps_of_a_fortieth(seed)
    solution = oc.solve(value, cost, budget)
    assert solution.gap <= 1e-6
    paid = sum(Fraction(repr(float(cost[option]))) for option in solution.choice)
    assert paid <= Fraction(repr(budget))


def test_large_problem_takes_the_sampled_bracket() -> None:
    """Beyond 32,768 queries the price comes from a bracket; the gap stays below a millionth at any budget."""
    random = np.random.default_rng(0)
    value = np.clip(np.linspace(0.5, 0.9, 5) + 0.2 * random.normal(size=(60_000, 5)), 0, 1)
    cost = np.array([0.0, 0.1, 0.3, 1.0, 4.0])
    for budget in (0.0, 1.0, 500.0, 20_000.0, 60_000.0, 300_000.0):
        solution = oc.solve(value, cost, budget)
        assert solution.gap <= 1e-6
        assert solution.cost <= budget


def test_identical_queries() -> None:
    """A mixture's problem, all rows the same, is solved near its bound and stays within the budget."""
    value = np.tile([0.5, 0.72, 0.81, 0.87], (10_000, 1))
    solution = oc.solve(value, [0.013, 0.17, 0.41, 1.0], 3333.3)
    assert solution.gap < 1e-4
    assert solution.cost <= 3333.3


def test_ties_are_broken_by_a_seeded_shuffle() -> None:
    """Of queries that are all alike, the seed and not the row order says which get the dear option."""
    value = np.tile([0.5, 0.9], (1000, 1))
    first, second = (oc.solve(value, [0.0, 1.0], 300.0, seed=seed).choice for seed in (1, 2))
    again = oc.solve(value, [0.0, 1.0], 300.0, seed=1).choice
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)
    assert np.array_equal(oc.solve(value, [0.0, 1.0], 300.0, seed=2**62 + 1).choice, first)
    drawn = [oc.solve(value, [0.0, 1.0], 300.0, seed=np.random.default_rng(7)).choice for _ in range(2)]
    assert np.array_equal(drawn[0], drawn[1])
    assert first.sum() == 300
    assert 100 < first[:500].sum() < 200


def test_the_point_on_no_hull() -> None:
    """The optimum between two hull points is found, and the statement says that it is proved."""
    solution = oc.solve([[0.5, 0.55, 0.9]], [0, 1, 2], 1)
    assert solution.choice.tolist() == [1]
    assert (solution.value, solution.bound, solution.gap, solution.status) == (0.55, 0.55, 0.0, "optimal")


def test_three_tenths_pay_for_three_calls_at_a_tenth() -> None:
    """Floats mean the decimals that they print, float32 too."""
    for kind in (np.float64, np.float32):
        solution = oc.solve(np.tile([0.0, 1.0], (3, 1)), np.array([0, 0.1], kind), kind(0.3))  # type: ignore[arg-type]
        assert solution.choice.tolist() == [1, 1, 1]
        assert solution.cost == 0.3


def test_budget_too_small_names_the_least_that_would_do() -> None:
    """The error says a budget that then works, and one unit less does not."""
    value, cost = np.ones((3, 2)), [0.1, 0.7]
    with pytest.raises(oc.BudgetTooSmallError, match=r"at least 0\.3\b") as caught:
        oc.solve(value, cost, 0.29)
    assert caught.value.needed == 0.3
    assert oc.solve(value, cost, caught.value.needed).cost == 0.3
    assert isinstance(caught.value, ValueError)


def test_budget_too_small_with_long_decimals() -> None:
    """Where costs have more digits than a float prints, the least budget is rounded up and works."""
    random = np.random.default_rng(1)
    for _ in range(50):
        cost = random.random((6, 3))
        with pytest.raises(oc.BudgetTooSmallError) as caught:
            oc.solve(random.random((6, 3)), cost, 0.0)
        assert oc.solve(random.random((6, 3)), cost, caught.value.needed).cost <= caught.value.needed


def test_budget_of_nothing_is_legal_where_free_options_answer() -> None:
    """A budget of 0 chooses the best free option."""
    solution = oc.solve([[0.1, 0.4, 0.9]], [0, 0, 1], 0)
    assert solution.choice.tolist() == [1]


def test_everything_affordable_has_price_zero() -> None:
    """With money to spare the best values are taken, the cheaper of equals, and the bound is the value."""
    solution = oc.solve([[0.5, 0.9, 0.9], [0.2, 0.1, 0.1]], [1, 3, 2], 10**30)
    assert solution.choice.tolist() == [2, 0]
    assert (solution.price, solution.gap, solution.cost) == (0.0, 0.0, 3.0)


def test_worst_query_first() -> None:
    """The objective min raises the worst query before the sum, and bounds the mean among such plans."""
    value = np.array([[0.1, 0.5], [0.6, 0.95]])
    solution = oc.solve(value, [0, 1], 1, objective="min")
    assert solution.choice.tolist() == [1, 0]
    assert solution.value == solution.bound == 0.5
    assert solution.mean_bound == pytest.approx(0.55)


@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1.0, 1e6, 1e10, 1e120])
def test_any_scale_of_cost_and_value(scale: float) -> None:
    """Scaling all costs, or all values, changes nothing but the numbers: no overflow, no underflow."""
    random = np.random.default_rng(3)
    value, cost = random.random((400, 5)), random.integers(0, 1000, (400, 5)) / 1000
    plain = oc.solve(value, cost, 120.0)
    scaled_cost = oc.solve(value, cost * scale, Decimal(120) * Decimal(scale))
    assert scaled_cost.value == pytest.approx(plain.value, rel=1e-9)
    scaled_value = oc.solve(value * scale, cost, 120.0)
    assert scaled_value.value == pytest.approx(plain.value * scale, rel=1e-9)


@pytest.mark.parametrize(
    ("value", "cost", "budget", "sentence"),
    [
        ([[0.1, np.nan]], [1, 2], 3, "value must be finite, got NaN"),
        ([[0.1, np.inf]], [1, 2], 3, "value must be finite, got inf"),
        ([0.1, 0.2], [1, 2], 3, r"value must be of shape \(N, M\)"),
        ([[]], [], 3, "value must not be empty"),
        ([[0.1, 0.2]], [1], 3, r"cost must be of shape \(2,\) or \(1, 2\)"),
        ([[0.1, 0.2]], [1, -2], 3, "cost must not be negative"),
        ([[0.1, 0.2]], [1, np.nan], 3, "cost must be finite"),
        ([[0.1, 0.2]], [1, 2], -1, "budget must be a finite number"),
        ([[0.1, 0.2]], [1, 2], float("nan"), "budget must be a finite number"),
        ([[0.1, 0.2]], [1, 2], float("inf"), "budget must be a finite number"),
        ([[0.1, 0.2]], [1, 2], "3", "budget must be a finite number"),
        ([[0.1, 0.2], [0.3]], [1, 2], 3, "value must be an array of shape"),
        ([["a", "b"]], [1, 2], 3, "value must hold numbers"),
    ],
)
def test_bad_input_gets_one_sentence(value: object, cost: object, budget: object, sentence: str) -> None:
    """Whatever is wrong is named, with what was seen."""
    with pytest.raises(oc.InvalidInputError, match=sentence):
        oc.solve(value, cost, budget)  # type: ignore[arg-type]


def test_unknown_objective_and_solver() -> None:
    """The names that would do are listed."""
    with pytest.raises(oc.UnknownNameError, match="use one of mean, min"):
        oc.solve([[1.0]], [1], 1, objective="max")  # type: ignore[arg-type]
    with pytest.raises(oc.UnknownNameError, match="use one of exact, highs"):
        oc.solve([[1.0]], [1], 1, solver="cplex")  # type: ignore[arg-type]


def test_overhead_is_part_of_the_budget() -> None:
    """A fixed cost for each query is charged exactly, beside what is chosen."""
    problem = Problem(np.tile([0.0, 1.0], (3, 1)), np.array([0.0, 0.2]), 0.5, overhead=0.1)
    solution = solve_problem(problem)
    assert solution.choice.sum() == 1
    assert solution.cost == 0.5


def test_an_option_that_nobody_can_pay_hides_no_gain() -> None:
    """A cost of ten billion beside millionths does not blur what the millionths buy."""
    value = [[0.4055, 0.2044, 0.4081], [0.7091, 0.8076, 1.0]]
    solution = oc.solve(value, [[3e-6, 3e-6, 1e10], [1e-6, 2e-6, 3e-6]], 5e-6)
    assert solution.choice.tolist() == [0, 1]
    assert (solution.status, solution.cost) == ("optimal", 5e-6)


@pytest.mark.parametrize("queries", [50, 300, 2000])
def test_sums_to_hit_exactly(queries: int) -> None:
    """Where value is cost, so that every move ties, the budget is still filled to some hundred-thousandths."""
    random = np.random.default_rng(queries)
    cost = random.integers(1, 10**6, (queries, 2)).astype(np.float64)
    assert oc.solve(cost / 1e6, cost, float(np.ceil(cost.sum() * 0.46))).gap < 1e-4


def test_many_options() -> None:
    """A hundred classifiers, and a thousand, are no trouble."""
    random = np.random.default_rng(0)
    for queries, options in ((2000, 101), (3, 1000)):
        value = np.sort(random.random((queries, options)), axis=1)
        cost = np.sort(random.random(options))
        assert oc.solve(value, cost, queries * float(cost[options // 3])).gap < 1e-3


def test_whole_numbers_beyond_floats_round_up() -> None:
    """A cost that no float holds is charged as the next higher one."""
    with pytest.raises(oc.BudgetTooSmallError):
        oc.solve([[1.0]], [2**53 + 1], 2**53)


def test_half_precision_costs_mean_their_decimals() -> None:
    """Sixteen bits print 0.1 too."""
    assert oc.solve(np.zeros((3, 1)), np.array([0.1], np.float16), 0.3).cost == 0.3


@pytest.mark.parametrize("budget", [Decimal("1e-999999999"), Decimal("1e400"), 10**400])
def test_absurd_budgets_are_refused_at_once(budget: Decimal | int) -> None:
    """Nothing is computed with numbers of a million digits."""
    with pytest.raises(oc.InvalidInputError, match="budget must be 0 or between"):
        oc.solve([[1.0]], [1.0], budget)


@pytest.mark.parametrize("budget", [0.1, Decimal("0.1"), Fraction(1, 10), np.float32(0.1)])
def test_a_budget_spent_to_the_last_digit_is_stated_as_it_is(budget: float) -> None:
    """A tenth is a tenth in every type: its float, which is a little more in binary, is not rounded away."""
    assert oc.solve([[0.0, 1.0]], [0.0, 0.1], budget).cost == 0.1


def test_stated_cost_is_never_above_a_budget_of_many_digits() -> None:
    """A budget that no float holds: the float that states the cost rounds to its side."""
    random = np.random.default_rng(0)
    for _ in range(200):
        cost = random.random(3)
        choice = random.integers(0, 3, 5)
        budget = sum(Fraction(repr(float(cost[option]))) for option in choice) + Fraction(1, 10**30)
        try:
            assert Fraction(repr(oc.solve(random.random((5, 3)), cost, budget).cost)) <= budget
        except oc.BudgetTooSmallError:
            continue


def one_row_fills_the_rest(queries: int, *, level: float, step: float, jitter: float = 0.0) -> Problem:
    """A problem where one half unit is left over, and one query alone has an option of that cost.

    No sample of the queries that the search begins with holds that query, and no other move is worth its cost.
    """
    gain = np.where(np.arange(queries) < queries // 2, 8 * step, 0.0)
    gain[queries // 2 : queries // 2 + 9] = 4 * step  # the price is the value of these, 4 steps a unit
    gain = gain + jitter * np.random.default_rng(0).random(queries)
    value = level + np.column_stack([np.zeros(queries), np.full(queries, -step), gain])
    cost, budget = np.array([0.0, 0.5, 1.0]), queries // 2 + 4.5
    seen = [rows for rows in samples(Problem(value, cost, budget), 0) if rows is not None]
    assert seen
    unseen = np.setdiff1d(np.arange(queries // 2 + 9, queries), np.concatenate(seen))[0]
    value[unseen, 1] = level + step
    return Problem(value, cost, budget)


def test_money_left_over_by_a_sample_is_looked_at_with_all_queries() -> None:
    """A sample without a useful move leaves the gap as it was, and the search goes on."""
    problem = one_row_fills_the_rest(70_000, level=0.0, step=0.025, jitter=1e-6)
    solution = solve_problem(problem)
    assert problem.paid(solution.choice) == problem.room
    assert solution.choice[problem.value[:, 1] > 0.0].tolist() == [1]


def test_a_sample_proves_nothing_about_the_other_queries() -> None:
    """A search that ends with a sample, since the gap is small, states that gap and not an optimum."""
    problem = one_row_fills_the_rest(70_000, level=1.0, step=0.025, jitter=1e-6)
    solution = solve_problem(problem)
    better = solution.choice.copy()
    better[problem.value[:, 1] > 1.0] = 1
    assert problem.paid(better) <= problem.room
    assert float(np.take_along_axis(problem.value, better[:, None], axis=1).sum()) > solution.value + 0.02
    assert solution.status == "within gap"
    assert solution.value + 0.02 < solution.bound < solution.value * (1 + 1e-6)


def test_a_small_gap_is_not_enough_where_values_have_a_step() -> None:
    """A step is less than a millionth of the total, and is found all the same."""
    problem = one_row_fills_the_rest(5000, level=1000.0, step=0.025)
    solution = solve_problem(problem)
    assert 1e-6 * solution.value > 0.025
    assert problem.paid(solution.choice) == problem.room
    assert solution.status == "optimal"


@pytest.mark.parametrize("seed", [1, 4, 5])
def test_a_sample_that_reaches_the_highest_total_on_the_grid_is_enough(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values lie a little off the grid, and so does the total: no second search looks for what rounding hides."""
    random = np.random.default_rng(seed)
    value = random.integers(0, 41, (5000, 4)) / 40 + random.uniform(-4e-10, 4e-10, (5000, 4))
    value[0, 0] = -1000.0
    searches: list[int] = []
    search = vars(exact)["search"]

    def counted(*given: object, **named: object) -> object:
        searches.append(1)
        return search(*given, **named)

    monkeypatch.setattr(exact, "search", counted)
    assert oc.solve(value, [0.1, 0.3, 0.9, 2.0], 3210.05).status == "optimal"
    assert len(searches) == 1


def test_a_bound_that_rounding_puts_below_the_grid() -> None:
    """The bound is a multiple of the step but for rounding; the optimum that reaches it is found."""
    value = 1000.0 + np.tile([0.0, 0.0, 2.0], (21, 1)) / 49
    value[0, 1] += 1 / 49
    for cost, budgets in (([0.0, 1.0, 2.0], range(3, 40, 2)), ([0.0, 0.7, 1.4], (18.9, 24.5, 25.9))):
        for budget in budgets:
            for seed in range(8):
                solution = oc.solve(value, cost, budget, seed=seed)
                assert solution.status == "optimal"
                assert solution.value == pytest.approx(21_000 + round(budget / cost[1]) / 49, abs=1e-6)


def test_a_budget_tried_before_changes_nothing() -> None:
    """Budgets of one problem share its hulls: what one of them chose is not where the next begins."""
    random = np.random.default_rng(3)
    value, cost = random.random((300, 4)), random.random((300, 4))
    problem = Problem(value, cost, 200.0)
    for budget in (200.0, 90.0, 140.0):
        again, fresh = solve_problem(problem.within(budget)), solve_problem(Problem(value, cost, budget))
        assert np.array_equal(again.choice, fresh.choice)
        assert (again.value, again.cost, again.bound) == (fresh.value, fresh.cost, fresh.bound)
