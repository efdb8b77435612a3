"""estimate() and plan() for queries in folders of Parquet files, which may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from occamroute._arrays import generator
from occamroute._money import Amount
from occamroute._version import __version__
from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.estimation import make_estimator
from occamroute.executors import Executor, opened
from occamroute.folders import QueryFolder
from occamroute.knapsack import Objective
from occamroute.knapsack.streamed import LargeProblem
from occamroute.part_folders import require_room
from occamroute.planning.choosing import Choice
from occamroute.planning.estimates import (
    charged,
    checked_penalty,
    chosen_extractor,
    looks_at_features,
    predicted,
    sigma_of,
)
from occamroute.planning.members import Members
from occamroute.planning.stored_estimates import EstimateOrder, Progress, StoredEstimate, feature_sets_of
from occamroute.planning.stored_plans import Expecting, StoredPlan, begin_plan, make_stored_plan
from occamroute.profiles import Profile
from occamroute.storage import ABOUT, read_about

__all__ = [
    "FolderMeant",
    "estimate_folder",
    "finished_plan",
    "folder_meant",
    "named_out",
    "plan_folder",
    "plan_with_estimator",
]

# Rows of the profile that a fitted estimator is known by.
SAID = 64


def estimate_folder(
    profile: Profile,
    source: str | os.PathLike[str],
    *,
    estimator: str | Any,
    extractor: str | None,
    costs: Any,
    sigma: str,
    seed: int | np.random.Generator,
    out: str | os.PathLike[str] | None,
    executor: str | Executor | None,
    progress: Progress | None,
) -> StoredEstimate:
    """``oc.estimate`` for the queries of a folder."""
    folder = QueryFolder(source)
    place = named_out(out, folder)
    order = _ordered(profile, folder, estimator, extractor, costs, sigma, seed)
    with opened(executor) as workers:
        return order.made(place, workers, progress)


def _ordered(
    profile: Profile, folder: QueryFolder, estimator: Any, extractor: str | None, costs: Any, sigma: str,
    seed: int | np.random.Generator,
) -> EstimateOrder:  # fmt: skip
    made = make_estimator(estimator)
    knobs: dict[str, Any] = {key: repr(value) for key, value in getattr(made, "__dict__", {}).items()}
    name = chosen_extractor(profile, extractor, feature_sets_of(folder) or folder)
    pool = profile.feature_sets[name]
    made.fit(pool, profile.success)
    # Words can hide what differs, a long array or a fit that is drawn anew; what it says of some rows does not.
    said = predicted(made, pool[:SAID], len(profile.names))[0]
    knobs["said"] = (np.round(said, 9) + 0.0).tolist()
    used = name if looks_at_features(made) else None
    own_costs, overhead = charged(profile, used, costs, len(folder))
    return EstimateOrder(
        folder,
        made,
        extractor=name,
        width=pool.shape[1],
        names=profile.names,
        costs=own_costs,
        sigma=sigma_of(estimator, profile, name, sigma, generator(seed)),
        overhead=overhead,
        made_from={
            "version": __version__,
            "profile": profile.fingerprint,
            "estimator": repr(made),
            "extractor": used,
            "sigma": sigma,
        },
        knobs=knobs,
    )


def plan_with_estimator(
    profile: Profile,
    source: str | os.PathLike[str],
    budget: Amount,
    *,
    estimator: str | Any,
    extractor: str | None,
    penalty: float,
    objective: Objective,
    seed: int,
    out: str | os.PathLike[str],
    executor: str | Executor | None,
    progress: Progress | None,
) -> StoredPlan:
    """The plan from one estimator's estimates, which are kept beside it until it is made."""
    folder = QueryFolder(source)
    place = named_out(out, folder)
    knobs = {"objective": objective, "penalty": checked_penalty(penalty), "solver": "exact", "plan_seed": seed}
    order = _ordered(profile, folder, estimator, extractor, None, "error", seed)
    problem = LargeProblem(order.costs, budget, len(folder), objective, order.overhead)
    with opened(executor) as workers:
        return _plan_from(order, problem, out=place, knobs=knobs, executor=workers, progress=progress)


