"""Queries read from the files that people have: tables, lines of JSON, arrays, folders of images."""

from __future__ import annotations

import csv
import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from occamroute.errors import InvalidInputError, StorageError
from occamroute.storage import require_file

__all__ = ["QueryFile", "read_data"]

QUERY = ("text", "query", "image", "path", "sentence", "content", "input")
LABEL = ("label", "class", "target", "y")
ID = ("id",)
GROUP = ("group",)
IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"}
PATHS = ("image", "path")


@dataclass(frozen=True, eq=False)
class QueryFile:
    """Queries, and what the file says of them: labels, ids and groups, each None where it says nothing."""

    queries: Any
    labels: list[str] | None = None
    ids: list[str] | None = None
    groups: list[str] | None = None

    def __len__(self) -> int:
        return len(self.queries)


def read_data(
    path: str | os.PathLike[str], *, query: str | None = None, label: str | None = None, need_labels: bool = False
) -> QueryFile:
    """The queries in a file or folder.

    Files are ``.csv``, ``.tsv``, ``.jsonl`` (each also with ``.gz``), ``.parquet``, ``.npz`` or ``.npy``.

    ``query`` and ``label`` name columns; by default ``text``, ``query``, ``image`` or ``path``, else the only other
    column, else all others, which must then be numbers; and ``label``, ``class`` or ``target``. ``id`` and ``group``
    columns are known by these names. A folder holds images, in subfolders named for their class.
    """
    place = Path(path)
    found = _folder(place) if place.is_dir() else _file(place, query, label)
    if not len(found):
        raise StorageError(path, "it holds no queries")
    if need_labels and found.labels is None:
        raise StorageError(path, f"it has no labels: a column {LABEL[0]!r} is needed, or --label with its name")
    return found


def _file(place: Path, query: str | None, label: str | None) -> QueryFile:
    suffixes = [suffix.lower() for suffix in place.suffixes]
    kind = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else (suffixes or [""])[-1]
    readers = {".csv": _csv, ".tsv": _tsv, ".jsonl": _jsonl, ".parquet": _parquet}
    require_file(place)
    if kind in (".npz", ".npy"):
        return _arrays(place, query, label)
    if kind not in readers:
        raise StorageError(place, f"its name must end in {', '.join(readers)}, .npz or .npy, or it must be a folder")
    try:
        columns = readers[kind](place)
    except UnicodeDecodeError:
        raise StorageError(place, "it is no text in UTF-8") from None
    except (OSError, EOFError, csv.Error) as error:
        raise StorageError(place, f"it is damaged or cannot be opened ({error})") from None
    return _from_columns(place, columns, query, label)


def _from_columns(place: Path, columns: dict[str, list[Any]], query: str | None, label: str | None) -> QueryFile:
    wanted_label = _named(place, columns, label, LABEL)
    rest = {
        name: column for name, column in columns.items() if name not in (wanted_label, *ID, *GROUP) or name == query
    }
    wanted_query = _named(place, rest, query, QUERY)
    if wanted_query is None and len(rest) == 1:
        wanted_query = next(iter(rest))
    queries = _queries(place, wanted_query, rest[wanted_query]) if wanted_query is not None else _numbers(place, rest)
    labels = None if wanted_label is None else columns[wanted_label]
    if labels is not None and any(one is None or one == "" for one in labels):
        row = next(row for row, one in enumerate(labels) if one is None or one == "")
        raise StorageError(place, f"row {row + 1} has no {wanted_label}")
    return QueryFile(
        queries,
        labels=None if labels is None else list(map(str, labels)),
        ids=list(map(str, columns["id"])) if "id" in columns else None,
        groups=list(map(str, columns["group"])) if "group" in columns else None,
    )


def _named(place: Path, columns: dict[str, Any], asked: str | None, usual: tuple[str, ...]) -> str | None:
    if asked is not None:
        if asked not in columns:
            raise StorageError(place, f"it has no column {asked!r}, only {', '.join(columns) or 'none'}")
        return asked
    return next((name for name in usual if name in columns), None)


def _queries(place: Path, name: str, column: list[Any]) -> Any:
    """Texts; paths of images, from the file's folder on; or arrays where the column holds lists of numbers."""
    if isinstance(column[0], list | np.ndarray):
        return _array(place, name, column)
    for row, query in enumerate(column):
        if not isinstance(query, str):
            raise StorageError(place, f"row {row + 1} of column {name!r} holds {query!r}, which is no text")
    return [str(place.parent / query) for query in column] if name in PATHS else column


