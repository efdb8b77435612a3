"""What a page rests on, for whoever wants to check it: fingerprints, versions, commands, the doctor's notes."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from occamroute._version import __version__
from occamroute.errors import InvalidInputError
from occamroute.evaluation.doctor import doctor
from occamroute.profiles import Profile
from occamroute.reporting.pieces import Cell, Section, command, facts, paragraph, table
from occamroute.reporting.stories import Source

__all__ = ["again_section", "data_section", "doctor_sections", "require_same_profile", "typed"]

LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "pyarrow")


def typed(*words: str) -> str:
    """A command as it is typed in a shell."""
    return shlex.join(["occamroute", *words])


def data_section(pairs: Mapping[str, Any], *, made_by: str | None) -> Section:
    """Fingerprints, seeds and knobs, and the versions of what made the file and the page."""
    known = [(name, str(value)) for name, value in pairs.items() if value is not None]
    versions = [
        ("file made by", f"occamroute {made_by or 'of a version that it does not state'}"),
        ("page made by", f"occamroute {__version__}, Python {platform.python_version()}, {_libraries()}"),
    ]
    return Section("data", "Data, seeds and versions", facts([*known, *versions]))


def _libraries() -> str:
    found = []
    for name in LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # a library put beside the package by hand
            continue
    return ", ".join(found)


def again_section(source: Source, *, origin: str | None, note: str = "") -> Section:
    """The commands that make the file and the page again; ``origin`` is the one that made the file."""
    words = ["report", source.path, "--out", source.out]
    words += [] if source.profile_path is None else ["--profile", source.profile_path]
    words += [] if source.labels_path is None else ["--labels", source.labels_path]
    words += [] if source.label_column == "label" else ["--label", source.label_column]
    body = paragraph("The page, from its file:") + command(typed(*words))
    if origin is not None:
        body += paragraph("The file, from its data:") + command(origin)
    return Section("again", "Make it again", body + (paragraph(note) if note else ""))


def require_same_profile(source: Source, fingerprints: Mapping[str, Profile], stated: Any, noun: str) -> None:
    """Raise unless the profile given is the one that the noun states."""
    if source.profile is not None and stated not in fingerprints:
        raise InvalidInputError(
            f"{source.profile_path} is not the profile that the {noun} was made from: its fingerprint is "
            f"{source.profile.fingerprint[:12]}…, and {str(stated)[:12]}… is stated."
        )


def doctor_sections(profile: Profile | None) -> tuple[Section, ...]:
    """What the doctor says of the profile, where there is one."""
    if profile is None:
        return ()
    checkup = doctor(profile)
    rows = [
        (Cell(one.severity), one.code, one.about, f"{one.seen} {one.advice}".strip())
        for one in checkup.findings
        if one.severity != "ok"
    ]
    passed = sum(one.severity == "ok" for one in checkup.findings)
    skipped = "".join(paragraph(f"Not checked: {code}, since {reason}.") for code, reason in checkup.skipped.items())
    found = (
        table(("how grave", "check", "features", "what is seen, and what to do"), rows, text=(1, 2, 3),
              caption=f"What `occamroute doctor` sees in the {checkup.n_rows:,} labelled rows, the gravest first")
        if rows else paragraph(f"Nothing wrong in {checkup.n_rows:,} labelled rows.")
    )  # fmt: skip
    body = found + paragraph(f"{passed} checks found nothing to say.") + skipped
    return (Section("doctor", "What the doctor says of the profile", body),)
