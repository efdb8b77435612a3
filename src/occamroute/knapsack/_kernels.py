"""The compiled loops of the exact solver.

``cost`` is (1, M) or (N, M) whole units; a value of -inf marks an option that may not be chosen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._compiled import kernel

__all__ = ["demand", "hull_steps", "near_moves", "tie_keys"]


@kernel()
def tie_keys(rows: Any, seed: int) -> Any:
    """A pseudo-random 62-bit number for each row, the same for the same seed (splitmix64)."""
    keys = np.empty(rows.size, np.int64)
    for i in range(rows.size):
        z = np.uint64(rows[i]) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys[i] = np.int64((z ^ (z >> np.uint64(31))) >> np.uint64(2))
    return keys


@kernel()
def hull_steps(value: Any, cost: Any, rows: Any, high: float, low: float, stepped: bool, base: Any, steps: Any) -> int:
    """Walk up the convex hull of (cost, value) of each listed row; its steps fall strictly in ratio.

    ``base[i]`` becomes the option reached by all steps worth more than ``high`` per unit; each further step
    worth more than ``low`` is written to ``steps``: (ratio, cost, row position, from, to). Returns their number.
    Where values are ``stepped``, ratios lose their last 12 bits: 0.1 - 0.075 is to tie with 0.05 - 0.025.
    """
    ratios, costs, places, sources, targets = steps
    options = value.shape[1]
    order = np.empty(options, np.int64)
    hull = np.empty(options, np.int64)
    slope = np.empty(options, np.float64)
    shared = cost.shape[0] == 1
    count = 0
    for position in range(rows.size):
        row = rows[position]
        prices = cost[0] if shared else cost[row]
        if not shared or position == 0:
            for i in range(options):  # insertion sort by cost: options are few
                j = i
                while j > 0 and prices[order[j - 1]] > prices[i]:
                    order[j] = order[j - 1]
                    j -= 1
                order[j] = i
        top = -1
        for i in range(options):
            option = order[i]
            worth = value[row, option]
            if worth == -np.inf or (top >= 0 and worth <= value[row, hull[top]]):
                continue
            ratio = np.inf
            while top >= 0:
                rise = worth - value[row, hull[top]]
                run = prices[option] - prices[hull[top]]
                ratio = rise / np.float64(run) if run > 0 else np.inf
                if stepped and run > 0:
                    ratio = ratio * 4097.0 - (ratio * 4097.0 - ratio)
                if ratio < slope[top]:
                    break
                top -= 1
                ratio = np.inf
            top += 1
            hull[top] = option
            slope[top] = ratio
        base[position] = hull[0]
        for i in range(1, top + 1):
            if slope[i] > high:
                base[position] = hull[i]
            elif slope[i] > low:
                ratios[count] = slope[i]
                costs[count] = prices[hull[i]] - prices[hull[i - 1]]
                places[count] = position
                sources[count] = hull[i - 1]
                targets[count] = hull[i]
                count += 1
    return count


@kernel()
def demand(value: Any, cost: Any, high: float, low: float, start: int, stop: int, choice: Any, open_rows: Any) -> Any:
    """What rows take at the price ``high``, and which of them take something else at ``low``.

    Fills ``choice[start:stop]`` and ``open_rows`` and returns the cost of all other rows' choices and the
    number of open rows.
    """
    options = value.shape[1]
    shared = cost.shape[0] == 1
    spent = np.int64(0)
    count = 0
    for row in range(start, stop):
        costs = 0 if shared else row
        best_high = best_low = -np.inf
        at_high = at_low = 0
        for option in range(options):
            worth = value[row, option]
            amount = cost[costs, option]
            score = worth - high * amount
            if score > best_high or (score == best_high and amount < cost[costs, at_high]):
                best_high = score
                at_high = option
            score = worth - low * amount
            if score > best_low or (score == best_low and amount > cost[costs, at_low]):
                best_low = score
                at_low = option
        choice[row] = at_high
        if cost[costs, at_high] == cost[costs, at_low]:
            spent += cost[costs, at_high]
        else:
            open_rows[count] = row
            count += 1
    return spent, count


@kernel()
def near_moves(
    value: Any, cost: Any, choice: Any, price: float, below: float, start: int, stop: int, moves: Any
) -> Any:
    """Moves away from a choice that lose little at a price, and the sums that certify the choice.

    A move's loss is what it takes off ``value - price · cost``. Moves that lose less than ``below`` are
    written to ``moves``: (row, option, loss) as far as there is room. Returns their true number, the sum of
    the chosen values and the sum of the best scores; both are compensated (Neumaier), as (sum, correction).
    """
    rows, targets, losses = moves
    options = value.shape[1]
    shared = cost.shape[0] == 1
    count = 0
    total = total_low = bound = bound_low = 0.0
    for row in range(start, stop):
        costs = 0 if shared else row
        chosen = value[row, choice[row]]
        held = chosen - price * cost[costs, choice[row]]
        best = held
        for option in range(options):
            score = value[row, option] - price * cost[costs, option]
            best = max(best, score)
            if held - score < below and option != choice[row]:
                if count < rows.size:
                    rows[count] = row
                    targets[count] = option
                    losses[count] = max(held - score, 0.0)
                count += 1
        added = total + chosen
        total_low += (total - added) + chosen if abs(total) >= abs(chosen) else (chosen - added) + total
        total = added
        added = bound + best
        bound_low += (bound - added) + best if abs(bound) >= abs(best) else (best - added) + bound
        bound = added
    return count, total, total_low, bound, bound_low
