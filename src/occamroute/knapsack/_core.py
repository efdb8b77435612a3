"""The core search: close the gap that the last step of the greedy solution leaves.

Seen from a choice that is best at the price, every other option of a query is a *move* with a change of cost
and a loss ≥ 0. With ``room`` units of the budget unspent, a set of moves whose cost changes sum to ``w ≤ room``
and whose losses sum to ``l`` ends ``l + price · (room - w)`` below the bound. So the search looks for a cheap
set of moves that fills the room. Moves that lose more than the best answer's distance to the bound cannot help,
and there are few others: a dynamic programme over their queries, pruned by that distance, finds the optimum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._compiled import kernel
from occamroute.knapsack._kernels import tie_keys

__all__ = ["Moves", "search"]

# Thousands of queries can have the same kind of move (same cost, same loss), and the fifth adds less than the
# first of another kind: so many copies of every kind come first, then so many. Further ones are only worth much
# time where values have a common step, so that a proof is near.
COPIES = (4, 64)
LAYER = 1 << 15
STATES = 1 << 22
# Once the gap is small, or only copies are left, a little more work may help, but no more than that.
STATES_IN_HASTE = 1 << 18


class Moves(NamedTuple):
    """Moves away from the best choice at a price, sorted in no order."""

    row: IntArray
    option: IntArray
    loss: FloatArray
    cost: IntArray  # change of cost, in whole units


def search(
    moves: Moves, *, room: int, price: float, enough: float, close: float, least_gain: float, tie: float, stepped: bool, seed: int
) -> tuple[IntArray, bool]:
    """The moves to make (positions in ``moves``), and whether they are proved best of all the moves given.

    ``enough`` is the distance to the bound at which to stop, ``close`` the one from which on little effort
    is made, ``least_gain`` what a better choice is better by at least,
    ``tie`` a difference that may be mere rounding, ``stepped`` whether values have a common step.
    """
    if moves.row.size == 0:
        return np.empty(0, np.int64), True
    order, starts, least, patient = _by_query(moves, seed)
    # The least loss of any query that comes later: when it is no less than the gap, nothing can help.
    future = np.append(np.minimum.accumulate(least[::-1])[::-1], np.inf)
    taken, proved = _programme(
        moves.loss[order], moves.cost[order], starts, future, room, price, enough, close, least_gain, tie,
        least.size if stepped else patient, LAYER, STATES, STATES_IN_HASTE,
    )  # fmt: skip
    return order[taken], bool(proved)


def _by_query(moves: Moves, seed: int) -> tuple[IntArray, IntArray, FloatArray, int]:
    """Moves grouped by query, queries in the order of the search: positions, starts, least losses.

    Last, the number of queries that are not mere further copies.
    """
    by_row = np.lexsort((moves.loss, moves.row))
    rows = moves.row[by_row]
    first = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
    least = moves.loss[by_row[first]]
    cost = moves.cost[by_row[first]]
    order = np.lexsort((tie_keys(rows[first], seed), cost, least))
    # The place of each query among those whose best move is of the same kind.
    same = (np.diff(least[order]) == 0.0) & (np.diff(cost[order]) == 0)
    position = np.arange(order.size)
    copy = position - np.maximum.accumulate(np.where(np.append(False, same), 0, position))
    turn = np.searchsorted(COPIES, copy, side="right")
    order = order[np.argsort(turn, kind="stable")]
    lengths = np.diff(np.append(first, rows.size))[order]
    starts = np.append(0, np.cumsum(lengths))
    offsets = np.repeat(first[order] - starts[:-1], lengths)
    return by_row[offsets + np.arange(starts[-1])], starts, least[order], int(np.count_nonzero(turn < len(COPIES)))


@kernel()
def _programme(
    loss: Any, cost: Any, starts: Any, future: Any, room: int, price: float, enough: float, close: float,
    least_gain: float, tie: float, patient: int, layer: int, most: int, most_in_haste: int,
) -> Any:  # fmt: skip
    """States (change of cost, change of value) query by query, undominated and within the gap."""
    parent = np.empty(1 << 12, np.int32)
    move = np.empty(1 << 12, np.int32)
    layers = np.zeros(starts.size + 1, np.int64)
    weights = np.zeros(1, np.int64)
    profits = np.zeros(1, np.float64)
    parent[0] = 0
    move[0] = -1
    stored = 1
    layers[1] = 1
    best = 0.0  # the highest change of value within the room
    best_layer = 0
    best_state = 0
    whole = True
    depth = 0
    ceiling = price * room
    while depth < starts.size - 1:
        gap = ceiling - best
        if gap <= enough:
            whole = False
            break
        if future[depth] > gap - least_gain:
            break
        if stored > most or ((gap <= close or depth >= patient) and stored > most_in_haste):
            whole = False
            break
        first = starts[depth]
        options = starts[depth + 1] - first
        size = weights.size
        new_weights = np.empty(size * (options + 1), np.int64)
        new_profits = np.empty(size * (options + 1), np.float64)
        if stored + new_weights.size > parent.size:
            parent = np.append(parent, np.empty(parent.size + new_weights.size, np.int32))
            move = np.append(move, np.empty(move.size + new_weights.size, np.int32))
        # Merge the states as they are with the states after each move, cheapest first.
        pointer = np.zeros(options + 1, np.int64)
        count = 0
        highest = -np.inf
        while True:
            pick = -1
            lightest = np.int64(0)
            for option in range(options + 1):
                if pointer[option] < size:
                    weight = weights[pointer[option]]
                    if option > 0:
                        weight += cost[first + option - 1]
                    if pick < 0 or weight < lightest:
                        pick = option
                        lightest = weight
            if pick < 0:
                break
            source = pointer[pick]
            pointer[pick] += 1
            profit = profits[source]
            if pick > 0:
                profit += price * cost[first + pick - 1] - loss[first + pick - 1]
            if profit <= highest + tie or price * lightest - profit > gap - least_gain:
                continue
            if count > 0 and new_weights[count - 1] == lightest:
                count -= 1  # same cost, higher value
            highest = profit
            new_weights[count] = lightest
            new_profits[count] = profit
            parent[stored + count] = source
            move[stored + count] = pick - 1
            count += 1
        if count > layer:
            whole = False
            count = _narrow(new_weights, new_profits, parent, move, stored, count, layer, price)
        depth += 1
        for state in range(count):
            if new_weights[state] <= room and new_profits[state] > best + tie:
                best = new_profits[state]
                best_layer = depth
                best_state = state
        weights = new_weights[:count].copy()
        profits = new_profits[:count].copy()
        stored += count
        layers[depth + 1] = stored
        if count == 0:
            break
    taken = np.empty(best_layer, np.int64)
    count = 0
    state = best_state
    for level in range(best_layer, 0, -1):
        at = layers[level] + state
        if move[at] >= 0:
            taken[count] = starts[level - 1] + move[at]
            count += 1
        state = parent[at]
    return taken[:count], whole


@kernel()
def _narrow(
    weights: Any, profits: Any, parent: Any, move: Any, stored: int, count: int, keep: int, price: float
) -> int:
    """Keep the states that have lost least, in their order; returns how many."""
    losses = price * weights[:count] - profits[:count]
    limit = np.partition(losses, keep)[keep]
    kept = 0
    for state in range(count):
        if losses[state] < limit:
            weights[kept] = weights[state]
            profits[kept] = profits[state]
            parent[stored + kept] = parent[stored + state]
            move[stored + kept] = move[stored + state]
            kept += 1
    return kept
