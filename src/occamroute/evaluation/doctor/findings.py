"""What a checkup gives: findings with a stable code, a severity, facts, what is seen and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

__all__ = ["SEVERITIES", "Checkup", "Finding", "Severity"]

Severity = Literal["ok", "note", "warning", "problem"]
# From the mildest on.
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


@dataclass(frozen=True)
class Finding:
    """What one check found.

    ``about`` is the feature set that it is about, or "" for the profile; ``facts`` are numbers and names for JSON;
    ``seen`` is a sentence, and so is ``advice``, which is empty where nothing need be done.
    """

    code: str
    severity: Severity
    seen: str
    advice: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""


@dataclass(frozen=True)
class Checkup:
    """All findings about a profile, the gravest first; ``skipped`` says of checks that could not be made why."""

    profile: str
    n_rows: int
    findings: tuple[Finding, ...]
    skipped: Mapping[str, str]

    @property
    def worst(self) -> Severity:
        """The gravest severity found."""
        return max((finding.severity for finding in self.findings), key=SEVERITIES.index, default="ok")

    def of(self, code: str) -> tuple[Finding, ...]:
        """The findings of one check."""
        return tuple(finding for finding in self.findings if finding.code == code)

    def summary(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "profile": self.profile,
            "n_rows": self.n_rows,
            "worst": self.worst,
            "findings": [asdict(finding) for finding in self.findings],
            "skipped": dict(self.skipped),
        }
