"""Tables with metadata in Parquet files: a format number, JSON in the schema, never a pickle.

Any Parquet reader can use the tables as they are. Nouns stand above this module: they give their parts
(``parts()``) and are made again from them (``from_parts()``).
"""

from __future__ import annotations

import io
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from occamroute.errors import InvalidInputError, OccamError, StorageError

__all__ = [
    "ABOUT",
    "FORMAT",
    "KEY",
    "Parts",
    "Storable",
    "from_bytes",
    "is_folder",
    "load",
    "read",
    "read_about",
    "read_metadata",
    "require_file",
    "require_writable",
    "save",
    "to_bytes",
    "whole_file",
    "write",
]

FORMAT = 1
SUFFIX = ".parquet"
KEY = b"occamroute"
# What a folder of parts says of itself.
ABOUT = "about.json"

# Named, not imported: what is stored stands above this module.
READERS = {
    "profile": "occamroute.profiles:Profile",
    "plan": "occamroute.planning.plans:Plan",
    "frontier": "occamroute.planning.frontiers:Frontier",
    "run": "occamroute.execution.runs:Run",
    "report": "occamroute.evaluation.reports:Report",
}
# The same for what is kept as a folder of parts.
FOLDER_READERS = {
    "estimate": "occamroute.planning.stored_estimates:StoredEstimate",
    "plan": "occamroute.planning.stored_plans:StoredPlan",
    "run": "occamroute.execution.stored_runs:StoredRun",
}


@dataclass(frozen=True)
class Parts:
    """A noun taken apart: its kind, columns of equal length (n,) or (n, d), and metadata that JSON can hold."""

    kind: str
    columns: dict[str, npt.NDArray[Any]]
    metadata: dict[str, Any]


class Storable(Protocol):
    """Anything that gives its parts."""

    def parts(self) -> Parts:
        """The noun taken apart."""
        ...


def save(noun: Storable, path: str | os.PathLike[str]) -> None:
    """Write a profile, plan, frontier, run or report to a ``.parquet`` file; the file is whole or it is not there."""
    if not callable(getattr(noun, "parts", None)):
        known = "profiles, plans, frontiers, runs and reports"
        raise InvalidInputError(f"only {known} can be saved, got {type(noun).__name__}.")
    if Path(path).suffix.lower() != SUFFIX:
        raise InvalidInputError(f"cannot save to {os.fspath(path)}: the name must end in {SUFFIX}{_instead(path)}.")
    write(noun.parts(), path)


def _instead(path: str | os.PathLike[str]) -> str:
    """What writes a file of this ending, where something does."""
    ways = {
        ".html": "; for a page, save a .parquet file and run occamroute report on it",
        ".svg": "; for a chart, save a .parquet file and run occamroute report on it",
        ".csv": "; for CSV, use the --out option of occamroute plan, frontier, compare or classify",
    }
    return ways.get(Path(path).suffix.lower(), "")


def load(path: str | os.PathLike[str]) -> Any:
    """The profile, plan, frontier, run or report that ``save`` wrote; or what a folder of parts holds."""
    if is_folder(path):
        kind = read_about(path)["kind"]
        if kind not in FOLDER_READERS:
            raise StorageError(path, f"it holds a {kind!r}, which this version does not know")
        return _named(FOLDER_READERS[kind]).from_folder(path)
    return _made(read(path), path)


