"""Whether a call that failed is made again, and when."""

from __future__ import annotations

import random

from occamroute.calls.sources import Source
from occamroute.errors import CallError, CallLostError, CallRefusedError

__all__ = ["pause", "retries_after"]

LONGEST_PAUSE = 60.0
# A source that works is tried this many times as often when it turns a call away free of charge.
WHEN_TURNED_AWAY = 3
# Retries of a source that has never answered: to find out whether it works costs money.
RETRIES_AT_FIRST = 2


def retries_after(error: CallError, source: Source, *, proved: bool = True) -> int:
    """How often a call that failed with this error is made again; ``proved`` says that the source has answered before.

    Only calls that were turned away or lost are: what else went wrong would go wrong again.
    """
    if isinstance(error, CallRefusedError):
        return source.retries * (WHEN_TURNED_AWAY if proved else 1)
    if isinstance(error, CallLostError):
        return source.retries if proved else min(source.retries, RETRIES_AT_FIRST)
    return 0


def pause(tries: int, asked: float | None, draw: random.Random) -> float:
    """Seconds to wait before the next try: doubling, with jitter, and no less than the source asked for."""
    own = min(LONGEST_PAUSE, 0.25 * 2.0**tries) * draw.uniform(0.5, 1.0)
    return own if asked is None else min(LONGEST_PAUSE, max(0.0, asked) + own * 0.1)
