"""Queries read from the files that people have: tables, lines of JSON, arrays, folders of images."""

from __future__ import annotations

import csv
import gzip
import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np

from occamroute._csv_text import to_text
from occamroute.errors import StorageError
from occamroute.storage import require_file

__all__ = ["QueryFile", "label_column", "queries_in", "query_columns", "read_data"]

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
    if place.is_dir():
        if query is not None or label is not None:
            raise StorageError(path, "it is a folder, and only tables have columns to name as --query or --label")
        return _folder(place, need_labels=need_labels)
    found = _file(place, query, label)
    if need_labels and found.labels is None:
        raise StorageError(path, f"it has no labels: a column {LABEL[0]!r} is needed, or --label with its name")
    return found


def _file(place: Path, query: str | None, label: str | None) -> QueryFile:
    suffixes = [suffix.lower() for suffix in place.suffixes]
    packed = suffixes[-1:] == [".gz"]
    kind = (["", *suffixes])[-2 if packed else -1]
    readers = {".csv": _csv, ".tsv": _tsv, ".jsonl": _jsonl, ".parquet": _parquet}
    require_file(place)
    if kind in (".npz", ".npy") and not packed:
        return _arrays(place, query, label)
    if kind not in readers or (packed and kind == ".parquet"):
        raise StorageError(
            place,
            "its name must end in .csv, .tsv or .jsonl (or .gz after that), .parquet, .npz or .npy, or it must be a "
            "folder",
        )
    try:
        columns = readers[kind](place)
    except UnicodeDecodeError:
        raise StorageError(place, "it is no text in UTF-8") from None
    except csv.Error as error:
        raise StorageError(place, f"its quotation marks do not match ({error})") from None
    except (OSError, EOFError, zlib.error) as error:
        raise StorageError(place, f"it is damaged or cannot be opened ({error})") from None
    return _from_columns(place, columns, query, label, quoted=kind == ".csv")


def _from_columns(
    place: Path, columns: dict[str, list[Any]], query: str | None, label: str | None, *, quoted: bool
) -> QueryFile:
    """The queries in columns; ``quoted`` where names that look like formulas have a single quote before them."""
    if not any(columns.values()):
        raise StorageError(place, "it holds no queries")
    wanted_label = _named(place, columns, label, LABEL)
    wanted_query = _named(place, columns, query, ())
    rest = {name: column for name, column in columns.items() if name not in (wanted_label, *ID, *GROUP)}
    if wanted_query is None:
        wanted_query = next((name for name in QUERY if name in rest), next(iter(rest)) if len(rest) == 1 else None)
    if wanted_query is None and not rest:
        raise StorageError(place, f"it has no column with queries, only {', '.join(columns)}")
    words = {
        name: _words(place, name, list(map(to_text, columns[name])) if quoted else columns[name])
        for name in (wanted_label, *ID, *GROUP)
        if name is not None and name in columns
    }
    return QueryFile(
        _numbers(place, rest) if wanted_query is None else _queries(place, wanted_query, columns[wanted_query]),
        labels=None if wanted_label is None else words[wanted_label],
        ids=words.get("id"),
        groups=words.get("group"),
    )


def query_columns(names: Iterable[str], query: str | None, place: Path) -> list[str]:
    """Which columns of a table hold the queries: one, or all numbers."""
    columns = dict.fromkeys(names)
    wanted = _named(place, columns, query, QUERY)
    if wanted is not None:
        return [wanted]
    beside = {_named(place, columns, None, LABEL), *ID, *GROUP}
    rest = [name for name in columns if name not in beside]
    if not rest:
        raise StorageError(place, f"it has no column with queries, only {', '.join(columns)}")
    return rest


def label_column(names: Iterable[str], label: str | None, place: Path) -> str | None:
    """Which column of a table holds the labels, if any does."""
    return _named(place, dict.fromkeys(names), label, LABEL)


def queries_in(columns: dict[str, list[Any]], place: Path) -> Any:
    """The queries in the columns that ``query_columns`` chose."""
    if len(columns) == 1:
        ((name, column),) = columns.items()
        return _queries(place, name, column)
    return _numbers(place, columns)


