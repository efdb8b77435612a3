"""Wholes: what is kept in a folder of parts, as the ordinary plan or run that a page is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute.errors import InvalidInputError
from occamroute.execution.block_runs import in_memory
from occamroute.execution.stored_runs import StoredRun
from occamroute.knapsack import Problem
from occamroute.planning.plans import NUMBERS, Plan
from occamroute.planning.stored_plans import StoredPlan

__all__ = ["whole"]

# A page looks at all queries at once: so many fit a small machine, with their ids and a value for each classifier.
MOST = 2_000_000


def whole(noun: Any) -> Any:
    """The same in memory; whatever is no folder's is given back as it is."""
    if not isinstance(noun, StoredPlan | StoredRun):
        return noun
    if len(noun) > MOST:
        kind = "plan" if isinstance(noun, StoredPlan) else "run"
        raise InvalidInputError(
            f"a page is made of at most {MOST:,} queries, and this {kind} has {len(noun):,}: "
            f"look at it block by block in Python (`oc.load(…).block(0)`)."
        )
    return _plan(noun) if isinstance(noun, StoredPlan) else in_memory(noun, None)


def _plan(stored: StoredPlan) -> Plan:
    blocks = [stored.block(number) for number in range(stored.n_blocks)]
    large = stored.problem
    return Plan(
        ids=tuple(name for block in blocks for name in block.ids),
        names=stored.names,
        choice=np.concatenate([block.choice for block in blocks]),
        budget=stored.budget,
        accuracy_interval=stored.accuracy_interval,
        success=np.concatenate([block.success for block in blocks]),
        status=stored.status,
        weights=stored.weights,
        problem=Problem(
            np.concatenate([block.problem.value for block in blocks]),
            large.cost, large.budget, large.objective, large.overhead,
        ),
        made_from=stored.made_from,
        **{name: getattr(stored, name) for name in NUMBERS},
    )  # fmt: skip
