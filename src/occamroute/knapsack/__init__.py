"""The multiple-choice knapsack, solved exactly and with a certificate; no classifiers in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from occamroute._arrays import FloatArray, IntArray, seed_number
from occamroute._money import Amount
from occamroute.errors import UnknownNameError
from occamroute.knapsack._price import greedy
from occamroute.knapsack.certificate import bound_from
from occamroute.knapsack.exact import Answer, score_sums, solve_exact
from occamroute.knapsack.highs import solve_highs
from occamroute.knapsack.maxmin import restrict
from occamroute.knapsack.problem import Objective, Problem, Solution, relative_gap

__all__ = ["Objective", "Problem", "Solution", "SolverName", "greedy_choice", "solve", "solve_problem"]

SolverName = Literal["exact", "highs"]
SOLVERS: dict[str, Callable[..., Answer]] = {"exact": solve_exact, "highs": solve_highs}


def solve(
    value: Any,
    cost: Any,
    budget: Amount,
    *,
    objective: Objective = "mean",
    solver: SolverName = "exact",
    seed: int | np.random.Generator = 0,
) -> Solution:
    """One option for each query, with the highest total value (or worst value) that the budget buys.

    ``value`` is (N, M), any finite numbers; ``cost`` is (M,) or (N, M), ≥ 0; ``budget`` is the total for all N
    queries. Ties between queries are broken by a shuffle that ``seed`` sets.

    >>> solve([[0.2, 0.9], [0.5, 0.6]], cost=[0.1, 0.3], budget=0.4).choice.tolist()
    [1, 0]
    """
    return solve_problem(Problem(value, cost, budget, objective), solver=solver, seed=seed)


def solve_problem(problem: Problem, *, solver: SolverName = "exact", seed: int | np.random.Generator = 0) -> Solution:
    """The same for a problem that is already stated."""
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise UnknownNameError("solver", solver, SOLVERS)
    number = seed_number(seed)
    problem.require()
    value = problem.value if problem.objective == "mean" else restrict(problem)
    return _certified(problem, value, SOLVERS[solver](problem, value, seed=number))


def greedy_choice(problem: Problem, *, seed: int = 0) -> IntArray:
    """A choice within one step of the optimum and without a certificate: for trials by the hundred."""
    problem.require()
    return greedy(problem.value, problem.extra, problem.spare, stepped=problem.stepped, seed=seed).choice


def _certified(problem: Problem, value: FloatArray, answer: Answer) -> Solution:
    """The answer with its certificate."""
    total, best = score_sums(value, problem.extra, answer.choice, answer.price)
    bound = total if answer.proved else bound_from(problem, best, answer.price, total)
    mean_bound = bound / problem.shape[0]
    reached = total
    if problem.objective == "min":
        reached = bound = float(_chosen(problem.value, answer.choice).min())
    answer.choice.flags.writeable = False
    return Solution(
        choice=answer.choice,
        value=reached,
        cost=problem.cost_of(problem.paid(answer.choice)),
        bound=bound,
        gap=relative_gap(bound, reached),
        price=answer.price / float(problem.units.size) if math.isfinite(answer.price) else 0.0,
        status="optimal" if bound == reached else "within gap",
        mean_bound=mean_bound,
    )


def _chosen(value: FloatArray, choice: IntArray) -> FloatArray:
    return np.take_along_axis(value, choice[:, None], axis=1)[:, 0]
