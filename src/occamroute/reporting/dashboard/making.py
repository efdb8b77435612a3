"""Making subjects of a dashboard from what people have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from occamroute.execution.runs import Run
from occamroute.planning.plans import Plan
from occamroute.profiles import Profile
from occamroute.reporting.dashboard.subjects import Subject
from occamroute.reporting.exploring.exploration import Exploration
from occamroute.reporting.exploring.openings import explore_plan, explore_profile, facts_of_plan
from occamroute.reporting.exploring.previews import Previews

__all__ = ["first_budget", "plan_subject", "profile_subject", "run_subject"]

OPTIMISTIC = (
    "Expected accuracy is the plain mean of the chosen estimates. It is optimistic: choosing the highest of several "
    "estimates prefers those that happen to be too high."
)
REACHED = "The labels of these queries are known, so that the page also shows what each plan really reaches."
# How much of the accuracy between the least and the most budget the first view has.
FIRST_GAIN = 0.8


def profile_subject(profile: Profile, title: str, *, previews: Previews | None = None, **options: Any) -> Subject:
    """A profile: half of its rows are planned for, by what the other half says."""
    exploration = replace(explore_profile(profile, **options), previews=previews)
    return Subject(
        "profile", title, exploration, budget=first_budget(exploration), notes=(OPTIMISTIC, REACHED)
    )  # fmt: skip


def plan_subject(
    plan: Plan,
    title: str,
    *,
    profile: Profile | None = None,
    features: Any = None,
    previews: Previews | None = None,
) -> Subject:
    """A plan: what it promises, and every other budget it could have had."""
    facts = facts_of_plan(plan)
    notes = [OPTIMISTIC]
    penalty = plan.made_from.get("penalty", 0.0)
    if penalty:
        notes.append(
            f"The plan was made with a penalty of {penalty:g}: what is drawn are estimates less that penalty, as they "
            "were optimised."
        )
    if plan.weights.any():
        notes.append(
            "Answers are combined with the extractor's own: the estimates are those of combined answers, also where a "
            "classifier is shown by itself."
        )
    if plan.problem.objective == "min":
        notes.append("The plan looks after the worst query first (objective min); the curve is that of the best mean.")
    exploration = replace(explore_plan(plan, profile=profile, features=features), previews=previews)
    exploration.scene()
    return Subject("plan", title, exploration, budget=facts["budget_text"], facts=facts, notes=tuple(notes))


def run_subject(run: Run, title: str) -> Subject:
    """A run: what was bought."""
    return Subject("run", title, run=run)


def first_budget(exploration: Exploration) -> str:
    """Where the handle stands at first: most of the accuracy is bought there, and money still buys more."""
    scene = exploration.scene()
    front = scene.frontier
    wanted = front.accuracies[0] + FIRST_GAIN * (front.accuracies[-1] - front.accuracies[0])
    place = min(int((front.accuracies < wanted).sum()), len(front) - 1)
    rounded = float(f"{front.budgets[place]:.3g}")
    return repr(rounded).removesuffix(".0") if float(scene.least) <= rounded else scene.least
