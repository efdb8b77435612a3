"""A ledger in PostgreSQL: many replicas on many machines, one cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from occamroute._money import Amount
from occamroute.errors import InvalidInputError
from occamroute.ledger import postgres_statements as statements
from occamroute.ledger.base import Reply, amount_of
from occamroute.ledger.bookkeeping import (
    FORMAT,
    LAST,
    Bookkeeping,
    Ending,
    Folded,
    Found,
    ReplyLookup,
    Reserved,
    Settings,
    Standing,
    Step,
    Wish,
)
from occamroute.ledger.database import Database
from occamroute.ledger.postgres_database import PostgresDatabase
from occamroute.ledger.postgres_line import Line, Row, run, run_each

__all__ = ["PostgresLedger"]

# Locks are by a ledger's number; this is nobody's, for making tables.
NOBODY = 0
# A statement with its values, beside the ledger's number.
Asked: TypeAlias = tuple[str, Mapping[str, Any]]
LOCK: Asked = (statements.LOCK, {})
EXPIRE: Asked = (statements.DO_EXPIRE, {})


class PostgresLedger(Bookkeeping):
    """A cap in a database that many machines reach; its clock is the only one.

    An operation is one message to the server, lock and decision included, and one transaction. Where the connection
    breaks in the middle it is made anew and the same is sent once more, which does nothing that was already done.
    ``in_flight`` transactions may be on their way to the server and back at once.
    """

    in_flight = 3

    def __init__(
        self,
        address: str,
        cap: Amount | None,
        *,
        window: str | None = None,
        clients: Mapping[str, Amount] | None = None,
        name: str = "default",
    ) -> None:
        self._line = Line(address)
        self._address = address
        self._id = NOBODY
        self._database = ""
        super().__init__(self._line.place, cap, window, clients, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process, it is opened there anew; a password is not sent along."""
        if self._line.has_password:
            raise InvalidInputError(
                "a ledger whose address holds a password cannot be sent to other processes: "
                "have it in PGPASSWORD or a password file there"
            )
        return partial(PostgresLedger, cap=None, name=self._name), (self._address,)

    @property
    def identity(self) -> str:
        """The ledger's unique name; addresses that name the same host differently give different ones."""
        return f"{self._database}#{self._name}"

    def _begin(self, settings: Settings | None) -> Settings | None:
        known = self._line.talk(lambda connection: self._begun(connection, settings))
        if known is not None:
            self._line.prelude = statements.PREPARED
        return known

    def _begun(self, connection: Any, settings: Settings | None) -> Settings | None:
        self._database = self._line.database(connection)
        with connection.transaction():
            run(connection, statements.LOCK, ledger=NOBODY)
            # Who may not make tables can still use those that are there.
            ledgers, replies = run(connection, statements.ARE_THERE)[0]
            if ledgers is None:
                run(connection, statements.SCHEMA)
            elif replies is None:
                run(connection, statements.ADD_REPLIES)
            found = run(connection, statements.FIND, name=self._name)
            if not found and settings is None:
                return None
            if not found and settings is not None:
                begin = {"format": FORMAT, "cap": settings.cap, "window": settings.window}
                run(connection, statements.BEGIN, name=self._name, **begin)
                found = run(connection, statements.FIND, name=self._name)
                for client, cap in settings.clients.items():
                    run(connection, statements.SET_CLIENT, ledger=found[0][0], client=client, cap=cap)
            self._id, form, cap, window = found[0]
            self._checked_format(form)
            if form != FORMAT:
                run(connection, statements.MIGRATE, ledger=self._id, format=FORMAT)
            return Settings(cap, window, dict(run(connection, statements.CLIENTS, ledger=self._id)))

    def _apply(self, steps: Sequence[Step]) -> list[Found]:
        asked = [_asked(step) for step in steps]
        return [_told(step, row) for step, row in zip(steps, self._operations(asked), strict=True)]

    def _correct(self, key: str, spent: int) -> bool:
        ((_, found),) = self._operations([(statements.DO_CORRECT, {"key": key, "spent": spent})])
        return found is not None

    def _operations(self, asked: Sequence[Asked]) -> list[Row]:
        """The row that each statement gives, after leases that are over were expired; all in one transaction."""
        rows = self._send([LOCK, *((words, {**values, "whatever": False}) for words, values in asked)])[1:]
        # Those that found a lease that is over have changed nothing, nor have lookups: all from there on are done anew.
        late = next((number for number, row in enumerate(rows) if row[0]), len(rows))
        if late < len(rows):
            again = [(words, {**values, "whatever": True}) for words, values in asked[late:]]
            rows[late:] = self._send([LOCK, EXPIRE, *again])[2:]
        return rows

    def _standing(self, client: str | None) -> Standing:
        row = self._asked(statements.ASK_STANDING, client=client)
        while row[0]:
            self._send([LOCK, EXPIRE])
            row = self._asked(statements.ASK_STANDING, client=client)
        return Standing(*row[1:])

    def _set_cap(self, cap: int | None, client: str | None) -> None:
        change = statements.SET_CAP
        if client is not None:
            change = statements.DROP_CLIENT if cap is None else statements.SET_CLIENT
        values = {"cap": cap, "client": client, "said": "none" if cap is None else str(amount_of(cap))}
        self._send([LOCK, EXPIRE, (change, values), (statements.DO_NOTE_CAP, values)])

    def _block(self, after: int, before: int, limit: int, newest: bool) -> Sequence[Row]:
        words = statements.NEWEST if newest else statements.ENTRIES
        between = {"after": after, "before": before, "limit": limit}
        return self._line.talk(lambda connection: run(connection, words, ledger=self._id, **between))

    def _fold(self, after: int, most: int, summaries: Sequence[int], keep: int) -> Folded:
        values = {"after": after, "keep": keep, "summaries": list(summaries), "most": most}
        last, done, entries, holds, *found = self._send([LOCK, (statements.DO_FOLD, values)])[1]
        starts, clients, numbers = (column or () for column in found)
        return Folded(last, done, entries, holds, list(zip(starts, clients, numbers, strict=True)))

    def _asked(self, words: str, **values: Any) -> Row:
        """The row that one statement gives."""
        (row,) = self._send([(words, values)])
        return row

    def _send(self, asked: Sequence[Asked]) -> list[Row]:
        """One message, one transaction; the row that each statement gives, () where it gives none."""
        latest = self._clock.latest
        told: list[Asked] = [(statements.ASK_TIME, {"latest": LAST if latest is None else latest}), *asked]
        # Names of values differ by statement.
        words = "".join(one.replace("%(", f"%(s{number}_") for number, (one, _) in enumerate(told))
        values = {f"s{number}_{name}": value for number, (_, given) in enumerate(told)
                  for name, value in (*given.items(), ("ledger", self._id))}  # fmt: skip
        found = self._line.talk(lambda connection: run_each(connection, words, values))
        if any(rows is not None and not rows for rows in found):
            raise self._gone()
        self._clock.trusts(found[0][0][0])  # type: ignore[index]  # or the server would have refused it
        return [rows[0] if rows else () for rows in found[1:]]

    def database(self) -> Database:
        """Tables beside its own in the same database."""
        return PostgresDatabase(self._address, ledger=self._name)

    def close(self) -> None:
        """Let go of the connections."""
        self._line.close()


def _asked(step: Step) -> Asked:
    """The statement of a step, with its values."""
    values = dict(vars(step))
    reply = values.pop("reply", None)
    if reply is not None:
        values |= {"about": reply.about, "content": reply.content}
    if isinstance(step, Wish):
        return statements.DO_RESERVE if reply is None else statements.DO_RESERVE_WITH_REPLY, values
    if isinstance(step, Ending):
        return statements.DO_END if reply is None else statements.DO_END_WITH_REPLY, values
    return statements.ASK_REPLY if isinstance(step, ReplyLookup) else statements.ASK_HOLD, values


def _told(step: Step, row: Row) -> Found:
    """What a row says of a step; the first column, whether a lease is over, is dealt with."""
    if isinstance(step, Ending):
        return row[1] is not None
    if isinstance(step, ReplyLookup):
        return None if row[1] is None else Reply(*row[1:])
    _, available, amount, state, maker, client = row
    if state is None:
        return Reserved(available) if isinstance(step, Wish) else None
    return Reserved(available, amount, state, maker, client)
