"""Queries from the files that people have, and one sentence for each file that is not what it must be."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

import occamroute as oc
from occamroute.data_files import QueryFile, read_data

TEXTS, LABELS, IDS, GROUPS = ["hi, there", 'say "no"'], ["en", "2"], ["p", "q"], ["g", "g"]


def as_csv(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "group", "text", "label"])
        writer.writerows(zip(IDS, GROUPS, TEXTS, LABELS, strict=True))


def as_tsv(path: Path) -> None:
    rows = ["id\tgroup\ttext\tlabel", *map("\t".join, zip(IDS, GROUPS, TEXTS, LABELS, strict=True))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def as_jsonl(path: Path) -> None:
    rows = zip(IDS, GROUPS, TEXTS, ["en", 2], strict=True)  # labels may be numbers there
    lines = [json.dumps({"id": a, "group": b, "text": c, "label": d}) for a, b, c, d in rows]
    path.write_text("\n\n".join(lines), encoding="utf-8")


def as_parquet(path: Path) -> None:
    pq.write_table(pa.table({"id": IDS, "group": GROUPS, "text": TEXTS, "label": LABELS}), path)


def as_npz(path: Path) -> None:
    np.savez(path, X=np.array(TEXTS), y=np.array(LABELS), id=IDS, group=GROUPS)


WRITERS: dict[str, Callable[[Path], None]] = {
    "q.csv": as_csv, "q.tsv": as_tsv, "q.jsonl": as_jsonl, "q.parquet": as_parquet, "q.npz": as_npz,
}  # fmt: skip


@pytest.mark.parametrize("name", [*WRITERS, "q.csv.gz", "q.tsv.gz", "q.jsonl.gz", "Q.CSV"])
def test_every_format_says_the_same(name: str, tmp_path: Path) -> None:
    """Texts with commas and quotation marks, labels, ids and groups come out of each as they went in."""
    plain = name.lower().removesuffix(".gz")
    path = tmp_path / name
    WRITERS[plain](tmp_path / plain if name.endswith(".gz") else path)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress((tmp_path / plain).read_bytes()))
    found = read_data(path, need_labels=True)
    assert found.queries == TEXTS
    assert (found.labels, found.ids, found.groups) == (LABELS, IDS, GROUPS)
    assert len(found) == 2


def read(folder: Path, name: str, content: Any, **wishes: Any) -> QueryFile:
    """What is read from a file with this content: bytes, text, a table for Parquet, or arrays."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes | str):
        raw = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    elif isinstance(content, pa.Table):
        pq.write_table(content, path)
    elif isinstance(content, dict):
        np.savez(path, **content)
    elif content is not None:
        np.save(path, content, allow_pickle=True)
    return read_data(path, **wishes)


@pytest.mark.parametrize(
    ("name", "content", "wishes", "queries", "labels"),
    [
        ("q.csv", "\ufefftext,label\nhi,a\n", {}, ["hi"], ["a"]),
        ("q.csv", "text , label\nhi,a\n\n", {}, ["hi"], ["a"]),
        ("q.csv", 'text,label\r\n"two\r\nlines",a\r\n', {}, ["two\r\nlines"], ["a"]),
        ("q.csv", "a,b\nhi,x\n", {"query": "a", "label": "b"}, ["hi"], ["x"]),
        ("q.csv", "class,words\nx,hi\n", {}, ["hi"], ["x"]),
        ("q.csv", "kind,language,text\nword,en,hi\n", {"label": "language"}, ["hi"], ["en"]),
        ("q.csv", "text\n\nhi\n", {}, ["hi"], None),
        ("q.csv", "label,text\na,b\n", {"query": "label", "label": "text"}, ["a"], ["b"]),
        ("q.tsv", 'text\tlabel\n"\ta\n', {}, ['"'], ["a"]),
        ("q.jsonl", '{"text": "ü", "label": false}\n', {}, ["ü"], ["False"]),
        ("q.parquet", pa.table({"sentence": ["hi"], "target": [7]}), {}, ["hi"], ["7"]),
    ],
)
def test_columns_are_found_or_named(
    name: str, content: Any, wishes: dict[str, str], queries: list[str], labels: list[str] | None, tmp_path: Path
) -> None:
    """By their usual names, as the only one that is left, or as asked; a byte-order mark is no part of a name."""
    found = read(tmp_path, name, content, **wishes)
    assert (found.queries, found.labels) == (queries, labels)


