"""A line to a PostgreSQL server: never silent for long, and made anew when it breaks."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from occamroute._optional import require
from occamroute.errors import InvalidInputError, LedgerError
from occamroute.ledger.bookkeeping import PATIENCE

__all__ = ["Line", "Row", "run"]

Row: TypeAlias = tuple[Any, ...]
Result = TypeVar("Result")

SETTINGS = (
    # The server gives up before this side does, so that its reason can be told.
    "-c lock_timeout=4s -c statement_timeout=4s -c idle_in_transaction_session_timeout=1s "
    # A statement must see what is there when it begins, not what was there before it had the lock.
    "-c default_transaction_isolation=read\\ committed "
    # All statements find their rows by an index: what was planned once, while tables were small, must not walk
    # through them when they are large.
    "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off "
    "-c jit=off"
)
# A server that went away without a word is noticed.
KEEPALIVES = {"keepalives_idle": "2", "keepalives_interval": "1", "keepalives_count": "3", "tcp_user_timeout": "4000"}
# Connections that a forked child was born with: to close them would end its parent's.
_INHERITED: list[Any] = []
_LINES: weakref.WeakSet[Line] = weakref.WeakSet()


class Line:
    """One connection, used by one thread at a time.

    ``place`` is where it leads, without user and password, for the sentences of errors. ``prelude`` is what every
    connection must have heard before anything else.
    """

    def __init__(self, address: str) -> None:
        self._psycopg = require("psycopg", extra="postgres", what="a ledger in PostgreSQL")
        try:
            known = self._psycopg.conninfo.conninfo_to_dict(address)
        except self._psycopg.Error:
            # Not a word of it is repeated: it may hold a password.
            raise InvalidInputError(
                "a ledger in PostgreSQL has an address like postgresql://user@host/database, this one cannot be read."
            ) from None
        options = f"{known.get('options', '')} {SETTINGS}".strip()
        self._address = {"fallback_application_name": "occamroute", **KEEPALIVES, **known, "options": options}
        # Whatever the database is in: words must come back as words.
        self._address["client_encoding"] = "UTF8"
        self._address.pop("connect_timeout", None)
        self._secret = str(known.get("password") or "")
        self.place = f"postgresql://{known.get('host', '')}/{known.get('dbname', '')}"
        self.prelude = ""
        self._forget()
        _LINES.add(self)

    @property
    def has_password(self) -> bool:
        """Whether the address itself holds a password."""
        return bool(self._secret)

    def _forget(self) -> None:
        """Begin without a connection, at the start or in a forked child."""
        self._connection: Any = None
        self._heard = ""
        self._lock = threading.Lock()

    def talk(self, work: Callable[[Any], Result]) -> Result:
        """What ``work`` makes of the connection. If that breaks, work is done once more on a new one."""
        deadline = time.monotonic() + PATIENCE
        if not self._lock.acquire(timeout=PATIENCE):
            raise LedgerError(self.place, "another thread has kept it locked for too long")
        try:
            return self._tried(work, deadline)
        except self._psycopg.Error as error:
            raise LedgerError(self.place, self._words(error)) from error
        finally:
            self._lock.release()

    def _tried(self, work: Callable[[Any], Result], deadline: float) -> Result:
        try:
            return self._done(work, deadline)
        except self._psycopg.Error as error:
            if not self._is_broken(error) or time.monotonic() > deadline:
                raise
        return self._done(work, deadline)

    def _done(self, work: Callable[[Any], Result], deadline: float) -> Result:
        try:
            return work(self._connected(deadline))
        except BaseException:
            # Whatever state it is in, the next one begins anew.
            self._hang_up()
            raise

    def _connected(self, deadline: float) -> Any:
        if self._connection is None or self._connection.closed:
            left = {"connect_timeout": str(max(1, math.ceil(deadline - time.monotonic())))}
            kinds = {"autocommit": True, "cursor_factory": self._psycopg.ClientCursor}
            self._connection = _patient(self._psycopg).connect(**left, **self._address, **kinds)
            self._heard = ""
        self._connection.deadline = deadline
        if self._heard != self.prelude:
            self._connection.execute(self.prelude)
            self._heard = self.prelude
        return self._connection

    def _is_broken(self, error: Any) -> bool:
        """Whether an error means that the connection is gone: noticed here, or by a code of a server that ends it."""
        if error.sqlstate is None:
            return isinstance(error, self._psycopg.OperationalError)
        return str(error.sqlstate).startswith(("08", "57P", "25P03"))

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _words(self, error: Exception) -> str:
        if isinstance(error, self._psycopg.errors.LockNotAvailable):
            return "another client has kept it locked for too long"
        words = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        return words.replace(self._secret, "…") if self._secret else words

    def close(self) -> None:
        """Let go of the server."""
        with self._lock:
            self._hang_up()


def run(connection: Any, words: str, **values: Any) -> list[Row]:
    """Statements, sent in one message, as one transaction; the rows of the last."""
    # Values become part of the words, quoted, since only such a message can hold several statements.
    cursor = connection.execute(words, values)
    while cursor.nextset():
        pass
    return list(cursor.fetchall()) if cursor.description else []


def _patient(psycopg: Any) -> Any:
    """The class of connections, but with an end to their patience: a moment, their ``deadline``."""

    class Patient(psycopg.Connection):  # type: ignore[misc]  # a class of an optional library
        deadline = math.inf

        def wait(self, steps: Any, *args: Any, **options: Any) -> Any:
            late = psycopg.OperationalError("the server has not answered in time")
            return super().wait(_until(self.deadline, steps, late), *args, **options)

    return Patient


def _until(deadline: float, steps: Generator[Any, Any, Any], late: Exception) -> Generator[Any, Any, Any]:
    """The same steps, each of which waits for the server, as long as there is time."""
    ready = None
    while True:
        try:
            state = steps.send(ready)
        except StopIteration as done:
            return done.value
        ready = yield state
        if not ready and time.monotonic() > deadline:
            raise late


def _after_fork() -> None:
    for line in list(_LINES):
        _INHERITED.append(line._connection)
        line._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