def _array(place: Path, name: str, column: list[Any]) -> Any:
    try:
        return np.array([np.asarray(row, np.float64) for row in column])
    except (TypeError, ValueError):
        raise StorageError(place, f"column {name!r} must hold lists of numbers of one length") from None


def _numbers(place: Path, columns: dict[str, list[Any]]) -> Any:
    try:
        table = np.array(list(columns.values()), np.float64).T
    except (TypeError, ValueError):
        names = ", ".join(columns)
        raise StorageError(place, f"name the column with the queries as --query: one of {names}") from None
    if not table.size or not np.isfinite(table).all():
        raise StorageError(place, "its columns hold no numbers, or some that are NaN or infinite")
    return table


def _csv(place: Path, delimiter: str = ",", quoting: Literal[0, 3] = csv.QUOTE_MINIMAL) -> dict[str, list[Any]]:
    csv.field_size_limit(1 << 30)
    with _opened(place) as file:
        reader = csv.reader(file, delimiter=delimiter, quoting=quoting)
        header = next(reader, [])
        rows = []
        for row in reader:
            if row and len(row) != len(header):
                raise StorageError(place, f"line {reader.line_num} has {len(row)} fields, the header has {len(header)}")
            if row:
                rows.append(row)
    if len(set(header)) != len(header):
        raise StorageError(place, "two columns of its header have the same name")
    return {name: [row[column] for row in rows] for column, name in enumerate(header)} if rows else {}


def _tsv(place: Path) -> dict[str, list[Any]]:
    return _csv(place, "\t", csv.QUOTE_NONE)  # quotation marks are text there


def _jsonl(place: Path) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    with _opened(place) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError:
                raise StorageError(place, f"line {number} is no JSON") from None
            if not isinstance(row, dict) or (columns and set(row) != set(columns)):
                raise StorageError(place, f"line {number} must be an object with the keys of the first")
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
    return columns


def _opened(place: Path) -> Any:
    # Spreadsheets put a byte-order mark in front, which is not part of the first name.
    if place.suffix.lower() == ".gz":
        return gzip.open(place, "rt", encoding="utf-8-sig", newline="")
    return place.open(newline="", encoding="utf-8-sig")


def _parquet(place: Path) -> dict[str, list[Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(place).read()
    except (pa.ArrowException, OSError):
        raise StorageError(place, "it is no Parquet file, or it is cut off or damaged") from None
    return dict(table.to_pydict()) if table.num_rows else {}


def _arrays(place: Path, query: str | None, label: str | None) -> QueryFile:
    """``X`` and ``y`` of an ``.npz`` file (or the arrays named), or the only array of an ``.npy`` file."""
    try:
        loaded = np.load(place, allow_pickle=False)
        arrays = {name: loaded[name] for name in loaded.files} if hasattr(loaded, "files") else {"X": loaded}
    except (ValueError, EOFError, OSError):
        raise StorageError(place, "it is no plain array, or it is cut off") from None
    wanted = _named(place, arrays, query, ("X", *QUERY))
    if wanted is None:
        raise StorageError(place, f"it needs an array X with the queries, it has {', '.join(arrays)}")
    truth = _named(place, arrays, label, LABEL)
    if truth is not None and len(arrays[truth]) != len(arrays[wanted]):
        raise StorageError(place, f"{truth} has {len(arrays[truth])} rows, {wanted} has {len(arrays[wanted])}")
    optional = {name: [str(one) for one in arrays[name]] for name in ("id", "group") if name in arrays}
    labels = None if truth is None else [str(one) for one in arrays[truth].tolist()]
    return QueryFile(arrays[wanted], labels, optional.get("id"), optional.get("group"))


def _folder(place: Path) -> QueryFile:
    """Images by their paths; those in subfolders are of the class that the first subfolder is named for."""
    files = sorted(file for file in place.rglob("*") if file.suffix.lower() in IMAGES and file.is_file())
    names = [file.relative_to(place) for file in files]
    labels = [name.parts[0] for name in names if len(name.parts) > 1]
    if labels and len(labels) < len(names):
        raise InvalidInputError(
            f"cannot read {place}: some images are in subfolders named for a class and some are not."
        )
    return QueryFile([str(file) for file in files], labels or None, [name.as_posix() for name in names])
