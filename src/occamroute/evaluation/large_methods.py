"""The methods of ``baselines`` for queries in folders: what each decides at a budget, in a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._money import exact, rounded_up
from occamroute._version import __version__
from occamroute.errors import BudgetTooSmallError, UnknownNameError
from occamroute.estimation import Mixture, SampledNeighbors
from occamroute.evaluation.baselines import (
    Penalties,
    dearest_of,
    in_words,
    most_accurate_of,
    seeded_estimator,
)
from occamroute.evaluation.labelled_folders import LabelledFolder
from occamroute.evaluation.large_values import (
    ConstantValues,
    LargeValues,
    Planned,
    Plans,
    StoredValues,
    UniformValues,
)
from occamroute.executors import Executor
from occamroute.part_folders import content_key
from occamroute.planning.candidates import Candidate
from occamroute.planning.choosing import Choice
from occamroute.planning.estimates import charged, looks_at_features
from occamroute.planning.fitting import Planner, Progress, fit
from occamroute.planning.stored_estimates import StoredEstimate, store_estimate, within_memory
from occamroute.profiles import Profile
from occamroute.storage import ABOUT, read_about

__all__ = ["LARGE_METHODS", "Decided", "LargeMethod", "LargeSetting", "WorkFolder", "make_large_method"]


@dataclass(frozen=True, eq=False)
class WorkFolder:
    """Where estimates are kept, and which folders in it were used."""

    path: Path
    used: set[Path] = field(default_factory=set)

    def at(self, name: str) -> Path:
        """The folder of that name in it."""
        self.used.add(self.path / name)
        return self.path / name


@dataclass(frozen=True, eq=False)
class LargeSetting:
    """A profile to learn from, a folder of labelled queries to judge on, and what methods share.

    ``truth`` is the queries' success, ``work`` the folder that estimates are kept in, ``workers`` where parts are
    worked on (None: the threads of this process). The rest is as in ``baselines.Setting``.
    """

    profile: Profile
    test: LabelledFolder
    budgets: Sequence[Fraction]
    extractor: str
    seed: int
    costs: FloatArray | None
    truth: StoredEstimate
    work: WorkFolder
    workers: Executor | None
    progress: Progress | None = None

    @property
    def executor(self) -> Executor:
        """Where parts are worked on: never more of them at once than memory has room for."""
        return within_memory(self.workers, len(self.profile.names))

    def charged(self, extractor: str | None) -> tuple[FloatArray, Any]:
        """What each answer costs, and what the features cost for one query."""
        return charged(self.profile, extractor, self.costs, len(self.test))

    def plans(self, values: LargeValues, extractor: str | None, sigma: FloatArray | None = None) -> Plans:
        """Plans from some values, which need the features of ``extractor``."""
        return Plans(values, *self.charged(extractor), self.truth.parts, self.executor, sigma)


@dataclass(frozen=True, eq=False)
class Decided:
    """What a method does at a budget: one classifier for all queries (``column``), or a plan.

    ``mixed`` says that which queries a classifier gets is chance; ``choice`` is auto's, which promises an accuracy.
    """

    chosen: str
    cost: Fraction | None = None
    column: int | None = None
    planned: Planned | None = None
    extractor: str | None = None
    mixed: bool = False
    choice: Choice | None = None


# What a method does at a budget; raises BudgetTooSmallError where it can do nothing.
LargeMethod = Callable[[Fraction], Decided]


def make_large_method(method: str | Any, setting: LargeSetting) -> LargeMethod:
    """A method by name, or the plans made from an estimator of the caller's."""
    if isinstance(method, str):
        if method not in LARGE_METHODS:
            raise UnknownNameError("method", method, LARGE_METHODS)
        return LARGE_METHODS[method](setting)
    return _estimator(method)(setting)


def _alone(pick: Callable[[Profile, dict[int, Fraction]], int]) -> Callable[[LargeSetting], LargeMethod]:
    """One classifier for all queries, picked among those that the budget pays."""

    def make(setting: LargeSetting) -> LargeMethod:
        totals = [exact(float(cost)) * len(setting.test) for cost in setting.charged(None)[0]]

        def answer(budget: Fraction) -> Decided:
            affordable = {column: total for column, total in enumerate(totals) if total <= budget}
            if not affordable:
                raise BudgetTooSmallError(budget, rounded_up(min(totals)))
            column = pick(setting.profile, affordable)
            return Decided(setting.profile.names[column], cost=totals[column], column=column)

        return answer

    return make


def _free(setting: LargeSetting, values: LargeValues, chosen: str, *, mixed: bool = False) -> LargeMethod:
    """Plans from values for which nothing is extracted."""
    plans = setting.plans(values, None)
    return lambda budget: Decided(chosen, planned=plans.at(budget, seed=setting.seed), mixed=mixed)


def _mixture(setting: LargeSetting) -> LargeMethod:
    """The best mix by overall accuracy, which looks at no features."""
    return _free(setting, ConstantValues(setting.profile.accuracy), "no features", mixed=True)


def _random(setting: LargeSetting) -> LargeMethod:
    """Uniform estimates, which cost nothing, and the same solver."""
    return _free(setting, UniformValues(len(setting.profile.names), setting.seed), "uniform estimates")


def _oracle(setting: LargeSetting) -> LargeMethod:
    """True success beforehand: no choice of one classifier a query can be above it."""
    return _free(setting, StoredValues.of(setting.truth), "true success")


