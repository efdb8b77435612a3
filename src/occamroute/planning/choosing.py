"""Choosing by what counts: the accuracy that plans really reach on held-out rows, at a budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.errors import BudgetTooSmallError
from occamroute.knapsack import Problem, greedy_choice
from occamroute.planning.candidates import Candidate, Folds
from occamroute.planning.estimates import charged
from occamroute.profiles import Profile

__all__ = ["PENALTIES", "Choice", "best_choice"]

PENALTIES = (0.0, 0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class Choice:
    """What is best at a budget on held-out rows, and what it honestly reached there.

    ``accuracy`` is cross-fitted: each half of the held-out rows is scored with what the other half would have
    chosen. ``estimated`` is the mean of the chosen estimates there, ``spread`` the standard deviation of a
    single row's success around its estimate.
    """

    candidate: Candidate
    penalty: float
    accuracy: float
    mixture_accuracy: float | None
    estimated: float
    spread: float


def best_choice(profile: Profile, folds: Folds, allowed: Iterable[Candidate], share: Fraction, *, seed: int) -> Choice:
    """The candidate and penalty whose plan is right most often on held-out rows, at a budget per query.

    Where the new queries are cheaper than the profile's, the least budget that answers held-out rows is used.
    """
    truth = profile.success[folds.rows]
    allowed = list(allowed)
    share = max(share, min(_least_share(profile, folds, candidate) for candidate in allowed))
    trials = [
        trial
        for candidate in allowed
        for penalty in (PENALTIES if candidate.extractor else PENALTIES[:1])
        if (trial := _trial(profile, folds, candidate, penalty, share, truth, seed)) is not None
    ]
    outcomes = np.stack([outcome for *_, outcome, _ in trials])
    mixture = next((index for index, (one, *_) in enumerate(trials) if one.extractor is None), None)
    halves = np.random.default_rng(seed).permutation(truth.shape[0]) % 2 == 0
    honest = [outcomes[_preferred(outcomes[:, ~half], mixture), half].sum() for half in (halves, ~halves)]
    candidate, penalty, outcome, estimated = trials[_preferred(outcomes, mixture)]
    return Choice(
        candidate,
        penalty,
        accuracy=float(sum(honest) / truth.shape[0]),
        mixture_accuracy=None if mixture is None else float(outcomes[mixture].mean()),
        estimated=float(estimated.mean()),
        spread=float((outcome - estimated).std()),
    )


def _least_share(profile: Profile, folds: Folds, candidate: Candidate) -> Fraction:
    """The least budget per query with which a candidate can plan the held-out rows."""
    problem = _problem(profile, folds, candidate, 0.0, Fraction(0))
    return problem.total(problem.cheapest) / folds.rows.size


def _problem(profile: Profile, folds: Folds, candidate: Candidate, penalty: float, share: Fraction) -> Problem:
    """The knapsack of the held-out rows, at a budget per query."""
    rows = folds.rows.size
    costs, overhead = charged(profile, candidate.extractor, None, rows)
    return Problem(candidate.success - penalty * candidate.sigma, costs, share * rows, overhead=overhead)


def _preferred(outcomes: FloatArray, mixture: int | None) -> int:
    """The trial that is right most often; the mixture, unless the other is better by a standard error.

    ``outcomes`` is (trials, rows). What looks at features has many knobs to be lucky with, and a bill.
    """
    best = int(outcomes.mean(axis=1).argmax())
    if mixture is None:
        return best
    gain = outcomes[best] - outcomes[mixture]
    return best if gain.mean() * np.sqrt(gain.size) > gain.std() else mixture


def _trial(
    profile: Profile,
    folds: Folds,
    candidate: Candidate,
    penalty: float,
    share: Fraction,
    truth: FloatArray,
    seed: int,
) -> tuple[Candidate, float, FloatArray, FloatArray] | None:
    """What a plan from this candidate reaches on each held-out row, and what it estimated; None if unaffordable."""
    try:
        choice = greedy_choice(_problem(profile, folds, candidate, penalty, share), seed=seed)
    except BudgetTooSmallError:
        return None
    estimated = np.take_along_axis(candidate.success, choice[:, None], axis=1)[:, 0]
    if candidate.extractor is None:
        # Which queries a mixture sends where is chance: score the mixture itself.
        shares = np.bincount(choice, minlength=truth.shape[1]) / choice.size
        return candidate, penalty, truth @ shares, estimated
    return candidate, penalty, np.take_along_axis(truth, choice[:, None], axis=1)[:, 0], estimated
