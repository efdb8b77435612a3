"""What a run's answers were worth, where their labels have become known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._intervals import mean_bounds
from occamroute.charts import Canvas
from occamroute.charts.pictures import calibration_chart
from occamroute.charts.words import between, plain_percent, short_share
from occamroute.data_files import QueryFile
from occamroute.errors import InvalidInputError
from occamroute.execution.runs import Run
from occamroute.reporting.pieces import Cell, Section, details, shown, table

__all__ = ["Judged", "judged", "judged_section"]

GROUPS = 10


@dataclass(frozen=True, eq=False)
class Judged:
    """The queries with a label (their numbers in the run), and whether their answers are right, 0 or 1."""

    rows: IntArray
    right: FloatArray
    accuracy: float
    interval: tuple[float, float]


def judged(run: Run, labels: QueryFile) -> Judged:
    """The run's answers beside labels, by id where the file has ids, else in the order of the rows."""
    if labels.labels is None:
        raise InvalidInputError("the file given with --labels has no column of labels.")
    if labels.ids is None and len(labels.labels) != len(run):
        raise InvalidInputError(
            f"without ids there must be a label for each of the run's {len(run):,} queries, got {len(labels.labels):,}."
        )
    known = dict(zip(run.ids if labels.ids is None else labels.ids, labels.labels, strict=True))
    rows = np.array([row for row, name in enumerate(run.ids) if name in known], np.int64)
    if not rows.size:
        raise InvalidInputError("none of the labels' ids is that of a query of the run.")
    right = np.array([float(run.answers[row] == known[run.ids[row]]) for row in rows])
    low, high = mean_bounds(right[:, None])[0].tolist()
    return Judged(rows, right, float(right.mean()), (low, high))


def judged_section(run: Run, found: Judged) -> Section:
    """Accuracy by classifier, and how sure answers were beside how right they were."""
    by = [(run.names[column], found.right[run.choice[found.rows] == column]) for column in range(len(run.names))]
    by.append(("nobody", found.right[run.choice[found.rows] < 0]))
    by.append(("all", found.right))
    rows = [(name, f"{len(right):,}", _share(right)) for name, right in by if len(right)]
    body = table(
        ("answered by", "labelled queries", "right (90 %)"), rows, strong=[len(rows) - 1],
        caption="How right the answers are, by the labels given; a query without an answer counts as wrong",
    )  # fmt: skip
    return Section("judged", "How right the answers are", body + _calibration(run, found))


def _share(right: FloatArray) -> Cell:
    low, high = mean_bounds(right[:, None])[0].tolist()
    return Cell(plain_percent(float(right.mean())), between((low, high)))


def _calibration(run: Run, found: Judged) -> str:
    """How probable the answers were said to be, by tenths, beside how many of them are right."""
    answered = run.choice[found.rows] >= 0
    sure = run.probabilities[found.rows[answered]].max(axis=1)
    right = found.right[answered]
    if not sure.size:
        return ""
    groups = np.array_split(np.argsort(sure, kind="stable"), min(GROUPS, sure.size))
    estimated = [float(sure[rows].mean()) for rows in groups]
    reached = [float(right[rows].mean()) for rows in groups]
    low, high = np.array([mean_bounds(right[rows, None])[0] for rows in groups]).T.tolist()

    def draw(canvas: Canvas) -> str:
        return calibration_chart(estimated, reached, low, high, canvas=canvas)

    numbers = [
        (str(number + 1), f"{len(rows):,}", short_share(estimated[number]), _share(right[rows]))
        for number, rows in enumerate(groups)
    ]
    return shown(
        draw, "Answers by the probability that they were given with; on the diagonal it is right on average. Bars are "
        "90 % intervals.",
    ) + details("The numbers", table(
        ("tenth", "answers", "said to be", "right (90 %)"), numbers, caption="Answers by their probability",
    ))  # fmt: skip
