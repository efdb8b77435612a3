"""One profile, some budgets: what occamroute's plans really reach beside doing without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from occamroute._intervals import mean_bounds
from occamroute._money import exact
from occamroute.errors import InvalidInputError
from occamroute.evaluation.comparing import compare, dearest_total
from occamroute.planning.fitting import Progress
from occamroute.profiles import Profile

__all__ = ["Sweep", "SweepRow", "sweep"]


@dataclass(frozen=True)
class SweepRow:
    """What one method really reached: ``budget`` and ``cost_share`` are fractions of always using the dearest."""

    method: str
    budget: float
    accuracy: float
    cost: float
    cost_share: float
    expected_accuracy: float | None = None
    accuracy_interval: tuple[float, float] | None = None
    gap: float | None = None
    chosen: str | None = None
    usage: dict[str, int] | None = None
    accuracy_bounds: tuple[float, float] | None = None


@dataclass(frozen=True)
class Sweep:
    """All rows, and what each classifier alone would reach and cost."""

    rows: tuple[SweepRow, ...]
    names: tuple[str, ...]
    shares: tuple[float, ...]
    accuracies: tuple[float, ...]
    bounds: tuple[tuple[float, float], ...]
    n_profile: int
    n_queries: int

    def of(self, method: str) -> list[SweepRow]:
        """The rows of one method, by budget."""
        return [row for row in self.rows if row.method == method]


def sweep(
    profile: Profile,
    test: Profile,
    *,
    fractions: Sequence[float],
    seed: int = 0,
    progress: Progress | None = None,
) -> Sweep:
    """Plan ``test`` at fractions of always using the dearest, and look up what the plans really reach.

    The methods: always the cheapest, always the dearest, the best mixture that looks at no features, occamroute,
    and the oracle, which knows each answer beforehand and so bounds them all. Nothing but the oracle sees the
    test rows' success.
    """
    full = dearest_total(test)
    if not full:
        raise InvalidInputError("budgets are shares of the dearest classifier's cost, and all cost nothing.")
    budgets = {exact(fraction) * full: fraction for fraction in fractions}
    report = compare(profile, test, budgets=budgets, methods={"occamroute": "auto"}, seed=seed, progress=progress)
    named = {float(budget): fraction for budget, fraction in budgets.items()}
    fields = set(SweepRow.__dataclass_fields__) - {"budget"}
    rows = [
        SweepRow(budget=named[row["budget"]], **{name: value for name, value in row.items() if name in fields})
        for row in sorted(report.rows, key=lambda row: float(row["budget"]))
    ]
    costs = profile.mean_costs
    cheapest, dearest = (
        _single(profile, test, method, int(column), float(full))
        for method, column in (("cheapest", costs.argmin()), ("dearest", test.dearest))
    )
    shares = tuple((costs / costs.max()).tolist())
    every = (cheapest, *rows, dearest)
    bounds = tuple((low, high) for low, high in mean_bounds(test.success, test.blocks).tolist())
    return Sweep(every, profile.names, shares, tuple(test.accuracy.tolist()), bounds, len(profile), len(test))


def _single(profile: Profile, test: Profile, method: str, column: int, full: float) -> SweepRow:
    cost = float(exact(float(profile.mean_costs[column])) * len(test))
    ((low, high),) = mean_bounds(test.success[:, [column]], test.blocks)
    return SweepRow(
        method=method,
        budget=cost / full,
        accuracy=float(test.success[:, column].mean()),
        cost=cost,
        cost_share=cost / full,
        chosen=profile.names[column],
        accuracy_bounds=(float(low), float(high)),
    )
