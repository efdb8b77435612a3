"""Numbers as people read them: shares in percent, intervals beside what they belong to, amounts with their digits."""

from __future__ import annotations

__all__ = [
    "Interval",
    "amount",
    "axis_amount",
    "between",
    "brief",
    "counted",
    "part_of",
    "percent",
    "plain_percent",
    "points",
    "proved_gap",
    "short_share",
]

Interval = tuple[float, float] | None
UNKNOWN = "no interval known"


def plain_percent(share: float) -> str:
    """A share with two decimals."""
    return f"{100 * share:.2f} %"


def short_share(share: float) -> str:
    """A share with three digits, for axes and headings."""
    return f"{100 * share:.3g} %"


def part_of(share: float) -> str:
    """A share of a cost in a sentence: of next to nothing that it is so."""
    return "less than 0.001 %" if 0.0 < share < 1e-5 else short_share(share)


def proved_gap(gap: float) -> str:
    """By how much a plan can be below the best, at most."""
    return "0" if gap == 0.0 else f"{gap:.1e}"


def between(interval: Interval, *, signed: bool = False) -> str:
    """The ends of an interval of shares, in percent or points; in words where there is none."""
    if interval is None:
        return UNKNOWN
    low, high = (f"{100 * end:+.2f}" if signed else f"{100 * end:.2f}" for end in interval)
    return f"{_minus(low)} to {_minus(high)}"


def percent(share: float, interval: Interval) -> str:
    """A share with its interval."""
    return f"{plain_percent(share)} ({between(interval)})"


def points(difference: float, interval: Interval) -> str:
    """A difference of shares, in points, with its interval."""
    return f"{_minus(f'{100 * difference:+.2f}')} ({between(interval, signed=True)})"


def amount(value: float) -> str:
    """An amount of money with the digits that it has, up to nine."""
    size = abs(value)
    return f"{value:,.9g}" if size < 1e9 else f"{value:,.0f}" if size < 1e15 else f"{value:.9g}"


def brief(value: float) -> str:
    """An amount with four digits, to be read at a glance."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"


def axis_amount(value: float) -> str:
    """An amount beside an axis: 1,250 rather than 1.25e+03, and powers of ten where there are too many zeros."""
    size = abs(value)
    if size == 0.0 or 1e-4 <= size < 1e7:
        return f"{value:,.0f}" if size >= 10_000 else f"{value:,.4g}"
    front, _, exponent = f"{value:.3g}".partition("e")
    return f"{front}e{int(exponent)}" if exponent else f"{value:,.0f}"


def counted(number: int, one: str, many: str = "") -> str:
    """So many of something: 1 query, 2,000 queries; ``many`` is the plural where it is not one letter more."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _minus(text: str) -> str:
    return text.replace("-", "−")
