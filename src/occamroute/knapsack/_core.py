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
from occamroute._compiled import kernel, quickselect
from occamroute.knapsack._kernels import tie_keys

__all__ = ["Moves", "Target", "search"]

# Thousands of queries can have the same kind of move (same cost, same loss), and the fifth adds less than the
# first of another kind: so many copies of every kind come first, then so many. Further ones are only worth
# their time where values have a common step, so that a proof is near.
COPIES = (4, 64)
# States kept from one query to the next, and states stored in all: once the gap is small or only copies are left,
# before that, and where a common step brings a proof near.
LAYER = 1 << 15
STATES_IN_HASTE, STATES, STATES_FOR_A_PROOF = 1 << 18, 1 << 20, 1 << 22


class Moves(NamedTuple):
    """Moves away from the best choice at a price, in no order."""

    row: IntArray
    option: IntArray
    loss: FloatArray
    cost: IntArray  # change of cost, in whole units


class Target(NamedTuple):
    """When a search may stop.

    ``enough`` is the distance to the bound at which to stop, ``close`` the one from which on little effort is
    made, ``least_gain`` what a better choice is better by at least, ``tie`` a difference between totals that counts as
    none, ``rounding`` one that rounding may make, and ``stepped`` whether values have a common step.
    """

    enough: float
    close: float
    least_gain: float
    tie: float
    rounding: float
    stepped: bool


class Queries(NamedTuple):
    """Moves grouped by query, in the order of the search: query q's are ``starts[q]`` to ``starts[q + 1]``."""

    position: IntArray  # in the moves given
    loss: FloatArray
    cost: IntArray
    starts: IntArray
    least: FloatArray  # the least loss of each query

    def part(self, queries: IntArray) -> Queries:
        """Some of the queries, in the order given."""
        lengths = np.diff(self.starts)[queries]
        starts = np.append(0, np.cumsum(lengths))
        at = np.repeat(self.starts[:-1][queries] - starts[:-1], lengths) + np.arange(starts[-1])
        return Queries(self.position[at], self.loss[at], self.cost[at], starts, self.least[queries])


def search(moves: Moves, *, room: int, price: float, target: Target, seed: int) -> tuple[IntArray, bool]:
    """The moves to make (positions in ``moves``), and whether they are proved best of all the moves given."""
    if moves.row.size == 0:
        return np.empty(0, np.int64), True
    queries, kinds = _by_query(moves, target.rounding, seed)
    # The least loss of any query that comes later: when it is more than could be lost, nothing can help.
    future = np.append(np.minimum.accumulate(queries.least[::-1])[::-1], np.inf)
    patient = queries.least.size if target.stepped else kinds
    parent, move, layers, best_layer, best_state, whole = _grow(
        queries.loss, queries.cost, queries.starts, future, room, price,
        target.enough, target.close, target.least_gain, target.tie, target.rounding, patient,
        LAYER, STATES_IN_HASTE, STATES_FOR_A_PROOF if target.stepped else STATES,
    )  # fmt: skip
    return queries.position[_trace(parent, move, layers, queries.starts, best_layer, best_state)], bool(whole)


def _by_query(moves: Moves, rounding: float, seed: int) -> tuple[Queries, int]:
    """Queries by their least loss, no kind of move before the others; and how many are not mere further copies."""
    by_row = np.lexsort((moves.loss, moves.row))
    rows = moves.row[by_row]
    first = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
    least, cost = moves.loss[by_row[first]], moves.cost[by_row[first]]
    plain = Queries(by_row, moves.loss[by_row], moves.cost[by_row], np.append(first, rows.size), least)
    shuffled = tie_keys(rows[first], seed)
    # The place of each query among those whose best move is of the same kind.
    order = np.lexsort((shuffled, cost, least))
    same = (np.diff(least[order]) == 0.0) & (np.diff(cost[order]) == 0)
    place = np.arange(order.size)
    turn = np.empty(order.size, np.int64)
    copy = place - np.maximum.accumulate(np.where(np.append(False, same), 0, place))
    turn[order] = np.searchsorted(COPIES, copy, side="right")
    # Among equal losses, those that differ by rounding alone too, moves up and down must come in turns.
    order = np.lexsort((shuffled, np.where(least < 1000.0 * rounding, 0.0, least), turn))
    return plain.part(order), int(np.count_nonzero(turn < len(COPIES)))


