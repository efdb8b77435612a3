"""Features read from the files that people have, and assignments written for them."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, feature_matrix
from occamroute._csv_text import to_cell, to_text
from occamroute.errors import StorageError
from occamroute.storage import require_file, whole_file

__all__ = [
    "QueryTable",
    "csv_into",
    "feature_columns",
    "features_in",
    "ids_in",
    "queries_in",
    "read_queries",
    "write_csv",
]

PREFIX = "features:"


@dataclass(frozen=True)
class QueryTable:
    """Queries to plan for: their features, by extractor where the file says so, and their ids if it has any."""

    features: FloatArray | dict[str, FloatArray]
    ids: tuple[str, ...] | None


def read_queries(path: str | os.PathLike[str]) -> QueryTable:
    """The queries in a ``.parquet``, ``.csv`` or ``.npy`` file.

    A column ``id`` names the rows. Features are list columns called ``features`` or ``features:EXTRACTOR`` (so a
    saved profile will do), else all other columns, which must then be numbers.
    """
    suffix = Path(path).suffix.lower()
    readers = {".parquet": _read_parquet, ".csv": _read_csv, ".npy": _read_npy}
    if suffix not in readers:
        raise StorageError(path, f"its name must end in {', '.join(readers)}")
    require_file(path)
    return readers[suffix](Path(path))


def write_csv(columns: dict[str, npt.NDArray[Any]], path: str | os.PathLike[str]) -> None:
    """Write columns of equal length as CSV; the file is whole or it is not there."""
    with whole_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv_into(file, columns)


def csv_into(file: TextIO, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write columns of equal length as CSV; a single quote goes before text that a spreadsheet would run."""
    writer = csv.writer(file)
    writer.writerow(map(to_cell, columns))
    writer.writerows(zip(*(map(to_cell, column.tolist()) for column in columns.values()), strict=True))


def _read_npy(path: Path) -> QueryTable:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise StorageError(path, "it is no plain .npy array, or it is cut off") from error
    return QueryTable(feature_matrix(array, f"features in {path}"), None)


def _read_parquet(path: Path) -> QueryTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError) as error:
        raise StorageError(path, "it is no Parquet file, or it is cut off or damaged") from error
    if len(set(table.column_names)) != len(table.column_names):
        raise StorageError(path, "two of its columns have the same name")
    return queries_in(table, path)


def feature_columns(names: Sequence[str]) -> dict[str, list[str]]:
    """Which columns of a table hold features, by the name of their set: list columns, or all numbers but the id."""
    lists = [name for name in names if name == "features" or name.startswith(PREFIX)]
    if lists:
        return {name.removeprefix(PREFIX): [name] for name in lists}
    return {"features": [name for name in names if name != "id"]}


def queries_in(table: Any, path: str | os.PathLike[str]) -> QueryTable:
    """The queries in an Arrow table; ``path`` is what it is called in an error."""
    ids = None
    if "id" in table.column_names:
        if table.column("id").null_count:
            raise StorageError(path, "column 'id' holds nulls")
        ids = tuple(map(str, table.column("id").to_pylist()))
    sets = {name: features_in(table, columns, path) for name, columns in feature_columns(table.column_names).items()}
    return QueryTable(sets["features"] if list(sets) == ["features"] else sets, ids)


def ids_in(table: Any, first: int, path: str | os.PathLike[str]) -> Any:
    """The ids in an Arrow table as text, or the numbers of its rows from ``first`` on, as an Arrow array."""
    import pyarrow as pa

    if "id" not in table.column_names:
        return pa.array(np.arange(first, first + table.num_rows)).cast(pa.string())
    ids = table.column("id").combine_chunks()
    if ids.null_count:
        raise StorageError(path, "column 'id' holds nulls")
    kind = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ids.cast(pa.string())
    return pa.array(map(str, ids.to_pylist()), pa.string())  # as in a file that is read at once


def features_in(table: Any, columns: list[str], path: str | os.PathLike[str]) -> FloatArray:
    """The features that are in these columns of an Arrow table."""
    if len(columns) == 1 and (columns[0] == "features" or columns[0].startswith(PREFIX)):
        return _list_column(path, table, columns[0])
    return _stacked(path, [_numbers(path, name, table.column(name).to_numpy()) for name in columns])


def _list_column(path: str | os.PathLike[str], table: Any, name: str) -> FloatArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = table.column(name).combine_chunks()
    try:
        lengths = pc.list_value_length(rows).unique()
        if rows.null_count or len(lengths) != 1:
            raise StorageError(path, f"column {name!r} must hold one list of numbers of equal length a row")
        flat = np.asarray(rows.flatten())
    except pa.ArrowException as error:
        raise StorageError(path, f"column {name!r} must hold one list of numbers of equal length a row") from error
    return feature_matrix(flat.reshape(len(rows), -1), f"column {name!r} in {path}")


def _read_csv(path: Path) -> QueryTable:
    try:
        # Spreadsheets put a byte-order mark in front, which is not part of the first name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            numbered = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise StorageError(path, "it is no CSV text") from error
    if len(set(header)) != len(header):
        raise StorageError(path, "two columns of its header have the same name")
    if header and all(map(_is_number, header)):
        raise StorageError(path, "its first line must name the columns, but holds numbers alone")
    for number, row in numbered:
        if len(row) != len(header):
            raise StorageError(path, f"line {number} has {len(row)} fields, the header has {len(header)}")
    rows = [row for _, row in numbered]
    columns = dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else {}
    ids = columns.pop("id", None)
    ids = None if ids is None else tuple(map(to_text, ids))
    return QueryTable(_stacked(path, [_numbers(path, name, column) for name, column in columns.items()]), ids)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(path: str | os.PathLike[str], name: str, column: Any) -> npt.NDArray[np.float64]:
    try:
        return np.asarray(column, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise StorageError(path, f"column {name!r} holds something that is not a number") from error


def _stacked(path: str | os.PathLike[str], columns: list[npt.NDArray[np.float64]]) -> FloatArray:
    if not columns or not columns[0].size:
        raise StorageError(path, "it holds no features")
    return feature_matrix(np.column_stack(columns), f"features in {path}")
