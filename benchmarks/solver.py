"""The knapsack solver against the peers a user would pick; answers are checked before anything is timed.

    python benchmarks/solver.py [--quick] [--json]

- 10,000 × 7 in steps of 1/40 against ``scipy.optimize.milp`` (HiGHS) asked for a relative gap of 1e-6, stopped
  at 60 s (5 s with --quick);
- 1,000,000 × 7 against one ``value.argmax(axis=1)``, the least that any method must do;
- the whole frontier against one solve, and its plans against point solves at 200 random budgets.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, eye_array, kron

import occamroute as oc
from occamroute.knapsack import Problem
from occamroute.knapsack.frontier import supported_points
from occamroute.planning.estimates import Estimate


def instance(queries: int, seed: int, *, stepped: bool = True) -> tuple[Any, Any, float]:
    """Seven classifiers of rising skill and cost, values as 40 samples give them, a budget in the middle."""
    random = np.random.default_rng(seed)
    skill = np.linspace(0.5, 0.9, 7) + 0.2 * random.normal(size=(queries, 1)) + 0.1 * random.normal(size=(queries, 7))
    skill = np.clip(skill, 0.0, 1.0)
    cost = np.sort(np.exp(random.normal(size=7)))
    return random.binomial(40, skill) / 40 if stepped else skill, cost, float(queries * np.median(cost))


def best_time(function: Callable[[], Any], repeats: int = 5) -> float:
    """The shortest of several runs, the first of which only warms up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def highs(value: Any, cost: Any, budget: float, limit: float) -> tuple[float, float]:
    """The value that HiGHS reaches at a relative gap of 1e-6 or at the time limit, and the seconds it took."""
    queries, options = value.shape
    one_each = kron(eye_array(queries), np.ones((1, options)), format="csr")
    spending = csr_array(np.tile(cost, queries).reshape(1, -1))
    start = time.perf_counter()
    result = milp(
        -value.reshape(-1),
        integrality=np.ones(value.size, np.int64),
        bounds=Bounds(0.0, 1.0),
        constraints=[LinearConstraint(one_each, 1.0, 1.0), LinearConstraint(spending, -np.inf, budget)],
        options={"mip_rel_gap": 1e-6, "time_limit": limit},
    )
    seconds = time.perf_counter() - start
    if result.x is None:  # nothing found in time
        return -np.inf, seconds
    choice = result.x.reshape(value.shape).argmax(axis=1)
    return float(value[np.arange(queries), choice].sum()), seconds


def check(value: Any, cost: Any, budget: float, solution: oc.Solution) -> None:
    """Within the budget in exact arithmetic, the stated value, and a gap of at most a millionth."""
    counts = np.bincount(solution.choice, minlength=cost.size)
    paid = sum(int(count) * Fraction(repr(float(one))) for count, one in zip(counts, cost, strict=True))
    assert paid <= Fraction(repr(budget))
    assert abs(value[np.arange(len(value)), solution.choice].sum() - solution.value) < 1e-6
    assert solution.gap <= 1e-6, solution.gap


def against_milp(limit: float) -> list[dict[str, Any]]:
    """One row for each of four seeds."""
    rows = []
    for seed in range(4):
        value, cost, budget = instance(10_000, seed)
        solution = oc.solve(value, cost, budget)
        check(value, cost, budget, solution)
        ours = best_time(lambda value=value, cost=cost, budget=budget: oc.solve(value, cost, budget))  # type: ignore[misc]
        reached, theirs = highs(value, cost, budget, limit)
        assert solution.value >= reached - 1e-9
        rows.append({
            "case": f"10,000 × 7, seed {seed}: milp / ours", "ratio": theirs / ours, "ours_ms": 1e3 * ours,
            "peer_ms": 1e3 * theirs, "gap": solution.gap, "value_above_peer": solution.value - reached,
        })  # fmt: skip
    return rows


def against_argmax() -> list[dict[str, Any]]:
    """A million queries, stepped and smooth, and the frontier of each."""
    rows = []
    for stepped in (True, False):
        value, cost, budget = instance(1_000_000, 0, stepped=stepped)
        solution = oc.solve(value, cost, budget)
        check(value, cost, budget, solution)
        ours = best_time(lambda value=value, cost=cost, budget=budget: oc.solve(value, cost, budget))  # type: ignore[misc]
        argmax = best_time(lambda value=value: value.argmax(axis=1))  # type: ignore[misc]
        kind = "stepped" if stepped else "smooth"
        rows.append({
            "case": f"1,000,000 × 7, {kind}: ours / argmax", "ratio": ours / argmax, "ours_ms": 1e3 * ours,
            "peer_ms": 1e3 * argmax, "gap": solution.gap,
        })  # fmt: skip
        front = best_time(lambda value=value, cost=cost: supported_points(Problem(value, cost, 0)), 3)  # type: ignore[misc]
        rows.append({
            "case": f"1,000,000 × 7, {kind}: frontier / solve", "ratio": front / ours, "ours_ms": 1e3 * front,
            "peer_ms": 1e3 * ours,
        })  # fmt: skip
    return rows


def frontier() -> list[dict[str, Any]]:
    """The frontier's plans are the point plans; its time beside one solve's."""
    rows = []
    for queries in (30, 10_000):
        value, cost, budget = instance(queries, 5)
        estimate = Estimate(tuple("abcdefg"), cost, value, np.zeros(7))
        front = estimate.frontier()
        for amount in np.random.default_rng(0).uniform(front.budgets[0], 1.05 * front.budgets[-1], 200):
            assert np.array_equal(front.plan(float(amount)).choice, estimate.plan(float(amount)).choice)
        solve = best_time(lambda estimate=estimate, budget=budget: estimate.plan(budget), 20)  # type: ignore[misc]
        whole = best_time(lambda estimate=estimate: estimate.frontier(), 20)  # type: ignore[misc]
        rows.append({
            "case": f"{queries:,} × 7, 200 plans equal: frontier / plan", "ratio": whole / solve,
            "ours_ms": 1e3 * whole, "peer_ms": 1e3 * solve,
        })  # fmt: skip
    return rows


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="stop HiGHS after 5 s")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [*frontier(), *against_argmax(), *against_milp(5.0 if options.quick else 60.0)]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        extra = "".join(f"  {name} {row[name]:.3g}" for name in ("gap", "value_above_peer") if name in row)
        times = f"({row['ours_ms']:.2f} ms, peer {row['peer_ms']:.2f} ms)"
        print(f"{row['case']:<48} {row['ratio']:>10.2f} ×   {times}{extra}")


if __name__ == "__main__":
    main()
