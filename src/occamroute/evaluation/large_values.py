"""Values of more queries than memory holds, part by part: read, drawn, or the same for all; and plans from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from occamroute._arrays import FloatArray, generator
from occamroute._money import Amount
from occamroute.executors import Executor
from occamroute.knapsack.streamed import LargeProblem, Streamed, solve_streamed, state
from occamroute.part_folders import PartFolder
from occamroute.planning.stored_estimates import StoredEstimate

__all__ = ["ConstantValues", "LargeValues", "Planned", "Plans", "StoredValues", "UniformValues", "less"]

Result = TypeVar("Result")


class LargeValues(Protocol):
    """Estimated success of every query, a part at a time; small enough to be sent anywhere."""

    def part(self, number: int, start: int, stop: int) -> FloatArray:
        """The values (stop - start, M) of a part, which are those of the rows from ``start`` to ``stop``."""
        ...


@dataclass(frozen=True, eq=False)
class StoredValues:
    """Those of an estimate that is kept in parts."""

    parts: PartFolder
    columns: tuple[str, ...]

    @classmethod
    def of(cls, estimate: StoredEstimate) -> StoredValues:
        """The values of an estimate."""
        return cls(estimate.parts, tuple(estimate.columns))

    def part(self, number: int, start: int, stop: int) -> FloatArray:
        """Read from its file."""
        return np.asarray(self.parts.numbers(number, self.columns))


@dataclass(frozen=True, eq=False)
class ConstantValues:
    """The same row (M,) for each query."""

    row: FloatArray

    def part(self, number: int, start: int, stop: int) -> FloatArray:
        """The row, so many times."""
        return np.tile(self.row, (stop - start, 1))


@dataclass(frozen=True, eq=False)
class UniformValues:
    """Uniform numbers: those that one draw for all queries would give."""

    options: int
    seed: int

    def part(self, number: int, start: int, stop: int) -> FloatArray:
        """Drawn from where the parts before it end: each number takes one step of the generator."""
        random = generator(self.seed)
        random.bit_generator.advance(start * self.options)  # type: ignore[attr-defined]
        return random.uniform(size=(stop - start, self.options))


def less(values: FloatArray, taken_off: FloatArray | None) -> FloatArray:
    """Values less what a penalty takes off each classifier (M,)."""
    return values if taken_off is None else np.asarray(values - taken_off)


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Penalised values, to be looked at in passes; ``parts`` says which rows a part has."""

    values: LargeValues
    taken_off: FloatArray | None
    parts: PartFolder
    executor: Executor

    def over(self, look: Callable[[FloatArray, int, Any], Result], about: Any) -> Iterable[Result]:
        """``look(values, start, about)`` of every part, in order."""
        shared = _Looking(self.values, self.taken_off, self.parts, look, about)
        return self.executor.map(_look, shared, range(len(self.parts)))


@dataclass(frozen=True)
class _Looking:
    values: LargeValues
    taken_off: FloatArray | None
    parts: PartFolder
    look: Callable[[FloatArray, int, Any], Any]
    about: Any


def _look(shared: _Looking, number: int) -> Any:
    start, stop = shared.parts.span(number)
    return shared.look(less(shared.values.part(number, start, stop), shared.taken_off), start, shared.about)


@dataclass(frozen=True, eq=False)
class Planned:
    """The best plan from some values within a budget, as a decision that can be applied to any part."""

    values: LargeValues
    taken_off: FloatArray | None
    problem: LargeProblem
    found: Streamed


@dataclass(frozen=True, eq=False)
class Plans:
    """Plans from some values, at any budget and penalty; ``sigma`` (M,) is what a penalty multiplies."""

    values: LargeValues
    costs: FloatArray
    overhead: Amount
    parts: PartFolder
    executor: Executor
    sigma: FloatArray | None = None
    _stated: dict[float, LargeProblem] = field(default_factory=dict, repr=False)

    def at(self, budget: Amount, *, seed: int, penalty: float = 0.0) -> Planned:
        """The best plan; raises ``BudgetTooSmallError`` where there is none."""
        unseen = LargeProblem(self.costs, budget, self.parts.rows, overhead=self.overhead)
        unseen.require()
        taken_off = None if penalty == 0.0 or self.sigma is None else penalty * self.sigma
        blocks = _Blocks(self.values, taken_off, self.parts, self.executor)
        if penalty not in self._stated:  # no budget changes what must be known of the values
            self._stated[penalty] = state(unseen, blocks)
        problem = replace(self._stated[penalty], budget=budget)
        return Planned(self.values, taken_off, problem, solve_streamed(problem, blocks, seed=seed))
