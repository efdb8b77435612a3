"""A check of a store's clock against the time that has elapsed in this process."""

from __future__ import annotations

import time

__all__ = ["JUMPED", "StoreClock", "elapsed"]

# A clock may be corrected by up to this many milliseconds while a ledger is open. A reading further ahead is refused:
# once stored it could not be taken back, since time never runs backwards in a ledger.
CORRECTION = 86_400_000
JUMPED = (
    "its clock is more than 24 hours ahead of the time that has passed since this process opened it: "
    "set the clock right, or restart this process if it is right now"
)
# A monotonic clock that keeps running while the machine sleeps, which time.monotonic() does not on Linux and macOS.
STEADY = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def elapsed() -> int:
    """Milliseconds since some moment in the past."""
    return (time.monotonic_ns() if STEADY is None else time.clock_gettime_ns(STEADY)) // 1_000_000


class StoreClock:
    """Judges readings of a store's clock by the first one and the time that has elapsed since."""

    def __init__(self) -> None:
        self._ahead: int | None = None

    @property
    def latest(self) -> int | None:
        """The latest plausible reading, in milliseconds since 1970; None before the first reading."""
        ahead = self._ahead
        return None if ahead is None else elapsed() + ahead + CORRECTION

    def trusts(self, reading: int) -> bool:
        """Whether a reading is plausible; the first one always is."""
        if self._ahead is None:
            self._ahead = reading - elapsed()
        latest = self.latest
        return latest is None or reading <= latest
