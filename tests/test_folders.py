"""Queries in folders of Parquet files: the same plans as in memory, whatever the files look like and whatever fails."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import process, run

import occamroute as oc
from occamroute import folders
from occamroute._money import exact
from occamroute.cli.compare import compare
from occamroute.cli.frontier import frontier
from occamroute.data_files import read_data
from occamroute.folders import QueryFolder
from occamroute.part_folders import PartFolder, part_rows_for
from occamroute.planning.from_folders import plan_with_estimator
from occamroute.planning.stored_estimates import StoredEstimate
from occamroute.planning.stored_plans import StoredPlan
from occamroute.tables import ids_in, read_queries

ROWS = 9000  # three parts


@pytest.fixture(scope="module")
def known(cifar10: tuple[oc.Profile, oc.Profile]) -> oc.Profile:
    return cifar10[0].take(np.arange(3000))


@pytest.fixture(scope="module")
def features(cifar10: tuple[oc.Profile, oc.Profile]) -> Any:
    return np.asarray(cifar10[1].features)[:ROWS]


@pytest.fixture(scope="module")
def folder(features: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of odd lengths with small row groups, one of them in a folder within, and things that are no queries."""
    place = tmp_path_factory.mktemp("queries")
    (place / "more").mkdir()
    names = ("a.parquet", "b.PARQUET", "more/c.parquet", "z.parquet")
    for name, start, stop in zip(names, (0, 1, 4097, 5000), (1, 4097, 5000, ROWS), strict=True):
        table = pa.table({"id": [f"q{row}" for row in range(start, stop)], "features": listed(features[start:stop])})
        pq.write_table(table, place / name, row_group_size=1000)
    (place / "_SUCCESS").write_text("")
    (place / ".hidden.parquet").write_text("no queries")
    return place


def listed(table: Any) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(table).reshape(-1)), table.shape[1])


def whole(profile: oc.Profile, share: float, rows: int = ROWS) -> float:
    return float(share * profile.mean_costs.max() * rows)


def choices(plan: StoredPlan) -> Any:
    return np.concatenate([plan.block(number).choice for number in range(plan.n_blocks)])


def assert_same(stored: StoredPlan, held: oc.Plan) -> None:
    assert np.array_equal(choices(stored), held.choice)
    assert sum((stored.block(number).ids for number in range(stored.n_blocks)), ()) == held.ids
    for name in ("planned_cost", "price", "bound", "gap", "status", "usage", "budget"):
        assert getattr(stored, name) == getattr(held, name), name
    assert stored.expected_accuracy == pytest.approx(held.expected_accuracy, abs=1e-12)
    assert stored.accuracy_interval == held.accuracy_interval
    assert np.array_equal(stored.weights, held.weights)
    oc.verify(stored)
    oc.verify(oc.load(stored.path))


@pytest.mark.parametrize("estimator", ["sampled", "bagged", "mixture"])
def test_the_same_as_in_memory(estimator: str, known: oc.Profile, features: Any, folder: Path, tmp_path: Path) -> None:
    """Row for row, whatever the objective, the penalty and the budget."""
    held = oc.estimate(known, features, estimator=estimator, ids=[f"q{row}" for row in range(ROWS)])
    stored = oc.estimate(known, folder, estimator=estimator, out=tmp_path / "estimates")
    assert (len(stored), stored.n_blocks) == (ROWS, 3)
    assert np.array_equal(np.concatenate([stored.block(part).success for part in range(3)]), held.success)
    cases: list[tuple[float, Any]] = [(0.1, {}), (0.3, {"penalty": 0.5}), (0.2, {"objective": "min"}), (2.0, {})]
    for number, (share, options) in enumerate(cases):
        plan = stored.plan(whole(known, share), out=tmp_path / f"plan-{number}", **options)
        assert_same(plan, held.plan(whole(known, share), **options))
        assert sum(exact(plan.block(part).budget) for part in range(3)) <= exact(plan.budget)
    front, wanted = stored.frontier(penalty=0.5), held.frontier(penalty=0.5)
    assert (front.budgets[0], front.budgets[-1]) == (wanted.budgets[0], wanted.budgets[-1])
    assert front.accuracies[-1] == pytest.approx(wanted.accuracies[-1])
    for budget in np.linspace(wanted.budgets[0], wanted.budgets[-1], 7):
        # A bound, and a close one: points that it leaves out are steps of nearly the same slope.
        assert wanted.bound(budget) - 1e-12 <= front.bound(budget) <= wanted.bound(budget) + 1e-5
    with pytest.raises(oc.InvalidInputError, match="holds its points alone"):
        front.plan(1.0)


