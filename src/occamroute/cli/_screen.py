"""What verbs share on the screen: progress, JSON, tables, and a chart made of text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["chart", "print_json", "print_table", "progress_bar", "table"]


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


def chart(lines: Sequence[tuple[str, Iterable[float], Iterable[float]]], *, width: int = 72, height: int = 16) -> str:
    """Marks on a grid of characters: each line is (mark, x, y); later ones cover earlier ones."""
    xs = [x for _, line, _ in lines for x in line]
    ys = [y for _, _, line in lines for y in line]
    low, high = min(ys), max(ys)
    left, right = min(xs), max(xs)
    grid = [[" "] * width for _ in range(height)]
    for mark, line_x, line_y in lines:
        for x, y in zip(line_x, line_y, strict=True):
            column = round((x - left) / (right - left or 1.0) * (width - 1))
            row = round((high - y) / (high - low or 1.0) * (height - 1))
            grid[row][column] = mark
    labels = [f"{100 * (high - (high - low) * row / (height - 1)):6.1f} % │" for row in range(height)]
    body = [label + "".join(cells) for label, cells in zip(labels, grid, strict=True)]
    body.append(" " * 9 + "└" + "─" * width)
    ends = f"{left:.3g}", f"{right:.3g}"
    body.append(" " * 10 + ends[0] + ends[1].rjust(width - len(ends[0])))
    return "\n".join(body)
