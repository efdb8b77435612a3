"""The contract of solvers: random problems of the kinds that break them, solved by brute force too."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from occamroute._arrays import IntArray
from occamroute.errors import BudgetTooSmallError
from occamroute.knapsack import Problem, Solution

__all__ = ["brute_force", "check_solver", "random_problem"]


def brute_force(problem: Problem) -> tuple[float, float] | None:
    """The best worst value and the best total by trying every choice; None if nothing fits the budget.

    For the objective "mean" only the total counts, and the worst value is that of one best choice. Meant for at
    most some ten thousand choices.
    """
    queries, options = problem.shape
    choices: IntArray = np.array(list(itertools.product(range(options), repeat=queries)))
    rows = np.arange(queries)
    costs = np.broadcast_to(problem.unit_costs, problem.shape).astype(object)
    paid = costs[rows, choices].sum(axis=1)
    chosen = problem.value[rows, choices[paid <= problem.room]]
    if not len(chosen):
        return None
    totals, worst = chosen.sum(axis=1), chosen.min(axis=1)
    if problem.objective == "mean":
        return float(worst[totals.argmax()]), float(totals.max())
    return float(worst.max()), float(totals[worst == worst.max()].max())


def random_problem(
    random: np.random.Generator, *, most_queries: int = 7, most_options: int = 4, extreme: bool = True
) -> Problem:
    """A small problem of the kinds that break solvers.

    Ties, zero and equal costs, costs by query, negative values, prices like 0.1 and 0.3, costs of a millionth and
    of a billion (unless not ``extreme``), budgets at exact sums.
    """
    queries = int(random.integers(1, most_queries + 1))
    options = int(random.integers(1, most_options + 1))
    shape = (queries, options)
    value = (
        lambda: random.integers(0, 41, shape) / 40,
        lambda: random.integers(0, 2, shape).astype(np.float64),
        lambda: random.random(shape),
        lambda: random.normal(size=shape),
        lambda: random.integers(0, 41, shape) / 40 - 2.0 * random.random(options),
    )[random.integers(5)]()
    cost_shape = shape if random.random() < 0.5 else (options,)
    cost = (
        lambda: random.integers(0, 4, cost_shape).astype(np.float64),
        lambda: random.integers(0, 5, cost_shape) / 10,
        lambda: random.choice([0.1, 0.2, 0.3, 0.7], cost_shape),
        lambda: random.random(cost_shape),
        lambda: np.exp(3.0 * random.normal(size=cost_shape)),
        lambda: random.choice([1e-6, 3e-6, 0.1, 2.5, 1e9], cost_shape),
        lambda: random.choice([0.0, 3e-6, 7.0, 1e10], cost_shape),
        lambda: random.choice([1e-6, 2e-6, 3e-6, 1e10], cost_shape),
    )[random.integers(8 if extreme else 5)]()
    objective = "mean" if random.random() < 0.5 else "min"
    problem = Problem(value, cost, 0, objective)  # type: ignore[arg-type]
    if random.random() < 0.5:
        choice = random.integers(0, options, queries)
        budget = problem.total(problem.paid(choice))
    else:
        budget = problem.total(int(random.random() * 1.1 * problem.unit_costs.max() * queries))
    return Problem(value, cost, budget, objective)  # type: ignore[arg-type]


def check_solver(solve: Callable[[Problem], Solution], *, instances: int, seed: int = 0, extreme: bool = True) -> None:
    """Raise ``AssertionError`` unless the solver agrees with brute force, both objectives, on random problems.

    A solver that works in floats cannot tell a millionth beside a billion: leave ``extreme`` costs out for it.
    """
    random = np.random.default_rng(seed)
    for number in range(instances):
        problem = random_problem(random, extreme=extreme)
        best = brute_force(problem)
        try:
            solution = solve(problem)
        except BudgetTooSmallError:
            _demand(best is None, number, "refused a budget that is enough")
            continue
        _demand(best is not None, number, "found a plan where none fits the budget")
        worst, total = best or (0.0, 0.0)
        chosen = np.take_along_axis(problem.value, solution.choice[:, None], axis=1)
        allowed = 1e-9 * max(1.0, abs(total))
        _demand(problem.paid(solution.choice) <= problem.room, number, "is above the budget")
        _demand(abs(float(chosen.sum()) - total) <= allowed, number, f"reaches {chosen.sum()}, not {total}")
        if problem.objective == "min":
            _demand(solution.value == worst, number, f"has {solution.value} as the worst, not {worst}")
            _demand(solution.mean_bound * len(chosen) >= total - allowed, number, "has a bound below the optimum")
        else:
            _demand(solution.value <= total + allowed <= solution.bound + 2 * allowed, number, "has a wrong bound")


def _demand(holds: bool, number: int, complaint: str) -> None:
    if not holds:
        raise AssertionError(f"instance {number}: the solver {complaint}.")
