"""The methods to compare, each charged what it uses: from one classifier for everything to the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, IntArray, generator
from occamroute._money import exact, rounded_up
from occamroute.errors import BudgetTooSmallError, InvalidInputError, UnknownNameError
from occamroute.estimation import Mixture, SampledNeighbors, make_estimator
from occamroute.knapsack import Problem
from occamroute.planning.candidates import Candidate
from occamroute.planning.choosing import PENALTIES, least_share, trial
from occamroute.planning.combining import answers_by_label, can_combine, combined_success
from occamroute.planning.estimates import Estimate, charged, looks_at_features, predicted
from occamroute.planning.fitting import Progress, fit
from occamroute.planning.held_out import Folds, cross_fitted, sampled_member
from occamroute.planning.plans import Plan, paid_extractor
from occamroute.profiles import Profile

__all__ = [
    "METHODS", "PAPER_PENALTIES", "Answered", "Method", "Penalties", "Setting", "checked_methods", "dearest_of",
    "in_words", "make_method", "most_accurate_of", "require_estimator", "seeded_estimator",
]  # fmt: skip

# The λ that the paper's method is tuned over: what auto tries, and the two values that the paper publishes.
PAPER_PENALTIES = (*PENALTIES, 5.0, 100.0)


@dataclass(frozen=True, eq=False)
class Setting:
    """A profile to learn from, labelled queries to judge on, and what methods share.

    ``costs`` are the queries' own where the test set has other ones than the profile. ``extractor`` is whose
    features the baselines look at; auto may choose.
    """

    profile: Profile
    test: Profile
    budgets: Sequence[Fraction]
    extractor: str
    seed: int
    costs: FloatArray | None = None
    progress: Progress | None = None


@dataclass(frozen=True, eq=False)
class Answered:
    """Who answered each query, what that cost exactly, and whether it was right (``outcome``, (N,)).

    ``estimated`` (N,) is how likely that was thought to be, where a method promises something for each query.
    """

    choice: IntArray
    cost: Fraction
    outcome: FloatArray = field(repr=False)
    extractor: str | None = None
    chosen: str = ""
    expected_accuracy: float | None = None
    accuracy_interval: tuple[float, float] | None = None
    gap: float | None = None
    estimated: FloatArray | None = field(default=None, repr=False)


# What a method does at a budget; raises BudgetTooSmallError where it can do nothing.
Method = Callable[[Fraction], Answered]


def make_method(method: str | Any, setting: Setting) -> Method:
    """A method by name, or the plans made from an estimator of the caller's."""
    if isinstance(method, str):
        if method not in METHODS:
            raise UnknownNameError("method", method, METHODS)
        return METHODS[method](setting)
    require_estimator(method)
    return _estimator(method)(setting)


def require_estimator(method: Any) -> None:
    """Raise unless a method that is no name is an estimator."""
    if not (hasattr(method, "fit") and hasattr(method, "predict")):
        raise InvalidInputError(f"a method is a name or an estimator with fit and predict, got {method!r}.")


def _alone(pick: Callable[[Profile, dict[int, Fraction]], int]) -> Callable[[Setting], Method]:
    """One classifier for all queries, picked among those that the budget pays, by what they cost for all queries."""

    def make(setting: Setting) -> Method:
        totals = _totals(setting)

        def answer(budget: Fraction) -> Answered:
            affordable = {column: total for column, total in enumerate(totals) if total <= budget}
            if not affordable:
                raise BudgetTooSmallError(budget, rounded_up(min(totals)))
            column = pick(setting.profile, affordable)
            choice = np.full(len(setting.test), column)
            outcome = setting.test.success[:, column]
            return Answered(choice, totals[column], outcome, chosen=setting.profile.names[column])

        return answer

    return make


def _totals(setting: Setting) -> list[Fraction]:
    """What each classifier costs for all queries."""
    costs, _ = charged(setting.profile, None, setting.costs, len(setting.test))
    if costs.ndim == 1:
        return [exact(float(cost)) * len(setting.test) for cost in costs]
    problem = Problem(np.zeros(costs.shape), costs, 0)
    return [problem.total(problem.paid(np.full(len(costs), column))) for column in range(costs.shape[1])]


def dearest_of(profile: Profile, affordable: dict[int, Fraction]) -> int:
    """The dearest of those that can be paid; what they cost is by column."""
    return max(affordable, key=lambda column: affordable[column])


