"""Old receipts: those of a file are brought over to where receipts are kept now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeAlias

from occamroute.ledger.database import Database, SqliteDatabase
from occamroute.routing.history import History
from occamroute.routing.stored_decisions import COLUMNS, TABLE

__all__ = ["is_there", "old_rows", "rows_of_file", "set_aside"]

Rows: TypeAlias = Sequence[tuple[Any, ...]]

# The table of 0.1.0 has numbers in the order in which receipts were written, and no costs.
OLD_TABLE = "receipts"
AT_ONCE = 250
COSTS = COLUMNS.index("costs")
OLD_COLUMNS = (*COLUMNS[:COSTS], *COLUMNS[COSTS + 1 :])
OLD = f"SELECT number, {', '.join(OLD_COLUMNS)} FROM {OLD_TABLE} WHERE number > ? ORDER BY number LIMIT {AT_ONCE}"  # noqa: S608  # our own words
NEW = f"SELECT {', '.join(COLUMNS)} FROM {TABLE} WHERE id > ? ORDER BY id LIMIT {AT_ONCE}"  # noqa: S608


def is_there(database: Database, table: str) -> bool:
    """Whether a file has a table."""
    return bool(database.read("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)))


def old_rows(file: Database, history: History) -> Iterator[Rows]:
    """What the table of 0.1.0 in a file holds, some rows at a time, with the columns of today."""
    costs: dict[str, str] = {}
    last = 0
    while rows := file.read(OLD, (last,)):
        last = rows[-1][0]
        for snapshot in {row[1 + COLUMNS.index("snapshot")] for row in rows} - costs.keys():
            costs[snapshot] = history.cost_list(snapshot) if snapshot in history else "{}"
        yield [_today(row[1:], costs) for row in rows]


def rows_of_file(path: Path, history: History) -> Iterator[Rows]:
    """All receipts of a file, of 0.1.0 or of today, some rows at a time, with the columns of today."""
    with closing(SqliteDatabase(path)) as file:
        if is_there(file, OLD_TABLE):
            yield from old_rows(file, history)
        if is_there(file, TABLE):
            last = ""
            while rows := file.read(NEW, (last,)):
                last = rows[-1][0]
                yield rows


def set_aside(path: Path) -> None:
    """Give a file whose receipts were brought over another name, so that it is not read again."""
    if path.with_name(f"{path.name}-wal").exists():
        return  # somebody has it open: the next start will do
    number = 1
    while (aside := path.with_stem(f"{path.stem}-moved-{number}")).exists():
        number += 1
    with suppress(OSError):  # a folder that may not be written: what is brought over twice is there once
        path.rename(aside)


def _today(row: tuple[Any, ...], costs: dict[str, str]) -> tuple[Any, ...]:
    return (*row[:COSTS], costs[row[COLUMNS.index("snapshot")]], *row[COSTS:])
