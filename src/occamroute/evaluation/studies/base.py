"""What a study is: a question of the paper, asked of one portfolio, answered in numbers, pictures and words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.charts import Series, line_chart
from occamroute.evaluation.studies.bench import Bench, Row
from occamroute.evaluation.studies.subjects import Subject

__all__ = [
    "Curves", "Result", "Row", "Study", "budget_chart", "count_of", "curve_rows", "joined", "nothing_lacking",
    "percent", "points", "slope",
]  # fmt: skip

# Accuracy by budget (a share of always using the dearest) for each method.
Curves = Mapping[str, Mapping[float, float]]


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


def curve_rows(curves: Curves) -> list[Row]:
    """A row for each method and budget."""
    return [
        {"method": label, "budget_share": share, "accuracy": accuracy}
        for label, curve in curves.items()
        for share, accuracy in curve.items()
    ]


def budget_chart(curves: Curves, *, title: str, dashed: Sequence[str] = ("oracle",)) -> str:
    """Accuracy against budget, a line for each method."""
    series = [
        Series(label, list(curve), list(curve.values()), points=True, dashed=label in dashed)
        for label, curve in curves.items()
        if curve
    ]
    return line_chart(
        series, title=title, x_label="budget, as a share of always using the dearest", y_label="accuracy", log_x=True,
        x_format=lambda x: percent(x, 0), y_format=lambda y: percent(y, 0),
    )  # fmt: skip


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage."""
    return f"{100.0 * share:.{digits}f} %".replace("-", "−")


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
