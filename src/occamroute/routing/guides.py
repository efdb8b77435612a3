"""Guide: what a router looks at, and how: chosen on held-out rows, then kept while rows and classifiers change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, generator
from occamroute._money import exact
from occamroute.errors import BudgetTooSmallError, InvalidInputError, UnknownNameError
from occamroute.planning.candidates import Candidate, neighbour_candidates
from occamroute.planning.choosing import best_choice, trial
from occamroute.planning.combining import standard_error
from occamroute.planning.estimates import charged
from occamroute.planning.held_out import Folds
from occamroute.profiles import Profile

__all__ = ["AUTO", "Guide", "check_rows", "choose_guide", "least_cost"]

AUTO = "auto"
# The pool divided by the sample size: about half as many neighbours share an estimate.
SMOOTHINGS = (40, 160, 400)
# Rows that the choice is judged on.
JUDGED = 10_000
FEWEST_ROWS = 10


@dataclass(frozen=True)
class Guide:
    """How success is estimated: bagged neighbours of ``sample_size`` in an extractor's features, under a metric.

    ``belief`` is how much of their deviation from each classifier's mean is believed; ``shares`` is the extractor's
    share in the answer after each classifier, where it has one. Without an extractor no features are looked at.
    """

    extractor: str | None
    metric: str = "linf"
    sample_size: int = 1
    belief: float = 1.0
    shares: Mapping[str, float] = field(default_factory=dict)
    why: str = ""

    def state(self) -> dict[str, Any]:
        """Everything in words and numbers for JSON; ``Guide(**state)`` takes it back."""
        return asdict(self)

    def weights(self, names: tuple[str, ...]) -> FloatArray:
        """The extractor's share after each of the classifiers, (M,)."""
        return np.array([self.shares.get(name, 0.0) for name in names])


def choose_guide(
    profile: Profile,
    share: Fraction | None,
    *,
    extractor: str | None = AUTO,
    combine: bool = True,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> Guide:
    """The features and knobs whose plan is right most often on held-out rows, at ``share`` a query.

    Where the share is not known yet it is taken in the middle between the cheapest and the dearest answer.
    ``extractor`` may be prescribed, or None: no features.
    """
    check_rows(profile)
    if extractor not in (AUTO, None) and extractor not in profile.feature_sets:
        raise UnknownNameError("extractor", extractor, (AUTO, *profile.feature_sets))
    folds = Folds.draw(profile, generator(seed), most=JUDGED)
    wanted = list(profile.feature_sets) if extractor == AUTO else [extractor] if extractor is not None else []
    if share is None:
        # Features that are prescribed are paid, whatever they cost.
        prescribed = [] if extractor == AUTO else [least_cost(profile, name) for name in wanted]
        share = max([_middle(profile), *prescribed])
    payable = [name for name in wanted if least_cost(profile, name) <= share]
    if not payable and extractor not in (AUTO, None):
        raise BudgetTooSmallError(float(share), float(least_cost(profile, extractor)))
    plain = _mixture(profile, folds)
    if not payable:
        return _guide(profile, plain, "no features are looked at" if extractor is None else "no features can be paid")
    found: list[Candidate] = []
    for name in payable:
        found += neighbour_candidates(profile, name, folds, tick, combine=combine, smoothings=SMOOTHINGS)
    choice = best_choice(profile, folds, found, share, seed=seed)
    if extractor != AUTO:
        return _guide(profile, choice.candidate, choice.why)
    return _guide(profile, *_unless_clearly_worse(profile, folds, choice.candidate, plain, share, seed=seed))


def _unless_clearly_worse(
    profile: Profile, folds: Folds, looking: Candidate, plain: Candidate, share: Fraction, *, seed: int
) -> tuple[Candidate, str]:
    """What looks at features, unless the mixture is clearly better on held-out rows, and what both reached there.

    Features also tell when a query is unlike all labelled ones, so that a draw is theirs.
    """
    looked, blind = (trial(profile, folds, one, 0.0, share, seed=seed) for one in (looking, plain))
    if looked is None or blind is None:
        return (looking, "the budget pays no mixture") if blind is None else (plain, "the budget pays no features")
    gain = blind.outcome - looked.outcome
    worse = float(gain.mean()) > standard_error(gain, folds.blocks[folds.rows])
    reached = [f"{100 * one.outcome.mean():.2f} %" for one in (looked, blind)]
    return plain if worse else looking, f"on held-out rows {reached[0]} with features, {reached[1]} by the mixture"


def least_cost(profile: Profile, extractor: str | None) -> Fraction:
    """The least that a query can cost, features included, exactly."""
    own, overhead = charged(profile, extractor, None, 1)
    return exact(overhead) + min(exact(float(cost)) for cost in own)


def check_rows(profile: Profile) -> None:
    """Raise where there are too few labelled rows to decide by."""
    if len(profile) < FEWEST_ROWS or int(profile.blocks.max()) == 0:
        raise InvalidInputError(
            f"a router needs at least {FEWEST_ROWS} labelled rows, in 2 groups or more, got {len(profile)} rows."
        )


def _middle(profile: Profile) -> Fraction:
    least = float(least_cost(profile, None))
    most = float(profile.mean_costs.max())
    return exact(float(np.sqrt(least * most)) if least > 0.0 else most / 4)


def _mixture(profile: Profile, folds: Folds) -> Candidate:
    means = np.concatenate([np.tile(profile.success[pool].mean(axis=0), (held.size, 1)) for pool, held in folds])
    return Candidate(None, (), None, means, profile.success[folds.rows])


def _guide(profile: Profile, candidate: Candidate, why: str) -> Guide:
    if not candidate.members:
        return Guide(None, why=why)
    ((member, belief),) = candidate.members
    made = member.make(len(profile))
    weights = np.zeros(len(profile.names)) if candidate.combination is None else candidate.combination.weights
    shares = {name: float(weight) for name, weight in zip(profile.names, weights, strict=True) if weight}
    return Guide(candidate.extractor, made.metric, int(made.sample_size), belief, shares, why)