def most_accurate_of(profile: Profile, affordable: dict[int, Fraction]) -> int:
    """The one that was right most often on the profile's rows, the cheapest of several."""
    return max(affordable, key=lambda column: (float(profile.accuracy[column]), -affordable[column]))


def _answered(plan: Plan, setting: Setting, *, mixed: bool = False, **about: Any) -> Answered:
    """What a plan reaches. Which queries a mixture sends where is chance: its mean over all ways is scored."""
    extractor = plan.made_from.get("extractor")
    success: FloatArray = setting.test.success
    if plan.weights.any():
        success = combined_success(setting.test, str(paid_extractor(plan)), plan.weights)
    if mixed and plan.problem.cost.ndim == 1:
        outcome: FloatArray = success @ (np.bincount(plan.choice, minlength=len(plan.names)) / len(plan))
    else:
        outcome = np.take_along_axis(success, plan.choice[:, None], axis=1)[:, 0]
    cost = plan.problem.total(plan.problem.paid(plan.choice))
    return Answered(plan.choice, cost, outcome, extractor=extractor, gap=plan.gap, **about)


def _mixture(setting: Setting) -> Method:
    """The best mix by overall accuracy, which looks at no features."""
    made = _estimate(setting, Mixture())
    return lambda budget: _answered(made.plan(budget, seed=setting.seed), setting, mixed=True, chosen="no features")


def _random(setting: Setting) -> Method:
    """Uniform estimates, which cost nothing, and the same solver."""
    shape = (len(setting.test), len(setting.profile.names))
    return _planned(_free(setting, generator(setting.seed).uniform(size=shape)), setting, "uniform estimates")


def _oracle(setting: Setting) -> Method:
    """True success beforehand: no choice of one classifier a query can be above it."""
    return _planned(_free(setting, setting.test.success), setting, "true success")


def _free(setting: Setting, success: FloatArray) -> Estimate:
    """An estimate for which nothing is extracted."""
    costs, overhead = charged(setting.profile, None, setting.costs, len(setting.test))
    return Estimate(setting.profile.names, costs, success, np.zeros(success.shape[1]), overhead)


def _planned(made: Estimate, setting: Setting, chosen: str) -> Method:
    return lambda budget: _answered(made.plan(budget, seed=setting.seed), setting, chosen=chosen)


def _estimator(estimator: str | Any) -> Callable[[Setting], Method]:
    """Plans from an estimator on the baselines' features, with no penalty."""

    def make(setting: Setting) -> Method:
        made = _estimate(setting, estimator)
        return _planned(made, setting, str(made.made_from["estimator"]))

    return make


def _estimate(setting: Setting, estimator: str | Any) -> Estimate:
    """The test queries' estimate; its sigma is 0 until somebody needs one."""
    profile, name = setting.profile, setting.extractor
    made = seeded_estimator(estimator, setting.seed)
    made.fit(profile.feature_sets[name], profile.success)
    options = len(profile.names)
    success, distance = predicted(made, setting.test.feature_sets[name], options)
    used = name if looks_at_features(made) else None
    costs, overhead = charged(profile, used, setting.costs, len(setting.test))
    about = {"estimator": repr(made), "extractor": used}
    return Estimate(profile.names, costs, success, np.zeros(options), overhead, distance, made_from=about)


def seeded_estimator(estimator: str | Any, seed: int) -> Any:
    """An estimator to be fitted; one that was named draws with this seed, one that was given with its own."""
    made = make_estimator(estimator)
    if isinstance(estimator, str) and isinstance(getattr(made, "seed", None), int):
        made.seed = seed
    return made


@dataclass(frozen=True, eq=False)
class Penalties:
    """The paper's penalty, tuned on held-out rows of a profile; ``sigma`` (M,) is what it multiplies."""

    profile: Profile
    folds: Folds
    candidate: Candidate
    seed: int

    @classmethod
    def of(cls, profile: Profile, extractor: str, seed: int) -> Penalties:
        """Everything that does not depend on the budget."""
        folds = Folds.draw(profile, generator(seed))
        table = cross_fitted(profile.feature_sets[extractor], profile.success, folds, SampledNeighbors)
        truth = profile.success[folds.rows]
        return cls(profile, folds, Candidate(extractor, ((sampled_member(), 1.0),), None, table, truth), seed)

    @property
    def sigma(self) -> FloatArray:
        """The spread of the estimates' error, (M,)."""
        return self.candidate.sigma

    def best(self, share: Fraction) -> float:
        """The penalty whose plan is right most often on held-out rows, at a budget per query."""
        share = max(share, least_share(self.profile, self.folds, self.candidate))
        trials = [
            trial(self.profile, self.folds, self.candidate, penalty, share, seed=self.seed)
            for penalty in PAPER_PENALTIES
        ]
        return max((one for one in trials if one is not None), key=lambda one: float(one.outcome.mean())).penalty


