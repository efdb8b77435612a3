"""HiGHS, by way of SciPy: the cross-check. Sparse, and never above the budget in exact arithmetic."""

from __future__ import annotations

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.errors import SolverError
from occamroute.knapsack._price import greedy
from occamroute.knapsack.exact import Answer
from occamroute.knapsack.problem import Problem

__all__ = ["solve_highs"]

# HiGHS works in floats and may pass a limit by its tolerance. Then the limit it is given falls by twice what
# it took too much, and after this many rounds something else is wrong.
ROUNDS = 20


def solve_highs(problem: Problem, value: FloatArray, *, seed: int) -> Answer:
    """The choice that HiGHS finds; its price is the relaxed problem's, which needs no integer programme."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, kron, eye_array

    queries, options = problem.shape
    costs = np.broadcast_to(problem.unit_costs, value.shape).astype(np.float64)
    scale = max(float(costs.max()), 1.0)
    one_each = kron(eye_array(queries), np.ones((1, options)), format="csr")
    spending = csr_array((costs / scale).reshape(1, -1))
    possible = np.isfinite(value).reshape(-1)
    room = float(problem.room)
    for _ in range(ROUNDS):
        result = milp(
            -np.where(possible, value.reshape(-1), 0.0),
            integrality=np.ones(value.size),
            bounds=Bounds(0.0, possible.astype(np.float64)),
            constraints=[LinearConstraint(one_each, 1.0, 1.0), LinearConstraint(spending, -np.inf, room / scale)],
            options={"mip_rel_gap": 0.0},
        )
        if result.x is None:
            raise SolverError("highs", str(result.message).rstrip("."))
        choice = result.x.reshape(value.shape).argmax(axis=1)
        excess = problem.paid(choice) - problem.room
        if excess <= 0:
            price = greedy(value, problem.unit_costs, problem.room, seed=seed).price
            return Answer(choice, price, bool(result.status == 0))
        room -= 2.0 * excess
    raise SolverError("highs", "its answers stay above the budget within its tolerance")
