"""Queries, some at a time: those in memory, or those in a folder of Parquet files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occamroute.calls.terms import checked_queries, content_hash
from occamroute.data_files import queries_in, query_columns
from occamroute.folders import QueryFolder
from occamroute.storage import is_folder
from occamroute.tables import ids_in

__all__ = ["FolderQuestions", "ListedQuestions", "Questions", "holds_tables", "in_folder", "questions_of"]


@dataclass(frozen=True, eq=False)
class ListedQuestions:
    """Queries in memory."""

    queries: Any
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def fingerprint(self) -> str:
        """What they are, in short."""
        return content_hash(self.queries)

    def block(self, start: int, stop: int) -> Any:
        """The queries from one number to before another."""
        return self.queries[start:stop]

    def ids(self, start: int, stop: int) -> tuple[str, ...]:
        """Their ids, by default their numbers."""
        return tuple(map(str, range(start, stop))) if self.names is None else self.names[start:stop]


@dataclass(frozen=True, eq=False)
class FolderQuestions:
    """Queries in a folder of Parquet files; ``column`` names the one that holds them."""

    folder: QueryFolder
    column: str | None = None

    def __len__(self) -> int:
        return len(self.folder)

    @property
    def fingerprint(self) -> str:
        """What they are, in short: files, and when they were written."""
        return f"{self.folder.fingerprint} {self.column}"

    def block(self, start: int, stop: int) -> Any:
        """The queries from one number to before another."""
        wanted = query_columns(self.folder.columns, self.column, self.folder.path)
        columns = self.folder.read(start, stop, wanted).to_pydict()
        # Paths of images are from the folder on, whichever file they stand in.
        return queries_in(columns, self.folder.path / "*.parquet")

    def labels(self, start: int, stop: int, name: str) -> list[str]:
        """Their true labels, in the column of that name."""
        return list(map(str, self.folder.read(start, stop, [name]).to_pydict()[name]))

    def ids(self, start: int, stop: int) -> tuple[str, ...]:
        """Their ids, by default their numbers."""
        if "id" not in self.folder.columns:
            return tuple(map(str, range(start, stop)))
        return tuple(ids_in(self.folder.read(start, stop, ["id"]), start, self.folder.place(start)).to_pylist())


Questions = ListedQuestions | FolderQuestions


def questions_of(queries: Any) -> Questions:
    """The queries in a folder that is named, or those that are given."""
    if isinstance(queries, FolderQuestions):
        return queries
    if isinstance(queries, str | os.PathLike):
        return FolderQuestions(QueryFolder(queries))
    return ListedQuestions(checked_queries(queries))


def in_folder(queries: Any) -> bool:
    """Whether queries are in a folder of Parquet files."""
    return isinstance(queries, FolderQuestions) or is_folder(queries)


def holds_tables(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds Parquet files, and not images."""
    return is_folder(path) and any(Path(path).rglob("*.parquet"))