@dataclass(frozen=True)
class FolderMeant:
    """A folder of queries that somebody gave as features, and whose features they are if that was said."""

    folder: QueryFolder
    extractor: str | None

    def sets(self, profile: Profile) -> tuple[str, ...]:
        """The feature sets that the folder has and the profile knows; its only one where the files name none."""
        sets = feature_sets_of(self.folder)
        if sets is None or self.extractor is not None:
            return (chosen_extractor(profile, self.extractor, sets or self.folder),)
        known = tuple(name for name in sets if name in profile.feature_sets)
        if not known:
            raise UnknownNameError("extractor", next(iter(sets)), profile.feature_sets)
        return known


def folder_meant(features: Any) -> FolderMeant | None:
    """The folder, where a path was given or a mapping from one extractor to a path."""
    extractor = None
    if isinstance(features, Mapping) and len(features) == 1:
        extractor, features = next(iter(features.items()))
    return FolderMeant(QueryFolder(features), extractor) if isinstance(features, str | os.PathLike) else None


def named_out(out: str | os.PathLike[str] | None, folder: QueryFolder) -> str | os.PathLike[str]:
    """The folder to write to, which must be named, and outside of the queries' own."""
    if out is None:
        raise InvalidInputError("what is made for a folder of queries is kept in a folder: name one as out.")
    folder.require_apart(out)
    require_room(out)
    return out


def plan_folder(
    folder: QueryFolder,
    profile: Profile,
    choice: Choice,
    members: Members,
    *,
    made_from: dict[str, Any],
    budget: Amount,
    costs: Any,
    seed: int,
    expecting: Expecting,
    out: str | os.PathLike[str],
    executor: Executor | None,
    progress: Progress | None,
    asked: str | None,
) -> StoredPlan:
    """The plan for the queries of a folder, from what was chosen; its estimates are kept beside it until it is made."""
    candidate = choice.candidate
    own_costs, overhead = charged(profile, candidate.extractor, costs, len(folder))
    stack = members.stack(profile, candidate)
    order = EstimateOrder(
        folder,
        stack,
        extractor=candidate.extractor,
        width=0 if candidate.extractor is None else profile.feature_sets[candidate.extractor].shape[1],
        names=profile.names,
        costs=own_costs,
        sigma=candidate.sigma,
        overhead=overhead,
        made_from={**made_from, "estimator": repr(stack)},
        # In words, weights have two digits.
        knobs=[(member.label, float(weight).hex()) for member, weight in candidate.members],
    )
    problem = LargeProblem(own_costs, budget, len(folder), overhead=overhead)
    knobs = {"objective": "mean", "penalty": float(choice.penalty), "solver": "exact", "plan_seed": seed}
    return _plan_from(
        order, problem, out=out, knobs=knobs, executor=executor, progress=progress, expecting=expecting, asked=asked
    )


def finished_plan(out: str | os.PathLike[str], asked: str) -> StoredPlan | None:
    """The plan that is there, whole and with nothing left to tidy up, if it is the one that is asked for."""
    if not (Path(out) / ABOUT).exists() or read_about(out).get("asked") != asked or _beside(out).exists():
        return None
    made = StoredPlan.from_folder(out)
    return made if made.parts.complete else None


def _beside(out: str | os.PathLike[str]) -> Path:
    """The folder for a plan's estimates."""
    return Path(f"{os.fspath(out).rstrip('/')}.estimates")


def _plan_from(
    order: EstimateOrder,
    problem: LargeProblem,
    *,
    out: str | os.PathLike[str],
    knobs: dict[str, Any],
    executor: Executor | None,
    progress: Progress | None,
    expecting: Expecting | None = None,
    asked: str | None = None,
) -> StoredPlan:
    """The plan from estimates that are made for it; whatever can be refused is refused before they are made."""
    problem.require()
    beside = _beside(out)
    if begin_plan(out, order.key, problem, knobs, order.part_rows).complete:
        if (beside / ABOUT).exists():
            with suppress(InvalidInputError):  # somebody else's stays
                order.begun(beside).remove()
        return StoredPlan.from_folder(out)
    steps = _two_halves(progress)
    estimate = order.made(beside, executor, steps[0])
    blocks = estimate.blocks(knobs["penalty"], executor)
    made = make_stored_plan(blocks, problem, out=out, knobs=knobs, progress=steps[1], expecting=expecting, asked=asked)
    estimate.parts.remove()
    return made


def _two_halves(progress: Progress | None) -> tuple[Progress | None, Progress | None]:
    """Estimating, which takes most of the time, and writing, as one."""
    if progress is None:
        return None, None
    return lambda done, total: progress(9 * done, 10 * total), lambda done, total: progress(
        9 * total + done, 10 * total
    )
