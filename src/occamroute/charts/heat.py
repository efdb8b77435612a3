"""Tables of numbers as coloured cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from occamroute._arrays import FloatArray
from occamroute.charts.drawing import WIDE, colour_of, picture

__all__ = ["heat_map"]


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: FloatArray | Sequence[Sequence[float]],
    *,
    title: str,
    row_label: str,
    column_label: str,
    text: Callable[[float], str] = "{:.2g}".format,
) -> str:
    """A table of coloured cells, the darker the higher, each with its number in it."""
    left, top = 150, 72
    wide, high = min(96.0, (WIDE.width - left - WIDE.right) / len(columns)), 34.0
    largest = max((float(value) for line in values for value in line), default=0.0) or 1.0
    body = [
        f'<text x="{left + wide * len(columns) / 2:.1f}" y="18" text-anchor="middle">{escape(column_label)}</text>',
        f'<text x="{left - 8}" y="18" text-anchor="end">{escape(row_label)}</text>',
    ]
    for column, name in enumerate(columns):
        x = left + wide * (column + 0.5)
        # Every second name a line higher, so that long ones do not meet.
        height = top - 12 - 18 * (column % 2)
        body.append(f'<text x="{x:.1f}" y="{height}" text-anchor="middle">{escape(name)}</text>')
    for row, (name, line) in enumerate(zip(rows, values, strict=True)):
        y = top + high * row
        body.append(f'<text x="{left - 8}" y="{y + high / 2 + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        for column, value in enumerate(map(float, line)):
            x, shade = left + wide * column, max(0.0, value / largest)
            ink = ' fill="#fff"' if shade > 0.8 else ""
            body.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" height="{high - 2:.1f}" fill="{colour_of(0)}" '
                f'fill-opacity="{shade:.3f}"/><text x="{x + wide / 2:.1f}" y="{y + high / 2 + 4:.1f}" '
                f'text-anchor="middle"{ink}>{escape(text(value))}</text>'
            )
    return picture(body, title, WIDE, int(top + high * len(rows) + 8))
