"""Files: what is written comes back, others can read it, and what is broken is refused in one sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import occamroute as oc
from occamroute.serving.keys import KeyFile
from occamroute.storage import KEY, whole_file
from occamroute.tables import read_queries


def test_profile_comes_back(small: oc.Profile, tmp_path: Path) -> None:
    """Every field, to the bit: the fingerprint is the same."""
    oc.save(small, tmp_path / "p.parquet")
    assert oc.load(tmp_path / "p.parquet").fingerprint == small.fingerprint


def test_profile_with_costs_by_query_comes_back(tmp_path: Path) -> None:
    """Costs of shape (n, M), string labels, default ids, a plain array of features."""
    profile = oc.Profile(
        ("a", "b"), np.random.default_rng(0).random((3, 2)), np.eye(3, dtype=np.float32), np.eye(3)[:, :2],
        extractor="a", labels=["x", "y", "x"],
    )  # fmt: skip
    oc.save(profile, tmp_path / "p.parquet")
    again = oc.load(tmp_path / "p.parquet")
    assert again.fingerprint == profile.fingerprint
    assert isinstance(again.features, np.ndarray)
    assert again.features.dtype == np.float32


@pytest.mark.parametrize("per_query", [False, True])
def test_plan_comes_back_and_verifies(per_query: bool, tmp_path: Path) -> None:
    """A plan from a file has its problem and certificate with it."""
    random = np.random.default_rng(0)
    costs = random.random((50, 3)) if per_query else np.array([0.1, 0.3, 1.0])
    estimate = oc.Estimate(("a", "b", "c"), costs, random.random((50, 3)), np.full(3, 0.2), 0.01)
    plan = estimate.plan(20.1, penalty=0.3)
    oc.save(plan, tmp_path / "plan.parquet")
    again = oc.load(tmp_path / "plan.parquet")
    oc.verify(again)
    assert np.array_equal(again.choice, plan.choice)
    assert again.summary() == plan.summary()


def test_frontier_comes_back(tmp_path: Path) -> None:
    """Its points and bound; plans need the estimate, and it says so."""
    random = np.random.default_rng(0)
    front = oc.Estimate(("a", "b"), np.array([0.0, 1.0]), random.random((20, 2)), np.zeros(2)).frontier()
    oc.save(front, tmp_path / "f.parquet")
    again = oc.load(tmp_path / "f.parquet")
    assert np.array_equal(again.budgets, front.budgets)
    assert again.bound(3.5) == front.bound(3.5)
    with pytest.raises(oc.InvalidInputError, match="holds its points alone"):
        again.plan(3.5)


def test_other_tools_read_the_files(small: oc.Profile, tmp_path: Path) -> None:
    """pandas, polars and DuckDB see the table as it is."""
    path = tmp_path / "p.parquet"
    oc.save(small, path)
    mean = small.success[:, 1].mean()
    frame = pd.read_parquet(path)
    assert frame["success:large"].mean() == pytest.approx(mean)
    assert np.allclose(np.stack(frame["features:hash"].to_list()), small.feature_sets["hash"])
    assert pl.read_parquet(path)["success:large"].mean() == pytest.approx(mean)
    query = f"""select avg("success:large"), count(*), len(any_value("features:hash")) from '{path}'"""  # noqa: S608  # a file of this test
    found = duckdb.sql(query)
    assert found is not None
    assert found.fetchall()[0] == pytest.approx((mean, 60, 5))


def broken_copies(path: Path) -> dict[str, bytes]:
    content = path.read_bytes()
    middle = len(content) // 2
    return {
        "empty": b"",
        "text": b"id,x\n1,2\n",
        "cut short": content[:-7],
        "half": content[:middle],
        "a byte changed": content[:200] + bytes([content[200] ^ 255]) + content[201:],
    }


@pytest.mark.parametrize("kind", ["empty", "text", "cut short", "half", "a byte changed"])
def test_broken_files_are_refused(kind: str, small: oc.Profile, tmp_path: Path) -> None:
    """Cut off, damaged, or not Parquet at all."""
    path = tmp_path / "p.parquet"
    oc.save(small, path)
    path.write_bytes(broken_copies(path)[kind])
    with pytest.raises(oc.StorageError, match=r"cannot read .*p\.parquet: it is no Parquet file, or it is cut off"):
        oc.load(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    """A Parquet file of somebody else's, and no file."""
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "x.parquet")
    with pytest.raises(oc.StorageError, match="not one that occamroute wrote"):
        oc.load(tmp_path / "x.parquet")
    with pytest.raises(oc.StorageError, match="there is no such file"):
        oc.load(tmp_path / "y.parquet")


