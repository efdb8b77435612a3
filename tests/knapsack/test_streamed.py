"""Values that are not held give the same choice, row for row, as values that are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occamroute._arrays import FloatArray
from occamroute.knapsack import Objective, Problem, solve_problem, streamed
from occamroute.knapsack.passes import decide
from occamroute.knapsack.streamed import LargeProblem, solve_streamed, state


@dataclass
class ArrayBlocks:
    """Blocks of an array; counts the passes."""

    values: FloatArray
    size: int = 1 << 15
    passes: int = 0

    def over(self, look: Callable[[FloatArray, int, Any], Any], about: Any) -> Iterable[Any]:
        self.passes += 1
        for start in range(0, len(self.values), self.size):
            yield look(self.values[start : start + self.size], start, about)


def assert_same(
    values: FloatArray, cost: Any, budget: Any, *, objective: Objective = "mean", size: int = 1 << 15, seed: int = 0,
    overhead: Any = 0,
) -> ArrayBlocks:  # fmt: skip
    blocks = ArrayBlocks(values, size)
    problem = state(LargeProblem(cost, budget, len(values), objective, overhead), blocks)
    found = solve_streamed(problem, blocks, seed=seed)
    choice = np.concatenate(
        list(blocks.over(lambda part, start, _: decide(part, start, found.rules, found.decision), 0))
    )
    whole = Problem(values, cost, budget, objective, overhead)
    wanted = solve_problem(whole, seed=seed)
    assert (problem.step, problem.largest, problem.spare) == (whole.step, whole.largest, whole.spare)
    assert np.array_equal(choice, wanted.choice)
    assert found.decision.price / float(problem.units.size) == wanted.price
    assert whole.paid(choice) <= whole.room
    return blocks


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_problem(data: st.DataObject) -> None:
    rows, options = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 5))
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    kind = data.draw(st.sampled_from(["continuous", "stepped", "binary", "negative", "equal"]))
    values = random.uniform(size=(rows, options))
    if kind == "stepped":
        values = np.round(values * 8) / 8
    elif kind == "binary":
        values = np.round(values)
    elif kind == "negative":
        values = values - 0.5
    elif kind == "equal":
        values = np.ones((rows, options))
    cost = random.integers(0, 6, options) * data.draw(st.sampled_from([1.0, 0.1, 0.003]))
    least, most = float(cost.min() * rows), float(cost.max() * rows)
    share = data.draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, 1.2]))
    objective: Objective = data.draw(st.sampled_from(["mean", "min"]))
    budget = round(least + share * (most - least), 6) + 1e-6
    assert_same(values, cost, budget, objective=objective, size=data.draw(st.integers(1, 50)), overhead=0)


@pytest.mark.parametrize("kind", ["continuous", "stepped", "binary"])
@pytest.mark.parametrize("objective", ["mean", "min"])
def test_many_rows(kind: str, objective: Objective) -> None:
    """Above what the solver looks at row by row, and with more ties than are looked at one by one."""
    random = np.random.default_rng(3)
    values = random.beta(2.0, 1.0, (150_000, 6))
    if kind == "stepped":
        values = np.round(values * 40) / 40
    if kind == "binary":
        values = np.round(values)
    cost = np.array([0.01, 0.02, 0.05, 0.05, 0.3, 1.0])
    for budget in (1600.0, 20_000.0, 90_000.0):
        blocks = assert_same(values, cost, budget, objective=objective)
        assert blocks.passes <= 20


def test_more_ties_than_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of one slope by the ten thousand are taken by the same keys."""
    monkeypatch.setattr(streamed, "FEW_STEPS", 64)
    random = np.random.default_rng(4)
    for values in (np.round(random.uniform(size=(70_000, 3))), np.round(8 * random.uniform(size=(70_000, 3))) / 8):
        for seed in (0, 1):
            assert_same(values, np.array([0.0, 1.0, 3.0]), 30_000.0, seed=seed)


def test_close_slopes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes that differ in their last bits alone need all four rounds."""
    monkeypatch.setattr(streamed, "FEW_STEPS", 2)
    gain = 0.5 + np.arange(5000)[::-1] * 2.0**-52
    values = np.column_stack([np.zeros(5000), gain])
    blocks = assert_same(values, np.array([0.0, 1.0]), 2500.0, size=1 << 15)
    assert blocks.passes > 5
