"""Changes: what if a classifier were not there, or cost something else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._money import Amount, exact, money
from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.planning.estimates import Estimate
from occamroute.profiles import exact_means

__all__ = ["NO_CHANGES", "Changes", "changed", "extractor_of"]


@dataclass(frozen=True)
class Changes:
    """Classifiers that may not answer, and other prices of a call; equal ones are the same key of a cache."""

    dropped: frozenset[str] = frozenset()
    prices: tuple[tuple[str, Amount], ...] = ()

    @classmethod
    def of(cls, dropped: Iterable[str] = (), prices: Mapping[str, Amount] | None = None) -> Changes:
        """Changes in their one order."""
        return cls(frozenset(dropped), tuple(sorted((prices or {}).items())))


NO_CHANGES = Changes()


def extractor_of(estimate: Estimate) -> str | None:
    """Whose call or work yields the features that the estimate looked at."""
    name = estimate.made_from.get("extractor")
    return None if name is None else str(name)


def changed(estimate: Estimate, changes: Changes) -> Estimate:
    """The estimate after the changes: an ordinary one, which plans as any other.

    The price of the extractor is what extraction costs for every query; its own answer stays free, and where it is
    dropped it is paid as before but may not answer. Costs that differ by query keep their proportions.
    """
    known = {*estimate.names, *filter(None, [extractor_of(estimate)])}
    for name in sorted({*changes.dropped, *(name for name, _ in changes.prices)} - known):
        raise UnknownNameError("classifier", name, estimate.names)
    kept = [column for column, name in enumerate(estimate.names) if name not in changes.dropped]
    if not kept:
        raise InvalidInputError("at least one classifier must be left to answer.")
    costs, overhead = _priced(estimate, changes)
    return replace(
        estimate,
        names=tuple(estimate.names[column] for column in kept),
        costs=np.ascontiguousarray(costs[..., kept]),
        success=np.ascontiguousarray(estimate.success[:, kept]) if len(kept) < len(estimate.names)
        else estimate.success,
        sigma=estimate.sigma[kept],
        overhead=overhead,
        made_from={**estimate.made_from, **_words(changes)},
    )  # fmt: skip


def _priced(estimate: Estimate, changes: Changes) -> tuple[FloatArray, Amount]:
    costs, overhead = estimate.costs.copy(), estimate.overhead
    for name, price in changes.prices:
        money(price, "price")
        if name == extractor_of(estimate):
            overhead = price
            continue
        column = estimate.names.index(name)
        if costs.ndim == 1:
            costs[column] = float(price)
            continue
        mean = float(exact_means(costs[:, [column]])[0])
        costs[:, column] = float(price) if mean == 0.0 else costs[:, column] * (float(price) / mean)
    return costs, overhead


def _words(changes: Changes) -> dict[str, object]:
    """The changes for JSON, so that a plan made under them says so."""
    said: dict[str, object] = {}
    if changes.dropped:
        said["dropped"] = sorted(changes.dropped)
    if changes.prices:
        said["prices"] = {name: float(exact(price)) for name, price in changes.prices}
    return said
