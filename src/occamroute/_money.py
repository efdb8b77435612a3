"""Exact amounts in whole units; no float decides a budget.

A float means the shortest decimal that prints it: 0.1 is one tenth. Inside one problem, amounts are whole
multiples of a power of ten: the coarsest that holds every cost, else the finest for which the number of
queries times the dearest stays below 2**62. What is no whole multiple rounds up as a cost and down as a
budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from occamroute._arrays import LEAST, FloatArray, IntArray
from occamroute.errors import InvalidInputError

__all__ = ["Amount", "Units", "exact", "from_text", "money", "money_from_text", "rounded_up", "units_for"]

Amount: TypeAlias = float | int | Decimal | Fraction

LIMIT = 2**62
# A decimal of at most 15 digits is the only one of that length that rounds to its float, and powers of ten up
# to 22 are floats: within both, one division tells exactly whether a float is a whole number of units.
DIGITS = 10**15
POWERS = 22
BLOCK = 1 << 16
# Amounts between 2 to the power of minus this and of this are within all limits.
USUAL = 100


def exact(number: Any) -> Fraction:
    """The number that the shortest decimal form of ``number`` stands for."""
    if isinstance(number, Fraction):
        return number
    # By way of a decimal, since a fraction reads a text ten times more slowly.
    return Fraction(number if isinstance(number, int | Decimal) else Decimal(str(number)))


def money(number: Any, name: str = "budget") -> Fraction:
    """A finite amount that is not negative, exactly."""
    if type(number) is Fraction and _is_usual(number):
        return number
    if isinstance(number, bool | np.bool_ | str) or not _is_amount(number):
        raise InvalidInputError(f"{name} must be a finite number ≥ 0, got {_said(number)}.")
    # Looked at before it becomes a fraction, which a huge exponent would make gigantic.
    if number and not LEAST <= number <= Fraction(10) ** 250:
        raise InvalidInputError(f"{name} must be 0 or between {LEAST:g} and {1 / LEAST:g}, got {_said(number):.40}.")
    return exact(number)


def _is_usual(number: Fraction) -> bool:
    """Whether it is 0, or far from what is too large or too small; services look at many amounts."""
    size = number.numerator.bit_length() - number.denominator.bit_length()
    return number.numerator >= 0 and (-USUAL < size < USUAL or not number.numerator)


def _is_amount(number: Any) -> bool:
    try:
        return bool(number >= 0) and (isinstance(number, int | Fraction) or math.isfinite(number) or number < math.inf)
    except (TypeError, ValueError, ArithmeticError):
        return False


def _said(number: Any) -> str:
    try:
        return repr(number) if isinstance(number, str) else str(number)
    except ValueError:  # whole numbers of thousands of digits have no words
        return "a number of too many digits"


def from_text(text: str) -> Amount:
    """The amount that ``str`` wrote: a float where that means the same, else a fraction."""
    amount = Fraction(text)
    return float(amount) if exact(float(amount)) == amount else amount


def money_from_text(text: str, name: str = "budget") -> Decimal:
    """An amount that somebody typed, exactly."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise InvalidInputError(f"{name} must be a finite number ≥ 0, got {text!r}.") from None
    money(amount, name)
    return amount


@dataclass(frozen=True)
class Units:
    """Costs as whole multiples of ``10**exponent``: ``cost`` int64, (M,) or (N, M), and a fixed ``overhead``."""

    exponent: int
    cost: IntArray
    overhead: int

    @property
    def size(self) -> Fraction:
        """What one unit is worth."""
        return Fraction(10) ** self.exponent

    def floor(self, amount: Fraction) -> int:
        """The whole units that an amount can pay for."""
        return math.floor(amount / self.size)

    def floats(self, units: IntArray) -> FloatArray:
        """Amounts of units as floats, none of which means less than the amount."""
        amounts = np.asarray(_scaled(units.astype(np.float64), self.exponent))
        if units.size and (int(units.max()) > DIGITS or abs(self.exponent) > POWERS):
            # In units in the last place: the whole number as a float is off by up to 1, the quotient by 0.5, and its
            # shortest decimal by 0.5. A power of ten that is no float adds up to 2.
            for _ in range(2 if abs(self.exponent) <= POWERS else 4):
                amounts = np.where(units > 0, np.nextafter(amounts, np.inf), amounts)
        return amounts


