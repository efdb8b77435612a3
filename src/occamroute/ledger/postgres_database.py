"""Tables beside a ledger's own in PostgreSQL, over connections of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from occamroute._optional import require
from occamroute.errors import LedgerError, StorageError
from occamroute.ledger import postgres_statements as statements
from occamroute.ledger.database import Row, Statement
from occamroute.ledger.postgres_line import Line, run

__all__ = ["PostgresDatabase"]

Result = TypeVar("Result")

# Locks are by a ledger's number; this is nobody's, for making tables.
NOBODY = 0


class PostgresDatabase:
    """Tables in a PostgreSQL database.

    Statements that differ only in their values are sent together, without waiting for an answer to each. A commit does
    not wait for the server's disk (``synchronous_commit`` is off): a crash of the server may undo the last ones.
    """

    blob = "BYTEA"
    now = "extract(epoch FROM clock_timestamp())::float8"

    def __init__(self, address: str, *, ledger: str = "default") -> None:
        self._line = Line(address)
        self._line.prelude = "SET synchronous_commit = off"
        self._psycopg = require("psycopg", extra="postgres", what="a ledger in PostgreSQL")
        self.place, self.ledger = self._line.place, ledger

    def create(self, table: str, schema: str) -> None:
        """Create a table and its indexes unless the table exists."""

        def created(connection: Any) -> None:
            with connection.transaction():
                # Two that create the same table at once would fail, in spite of IF NOT EXISTS.
                run(connection, statements.LOCK, ledger=NOBODY)
                if run(connection, "SELECT to_regclass(%(table)s)", table=table)[0][0] is None:
                    connection.execute(schema)

        self._talk(created)

    def read(self, words: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows that a query gives."""

        def found(connection: Any) -> list[Row]:
            return list(self._psycopg.Cursor(connection).execute(_numbered(words), values).fetchall())

        return self._talk(found)

    def write(self, statements: Sequence[Statement]) -> None:
        """Execute statements in one transaction."""

        def written(connection: Any) -> None:
            with connection.transaction():
                cursor = self._psycopg.Cursor(connection)
                for words, same in groupby(statements, itemgetter(0)):
                    cursor.executemany(_numbered(words), [values for _, values in same])

        self._talk(written)

    def close(self) -> None:
        """Close all connections."""
        self._line.close()

    def _talk(self, work: Callable[[Any], Result]) -> Result:
        try:
            return self._line.talk(work)
        except LedgerError as error:
            place, problem = error.args
            if isinstance(error.__cause__, self._psycopg.DataError):
                raise ValueError(f"{place} cannot hold a value: {problem}.") from error
            raise StorageError(place, problem) from error


@lru_cache(maxsize=100)
def _numbered(words: str) -> str:
    """A statement in the way that psycopg marks values."""
    return words.replace("%", "%%").replace("?", "%s")
