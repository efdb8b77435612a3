"""One portfolio on the bench: its budgets, its estimates, and what plans made from them really reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from occamroute._arrays import FloatArray, IntArray, generator
from occamroute._intervals import QUANTILE
from occamroute._money import exact
from occamroute.errors import BudgetTooSmallError
from occamroute.estimation import Mixture, SampledNeighbors, make_estimator
from occamroute.estimation.forest import Forest
from occamroute.evaluation.comparing import compare, dearest_total
from occamroute.evaluation.studies.subjects import Subject
from occamroute.planning.estimates import Estimate, charged, estimate, predicted
from occamroute.planning.plans import Plan
from occamroute.profiles import Profile

__all__ = ["Bench", "Row"]

Row = dict[str, Any]
Size = TypeVar("Size")
# Budgets as shares of always using the dearest: cost reductions of the paper's tables, and small ones.
SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 0.9, 1.0)
QUICK_SHARES = (0.1, 0.2, 0.6, 0.8, 0.9, 1.0)
QUICK_ROWS, QUICK_QUERIES = 800, 250
# Rows times features that a forest may learn from: a hundred trees on 40,000 × 200 take eight minutes on two cores.
FOREST_NUMBERS = 2_000_000
# The λ that the paper's method is tuned over; the paper publishes 5 and 100.
PENALTIES = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 100.0)
HELD_OUT = 4000


@dataclass(eq=False)
class Bench:
    """One portfolio, the sizes to use, and what several studies share of the work.

    ``quick`` takes part of the rows, for tests and a first look.
    """

    subject: Subject
    seed: int = 0
    quick: bool = False
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def size(self, full: Size, quick: Size) -> Size:
        """One of two sizes."""
        return quick if self.quick else full

    @cached_property
    def profile(self) -> Profile:
        """The labelled rows to estimate from."""
        return self._part(self.subject.profile, self.profile_rows)

    @cached_property
    def test(self) -> Profile:
        """The queries to judge on."""
        return self._part(self.subject.test, self.test_rows)

    @cached_property
    def profile_rows(self) -> IntArray:
        """Numbers of the rows that are used, (n,)."""
        return self._rows(len(self.subject.profile), QUICK_ROWS)

    @cached_property
    def test_rows(self) -> IntArray:
        """Numbers of the queries that are used, (N,)."""
        return self._rows(len(self.subject.test), QUICK_QUERIES)

    def _rows(self, rows: int, quick: int) -> IntArray:
        if not self.quick or rows <= quick:
            return np.arange(rows)
        return np.sort(generator(self.seed).permutation(rows)[:quick])

    @staticmethod
    def _part(profile: Profile, rows: IntArray) -> Profile:
        return profile if rows.size == len(profile) else profile.take(rows)

    @cached_property
    def extractor(self) -> str:
        """The features used unless a study asks for others: the profile's own, else the cheapest."""
        costs = self.profile.extraction_costs
        return self.profile.extractor or min(costs, key=lambda name: exact(costs[name]))

    @cached_property
    def paper_size(self) -> int:
        """The size of a sample when 40 of them use up the rows, as in the paper."""
        return max(1, len(self.profile) // 40)

    @property
    def shares(self) -> Sequence[float]:
        """Budgets, as shares of always using the dearest."""
        return self.size(SHARES, QUICK_SHARES)

    def budget(self, share: float, queries: int | None = None) -> Fraction:
        """A share of what always using the dearest costs for the test queries, or for another number of them."""
        full = dearest_total(self.test)
        return exact(share) * (full if queries is None else full * queries / len(self.test))

    def paper(self, metric: str = "linf", extractor: str | None = None, **knobs: Any) -> Estimate:
        """The paper's estimate for the queries, by default from 40 samples that use up the rows."""
        return self.estimate(SampledNeighbors(metric=metric, **knobs), extractor=extractor, sigma="error")

    def estimate(
        self,
        estimator: Any,
        *,
        extractor: str | None = None,
        sigma: str | None = None,
        profile: Profile | None = None,
        test: Profile | None = None,
    ) -> Estimate:
        """The estimate for the queries; without ``sigma`` its spread is not measured, which takes another fit."""
        profile = profile or self.profile
        test = test or (self.test if profile.names == self.test.names else self.test.select(profile.names))
        name = extractor or self.extractor
        knobs = type(estimator), repr(sorted(vars(estimator).items()))
        key = (knobs, name, sigma, profile.fingerprint, test.fingerprint)
        if key not in self._kept:
            self._kept[key] = self._estimated(estimator, profile, test, name, sigma)
        made: Estimate = self._kept[key]
        return made

    def _estimated(
        self, estimator: Any, profile: Profile, test: Profile, extractor: str, sigma: str | None
    ) -> Estimate:
        queries, costs = test.feature_sets[extractor], _own_costs(profile, test)
        if sigma is not None:
            kind: Any = sigma
            return estimate(
                profile, queries, estimator=estimator, extractor=extractor, sigma=kind, seed=self.seed, costs=costs
            )
        made = make_estimator(estimator)
        made.fit(profile.feature_sets[extractor], profile.success)
        success, distance = predicted(made, queries, len(profile.names))
        looks = extractor if getattr(made, "looks_at_features", True) else None
        own, overhead = charged(profile, looks, costs, len(queries))
        return Estimate(profile.names, own, success, np.zeros(len(profile.names)), overhead, distance)

    def mixture(self, profile: Profile | None = None, test: Profile | None = None) -> Estimate:
        """No features: each classifier's overall accuracy."""
        profile = profile or self.profile
        return self.estimate(Mixture(), extractor=next(iter(profile.feature_sets)), profile=profile, test=test)

    def forest(self, extractor: str | None = None) -> Estimate:
        """FrugalMCT's estimate for the queries, from ``forest_rows`` of the rows."""
        name = extractor or self.extractor
        rows = self.forest_rows(name)
        part = self.profile
        if rows < len(part):
            part = part.take(np.sort(generator(self.seed).permutation(len(part))[:rows]))
        return self.estimate(Forest(seed=self.seed), extractor=name, profile=part)

    def forest_rows(self, extractor: str) -> int:
        """How many rows FrugalMCT's forest learns from: fewer where features are many, to end within minutes."""
        width = int(self.profile.feature_sets[extractor].shape[1])
        return min(len(self.profile), max(1000, FOREST_NUMBERS // width))

    def oracle(self, test: Profile | None = None) -> Estimate:
        """True success, and no features to pay for."""
        test = test or self.test
        costs, overhead = charged(test, None, test.costs, len(test))
        return Estimate(test.names, costs, test.success, np.zeros(len(test.names)), overhead)

    def plan(self, made: Estimate, share: float, *, penalty: float = 0.0) -> Plan | None:
        """The plan at a budget; None where the budget does not answer every query."""
        try:
            return made.plan(self.budget(share, len(made)), penalty=penalty, seed=self.seed)
        except BudgetTooSmallError:
            return None

    def curve(
        self, made: Estimate, shares: Sequence[float], *, penalty: float = 0.0, test: Profile | None = None
    ) -> dict[float, float]:
        """The accuracy that plans really reach at each budget that answers every query."""
        test = test or self.test
        plans = {share: self.plan(made, share, penalty=penalty) for share in shares}
        return {share: float(outcome(made, plan, test).mean()) for share, plan in plans.items() if plan is not None}

    def rows(self, made: Estimate, penalties: dict[float, float] | None = None) -> list[Row]:
        """A row for each budget that answers every query, as ``compare`` gives them."""
        found = []
        for share in self.shares:
            penalty = (penalties or {}).get(share, 0.0)
            plan, other = self.plan(made, share, penalty=penalty), self.plan(self.mixture(), share)
            if plan is None or other is None:
                continue
            reached = outcome(made, plan, self.test)
            gain = reached - outcome(self.mixture(), other, self.test)
            error = QUANTILE * float(gain.std()) / len(gain) ** 0.5
            mean = float(gain.mean())
            found.append({
                "budget": float(plan.budget), "budget_share": share, "accuracy": float(reached.mean()),
                "cost_share": plan.planned_cost / float(self.budget(1.0)), "usage": plan.usage, "difference": mean,
                "difference_interval": (mean - error, mean + error), "chosen": f"penalty {penalty:g}",
            })  # fmt: skip
        return found

    def paper_rows(self, metric: str = "linf", extractor: str | None = None) -> list[Row]:
        """The rows of the paper's method, its penalty at each budget tuned on held-out rows of the profile."""
        key = ("paper", metric, extractor)
        if key not in self._kept:
            penalties = self._tuned(metric, extractor or self.extractor)
            self._kept[key] = self.rows(self.paper(metric, extractor), penalties)
        rows: list[Row] = self._kept[key]
        return rows

    def _tuned(self, metric: str, extractor: str) -> dict[float, float]:
        """The penalty that reaches the most at each budget on rows that took no part in the estimate."""
        share = min(HELD_OUT, len(self.profile) // 4) / len(self.profile)
        rest, held = self.profile.split(1.0 - share, seed=self.seed)
        made = estimate(
            rest, held.feature_sets[extractor], estimator=SampledNeighbors(metric=metric), extractor=extractor,
            seed=self.seed, costs=_own_costs(rest, held),
        )  # fmt: skip
        reached = {penalty: self.curve(made, self.shares, penalty=penalty, test=held) for penalty in PENALTIES}
        return {budget: max(PENALTIES, key=lambda penalty: reached[penalty][budget]) for budget in reached[0.0]}

    def compared(self, method: str) -> list[Row]:
        """The rows of ``compare`` for one of its methods at all budgets, with its difference from the mixture."""
        if method not in self._kept:
            report = compare(
                self.profile, self.test, budgets=[self.budget(share) for share in self.shares], methods=(method,),
                extractor=self.extractor, seed=self.seed,
            )  # fmt: skip
            self._kept[method] = report.of(method)
        rows: list[Row] = self._kept[method]
        return rows


def outcome(made: Estimate, plan: Plan, test: Profile) -> FloatArray:
    """How right the plan is on each query, (N,); where all look alike, on average over who happens to get which."""
    if made.costs.ndim == 1 and bool((made.success == made.success[0]).all()):
        return np.asarray(test.success @ (np.bincount(plan.choice, minlength=len(plan.names)) / len(plan)))
    return np.asarray(np.take_along_axis(test.success, plan.choice[:, np.newaxis], axis=1)[:, 0])


def _own_costs(profile: Profile, test: Profile) -> FloatArray | None:
    """The test queries' costs where they are not those of the profile."""
    same = profile.costs.ndim == 1 and np.array_equal(profile.costs, test.costs)
    return None if same else test.costs
