"""Subject: what a dashboard shows, from the side of the page: one function for each thing that it asks for."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from occamroute._money import exact, money_from_text
from occamroute._version import __version__
from occamroute.errors import InvalidInputError
from occamroute.execution.runs import Run
from occamroute.reporting.exploring.changes import Changes, extractor_of
from occamroute.reporting.exploring.exploration import Exploration
from occamroute.reporting.exploring.looking import Search, queries, receipt
from occamroute.reporting.exploring.openings import facts_of_run
from occamroute.storage import to_bytes
from occamroute.tables import csv_into

__all__ = ["Subject", "Wish"]

# Classifiers that a request can name.
MOST_NAMES = 2_000


class Wish:
    """The parameters of a request."""

    def __init__(self, given: Mapping[str, Sequence[str]]) -> None:
        self._given = given

    def text(self, name: str, default: str = "") -> str:
        """A parameter, the last one where it is repeated."""
        values = self._given.get(name) or [default]
        return values[-1]

    def number(self, name: str, default: int) -> int:
        """A whole number that is not negative."""
        text = self.text(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InvalidInputError(f"{name} must be a whole number ≥ 0, got {text[:40]!r}.")
        return int(text)

    @property
    def budget(self) -> str:
        """The budget as it was typed."""
        return self.text("budget").strip()[:400]

    @property
    def changes(self) -> Changes:
        """Classifiers dropped (``drop=NAME``) and prices (``price=AMOUNT:NAME``)."""
        drops, pairs = self._given.get("drop") or [], self._given.get("price") or []
        if len(drops) + len(pairs) > MOST_NAMES:
            raise InvalidInputError(f"at most {MOST_NAMES} changes can be asked for, got {len(drops) + len(pairs)}.")
        prices = {}
        for pair in pairs:
            amount, _, name = pair.partition(":")
            prices[name] = money_from_text(amount.strip()[:400], f"the price of {name}")
        return Changes.of(drops, prices)

    @property
    def search(self) -> Search:
        """Which queries of the table."""
        order: Any = self.text("sort", "row")
        return Search(
            classifier=self.text("classifier") or None,
            text=self.text("text"),
            order=order,
            falling=self.text("falling") == "1",
            offset=self.number("offset", 0),
            limit=self.number("limit", 50),
        )


@dataclass(frozen=True, eq=False)
class Subject:
    """What is shown: an exploration, or a run; ``kind`` is "profile", "plan", "run" or "service".

    ``budget`` is where the handle stands at first, ``facts`` are what a file promises of itself, ``notes`` are
    sentences that the numbers cannot be read without.
    """

    kind: str
    title: str
    exploration: Exploration | None = None
    run: Run | None = None
    budget: str | None = None
    facts: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    live: bool = False
    answers: Mapping[str, Callable[[Wish], Any]] = field(default_factory=dict)

    def about(self, _: Wish) -> dict[str, Any]:
        """What this is, and what it was made from."""
        exploration = self.exploration
        said: dict[str, Any] = {
            "kind": self.kind,
            "title": self.title,
            "version": __version__,
            "live": self.live,
            "facts": self.facts,
            "notes": list(self.notes),
            "budget": self.budget,
            "exploring": exploration is not None,
            "about": [],
        }
        if self.run is not None:
            said["facts"] = facts_of_run(self.run)
            said["names"] = list(self.run.names)
            said["about"] = _pairs(self.run.made_from)
        if exploration is not None:
            estimate = exploration.estimate
            said |= {
                "n_queries": len(estimate),
                "names": list(estimate.names),
                "extractor": extractor_of(estimate),
                "overhead": float(exact(estimate.overhead)),
                "prices": {one.name: one.price for one in exploration.scene().singles},
                "known": exploration.truth is not None,
                "labelled": exploration.labels is not None,
                "distances": estimate.distance is not None,
                "neighbours": exploration.surroundings is not None,
                "penalty": exploration.about.get("penalty", 0.0),
                "about": _pairs(exploration.about),
                **self.first_view,
            }
        return said

    @cached_property
    def first_view(self) -> dict[str, Any]:
        """What the page shows at first, so that it need not ask for it."""
        if self.exploration is None:
            return {}
        at = None if self.budget is None else self.exploration.at(self.budget)
        return {"frontier": self.exploration.frontier(), "at": at}

    def answer(self, name: str) -> Callable[[Wish], Any] | None:
        """The function that gives what is asked for under a name; None where there is no such thing."""
        own: dict[str, Callable[[Wish], Any]] = {"about": self.about, **self.answers}
        exploration = self.exploration
        if exploration is not None:
            own |= {
                "frontier": lambda wish: exploration.frontier(wish.changes),
                "at": lambda wish: exploration.at(wish.budget, wish.changes),
                "sweep": lambda wish: {"rows": exploration.sweep(wish.changes)},
                "queries": lambda wish: queries(exploration, wish.budget, wish.changes, wish.search),
                "receipt": lambda wish: receipt(exploration, wish.number("row", 0), wish.budget, wish.changes),
            }
        if self.run is not None:
            run = self.run
            own["bought"] = lambda wish: bought(run, wish.search)
        return own.get(name)

    def picture(self, wish: Wish) -> tuple[str, bytes]:
        """The media type and the bytes of a query's picture."""
        previews = None if self.exploration is None else self.exploration.previews
        if previews is None:
            raise InvalidInputError("there are no pictures of these queries.")
        return previews.picture(wish.text("id"))

    def files(self, name: str) -> Callable[[Wish], bytes] | None:
        """The function that gives the bytes of a file to download."""
        exploration = self.exploration
        if exploration is None:
            return None
        return {
            "plan.parquet": lambda wish: to_bytes(exploration.plan(wish.budget, wish.changes)),
            "plan.csv": lambda wish: _csv(exploration.plan(wish.budget, wish.changes).assignment()),
        }.get(name)


def bought(run: Run, search: Search) -> dict[str, Any]:
    """A page of what a run bought: each query's answer, who gave it, for how much and why."""
    columns = {name: column for name, column in run.columns().items() if name != "probabilities"}
    needle = search.text.casefold()
    rows = [
        row
        for row in range(len(run))
        if (search.classifier is None or columns["classifier"][row] == search.classifier)
        and (not needle or needle in run.ids[row].casefold() or needle in str(columns["answer"][row]).casefold())
    ]
    keys = {"id": "id", "classifier": "classifier", "cost": "cost", "reached": "answer"}
    if search.order in keys:
        rows.sort(key=lambda row: columns[keys[search.order]][row])
    if search.falling:
        rows.reverse()
    page = rows[search.offset : search.offset + search.limit]
    return {
        "total": len(rows),
        "rows": [
            {"row": row, "failure": run.failures.get(row)}
            | {name: column[row].item() for name, column in columns.items()}
            for row in page
        ],
    }


def _pairs(made_from: Mapping[str, Any]) -> list[list[str]]:
    return [[str(name).replace("_", " "), _plain(value)] for name, value in made_from.items()]


def _plain(value: Any) -> str:
    """A value in words, without Python's punctuation."""
    if value is None or isinstance(value, bool):
        return "none" if value is None else "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_plain(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "none"
    return str(value)


def _csv(columns: Mapping[str, Any]) -> bytes:
    text = io.StringIO(newline="")
    csv_into(text, columns)
    return text.getvalue().encode()
