"""Lines and points, with bands or bars where a number is only known within an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from occamroute._arrays import FloatArray
from occamroute.charts.drawing import (
    WIDE,
    Canvas,
    Labels,
    Mark,
    axes,
    colour_of,
    decades,
    legend,
    log_ticks,
    nice_ticks,
    picture,
    scale,
)

__all__ = ["Series", "line_chart"]

Numbers = FloatArray | Sequence[float]
Place = Callable[[float], float]


@dataclass(frozen=True)
class Series:
    """One line, or points alone, with its name in the legend; ``labels`` are written beside the points.

    ``low`` and ``high`` are the ends of each point's interval: a band around a line, bars on points alone. ``tips``
    are shown where a pointer rests on a point. A ``quiet`` series stands back; ``colour`` is chosen by its place
    unless it is given.
    """

    name: str
    x: Numbers
    y: Numbers
    line: bool = True
    points: bool = False
    dashed: bool = False
    labels: Sequence[str] = ()
    low: Numbers = ()
    high: Numbers = ()
    tips: Sequence[str] = ()
    quiet: bool = False
    colour: str = ""


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_format: Callable[[float], str] = "{:g}".format,
    y_format: Callable[[float], str] = "{:g}".format,
    log_x: bool = False,
    log_y: bool = False,
    x_ticks: Sequence[float] | None = None,
    canvas: Canvas = WIDE,
) -> str:
    """An SVG picture of the series; ``title`` is read out by screen readers, ``x_ticks`` sets the marks on the axis."""
    xs = [float(x) for one in series for x in one.x] or [1.0, 2.0]  # an empty picture still has its axes
    ys = [float(y) for one in series for part in (one.y, one.low, one.high) for y in part] or [1.0, 2.0]
    marks = list(x_ticks) if x_ticks else log_ticks(min(xs), max(xs)) if log_x else nice_ticks(min(xs), max(xs), 8)
    y_ticks = decades(min(ys), max(ys)) if log_y else nice_ticks(min(ys), max(ys))
    across = scale(marks[0], marks[-1], canvas.left, canvas.width - canvas.right, log=log_x)
    up = scale(y_ticks[0], y_ticks[-1], canvas.height - canvas.bottom, canvas.top, log=log_y)
    body = [axes(canvas, marks, y_ticks, across, up, x_format, y_format, x_label, y_label)]
    coloured = [(one, one.colour or colour_of(index)) for index, one in enumerate(series)]
    # What stands back is drawn first, so that nothing else is behind it.
    body += [_drawn(one, colour, across, up) for one, colour in sorted(coloured, key=lambda pair: not pair[0].quiet)]
    body.append(_labels(series, across, up, canvas))
    shown = [
        Mark(one.name, colour, one.line, one.points, one.dashed, one.line and len(one.low) > 0)
        for one, colour in coloured
        if one.name
    ]
    names, high = legend(shown, canvas, canvas.height + 8)
    return picture([*body, names], title, canvas, canvas.height + high)


def _drawn(one: Series, colour: str, across: Place, up: Place) -> str:
    places = [(across(float(x)), up(float(y))) for x, y in zip(one.x, one.y, strict=True)]
    ends = [(x, up(float(low)), up(float(high))) for (x, _), low, high in zip(places, one.low, one.high, strict=False)]
    parts = []
    if one.line:
        parts.append(_band(ends, colour))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="6 4"' if one.dashed else ""
        wide = "1.5" if one.quiet else "2.2"
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{wide}" '
            f'stroke-linejoin="round"{dash}/>'
        )
    else:
        parts += [
            f'<path d="M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8" '
            f'stroke="{colour}" stroke-width="1.5" fill="none"/>'
            for x, low, high in ends
        ]
    if one.points:
        tips = [*one.tips, *[""] * (len(places) - len(one.tips))]
        size = 3 if one.quiet else 4
        parts += [_point(x, y, size, colour, tip) for (x, y), tip in zip(places, tips, strict=True)]
    faint = ' opacity=".45"' if one.quiet else ""
    return f"<g{faint}><title>{escape(one.name)}</title>{''.join(parts)}</g>"


def _point(x: float, y: float, size: int, colour: str, tip: str) -> str:
    shown = f"<title>{escape(tip)}</title>" if tip else ""
    end = f">{shown}</circle>" if shown else "/>"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"{end}'


def _band(ends: Sequence[tuple[float, float, float]], colour: str) -> str:
    if not ends:
        return ""
    there = [f"{x:.1f},{high:.1f}" for x, _, high in ends]
    back = [f"{x:.1f},{low:.1f}" for x, low, _ in reversed(ends)]
    return f'<polygon points="{" ".join([*there, *back])}" fill="{colour}" fill-opacity=".18"/>'


def _labels(series: Sequence[Series], across: Place, up: Place, canvas: Canvas) -> str:
    """Texts beside points, clear of points, lines and bars where there is room."""
    if not any(label for one in series for label in one.labels):
        return ""
    room = Labels(canvas)
    wanted = []
    for one in series:
        places = [(across(float(x)), up(float(y))) for x, y in zip(one.x, one.y, strict=True)]
        if one.points:
            room.keep(places, 5)
        if one.line:
            room.keep(_along(places), 2)
        else:
            bars = [
                (x, (up(float(low)), up(float(high))))
                for (x, _), low, high in zip(places, one.low, one.high, strict=False)
            ]
            room.keep([place for x, (low, high) in bars for place in _along([(x, low), (x, high)])], 3)
        wanted += [(x, y, text) for (x, y), text in zip(places, one.labels, strict=False) if text]
    return "".join(room.put(x, y, text) for x, y, text in wanted)


def _along(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Places on the straight lines from each place to the next, a few pixels apart."""
    found = []
    for (x, y), (next_x, next_y) in pairwise(places):
        steps = max(1, int(max(abs(next_x - x), abs(next_y - y)) / 6))
        found += [(x + (next_x - x) * step / steps, y + (next_y - y) * step / steps) for step in range(steps + 1)]
    return found