def rounded_up(amount: Fraction) -> Decimal:
    """The amount as a decimal of at most 15 digits, so that it is the same as a float; rounded up."""
    short = Context(prec=15, rounding=ROUND_UP)
    quotient = short.divide(Decimal(amount.numerator), Decimal(amount.denominator))
    return Decimal(f"{quotient.normalize(short):f}")


def units_for(cost: FloatArray, *, queries: int, overhead: Any = 0) -> Units:
    """The units in which these costs (M,) or (N, M) and a fixed overhead per query are counted."""
    fixed = exact(overhead)
    dearest = exact(cost.max()) + fixed
    finest = _finest(dearest * queries)
    if cost.ndim == 1 or not _vectorisable(queries, finest):
        return _units_one_by_one(cost, fixed, finest)
    exponent = min(_coarsest_of_all(cost, finest), _coarsest(fixed))
    exponent = max(exponent, finest)
    units = np.empty(cost.shape, np.int64)
    flat_cost, flat_units = cost.reshape(-1), units.reshape(-1)
    for start in range(0, flat_cost.size, BLOCK):
        flat_units[start : start + BLOCK] = _ceil(flat_cost[start : start + BLOCK], exponent)
    return Units(exponent, units, math.ceil(fixed / Fraction(10) ** exponent))


def _finest(total: Fraction) -> int:
    """The least exponent for which ``total`` stays below the limit."""
    if total == 0:
        return -POWERS
    exponent = math.ceil(math.log10(total.numerator) - math.log10(total.denominator) - math.log10(LIMIT)) - 2
    while total >= LIMIT * Fraction(10) ** exponent:
        exponent += 1
    return exponent


def _coarsest(amount: Fraction) -> int:
    """The greatest exponent of which ``amount`` is a whole multiple (an amount is always a decimal)."""
    if amount == 0:
        return POWERS
    twos = fives = 0
    denominator = amount.denominator
    while denominator % 2 == 0:
        denominator //= 2
        twos += 1
    while denominator % 5 == 0:
        denominator //= 5
        fives += 1
    if denominator > 1:  # not a decimal: no power of ten holds it
        return -LIMIT
    if amount.denominator > 1:
        return -max(twos, fives)
    text = str(amount.numerator)
    return len(text) - len(text.rstrip("0"))


def _units_one_by_one(cost: FloatArray, fixed: Fraction, finest: int) -> Units:
    """The same by exact fractions, once for each distinct cost."""
    distinct, inverse = np.unique(cost, return_inverse=True)
    amounts = [Decimal(repr(amount)).normalize() for amount in distinct.tolist()]
    coarsest = min((amount.as_tuple().exponent for amount in amounts if amount), default=POWERS)
    exponent = max(finest, min(_coarsest(fixed), int(coarsest)))
    exactly = Context(prec=600, rounding=ROUND_CEILING)
    units = [int(amount.scaleb(-exponent, exactly).to_integral_value(ROUND_CEILING)) for amount in amounts]
    whole = np.array(units, np.int64)[inverse].reshape(cost.shape)
    return Units(exponent, whole, math.ceil(fixed / Fraction(10) ** exponent))


def _vectorisable(queries: int, finest: int) -> bool:
    return LIMIT // queries <= DIGITS and -POWERS <= finest <= POWERS


def _coarsest_of_all(cost: FloatArray, finest: int) -> int:
    """The greatest exponent of which every cost is a whole multiple, or one below ``finest``."""
    left = cost.reshape(-1)
    exponent = min(_coarsest(exact(amount)) for amount in left[:: max(1, left.size // 64)].tolist())
    exponent = min(exponent, POWERS)
    while exponent >= finest:
        left = left[_scaled(np.rint(_unscaled(left, exponent)), exponent) != left]
        if left.size == 0:
            return exponent
        exponent -= 1
    return exponent


def _ceil(cost: FloatArray, exponent: int) -> IntArray:
    """The least whole number of units that is no less than each cost."""
    units = np.rint(_unscaled(cost, exponent))
    units += _scaled(units, exponent) < cost
    # Never lowers anything as long as units are at most DIGITS, since what was rounded is off by less than a half.
    units -= _scaled(units - 1.0, exponent) >= cost
    return np.maximum(units, 0.0).astype(np.int64)


def _scaled(units: FloatArray, exponent: int) -> FloatArray:
    return units * 10.0**exponent if exponent >= 0 else units / 10.0**-exponent


def _unscaled(cost: FloatArray, exponent: int) -> FloatArray:
    return cost / 10.0**exponent if exponent >= 0 else cost * 10.0**-exponent
