"""Numbers as people read them: shares in percent, intervals beside what they belong to, amounts with their digits."""

from __future__ import annotations

__all__ = ["Interval", "amount", "between", "brief", "counted", "percent", "plain_percent", "points", "short_share"]

Interval = tuple[float, float] | None
UNKNOWN = "no interval known"


def plain_percent(share: float) -> str:
    """A share with two decimals."""
    return f"{100 * share:.2f} %"


def short_share(share: float) -> str:
    """A share with three digits, for axes and headings."""
    return f"{100 * share:.3g} %"


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
    return f"{value:,.9g}" if abs(value) < 1e12 else f"{value:.9g}"


def brief(value: float) -> str:
    """An amount with four digits, to be read at a glance."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"


def counted(number: int, one: str, many: str = "") -> str:
    """So many of something: 1 query, 2,000 queries; ``many`` is the plural where it is not one letter more."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _minus(text: str) -> str:
    return text.replace("-", "−")
