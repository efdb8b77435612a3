"""Each classifier's probability of success on a query, estimated from labelled ones; one strategy a file."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from typing import Any

from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.estimation.bagged import BaggedNeighbors
from occamroute.estimation.base import Estimator
from occamroute.estimation.forest import ContrastForest, Forest
from occamroute.estimation.kernel import KernelRidge
from occamroute.estimation.mixture import Mixture
from occamroute.estimation.ordered import Ordered
from occamroute.estimation.sampled import SampledNeighbors

__all__ = [
    "BaggedNeighbors",
    "ContrastForest",
    "Estimator",
    "Forest",
    "KernelRidge",
    "Mixture",
    "Ordered",
    "SampledNeighbors",
    "make_estimator",
]

ESTIMATORS: dict[str, Callable[[], Estimator]] = {
    "sampled": SampledNeighbors,
    "bagged": BaggedNeighbors,
    "forest": Forest,
    "forest_regularized": partial(Forest, regularized=True),
    "contrast_forest": ContrastForest,
    "kernel": KernelRidge,
    "mixture": Mixture,
}


def make_estimator(estimator: str | Any) -> Any:
    """A fresh estimator: one of ours by name, one that another package registers, or a copy of the object given."""
    if isinstance(estimator, str):
        if estimator in ESTIMATORS:
            return ESTIMATORS[estimator]()
        others = {entry.name: entry for entry in entry_points(group="occamroute.estimators")}
        if estimator not in others:
            raise UnknownNameError("estimator", estimator, [*ESTIMATORS, *others])
        return others[estimator].load()()
    if not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
        raise InvalidInputError(f"an estimator needs fit and predict, got {type(estimator).__name__}.")
    return copy.deepcopy(estimator)
