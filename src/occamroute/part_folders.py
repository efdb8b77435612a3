"""Long tables kept as folders of parts: each part a Parquet file that is whole or not there, so that work can go on.

``about.json`` says what the folder holds, what it was made from, and whether all of it is there. Any Parquet reader
can use the parts as they are.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from occamroute._arrays import IntArray
from occamroute.errors import InvalidInputError, StorageError
from occamroute.storage import ABOUT, FORMAT, KEY, read_about, whole_file

__all__ = [
    "InParts",
    "PartFolder",
    "content_key",
    "named_column",
    "part_rows_for",
    "positions_in",
    "remove_folder",
    "require_room",
]

# A part has so many rows at most, and at least so many; where rows are wide, so many numbers at most.
MOST_ROWS, FEWEST_ROWS = 1 << 16, 1 << 12
MOST_NUMBERS = 1 << 22
PARTS = 64


def part_rows_for(rows: int, columns: int = 1) -> int:
    """How many rows a part has: some dozens of parts, so that they can be shared out, none of them large."""
    wanted = -(-rows // (PARTS * FEWEST_ROWS)) * FEWEST_ROWS
    most = MOST_NUMBERS // columns // FEWEST_ROWS * FEWEST_ROWS
    return max(FEWEST_ROWS, min(MOST_ROWS, most, wanted))


def require_room(path: str | os.PathLike[str]) -> None:
    """Raise unless parts could be written there: nothing is there, or what was begun before."""
    place = Path(path)
    if place.exists() and not place.is_dir():
        raise InvalidInputError(f"cannot write {place}: it is a file, a folder is needed.")
    if place.exists() and not (place / ABOUT).exists() and any(name[0] != "." for name in os.listdir(place)):
        raise InvalidInputError(f"cannot write into {place}: it is not empty, and holds nothing that was begun here.")


def remove_folder(path: Path) -> None:
    """Take a folder of parts away; what is said of it goes last, so that a removal cut short can go on."""
    for file in sorted(path.glob("*"), key=lambda file: file.name == ABOUT):
        if not file.is_dir():
            file.unlink(missing_ok=True)  # somebody else may do the same
    with suppress(OSError):
        path.rmdir()


def content_key(facts: Any) -> str:
    """A short name for what something was made from, which JSON can hold."""
    return blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class PartFolder:
    """Rows 0 to ``rows`` in parts of ``part_rows``, all made from what ``key`` stands for."""

    path: Path
    kind: str
    key: str
    rows: int
    part_rows: int

    @classmethod
    def begin(cls, path: str | os.PathLike[str], kind: str, key: str, rows: int, part_rows: int) -> PartFolder:
        """A folder to write parts into, new or begun before with the same; one of something else is refused."""
        place = Path(path)
        require_room(place)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(f"cannot write {place}: {error.strerror}.") from error
        made = cls(place, kind, key, rows, part_rows)
        if (place / ABOUT).exists():
            found = read_about(place)
            if (found["kind"], found.get("key")) != (kind, key):
                raise InvalidInputError(
                    f"{place} holds {_article(found['kind'])} of something else: give another folder, or remove it."
                )
            # The parts that are there decide how large parts are: another version may have begun the folder.
            return cls(place, kind, key, rows, int(found.get("part_rows", part_rows)))
        made._write_about({}, done=False)
        return made

    @classmethod
    def opened(cls, path: str | os.PathLike[str]) -> tuple[PartFolder, dict[str, Any]]:
        """A folder that is finished, and what is said of it."""
        place = Path(path)
        about = read_about(place)
        if not about.get("done"):
            raise StorageError(path, f"the {about['kind']} in it is not finished: run the same command again")
        try:
            made = cls(place, about["kind"], str(about["key"]), int(about["rows"]), int(about["part_rows"]))
            if min(made.rows, made.part_rows) < 1:
                raise ValueError("no rows")
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(place / ABOUT, f"part of it is missing or broken ({error})") from error
        return made, about

    def __len__(self) -> int:
        return -(-self.rows // self.part_rows)

    def span(self, number: int) -> tuple[int, int]:
        """The first row of a part, and the one after its last."""
        if not 0 <= number < len(self):
            raise InvalidInputError(f"there are parts 0 to {len(self) - 1}, got {number}.")
        return number * self.part_rows, min(self.rows, (number + 1) * self.part_rows)

    @property
    def finished(self) -> dict[str, Any] | None:
        """What is said of the whole, if all of it is there."""
        about = read_about(self.path)
        return about if about.get("done") else None

    @property
    def complete(self) -> bool:
        """Whether it is finished, and every part is still there."""
        return self.finished is not None and all(self.kept(number) is not None for number in range(len(self)))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else who would make the same meanwhile; where the disk knows no locks, work may be done twice."""
        place = self.path / ".lock"
        try:
            file = place.open("w")
        except OSError as error:
            raise InvalidInputError(f"cannot write into {self.path}: {error.strerror}.") from error
        with file:
            with suppress(ImportError):  # there is none on Windows
                import fcntl

                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise InvalidInputError(
                        f"another process is writing {self.path}: wait for it, or give another folder."
                    ) from None
                except OSError as error:
                    if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
                        raise
            try:
                yield
            finally:
                place.unlink(missing_ok=True)

    def remove(self) -> None:
        """Take the folder away."""
        remove_folder(self.path)

    def finish(self, about: Mapping[str, Any]) -> None:
        """Say that all parts are there, and what the whole is."""
        for leftover in self.path.glob(".*.tmp"):  # of processes that were killed
            leftover.unlink(missing_ok=True)
        self._write_about(about, done=True)

    def file(self, number: int) -> Path:
        """Where a part is."""
        return self.path / f"part-{number:06d}.parquet"

    def write(self, number: int, columns: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> None:
        """Write one part: columns of equal length, numpy's or Arrow's, or several of these to be joined."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({name: _arrow(column) for name, column in columns.items()})
        said = {"format": FORMAT, "kind": f"part of {self.kind}", "key": self.key, **(about or {})}
        table = table.replace_schema_metadata({KEY: json.dumps(said).encode()})
        try:
            with whole_file(self.file(number)) as temporary:
                pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
        except InvalidInputError:
            if self.kept(number) is None:  # else somebody who does the same was faster, and has tidied up
                raise

    def kept(self, number: int) -> dict[str, Any] | None:
        """What is said of a part that is there and was made from the same; None where there is none."""
        if not self.file(number).exists():
            return None
        try:
            said = json.loads((self._open(number).schema_arrow.metadata or {})[KEY])
        except (StorageError, KeyError, ValueError):
            return None  # a broken part is made again
        return said if said.get("key") == self.key else None

    def read(self, number: int, columns: Sequence[str] | None = None) -> Any:
        """One part, or some of its columns, as an Arrow table."""
        import pyarrow as pa

        start, stop = self.span(number)
        try:
            table = self._open(number).read(None if columns is None else list(columns))
        except (pa.ArrowException, OSError) as error:
            reason = "it is damaged: remove it, and make it again with the call that made it"
            raise StorageError(self.file(number), reason) from error
        if table.num_rows != stop - start:
            raise StorageError(self.file(number), f"it has {table.num_rows} rows, {stop - start} are expected")
        return table

    def numbers(self, number: int, columns: Sequence[str]) -> Any:
        """Columns of numbers of one part, side by side (rows, columns)."""
        table = self.read(number, columns)
        found = np.empty((table.num_rows, len(columns)))
        for place, name in enumerate(columns):
            try:
                found[:, place] = table.column(name).to_numpy()
            except (KeyError, TypeError, ValueError) as error:
                raise StorageError(self.file(number), f"it has no column {name!r} of numbers") from error
            if not np.isfinite(found[:, place]).all():
                raise StorageError(self.file(number), f"column {name!r} holds something that is no number")
        return found

    def _open(self, number: int) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(self.file(number), page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise StorageError(self.file(number), "it is not there, or it is cut off or damaged") from error

    def _write_about(self, about: Mapping[str, Any], *, done: bool) -> None:
        said = {"format": FORMAT, "kind": self.kind, "key": self.key, "rows": self.rows, "part_rows": self.part_rows}
        with whole_file(self.path / ABOUT) as temporary:
            temporary.write_text(json.dumps({**said, "done": done, **about}, indent=2, allow_nan=False), "utf-8")


class InParts:
    """What is kept in a folder of parts, one block of consecutive queries each."""

    parts: PartFolder

    def __len__(self) -> int:
        return self.parts.rows

    @property
    def path(self) -> Path:
        """The folder."""
        return self.parts.path

    @property
    def fingerprint(self) -> str:
        """What it was made from, in short."""
        return self.parts.key

    @property
    def n_blocks(self) -> int:
        """How many blocks of consecutive queries there are."""
        return len(self.parts)

    def rows(self, number: int) -> tuple[int, int]:
        """The number of a block's first query, and of the one after its last."""
        return self.parts.span(number)


def _arrow(column: Any) -> Any:
    import pyarrow as pa

    if isinstance(column, list | tuple):  # one after the other
        return pa.chunked_array(column)
    return pa.array(column) if isinstance(column, np.ndarray) else column


def named_column(positions: IntArray, names: Sequence[str]) -> Any:
    """A column of names, by their positions."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(positions.astype(np.int32), pa.array(names))


def positions_in(column: Any, names: Sequence[str]) -> IntArray | None:
    """The positions of a column's names; None where it holds another one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(column.cast(pa.string()), value_set=pa.array(names)).combine_chunks()
    return None if found.null_count else np.asarray(found, np.int64)


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