@pytest.mark.parametrize(
    ("name", "content", "wishes", "expected"),
    [
        ("q.csv", "id,a,b,label\nr,1,2.5,x\ns,-3e2,4,y\n", {}, [[1, 2.5], [-300, 4]]),
        ("q.csv", "a,b,y\n1,2,0\n3,4,1\n", {}, [[1, 2], [3, 4]]),
        ("q.jsonl", '{"X": [1, 2], "label": "a"}\n{"X": [3, 4], "label": "b"}\n', {}, [[1, 2], [3, 4]]),
        ("q.parquet", pa.table({"v": [[1.0, 2.0], [3.0, 4.0]], "label": ["a", "b"]}), {}, [[1, 2], [3, 4]]),
        ("q.parquet", pa.table({"v": [[[1], [2]], [[3], [4]]]}), {}, [[[1], [2]], [[3], [4]]]),
        ("q.parquet", pa.table({"a": [1, 2], "b": [0.5, 1.5], "label": ["a", "b"]}), {}, [[1, 0.5], [2, 1.5]]),
        ("q.parquet", pa.table({"a": [1, 2], "label": ["a", "b"]}), {}, [[1], [2]]),
        ("q.npy", np.array([[1, 2], [3, 4]], np.float32), {}, [[1, 2], [3, 4]]),
        ("q.npz", {"X": np.arange(4).reshape(2, 2)}, {}, [[0, 1], [2, 3]]),
        ("q.npz", {"pixels": np.eye(2), "kind": np.array([1, 0])}, {"query": "pixels", "label": "kind"}, np.eye(2)),
    ],
)
def test_numbers_become_arrays(name: str, content: Any, wishes: dict[str, str], expected: Any, tmp_path: Path) -> None:
    """Columns of numbers, of lists of numbers, and arrays of any shape."""
    found = read(tmp_path, name, content, **wishes)
    assert isinstance(found.queries, np.ndarray)
    np.testing.assert_array_equal(found.queries, expected)


def test_arrays_keep_their_type(tmp_path: Path) -> None:
    """Images of bytes are not blown up, and whole numbers as labels are text like all labels."""
    images = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    found = read(tmp_path, "q.npz", {"X": images, "y": np.array([1, 0])})
    assert found.queries.dtype == np.uint8
    assert found.labels == ["1", "0"]


def test_paths_of_images_are_the_files_own(tmp_path: Path) -> None:
    """A table of paths is read from its folder; paths from the root stay what they are."""
    found = read(tmp_path, "sub/q.csv", "image,label\na.png,x\n/b.png,y\n")
    assert found.queries == [str(tmp_path / "sub" / "a.png"), "/b.png"]


def test_a_folder_of_images(tmp_path: Path) -> None:
    """Classes are subfolders, whatever is below them; what is no image, or hidden, is not looked at."""
    names = ("cat/1.png", "cat/more/2.JPG", "dog/3.webp", "dog/notes.txt", "dog/._3.webp", ".cache/4.png")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = read_data(tmp_path, need_labels=True)
    assert found.queries == [str(tmp_path / name) for name in names[:3]]
    assert found.labels == ["cat", "cat", "dog"]
    assert found.ids == list(names[:3])
    assert read_data(tmp_path / "cat" / "more").labels is None


def objects() -> Any:
    return np.array([{"a": 1}], dtype=object)


