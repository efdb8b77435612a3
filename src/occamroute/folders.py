"""Folders of Parquet files, read as one long table: some rows at a time, so that they may be larger than memory."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from occamroute.errors import StorageError
from occamroute.storage import is_folder, require_file

__all__ = ["QueryFolder"]

# What a reader holds of a column at a time.
BUFFER = 1 << 20


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
        if is_folder(path):
            names = sorted(file.relative_to(self.path) for file in self.path.rglob("*.parquet") if file.is_file())
            self.files = tuple(name for name in names if not any(part[0] in "._" for part in name.parts))
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
        schema: Any = None
        for number, name in enumerate(self.files):
            file = self.path / name
            opened = _open(file)
            metadata, own = opened.metadata, opened.schema_arrow.remove_metadata()
            if schema is not None and set(own.names) != set(schema.names):
                raise StorageError(file, f"its columns are not those of {self.files[0]}")
            schema = own if schema is None else schema
            sizes += [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            groups += [_Group(number, group) for group in range(metadata.num_row_groups)]
            facts = file.stat()
            said.append((name.as_posix(), facts.st_size, facts.st_mtime_ns, metadata.num_rows, str(own)))
        self.columns: tuple[str, ...] = tuple(schema.names)
        self._groups = tuple(groups)
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
            group = self._groups[at]
            file, first = self.path / self.files[group.file], self._starts[at]
            try:
                for batch in _open(file).iter_batches(rows, row_groups=[group.number], columns=list(columns)):
                    begin, end = max(start - first, 0), min(stop - first, batch.num_rows)
                    if begin < end:
                        yield first + begin, pa.Table.from_batches([batch.slice(begin, end - begin)])
                    first += batch.num_rows
                    if first >= stop:
                        return
            except (pa.ArrowException, OSError) as error:
                raise StorageError(file, "it is cut off or damaged") from error
            at += 1

    def place(self, row: int) -> str:
        """Which file a row is in, for messages."""
        at = min(bisect_right(self._starts, row) - 1, len(self._groups) - 1)
        return str(self.path / self.files[self._groups[at].file])


def _open(file: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Pages are read as they are needed: a row group may be larger than memory.
        return pq.ParquetFile(file, buffer_size=BUFFER, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise StorageError(file, "it is no Parquet file, or it is cut off or damaged") from error
