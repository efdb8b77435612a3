"""doctor: whether a profile keeps what plans rest on, one question a check, by its own rows alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from occamroute._arrays import seed_number
from occamroute.errors import InvalidInputError
from occamroute.evaluation.doctor.examination import NO_FEATURES, Examination
from occamroute.evaluation.doctor.features import FEATURE_CHECKS
from occamroute.evaluation.doctor.findings import SEVERITIES, Checkup, Finding, Severity
from occamroute.evaluation.doctor.leaks import LEAK_CHECKS
from occamroute.evaluation.doctor.outcomes import OUTCOME_CHECKS
from occamroute.evaluation.doctor.spending import SPENDING_CHECKS
from occamroute.profiles import Profile

__all__ = ["CHECKS", "SEVERITIES", "Checkup", "Finding", "Severity", "doctor"]

CHECKS = (*OUTCOME_CHECKS, *FEATURE_CHECKS, *LEAK_CHECKS, *SPENDING_CHECKS)


def doctor(
    profile: Profile, *, seed: int | np.random.Generator = 0, progress: Callable[[int, int], None] | None = None
) -> Checkup:
    """Everything that looks wrong with a profile, with what to do about it; the gravest first.

    ``progress(done, total)`` is called as the work goes on.
    """
    if not isinstance(profile, Profile):
        raise InvalidInputError(f"a profile is needed to examine, got {type(profile).__name__}.")
    fingerprint = profile.fingerprint
    profile = replace(profile, text=None)  # each feature set alone: side by side they have nothing new
    examination = Examination(profile, seed_number(seed))
    findings: list[Finding] = []
    skipped: dict[str, str] = {}
    for done, check in enumerate(CHECKS):
        if progress is not None:
            progress(done, len(CHECKS))
        lacking = next((reason for need in check.needs if (reason := need(examination)) is not None), None)
        if lacking is None and check.each_set and not profile.feature_sets:
            lacking = NO_FEATURES
        if lacking is not None:
            skipped[check.code] = lacking
            continue
        findings += [check.run(examination, about) for about in (profile.feature_sets if check.each_set else ("",))]
    findings.sort(key=lambda finding: -SEVERITIES.index(finding.severity))
    return Checkup(fingerprint, len(profile), tuple(findings), skipped)
