"""Arrays to SVG: one chart of lines and points, readable on light and dark pages, with nothing to load."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from occamroute._arrays import FloatArray

__all__ = ["Series", "line_chart", "log_ticks", "nice_ticks"]

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 20, 56
# Distinct also without colour vision (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
STYLE = """
.occam-chart { font: 13px system-ui, sans-serif; --ink: #1f2933; --faint: #d9dee4; max-width: 100%; height: auto }
.occam-chart text { fill: var(--ink) } .occam-chart .grid { stroke: var(--faint) }
.occam-chart .axis { stroke: var(--ink) }
@media (prefers-color-scheme: dark) { .occam-chart { --ink: #e4e7eb; --faint: #3e4c59 } }
"""


@dataclass(frozen=True)
class Series:
    """One line, or points alone, with its name in the legend."""

    name: str
    x: FloatArray | Sequence[float]
    y: FloatArray | Sequence[float]
    line: bool = True
    points: bool = False
    dashed: bool = False


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
) -> str:
    """An SVG picture of the series; ``title`` is read out by screen readers."""
    xs = [float(x) for one in series for x in one.x]
    ys = [float(y) for one in series for y in one.y]
    x_ticks = log_ticks(min(xs), max(xs)) if log_x else nice_ticks(min(xs), max(xs), 8)
    y_ticks = nice_ticks(min(ys), max(ys))
    across = _scale(x_ticks[0], x_ticks[-1], LEFT, WIDTH - RIGHT, log=log_x)
    up = _scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    body = [_axes(x_ticks, y_ticks, across, up, x_format, y_format, x_label, y_label)]
    for index, one in enumerate(series):
        body.append(_drawn(one, COLOURS[index % len(COLOURS)], across, up))
    body.append(_legend(series))
    return (
        f'<svg class="occam-chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>{''.join(body)}</svg>"
    )


def _scale(low: float, high: float, start: float, end: float, *, log: bool = False) -> Callable[[float], float]:
    if log:
        plain = _scale(math.log(low), math.log(high), start, end)
        return lambda value: plain(math.log(value))
    return lambda value: start + (value - low) / (high - low) * (end - start)


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
    return f"<g><title>{escape(one.name)}</title>{''.join(parts)}</g>"


def _legend(series: Sequence[Series]) -> str:
    parts = []
    x, top = WIDTH - RIGHT - 250, HEIGHT - BOTTOM - 18 * len(series) - 8
    for index, one in enumerate(series):
        y = top + 18 * index
        colour = COLOURS[index % len(COLOURS)]
        if one.line:
            dash = ' stroke-dasharray="6 4"' if one.dashed else ""
            parts.append(f'<line x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"{dash}/>')
        if one.points:
            parts.append(f'<circle cx="{x + 12}" cy="{y}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 32}" y="{y + 4}">{escape(one.name)}</text>')
    return "".join(parts)