def test_chosen_on_held_out_rows(cifar10_small: Any, features: Any, folder: Path, tmp_path: Path) -> None:
    """oc.plan chooses the same and expects the same; a mapping says whose features they are; a planner may be kept."""
    profile = cifar10_small[0].take(np.arange(600))
    ids = [f"q{row}" for row in range(ROWS)]
    seen: list[tuple[int, int]] = []
    for number, share in enumerate((0.05, 0.2)):
        held = oc.plan(profile, features, budget=whole(profile, share), ids=ids)
        source: Any = folder if number else {profile.extractor: folder}
        stored = oc.plan(
            profile, source, budget=whole(profile, share), out=tmp_path / f"plan-{number}",
            progress=lambda done, total: seen.append((done, total)),
        )  # fmt: skip
        assert_same(stored, held)
        assert stored.made_from | {"queries": ""} == held.made_from | {"queries": ""}
        assert seen[-1][0] == seen[-1][1]
        with pytest.MonkeyPatch.context() as patch:  # a finished one is known, and nothing is chosen again
            patch.setattr("occamroute.planning.fitting.candidates", None)
            again = oc.plan(profile, source, budget=whole(profile, share), out=tmp_path / f"plan-{number}")
            assert choices(again).tolist() == held.choice.tolist()
            with pytest.raises(TypeError):  # one of something else is not
                oc.plan(profile, source, budget=whole(profile, share), seed=1, out=tmp_path / f"plan-{number}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan-0", "plan-1"]


def test_columns_of_numbers_and_no_ids(known: oc.Profile, features: Any, tmp_path: Path) -> None:
    """Rows without names are numbered; features may be columns of their own; one file will do."""
    (tmp_path / "queries").mkdir()
    columns: Any = {f"x{column}": features[:, column] for column in range(features.shape[1])}
    pq.write_table(pa.table(columns), tmp_path / "queries" / "one.parquet")
    held = oc.estimate(known, features, estimator="mixture")
    for name in ("queries", "queries/one.parquet"):
        stored = oc.estimate(known, tmp_path / name, estimator="mixture", out=tmp_path / f"out-{name[-3:]}")
        assert_same(stored.plan(whole(known, 0.3), out=tmp_path / f"plan-{name[-3:]}"), held.plan(whole(known, 0.3)))


def test_ids_are_those_of_a_file(tmp_path: Path) -> None:
    """Whatever their type, they are the same as where the file is read at once."""
    kinds: list[Any] = [pa.array(range(3)), pa.array([0.0, 0.5, 1e15]), pa.array([b"\xff", b"a", b""])]
    kinds += [pa.array([[1], [2], [3]]), pa.array(["a", "b", "a"]).dictionary_encode()]
    kinds += [pa.array(range(3)).cast(pa.timestamp("us"))]
    for number, ids in enumerate(kinds):
        file = tmp_path / f"{number}.parquet"
        columns: Any = {"id": ids, "x": pa.array([1.0, 2.0, 3.0])}
        pq.write_table(pa.table(columns), file)
        read = ids_in(QueryFolder(file).read(0, 3, ["id"]), 0, file).to_pylist()
        assert tuple(read) == read_queries(file).ids


