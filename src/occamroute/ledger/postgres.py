"""A ledger in PostgreSQL: many replicas on many machines, one cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from occamroute._money import Amount
from occamroute.errors import InvalidInputError
from occamroute.ledger import postgres_statements as statements
from occamroute.ledger.base import State, amount_of
from occamroute.ledger.bookkeeping import FORMAT, Bookkeeping, Reserved, Settings, Standing, Wish
from occamroute.ledger.postgres_line import Line, Row, run

__all__ = ["PostgresLedger"]

# Locks are by a ledger's number; this is nobody's, for making tables.
NOBODY = 0


class PostgresLedger(Bookkeeping):
    """A cap in a database that many machines reach; its clock is the only one.

    An operation is one message to the server, lock and decision included, and one transaction. Where the connection
    breaks in the middle it is made anew and the same is sent once more, which does nothing that was already done.
    """

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
        super().__init__(self._line.place, cap, window, clients, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process, it is opened there anew; a password is not sent along."""
        if self._line.has_password:
            raise InvalidInputError(
                "a ledger whose address holds a password cannot be sent to other processes: "
                "have it in PGPASSWORD or a password file there"
            )
        return partial(PostgresLedger, cap=None, name=self._name), (self._address,)

    def _begin(self, settings: Settings | None) -> Settings | None:
        known = self._line.talk(lambda connection: self._begun(connection, settings))
        if known is not None:
            self._line.prelude = statements.PREPARED
        return known

    def _begun(self, connection: Any, settings: Settings | None) -> Settings | None:
        with connection.transaction():
            run(connection, statements.LOCK, ledger=NOBODY)
            # Who may not make tables can still use those that are there.
            if run(connection, statements.IS_THERE)[0][0] is None:
                run(connection, statements.SCHEMA)
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
            return Settings(cap, window, dict(run(connection, statements.CLIENTS, ledger=self._id)))

    def _reserve(self, wish: Wish) -> Reserved:
        values = {
            "client": wish.client,
            "key": wish.key,
            "amount": wish.amount,
            "lease": wish.lease,
            "maker": wish.maker,
        }
        _, available, amount, state, maker, client = self._operation(statements.DO_RESERVE, values)
        return Reserved(available) if state is None else Reserved(available, amount, state, maker, client)

    def _find(self, key: str) -> Reserved | None:
        amount, state, maker, client = self._send(statements.ASK_HOLD, key=key)
        return None if state is None else Reserved(0, amount, state, maker, client)

    def _end(self, key: str, spent: int, state: State) -> bool:
        _, found = self._operation(statements.DO_END, {"key": key, "spent": spent, "state": state})
        return found is not None

    def _correct(self, key: str, spent: int) -> bool:
        _, found = self._operation(statements.DO_CORRECT, {"key": key, "spent": spent})
        return found is not None

    def _operation(self, statement: str, values: Mapping[str, Any]) -> Row:
        """The row that a statement gives, after leases that are over were expired."""
        row = self._send(statements.LOCK + statement, **values, whatever=False)
        if row[0]:
            row = self._send(statements.LOCK + statements.DO_EXPIRE + statement, **values, whatever=True)
        return row

    def _standing(self, client: str | None) -> Standing:
        row = self._send(statements.ASK_STANDING, client=client)
        while row[0]:
            self._send(statements.LOCK + statements.DO_EXPIRE)
            row = self._send(statements.ASK_STANDING, client=client)
        return Standing(*row[1:])

    def _set_cap(self, cap: int | None, client: str | None) -> None:
        change = statements.SET_CAP
        if client is not None:
            change = statements.DROP_CLIENT if cap is None else statements.SET_CLIENT
        said = "none" if cap is None else str(amount_of(cap))
        words = statements.LOCK + statements.DO_EXPIRE + change + statements.DO_NOTE_CAP
        self._send(words, cap=cap, client=client, said=said)

    def _block(self, after: int, before: int, limit: int, newest: bool) -> Sequence[Row]:
        words = statements.NEWEST if newest else statements.ENTRIES
        between = {"after": after, "before": before, "limit": limit}
        return self._line.talk(lambda connection: run(connection, words, ledger=self._id, **between))

    def _send(self, words: str, **values: Any) -> Row:
        """One message, one transaction; the row that the last statement gives."""
        rows = self._line.talk(lambda connection: run(connection, words, ledger=self._id, **values))
        if not rows:
            raise self._gone()
        return rows[0]

    def close(self) -> None:
        """Let go of the connection."""
        self._line.close()