def _estimator(estimator: str | Any) -> Callable[[LargeSetting], LargeMethod]:
    """Plans from an estimator on the baselines' features, with no penalty."""

    def make(setting: LargeSetting) -> LargeMethod:
        stored, used = _estimated(setting, estimator)
        plans = setting.plans(StoredValues.of(stored), used)
        chosen = str(stored.made_from["estimator"])
        return lambda budget: Decided(chosen, planned=plans.at(budget, seed=setting.seed), extractor=used)

    return make


def _sampled(setting: LargeSetting) -> LargeMethod:
    """The paper's method; its penalty is tuned at each budget on held-out rows of the profile."""
    penalties = Penalties.of(setting.profile, setting.extractor, setting.seed)
    stored, used = _estimated(setting, SampledNeighbors())
    plans = setting.plans(StoredValues.of(stored), used, penalties.sigma)

    def answer(budget: Fraction) -> Decided:
        penalty = penalties.best(budget / len(setting.test))
        planned = plans.at(budget, seed=setting.seed, penalty=penalty)
        return Decided(f"{stored.made_from['estimator']}, penalty {penalty:g}", planned=planned, extractor=used)

    return answer


def _estimated(setting: LargeSetting, estimator: str | Any) -> tuple[StoredEstimate, str | None]:
    """The test queries' estimate, and whose features it looks at."""
    profile, name = setting.profile, setting.extractor
    made = seeded_estimator(estimator, setting.seed)
    used = name if looks_at_features(made) else None
    knobs = {key: repr(value) for key, value in vars(made).items()} if hasattr(made, "__dict__") else {}

    def fitted() -> Any:
        made.fit(profile.feature_sets[name], profile.success)
        return made

    return _stored(setting, fitted, name, used, [type(made).__qualname__, repr(made), knobs]), used


def _stored(
    setting: LargeSetting, fitted: Callable[[], Any], looked_at: str, used: str | None, knobs: Any
) -> StoredEstimate:
    """An estimate in the work folder, made unless one with the same knobs is there."""
    profile, test = setting.profile, setting.test
    said = [__version__, profile.fingerprint, test.folder.fingerprint, looked_at, knobs]
    place = setting.work.at(f"estimate-{content_key(said)}")
    if (place / ABOUT).exists() and read_about(place).get("done"):
        found = StoredEstimate.from_folder(place)
        if found.parts.complete:
            return found
    estimator = fitted()
    costs, overhead = setting.charged(used)
    return store_estimate(
        test.folder,
        estimator,
        extractor=looked_at,
        width=profile.feature_sets[looked_at].shape[1],
        names=profile.names,
        costs=costs,
        sigma=np.zeros(len(profile.names)),
        overhead=overhead,
        made_from={"estimator": repr(estimator)},
        knobs=said,
        out=place,
        executor=setting.workers,
        progress=setting.progress,
    )


def _auto(setting: LargeSetting) -> LargeMethod:
    """Everything chosen on held-out rows of the profile; answers are not combined."""
    profile, queries = setting.profile, len(setting.test)
    planner = fit(
        profile, budgets=[], n_queries=queries, combine=False, seed=setting.seed, executor=setting.workers,
        progress=setting.progress,
    )  # fmt: skip
    sets = tuple(name for name in setting.test.first.feature_sets if name in profile.feature_sets)
    made: dict[Candidate, tuple[Plans, str]] = {}

    def answer(budget: Fraction) -> Decided:
        choice = planner.choice(budget, sets, queries=queries, costs=setting.costs)
        candidate = choice.candidate
        if candidate not in made:
            made[candidate] = _chosen_plans(replace(setting, progress=None), planner, choice)
        plans, estimator = made[candidate]
        words = {"penalty": choice.penalty, "estimator": estimator, "combined": False}
        return Decided(
            in_words({**words, "extractor": candidate.extractor}),
            planned=plans.at(budget, seed=setting.seed, penalty=choice.penalty),
            extractor=candidate.extractor,
            mixed=estimator == repr(Mixture()),
            choice=choice,
        )

    return answer


def _chosen_plans(setting: LargeSetting, planner: Planner, choice: Choice) -> tuple[Plans, str]:
    """Plans from what auto has chosen, and the estimator in words."""
    candidate = choice.candidate
    if not candidate.members or candidate.extractor is None:
        values = ConstantValues(setting.profile.accuracy)
        return setting.plans(values, candidate.extractor, candidate.sigma), repr(Mixture())
    knobs = [setting.seed, [(member.label, float(weight).hex()) for member, weight in candidate.members]]
    stored = _stored(setting, lambda: planner.stack(choice), candidate.extractor, candidate.extractor, knobs)
    plans = setting.plans(StoredValues.of(stored), candidate.extractor, candidate.sigma)
    return plans, str(stored.made_from["estimator"])


LARGE_METHODS: Mapping[str, Callable[[LargeSetting], LargeMethod]] = {
    "single_best": _alone(dearest_of),
    "best_affordable": _alone(most_accurate_of),
    "mixture": _mixture,
    "random": _random,
    "forest": _estimator("forest"),
    "forest_regularized": _estimator("forest_regularized"),
    "sampled": _sampled,
    "bagged": _estimator("bagged"),
    "kernel": _estimator("kernel"),
    "auto": _auto,
    "auto_uncombined": _auto,
    "oracle": _oracle,
}