def _sampled(setting: Setting) -> Method:
    """The paper's method; its penalty is tuned at each budget on held-out rows of the profile."""
    penalties = Penalties.of(setting.profile, setting.extractor, setting.seed)
    made = replace(_estimate(setting, SampledNeighbors()), sigma=penalties.sigma)

    def answer(budget: Fraction) -> Answered:
        penalty = penalties.best(budget / len(setting.test))
        plan = made.plan(budget, penalty=penalty, seed=setting.seed)
        return _answered(plan, setting, chosen=f"{made.made_from['estimator']}, penalty {penalty:g}")

    return answer


def _auto(combine: bool) -> Callable[[Setting], Method]:
    def make(setting: Setting) -> Method:
        profile, test = setting.profile, setting.test
        planner = fit(
            profile, budgets=[], n_queries=len(test), seed=setting.seed, progress=setting.progress,
            combine=combine and _can_judge_combined(profile, test),
        )  # fmt: skip
        features = {name: table for name, table in test.feature_sets.items() if name in profile.feature_sets}

        def answer(budget: Fraction) -> Answered:
            plan = planner.plan(features, budget=budget, costs=setting.costs)
            mixed = plan.made_from["estimator"] == repr(Mixture())
            return _answered(
                plan, setting, mixed=mixed, chosen=in_words(plan.made_from), expected_accuracy=plan.expected_accuracy,
                accuracy_interval=plan.accuracy_interval,
                # A mixture knows nothing of single queries.
                estimated=None if mixed else np.clip(plan.success + plan.made_from["correction"], 0.0, 1.0),
            )  # fmt: skip

        return answer

    return make


def _can_judge_combined(profile: Profile, test: Profile) -> bool:
    """Whether all probabilities that answers may be combined from are known for the test queries too."""
    kept, known = profile.probabilities or {}, test.probabilities or {}
    return set(kept) <= set(known) and all(can_combine(test, name) and answers_by_label(test, name) for name in kept)


def in_words(made_from: Mapping[str, Any]) -> str:
    """What was chosen, in a few words."""
    extractor = made_from["extractor"]
    if extractor is None:
        return "no features: the best mixture"
    penalty = made_from["penalty"]
    estimator = str(made_from["estimator"])
    members = estimator.count(" + ") + 1
    words = [f"{estimator if members == 1 else f'a stack of {members} estimators'} on {extractor}"]
    words += [f"penalty {penalty:g}"] if penalty else []
    words += ["answers combined"] if made_from["combined"] else []
    return ", ".join(words)


METHODS: Mapping[str, Callable[[Setting], Method]] = {
    "single_best": _alone(dearest_of),
    "best_affordable": _alone(most_accurate_of),
    "mixture": _mixture,
    "random": _random,
    "forest": _estimator("forest"),
    "forest_regularized": _estimator("forest_regularized"),
    "sampled": _sampled,
    "bagged": _estimator("bagged"),
    "kernel": _estimator("kernel"),
    "auto": _auto(combine=True),
    "auto_uncombined": _auto(combine=False),
    "oracle": _oracle,
}


def checked_methods(methods: Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Methods by the name that rows bear, the mixture and the oracle always among them."""
    if isinstance(methods, str) or not isinstance(methods, Iterable):
        raise InvalidInputError(f"methods must be several names, or a mapping from names to methods, got {methods!r}.")
    pairs = list(methods.items() if isinstance(methods, Mapping) else ((name, name) for name in methods))
    named: dict[str, Any] = {}
    for label, method in pairs:
        if isinstance(label, str) and isinstance(method, str) and method not in METHODS:
            raise UnknownNameError("method", method, METHODS)
        if not isinstance(label, str):
            raise InvalidInputError(f"methods must be names, or a mapping from names to methods, got {label!r}.")
        if label in ("mixture", "oracle") and method != label:
            raise InvalidInputError(f"{label!r} takes part in every comparison: call {method!r} by another name.")
        named[label] = method
    return {"mixture": "mixture", **named, "oracle": "oracle"}