def read_about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a folder of parts says of itself."""
    place = Path(path) / ABOUT
    try:
        about = json.loads(place.read_text("utf-8"))
        number, kind = int(about["format"]), about["kind"]
    except FileNotFoundError as error:
        raise StorageError(path, "it is a folder, but not one that occamroute wrote") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(place, "it is damaged") from error
    if number != FORMAT:
        raise StorageError(path, f"it has format {number}, this version reads format {FORMAT}")
    if not isinstance(kind, str):
        raise StorageError(place, "it is damaged")
    return dict(about)


def to_bytes(noun: Storable) -> bytes:
    """What ``save`` would write."""
    content = io.BytesIO()
    _write_table(noun.parts(), content)
    return content.getvalue()


def from_bytes(content: bytes, name: str) -> Any:
    """The noun in such bytes; ``name`` is what they are called in an error."""
    return _made(_read_table(io.BytesIO(content), name), name)


def _made(parts: Parts, path: str | os.PathLike[str]) -> Any:
    if not isinstance(parts.kind, str) or parts.kind not in READERS:
        raise StorageError(path, f"it holds a {parts.kind!r}, which this version does not know")
    try:
        return _named(READERS[parts.kind]).from_parts(parts)
    except OccamError as error:
        raise StorageError(path, f"part of the {parts.kind} is broken: {str(error).rstrip('.')}") from error
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise StorageError(path, f"part of the {parts.kind} is missing or broken ({error})") from error


def _named(reader: str) -> Any:
    module, _, name = reader.partition(":")
    return getattr(import_module(module), name)


def write(parts: Parts, path: str | os.PathLike[str]) -> None:
    """Write one table with its metadata."""
    with whole_file(path) as temporary:
        _write_table(parts, temporary)


def _write_table(parts: Parts, target: Path | io.BytesIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: _to_arrow(column) for name, column in parts.columns.items()}
    about = {"format": FORMAT, "kind": parts.kind, **parts.metadata}
    table = pa.table(columns).replace_schema_metadata({KEY: json.dumps(about).encode()})
    pq.write_table(table, target, compression="zstd", write_page_checksum=True)


def read(path: str | os.PathLike[str]) -> Parts:
    """The table and metadata that ``write`` wrote."""
    require_file(path)
    return _read_table(Path(path), path)


def _read_table(source: Path | io.BytesIO, path: str | os.PathLike[str]) -> Parts:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(source, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError) as error:
        reason = "it is no Parquet file, or it is cut off or damaged"
        raise StorageError(path, reason) from error
    about = _metadata(path, table.schema.metadata or {})
    try:
        columns = {name: _from_arrow(table.column(name)) for name in table.column_names}
    except (ValueError, pa.ArrowException) as error:
        raise StorageError(path, f"its table is damaged ({error})") from error
    return Parts(about.pop("kind"), columns, about)


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What ``write`` said of a table, its kind among it; the table itself is not read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    require_file(path)
    try:
        schema = pq.read_schema(Path(path))
    except (pa.ArrowException, OSError) as error:
        raise StorageError(path, "it is no Parquet file, or it is cut off or damaged") from error
    return _metadata(path, schema.metadata or {})


def is_folder(path: Any) -> bool:
    """Whether it names a folder that is there."""
    try:
        return isinstance(path, str | os.PathLike) and Path(path).is_dir()
    except (OSError, ValueError):  # a name that nothing can have
        return False


def require_file(path: str | os.PathLike[str]) -> None:
    """Raise unless there is a file of that name."""
    try:
        found = Path(path).is_file()
    except (OSError, ValueError):  # a name that no file can have
        found = False
    if not found:
        raise StorageError(path, "there is no such file")


@contextmanager
def whole_file(path: str | os.PathLike[str], *, mode: int = 0o666) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when all went well, and is removed otherwise.

    ``mode`` holds the permissions of the new file; the kernel takes away what the process's umask forbids.
    """
    target = Path(path)
    temporary = _temporary(target, mode)
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(target)
    except OSError as error:  # a disk that is full, a folder that is gone
        reason = os.strerror(error.errno) if error.errno else error
        raise InvalidInputError(f"cannot write {target}: {reason}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise unless a file could be written there: to be asked before the work, not after it."""
    _temporary(Path(path), 0o600).unlink(missing_ok=True)


def _temporary(target: Path, mode: int) -> Path:
    """An empty file beside the one that is to be written."""
    if not target.parent.is_dir():
        raise InvalidInputError(f"cannot write {target}: the folder {target.parent} does not exist.")
    try:
        if target.is_dir():
            raise InvalidInputError(f"cannot write {target}: it is a folder.")
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
        # Opened with its final mode: the umask belongs to the whole process and must not be changed to read it.
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    except OSError as error:
        raise InvalidInputError(f"cannot write {target}: {error.strerror}.") from error
    return temporary


def _flush(path: Path) -> None:
    """Have the content on the disk before the name points to it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _metadata(path: str | os.PathLike[str], raw: dict[bytes, bytes]) -> dict[str, Any]:
    if KEY not in raw:
        raise StorageError(path, "it is a Parquet file, but not one that occamroute wrote")
    try:
        about = json.loads(raw[KEY])
        number = int(about.pop("format"))
        about["kind"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(path, "its metadata are damaged") from error
    if number != FORMAT:
        raise StorageError(path, f"it has format {number}, this version reads format {FORMAT}")
    return dict(about)


def _to_arrow(column: npt.NDArray[Any]) -> Any:
    import pyarrow as pa

    if column.ndim == 1:
        return pa.array(column.tolist() if column.dtype.kind == "U" else column)
    flat = pa.array(np.ascontiguousarray(column).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, column.shape[1])


def _from_arrow(column: Any) -> npt.NDArray[Any]:
    import pyarrow as pa

    column = column.combine_chunks()
    if column.null_count:
        raise ValueError("a column holds nulls")
    if pa.types.is_fixed_size_list(column.type):
        return np.asarray(column.flatten()).reshape(len(column), column.type.list_size)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.array(column.to_pylist(), dtype=np.str_)
    return np.asarray(column)
