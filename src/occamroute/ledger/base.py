"""What every ledger offers, and its amounts: whole billionths of a unit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from typing import Literal, Protocol, TypeAlias

import numpy as np

from occamroute._money import Amount, money
from occamroute.errors import InvalidInputError, OccamError

__all__ = [
    "LONGEST_REPLY",
    "MOST",
    "Balance",
    "Compaction",
    "Entry",
    "Find",
    "FindReply",
    "Hold",
    "Ledger",
    "Operation",
    "Release",
    "Reply",
    "Reserve",
    "Settle",
    "State",
    "amount_of",
    "checked_reply",
    "lease_of",
    "name_of",
    "rounded_down",
    "rounded_up",
]

State: TypeAlias = Literal["held", "expired", "settled", "released"]

PLACES = 9
QUANTUM: int = 10**PLACES
# Two of these still fit a database's whole numbers of 64 bits.
LARGEST = 4 * 10**9
# The most that a sum can be: more is kept as this, and counted again from the entries once something is taken off it.
MOST = 2**63 - 1
# No rounding, whatever context the caller has set.
EXACTLY = Context(prec=600)
# Databases index names, and an index takes only so many bytes.
LONGEST = 400
# Characters of a reply's content: it travels to the store with other operations, which must not wait for it.
LONGEST_REPLY = 2**20


@dataclass(frozen=True)
class Hold:
    """Money set aside under a key; ``amount`` as it was reserved.

    ``fresh`` is True only for the one call of ``reserve`` that made it: whoever gets it False came second, and must
    not buy again what is bought under this key. ``state`` is how the hold stood when it was given out, and ``client``
    whose money it is.
    """

    key: str
    amount: Decimal
    state: State = field(default="held", compare=False)
    fresh: bool = field(default=False, compare=False)
    client: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Balance:
    """A cap, how much of it is held and spent, and what can be reserved now (never below 0).

    ``since`` and ``until`` (None: no end) are the present window and ``now`` is the moment, all by the store's clock,
    in seconds since 1970. Of a client: its own cap, or everybody's if it has none; its own held and spent;
    and what is available to it, under its own cap and everybody's.
    """

    cap: Decimal
    held: Decimal
    spent: Decimal
    available: Decimal
    since: float = 0.0
    until: float | None = None
    now: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Entry:
    """One change: when (seconds since 1970), what happened to which hold, and what that did to held and spent.

    Numbers count up from 1. A gap is where ``compact`` has folded entries into a summary. ``event`` is "reserve",
    "settle", "release", "expire" or "correct"; or "cap", whose key is then the new cap of everybody or of the client
    ("none": it has none of its own any more); or "compact", a summary, whose key is how many entries were folded into
    it, and whose number and time are those of the last of them.
    """

    number: int
    at: float
    event: str
    key: str
    client: str | None
    window: float
    held: Decimal
    spent: Decimal


@dataclass(frozen=True)
class Compaction:
    """What ``compact`` did: how many fewer entries and holds there are."""

    entries: int
    holds: int


@dataclass(frozen=True)
class Reply:
    """What a client was answered under an idempotency key, for its next request under the same key.

    ``about`` says what the request was (a digest of it), at most 400 characters; ``content`` is the answer, at most
    1,048,576. Both are text without NUL characters.
    """

    about: str
    content: str


@dataclass(frozen=True)
class Reserve:
    """What ``reserve`` is called with, for ``apply``.

    ``reply`` is stored under the key in the same transaction, if this call makes the hold. Replies are found by
    ``FindReply`` for 24 hours by the store's clock. ``maker``, a number of 63 bits, lets a caller whose answer was lost
    ask again: a hold is ``fresh`` for everybody who gives the number that it was made with, by default for nobody else.
    """

    key: str
    amount: Amount
    lease_seconds: float = 60.0
    client: str | None = None
    reply: Reply | None = None
    maker: int | None = None


@dataclass(frozen=True)
class Settle:
    """What ``settle`` is called with, for ``apply``.

    ``reply`` replaces the reply under the hold's key in the same transaction, if this call settles the hold. A hold
    that was settled or released before keeps the reply that it has.
    """

    hold: Hold
    amount: Amount
    reply: Reply | None = None


@dataclass(frozen=True)
class Release:
    """What ``release`` is called with, for ``apply``."""

    hold: Hold


@dataclass(frozen=True)
class Find:
    """What ``find`` is called with, for ``apply``."""

    key: str


@dataclass(frozen=True)
class FindReply:
    """Look up the reply under a key, for ``apply``: a ``Reply``, or None if there is none or it is 24 hours old."""

    key: str


Operation: TypeAlias = Reserve | Settle | Release | Find | FindReply


class Ledger(Protocol):
    """A cap, and money that is held until it is settled or released.

    A hold whose lease is over counts as spent in full; one later ``settle`` or ``release`` may lower it. A settle
    above its hold is recorded as it is, and nothing can be reserved until something is available again. Sums that
    no 64-bit number holds are kept as the largest one.

    ``LedgerError`` means that the store could not be reached or written, or not in time: nothing may be spent. Where
    that came in the middle of a call its outcome is unknown, and the same call may be made again.
    """

    def reserve(self, amount: Amount, *, key: str, lease_seconds: float = 60.0, client: str | None = None) -> Hold:
        """Hold an amount, or raise ``BudgetExceededError``; the same key gives the same hold.

        Where ``client`` has a cap of its own, the amount must fit under both.
        """
        ...

    def find(self, key: str) -> Hold | None:
        """The hold under a key, with its amount, its client and its present state, whichever process made it."""
        ...

    def settle(self, hold: Hold, amount: Amount) -> None:
        """Turn a hold into what was really spent; only the first time counts."""
        ...

    def release(self, hold: Hold) -> None:
        """Give a hold back: nothing was spent."""
        ...

    def apply(self, operations: Sequence[Operation]) -> list[Hold | Reply | OccamError | None]:
        """Do many operations in one transaction, in order; for each its result, or the error that its method raises.

        ``LedgerError`` is raised for all of them together: then none was done, or their outcome is unknown.
        """
        ...

    def correct(self, key: str, amount: Amount) -> None:
        """Set what was spent under a key, whatever was settled there before; for administrators."""
        ...

    def balance(self, client: str | None = None) -> Balance:
        """How things stand now in this window, for everybody or for one client."""
        ...

    def change_cap(self, cap: Amount | None, *, client: str | None = None) -> None:
        """From now on another cap for all who use this ledger; what is held and spent stays.

        With ``client``, that client's own cap, which None takes away.
        """
        ...

    def entries(self, *, after: int = 0, limit: int | None = None, newest: bool = False) -> Iterator[Entry]:
        """What happened, in order; the sums of all entries are the balance.

        Only entries with a number above ``after``, and at most ``limit`` of them; ``newest`` begins at the end. Sums of
        entries that are read while ``compact`` runs may count some twice.
        """
        ...

    def compact(self, *, keep_days: float) -> Compaction:
        """Delete holds that ended more than ``keep_days`` (at least 1) ago, and fold their entries into summaries.

        There is one summary for each window and client: the sums of all entries stay as they are. What is held, and
        what has changed since, is not touched. A key whose hold is deleted is unknown from then on: it cannot be
        corrected, and ``reserve`` under it makes a new hold. It is done a little at a time, beside other operations; it
        may be interrupted at any moment, and made by several processes at once.
        """
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


def rounded_up(amount: Amount, name: str = "amount") -> int:
    """An amount in whole billionths; what is no whole number of them rounds up."""
    exactly = _within_reach(amount, name)
    return -(-exactly.numerator * QUANTUM // exactly.denominator)


def rounded_down(amount: Amount, name: str = "cap") -> int:
    """The same for a cap, which rounds down."""
    exactly = _within_reach(amount, name)
    return exactly.numerator * QUANTUM // exactly.denominator


def _within_reach(amount: Amount, name: str) -> Fraction:
    exactly = money(amount, name)
    if exactly.numerator > LARGEST * exactly.denominator:
        raise InvalidInputError(
            f"{name} must be at most {LARGEST} in a ledger, got {amount!s:.40}: count in a larger unit."
        )
    return exactly


def amount_of(quanta: int) -> Decimal:
    """Whole billionths as a decimal, to the last digit and without an exponent."""
    amount = Decimal(quanta).scaleb(-PLACES, EXACTLY).normalize(EXACTLY)
    return Decimal(f"{amount:f}")


def lease_of(seconds: float) -> int:
    """A positive number of seconds, in whole milliseconds."""
    known = isinstance(seconds, int | float | np.integer | np.floating) and not isinstance(seconds, bool)
    if not known or not 0 < seconds < 1e12:
        raise InvalidInputError(f"lease_seconds must be a finite number > 0, got {seconds!s:.40}.")
    return math.ceil(1000 * float(seconds))


def name_of(text: str, name: str) -> str:
    """A key, a client or a ledger's name, as every store can keep it."""
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST or "\0" in text or not _encodable(text):
        raise InvalidInputError(f"{name} must be a text of 1 to {LONGEST} characters, got {text!r:.60}.")
    return text


def checked_reply(reply: Reply | None) -> Reply | None:
    """A reply that every store can keep."""
    if reply is None:
        return None
    if not isinstance(reply, Reply):
        raise InvalidInputError(f"reply must be a Reply, got {reply!r:.60}.")
    name_of(reply.about, "about")
    content = reply.content
    if not isinstance(content, str) or len(content) > LONGEST_REPLY or "\0" in content or not _encodable(content):
        raise InvalidInputError(
            f"content must be a text of at most {LONGEST_REPLY} characters without NUL, got {content!r:.60}."
        )
    return reply


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
