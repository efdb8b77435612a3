"""Arrays to SVG: lines and points, stacked bars, heat maps; readable on light and dark pages, with nothing to load."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from occamroute._arrays import FloatArray

__all__ = ["Series", "heat_map", "line_chart", "log_ticks", "nice_ticks", "stacked_bars"]

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 72, 32, 20, 56
# Distinct also without colour vision (Okabe and Ito; the last two by Paul Tol).
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "currentColor", "#999933", "#882255",
)  # fmt: skip
# More lines than this have their names below the picture, where they cover nothing.
NAMES_INSIDE = 5
STYLE = """
.occam-chart { font: 13px system-ui, sans-serif; --ink: #1f2933; --faint: #d9dee4; max-width: 100%; height: auto }
.occam-chart { color: var(--ink) }
.occam-chart text { fill: var(--ink) } .occam-chart .grid { stroke: var(--faint) }
.occam-chart .axis { stroke: var(--ink) }
@media (prefers-color-scheme: dark) { .occam-chart { --ink: #e4e7eb; --faint: #3e4c59 } }
"""


@dataclass(frozen=True)
class Series:
    """One line, or points alone, with its name in the legend; ``labels`` are written beside the points."""

    name: str
    x: FloatArray | Sequence[float]
    y: FloatArray | Sequence[float]
    line: bool = True
    points: bool = False
    dashed: bool = False
    labels: Sequence[str] = ()


def nice_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round numbers that cover the range, about ``count`` of them."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / max(1, count - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if power * factor >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten within a range of positive numbers, and its ends."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inner = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return [low, *(tick for tick in inner if low * 1.2 < tick < high / 1.2), high]


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
    names_below: bool | None = None,
) -> str:
    """An SVG picture of the series; ``title`` is read out by screen readers.

    ``x_ticks`` sets the marks on the axis; ``names_below`` puts the legend under the picture, as is done anyway
    for many series.
    """
    xs = [float(x) for one in series for x in one.x] or [1.0, 2.0]  # an empty picture still has its axes
    ys = [float(y) for one in series for y in one.y] or [1.0, 2.0]
    marks = list(x_ticks) if x_ticks else log_ticks(min(xs), max(xs)) if log_x else nice_ticks(min(xs), max(xs), 8)
    y_ticks = _decades(min(ys), max(ys)) if log_y else nice_ticks(min(ys), max(ys))
    across = _scale(marks[0], marks[-1], LEFT, WIDTH - RIGHT, log=log_x)
    up = _scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP, log=log_y)
    body = [_axes(marks, y_ticks, across, up, x_format, y_format, x_label, y_label)]
    for index, one in enumerate(series):
        body.append(_drawn(one, COLOURS[index % len(COLOURS)], across, up))
    if names_below or (names_below is None and len(series) > NAMES_INSIDE):
        body.append(_legend(series, LEFT, HEIGHT + 8, columns=2))
        return _svg(body, title, HEIGHT + 18 * math.ceil(len(series) / 2) + 8)
    body.append(_legend(series, WIDTH - RIGHT - 250, HEIGHT - BOTTOM - 18 * len(series) - 8))
    return _svg(body, title, HEIGHT)


def stacked_bars(
    groups: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    y_format: Callable[[float], str] = "{:g}".format,
) -> str:
    """A bar for each group, made of a part for each name; ``parts`` maps a name to its part in each bar."""
    totals = [sum(column) for column in zip(*parts.values(), strict=True)]
    y_ticks = nice_ticks(0.0, max(totals))
    up = _scale(0.0, y_ticks[-1], HEIGHT - BOTTOM, TOP)
    step = (WIDTH - LEFT - RIGHT) / len(groups)
    centres = [LEFT + step * (index + 0.5) for index in range(len(groups))]
    places = dict(enumerate(centres))
    body = [
        _axes(list(places), y_ticks, lambda x: places[int(x)], up, lambda x: groups[int(x)], y_format, x_label, y_label)
    ]
    floors = [0.0] * len(groups)
    for index, (name, values) in enumerate(parts.items()):
        colour = COLOURS[index % len(COLOURS)]
        bars = []
        for group, value in enumerate(values):
            low, high = up(floors[group]), up(floors[group] + value)
            bars.append(
                f'<rect x="{centres[group] - 0.35 * step:.1f}" y="{high:.1f}" width="{0.7 * step:.1f}" '
                f'height="{low - high:.1f}" fill="{colour}"/>'
            )
            floors[group] += value
        body.append(f"<g><title>{escape(name)}</title>{''.join(bars)}</g>")
    named = [Series(name, (), (), line=False, points=True) for name in parts]
    body.append(_legend(named, LEFT, HEIGHT + 8, columns=2))
    return _svg(body, title, HEIGHT + 18 * math.ceil(len(named) / 2) + 8)


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
    wide, high = min(96.0, (WIDTH - left - RIGHT) / len(columns)), 34.0
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
            ink = ' style="fill: #fff"' if shade > 0.8 else ""
            body.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" height="{high - 2:.1f}" fill="{COLOURS[0]}" '
                f'fill-opacity="{shade:.3f}"/><text x="{x + wide / 2:.1f}" y="{y + high / 2 + 4:.1f}" '
                f'text-anchor="middle"{ink}>{escape(text(value))}</text>'
            )
    return _svg(body, title, int(top + high * len(rows) + 8))


def _svg(body: Sequence[str], title: str, height: int) -> str:
    return (
        f'<svg class="occam-chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>{''.join(body)}</svg>"
    )


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten that cover a range of positive numbers."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _scale(low: float, high: float, start: float, end: float, *, log: bool = False) -> Callable[[float], float]:
    if log:
        plain = _scale(math.log(low), math.log(high), start, end)
        return lambda value: plain(math.log(value))
    span = (high - low) or 1.0  # where all places are one
    return lambda value: start + (value - low) / span * (end - start)


def _axes(
    x_ticks: list[float], y_ticks: list[float], across: Callable[[float], float], up: Callable[[float], float],
    x_format: Callable[[float], str], y_format: Callable[[float], str], x_label: str, y_label: str,
) -> str:  # fmt: skip
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for tick in y_ticks:
        y = up(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(y_format(tick))}</text>')
    for tick in x_ticks:
        x = across(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{escape(x_format(tick))}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{bottom}"/>')
    middle = (LEFT + right) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_label)}</text>')
    turned = f"translate(16 {(TOP + bottom) / 2}) rotate(-90)"
    parts.append(f'<text transform="{turned}" text-anchor="middle">{escape(y_label)}</text>')
    return "".join(parts)


def _drawn(one: Series, colour: str, across: Callable[[float], float], up: Callable[[float], float]) -> str:
    places = [(across(float(x)), up(float(y))) for x, y in zip(one.x, one.y, strict=True)]
    parts = []
    if one.line:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="6 4"' if one.dashed else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
    if one.points:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places]
    for label, (x, y) in zip(one.labels, places, strict=False):
        # Towards the middle, where there is room for it.
        side, shift = ("end", -7) if x > WIDTH / 2 else ("start", 7)
        parts.append(f'<text x="{x + shift:.1f}" y="{y - 7:.1f}" text-anchor="{side}">{escape(label)}</text>')
    return f"<g><title>{escape(one.name)}</title>{''.join(parts)}</g>"


def _legend(series: Sequence[Series], left: float, top: float, *, columns: int = 1) -> str:
    parts = []
    for index, one in enumerate(series):
        x = left + (WIDTH - LEFT - RIGHT) / columns * (index % columns)
        y = top + 18 * (index // columns)
        colour = COLOURS[index % len(COLOURS)]
        if one.line:
            dash = ' stroke-dasharray="6 4"' if one.dashed else ""
            parts.append(
                f'<line x1="{x:g}" x2="{x + 24:g}" y1="{y:g}" y2="{y:g}" stroke="{colour}" stroke-width="2"{dash}/>'
            )
        if one.points:
            parts.append(f'<circle cx="{x + 12:g}" cy="{y:g}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 32:g}" y="{y + 4:g}">{escape(one.name)}</text>')
    return "".join(parts)
