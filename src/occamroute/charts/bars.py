"""Bars: stacked on each other, side by side as shares, and numbers with their intervals under each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from occamroute.charts.drawing import (
    WIDE,
    Canvas,
    Mark,
    axes,
    colour_of,
    legend,
    nice_ticks,
    picture,
    scale,
    text_width,
)

__all__ = ["interval_bars", "share_bars", "stacked_bars"]

ROW = 30


def stacked_bars(
    groups: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    y_format: Callable[[float], str] = "{:g}".format,
    canvas: Canvas = WIDE,
) -> str:
    """A bar for each group, made of a part for each name; ``parts`` maps a name to its part in each bar."""
    totals = [sum(column) for column in zip(*parts.values(), strict=True)]
    y_ticks = nice_ticks(0.0, max(totals))
    up = scale(0.0, y_ticks[-1], canvas.height - canvas.bottom, canvas.top)
    step = canvas.across / len(groups)
    centres = [canvas.left + step * (index + 0.5) for index in range(len(groups))]
    body = [
        axes(
            canvas, range(len(groups)), y_ticks, lambda x: centres[int(x)], up, lambda x: groups[int(x)], y_format,
            x_label, y_label,
        )
    ]  # fmt: skip
    floors = [0.0] * len(groups)
    for index, (name, values) in enumerate(parts.items()):
        bars = []
        for group, value in enumerate(values):
            low, high = up(floors[group]), up(floors[group] + value)
            tip = f"{name}, {groups[group]}: {y_format(value)}"
            bars.append(
                f'<rect x="{centres[group] - 0.36 * step:.1f}" y="{high:.1f}" width="{0.72 * step:.1f}" '
                f'height="{low - high:.1f}" fill="{colour_of(index)}"><title>{escape(tip)}</title></rect>'
            )
            floors[group] += value
        body.append(f"<g><title>{escape(name)}</title>{''.join(bars)}</g>")
    marks = [Mark(name, colour_of(index)) for index, name in enumerate(parts)]
    names, high = legend(marks, canvas, canvas.height + 8)
    return picture([*body, names], title, canvas, canvas.height + high)


def share_bars(
    names: Sequence[str], values: Sequence[float], texts: Sequence[str], *, title: str, canvas: Canvas = WIDE
) -> str:
    """A bar lying beside each name, as long as its value, with its text at the end."""
    left = _room_for(names, canvas)
    room = max((text_width(text) for text in texts), default=0.0) + 10
    across = scale(0.0, max(values, default=0.0) or 1.0, 0.0, canvas.width - left - room - 6)
    body = []
    for row, (name, value, text) in enumerate(zip(names, values, texts, strict=True)):
        y, wide = 6 + ROW * row, across(value)
        body.append(
            f"{_name(name, left, y)}"
            f'<rect x="{left}" y="{y}" width="{max(wide, 1.0):.1f}" height="{ROW - 10}" rx="2" fill="{colour_of(0)}"/>'
            f'<text x="{left + wide + 8:.1f}" y="{y + 14}">{escape(text)}</text>'
        )
    return picture(body, title, canvas, ROW * len(names) + 6)


def interval_bars(
    names: Sequence[str],
    values: Sequence[float],
    intervals: Sequence[tuple[float, float] | None],
    *,
    title: str,
    x_label: str,
    x_format: Callable[[float], str] = "{:g}".format,
    canvas: Canvas = WIDE,
) -> str:
    """A point for each name with a bar from end to end of its interval; a line stands at zero."""
    left = _room_for(names, canvas)
    ends = [end for interval in intervals if interval is not None for end in interval]
    ticks = nice_ticks(min([0.0, *values, *ends]), max([0.0, *values, *ends]), 7 if canvas.width > 500 else 4)
    across = scale(ticks[0], ticks[-1], left, canvas.width - canvas.right)
    bottom = 6 + ROW * len(names)
    plot = Canvas(canvas.width, bottom + 46, left, canvas.right, 6, 46)
    body = [axes(plot, ticks, (), across, across, x_format, x_format, x_label, "")]
    zero = across(0.0)
    body.append(
        f'<line x1="{zero:.1f}" x2="{zero:.1f}" y1="0" y2="{bottom}" stroke="currentColor" stroke-dasharray="3 3"/>'
    )
    for row, (name, value, interval) in enumerate(zip(names, values, intervals, strict=True)):
        y, low, high = 6 + ROW * row, *(interval or (value, value))
        # Clearly above, clearly below, or neither: told by colour and by where it stands.
        colour = colour_of(0) if low > 0 else colour_of(1) if high < 0 else "currentColor"
        tip = f"{name}: {x_format(value)}" + ("" if interval is None else f" ({x_format(low)} to {x_format(high)})")
        body.append(
            f"<g><title>{escape(tip)}</title>{_name(name, left, y)}"
            f'<path d="M{across(low):.1f} {y + 10}H{across(high):.1f}M{across(low):.1f} {y + 5}v10'
            f'M{across(high):.1f} {y + 5}v10" stroke="{colour}" stroke-width="2" '
            f'fill="none"/><circle cx="{across(value):.1f}" cy="{y + 10}" r="5" fill="{colour}"/></g>'
        )
    return picture(body, title, plot, plot.height)


def _room_for(names: Sequence[str], canvas: Canvas) -> int:
    """How far from the left the bars start."""
    return int(min(max((text_width(name) for name in names), default=0.0) + 12, canvas.width * 0.42))


def _name(name: str, left: int, y: float) -> str:
    most = max(4, int((left - 10) / text_width("x")))
    short = name if len(name) <= most else name[: most - 1] + "…"
    return f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(short)}</text>'