@pytest.mark.parametrize(
    ("about", "sentence"),
    [
        (b"{", "its metadata are damaged"),
        (b"[]", "its metadata are damaged"),
        (b'{"format": 2, "kind": "profile"}', "it has format 2, this version reads format 1"),
        (b'{"format": 1, "kind": "poem"}', "it holds a 'poem', which this version does not know"),
        (b'{"format": 1, "kind": "profile"}', "part of the profile is missing or broken"),
    ],
)
def test_wrong_metadata_are_refused(about: bytes, sentence: str, tmp_path: Path) -> None:
    """Damaged, of a later version, or of something unknown."""
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata({KEY: about}), tmp_path / "x.parquet")
    with pytest.raises(oc.StorageError, match=sentence):
        oc.load(tmp_path / "x.parquet")


def test_metadata_are_json_with_a_format_number(small: oc.Profile, tmp_path: Path) -> None:
    """Anyone can see what a file is without this package."""
    oc.save(small, tmp_path / "p.parquet")
    about = json.loads(pq.read_schema(tmp_path / "p.parquet").metadata[KEY])
    assert (about["format"], about["kind"], about["names"]) == (1, "profile", ["small", "large"])


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    """The old file stays until the new one is whole, and no half of it is left."""
    path = tmp_path / "x.txt"
    path.write_text("old")

    def interrupted() -> None:
        with whole_file(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_places_that_cannot_be_written_are_named(small: oc.Profile, tmp_path: Path) -> None:
    """A folder that is not there, and a folder in place of a file."""
    with pytest.raises(oc.InvalidInputError, match=r"the folder .* does not exist"):
        oc.save(small, tmp_path / "no" / "p.parquet")
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(oc.InvalidInputError, match="it is a folder"):
        oc.save(small, tmp_path / "folder.parquet")
    with pytest.raises(
        oc.InvalidInputError, match="only profiles, plans, frontiers, runs and reports can be saved, got int"
    ):
        oc.save(3, tmp_path / "p.parquet")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"names": None}, {"costs": "x"}, {"costs": [0.2, 1.0]}, {"feature_sets": []}, {"extractor_cost": []},
        {"extractor_cost": {"small": "abc", "hash": "0.01"}}, {"classes": ["cat", "cat", "eel"]},
    ],
    ids=str,
)  # fmt: skip
def test_changed_metadata_are_refused(change: dict[str, object], small: oc.Profile, tmp_path: Path) -> None:
    """Whatever somebody edits in a profile's metadata, it does not load as another profile."""
    oc.save(small, tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    about = {**json.loads(table.schema.metadata[KEY]), **change}
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(about).encode()}), tmp_path / "p.parquet")
    with pytest.raises(oc.StorageError, match="cannot read"):
        oc.load(tmp_path / "p.parquet")


def test_plan_with_broken_numbers_is_refused(tmp_path: Path) -> None:
    """A plan file without its numbers does not load."""
    estimate = oc.Estimate(("a", "b"), np.array([0.1, 1.0]), np.random.default_rng(0).random((9, 2)), np.zeros(2))
    oc.save(estimate.plan(5.0, penalty=np.float32(0.5)), tmp_path / "p.parquet")  # type: ignore[arg-type]
    oc.verify(oc.load(tmp_path / "p.parquet"))
    table = pq.read_table(tmp_path / "p.parquet")
    for change in ({"value": None}, {"budget": "abc"}, {"made_from": 3}, {"kind": [1]}):
        about = {**json.loads(table.schema.metadata[KEY]), **change}
        pq.write_table(table.replace_schema_metadata({KEY: json.dumps(about).encode()}), tmp_path / "q.parquet")
        with pytest.raises(oc.StorageError, match="cannot read"):
            oc.load(tmp_path / "q.parquet")


