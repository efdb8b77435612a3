"""Where a comparison comes from: its data, its certificates, the command that makes it again."""

from __future__ import annotations

from occamroute.charts.words import proved_gap
from occamroute.datasets import DATASETS, load_dataset
from occamroute.evaluation.baselines import METHODS
from occamroute.evaluation.reports import Report
from occamroute.profiles import Profile
from occamroute.reporting.pieces import Section, paragraph
from occamroute.reporting.provenance import again_section, data_section, doctor_sections, require_same_profile, typed
from occamroute.reporting.stories import Source

__all__ = ["origin_sections"]


def origin_sections(report: Report, source: Source) -> tuple[Section, ...]:
    """Certificates, data, the doctor's notes, and how to make it again."""
    about = report.about
    learned = _learned_from(report, source)
    seeds = about["seeds"]
    return (
        _certificates(report),
        data_section(
            {
                "learned from": f"{about['n_profile']:,} labelled rows, fingerprint {about['profile']}",
                "judged on": f"{about['n_queries']:,} other rows, fingerprint {about['test']}",
                "classifiers": ", ".join(about["names"]),
                "baselines look at": f"features of {about['extractor']}",
                "seed": f"{about['seed']}" + (f" and the {seeds - 1} after it, averaged" if seeds > 1 else ""),
            },
            made_by=about.get("version"),
        ),
        *doctor_sections(learned),
        again_section(source, origin=_origin(report, source), note=_note(report, source)),
    )


def _learned_from(report: Report, source: Source) -> Profile | None:
    """The rows that were learned from: those of the profile given, or the half that compare takes of it."""
    if source.profile is None:
        return None
    stated = report.about["profile"]
    known = {source.profile.fingerprint: source.profile}
    if stated not in known and len(source.profile) > 1:
        half, _ = source.profile.split(0.5, seed=report.about["seed"])
        known[half.fingerprint] = half
    require_same_profile(source, known, stated, "comparison")
    return known[stated]


def _certificates(report: Report) -> Section:
    worst = max((row["gap"] for row in report.rows if row["gap"] is not None), default=None)
    told = "" if worst is None else (
        f"Every plan behind these rows was proved, when it was made, to be "
        f"{f'within a gap of {proved_gap(worst)} of ' if worst else ''}the best that its estimates allow. "
    )  # fmt: skip
    return Section(
        "certificates",
        "Certificates",
        paragraph(
            f"{told}A comparison keeps what plans came to, not the plans, so that nothing can be recomputed here. To "
            "check one, make it with `occamroute plan`, and see its own report or `occamroute verify`."
        ),
    )


def _origin(report: Report, source: Source) -> str | None:
    """The command that makes the comparison again, where a command can."""
    about = report.about
    if any(method not in METHODS for method in report.methods):
        return None
    words = ["compare", source.profile_path or "PROFILE"]
    if not _own_halves(report, source):
        words += ["--test", "TEST"]
    for budget in report.budgets:
        words += ["--budget", repr(budget)]
    words += ["--methods", ",".join(report.methods), "--reference", about["reference"]]
    words += ["--extractor", about["extractor"], "--seed", str(about["seed"])]
    words += ["--seeds", str(about["seeds"])] if about["seeds"] > 1 else []
    words += ["--out", source.path]
    return typed(*words)


def _own_halves(report: Report, source: Source) -> bool:
    """Whether the profile named gives both the rows to learn from and those to judge on."""
    if source.profile is None or source.profile_path is None:
        return False
    judged = report.about["test"]
    if source.profile_path in DATASETS:
        return bool(load_dataset(source.profile_path)[1].fingerprint == judged)
    if len(source.profile) < 2:
        return False
    return bool(source.profile.split(0.5, seed=report.about["seed"])[1].fingerprint == judged)


def _note(report: Report, source: Source) -> str:
    if any(method not in METHODS for method in report.methods):
        return "It was made in Python with methods of its own: no command makes it again."
    if source.profile is None:
        return (
            "PROFILE and TEST stand for the saved profiles with the fingerprints above (without --test, compare sets "
            "half of PROFILE's rows aside). With --profile this page names them."
        )
    return "" if _own_halves(report, source) else "TEST stands for the saved profile that was judged on."
