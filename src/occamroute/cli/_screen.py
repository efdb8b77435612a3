"""What verbs share on the screen: progress, JSON, tables, and a chart made of text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["chart", "nearness", "print_json", "print_table", "progress_bar", "table", "visible"]

# What a terminal obeys instead of showing it: control characters (C0, DEL, C1) and marks that change the direction of
# text or end a line.
_OBEYED = (*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_SHOWN = {code: chr(code).encode("unicode_escape").decode() for code in _OBEYED}


def visible(text: str) -> str:
    r"""The text with everything that a terminal would obey written out, as ``\x1b`` or ``\n``."""
    return text.translate(_SHOWN)


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


def print_json(content: Any, *, indent: int | None = 2) -> None:
    """One JSON document on stdout, in ASCII."""
    sys.stdout.write(json.dumps(content, indent=indent, allow_nan=False) + "\n")
    sys.stdout.flush()


def table(*headings: str, title: str | None = None) -> Table:
    """An empty table, numbers to the right; a heading that starts with ``<`` is of text."""
    from rich import box
    from rich.table import Table

    class Visible(Table):
        """Rows come from files and from other machines."""

        def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
            super().add_row(*(visible(cell) if isinstance(cell, str) else cell for cell in cells), **options)

    made = Visible(title=None if title is None else visible(title), box=box.SIMPLE, title_justify="left")
    for heading in headings:
        shown = visible(heading.removeprefix("<"))
        made.add_column(shown, justify="left" if heading.startswith("<") else "right")
    return made


def print_table(*content: Table | str) -> None:
    """Print tables, or lines of text, to stdout; never cut to a narrow width when it is not a terminal.

    Names and messages come from files and from other machines: they are shown as they are, and never obeyed.
    """
    from rich.console import Console

    literal: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
    console = Console(**literal)
    if not console.is_terminal:
        console = Console(width=140, **literal)
    for one in content:
        console.print(visible(one) if isinstance(one, str) else one, highlight=False, markup=False, emoji=False)


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
