"""Choosing by what counts: the accuracy that plans really reach on held-out rows, at a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import BoolArray, FloatArray
from occamroute._intervals import QUANTILE, bounds_from
from occamroute.errors import BudgetTooSmallError
from occamroute.knapsack import Problem, greedy_choice
from occamroute.planning.candidates import Candidate
from occamroute.planning.combining import standard_error
from occamroute.planning.estimates import charged
from occamroute.planning.held_out import Folds
from occamroute.profiles import Profile

__all__ = ["PENALTIES", "Choice", "Trial", "best_choice", "least_share", "trial"]

# The paper's λ; 0 is no penalty.
PENALTIES = (0.0, 0.1, 0.3, 1.0, 3.0)
# By so many standard errors must what looks at features beat the mixture: it has knobs to be lucky with, and a bill.
MARGIN = 0.5
# A standard error below this is rounding alone.
NO_ERROR = 1e-9


@dataclass(frozen=True, eq=False)
class Trial:
    """What a plan from a candidate reached on each held-out row (``outcome``), and what it had estimated.

    ``spread`` is the standard deviation of a single answer's success around its estimate.
    """

    candidate: Candidate
    penalty: float
    outcome: FloatArray = field(repr=False)
    estimated: FloatArray = field(repr=False)
    spread: float


@dataclass(frozen=True, eq=False)
class Choice:
    """What is best at a budget on held-out rows, and what it honestly reached there.

    ``accuracy`` is cross-fitted: each half of the held-out rows is scored with what the other half would have
    chosen. ``correction`` takes the mean of chosen estimates to it, and ``error`` is the standard error of that
    accuracy over ``rows`` that are independent. ``spread`` is the standard deviation of a single answer's success
    around its estimate. ``why`` says in a sentence what was chosen over what, and ``others`` what the best of each
    kind reached.
    """

    candidate: Candidate
    penalty: float
    accuracy: float
    correction: float
    error: float
    rows: int
    spread: float
    why: str
    others: dict[str, float]

    def promise(self, mean: float, queries: int) -> tuple[float, tuple[float, float]]:
        """The accuracy to expect where chosen estimates have this mean, and its interval of 90 %."""
        expected = min(1.0, max(0.0, mean + self.correction))
        # Noise of the correction itself, and that of so many new queries.
        error = float(np.hypot(self.error, self.spread / np.sqrt(queries)))
        if error < NO_ERROR:  # all rows were right, or all wrong, which does not make it certain that others are
            low, high = bounds_from(np.array([expected]), np.zeros(1), 1.0 / (1.0 / self.rows + 1.0 / queries))[0]
            return expected, (float(low), float(high))
        return expected, (max(0.0, expected - QUANTILE * error), min(1.0, expected + QUANTILE * error))


def best_choice(profile: Profile, folds: Folds, allowed: Iterable[Candidate], share: Fraction, *, seed: int) -> Choice:
    """The candidate and penalty whose plan is right most often on held-out rows, at a budget per query.

    Where the new queries are cheaper than the profile's, the least budget that answers held-out rows is used.
    """
    allowed = list(allowed)
    share = max(share, min(least_share(profile, folds, candidate) for candidate in allowed))
    trials = [
        made
        for candidate in allowed
        for penalty in (PENALTIES if _penalised(candidate) else PENALTIES[:1])
        if (made := trial(profile, folds, candidate, penalty, share, seed=seed)) is not None
    ]
    contest = _Contest(trials, folds)
    chosen, why = contest.winner()
    made = trials[chosen]
    return Choice(
        made.candidate,
        made.penalty,
        accuracy=contest.honest,
        correction=contest.honest - float(made.estimated.mean()),
        # Estimates are level with the rows that they were made from: the noise of these rows' level is in neither.
        error=standard_error(made.outcome, folds.blocks[folds.rows]),
        rows=np.unique(folds.blocks[folds.rows]).size,
        spread=made.spread,
        why=why,
        others=contest.others(),
    )


def least_share(profile: Profile, folds: Folds, candidate: Candidate) -> Fraction:
    """The least budget per query with which a candidate can plan the held-out rows."""
    problem = _problem(profile, folds, candidate, 0.0, Fraction(0))
    return problem.total(problem.cheapest) / folds.rows.size


def trial(
    profile: Profile, folds: Folds, candidate: Candidate, penalty: float, share: Fraction, *, seed: int
) -> Trial | None:
    """What a plan from this candidate reaches on the held-out rows; None if its features cannot be paid."""
    try:
        choice = greedy_choice(_problem(profile, folds, candidate, penalty, share), seed=seed)
    except BudgetTooSmallError:
        return None
    truth = candidate.truth
    estimated = np.take_along_axis(candidate.success, choice[:, None], axis=1)[:, 0]
    if not candidate.members:
        # Which queries a mixture sends where is chance: score the mixture itself.
        shares = np.bincount(choice, minlength=truth.shape[1]) / choice.size
        reached: FloatArray = truth @ shares
        spread = float(np.sqrt(max(0.0, (truth**2 @ shares).mean() - reached.mean() ** 2)))
        return Trial(candidate, penalty, reached, estimated, spread)
    reached = np.take_along_axis(truth, choice[:, None], axis=1)[:, 0]
    return Trial(candidate, penalty, reached, estimated, float((reached - estimated).std()))


def _problem(profile: Profile, folds: Folds, candidate: Candidate, penalty: float, share: Fraction) -> Problem:
    """The knapsack of the held-out rows, at a budget per query."""
    rows = folds.rows.size
    costs, overhead = charged(profile, candidate.extractor, None, rows)
    value = candidate.success if penalty == 0.0 else candidate.success - penalty * candidate.sigma
    return Problem(value, costs, share * rows, overhead=overhead)


def _penalised(candidate: Candidate) -> bool:
    """Whether the paper's penalty is tried on it: on the paper's own estimator."""
    return [member.label for member, _ in candidate.members] == ["sampled"]


class _Contest:
    """Trials against each other, simpler kinds first: what is more must be better by more than noise.

    What looks at features has many knobs to be lucky with, and a bill. From simple to less so: the mixture; a
    stack of estimators; one estimator alone, since it is picked among many.
    """

    def __init__(self, trials: list[Trial], folds: Folds) -> None:
        self.trials = trials
        self.outcomes = np.stack([trial.outcome for trial in trials])
        self.blocks = folds.blocks[folds.rows]
        self.all = np.ones(self.blocks.size, bool)
        self.halves = (folds.first_half, ~folds.first_half)
        self.kinds = {
            "mixture": self._where(lambda one: one.extractor is None),
            "stack": self._where(lambda one: one.extractor is not None and one.stacked),
            "estimator alone": self._where(lambda one: one.extractor is not None and not one.stacked),
        }
        crossed = [self._features(~half) for half in self.halves]
        # What looks at features must also beat the mixture where it was not chosen.
        self.transfers = all(one is not None for one in crossed) and (
            self._cross(crossed) > self._cross([self._best("mixture", self.all)] * 2) if self.kinds["mixture"] else True
        )
        picked = [self._pick(~half) for half in self.halves]
        self.honest = self._cross(picked)

    def winner(self) -> tuple[int, str]:
        """The index of the trial chosen on all rows, and why in a sentence."""
        chosen = self._pick(self.all)
        return chosen, self._why(chosen)

    def others(self) -> dict[str, float]:
        """Held-out accuracy of the best of each kind."""
        found = {kind: self._best(kind, self.all) for kind in self.kinds}
        return {kind: self._accuracy(index) for kind, index in found.items() if index is not None}

    def _where(self, test: Callable[[Candidate], bool]) -> list[int]:
        return [index for index, one in enumerate(self.trials) if test(one.candidate)]

    def _accuracy(self, index: int) -> float:
        return float(self.outcomes[index].mean())

    def _cross(self, picked: list[Any]) -> float:
        """Accuracy on both halves of what was picked for each."""
        right = sum(float(self.outcomes[one, half].sum()) for one, half in zip(picked, self.halves, strict=True))
        return right / sum(int(half.sum()) for half in self.halves)

    def _best(self, kind: str, rows: BoolArray) -> int | None:
        among = self.kinds[kind]
        if not among:
            return None
        return among[int(self.outcomes[among][:, rows].mean(axis=1).argmax())]

    def _features(self, rows: BoolArray) -> int | None:
        """The best that looks at features."""
        stack, alone = self._best("stack", rows), self._best("estimator alone", rows)
        if stack is None or alone is None:
            return alone if stack is None else stack
        return self._better(stack, alone, rows)

    def _pick(self, rows: BoolArray) -> int:
        mixture, features = self._best("mixture", rows), self._features(rows)
        if mixture is None or features is None:
            return next(one for one in (mixture, features) if one is not None)
        return self._better(mixture, features, rows, errors=MARGIN) if self.transfers else mixture

    def _better(self, simple: int, other: int, rows: BoolArray, *, errors: float = 1.0) -> int:
        """The simple one, unless the other is better by more than so many standard errors."""
        gain = (self.outcomes[other] - self.outcomes[simple])[rows]
        return other if float(gain.mean()) > errors * standard_error(gain, self.blocks[rows]) else simple

    def _why(self, chosen: int) -> str:
        best = self._accuracy(chosen)
        mixture, features = self._best("mixture", self.all), self._features(self.all)
        if chosen == mixture:
            if features is None or not self.trials[features].candidate.members:
                return "no features that this budget pays tell the classifiers apart on held-out rows"
            return (
                f"on held-out rows the best plan with features reached {100 * self._accuracy(features):.2f} %, "
                f"not clearly above the mixture's {100 * best:.2f} %"
            )
        rest = {kind: index for kind in self.kinds if (index := self._best(kind, self.all)) not in (None, chosen)}
        beaten = ", ".join(f"{kind} {100 * self._accuracy(index):.2f} %" for kind, index in rest.items())
        return f"on held-out rows its plan reached {100 * best:.2f} %" + (f"; the best {beaten}" if beaten else "")
