"""The story of a profile: what each classifier costs and how often it is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from occamroute._intervals import mean_bounds
from occamroute.charts.pictures import classifier_chart, pareto_mask
from occamroute.charts.words import amount, between, counted, percent, plain_percent
from occamroute.profiles import Profile
from occamroute.reporting.pieces import Cell, Section, paragraph, table
from occamroute.reporting.provenance import again_section, data_section, doctor_sections
from occamroute.reporting.stories import Figure, Source, Story

__all__ = ["classifier_table", "profile_story"]


def profile_story(profile: Profile, source: Source) -> Story:
    """What a profile tells."""
    bounds = mean_bounds(profile.success, profile.blocks)
    accuracy, costs = profile.accuracy, profile.mean_costs
    best = int(max(range(len(profile.names)), key=lambda column: (accuracy[column], -costs[column])))
    any_right = profile.success.max(axis=1)
    low, high = mean_bounds(any_right[:, None], profile.blocks)[0].tolist()
    room = float(any_right.mean())
    cheap = int(min(range(len(profile.names)), key=lambda column: (costs[column], -accuracy[column])))
    ends = [(float(one), float(other)) for one, other in bounds]
    return Story(
        kind="profile",
        title=(
            f"{counted(len(profile.names), 'classifier')} on "
            f"{counted(len(profile), 'labelled query', 'labelled queries')}"
        ),
        sentence=(
            f"{profile.names[best]} is right most often, on {percent(float(accuracy[best]), ends[best])}, at "
            f"{amount(float(costs[best]))} a call; "
            f"{_cheapest(profile, best, cheap, ends[cheap])}; intervals are of 90 %."
        ),
        figures=(
            Figure(
                f"Best alone: {profile.names[best]}", plain_percent(float(accuracy[best])),
                f"90 %: {between(ends[best])}", float(accuracy[best]), ends[best],
            ),
            Figure(
                f"Cheapest: {profile.names[cheap]}", plain_percent(float(accuracy[cheap])),
                f"90 %: {between(ends[cheap])}", float(accuracy[cheap]), ends[cheap],
            ),
            Figure("Some classifier is right", plain_percent(room), f"90 %: {between((low, high))}", room, (low, high)),
        ),
        chart=lambda canvas: classifier_chart(profile.names, costs, accuracy, bounds, canvas=canvas),
        caption="Each classifier alone, with its 90 % interval. The line joins those that no other beats in both.",
        sections=(
            Section("classifiers", "Classifiers", classifier_table(profile) + paragraph(
                "A router that knew every answer beforehand would be right wherever some classifier is: no choice of "
                "one classifier for each query can do better."
            )),
            data_section(_about(profile), made_by=str(profile.made_from.get("version", "")) or None),
            *doctor_sections(profile),
            again_section(source, origin=None, note="Profiles are made by `occamroute profile`, or by oc.Profile."),
        ),
    )  # fmt: skip


def _cheapest(profile: Profile, best: int, cheap: int, interval: tuple[float, float]) -> str:
    if cheap == best:
        return "no other is cheaper"
    accuracy, cost = float(profile.accuracy[cheap]), float(profile.mean_costs[cheap])
    return f"the cheapest, {profile.names[cheap]}, on {percent(accuracy, interval)} at {amount(cost)}"


def _about(profile: Profile) -> dict[str, Any]:
    sets = ", ".join(
        f"{name} ({table.shape[1]} columns, {amount(float(profile.extraction_costs[name]))} a query)"
        for name, table in profile.stored_sets.items()
    )
    said = {
        str(name): str(value)
        for name, value in profile.made_from.items()
        if name != "version" and isinstance(value, str | int | float)
    }
    return {
        "fingerprint": profile.fingerprint,
        "labelled queries": f"{len(profile):,}",
        "groups that belong together": None if profile.groups is None else f"{int(profile.blocks.max()) + 1:,}",
        "classes": None if profile.classes is None else f"{len(profile.classes):,}",
        "features": sets,
        "probabilities kept of": ", ".join(profile.probabilities or ()) or None,
    } | said


def classifier_table(
    profile: Profile, extra: Mapping[str, Sequence[str]] | None = None, headings: Sequence[str] = ()
) -> str:
    """Every classifier by cost, with its accuracy on the profile's rows; ``extra`` adds cells to each."""
    bounds = mean_bounds(profile.success, profile.blocks)
    efficient = pareto_mask(profile.mean_costs, profile.accuracy)
    order = sorted(range(len(profile.names)), key=lambda column: float(profile.mean_costs[column]))
    rows: list[tuple[str | Cell, ...]] = []
    for column in order:
        low, high = bounds[column].tolist()
        right = Cell(plain_percent(float(profile.accuracy[column])), between((low, high)))
        name = profile.names[column]
        added = () if extra is None else extra[name]
        beaten = "no" if efficient[column] else "yes"
        rows.append((name, amount(float(profile.mean_costs[column])), right, beaten, *added))
    return table(
        ("classifier", "cost of one call", "accuracy (90 %)", "beaten by another", *headings), rows,
        caption=f"Each classifier alone, on {len(profile):,} labelled rows; costs are exact",
    )  # fmt: skip