def test_names_that_no_file_has(small: oc.Profile, tmp_path: Path) -> None:
    """Too long for any file system."""
    with pytest.raises(oc.StorageError, match="there is no such file"):
        oc.load("x" * 300)
    with pytest.raises(oc.InvalidInputError, match="cannot write"):
        oc.save(small, tmp_path / ("x" * 300 + ".parquet"))


def test_queries_in_ragged_lists_are_refused(tmp_path: Path) -> None:
    """No row may lend its numbers to the next."""
    for lists in ([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]], [[1.0, 2.0], None, [3.0, 4.0, 5.0, 6.0]], [[1.0, None]]):
        pq.write_table(pa.table({"features": pa.array(lists, pa.list_(pa.float64()))}), tmp_path / "q.parquet")
        with pytest.raises(oc.InvalidInputError, match=r"one list of numbers of equal length|must be finite"):
            read_queries(tmp_path / "q.parquet")
    pq.write_table(pa.table({"id": pa.array(["a", None]), "x": [1.0, 2.0]}), tmp_path / "q.parquet")
    with pytest.raises(oc.StorageError, match="column 'id' holds nulls"):
        read_queries(tmp_path / "q.parquet")


def test_queries_from_spreadsheets(tmp_path: Path) -> None:
    """A byte-order mark, blank lines and quoted ids are normal; doubled or missing headers are not."""
    path = tmp_path / "q.csv"
    path.write_bytes(b'\xef\xbb\xbfid,x,y\r\n"1, a",1,2\r\n\r\n007,3,4\r\n')
    found = read_queries(path)
    assert found.ids == ("1, a", "007")
    assert np.asarray(found.features).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    for text, sentence in (
        ("id,x,x\n1,2,3\n", "two columns of its header have the same name"),
        ("1,2\n3,4\n", "its first line must name the columns"),
        ("x,y\n\n\n1\n", "line 4 has 1 fields"),
    ):
        path.write_text(text)
        with pytest.raises(oc.StorageError, match=sentence):
            read_queries(path)


def test_the_umask_is_never_changed(small: oc.Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The umask belongs to all threads: files get their mode from the kernel, and nobody sets the umask to read it."""
    usual = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail(f"os.umask({mask:#o}) was called"))
        oc.save(small, tmp_path / "p.parquet")
        KeyFile(tmp_path).add("ann", scopes=("route",))
    finally:
        monkeypatch.undo()
        os.umask(usual)
    assert (tmp_path / "p.parquet").stat().st_mode & 0o777 == 0o640
    assert KeyFile(tmp_path).path.stat().st_mode & 0o777 == 0o600


def test_a_key_file_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it is being written, and before it has its name."""
    modes = []
    replace = Path.replace

    def seen(file: Path, target: Path) -> Path:
        modes.append(file.stat().st_mode & 0o077)
        return replace(file, target)

    monkeypatch.setattr(Path, "replace", seen)
    KeyFile(tmp_path).add("ann", scopes=("route",))
    assert modes == [0]


@pytest.mark.parametrize(
    ("name", "advice"),
    [("boss.html", "occamroute report"), ("a.svg", "occamroute report"), ("a.csv", "--out"), ("a", ""), ("a.pq", "")],
)
def test_save_refuses_names_that_do_not_fit(name: str, advice: str, small: oc.Profile, tmp_path: Path) -> None:
    """A page, a chart or a spreadsheet of that name is not overwritten with Parquet."""
    path = tmp_path / name
    path.write_text("<p>precious</p>")
    with pytest.raises(oc.InvalidInputError, match=rf"to .*{name}: the name must end in \.parquet.*{advice}"):
        oc.save(small, path)
    assert path.read_text() == "<p>precious</p>"
    assert os.listdir(tmp_path) == [name]
    oc.save(small, tmp_path / "P.PARQUET")
    assert oc.load(tmp_path / "P.PARQUET").fingerprint == small.fingerprint
