"""How much a query may cost now, so that a budget lasts its window and is used up."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

__all__ = ["Arrivals", "Moment", "Pace", "cautious"]

# What is known beforehand of a window's arrivals is worth this share of a window of watching, however few they were.
PRIOR_SHARE = 0.05
# Arrivals this many times faster than promised, or than in the window before, are a burst: their number counts, too.
BURST, BURST_UNPROMISED, FEW = 4.0, 12.0, 10.0
# So many latest moments tell how fast they come now; that counts where it is so many times the window's speed so far.
LATEST, FASTER = 64, 1.5
# More than this share of the promised arrivals may always still come: spending fades out instead of ending.
TAIL = 0.01
# How many queries the profile's own idea of costs is worth, and after how many an observation counts half.
COST_PRIOR, COST_HALF_LIFE = 200.0, 2000.0
MOST_OFF = 4.0


@dataclass(frozen=True)
class Moment:
    """The present in a window: seconds since 1970; ``until`` is None where the window has no end."""

    now: float
    since: float = 0.0
    until: float | None = None

    def later(self, seconds: float) -> Moment:
        """The moment ``seconds`` later, within the same window."""
        now = self.now + seconds
        return replace(self, now=now if self.until is None else min(now, max(self.now, self.until)))


class Arrivals:
    """How many queries are still to come in a window: from the number given, and from those that came.

    Without an end in time only the number counts. With one, their speed does: the number given (or that of the
    window before) is what it starts from. Where many come late in a window, the speed of the latest counts.
    """

    def __init__(self, given: float | None = None) -> None:
        self.given = given
        self.before: float | None = None
        self.seen = 0
        # The latest moments at which some came, and how many had come before.
        self._latest: deque[tuple[float, int]] = deque(maxlen=LATEST)
        self._share = 1.0
        self._window: float | None = None
        self._begun = 0.0

    def add(self, count: int, moment: Moment) -> None:
        """So many queries came."""
        self._turn(moment)
        if not self._latest or self._latest[-1][0] < moment.now:  # clocks are looked at now and then
            self._latest.append((moment.now, self.seen))
        self.seen += count

    def resume(self, used: float, moment: Moment) -> None:
        """Begin where this share of the budget is used already: without an end in time, as many queries have come."""
        if moment.until is None and self.given is not None:
            self.seen = int(min(1.0, used) * self.given)

    def remaining(self, moment: Moment, *, share: float = 1.0) -> float:
        """How many more are expected, at least one; ``share`` is the part of all queries that is counted here."""
        self._turn(moment)
        self._share = share
        seen = self.seen / share
        if moment.until is None:
            return self._by_number(seen, self.given or 0.0)
        return self._until(moment.until, moment, seen)

    def _until(self, until: float, moment: Moment, seen: float) -> float:
        """The same where the window has an end."""
        length = until - moment.since
        left, watched = max(0.0, (until - moment.now) / length), max(0.0, (moment.now - self._begun) / length)
        expected, times = (self.before, BURST_UNPROMISED) if self.given is None else (self.given, BURST)
        promised = (expected or 0.0) * (until - self._begun) / length
        burst = times * max((expected or 0.0) * watched, FEW) < seen < promised
        if burst and self.given is not None:
            return self._by_number(seen, promised)
        by_speed = self._by_speed(seen, expected, watched, left)
        # How long they come as fast as now nobody knows: for no more than were promised, or as many again as came.
        most = max(promised - seen, 0.0 if self.given is not None and seen < promised else seen)
        by_latest = min(most, self._by_latest(until, moment.now))
        expects = by_latest if by_latest > FASTER * by_speed else by_speed
        if burst:
            # As many as in the window before, or ever more: nobody promised either, so half is spent on each.
            by_number = self._by_number(seen, promised)
            expects = 2.0 * expects * by_number / (expects + by_number)
        return max(1.0, expects + math.sqrt(expects))

    def _by_latest(self, until: float, now: float) -> float:
        """How many more come if all do as fast as the latest did."""
        since, before = self._latest[0] if self._latest else (now, self.seen)
        came = self.seen - before - 1
        if came < FEW or now <= since:
            return 0.0
        return came / self._share / (now - since) * (until - now)

    def _by_number(self, seen: float, promised: float) -> float:
        """What is left of a promised number; past it, as many again as came on top."""
        if seen < promised:
            return max(1.0, promised - seen, TAIL * promised)
        return max(1.0, TAIL * promised, seen - promised)

    def _by_speed(self, seen: float, expected: float | None, watched: float, left: float) -> float:
        if expected is None:
            # One query in a thousandth of a window is what an empty memory starts from.
            return (1.0 + seen) / (1e-3 + watched) * left
        return (PRIOR_SHARE * expected + seen) / (PRIOR_SHARE + watched) * left

    def _turn(self, moment: Moment) -> None:
        """Begin to count anew in a new window."""
        if self._window is None:
            self._window, self._begun = moment.since, max(moment.since, moment.now) if moment.until else 0.0
        elif moment.since > self._window:
            # A window of which little was seen tells little: the same estimate as while it lasted.
            watched = min(1.0, (moment.since - self._begun) / (moment.since - self._window))
            self.before = self._by_speed(self.seen / self._share, self.before, watched, 1.0)
            self._window, self._begun, self.seen = moment.since, moment.since, 0
            self._latest.clear()


def cautious(expected: float) -> float:
    """As many queries as may well come where so many are expected: money for the cheapest answer is kept for these."""
    return expected + 3.0 * math.sqrt(expected) + 3.0


class Pace:
    """Who comes, and what queries really come to cost: both are learned on the way."""

    def __init__(self, arrivals: Arrivals) -> None:
        self.arrivals = arrivals
        self._meant = self._paid = 0.0

    @property
    def off(self) -> float:
        """By what factor queries cost more than the profile says."""
        return 1.0 if self._meant == 0.0 else min(MOST_OFF, max(1.0 / MOST_OFF, self._paid / self._meant))

    def learn(self, meant: float, paid: float) -> None:
        """A query that should have cost ``meant`` on average was given a classifier for ``paid``."""
        if meant <= 0.0:
            return
        if self._meant == 0.0:
            self._meant = self._paid = COST_PRIOR * meant
        fade = 0.5 ** (1.0 / COST_HALF_LIFE)
        self._meant, self._paid = fade * self._meant + meant, fade * self._paid + paid
