"""A ledger in PostgreSQL: many replicas on many machines, one cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from occamroute._money import Amount
from occamroute.ledger import postgres_statements as statements
from occamroute.ledger.base import State, amount_of
from occamroute.ledger.bookkeeping import FORMAT, Bookkeeping, Reserved, Settings, Standing, Wish
from occamroute.ledger.postgres_line import Line

__all__ = ["PostgresLedger"]

Row: TypeAlias = tuple[Any, ...]

# Locks are by a ledger's number; this is nobody's, for making tables.
NOBODY = 0


class PostgresLedger(Bookkeeping):
    """A cap in a database that many machines reach; its clock is the only one.

    An operation is sent in one piece: begin, lock, one statement, commit. Where the connection breaks in the middle
    it is made anew and the same is sent once more, which changes nothing that was already done.
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
        self._id = NOBODY
        super().__init__(self._line.place, cap, window, clients, name)

    def _begin(self, settings: Settings | None) -> Settings | None:
        return self._line.talk(lambda connection: self._begun(connection, settings))

    def _begun(self, connection: Any, settings: Settings | None) -> Settings | None:
        def run(statement: str, **values: Any) -> list[Row]:
            cursor = connection.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []

        with connection.transaction():
            run(statements.LOCK, ledger=NOBODY)
            # Who may not make tables can still use those that are there.
            if run(statements.IS_THERE)[0][0] is None:
                for statement in statements.SCHEMA:
                    run(statement)
            found = run(statements.FIND, name=self._name)
            if not found and settings is None:
                return None
            if not found and settings is not None:
                run(statements.BEGIN, name=self._name, format=FORMAT, cap=settings.cap, window=settings.window)
                found = run(statements.FIND, name=self._name)
                for client, cap in settings.clients.items():
                    run(statements.SET_CLIENT, ledger=found[0][0], client=client, cap=cap)
            self._id, form, cap, window = found[0]
            self._checked_format(form)
            return Settings(cap, window, dict(run(statements.CLIENTS, ledger=self._id)))

    def _reserve(self, wish: Wish) -> Reserved:
        values = {
            "key": wish.key, "amount": wish.amount, "lease": wish.lease, "client": wish.client, "maker": wish.maker,
        }  # fmt: skip
        _, available, amount, state, maker = self._operation(statements.RESERVE, values)
        return Reserved(available) if state is None else Reserved(available, amount, state, maker)

    def _end(self, key: str, spent: int, state: State) -> bool:
        _, found = self._operation(statements.END, {"key": key, "spent": spent, "state": state})
        return found is not None

    def _operation(self, statement: str, values: Mapping[str, Any]) -> Row:
        """The row that a statement gives, after leases that are over were expired."""
        (row,) = self._changed((statement, {**values, "whatever": False}))
        if row[0]:
            (row,) = self._changed((statements.EXPIRE, {}), (statement, {**values, "whatever": True}))
        return row

    def _standing(self, client: str | None) -> Standing:
        (row,) = self._asked(statements.STANDING, {"client": client})
        while row[0]:
            self._changed((statements.EXPIRE, {}))
            (row,) = self._asked(statements.STANDING, {"client": client})
        return Standing(*row[1:])

    def _set_cap(self, cap: int | None, client: str | None) -> None:
        change = statements.SET_CAP
        if client is not None:
            change = statements.DROP_CLIENT if cap is None else statements.SET_CLIENT
        words = "none" if cap is None else str(amount_of(cap))
        values = {"cap": cap, "client": client, "words": words}
        self._changed((change, values), (statements.NOTE_CAP, values))

    def _block(self, after: int, before: int, limit: int, newest: bool) -> Sequence[Row]:
        words = statements.NEWEST if newest else statements.ENTRIES
        return self._line.ask(words, {"ledger": self._id, "after": after, "before": before, "limit": limit})

    def _asked(self, statement: str, values: Mapping[str, Any]) -> list[Row]:
        return self._there(self._line.ask(statement, {**values, "ledger": self._id}))

    def _changed(self, *changes: tuple[str, Mapping[str, Any]]) -> list[Row]:
        """Changes in one transaction, alone with this ledger; the rows of the last."""
        lock = (statements.LOCK, {"ledger": self._id})
        return self._there(
            self._line.send(lock, *((words, {**values, "ledger": self._id}) for words, values in changes))
        )

    def _there(self, rows: list[Row]) -> list[Row]:
        if not rows:
            raise self._gone()
        return rows

    def close(self) -> None:
        """Let go of the connection."""
        self._line.close()
