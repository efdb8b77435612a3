"""Connections to a PostgreSQL server: never silent for long, and made anew when they break."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from occamroute._optional import require
from occamroute.errors import InvalidInputError, LedgerError
from occamroute.ledger.bookkeeping import PATIENCE
from occamroute.ledger.clocks import JUMPED

__all__ = ["Line", "Row", "run", "run_each"]

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
# Connections of one process to one ledger. The server changes a ledger one operation at a time: more than one
# connection only hides network latency.
MOST = 4
# Seconds between attempts to get a connection back from another thread when the server allows no more.
GLANCE = 0.01
# Error messages of a server that has no connections left.
CROWDED = ("too many clients", "connection slots are reserved", "too many connections")
# Connections that a forked child was born with: to close them would end its parent's.
_INHERITED: list[Any] = []
_LINES: weakref.WeakSet[Line] = weakref.WeakSet()


class Line:
    """A few connections, each used by one thread at a time and made when it is needed.

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

    def database(self, connection: Any) -> str:
        """The database that a connection leads to, with what the address leaves to the environment; no user."""
        info = connection.info
        host, port = self._address.get("host") or info.host, self._address.get("port") or info.port
        return f"postgresql://{host}:{port}/{info.dbname}"

    def _forget(self) -> None:
        """Begin without connections, at the start or in a forked child."""
        self._idle: deque[Any] = deque()
        self._open = 0  # connections in use; it is only compared with 0, so that no lock is needed
        self._places = threading.Semaphore(MOST)

    def talk(self, work: Callable[[Any], Result]) -> Result:
        """What ``work`` makes of a connection. If that breaks, work is done once more on a new one."""
        deadline, places = time.monotonic() + PATIENCE, self._places
        if not places.acquire(timeout=PATIENCE):
            raise LedgerError(self.place, "other threads have kept all connections for too long")
        try:
            return self._tried(work, deadline)
        except self._psycopg.Error as error:
            raise LedgerError(self.place, self._words(error)) from error
        finally:
            places.release()

    def _tried(self, work: Callable[[Any], Result], deadline: float) -> Result:
        try:
            return self._done(work, deadline)
        except self._psycopg.Error as error:
            if not self._is_broken(error) or time.monotonic() > deadline:
                raise
        self._hang_up()  # what broke one connection, a restart of the server say, has broken those beside it
        return self._done(work, deadline)

    def _done(self, work: Callable[[Any], Result], deadline: float) -> Result:
        idle = self._idle
        connection = self._connected(idle, deadline)
        self._open += 1
        try:
            if connection.heard != self.prelude:
                connection.execute(self.prelude)
                connection.heard = self.prelude
            result = work(connection)
        except BaseException:
            connection.close()  # whatever state it is in, the next one begins anew
            raise
        finally:
            self._open -= 1
        idle.append(connection)
        if idle is not self._idle:  # all were let go of meanwhile, perhaps just before this one was given back
            _close(idle)
        return result

    def _connected(self, idle: deque[Any], deadline: float) -> Any:
        connection = None
        while connection is None or connection.closed:
            try:
                connection = idle.pop()
            except IndexError:
                connection = self._another(deadline)
        connection.deadline = deadline
        return connection

    def _another(self, deadline: float) -> Any:
        """Open a connection; None if the server allows no more but another thread will give one back."""
        left = {"connect_timeout": str(max(1, math.ceil(deadline - time.monotonic())))}
        kinds = {"autocommit": True, "cursor_factory": self._psycopg.ClientCursor}
        try:
            made = _patient(self._psycopg).connect(**left, **self._address, **kinds)
        except self._psycopg.OperationalError as error:
            if self._open == 0 or time.monotonic() > deadline or not any(word in str(error) for word in CROWDED):
                raise
            time.sleep(GLANCE)
            return None
        return made

    def _is_broken(self, error: Any) -> bool:
        """Whether an error means that the connection is gone: noticed here, or by a code of a server that ends it."""
        if error.sqlstate is None:
            return isinstance(error, self._psycopg.OperationalError)
        return str(error.sqlstate).startswith(("08", "57P", "25P03"))

    def _hang_up(self) -> None:
        """Close what is not in use; what is in use is closed when it is given back."""
        idle, self._idle = self._idle, deque()
        _close(idle)

    def _words(self, error: Exception) -> str:
        if isinstance(error, self._psycopg.errors.LockNotAvailable):
            return "another client has kept it locked for too long"
        if isinstance(error, self._psycopg.errors.DivisionByZero):
            return JUMPED
        words = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        return words.replace(self._secret, "…") if self._secret else words

    def close(self) -> None:
        """Let go of the server."""
        self._hang_up()


def run(connection: Any, words: str, **values: Any) -> list[Row]:
    """Statements, sent in one message, as one transaction; the rows of the last."""
    return run_each(connection, words, values)[-1] or []


def run_each(connection: Any, words: str, values: Mapping[str, Any]) -> list[list[Row] | None]:
    """The same with the rows of each statement, None for one that gives no rows."""
    # Values become part of the words, quoted, since only such a message can hold several statements.
    cursor = connection.execute(words, values)
    found = [_rows(cursor)]
    while cursor.nextset():
        found.append(_rows(cursor))
    return found


def _close(connections: deque[Any]) -> None:
    """Close connections, of which another thread may close some at the same time."""
    with suppress(IndexError):
        while True:
            connections.pop().close()


def _rows(cursor: Any) -> list[Row] | None:
    return list(cursor.fetchall()) if cursor.description else None


def _patient(psycopg: Any) -> Any:
    """The class of connections, but with an end to their patience: a moment, their ``deadline``."""

    class Patient(psycopg.Connection):  # type: ignore[misc]  # a class of an optional library
        deadline = math.inf
        heard = ""

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
        _INHERITED.extend(line._idle)
        line._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
