"""Whether all values are multiples of one step, as means of so many successes are."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from occamroute._arrays import FloatArray

__all__ = ["common_step", "far_from_grid"]

# Values count as multiples of 1/q when all are within this of one, relative to the largest value.
TOLERANCE = 1e-12
LARGEST_DENOMINATOR = 4096
BLOCK = 1 << 15

# The largest distance of any value to a multiple of 1/denominator, and some of the values that are too far.
OffGrid = Callable[[int, float], tuple[float, FloatArray]]


def common_step(sample: FloatArray, largest: float, off_grid: OffGrid) -> tuple[int, float] | None:
    """``(q, deviation)`` if every value is a multiple of 1/q but for rounding, else None.

    ``sample`` are a few of the values, ``off_grid`` looks at all of them.
    """
    allowed = TOLERANCE * largest
    denominator = 1
    deviation, left = 0.0, sample
    while left.size:
        for number in left[:8].tolist():
            near = Fraction(number).limit_denominator(LARGEST_DENOMINATOR)
            denominator = math.lcm(denominator, near.denominator)
            if abs(float(near) - number) > allowed or denominator > LARGEST_DENOMINATOR:
                return None
        deviation, left = off_grid(denominator, allowed)
    return denominator, deviation


def far_from_grid(flat: FloatArray, denominator: int, allowed: float) -> tuple[float, FloatArray]:
    """The largest distance to a multiple of 1/denominator, and some of the values that are too far."""
    worst = 0.0
    for start in range(0, flat.size, BLOCK):
        block = flat[start : start + BLOCK]
        distance = np.abs(block - np.rint(block * denominator) / denominator)
        farthest = float(distance.max())
        if farthest > allowed:
            return farthest, block[distance > allowed]
        worst = max(worst, farthest)
    return worst, flat[:0]