@pytest.mark.parametrize(
    ("name", "content", "wishes", "sentence"),
    [
        ("none.csv", None, {}, "there is no such file"),
        ("q.txt", "text\nhi\n", {}, "its name must end in .csv"),
        ("q", "text\nhi\n", {}, "its name must end in .csv"),
        ("q.gz", "text\nhi\n", {}, "its name must end in .csv"),
        ("q.npy.gz", "hello", {}, "its name must end in .csv"),
        ("q.parquet.gz", "hello", {}, "its name must end in .csv"),
        ("q.csv", "", {}, "it holds no queries"),
        ("q.csv", "text,label\n", {}, "it holds no queries"),
        ("q.csv", "label\na\n", {}, "it has no column with queries, only label"),
        ("q.csv", "text,label\nhi,a\n", {"query": "words"}, "it has no column 'words', only text, label"),
        ("q.csv", "text,label\nhi,a\n", {"label": "lang"}, "it has no column 'lang', only text, label"),
        ("q.csv", "text\nhi\n", {"need_labels": True}, "it has no labels: a column 'label' is needed, or --label"),
        ("q.csv", "text,label\nhi,a\nho,\n", {}, "row 2 has no label"),
        ("q.csv", "text,label\nhi,a\nho\n", {}, "line 3 has 1 fields, the header has 2"),
        ("q.csv", "text,label\nhi,a,b\n", {}, "line 2 has 3 fields, the header has 2"),
        ("q.csv", 'label,text\na,"hi\nb,ho\n', {}, "its quotation marks do not match"),
        ("q.csv", "text,text\nhi,a\n", {}, "two columns of its header have the same name"),
        ("q.csv", "a,b,label\nhi,ho,x\n", {}, "name the column with the queries as --query: one of a, b"),
        ("q.csv", "a,b,label\n1,2,x\n3,nan,y\n", {}, "row 2 of column 'b' holds no finite number"),
        ("q.csv", "a,b,label\n1,inf,x\n", {}, "row 1 of column 'b' holds no finite number"),
        ("q.csv", "id,text,label\n1,hi,x\n,ho,y\n", {}, "row 2 has no id"),
        ("q.csv", "text\nf\xfcr\n".encode("latin-1"), {}, "it is no text in UTF-8"),
        ("q.tsv", "text\tlabel\nhi\n", {}, "line 2 has 1 fields, the header has 2"),
        ("q.jsonl", "", {}, "it holds no queries"),
        ("q.jsonl", "{}\n{}\n", {}, "it holds no queries"),
        ("q.jsonl", '{"text": "hi"}\n{text}\n', {}, "line 2 is no JSON"),
        ("q.jsonl", "[" * 100_000, {}, "line 1 is no JSON"),
        ("q.jsonl", "[1]\n", {}, "line 1 must be an object with the keys of the first"),
        ("q.jsonl", '{"text": "a"}\n{"text": "b", "label": 1}\n', {}, "line 2 must be an object with the keys"),
        ("q.jsonl", '{"text": null, "label": "a"}\n', {}, "row 1 of column 'text' holds None, which is no text"),
        ("q.jsonl", '{"text": "a", "label": null}\n', {}, "row 1 has no label"),
        ("q.jsonl", '{"text": "a", "label": ["b"]}\n', {}, "row 1 of column 'label' must hold a name, got ['b']"),
        ("q.jsonl", '{"v": [1, 2]}\n{"v": [1]}\n', {}, "column 'v' must hold lists of numbers of one length"),
        ("q.jsonl", '{"v": ["a"]}\n', {}, "column 'v' must hold lists of numbers of one length"),
        ("q.jsonl", '{"v": []}\n', {}, "column 'v' must hold lists of numbers of one length"),
        ("q.parquet", "hello", {}, "it is no Parquet file, or it is cut off or damaged"),
        ("q.parquet", pa.table({"text": pa.array([], pa.string())}), {}, "it holds no queries"),
        ("q.parquet", pa.table({"text": ["a", None]}), {}, "row 2 of column 'text' holds None, which is no text"),
        ("q.parquet", pa.table({"text": ["a", "b"], "label": ["x", None]}), {}, "row 2 has no label"),
        ("q.parquet", pa.table({"text": ["a"], "group": pa.array([None], pa.string())}), {}, "row 1 has no group"),
        ("q.parquet", pa.table({"text": ["a"], "label": [float("nan")]}), {}, "row 1 has no label"),
        ("q.parquet", pa.table({"a": [1.0, None], "b": [1, 2]}), {}, "row 2 of column 'a' holds no finite number"),
        ("q.parquet", pa.table({"v": [[1.0], None]}), {}, "column 'v' must hold lists of numbers of one length"),
        ("q.parquet", pa.table({"image": [b"\x89PNG" * 1000]}), {}, "which is no text"),
        ("q.npz", {"Z": np.zeros(3)}, {}, "it needs an array X with the queries, it has Z"),
        ("q.npz", {"X": np.zeros((3, 2)), "y": np.zeros(2)}, {}, "y must be of shape (3,), one a query, got (2,)"),
        ("q.npz", {"X": np.zeros((3, 2)), "y": np.zeros((3, 2))}, {}, "y must be of shape (3,)"),
        ("q.npz", {"X": np.zeros((3, 2)), "y": 3}, {}, "y must be of shape (3,), one a query, got ()"),
        ("q.npz", {"X": np.zeros((3, 2)), "group": [1]}, {}, "group must be of shape (3,)"),
        ("q.npz", {"X": np.zeros((2, 2)), "y": [0.0, np.nan]}, {}, "row 2 has no y"),
        ("q.npz", {"X": np.zeros((2, 2))}, {"query": "Q"}, "it has no column 'Q', only X"),
        ("q.npz", {"X": objects()}, {}, "it is no plain array, or it is cut off"),
        ("q.npz", "hello", {}, "it is no plain array, or it is cut off"),
        ("q.npy", objects(), {}, "it is no plain array, or it is cut off"),
        ("q.npy", "hello", {}, "it is no plain array, or it is cut off"),
        ("q.npy", np.float64(3), {}, "it holds no queries"),
        ("q.npy", np.zeros((0, 3)), {}, "it holds no queries"),
        ("q.npy", np.zeros((2, 3)), {"label": "y"}, "it has no column 'y', only X"),
    ],
)  # fmt: skip
def test_one_sentence_for_what_is_wrong(
    name: str, content: Any, wishes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    """The file and what is wrong with it, on one short line."""
    with pytest.raises(oc.StorageError) as caught:
        read(tmp_path, name, content, **wishes)
    said = str(caught.value)
    assert said.startswith(f"cannot read {tmp_path / name}: ")
    assert sentence in said
    assert said.endswith(".")
    assert "\n" not in said
    assert len(said) < len(str(tmp_path)) + 200


# A changed byte of a text in Parquet, which has no checksums, is a text.
@pytest.mark.parametrize(
    ("name", "harm"),
    [("q.csv.gz", "cut"), ("q.csv.gz", "changed"), ("q.npz", "cut"), ("q.npz", "changed"), ("q.parquet", "cut")],
)
def test_damaged_files(name: str, harm: str, tmp_path: Path) -> None:
    """Cut off, or with a byte changed in the middle of what is packed: one sentence."""
    path = tmp_path / name
    if name == "q.csv.gz":
        path.write_bytes(gzip.compress(("text,label\n" + "".join(f"t{n},l{n * n}\n" for n in range(999))).encode()))
    else:
        WRITERS[name](path)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(bytes(raw[: len(raw) // 2]) if harm == "cut" else bytes(raw))
    with pytest.raises(oc.StorageError, match=r"cut off|damaged"):
        read_data(path)


@pytest.mark.parametrize(
    ("names", "wishes", "sentence"),
    [
        ((), {}, "it holds no images"),
        (("notes.txt",), {}, "it holds no images"),
        (("a/1.png", "2.png"), {}, "some images are in subfolders named for a class and some are not"),
        (("1.png",), {"need_labels": True}, "its images have no labels: put them into subfolders"),
        (("a/1.png",), {"label": "x"}, "it is a folder, and only tables have columns"),
    ],
)
def test_folders_that_will_not_do(
    names: tuple[str, ...], wishes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    """A sentence, too."""
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(oc.StorageError, match=sentence):
        read_data(tmp_path, **wishes)


WORDS = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.lists(st.tuples(st.text(st.characters(blacklist_categories=["Cs"])), WORDS), min_size=1, max_size=5))
def test_any_text_comes_back(rows: list[tuple[str, str]], tmp_path: Path) -> None:
    """What Python writes as CSV or JSON is read as it was, whatever letters are in it."""
    with (tmp_path / "q.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(rows)
    lines = [json.dumps({"text": text, "label": label}) + "\n" for text, label in rows]
    (tmp_path / "q.jsonl").write_text("".join(lines), encoding="utf-8")
    for name in ("q.csv", "q.jsonl"):
        found = read_data(tmp_path / name)
        assert list(zip(found.queries, found.labels or (), strict=True)) == rows
