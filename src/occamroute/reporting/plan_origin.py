"""Where a plan comes from: profile, estimator, seed, and the command that makes it again."""

from __future__ import annotations

from typing import Any

from occamroute.estimation import make_estimator
from occamroute.planning.plans import Plan
from occamroute.reporting.pieces import Section
from occamroute.reporting.provenance import again_section, data_section, doctor_sections, typed
from occamroute.reporting.stories import Source

__all__ = ["plan_origin"]

NAMED = ("bagged", "sampled", "kernel", "forest", "forest_regularized", "mixture")


def plan_origin(plan: Plan, source: Source) -> tuple[Section, ...]:
    """Data, the doctor's notes, and how to make it again."""
    made = plan.made_from
    automatic = plan.accuracy_interval is not None
    weights = {name: f"{float(weight):g}" for name, weight in zip(plan.names, plan.weights, strict=True) if weight}
    return (
        data_section(
            {
                "profile": made.get("profile"),
                "queries": f"{len(plan):,}",
                "classifiers": ", ".join(plan.names),
                "features of": made.get("extractor") or "nobody: it looks at none",
                "estimator": made.get("estimator"),
                "chosen because": made.get("why"),
                "penalty": made.get("penalty"),
                "answers combined, extractor's share": ", ".join(map(" ".join, weights.items())) or None,
                "correction for choosing the highest": _correction(made) if automatic else "none",
                "seed": made.get("seed", made.get("plan_seed")),
            },
            made_by=made.get("version"),
        ),
        *doctor_sections(source.profile),
        again_section(
            source, origin=_origin(plan, source, automatic),
            note="QUERIES stands for the file with the queries' features"
            + ("." if source.profile_path else ", PROFILE for the saved profile with the fingerprint above."),
        ),
    )  # fmt: skip


def _correction(made: dict[str, Any]) -> str:
    return (
        f"{100 * made.get('correction', 0.0):+.3f} points (its uncertainty is part of the promised interval)"
    ).replace("-", "−")


def _origin(plan: Plan, source: Source, automatic: bool) -> str | None:
    """The command that makes the plan again, where a command can."""
    made = plan.made_from
    words = ["plan", source.profile_path or "PROFILE", "QUERIES", "--budget", str(plan.budget)]
    if not automatic:
        named = [name for name in NAMED if repr(make_estimator(name)) == made.get("estimator")]
        if not named:
            return None
        words += ["--estimator", named[0], "--penalty", repr(made.get("penalty", 0.0))]
        words += ["--objective", plan.problem.objective, "--solver", str(made.get("solver", "exact"))]
    words += ["--seed", str(made.get("seed", made.get("plan_seed", 0))), "--out", source.path]
    return typed(*words)