def _words(place: Path, name: str, column: list[Any]) -> list[str]:
    """Labels, ids or groups as text; each row must have one."""
    for row, one in enumerate(column, start=1):
        if one is None or one == "" or one != one:  # NaN is what tables have where nothing is
            raise StorageError(place, f"row {row} has no {name}")
        if not isinstance(one, str | int | float):
            raise StorageError(place, f"row {row} of column {name!r} must hold a name, got {shortened(one)}")
    return list(map(str, column))


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
    if isinstance(column[0], int | float):
        return _numbers(place, {name: column})
    for row, query in enumerate(column, start=1):
        if not isinstance(query, str):
            raise StorageError(place, f"row {row} of column {name!r} holds {shortened(query)}, which is no text")
    return [str(place.parent / query) for query in column] if name in PATHS else column


def _array(place: Path, name: str, column: list[Any]) -> Any:
    try:
        table = np.array([np.asarray(row, np.float64) for row in column])
    except (TypeError, ValueError):
        table = np.empty(0)
    if table.ndim < 2 or not table.size:
        raise StorageError(place, f"column {name!r} must hold lists of numbers of one length")
    return table


def _numbers(place: Path, columns: dict[str, list[Any]]) -> Any:
    try:
        table = np.array(list(columns.values()), np.float64).T
    except (TypeError, ValueError):
        names = ", ".join(columns)
        raise StorageError(place, f"name the column with the queries as --query: one of {names}") from None
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0].tolist()
        raise StorageError(place, f"row {row + 1} of column {list(columns)[column]!r} holds no finite number")
    return table


def _csv(place: Path, delimiter: str = ",", quoting: Literal[0, 3] = csv.QUOTE_MINIMAL) -> dict[str, list[Any]]:
    csv.field_size_limit(1 << 30)
    with _opened(place) as file:
        # Strict, so that a quotation mark without its partner does not swallow the rest of the file.
        reader = csv.reader(file, delimiter=delimiter, quoting=quoting, strict=True)
        header = [name.strip() for name in next(reader, [])]
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
            except (ValueError, RecursionError):
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
        table = pq.ParquetFile(place, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError):
        raise StorageError(place, "it is no Parquet file, or it is cut off or damaged") from None
    if len(set(table.column_names)) != len(table.column_names):
        raise StorageError(place, "two of its columns have the same name")
    return dict(table.to_pydict()) if table.num_rows else {}


def _arrays(place: Path, query: str | None, label: str | None) -> QueryFile:
    """``X`` and ``y`` of an ``.npz`` file (or the arrays named), or the only array of an ``.npy`` file."""
    try:
        with place.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {name: loaded[name] for name in loaded.files} if hasattr(loaded, "files") else {"X": loaded}
    except (ValueError, EOFError, OSError, KeyError, BadZipFile, zlib.error):
        raise StorageError(place, "it is no plain array, or it is cut off") from None
    wanted = _named(place, arrays, query, ("X", *QUERY))
    if wanted is None:
        raise StorageError(place, f"it needs an array X with the queries, it has {', '.join(arrays)}")
    queries = arrays[wanted]
    if queries.ndim == 0 or not len(queries):
        raise StorageError(place, "it holds no queries")
    truth = _named(place, arrays, label, LABEL)
    beside = {name: arrays[name] for name in (truth, *ID, *GROUP) if name is not None and name in arrays}
    for name, column in beside.items():
        if column.shape != (len(queries),):
            raise StorageError(place, f"{name} must be of shape ({len(queries)},), one a query, got {column.shape}")
    words = {name: _words(place, name, column.tolist()) for name, column in beside.items()}
    return QueryFile(
        queries.tolist() if queries.dtype.kind == "U" else queries,
        None if truth is None else words[truth],
        words.get("id"),
        words.get("group"),
    )


def _folder(place: Path, *, need_labels: bool) -> QueryFile:
    """Images by their paths; those in subfolders are of the class that the first subfolder is named for."""
    files = sorted(file for file in place.rglob("*") if file.suffix.lower() in IMAGES and file.is_file())
    names = [file.relative_to(place) for file in files]
    # Systems keep things of their own beside the images, hidden and with the same endings.
    names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    labels = [name.parts[0] for name in names if len(name.parts) > 1]
    if not names:
        raise StorageError(place, "it holds no images")
    if labels and len(labels) < len(names):
        raise StorageError(place, "some images are in subfolders named for a class and some are not")
    if need_labels and not labels:
        raise StorageError(place, "its images have no labels: put them into subfolders named for their class")
    return QueryFile([str(place / name) for name in names], labels or None, [name.as_posix() for name in names])
