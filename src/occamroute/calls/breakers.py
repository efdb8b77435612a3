"""Breakers: a classifier that keeps failing rests for a while, so that it costs neither money nor time."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

__all__ = ["Breakers"]

LOG = logging.getLogger("occamroute")
# This many failures in a row, or more than half of this many latest calls, open a breaker.
IN_A_ROW, LATEST = 5, 20
# Seconds that it is open at first; after a probe that failed twice as long as before, up to the longest.
OPEN_SECONDS, LONGEST_SECONDS = 30.0, 300.0


@dataclass
class _Breaker:
    """The latest calls of one classifier; ``until`` is None while it is closed.

    Until ``quiet_until`` it wants to be left alone, open or closed.
    """

    latest: deque[bool] = field(default_factory=lambda: deque(maxlen=LATEST))
    failed_in_a_row: int = 0
    proved: bool = False
    since: float = 0.0
    until: float | None = None
    seconds: float = 0.0
    probing: bool = False
    quiet_until: float = -math.inf

    def add(self, failed: bool) -> None:
        self.latest.append(failed)
        self.failed_in_a_row = self.failed_in_a_row + 1 if failed else 0
        self.proved = self.proved or not failed

    def worn_out(self, at_first: int) -> bool:
        in_a_row = IN_A_ROW if self.proved else at_first
        return self.failed_in_a_row >= in_a_row or (len(self.latest) == LATEST and 2 * sum(self.latest) > LATEST)

    def open(self, now: float, seconds: float) -> None:
        self.since, self.until, self.seconds, self.probing = now, now + seconds, seconds, False

    def close(self) -> None:
        self.latest.clear()
        self.until, self.failed_in_a_row, self.seconds, self.probing = None, 0, 0.0, False

    def resting(self, now: float) -> bool:
        return self.probing or now < self.back_at

    @property
    def back_at(self) -> float:
        return max(self.quiet_until, -math.inf if self.until is None else self.until)


class Breakers:
    """One for each classifier; safe for many threads.

    Closed, every call may be made. After several failures it opens: no call is made for some seconds. Then one is, as
    a probe: it closes the breaker, or opens it for twice as long. What calls come to that began before a breaker
    opened says nothing new. ``at_first`` is how many failures in a row open the breaker of a source that has never
    answered.
    """

    def __init__(
        self,
        *,
        at_first: int = IN_A_ROW,
        open_seconds: float = OPEN_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._at_first, self._first, self._longest, self._clock = at_first, open_seconds, longest_seconds, clock
        self._lock = threading.Lock()
        self._breakers: dict[str, _Breaker] = {}
        self._suspended: dict[str, str] = {}

    def resting(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the classifiers that are not to be asked now; never all: the one that is back first stays."""
        with self._lock:
            return self._resting(tuple(names), self._clock())

    def enter(self, name: str, names: Iterable[str]) -> float | None:
        """A call is about to be made: the moment, to be handed back when it ended; None: it must not be made.

        ``names`` are all that could be asked instead.
        """
        with self._lock:
            now = self._clock()
            breaker = self._of(name)
            if name in self._suspended:
                return None
            if breaker.resting(now):
                return now if name in names and name not in self._resting(tuple(names), now) else None
            breaker.probing = breaker.until is not None
            return now

    def left(self, name: str, began: float) -> None:
        """No call was made after all, or it says nothing of the classifier."""
        with self._lock:
            breaker = self._of(name)
            if began > breaker.since:
                breaker.probing = False

    def succeeded(self, name: str, began: float) -> None:
        """A call that began then was answered."""
        with self._lock:
            breaker = self._of(name)
            if breaker.until is None:
                breaker.add(False)
            elif began > breaker.since:
                breaker.close()

    def failed(self, name: str, began: float) -> None:
        """A call that began then was not answered."""
        with self._lock:
            now, breaker = self._clock(), self._of(name)
            if breaker.until is None:
                breaker.add(True)
                if breaker.worn_out(self._at_first):
                    breaker.open(now, self._first)
            elif began >= breaker.until:
                # A probe; what is tried only because all rest changes nothing by failing.
                breaker.open(now, min(self._longest, 2.0 * breaker.seconds))

    def is_open(self, name: str) -> bool:
        """Whether a classifier failed too often of late, or is suspended."""
        with self._lock:
            return name in self._suspended or self._of(name).until is not None

    def suspend(self, name: str, reason: str) -> None:
        """Stop asking a classifier, even if no other is left, until the process is restarted."""
        with self._lock:
            if name not in self._suspended:
                LOG.error("%s is suspended: %s", name, reason)
            self._suspended.setdefault(name, reason)

    @property
    def suspended(self) -> dict[str, str]:
        """Suspended classifiers, and why."""
        with self._lock:
            return dict(self._suspended)

    def rest(self, name: str, seconds: float) -> None:
        """It asked to be left alone for so long."""
        with self._lock:
            breaker = self._of(name)
            breaker.quiet_until = max(breaker.quiet_until, self._clock() + min(self._longest, seconds))

    def seconds_left(self, names: Iterable[str]) -> float | None:
        """In how many seconds the first of those that rest is tried again; None: none of them rests."""
        with self._lock:
            now = self._clock()
            resting = [breaker for breaker in map(self._of, names) if breaker.resting(now)]
            return min((max(0.0, breaker.back_at - now) for breaker in resting), default=None)

    def _of(self, name: str) -> _Breaker:
        return self._breakers.setdefault(name, _Breaker())

    def _resting(self, names: tuple[str, ...], now: float) -> frozenset[str]:
        allowed = set(names) - self._suspended.keys()
        resting = {name for name in allowed if self._of(name).resting(now)}
        if resting and len(resting) == len(allowed):
            resting.remove(min((name for name in names if name in resting), key=lambda name: self._of(name).back_at))
        return frozenset(resting | (set(names) - allowed))
