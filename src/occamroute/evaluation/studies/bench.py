"""One portfolio on the bench: its budgets, its estimates, and what plans made from them really reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from occamroute._arrays import FloatArray, generator
from occamroute._money import exact
from occamroute.errors import BudgetTooSmallError
from occamroute.estimation import Mixture, SampledNeighbors, make_estimator
from occamroute.estimation.forest import Forest
from occamroute.evaluation.studies.subjects import Subject
from occamroute.planning.estimates import Estimate, charged, estimate, predicted
from occamroute.profiles import Profile

__all__ = ["Bench", "Tick"]

Tick = Callable[[], None]
Size = TypeVar("Size")
# Budgets as shares of always using the dearest: cost reductions of the paper's tables, and small ones.
SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 0.9, 1.0)
QUICK_SHARES = (0.1, 0.2, 0.6, 0.8, 0.9)
QUICK_ROWS, QUICK_QUERIES = 1200, 300
# Rows times features that a forest may learn from: a hundred trees on 40,000 × 200 take eight minutes on two cores.
FOREST_NUMBERS = 2_000_000


@dataclass(eq=False)
class Bench:
    """One portfolio, the sizes to use, and what several studies share of the work.

    ``quick`` takes part of the rows, for tests and a first look. ``tick`` is called as work goes on.
    """

    subject: Subject
    seed: int = 0
    quick: bool = False
    tick: Tick = field(default=lambda: None, repr=False)
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
    def profile_rows(self) -> Any:
        """Numbers of the rows that are used, (n,)."""
        return self._rows(len(self.subject.profile), QUICK_ROWS)

    @cached_property
    def test_rows(self) -> Any:
        """Numbers of the queries that are used, (N,)."""
        return self._rows(len(self.subject.test), QUICK_QUERIES)

    def _rows(self, rows: int, quick: int) -> Any:
        if not self.quick or rows <= quick:
            return np.arange(rows)
        return np.sort(generator(self.seed).permutation(rows)[:quick])

    @staticmethod
    def _part(profile: Profile, rows: Any) -> Profile:
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
        """A share of what always using the dearest costs, exactly."""
        return exact(share) * exact(float(self.profile.mean_costs.max())) * (queries or len(self.test))

    def paper(self, metric: str = "linf", extractor: str | None = None, **knobs: Any) -> Estimate:
        """The paper's estimate for the queries, by default from 40 samples that use up the rows."""
        made = SampledNeighbors(metric=metric, **knobs)
        return self.estimate(made, extractor=extractor, sigma="error")

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
        profile, test = profile or self.profile, test or self.test
        name = extractor or self.extractor
        knobs = estimator if isinstance(estimator, str) else (type(estimator), repr(sorted(vars(estimator).items())))
        key = ("estimate", knobs, name, sigma, profile.fingerprint, test.fingerprint)
        if key not in self._kept:
            self._kept[key] = self._estimated(estimator, profile, test.feature_sets[name], name, sigma)
            self.tick()
        return self._kept[key]  # type: ignore[no-any-return]

    def _estimated(
        self, estimator: Any, profile: Profile, queries: FloatArray, extractor: str, sigma: str | None
    ) -> Estimate:
        if sigma is not None:
            kind: Any = sigma
            return estimate(profile, queries, estimator=estimator, extractor=extractor, sigma=kind, seed=self.seed)
        made = make_estimator(estimator)
        made.fit(profile.feature_sets[extractor], profile.success)
        success, distance = predicted(made, queries, len(profile.names))
        looks = extractor if getattr(made, "looks_at_features", True) else None
        costs, overhead = charged(profile, looks, None, len(queries))
        return Estimate(profile.names, costs, success, np.zeros(len(profile.names)), overhead, distance)

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
        costs, overhead = charged(test, None, None, len(test))
        return Estimate(test.names, costs, test.success, np.zeros(len(test.names)), overhead)

    def reached(
        self, made: Estimate, share: float, *, penalty: float = 0.0, test: Profile | None = None
    ) -> float | None:
        """The accuracy that the plan at a budget really reaches; None where the budget answers nothing."""
        test = test or self.test
        try:
            plan = made.plan(self.budget(share, len(test)), penalty=penalty, seed=self.seed)
        except BudgetTooSmallError:
            return None
        return float(test.success[np.arange(len(test)), plan.choice].mean())

    def curve(self, made: Estimate, shares: Sequence[float], **knobs: Any) -> dict[float, float]:
        """The accuracy reached at each budget that answers every query."""
        found = {share: self.reached(made, share, **knobs) for share in shares}
        return {share: accuracy for share, accuracy in found.items() if accuracy is not None}

    def compared_paper(self, metric: str = "linf", extractor: str | None = None) -> list[dict[str, Any]]:
        """The rows of ``compare`` for the paper's method, its penalty tuned on held-out rows."""
        name = extractor or self.extractor
        return self.compared(f"paper {metric} {name}", SampledNeighbors(metric=metric), extractor=name)

    def compared(self, label: str, method: Any, *, extractor: str | None = None) -> list[dict[str, Any]]:
        """The rows of ``compare`` for one method at all budgets, with its difference from the best mixture."""
        key = ("compared", label, repr(method), extractor)
        if key not in self._kept:
            self._kept[key] = self._compare(label, method, extractor)
            self.tick()
        return self._kept[key]  # type: ignore[no-any-return]

    def _compare(self, label: str, method: Any, extractor: str | None) -> list[dict[str, Any]]:
        from occamroute.evaluation.comparing import compare

        methods = {"mixture": "mixture", label: method}
        report = compare(
            self.profile, self.test, budgets=[self.budget(share) for share in self.shares], methods=methods,
            reference="mixture", extractor=extractor, seed=self.seed,
        )  # fmt: skip
        return [dict(row) for row in report.rows if row["method"] == label]
