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
    from scipy.sparse import csr_array, eye_array, kron

    queries, options = problem.shape
    allowed = np.isfinite(value)
    units = np.broadcast_to(problem.extra, value.shape)
    least = np.where(allowed, units, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
    spare = problem.spare - int(least.sum())
    # Costs above each query's least, and none that cannot be paid: HiGHS sees the differences that matter.
    extra = units - least
    possible = (allowed & (extra <= spare)).reshape(-1)
    scale = max(float(extra.reshape(-1)[possible].max()), 1.0)
    one_each = kron(eye_array(queries), np.ones((1, options)), format="csr")
    spending = csr_array((np.where(possible, extra.reshape(-1), 0) / scale).reshape(1, -1))
    limit = float(spare)
    for _ in range(ROUNDS):
        result = milp(
            -np.where(possible, value.reshape(-1), 0.0),
            integrality=np.ones(value.size, np.int64),
            bounds=Bounds(0.0, possible.astype(np.float64)),
            constraints=[
                LinearConstraint(one_each, 1.0, 1.0),
                LinearConstraint(spending, -np.inf, limit / scale),
            ],
            options={"mip_rel_gap": 0.0},
        )
        if result.x is None:
            raise SolverError("highs", str(result.message).rstrip("."))
        choice = result.x.reshape(value.shape).argmax(axis=1)
        excess = problem.paid(choice) - problem.room
        if excess <= 0:
            price = greedy(value, problem.extra, problem.spare, stepped=problem.stepped, seed=seed).price
            return Answer(choice, price, False)
        limit -= 2.0 * excess
    raise SolverError("highs", "the costs lie too far apart for its floats")
