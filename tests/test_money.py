"""Amounts are exact: what a float prints is what it means, costs round up, budgets down."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occamroute._money import DIGITS, Units, exact, from_text, money, money_from_text, rounded_up, units_for
from occamroute.errors import InvalidInputError

amounts = st.one_of(
    st.integers(0, 10**9).map(float),
    st.integers(0, 10**6).map(lambda cents: cents / 100),
    st.floats(0, 1e10, allow_nan=False),
    st.floats(1e-6, 1.0, allow_nan=False),
)


def by_the_rule(costs: list[float], queries: int) -> tuple[Fraction, list[int]]:
    """The unit and the whole numbers of it, straight from the promise."""
    numbers = [Fraction(repr(cost)) for cost in costs]
    total = max(numbers) * queries
    exponent = 400
    while any((number / Fraction(10) ** exponent).denominator > 1 for number in numbers):
        exponent -= 1
    while total >= 2**62 * Fraction(10) ** exponent:
        exponent += 1
    unit = Fraction(10) ** exponent
    return unit, [math.ceil(number / unit) for number in numbers]


@given(st.lists(amounts, min_size=1, max_size=6), st.integers(1, 10**7))
@settings(max_examples=300, deadline=None)
def test_units_follow_the_rule(costs: list[float], queries: int) -> None:
    """The coarsest power of ten that holds every cost, else the finest that cannot overflow; costs round up."""
    unit, whole = by_the_rule(costs, queries)
    units = units_for(np.array(costs), queries=queries)
    if max(costs) > 0:
        assert units.size == unit
    assert units.cost.tolist() == whole
    assert max(whole) * queries < 2**63


@given(st.lists(amounts, min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_fast_and_exact_conversion_agree(costs: list[float]) -> None:
    """Costs by query and classifier go through floats, with the same result as through fractions."""
    table = np.array(costs * 2000).reshape(6000, 1)
    assert DIGITS >= 2**62 // 6000
    unit, whole = by_the_rule(costs, 6000)
    units = units_for(table, queries=6000)
    if max(costs) > 0:
        assert units.size == unit
    assert units.cost[:3, 0].tolist() == whole


def test_every_random_cost_rounds_up_exactly() -> None:
    """60,000 long decimals: none is charged less than it is, none a unit more than it must."""
    table = np.exp(np.random.default_rng(0).normal(size=(20_000, 3)) * 4)
    units = units_for(table, queries=20_000)
    for cost, whole in zip(table.reshape(-1).tolist(), units.cost.reshape(-1).tolist(), strict=True):
        assert (whole - 1) * units.size < Fraction(repr(cost)) <= whole * units.size


def test_overhead_counts_in_the_same_units() -> None:
    """The fixed cost of a query makes the unit fine enough for itself."""
    units = units_for(np.array([1.0, 2.0]), queries=10, overhead=0.25)
    assert (units.size, units.cost.tolist(), units.overhead) == (Fraction(1, 100), [100, 200], 25)


def test_exact_takes_the_shortest_decimal() -> None:
    """Floats of both sizes, whole numbers, decimals and fractions."""
    assert exact(0.1) == exact(np.float64(0.1)) == exact(np.float32(0.1)) == exact(Decimal("0.1")) == Fraction(1, 10)
    assert exact(3) == exact(np.int64(3)) == exact(Fraction(3)) == 3


@pytest.mark.parametrize("number", [-0.1, float("nan"), float("inf"), None, "1", True, 1j, Decimal("NaN")])
def test_what_is_no_amount_is_refused(number: object) -> None:
    """One sentence with what was seen."""
    with pytest.raises(InvalidInputError, match="budget must be a finite number ≥ 0, got"):
        money(number)


def test_typed_amounts_are_exact() -> None:
    """The command line reads decimals, not floats."""
    assert money_from_text("0.1") == Decimal("0.1")
    for text in ("abc", "-1", "nan", "inf", ""):
        with pytest.raises(InvalidInputError, match="budget must be a finite number"):
            money_from_text(text)


@given(st.fractions(min_value=0, max_value=10**15))
@settings(max_examples=200, deadline=None)
def test_rounded_up_survives_a_float(amount: Fraction) -> None:
    """The decimal is no less than the amount, and the same when read back from a float."""
    short = rounded_up(amount)
    assert Fraction(short) >= amount
    assert exact(float(short)) == Fraction(short)


@given(st.lists(st.integers(0, 2**61), min_size=1, max_size=5), st.integers(-20, 3))
@settings(max_examples=200, deadline=None)
def test_floats_of_units_never_mean_less(whole: list[int], exponent: int) -> None:
    """A frontier's budgets pay for their own points."""
    units = Units(exponent, np.array([1]), 0)
    for count, amount in zip(whole, units.floats(np.array(whole)).tolist(), strict=True):
        assert exact(amount) >= count * units.size


@pytest.mark.parametrize("exponent", [-25, -20, -10, 0, 24])
def test_floats_of_many_digits_never_mean_less(exponent: int) -> None:
    """Numbers that no float holds, in units that are floats and in units that are not."""
    whole = np.random.default_rng(0).integers(DIGITS, 2**61, 20_000)
    units = Units(exponent, np.array([1]), 0)
    for count, amount in zip(whole.tolist(), units.floats(whole).tolist(), strict=True):
        assert exact(amount) >= count * units.size


@pytest.mark.parametrize("shape", [(1,), (6000, 1)], ids=["one by one", "vectorised"])
def test_an_overhead_that_is_no_whole_number_of_units_rounds_up(shape: tuple[int, ...]) -> None:
    """No query's fixed cost is charged less than it is, nor a unit more than it must."""
    units = units_for(np.full(shape, 0.25), queries=6000, overhead=Fraction(1, 3))
    assert (units.overhead - 1) * units.size < Fraction(1, 3) < units.overhead * units.size


@pytest.mark.parametrize(
    ("costs", "queries"),
    [
        ([0.16233969289797678, 0.4060260329241431, 0.14232598112231787], 3),
        ([3.5735549438355734e-31, 5.546260770160334e-31, 4.281934686505221e-31], 6000),
    ],
    ids=["more digits than floats hold", "smaller units than floats hold"],
)
def test_costs_beyond_exact_floats_follow_the_rule(costs: list[float], queries: int) -> None:
    """Where floats cannot tell, a table of costs is converted one by one."""
    unit, whole = by_the_rule(costs, queries)
    units = units_for(np.array(costs * (queries // 3)).reshape(queries, 1), queries=queries)
    assert (units.size, units.cost[:3, 0].tolist()) == (unit, whole)


def test_amounts_read_back_mean_what_was_written() -> None:
    """A float where that means the same; a third and a long decimal stay exact."""
    for text in ("0.1", "3", "1e-7"):
        assert from_text(text) == float(text)
        assert isinstance(from_text(text), float)
    for text in ("1/3", "0.12345678901234567891", str(2**60 + 1)):
        assert from_text(text) == Fraction(text)
