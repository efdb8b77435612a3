"""A store's clock, checked against the time that has passed here."""

from __future__ import annotations

import time

__all__ = ["JUMPED", "StoreClock", "elapsed"]

# A clock may be corrected by this many milliseconds while a ledger is open. Further ahead lies another budget's window:
# a wrong reading that was stored could not be taken back, for time never runs backwards in a ledger.
CORRECTION = 86_400_000
JUMPED = (
    "its clock is more than 24 hours ahead of the time that has passed since this process opened it: "
    "set the clock right, or restart this process if it is right now"
)
# A clock that nobody sets and that goes on while the machine sleeps, as time.monotonic() does not on Linux and macOS.
STEADY = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def elapsed() -> int:
    """Milliseconds since some moment in the past."""
    return (time.monotonic_ns() if STEADY is None else time.clock_gettime_ns(STEADY)) // 1_000_000


class StoreClock:
    """What a store's clock can show by now, judged by its first reading."""

    def __init__(self) -> None:
        self._ahead: int | None = None

    @property
    def latest(self) -> int | None:
        """The latest reading that can be true, in milliseconds since 1970; None before the first."""
        ahead = self._ahead
        return None if ahead is None else elapsed() + ahead + CORRECTION

    def trusts(self, reading: int) -> bool:
        """Whether a reading can be true; the first one is believed."""
        if self._ahead is None:
            self._ahead = reading - elapsed()
        latest = self.latest
        return latest is None or reading <= latest