def test_large_row_groups_are_gone_through_in_order(features: Any, tmp_path: Path) -> None:
    """Any span of rows, in any batches, is what the files hold."""
    for number, rows in enumerate((3000, 1, 2999)):
        table = pa.table({"x": pa.array(np.arange(rows) + 3000 * min(number, 1) + max(0, number - 1))})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=3000)
    found = QueryFolder(tmp_path)
    for start, stop, rows in ((0, 6000, 700), (2999, 3002, 1), (2500, 5999, 10_000), (5999, 6000, 5)):
        batches = list(found.batches(start, stop, ["x"], rows))
        assert np.concatenate([np.asarray(table["x"]) for _, table in batches]).tolist() == list(range(start, stop))
        assert [first for first, _ in batches] == [int(table["x"][0].as_py()) for _, table in batches]
        assert max(table.num_rows for _, table in batches) <= rows
    assert part_rows_for(100) == part_rows_for(200_000) == 4096
    assert part_rows_for(10**9) == 65_536


def test_files_are_opened_once_and_known_by_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many row groups a file has; one that is changed or removed in the middle of the work is noticed."""
    for name, first in (("a", 0), ("b", 3000)):
        numbered = pa.table({"x": pa.array(range(first, first + 3000))})
        pq.write_table(numbered, tmp_path / f"{name}.parquet", row_group_size=7)
    found = QueryFolder(tmp_path)
    opened: list[Path] = []
    really = folders._open

    def count(file: Path) -> Any:
        opened.append(file)
        return really(file)

    monkeypatch.setattr(folders, "_open", count)
    table = found.read(10, 5000, ["x"])
    assert np.asarray(table["x"]).tolist() == list(range(10, 5000))
    assert len(opened) == 2
    pq.write_table(pa.table({"x": pa.array(range(3000))}), tmp_path / "b.parquet", row_group_size=7)
    with pytest.raises(oc.StorageError, match="it was changed in the middle of the work"):
        found.read(10, 5000, ["x"])
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(oc.StorageError, match=r"b\.parquet: it is not there"):
        found.read(10, 5000, ["x"])


def test_what_was_done_is_not_done_again(
    known: oc.Profile, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted, the same call makes the parts that are missing or broken; finished, it makes nothing."""
    written: list[str] = []
    write = PartFolder.write

    def count(self: Any, number: int, *arguments: Any) -> None:
        if len(written) == stop_after[0]:
            raise KeyboardInterrupt
        written.append(self.file(number).name)
        write(self, number, *arguments)

    stop_after = [1]
    monkeypatch.setattr("occamroute.part_folders.PartFolder.write", count)
    out = tmp_path / "estimates"
    with pytest.raises(KeyboardInterrupt):
        oc.estimate(known, folder, estimator="sampled", out=out)
    with pytest.raises(oc.StorageError, match="is not finished: run the same command again"):
        oc.load(out)
    (out / "part-000002.parquet").write_bytes(b"cut off")
    stop_after[0] = 100
    oc.estimate(known, folder, estimator="sampled", out=out)
    assert sorted(written) == ["part-000000.parquet", "part-000001.parquet", "part-000002.parquet"]
    again = oc.estimate(known, folder, estimator="sampled", out=out)
    assert len(written) == 3
    first = again.plan(whole(known, 0.2), out=tmp_path / "plan")
    assert len(written) == 6
    assert choices(again.plan(whole(known, 0.2), out=tmp_path / "plan")).tolist() == choices(first).tolist()
    assert len(written) == 6


