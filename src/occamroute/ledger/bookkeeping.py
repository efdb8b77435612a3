"""What is the same for every store: arguments are looked at, amounts become whole billionths and decimals again.

A store knows seven operations on whole numbers (amounts in billionths, times in milliseconds since 1970).
"""

from __future__ import annotations

import math
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from occamroute._money import Amount
from occamroute.errors import BudgetExceededError, InvalidInputError, LedgerError, OccamError, UnknownNameError
from occamroute.ledger.base import (
    Balance,
    Compaction,
    Entry,
    Find,
    FindReply,
    Hold,
    Operation,
    Release,
    Reply,
    Reserve,
    Settle,
    State,
    amount_of,
    checked_reply,
    lease_of,
    name_of,
    rounded_down,
    rounded_up,
)
from occamroute.ledger.clocks import StoreClock
from occamroute.ledger.database import Database
from occamroute.ledger.windows import Window, checked_window, window_end

__all__ = [
    "FORMAT",
    "LAST",
    "PATIENCE",
    "REPLIES_FORGOTTEN",
    "REPLY_LIFE",
    "Bookkeeping",
    "Ending",
    "Folded",
    "Found",
    "Lookup",
    "ReplyLookup",
    "Reserved",
    "Settings",
    "Standing",
    "Step",
    "Wish",
]

# Of the tables. 0.1.0 wrote format 1, which is brought up to date when it is opened; a newer one is refused.
FORMAT = 2
OLDEST_FORMAT = 1
# Milliseconds after which a reply is no longer found, and how many of those are deleted when another is stored.
REPLY_LIFE = 86_400_000
REPLIES_FORGOTTEN = 10
# Seconds. Who has not got its turn by then is refused: whoever is in its way is stopped, or dead slow.
PATIENCE = 5.0
# Entries folded in one transaction, during which other clients wait.
FOLDED_AT_ONCE = 1000
DAY = 86_400_000
# Entries per read, so that a long history neither fills the memory nor keeps other clients waiting.
BLOCK = 1000
# Databases have no unsigned numbers.
LARGEST_MAKER = 2**63 - 1
# No entry has a number as large.
LAST = 2**62


@dataclass(frozen=True)
class Settings:
    """What a ledger was begun with: its cap, its window, the caps of clients."""

    cap: int
    window: Window
    clients: Mapping[str, int]


@dataclass(frozen=True)
class Wish:
    """A reservation to be made; ``maker`` is a number that only this call has."""

    key: str
    amount: int
    lease: int
    client: str | None
    maker: int
    reply: Reply | None = None


@dataclass(frozen=True)
class Ending:
    """A hold to be settled or released: what was spent under its key."""

    key: str
    spent: int
    state: State
    reply: Reply | None = None


@dataclass(frozen=True)
class Lookup:
    """A hold to be looked up."""

    key: str


@dataclass(frozen=True)
class ReplyLookup:
    """A reply to be looked up."""

    key: str


Step: TypeAlias = Wish | Ending | Lookup | ReplyLookup


@dataclass(frozen=True)
class Reserved:
    """The hold of a key, and the number of the call that made it; no ``state``: there is none, it did not fit."""

    available: int
    amount: int = 0
    state: State | None = None
    maker: int = 0
    client: str | None = None


@dataclass(frozen=True)
class Standing:
    """Held and spent under a cap in one window, and for a client its own (``own_cap`` None: it has none)."""

    now: int
    start: int
    window: Window
    cap: int
    held: int
    spent: int
    own_cap: int | None = None
    own_held: int = 0
    own_spent: int = 0

    @property
    def available(self) -> int:
        """What can still be reserved, below 0 where more was settled than held."""
        everybody = self.cap - self.held - self.spent
        return everybody if self.own_cap is None else min(everybody, self.own_cap - self.own_held - self.own_spent)


@dataclass(frozen=True)
class Folded:
    """What one transaction of a compaction did.

    ``last`` is the number of the last entry that was looked at (None: there was none); ``done``: those after it are too
    new. ``summaries`` are those written or met, by window, client and number.
    """

    last: int | None
    done: bool
    entries: int
    holds: int
    summaries: Sequence[tuple[int, str | None, int]]


