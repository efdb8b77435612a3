"""The frontier of estimates that are not held: steps summed up by their slope."""

from __future__ import annotations

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.knapsack.passes import Ladder, Rules, ladder
from occamroute.knapsack.streamed import Blocks, LargeProblem
from occamroute.planning.frontiers import Frontier

__all__ = ["frontier_of"]


def frontier_of(problem: LargeProblem, rules: Rules, blocks: Blocks, taken_off: FloatArray | None) -> Frontier:
    """Points after all steps of nearly one slope: each is supported, the optimum at its own cost."""
    rungs = _joined(list(blocks.over(ladder, (rules, taken_off))))
    queries = problem.shape[0]
    cost = problem.cheapest + rungs.base_cost + np.append(0, np.cumsum(rungs.cost))
    values = (rungs.base_value + np.append(0.0, np.cumsum(rungs.value))) / queries
    success = (rungs.base_success + np.append(0.0, np.cumsum(rungs.success))) / queries
    return Frontier(
        budgets=problem.units.floats(cost + problem.units.overhead * queries),
        accuracies=success,
        prices=np.append(rungs.steepest, 0.0) / float(problem.units.size),
        values=values,
        n_queries=queries,
        least=problem.total(problem.cheapest),
    )


def _joined(parts: list[Ladder]) -> Ladder:
    """All rungs of all blocks, those of one key together, added in the order of the blocks."""
    keys, inverse = np.unique(np.concatenate([one.keys for one in parts]), return_inverse=True)
    cost = np.zeros(keys.size, np.int64)
    value, success, steepest = np.zeros(keys.size), np.zeros(keys.size), np.zeros(keys.size)
    np.add.at(cost, inverse, np.concatenate([one.cost for one in parts]))
    np.add.at(value, inverse, np.concatenate([one.value for one in parts]))
    np.add.at(success, inverse, np.concatenate([one.success for one in parts]))
    np.maximum.at(steepest, inverse, np.concatenate([one.steepest for one in parts]))
    return Ladder(
        keys, cost, value, success, steepest,
        sum(one.base_cost for one in parts),
        float(np.sum([one.base_value for one in parts])),
        float(np.sum([one.base_success for one in parts])),
    )  # fmt: skip