def test_what_is_lost_is_made_again(known: oc.Profile, folder: Path, tmp_path: Path) -> None:
    """Parts of a finished folder that are gone or damaged inside; leftovers; a removal that was cut short."""
    out = tmp_path / "estimates"
    stored = oc.estimate(known, folder, estimator="sampled", out=out)
    parts = [stored.parts.file(number) for number in range(3)]
    contents = [part.read_bytes() for part in parts]
    middle = len(contents[1]) // 2
    parts[1].write_bytes(contents[1][:middle] + bytes(64) + contents[1][middle + 64 :])
    with pytest.raises(oc.StorageError, match="it is damaged: remove it"):
        stored.plan(whole(known, 0.2), out=tmp_path / "never")
    for part in parts[1:]:
        part.unlink()
    for name in (".part-000002.parquet.x.tmp", ".about.json.x.tmp"):
        (out / name).write_text("of a process that was killed")
    again = oc.estimate(known, folder, estimator="sampled", out=out)
    assert [part.read_bytes() for part in parts] == contents
    assert sorted(os.listdir(out)) == ["about.json", *(part.name for part in parts)]
    unlink, left = Path.unlink, [2]

    def cut_short(self: Path, missing_ok: bool = False) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        unlink(self, missing_ok)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", cut_short)
        with pytest.raises(KeyboardInterrupt):
            again.parts.remove()
    assert len(list(out.glob("part-*"))) == 1
    oc.estimate(known, folder, estimator="sampled", out=out).parts.remove()
    assert not out.exists()


def test_what_cannot_be_is_refused_before_the_work(known: oc.Profile, folder: Path, tmp_path: Path) -> None:
    """Nothing is estimated for a plan that cannot be made or written, or would be read as queries."""
    (tmp_path / "file").write_text("")
    oc.estimate(known, folder, estimator="mixture", out=tmp_path / "other")
    outs = {
        "it is a file": "file",
        "holds an estimate": "other",
        "it is not empty": ".",
        "read as queries": folder / "p",
    }
    usual: Any = {"estimator": "sampled", "extractor": None, "penalty": 0.0, "objective": "mean", "seed": 0}
    cases: list[tuple[str, Any, Any, Any]] = [(said, out, 0.2, {}) for said, out in outs.items()]
    cases += [(said, "out", share, knob) for said, share, knob in (
        ("is too small", 0.0, {}), ("penalty must be", 0.2, {"penalty": -1}), ("objective", 0.2, {"objective": "x"}),
    )]  # fmt: skip
    before = sorted(tmp_path.rglob("*"))
    for said, out, share, knob in cases:
        with pytest.raises(oc.OccamError, match=said):
            plan_with_estimator(
                known, folder, whole(known, share), out=tmp_path / out, executor=None, progress=None, **usual | knob
            )
    with pytest.raises(oc.InvalidInputError, match="read as queries"):
        oc.estimate(known, folder, estimator="mixture", out=folder / "more" / "e")
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "judged").mkdir()
    oc.save(known, tmp_path / "judged" / "profile.parquet")
    judged = str(tmp_path / "judged")
    with pytest.raises(oc.InvalidInputError, match="read as queries"):
        compare(f"{judged}/profile.parquet", test=judged, methods="mixture", out=f"{judged}/report.csv")
    for inside in (judged, f"{judged}/work"):
        with pytest.raises(oc.InvalidInputError, match="read as queries"):
            oc.compare(known, judged, methods=("mixture",), out=inside)
    (tmp_path / "points.csv").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for out, said in (("points.csv", "it is a folder"), ("none/points.csv", "does not exist")):
        for write in (frontier, lambda *about, out: compare(about[0], test=judged, methods="mixture", out=out)):
            with pytest.raises(oc.InvalidInputError, match=said):
                write(f"{judged}/profile.parquet", str(folder), out=str(tmp_path / out))
    assert sorted(tmp_path.rglob("*")) == before
    assert not (folder / "p").exists()


def test_a_finished_plan_is_not_estimated_again(known: oc.Profile, folder: Path, tmp_path: Path) -> None:
    """Though its estimates are gone, or half of them; nor are parts believed that would cost more than the budget."""
    out, beside = tmp_path / "plan", tmp_path / "plan.estimates"

    def make() -> StoredPlan:
        return plan_with_estimator(
            known, folder, whole(known, 0.2), estimator="sampled", extractor=None, penalty=0.0, objective="mean",
            seed=0, out=out, executor=None, progress=None,
        )  # fmt: skip

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartFolder, "remove", lambda parts: None)
        first = make()
    (beside / "part-000001.parquet").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("occamroute.planning.stored_estimates.predicted", None)
        assert choices(make()).tolist() == choices(first).tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]
    part, about = first.parts.file(1), json.loads((out / "about.json").read_text())
    metadata = pq.read_schema(part).metadata
    said = json.loads(metadata[b"occamroute"])
    said["tally"]["counts"] = [4096 * (name == known.names[known.dearest]) for name in known.names]
    changed = pq.read_table(part).replace_schema_metadata({b"occamroute": json.dumps(said).encode()})
    pq.write_table(changed, part)
    (out / "about.json").write_text(json.dumps(about | {"done": False}))
    with pytest.raises(oc.StorageError, match="its parts are not of one plan"):
        make()


