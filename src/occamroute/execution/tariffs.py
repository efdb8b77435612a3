"""Tariff: what each classifier is expected to cost on each query, and the most that it can cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._money import Units, exact, units_for
from occamroute.calls.sources import TIMED_RESERVE, Source

__all__ = ["Tariff", "make_tariff"]


@dataclass(frozen=True, eq=False)
class Tariff:
    """Expected costs and worst cases of M sources, (M,) or (N, M) where they differ by query.

    ``units`` are the worst cases in whole units.
    """

    names: tuple[str, ...]
    sources: Mapping[str, Source]
    expected: FloatArray
    worst: FloatArray
    units: Units

    def reserve(self, name: str, rows: IntArray) -> Fraction:
        """The most that a call of a source for these queries can cost, exactly."""
        column = self.names.index(name)
        fixed = self.sources[name].fixed
        if fixed is not None:
            return fixed * rows.size
        units = self.units.cost
        total = int(units[column]) * rows.size if units.ndim == 1 else int(units[rows, column].sum())
        return total * self.units.size

    @property
    def certain(self) -> bool:
        """Whether every cost is known to the last digit."""
        return all(source.fixed is not None for source in self.sources.values())

    @property
    def margin(self) -> Fraction:
        """What must be left when the last call is made: the most that one can cost above what is expected."""
        return exact(float((self.worst - self.expected).max())) if not self.certain else Fraction(0)


def make_tariff(sources: Mapping[str, Source], queries: Any, known: Mapping[str, float]) -> Tariff:
    """The tariff for these queries; ``known`` is what profiles or plans say that one costs on average.

    Where a source can state the most that each query may cost, queries are expected to cost in proportion to that,
    and as much as is known on average.
    """
    rows = len(queries)
    expected, worst = [], []
    for name, source in sources.items():
        most = source.most(queries)
        if source.fixed is not None:
            pair: tuple[Any, Any] = (float(source.member.cost),) * 2
        elif most is None:
            pair = known[name], float(TIMED_RESERVE) * known[name]
        else:
            highest = np.array([_not_less(amount) for amount in most])
            mean = float(highest.mean())
            pair = np.minimum(highest, highest * (known[name] / mean)) if mean else highest, highest
        expected.append(pair[0])
        worst.append(pair[1])
    table = _stacked(worst, rows)
    return Tariff(
        names=tuple(sources),
        sources=dict(sources),
        expected=_stacked(expected, rows),
        worst=table,
        units=units_for(table, queries=rows),
    )


def _not_less(amount: Fraction) -> float:
    """A float that means no less than the amount."""
    number = float(amount)
    return number if exact(number) >= amount else math.nextafter(number, math.inf)


def _stacked(columns: list[Any], rows: int) -> FloatArray:
    if not any(np.ndim(column) for column in columns):
        return np.array(columns, np.float64)
    return np.column_stack([np.broadcast_to(np.asarray(column, np.float64), rows) for column in columns])
