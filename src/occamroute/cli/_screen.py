"""What verbs share on the screen: progress, JSON, tables, and a chart made of text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["chart", "nearness", "print_json", "print_table", "progress_bar", "table"]


def nearness(gap: float) -> str:
    """How near a plan is to the best that there is, proved."""
    if gap == 0.0:
        return "no plan within the budget is better, by the same estimates"
    return f"within {gap:.1e} of the optimum"


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A function ``(done, total)`` that moves a bar with the time left, on stderr and only if it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_json(content: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")


def table(*headings: str, title: str | None = None) -> Table:
    """An empty table, numbers to the right; a heading that starts with ``<`` is of text."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, box=box.SIMPLE, title_justify="left")
    for heading in headings:
        made.add_column(heading.removeprefix("<"), justify="left" if heading.startswith("<") else "right")
    return made


def print_table(content: Any) -> None:
    """Print a table, or text, to stdout; never cut to a narrow width when it is not a terminal."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    console.print(content, highlight=False, markup=False)


Points = Sequence[tuple[float, float]]


def chart(lines: Sequence[tuple[str, Points]], *, joined: str = "", width: int = 72, height: int = 16) -> str:
    """Marks on a grid of characters: each line is a mark and its points (x, y); later ones cover earlier ones.

    Dots join the points of the marks in ``joined``.
    """
    places = [("·", _between(points)) for mark, points in lines if mark in joined] + list(lines)
    left, right = (end(x for _, points in places for x, _ in points) for end in (min, max))
    low, high = (end(y for _, points in places for _, y in points) for end in (min, max))
    grid = [[" "] * width for _ in range(height)]
    for mark, points in places:
        for x, y in points:
            column = round((x - left) / (right - left or 1.0) * (width - 1))
            row = round((high - y) / (high - low or 1.0) * (height - 1))
            grid[row][column] = mark
    labels = [f"{100 * (high - (high - low) * row / (height - 1)):6.1f} % │" for row in range(height)]
    body = [label + "".join(cells) for label, cells in zip(labels, grid, strict=True)]
    body.append(" " * 9 + "└" + "─" * width)
    ends = f"{left:.3g}", f"{right:.3g}"
    body.append(" " * 10 + ends[0] + ends[1].rjust(width - len(ends[0])))
    return "\n".join(body)


def _between(points: Points) -> Points:
    """Many points on the straight lines from each point to the next."""
    steps = [step / 100 for step in range(101)]
    return [
        (x + share * (next_x - x), y + share * (next_y - y))
        for (x, y), (next_x, next_y) in pairwise(points)
        for share in steps
    ]