def test_a_full_disk_gets_one_sentence(known: oc.Profile, folder: Path, tmp_path: Path) -> None:
    """Whatever the file system says about a file that it does not take."""
    code = (
        "import resource, signal, sys, occamroute as oc\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "oc.estimate(oc.load(sys.argv[1]), sys.argv[2], estimator='sampled', out=sys.argv[3])\n"
    )
    oc.save(known, tmp_path / "profile.parquet")
    words = [sys.executable, "-c", code, *map(str, (tmp_path / "profile.parquet", folder, tmp_path / "out"))]
    done = subprocess.run(words, capture_output=True, text=True)
    assert "InvalidInputError: cannot write" in done.stderr.splitlines()[-1]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["about.json"]


def test_another_job_into_the_same_folder_is_refused(known: oc.Profile, folder: Path, tmp_path: Path) -> None:
    """What is there stays there."""
    out = tmp_path / "estimates"
    stored = oc.estimate(known, folder, estimator="mixture", out=out)
    with pytest.raises(oc.InvalidInputError, match="holds an estimate of something else"):
        oc.estimate(known, folder, estimator="sampled", out=out)
    with pytest.raises(oc.InvalidInputError, match="holds an estimate of something else"):
        stored.plan(whole(known, 0.5), out=out)
    stored.plan(whole(known, 0.5), out=tmp_path / "plan")
    with pytest.raises(oc.InvalidInputError, match="holds a plan of something else"):
        stored.plan(whole(known, 0.6), out=tmp_path / "plan")
    with pytest.raises(oc.InvalidInputError, match="it is not empty"):
        stored.plan(whole(known, 0.6), out=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(oc.InvalidInputError, match="it is a file"):
        stored.plan(whole(known, 0.6), out=tmp_path / "file")
    with pytest.raises(oc.BudgetTooSmallError):
        stored.plan(0, out=tmp_path / "never")
    assert not (tmp_path / "never").exists()
    with pytest.raises(oc.InvalidInputError, match="name one as out"):
        oc.plan(known, folder, budget=1.0)
    assert isinstance(oc.load(out), StoredEstimate)


def test_two_at_once_do_not_do_the_same(known: oc.Profile, folder: Path, tmp_path: Path) -> None:
    """Whoever comes second is told so, and nothing is left of the lock."""
    stored = oc.estimate(known, folder, estimator="mixture", out=tmp_path / "estimates")
    made = stored.plan(whole(known, 0.5), out=tmp_path / "plan")
    made.parts.file(1).unlink()
    with made.parts.alone(), pytest.raises(oc.InvalidInputError, match="another process is writing"):
        stored.plan(whole(known, 0.5), out=tmp_path / "plan")
    stored.parts.file(1).unlink()
    with stored.parts.alone(), pytest.raises(oc.InvalidInputError, match="another process is writing"):
        oc.estimate(known, folder, estimator="mixture", out=tmp_path / "estimates")
    oc.estimate(known, folder, estimator="mixture", out=tmp_path / "estimates")
    oc.verify(stored.plan(whole(known, 0.5), out=tmp_path / "plan"))
    assert not list(tmp_path.rglob(".lock"))
    stored.parts.file(1).unlink()
    (stored.path / ".lock").mkdir()
    with pytest.raises(oc.InvalidInputError, match="cannot write into"):  # as where the disk is read alone
        oc.estimate(known, folder, estimator="mixture", out=tmp_path / "estimates")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("cut", "cut off or damaged"),
        ("changed", "cut off or damaged"),
        ("names", "two of its columns have the same name"),
        ("nan", "finite"),
        ("null id", "'id' holds nulls"),
        ("columns", "its columns are not those of"),
        ("width", "must have the profile's 10 columns, got 9"),
        ("empty", "hold no rows"),
        ("none", "holds no Parquet files"),
        ("link", "a link to nothing"),
        pytest.param(
            "name", "its name is not UTF-8", marks=pytest.mark.skipif(sys.platform != "linux", reason="names")
        ),
    ],
)
def test_bad_files_get_one_sentence(
    damage: str, sentence: str, known: oc.Profile, features: Any, tmp_path: Path
) -> None:
    table = pa.table({"id": ["a", "b"], "features": listed(features[:2])})
    bad: Any = {
        "nan": lambda: pa.table({"id": ["c"], "features": listed(np.full((1, 10), np.nan))}),
        "null id": lambda: pa.table({"id": pa.array([None], pa.string()), "features": listed(features[:1])}),
        "columns": lambda: pa.table({"id": ["c"], "other": listed(features[:1])}),
    }
    queries = tmp_path / "queries"
    queries.mkdir()
    if damage == "width":
        table = pa.table({"id": ["a", "b"], "features": listed(features[:2, :9])})
    if damage == "empty":
        table = table.slice(0, 0)
    if damage != "none":
        pq.write_table(table, queries / "a.parquet")
    if damage in bad:
        pq.write_table(bad[damage](), queries / "b.parquet")
    if damage == "link":
        (queries / "b.parquet").symlink_to(tmp_path / "gone.parquet")
    if damage == "name":
        os.rename(queries / "a.parquet", os.fsencode(queries) + b"/\xff.parquet")
    if damage == "names":
        pq.write_table(pa.Table.from_arrays([table["id"], table["id"]], names=["id", "id"]), queries / "a.parquet")
    if damage == "changed":  # a number in the middle, in a file that can tell
        pq.write_table(table, queries / "a.parquet", compression="none", use_dictionary=False, write_page_checksum=True)
        number = np.asarray(features[1, 3]).tobytes()
        content = (queries / "a.parquet").read_bytes()
        assert content.count(number) == 1
        (queries / "a.parquet").write_bytes(content.replace(number, np.asarray(features[1, 3] + 1).tobytes()))
    if damage == "cut":
        content = (queries / "a.parquet").read_bytes()
        (queries / "b.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(oc.OccamError, match=sentence) as caught:
        oc.estimate(known, queries, estimator="sampled", out=tmp_path / "out")
    assert str(caught.value).count("\n") == 0
    if damage in ("changed", "names"):  # the same of a file that is read at once
        for read in (read_queries, read_data):
            with pytest.raises(oc.StorageError, match=sentence):
                read(queries / "a.parquet")


def test_a_changed_plan_does_not_verify(known: oc.Profile, folder: Path, tmp_path: Path) -> None:
    """Neither a choice, nor a value, nor what is said of the whole can be changed unnoticed."""
    stored = oc.estimate(known, folder, estimator="sampled", out=tmp_path / "estimates")
    made = stored.plan(whole(known, 0.2), out=tmp_path / "plan")
    part, about = made.parts.file(1), made.path / "about.json"
    content, said = part.read_bytes(), about.read_text()
    table = pq.read_table(part)
    dearest = pa.array([known.names[known.dearest]] * table.num_rows)
    changed = [
        table.set_column(table.column_names.index("classifier"), "classifier", dearest),
        table.set_column(table.column_names.index("success"), "success", pa.array(np.ones(table.num_rows))),
        table.set_column(table.column_names.index("cost"), "cost", pa.array(np.zeros(table.num_rows))),
        table.set_column(
            table.column_names.index(f"value:{known.names[0]}"), f"value:{known.names[0]}",
            pa.array(np.ones(table.num_rows)),
        ),
    ]  # fmt: skip
    for wrong in changed:
        pq.write_table(wrong, part)
        with pytest.raises(oc.CertificateError):
            oc.verify(oc.load(made.path))
    broken = [table.drop_columns([f"value:{known.names[0]}"])]
    for values in (["x"] * table.num_rows, np.full(table.num_rows, np.nan)):
        column: Any = pa.array(values)
        broken.append(broken[0].append_column(f"value:{known.names[0]}", column))
    for wrong in broken:
        pq.write_table(wrong, part)
        with pytest.raises(oc.StorageError, match="value:"):
            oc.verify(oc.load(made.path))
    part.write_bytes(content)
    ids = pq.ParquetFile(part).metadata.row_group(0).column(0)  # of which nothing else is known
    middle = (ids.dictionary_page_offset or ids.data_page_offset) + ids.total_compressed_size // 2
    part.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    with pytest.raises(oc.StorageError, match="it is damaged"):
        oc.verify(oc.load(made.path))
    part.write_bytes(content)
    edits: dict[str, Any] = {"costs": [1.0], "weights": [0.0], "budget": "1/0", "rows": 0, "part_rows": 0, "usage": []}
    for name, edited in {**edits, "accuracy_interval": [0.5], "names": [known.names[0]] * len(known.names)}.items():
        about.write_text(json.dumps(json.loads(said) | {name: edited}))
        with pytest.raises(oc.StorageError):
            oc.load(made.path)
    for name, number in (("bound", 0.99), ("planned_cost", 1.0), ("price", 1e9), ("expected_accuracy", 0.99)):
        about.write_text(json.dumps(json.loads(said) | {name: number}))
        with pytest.raises(oc.CertificateError):
            oc.verify(oc.load(made.path))
    about.write_text(said)
    oc.verify(oc.load(made.path))
    part.unlink()
    with pytest.raises(oc.StorageError, match="it is not there"):
        oc.verify(oc.load(made.path))


def test_memory_does_not_grow_with_queries(known: oc.Profile, tmp_path: Path) -> None:
    """A plan for many queries holds a small share of their estimates at a time."""
    rows = 600_000
    (tmp_path / "queries").mkdir()
    pq.write_table(pa.table({"id": pa.array(np.arange(rows))}), tmp_path / "queries" / "a.parquet")
    mixture = known.select(known.names)
    stored = oc.estimate(mixture, tmp_path / "queries", estimator=Constant(), out=tmp_path / "estimates")
    tracemalloc.start()
    made = stored.plan(whole(known, 0.2, rows), out=tmp_path / "plan")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.5 * rows * len(known.names) * 8
    assert sum(made.usage.values()) == rows


class Constant:
    """Success rates for everybody, without a look at features."""

    looks_at_features = False

    def fit(self, features: Any, success: Any) -> Constant:
        self.rates_ = np.asarray(success).mean(axis=0)
        return self

    def predict(self, features: Any) -> Any:
        return np.tile(self.rates_, (len(features), 1))


class Drawn(Constant):
    """Another fit each time, and no words for that."""

    def __init__(self, seed: int) -> None:
        self.draw: Callable[[int], Any] = lambda shape: np.random.default_rng(seed).uniform(size=shape)

    def fit(self, features: Any, success: Any) -> Constant:
        self.rates_ = self.draw(np.shape(success)[1])
        return self


def test_estimators_are_known_by_what_they_say(known: oc.Profile, folder: Path, tmp_path: Path) -> None:
    """Not by where they are in memory; and what two fits say is never in one folder."""
    for estimator in (Constant(), Constant()):
        oc.estimate(known, folder, estimator=estimator, out=tmp_path / "constant")
    for estimator in (Drawn(0), Drawn(0)):
        oc.estimate(known, folder, estimator=estimator, out=tmp_path / "drawn")
    with pytest.raises(oc.InvalidInputError, match="holds an estimate of something else"):
        oc.estimate(known, folder, estimator=Drawn(1), out=tmp_path / "drawn")


@pytest.fixture(scope="module")
def profile_file(known: oc.Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("profile") / "profile.parquet"
    oc.save(known, place)
    return place


def test_the_story_from_the_command_line(
    known: oc.Profile, features: Any, folder: Path, profile_file: Path, tmp_path: Path
) -> None:
    """Killed in the middle, run again, verified; the frontier; a plan that is only looked at leaves nothing behind."""
    budget, out = str(whole(known, 0.2)), tmp_path / "plan"
    words = ("plan", profile_file, folder, "--budget", budget, "--estimator", "sampled", "--out", out, "--json")
    first = subprocess.Popen(process(*words), stdout=subprocess.DEVNULL)
    estimates = tmp_path / "plan.estimates"
    deadline = time.monotonic() + 60.0
    while not list(estimates.glob("part-*")) and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)
    first.wait()
    about = json.loads(run(*words, cwd=tmp_path).stdout)
    held = oc.estimate(known, features, estimator="sampled").plan(float(budget))
    assert (about["usage"], about["planned_cost"], about["out"]) == (held.usage, held.planned_cost, str(out))
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]
    assert "the certificate holds" in run("verify", out, cwd=tmp_path).stdout
    shown = run("frontier", profile_file, folder, "--estimator", "sampled", "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["n_queries"] == ROWS
    looked = run("plan", profile_file, folder, "--budget", budget, "--estimator", "mixture", cwd=tmp_path)
    assert "expected accuracy" in looked.stdout
    refused = run("plan", profile_file, folder, "--budget", budget, "--out", tmp_path / "plan.csv", cwd=tmp_path)
    assert (refused.returncode, "planned into a folder" in refused.stderr) == (2, True)
    assert sorted(os.listdir(tmp_path)) == ["plan"]


@pytest.fixture(scope="module")
def ray_executor(ray_cluster: None) -> Iterator[Any]:
    from occamroute.executors.ray import RayExecutor

    with RayExecutor() as executor:
        yield executor


def test_ray_gives_the_same_plan(known: oc.Profile, folder: Path, tmp_path: Path, ray_executor: Any) -> None:
    """Byte for byte the same parts, by two workers."""
    for name, executor in (("local", None), ("ray", ray_executor)):
        stored = oc.estimate(known, folder, estimator="sampled", out=tmp_path / name / "e", executor=executor)
        made = stored.plan(whole(known, 0.2), out=tmp_path / name / "p", executor=executor)
        oc.verify(made)
    for kind in ("e", "p"):
        files = sorted(os.listdir(tmp_path / "local" / kind))
        assert files == sorted(os.listdir(tmp_path / "ray" / kind))
        for file in files:
            assert (tmp_path / "local" / kind / file).read_bytes() == (tmp_path / "ray" / kind / file).read_bytes()
    assert len({done.process for done in ray_executor.history}) == 2


class Deadly(Constant):
    """The worker that asks it first dies of it, twice."""

    def __init__(self, place: Path) -> None:
        self.place, self.first = place, os.getpid()

    def predict(self, features: Any) -> Any:
        for number in range(2 if os.getpid() != self.first else 0):
            with contextlib.suppress(FileExistsError):
                (self.place / f"killed-{number}").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().predict(features)


def test_a_killed_worker_changes_nothing(
    known: oc.Profile, folder: Path, tmp_path: Path, ray_executor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks are worked on again, and the plan is the one that nobody disturbed."""
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setattr("occamroute.planning.from_folders.sigma_of", lambda *about: np.zeros(len(known.names)))
    stored = oc.estimate(known, folder, estimator=Deadly(marks), out=tmp_path / "e", executor=ray_executor)
    assert sorted(os.listdir(marks)) == ["killed-0", "killed-1"]
    made = stored.plan(whole(known, 0.2), out=tmp_path / "p", executor=ray_executor)
    wanted = oc.estimate(known, folder, estimator=Constant(), out=tmp_path / "c").plan(
        whole(known, 0.2), out=tmp_path / "q"
    )
    assert choices(made).tolist() == choices(wanted).tolist()