@kernel()
def _grow(
    loss: Any, cost: Any, starts: Any, future: Any, room: int, price: float, enough: float, close: float,
    least_gain: float, tie: float, rounding: float, patient: int, layer: int, most_in_haste: int, most: int,
) -> Any:  # fmt: skip
    """States (change of cost, change of value) query by query, undominated and within the gap to the bound."""
    parent = np.zeros(1 << 12, np.int32)
    move = np.full(1 << 12, -1, np.int32)
    layers = np.zeros(starts.size + 1, np.int64)  # where each layer starts; the first holds one empty state
    layers[1] = stored = 1
    weights = np.zeros(1, np.int64)
    profits = np.zeros(1, np.float64)
    best = 0.0  # the highest change of value within the room
    best_layer = best_state = 0
    whole = True
    for depth in range(starts.size - 1):
        gap = price * room - best
        if future[depth] > gap - least_gain:
            break
        hasty = gap <= close or depth >= patient
        if gap <= enough or stored > (most_in_haste if hasty else most):
            whole = False
            break
        first = starts[depth]
        options = starts[depth + 1] - first
        size = weights.size
        new_weights = np.empty(size * (options + 1), np.int64)
        new_profits = np.empty(size * (options + 1), np.float64)
        if stored + new_weights.size > parent.size:
            parent = _longer(parent, 2 * parent.size + new_weights.size)
            move = _longer(move, parent.size)
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
            count = _narrow(new_weights, new_profits, parent, move, stored, count, layer, price, rounding)
        for state in range(count):
            if new_weights[state] <= room and new_profits[state] > best + tie:
                best = new_profits[state]
                best_layer = depth + 1
                best_state = state
        if count == 0:
            break
        weights = new_weights[:count].copy()
        profits = new_profits[:count].copy()
        stored += count
        layers[depth + 2] = stored
    return parent, move, layers, best_layer, best_state, whole


@kernel()
def _narrow(
    weights: Any,
    profits: Any,
    parent: Any,
    move: Any,
    stored: int,
    count: int,
    keep: int,
    price: float,
    rounding: float,
) -> int:
    """Keep the states that have lost least, in their order, and of equals some all along; returns how many."""
    losses = price * weights[:count] - profits[:count]
    for state in range(count):  # what is lost to rounding alone would favour small sums
        if losses[state] < 1000.0 * rounding:
            losses[state] = 0.0
    limit = quickselect(losses.copy(), count, keep)
    below = equal = 0
    for state in range(count):
        below += losses[state] < limit
        equal += losses[state] == limit
    kept = seen = 0
    for state in range(count):
        if losses[state] == limit:
            seen += 1
        # Every so many of the equal ones, so that those kept are spread over all weights.
        spread = losses[state] == limit and seen * (keep - below) // equal > (seen - 1) * (keep - below) // equal
        if losses[state] < limit or spread:
            weights[kept] = weights[state]
            profits[kept] = profits[state]
            parent[stored + kept] = parent[stored + state]
            move[stored + kept] = move[stored + state]
            kept += 1
    return kept


@kernel()
def _longer(array: Any, size: int) -> Any:
    """The array with room for more; numpy's own function takes seconds to compile."""
    result = np.empty(size, np.int32)
    for i in range(array.size):
        result[i] = array[i]
    return result


@kernel()
def _trace(parent: Any, move: Any, layers: Any, starts: Any, layer: int, state: int) -> Any:
    """The moves that lead to a state of a layer."""
    taken = np.empty(layer, np.int64)
    count = 0
    for level in range(layer, 0, -1):
        at = layers[level] + state
        if move[at] >= 0:
            taken[count] = starts[level - 1] + move[at]
            count += 1
        state = parent[at]
    return taken[:count]