# What a store says of a step.
Found: TypeAlias = Reserved | Reply | bool | None


class Bookkeeping(ABC):
    """A ledger over a store that keeps whole numbers."""

    def __init__(
        self, place: Any, cap: Amount | None, window: str | None, clients: Mapping[str, Amount] | None, name: str
    ) -> None:
        self._place = place
        self._name = name_of(name, "name")
        self._clock = StoreClock()
        wanted = None if window is None else checked_window(window)
        if not isinstance(clients, Mapping | None):
            raise InvalidInputError(f"clients must be a mapping from clients to caps, got {clients!r:.60}.")
        caps = None if clients is None else {name_of(who, "client"): rounded_down(own) for who, own in clients.items()}
        quanta = None if cap is None else rounded_down(cap)
        begin = None if quanta is None else Settings(quanta, wanted or "total", caps or {})
        try:
            found = self._begin(begin)
            if found is None:
                raise InvalidInputError(f"there is no ledger {name!r} yet: a cap is needed to begin one.")
            self._compare(found, quanta, wanted, caps)
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> str:
        """Where it is, without user and password."""
        return str(self._place)

    @property
    def identity(self) -> str | None:
        """The ledger's unique name, the same in every process; None if no other process can open it."""
        return None

    def database(self) -> Database | None:
        """The database that it is in, for other tables beside its own; None if it ends with this process."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} at {self._place}>"

    def _compare(
        self, found: Settings, cap: int | None, window: Window | None, clients: Mapping[str, int] | None
    ) -> None:
        """What is said anew must be what was said before."""
        pairs: dict[str, tuple[Any, Any]] = {
            "a cap": (amount_of(found.cap), None if cap is None else amount_of(cap)),
            "a window": (found.window, window),
            "clients' caps": (_said(found.clients), None if clients is None else _said(clients)),
        }
        for what, (before, now) in pairs.items():
            if now is not None and before != now:
                raise InvalidInputError(
                    f"ledger {self._name!r} has {what} of {before}, it cannot be opened with {now}: "
                    "open it without, or use change_cap."
                )

    @abstractmethod
    def _begin(self, settings: Settings | None) -> Settings | None:
        """Make the tables; the settings of the ledger of this name, begun with these if there was none."""

    @abstractmethod
    def _apply(self, steps: Sequence[Step]) -> list[Found]:
        """Do all of them in one transaction, in order.

        A wish holds its amount if that fits and its key is new, and gives the hold that the key has now. An ending
        settles or releases a hold that is not yet, and tells whether there is such a hold. Both store their reply if
        they changed the hold. A key alone is looked up: its hold as it is now, or its reply, or None.
        """

    @abstractmethod
    def _correct(self, key: str, spent: int) -> bool:
        """Set what was spent under a key, and mark its hold as settled; whether there is such a hold."""

    @abstractmethod
    def _standing(self, client: str | None) -> Standing:
        """Held and spent in the present window, after all leases that are over."""

    @abstractmethod
    def _set_cap(self, cap: int | None, client: str | None) -> None:
        """Another cap for everybody or for a client."""

    @abstractmethod
    def _block(self, after: int, before: int, limit: int, newest: bool) -> Sequence[tuple[Any, ...]]:
        """Entries with numbers between, from one end or the other."""

    @abstractmethod
    def _fold(self, after: int, most: int, summaries: Sequence[int], keep: int) -> Folded:
        """Fold the old ones among the next entries into summaries, and delete the holds of the entries folded.

        Entries of holds that ended at least ``keep`` ago, or are deleted already, are old if they are of that age
        themselves. Those of one window and client become a summary, which takes the place of the last of them. Where
        a summary would be beyond 64 bits, nothing of that window and client is folded.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the store."""

    def reserve(self, amount: Amount, *, key: str, lease_seconds: float = 60.0, client: str | None = None) -> Hold:
        """Hold an amount, or raise ``BudgetExceededError``; the same key gives the same hold."""
        return cast(Hold, self._done(Reserve(key, amount, lease_seconds, client)))

    def apply(self, operations: Sequence[Operation]) -> list[Hold | Reply | OccamError | None]:
        """Do many operations in one transaction; for each its result, or the error that its method raises."""
        done: list[Hold | Reply | OccamError | None] = [None] * len(operations)
        steps: dict[int, Step] = {}
        for number, operation in enumerate(operations):
            try:
                steps[number] = _step(operation)
            except OccamError as error:
                done[number] = error
        found = self._apply(list(steps.values())) if steps else []
        for (number, step), result in zip(steps.items(), found, strict=True):
            done[number] = _result(step, result)
        return done

    def _done(self, operation: Reserve | Settle | Release | Find) -> Hold | None:
        (result,) = self.apply([operation])
        if isinstance(result, OccamError):
            raise result
        return cast("Hold | None", result)

    def find(self, key: str) -> Hold | None:
        """The hold under a key, whichever process made it; None: there is none."""
        return self._done(Find(key))

    def settle(self, hold: Hold, amount: Amount) -> None:
        """Turn a hold into what was really spent; only the first time counts."""
        self._done(Settle(hold, amount))

    def release(self, hold: Hold) -> None:
        """Give a hold back: nothing was spent."""
        self._done(Release(hold))

    def correct(self, key: str, amount: Amount) -> None:
        """Set what was spent under a key, whatever was settled there before.

        All entries of the ledger are read for it: it is for administrators who repair a mistake.
        """
        if not self._correct(name_of(key, "key"), rounded_up(amount)):
            raise _unknown(key)

    def balance(self, client: str | None = None) -> Balance:
        """How things stand now in this window, for everybody or for one client."""
        found = self._standing(None if client is None else name_of(client, "client"))
        cap, held, spent = found.cap, found.held, found.spent
        if client is not None:
            cap, held, spent = cap if found.own_cap is None else found.own_cap, found.own_held, found.own_spent
        amounts = [amount_of(quanta) for quanta in (cap, held, spent, max(0, found.available))]
        since, now, end = found.start / 1000, found.now / 1000, window_end(found.now, found.window)
        return Balance(amounts[0], amounts[1], amounts[2], amounts[3], since, None if end is None else end / 1000, now)

    def change_cap(self, cap: Amount | None, *, client: str | None = None) -> None:
        """From now on another cap for everybody, or for a client (None: none of its own)."""
        if cap is None and client is None:
            raise InvalidInputError("cap must be a finite number ≥ 0, got None: only a client can be without.")
        who = None if client is None else name_of(client, "client")
        self._set_cap(None if cap is None else rounded_down(cap), who)

    def entries(self, *, after: int = 0, limit: int | None = None, newest: bool = False) -> Iterator[Entry]:
        """What happened, in order (``newest``: the last first); the sums of all entries are the balance."""
        for number, name in ((after, "after"), (limit, "limit")):
            if isinstance(number, bool) or not (number is None or (isinstance(number, int) and number >= 0)):
                raise InvalidInputError(f"{name} must be a whole number ≥ 0, got {number!r:.40}.")
        return self._entries(min(after, LAST), limit, newest)

    def _entries(self, after: int, limit: int | None, newest: bool) -> Iterator[Entry]:
        before = LAST
        left = LAST if limit is None else limit
        while left > 0:
            rows = self._block(after, before, min(left, BLOCK), newest)
            yield from map(_entry, rows)
            if len(rows) < min(left, BLOCK):
                return
            left -= len(rows)
            after, before = (after, int(rows[-1][0])) if newest else (int(rows[-1][0]), before)

    def compact(self, *, keep_days: float) -> Compaction:
        """Delete holds that ended more than ``keep_days`` ago, and fold their entries into summaries."""
        known = isinstance(keep_days, int | float) and not isinstance(keep_days, bool)
        if not known or not 1 <= keep_days <= 1e6:
            raise InvalidInputError(f"keep_days must be a number from 1 to 1,000,000, got {keep_days!r:.40}.")
        keep = math.ceil(keep_days * DAY)
        entries = holds = 0
        summaries: dict[tuple[int, str | None], list[int]] = {}
        after: int | None = 0
        while after is not None:
            folded = self._folded(after, (), keep)
            entries, holds = entries + folded.entries, holds + folded.holds
            for start, client, number in folded.summaries:
                summaries.setdefault((start, client), []).append(number)
            after = None if folded.done else folded.last
        return Compaction(entries + self._merged(summaries, keep), holds)

    def _merged(self, summaries: Mapping[tuple[int, str | None], list[int]], keep: int) -> int:
        """Fold the summaries of each window and client into one; how many fewer there are."""
        removed = 0
        while True:
            before = removed
            several = [number for numbers in summaries.values() if len(numbers) > 1 for number in numbers]
            for start in range(0, len(several), FOLDED_AT_ONCE):
                some = several[start : start + FOLDED_AT_ONCE]
                folded = self._folded(LAST, some, keep)
                removed += folded.entries
                for window, client, number in folded.summaries:
                    numbers = summaries[window, client]
                    numbers[:] = [*(set(numbers) - set(some)), number]
            if removed == before:  # also where they do not fit into 64 bits
                return removed

    def _folded(self, after: int, summaries: Sequence[int], keep: int) -> Folded:
        """Fold some, and then leave the store to others for as long as that took."""
        begun = time.monotonic()
        folded = self._fold(after, FOLDED_AT_ONCE, summaries, keep)
        time.sleep(time.monotonic() - begun)
        return folded

    def _gone(self) -> LedgerError:
        return LedgerError(self._place, f"ledger {self._name!r} is not in it any more")

    def _checked_format(self, found: int) -> None:
        if not OLDEST_FORMAT <= found <= FORMAT:
            formats = f"{OLDEST_FORMAT} to {FORMAT}"
            raise LedgerError(self._place, f"its format is {found}, this version of occamroute reads {formats}")


def _step(operation: Operation) -> Step:
    """An operation whose arguments were checked, in whole billionths."""
    if isinstance(operation, Find):
        return Lookup(name_of(operation.key, "key"))
    if isinstance(operation, FindReply):
        return ReplyLookup(name_of(operation.key, "key"))
    if isinstance(operation, Reserve):
        client = None if operation.client is None else name_of(operation.client, "client")
        key, maker = name_of(operation.key, "key"), operation.maker
        maker = secrets.randbits(63) if maker is None else maker & LARGEST_MAKER
        lease, reply = lease_of(operation.lease_seconds), checked_reply(operation.reply)
        return Wish(key, rounded_up(operation.amount), lease, client, maker, reply)
    spent = rounded_up(operation.amount) if isinstance(operation, Settle) else 0
    if not isinstance(operation.hold, Hold):
        raise InvalidInputError(f"hold must be what reserve gave, got {operation.hold!r:.60}.")
    key = name_of(operation.hold.key, "key")
    if isinstance(operation, Settle):
        return Ending(key, spent, "settled", checked_reply(operation.reply))
    return Ending(key, spent, "released")


def _result(step: Step, found: Found) -> Hold | Reply | OccamError | None:
    if isinstance(step, Ending) or isinstance(found, bool):
        return None if found else _unknown(step.key)
    if found is None or isinstance(found, Reply):
        return found
    if found.state is not None:
        fresh = isinstance(step, Wish) and found.maker == step.maker
        return Hold(step.key, amount_of(found.amount), found.state, fresh=fresh, client=found.client)
    wanted = step.amount if isinstance(step, Wish) else 0
    return BudgetExceededError(amount_of(wanted), amount_of(max(0, found.available)))


def _unknown(key: str) -> UnknownNameError:
    return UnknownNameError("hold", key, ("those that were reserved here",))


def _said(clients: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{client!r}: {amount_of(clients[client])}" for client in sorted(clients)) + "}"


def _entry(row: tuple[Any, ...]) -> Entry:
    number, at, event, key, client, window, held, spent = row
    amounts = amount_of(int(held)), amount_of(int(spent))
    return Entry(int(number), at / 1000, event, key, client, window / 1000, *amounts)
