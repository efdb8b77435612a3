"""What a study is: a question of the paper, asked of one portfolio, answered in numbers, pictures and words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.evaluation.studies.bench import Bench
from occamroute.evaluation.studies.subjects import Subject

__all__ = ["Result", "Row", "Study", "count_of", "joined", "nothing_lacking", "percent", "points", "slope"]

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """What a study found on one portfolio.

    ``tables`` and ``charts`` map the stem of a file's name to rows and to SVG text; ``finding`` is made from the
    numbers.
    """

    tables: Mapping[str, Sequence[Row]]
    charts: Mapping[str, str]
    finding: str


def nothing_lacking(subject: Subject) -> str | None:
    """None: any profile will do."""
    return None


@dataclass(frozen=True)
class Study:
    """One question of the paper.

    ``places`` are the paper's figures and tables, ``paper`` says in our words what it found there, ``lacks`` gives
    the reason why a portfolio cannot be asked, or None.
    """

    name: str
    title: str
    places: str
    paper: str
    run: Callable[[Bench], Result]
    lacks: Callable[[Subject], str | None] = field(default=nothing_lacking)


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage."""
    return f"{100.0 * share:.{digits}f} %"


def points(difference: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{100.0 * difference:+.2f} points".replace("-", "−")


def joined(words: Sequence[str]) -> str:
    """Words as a list in a sentence."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def count_of(hits: Sequence[bool], what: str) -> str:
    """How many of several things are so: "3 of 9 budgets"."""
    return f"{sum(map(bool, hits))} of {len(hits)} {what}"


def slope(x: FloatArray | Sequence[float], y: FloatArray | Sequence[float]) -> float:
    """The exponent p of the power law y = c · x^p that fits best."""
    return float(np.polyfit(np.log(np.asarray(x, np.float64)), np.log(np.asarray(y, np.float64)), 1)[0])
