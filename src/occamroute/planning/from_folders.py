"""estimate() and plan() for queries in folders of Parquet files, which may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
from occamroute.knapsack.streamed import LargeProblem
from occamroute.planning.choosing import Choice
from occamroute.planning.estimates import charged, chosen_extractor, looks_at_features, sigma_of
from occamroute.planning.members import Members
from occamroute.planning.stored_estimates import Progress, StoredEstimate, feature_sets_of, store_estimate
from occamroute.planning.stored_plans import Expecting, StoredPlan, make_stored_plan
from occamroute.profiles import Profile

__all__ = ["FolderMeant", "estimate_folder", "folder_meant", "named_out", "plan_folder"]


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
    place = named_out(out)
    folder = QueryFolder(source)
    made = make_estimator(estimator)
    knobs = {name: repr(value) for name, value in vars(made).items()} if hasattr(made, "__dict__") else {}
    name = chosen_extractor(profile, extractor, feature_sets_of(folder) or folder)
    pool = profile.feature_sets[name]
    made.fit(pool, profile.success)
    used = name if looks_at_features(made) else None
    own_costs, overhead = charged(profile, used, costs, len(folder))
    with opened(executor) as workers:
        return store_estimate(
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
            out=place,
            executor=workers,
            progress=progress,
        )


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


def named_out(out: str | os.PathLike[str] | None) -> str | os.PathLike[str]:
    """The folder to write to, which must be named."""
    if out is None:
        raise InvalidInputError("what is made for a folder of queries is kept in a folder: name one as out.")
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
) -> StoredPlan:
    """The plan for the queries of a folder, from what was chosen; its estimates are kept beside it until it is made."""
    candidate = choice.candidate
    own_costs, overhead = charged(profile, candidate.extractor, costs, len(folder))
    beside = Path(f"{os.fspath(out).rstrip('/')}.estimates")
    stack = members.stack(profile, candidate)
    steps = _two_halves(progress)
    estimate = store_estimate(
        folder,
        stack,
        extractor=candidate.extractor,
        width=0 if candidate.extractor is None else profile.feature_sets[candidate.extractor].shape[1],
        names=profile.names,
        costs=own_costs,
        sigma=candidate.sigma,
        overhead=overhead,
        made_from={**made_from, "estimator": repr(stack)},
        knobs=None,
        out=beside,
        executor=executor,
        progress=steps[0],
    )
    problem = LargeProblem(own_costs, budget, len(folder), overhead=overhead)
    knobs = {"objective": "mean", "penalty": float(choice.penalty), "solver": "exact", "plan_seed": seed}
    made = make_stored_plan(
        estimate.blocks(choice.penalty, executor), problem, out=out, knobs=knobs, progress=steps[1], expecting=expecting
    )
    estimate.parts.remove()
    return made


def _two_halves(progress: Progress | None) -> tuple[Progress | None, Progress | None]:
    """Estimating, which takes most of the time, and writing, as one."""
    if progress is None:
        return None, None
    return lambda done, total: progress(9 * done, 10 * total), lambda done, total: progress(
        9 * total + done, 10 * total
    )
