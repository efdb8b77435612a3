"""Story: a page for two readers, what a manager sees first and what an engineer can check."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

from occamroute.charts.words import Interval
from occamroute.data_files import QueryFile
from occamroute.profiles import Profile
from occamroute.reporting.frame import page
from occamroute.reporting.pieces import Draw, Section, notice, paragraph, shown, unbroken

__all__ = ["Figure", "Source", "Story", "story_page"]


@dataclass(frozen=True)
class Source:
    """Where what is told comes from: the file, and its profile and labels where they are given, as they were typed."""

    path: str
    out: str
    made: datetime
    profile: Profile | None = None
    profile_path: str | None = None
    labels: QueryFile | None = None
    labels_path: str | None = None
    label_column: str = "label"

    @property
    def time(self) -> str:
        """When the page is made."""
        return f"{self.made:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True)
class Figure:
    """A number on the first screen, in words, with how sure it is; ``number`` and ``interval`` are what it shows."""

    what: str
    value: str
    sure: str
    number: float | None = None
    interval: Interval = None

    def html(self) -> str:
        """The figure as it stands in the page."""
        return (
            f'<li><span class="what">{escape(self.what)}</span><span class="value">{escape(self.value)}</span>'
            f'<span class="sure">{escape(self.sure)}</span></li>'
        )


@dataclass(frozen=True)
class Story:
    """What a page tells: one headline, one sentence, three figures and a chart; then everything behind them.

    ``aside`` is what the sentence must not be read without; ``warnings`` must not be overlooked.
    """

    kind: str
    title: str
    sentence: str
    figures: tuple[Figure, ...]
    chart: Draw
    caption: str
    sections: tuple[Section, ...]
    warnings: tuple[str, ...] = ()
    aside: str = ""

    def summary(self) -> dict[str, Any]:
        """The first screen, for JSON."""
        return {
            "kind": self.kind,
            "title": self.title,
            "sentence": self.sentence,
            "aside": self.aside,
            "warnings": list(self.warnings),
            "figures": [
                {
                    "what": one.what, "value": one.value, "sure": one.sure, "number": one.number,
                    "interval": None if one.interval is None else list(one.interval),
                }
                for one in self.figures
            ],
        }  # fmt: skip


def story_page(story: Story, source: Source) -> str:
    """The page, self-contained."""
    links = "".join(
        f'<li><a href="#{escape(section.name)}">{escape(section.title)}</a></li>' for section in story.sections
    )
    body = (
        f"<h1>{unbroken(story.title)}</h1>{paragraph(story.sentence, 'lead')}"
        f'<ul class="figures">{"".join(figure.html() for figure in story.figures)}</ul>'
        f"{paragraph(story.aside, 'aside') if story.aside else ''}{''.join(map(notice, story.warnings))}"
        f"{shown(story.chart, story.caption)}"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>'
        f"{''.join(section.html() for section in story.sections)}"
    )
    return page(story.title, body, kind=f"report of a {story.kind}", made=f" on {source.time} from {source.path}")
