"""Folders of Parquet files, read as one long table: some rows at a time, so that they may be larger than memory."""

from __future__ import annotations

import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from occamroute.errors import InvalidInputError, StorageError
from occamroute.storage import is_folder, require_file

__all__ = ["QueryFolder"]

# What a reader holds of a column at a time.
BUFFER = 1 << 20
# How names of files end, in letters of either case.
SUFFIX = ".parquet"
GONE = "it is not there, or it is a link to nothing"


class _Group(NamedTuple):
    """A row group: in which file, which of its groups."""

    file: int
    number: int


class QueryFolder:
    """The rows of all Parquet files in a folder: files in the order of their names, rows as they stand in them.

    One file will do too. Folders within are looked into; hidden files, and those whose names begin with ``_``, are
    not. ``largest_group`` is the length of the largest row group, which cannot be begun in the middle without going
    through its start.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.files: tuple[Path, ...] = ()
        self._all = is_folder(path)
        if self._all:
            found = (file for file in self.path.rglob("*") if file.suffix.lower() == SUFFIX and not file.is_dir())
            names = sorted(file.relative_to(self.path) for file in found)
            self.files = tuple(name for name in names if not _passed_over(name))
            if not self.files:
                raise StorageError(path, "it holds no Parquet files")
        else:
            require_file(path)
            self.path, self.files = self.path.parent, (Path(self.path.name),)
        self._read_metadata()

    def _read_metadata(self) -> None:
        groups: list[_Group] = []
        sizes: list[int] = []
        said = []
        stamps: list[tuple[int, int]] = []
        schema: Any = None
        for number, name in enumerate(self.files):
            file = self.path / name
            stamps.append(_stamp(file))  # before it is opened: a later change is noticed
            opened = _open(file)
            metadata, own = opened.metadata, opened.schema_arrow.remove_metadata()
            if len(set(own.names)) != len(own.names):
                raise StorageError(file, "two of its columns have the same name")
            if schema is not None and set(own.names) != set(schema.names):
                raise StorageError(file, f"its columns are not those of {self.files[0]}")
            schema = own if schema is None else schema
            sizes += [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            groups += [_Group(number, group) for group in range(metadata.num_row_groups)]
            said.append((name.as_posix(), *stamps[-1], metadata.num_rows, str(own)))
        self.columns: tuple[str, ...] = tuple(schema.names)
        self._groups, self._stamps = tuple(groups), tuple(stamps)
        self._starts = (0, *accumulate(sizes))
        self.largest_group = max(sizes, default=0)
        # Content is not read for this: a file that was changed has another time.
        self.fingerprint = blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()
        if not len(self):
            raise StorageError(self.path, "its files hold no rows")

    def __len__(self) -> int:
        return self._starts[-1]

    def __repr__(self) -> str:
        return f"QueryFolder({str(self.path)!r}, {len(self)} rows in {len(self.files)} files)"

    def read(self, start: int, stop: int, columns: Sequence[str]) -> Any:
        """Rows from ``start`` to ``stop`` as one Arrow table."""
        import pyarrow as pa

        tables = [table for _, table in self.batches(start, stop, columns, max(1, stop - start))]
        return pa.concat_tables(tables, promote_options="permissive")

    def batches(self, start: int, stop: int, columns: Sequence[str], rows: int) -> Iterator[tuple[int, Any]]:
        """The same in tables of at most ``rows`` rows, each with the number of its first."""
        import pyarrow as pa

        at = bisect_right(self._starts, start) - 1
        while at < len(self._groups) and self._starts[at] < stop:
            # A file's groups are read in one go: to open it takes the longer the more of them there are.
            here = self._groups[at].file
            until = bisect_right(self._groups, here, lo=at, key=lambda group: group.file)
            until = min(until, bisect_left(self._starts, stop))
            numbers = [group.number for group in self._groups[at:until]]
            file, first = self.path / self.files[here], self._starts[at]
            opened = _open(file)
            if _stamp(file) != self._stamps[here]:
                raise StorageError(file, "it was changed in the middle of the work")
            try:
                for batch in opened.iter_batches(rows, row_groups=numbers, columns=list(columns)):
                    begin, end = max(start - first, 0), min(stop - first, batch.num_rows)
                    if begin < end:
                        yield first + begin, pa.Table.from_batches([batch.slice(begin, end - begin)])
                    first += batch.num_rows
                    if first >= stop:
                        return
            except (pa.ArrowException, OSError) as error:
                raise StorageError(file, "it is cut off or damaged") from error
            at = until

    def would_read(self, path: str | os.PathLike[str]) -> bool:
        """Whether Parquet files written there would be among those of the folder."""
        place, own = Path(path).resolve(), self.path.resolve()
        return self._all and own in (place, *place.parents) and not _passed_over(place.relative_to(own))

    def require_apart(self, path: str | os.PathLike[str]) -> None:
        """Raise unless files may be written there without becoming part of the folder."""
        if self.would_read(path):
            raise InvalidInputError(f"cannot write {os.fspath(path)}: what is in {self.path} is read as queries.")

    def place(self, row: int) -> str:
        """Which file a row is in, for messages."""
        at = min(bisect_right(self._starts, row) - 1, len(self._groups) - 1)
        return str(self.path / self.files[self._groups[at].file])


def _passed_over(name: Path) -> bool:
    """Whether a name within the folder is hidden, or somebody's own."""
    return any(part[0] in "._" for part in name.parts)


def _stamp(file: Path) -> tuple[int, int]:
    """A file's size and its time of change: by these it is known."""
    try:
        facts = file.stat()
    except OSError as error:
        raise StorageError(file, GONE) from error
    return facts.st_size, facts.st_mtime_ns


def _open(file: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Pages are read as they are needed: a row group may be larger than memory.
        return pq.ParquetFile(file, buffer_size=BUFFER, pre_buffer=False, page_checksum_verification=True)
    except UnicodeError as error:
        raise StorageError(file, "its name is not UTF-8") from error
    except FileNotFoundError as error:
        raise StorageError(file, GONE) from error
    except (pa.ArrowException, OSError) as error:
        raise StorageError(file, "it is no Parquet file, or it is cut off or damaged") from error
