"""What calls are called by every process that may make them, so that no two of them are charged for the same call."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from contextlib import suppress
from pathlib import Path

from occamroute._arrays import IntArray
from occamroute.calls.journal import Journal
from occamroute.errors import StorageError

__all__ = ["CallNames", "idempotency_key", "lasting_name"]


class CallNames:
    """Names of the calls of one run, made of what is asked: whoever asks the same has the same name for it.

    A source gets the same ``key`` however often it is asked the same, and charges it once. A ledger holds money for
    each time anew: ``following`` and ``latest`` count them.
    """

    def __init__(self, journal: Journal, *, counted: bool) -> None:
        self._run = journal.run
        self._counted = counted
        self._times = journal.times_asked() if counted else {}

    def key(self, source: str, rows: IntArray) -> str:
        """What a source is told that the call for these queries is called."""
        return idempotency_key(self._run, source, rows)

    def following(self, source: str, rows: IntArray) -> str:
        """What a ledger is told the next call for these queries is called, "" where nobody counts."""
        return self._numbered(source, rows, 0)

    def latest(self, source: str, rows: IntArray) -> str:
        """The same for the call that was made last."""
        return self._numbered(source, rows, -1)

    def count(self, source: str, rows: IntArray) -> None:
        """A call for these queries is about to be made."""
        if self._counted:
            at = source, rows.tobytes()
            self._times[at] = self._times.get(at, 0) + 1

    def forget(self, source: str, rows: IntArray) -> None:
        """The call was not made after all."""
        if self._counted:
            self._times[source, rows.tobytes()] -= 1

    def _numbered(self, source: str, rows: IntArray, step: int) -> str:
        if not self._counted:
            return ""
        return f"{_digest(source, rows)}/{self._times.get((source, rows.tobytes()), 0) + step}"


def idempotency_key(run: str, source: str, rows: IntArray) -> str:
    """The key of every attempt to have a source answer these queries of a run or request."""
    return f"{run}-{_digest(source, rows)}"


def lasting_name(place: Path) -> str:
    """What a run is called by whoever works on it, now and after an interruption: drawn once, and kept in a file."""
    if not place.exists():
        name = uuid.uuid4().hex
        temporary = place.with_name(f".{name}.tmp")
        temporary.write_text(json.dumps({"run": name}), "utf-8")
        with suppress(FileExistsError):  # another process was quicker: its name counts
            os.link(temporary, place)
        temporary.unlink()
    try:
        return str(json.loads(place.read_text("utf-8"))["run"])
    except (OSError, ValueError, KeyError, TypeError):
        raise StorageError(place, "it is damaged") from None


def _digest(source: str, rows: IntArray) -> str:
    return hashlib.sha256(source.encode() + b"\0" + rows.tobytes()).hexdigest()[:24]
