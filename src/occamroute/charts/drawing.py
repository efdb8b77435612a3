"""What every chart is drawn with: a canvas, scales, axes, names and text that does not cover other text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

__all__ = [
    "COLOURS",
    "NARROW",
    "WIDE",
    "Canvas",
    "Labels",
    "Mark",
    "axes",
    "colour_of",
    "decades",
    "legend",
    "log_ticks",
    "nice_ticks",
    "picture",
    "scale",
    "text_width",
]

# Distinct also without colour vision (Okabe and Ito; the last two by Paul Tol).
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "currentColor", "#999933", "#882255",
)  # fmt: skip
# A page or a notebook gives its own ink; a picture in a file has its own, for light and for dark.
STYLE = """
.occam-chart { font: 13px system-ui, sans-serif; color: var(--occam-ink, #1f2933); max-width: 100%; height: auto }
@media (prefers-color-scheme: dark) { .occam-chart { color: var(--occam-ink, #e4e7eb) } }
"""
LINE = 19
# Characters that no XML may hold, however they are written; a name may.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass(frozen=True)
class Canvas:
    """The size of a picture and the margins around what is drawn in it."""

    width: int = 760
    height: int = 420
    left: int = 56
    right: int = 24
    top: int = 34
    bottom: int = 52

    @property
    def across(self) -> int:
        """How wide the plot is."""
        return self.width - self.left - self.right


WIDE = Canvas()
# For the width of a phone, so that letters keep their size.
NARROW = Canvas(width=360, height=330, left=50, right=14)


@dataclass(frozen=True)
class Mark:
    """How something is shown in the legend."""

    name: str
    colour: str
    line: bool = False
    point: bool = True
    dashed: bool = False
    band: bool = False


def colour_of(index: int) -> str:
    """The colour of the series with that number."""
    return COLOURS[index % len(COLOURS)]


def text_width(text: str) -> float:
    """About how wide a text is, on the safe side."""
    return 7.8 * len(text)


def nice_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round numbers that cover the range, about ``count`` of them."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / max(1, count - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if power * factor >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    digits = 12 - math.floor(math.log10(step))  # as many for prices of a token as for those of a house
    return [round(index * step, digits) for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten within a range of positive numbers, and its ends."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inner = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return [low, *(tick for tick in inner if low * 1.2 < tick < high / 1.2), high]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten that cover a range of positive numbers."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def scale(low: float, high: float, start: float, end: float, *, log: bool = False) -> Callable[[float], float]:
    """From numbers between ``low`` and ``high`` to places between ``start`` and ``end``."""
    if log:
        plain = scale(math.log(low), math.log(high), start, end)
        return lambda value: plain(math.log(value))
    span = (high - low) or 1.0  # where all places are one
    return lambda value: start + (value - low) / span * (end - start)


def picture(body: Sequence[str], title: str, canvas: Canvas, height: float) -> str:
    """The SVG; ``title`` is read out by screen readers."""
    made = (
        f'<svg class="occam-chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {canvas.width} {height:g}" '
        f'width="{canvas.width}" height="{height:g}" fill="currentColor" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>{''.join(body)}</svg>"
    )
    return UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", made)


def axes(
    canvas: Canvas, x_ticks: Sequence[float], y_ticks: Sequence[float], across: Callable[[float], float],
    up: Callable[[float], float], x_format: Callable[[float], str], y_format: Callable[[float], str],
    x_label: str, y_label: str,
) -> str:  # fmt: skip
    """Lines across the plot, numbers beside them, and what they are numbers of."""
    bottom, right = canvas.height - canvas.bottom, canvas.width - canvas.right
    parts = []
    for tick in y_ticks:
        y = up(tick)
        parts.append(
            f'<line x1="{canvas.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" '
            f'stroke-opacity=".14"/><text x="{canvas.left - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(y_format(tick))}</text>"
        )
    for x, text in _apart([(across(tick), x_format(tick)) for tick in x_ticks]):
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="currentColor" '
            f'stroke-opacity=".6"/>{_below(x, bottom + 19, text, canvas)}'
        )
    parts.append(
        f'<line x1="{canvas.left}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="currentColor" stroke-opacity=".6"/>'
    )
    middle = (canvas.left + right) / 2
    parts.append(f'<text x="{middle:g}" y="{canvas.height - 10}" text-anchor="middle">{escape(x_label)}</text>')
    # Above its numbers, where nobody has to turn the head.
    parts.append(f'<text x="2" y="14">{escape(y_label)}</text>')
    return "".join(parts)


def _below(x: float, y: float, text: str, canvas: Canvas) -> str:
    """The text of a mark on the axis, in its middle unless the picture ends before."""
    over = x + text_width(text) / 2 > canvas.width
    place, anchor = (canvas.width - 1.0, "end") if over else (x, "middle")
    return f'<text x="{place:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _apart(texts: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Those texts that do not touch the one before; the last is always there."""
    kept: list[tuple[float, str]] = []
    for place, text in texts:
        while kept and abs(place - kept[-1][0]) < (text_width(text) + text_width(kept[-1][1])) / 2 + 4:
            if (place, text) != texts[-1]:
                break
            kept.pop()
        else:
            kept.append((place, text))
    return kept


def legend(marks: Sequence[Mark], canvas: Canvas, top: float) -> tuple[str, float]:
    """Names in rows below the picture, and the height that they take."""
    parts, x, y = [], float(canvas.left), top
    for mark in marks:
        wide = 34 + text_width(mark.name) + 12
        if x > canvas.left and x + wide > canvas.width:
            x, y = float(canvas.left), y + LINE
        if mark.band:
            parts.append(
                f'<rect x="{x:g}" y="{y - 6:g}" width="24" height="12" fill="{mark.colour}" fill-opacity=".18"/>'
            )
        if mark.line:
            dash = ' stroke-dasharray="6 4"' if mark.dashed else ""
            parts.append(
                f'<line x1="{x:g}" x2="{x + 24:g}" y1="{y:g}" y2="{y:g}" stroke="{mark.colour}" '
                f'stroke-width="2"{dash}/>'
            )
        if mark.point:
            parts.append(f'<circle cx="{x + 12:g}" cy="{y:g}" r="4" fill="{mark.colour}"/>')
        parts.append(f'<text x="{x + 31:g}" y="{y + 4:g}">{escape(mark.name)}</text>')
        x += wide
    return "".join(parts), (y - top + LINE) if marks else 0.0


@dataclass
class Labels:
    """Texts beside points, put where they cover neither each other nor anything else; left out where they must."""

    canvas: Canvas
    taken: list[tuple[float, float, float, float]] = field(default_factory=list)
    texts: list[tuple[float, float, float, float]] = field(default_factory=list)

    def keep(self, places: Sequence[tuple[float, float]], size: float) -> None:
        """Places that no text should cover, and how far around them."""
        self.taken += [(x - size, y - size, x + size, y + size) for x, y in places]

    def put(self, x: float, y: float, text: str) -> str:
        """The text where it covers nothing; else where it covers no other text; else nothing."""
        wide = text_width(text)
        boxes = [
            (anchor, dx, dy, (left, y + dy - 11, left + wide, y + dy + 3))
            for far in (0, 8, 18)
            for anchor, left, dx, dy in _around(x, wide, far)
        ]
        for others in (self.taken + self.texts, self.texts):
            for anchor, dx, dy, box in boxes:
                if self._inside(box) and not any(_meet(box, other) for other in others):
                    self.texts.append(box)
                    return f'<text x="{x + dx:.1f}" y="{y + dy:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
        return ""

    def _inside(self, box: tuple[float, float, float, float]) -> bool:
        left, top, right, bottom = box
        canvas = self.canvas
        return left >= canvas.left and right <= canvas.width and top >= 0 and bottom <= canvas.height - canvas.bottom


def _around(x: float, wide: float, far: float) -> list[tuple[str, float, float, float]]:
    """Where a text may stand: its anchor, its left end, and how far it is from its point."""
    beside, across, down, above = 9 + far, 7 + far, 18 + far, -9 - far
    return [
        ("start", x + beside, beside, 4), ("end", x - beside - wide, -beside, 4),
        ("start", x + across, across, down), ("end", x - across - wide, -across, above),
        ("start", x + across, across, above), ("end", x - across - wide, -across, down),
        ("middle", x - wide / 2, 0, above), ("middle", x - wide / 2, 0, down),
    ]  # fmt: skip


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]
