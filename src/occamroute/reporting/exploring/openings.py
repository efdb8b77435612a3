"""Openings: what can be looked at, from what people have: a profile, a plan, a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, feature_matrix
from occamroute._money import exact
from occamroute.errors import CertificateError, InvalidInputError
from occamroute.estimation import make_estimator
from occamroute.execution.runs import Run
from occamroute.planning.estimates import Estimate, chosen_extractor, estimate
from occamroute.planning.plans import Plan, verify
from occamroute.profiles import Profile
from occamroute.reporting.exploring.exploration import Exploration
from occamroute.reporting.exploring.surroundings import Surroundings, label_of

__all__ = ["explore_plan", "explore_profile", "facts_of_plan", "facts_of_run"]


def explore_profile(
    profile: Profile, *, estimator: str = "bagged", extractor: str | None = None, seed: int = 0
) -> Exploration:
    """Half of the rows, chosen by the seed, as queries; the other half is what is known of them.

    So nothing is estimated on the rows that it is judged on, and what a plan really reaches there is known.
    """
    pool, asked = profile.split(0.5, seed=seed)
    name = extractor or profile.extractor or next(iter(profile.feature_sets), None)
    name = chosen_extractor(pool, name, None)
    features = asked.feature_sets[name]
    made = estimate(
        pool, features, estimator=estimator, extractor=name, ids=asked.ids, seed=seed,
        costs=None if asked.costs.ndim == 1 else asked.costs,
    )  # fmt: skip
    used = made.made_from["extractor"]
    about = {
        "labelled rows": len(pool),
        "queries": len(asked),
        "profile": profile.fingerprint,
        "labelled half": pool.fingerprint,
        "estimator": made.made_from["estimator"],
        "features of": used or "none: they are not looked at",
        "seed": seed,
        "version": made.made_from["version"],
    }
    return Exploration(
        made,
        truth=asked.success,
        labels=None if asked.labels is None else [label_of(asked, row) for row in range(len(asked))],
        surroundings=None if used is None else Surroundings(pool, name, features, _metric(estimator)),
        seed=seed,
        about=about,
    )


def explore_plan(plan: Plan, *, profile: Profile | None = None, features: Any = None) -> Exploration:
    """The estimate that a plan was made from, as the plan's own problem holds it.

    A penalty has been taken off its values already: they are explored as they are, without a second one. With the
    profile and the queries' features their neighbours are known, too.
    """
    made, problem = plan.made_from, plan.problem
    again = Estimate(
        names=plan.names,
        costs=problem.cost,
        success=problem.value,
        sigma=np.zeros(len(plan.names)),
        overhead=problem.overhead,
        ids=plan.ids,
        made_from={name: made[name] for name in ("version", "profile", "estimator", "extractor") if name in made},
    )
    return Exploration(
        again,
        surroundings=_surroundings(plan, profile, features),
        weights=plan.weights if plan.weights.any() else None,
        objective=problem.objective,
        seed=int(made.get("plan_seed", 0)),
        about={name.replace("_", " "): value for name, value in made.items()},
    )


def facts_of_plan(plan: Plan) -> dict[str, Any]:
    """What the plan itself promises, and whether its certificate holds, checked now."""
    try:
        verify(plan)
        broken = None
    except CertificateError as error:
        broken = str(error)
    return {**plan.summary(), "budget_text": _decimal(plan.budget), "broken": broken}


def facts_of_run(run: Run) -> dict[str, Any]:
    """What was bought, for how much, and what failed."""
    return {**run.summary(), "classes": list(run.classes)}


def _decimal(amount: Any) -> str:
    """An amount as somebody would type it; a fraction that is no decimal as the float that is nearest."""
    number = float(amount)
    same = exact(number) == exact(amount) or "/" in str(amount)
    return repr(number).removesuffix(".0") if same else str(amount)


def _surroundings(plan: Plan, profile: Profile | None, features: Any) -> Surroundings | None:
    if profile is None or features is None:
        return None
    stated = plan.made_from.get("profile")
    if stated is not None and stated != profile.fingerprint:
        raise InvalidInputError(
            f"this is not the profile that the plan was made from: its fingerprint is {profile.fingerprint[:12]}…, "
            f"and {str(stated)[:12]}… is stated."
        )
    name = plan.made_from.get("extractor")
    if name is None:
        return None
    name = chosen_extractor(profile, str(name), features)
    table: FloatArray = feature_matrix(features[name] if isinstance(features, dict) else features)
    wanted = (len(plan), profile.feature_sets[name].shape[1])
    if table.shape != wanted:
        raise InvalidInputError(f"features must be of shape {wanted}, as plan and profile are, got {table.shape}.")
    return Surroundings(profile, name, table)


def _metric(estimator: str) -> str:
    return str(getattr(make_estimator(estimator), "metric", "linf"))
