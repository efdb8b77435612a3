"""Windows of time that a cap is for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, get_args

from occamroute.errors import UnknownNameError

__all__ = ["Window", "checked_window", "window_end", "window_start"]

Window = Literal["total", "hour", "day", "month"]
HOUR, DAY = 3_600_000, 86_400_000


def checked_window(window: str) -> Window:
    """One of the windows."""
    if window not in get_args(Window):
        raise UnknownNameError("window", window, get_args(Window))
    return window  # type: ignore[return-value]


def window_start(now: int, window: Window) -> int:
    """When the window that holds this moment began, both in milliseconds since 1970, UTC; 0 for "total"."""
    if window == "total":
        return 0
    if window == "month":
        moment = datetime.fromtimestamp(now / 1000, UTC)
        return int(datetime(moment.year, moment.month, 1, tzinfo=UTC).timestamp() * 1000)
    length = HOUR if window == "hour" else DAY
    return now - now % length


def window_end(now: int, window: Window) -> int | None:
    """When the window that holds this moment ends; None for "total"."""
    if window == "total":
        return None
    start = window_start(now, window)
    if window == "month":
        first = datetime.fromtimestamp(start / 1000, UTC)
        year, month = (first.year + 1, 1) if first.month == 12 else (first.year, first.month + 1)
        return int(datetime(year, month, 1, tzinfo=UTC).timestamp() * 1000)
    return start + (HOUR if window == "hour" else DAY)
