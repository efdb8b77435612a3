"""Bets against "nothing has changed": test martingales on conformal p-values, in constant memory.

A score that comes in is put into one of L levels, and its rank among all scores of its stratum so far (those of the
profile first) gives a p-value, ties broken at random. While scores are exchangeable these p-values are independent
and uniform, whatever the scores' distribution. Capital of 1 bets against that. No strategy makes capital grow
without risk: the chance that it *ever* reaches 1 / rate is at most ``rate`` (Ville's inequality).

Each line of capital is mostly asleep. At every step a little of it wakes and is bet on each of a few alternatives;
what bets lose is lost, but what sleeps is still there when something changes after a long quiet time: it is spread
over all times at which that may be, more of it on earlier ones, and sinks only as the tenth root of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._compiled import kernel

__all__ = ["DIRECTIONS", "Betting", "Raised", "p_values"]

# What each bet is on: p-values that are too low or too high a little, much, or in the tail; too far from the middle
# or too near to it; and whatever was frequent of late.
DIRECTIONS = ("lower", "lower", "lower", "higher", "higher", "higher", "wider", "narrower", "other", "other")
BINS = 8  # of p-values, in which the last bets count what was frequent
MEMORIES = (0.99, 0.999)  # what they still know of a p-value one step later
PRIOR = 5.0  # p-values of each bin that they start from
AWAKE = 0.2  # the share of capital that bets from the beginning
WAKING, DELAY = 0.1, 10.0  # at step t the share WAKING / (DELAY + t) of what sleeps wakes
MOST = 1e200  # more capital than this is given away, so that no product overflows


@dataclass(frozen=True)
class Raised:
    """Where capital first passed the limit: the line, what it bet on, the step, and when that began to pay."""

    line: int
    direction: str
    step: int
    since: int
    evidence: float


class Betting:
    """Several lines of capital, each betting on its own p-values; a line's ``weights`` is its share of the start.

    The lines' p-values may depend on each other in any way: their evidence is the largest of them, which passes a
    limit of 1 / rate with a chance of at most the sum of weights (1) times rate. The sum of lines would not do:
    each is a martingale by its own past, not by that of all of them together.
    """

    def __init__(self, weights: FloatArray) -> None:
        self.weights = weights
        lines, bets = weights.size, len(DIRECTIONS)
        self.asleep = (1.0 - AWAKE) * weights
        self.capital = np.repeat(AWAKE / bets * weights[:, np.newaxis], bets, axis=1)
        self.steps = np.zeros(lines, np.int64)
        self.recent = np.zeros((lines, len(MEMORIES), BINS))
        # For each bet the sum of its logarithms from where that is highest, and the step at which that was.
        self.gains = np.zeros((lines, bets))
        self.since = np.zeros((lines, bets), np.int64)

    @property
    def evidence(self) -> float:
        """The largest line's capital."""
        return float((self.asleep + self.capital.sum(axis=1)).max())

    def bet(self, lines: IntArray, p: FloatArray, first: int, limit: float) -> Raised | None:
        """Bet p-values (b, k) on ``lines`` (b, k); the first line that passes the limit, if one does.

        ``first`` is the number of the first of the b steps.
        """
        found = np.zeros(4, np.int64)
        evidence = wager(
            lines, p, first, limit, self.asleep, self.capital, self.steps, self.recent, self.gains, self.since, found
        )
        if evidence == 0.0:
            return None
        line, which, step, since = (int(number) for number in found)
        direction = DIRECTIONS[which] if DIRECTIONS[which] != "other" else self._tendency(line)
        return Raised(line, direction, step, since, evidence)

    def _tendency(self, line: int) -> str:
        """Where the p-values of late lie, if clearly on one side."""
        counts = self.recent[line, 0]
        mean = float(counts @ (np.arange(BINS) + 0.5)) / (BINS * float(counts.sum()))
        clearly = 3.0 / np.sqrt(12.0 * counts.sum())
        return "lower" if mean < 0.5 - clearly else "higher" if mean > 0.5 + clearly else "other"


@kernel()
def p_values(strata: Any, levels: Any, draws: Any, counts: Any, out: Any) -> None:
    """The rank of each level (b, k) in its stratum of ``counts`` (S, L), which it is then counted in, to out (b, k).

    ``draws`` (b, k) are uniform and break ties.
    """
    for t in range(levels.shape[0]):
        for k in range(levels.shape[1]):
            count, level = counts[strata[t, k]], levels[t, k]
            below, total = 0, 0
            for other in range(count.shape[0]):
                total += count[other]
                below += count[other] if other < level else 0
            count[level] += 1
            out[t, k] = (below + draws[t, k] * count[level]) / (total + 1)


@kernel()
def wager(
    lines: Any, p: Any, first: int, limit: float, asleep: Any, capital: Any, steps: Any, recent: Any, gains: Any,
    since: Any, found: Any,
) -> float:  # fmt: skip
    """Bet in turn; returns the evidence where it first passed the limit, with its place in ``found``, or 0."""
    bets = capital.shape[1]
    factors = np.empty(bets)
    passed = 0.0
    for t in range(p.shape[0]):
        for k in range(p.shape[1]):
            line, value = lines[t, k], min(max(p[t, k], 1e-12), 1.0 - 1e-12)
            bin_ = min(int(value * BINS), BINS - 1)
            middle = 12.0 * (value - 0.5) * (value - 0.5) - 1.0
            factors[0] = 1.0 + 0.2 * (1.0 - 2.0 * value)
            factors[1] = 1.0 + 0.8 * (1.0 - 2.0 * value)
            factors[2] = 0.3 * value**-0.7
            factors[3] = 1.0 + 0.2 * (2.0 * value - 1.0)
            factors[4] = 1.0 + 0.8 * (2.0 * value - 1.0)
            factors[5] = 0.3 * (1.0 - value) ** -0.7
            factors[6] = 1.0 + 0.5 * middle
            factors[7] = 1.0 - 0.3 * middle
            for h in range(recent.shape[1]):
                counts = recent[line, h]
                factors[8 + h] = (counts[bin_] + PRIOR) * BINS / (counts.sum() + PRIOR * BINS)
                for other in range(BINS):
                    counts[other] *= MEMORIES[h]
                counts[bin_] += 1.0
            waking = asleep[line] * WAKING / (DELAY + steps[line])
            asleep[line] -= waking
            steps[line] += 1
            total = asleep[line]
            best = 0
            for j in range(bets):
                capital[line, j] = min((capital[line, j] + waking / bets) * factors[j], MOST)
                total += capital[line, j]
                if capital[line, j] > capital[line, best]:
                    best = j
                if gains[line, j] <= 0.0:
                    gains[line, j] = 0.0
                    since[line, j] = first + t
                gains[line, j] += np.log(factors[j])
            if total >= limit and passed == 0.0:
                passed = total
                found[0], found[1], found[2], found[3] = line, best, first + t, since[line, best]
    return passed
