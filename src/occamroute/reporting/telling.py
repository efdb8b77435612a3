"""Which story a noun has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from occamroute.errors import InvalidInputError
from occamroute.evaluation.reports import Report
from occamroute.execution.runs import Run
from occamroute.planning.frontiers import Frontier
from occamroute.planning.plans import Plan
from occamroute.profiles import Profile
from occamroute.reporting.comparison_story import comparison_story
from occamroute.reporting.frontier_story import frontier_story
from occamroute.reporting.plan_story import plan_story
from occamroute.reporting.profile_story import profile_story
from occamroute.reporting.run_story import run_story
from occamroute.reporting.stories import Source, Story
from occamroute.reporting.wholes import whole

__all__ = ["tell"]

STORIES: dict[type, Callable[[Any, Source], Story]] = {
    Report: comparison_story,
    Plan: plan_story,
    Run: run_story,
    Frontier: frontier_story,
    Profile: profile_story,
}


def tell(noun: Any, source: Source) -> Story:
    """The story of a comparison, plan, run, frontier or profile; a plan's certificate is checked while it is told.

    Plans and runs may be those of folders. Raises ``CertificateError`` where the certificate does not hold.
    """
    noun = whole(noun)
    if source.labels is not None and not isinstance(noun, Run):
        raise InvalidInputError(f"labels are for a run, got a {type(noun).__name__.lower()}.")
    for kind, story in STORIES.items():
        if isinstance(noun, kind):
            return story(noun, source)
    raise InvalidInputError(
        f"a report is made of a comparison, plan, run, frontier or profile, got a {type(noun).__name__.lower()}."
    )
