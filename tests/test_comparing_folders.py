"""compare on folders of saved profiles: the same numbers as in memory, whatever the files look like."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import occamroute as oc
from occamroute import part_folders
from occamroute.cli._app import app
from occamroute.evaluation.baselines import METHODS
from occamroute.evaluation.large_judging import Moments
from occamroute.evaluation.large_methods import LARGE_METHODS
from occamroute.evaluation.large_scoring import drawn_means
from occamroute.evaluation.large_values import UniformValues

SHARES = (0.02, 0.1, 0.4)
QUICK = ("single_best", "random", "bagged")
INTERVALS = ("difference_interval", "dearest_difference_interval", "drop_interval", "way_interval")


@pytest.fixture(scope="module", autouse=True)
def short_parts() -> Iterator[None]:
    """A thousand queries are four parts, as millions are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_folders, "FEWEST_ROWS", 256)
        yield


def written(test: oc.Profile, place: Path, ends: Sequence[int] = (130, 131, 520)) -> Path:
    """The rows in files of odd lengths."""
    place.mkdir(parents=True, exist_ok=True)
    for number, (start, stop) in enumerate(zip((0, *ends), (*ends, len(test)), strict=True)):
        oc.save(test.take(np.arange(start, stop)), place / f"{number}.parquet")
    return place


@pytest.fixture(scope="module")
def known(cifar10_small: tuple[oc.Profile, oc.Profile]) -> oc.Profile:
    return cifar10_small[0].take(np.arange(600))


@pytest.fixture(scope="module")
def test(cifar10_small: tuple[oc.Profile, oc.Profile]) -> oc.Profile:
    return cifar10_small[1]


@pytest.fixture(scope="module")
def folder(test: oc.Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(test, tmp_path_factory.mktemp("judged"))


def budgets(profile: oc.Profile, rows: int = 1000, shares: Sequence[float] = SHARES) -> list[float]:
    return [share * float(profile.mean_costs.max()) * rows for share in shares]


def assert_same(large: oc.Report, held: oc.Report) -> None:
    """Everything but what was drawn, which is as far off as chance has it."""
    assert [(row["method"], row["budget"]) for row in large.rows] == [
        (row["method"], row["budget"]) for row in held.rows
    ]
    for one, other in zip(large.rows, held.rows, strict=True):
        assert one.keys() == other.keys()
        for name in ("usage", "exact_cost", "cost", "cost_share", "budget_share", "extractor", "chosen"):
            assert one[name] == other[name], (one["method"], name)
        for name in set(one) - set(INTERVALS):
            assert one[name] == other[name] or one[name] == pytest.approx(other[name], abs=1e-12), (one["method"], name)
        for name in INTERVALS:
            assert (one.get(name) is None) == (other.get(name) is None), (one["method"], name)
            if one.get(name) is not None:
                width = other[name][1] - other[name][0]
                assert one[name] == pytest.approx(other[name], abs=0.15 * width + 1e-12), (one["method"], name)
    for name in set(held.about) - {"test", "seconds", "calibration", "averages", "accuracy_intervals"}:
        wanted = held.about[name]
        assert large.about[name] == wanted or large.about[name] == pytest.approx(wanted, abs=1e-12), name
    for name, ends in held.about["averages"].items():
        assert large.about["averages"][name] == pytest.approx(ends, abs=1e-12)
    assert np.abs(np.subtract(large.about["accuracy_intervals"], held.about["accuracy_intervals"])).max() < 1e-12


@pytest.fixture(scope="module")
def both(known: oc.Profile, test: oc.Profile, folder: Path, all_candidates: None) -> tuple[oc.Report, oc.Report]:
    """Every method, and an estimator of the caller's, on the folder and in memory."""
    methods: dict[str, Any] = {name: name for name in METHODS if name != "auto"}
    methods |= {"auto": "auto_uncombined", "mine": oc.BaggedNeighbors(50)}
    held = oc.compare(known, test, budgets=budgets(known), methods=methods)
    large = oc.compare(known, folder, budgets=budgets(known), methods=methods | {"auto": "auto"})
    return large, held


def test_the_same_as_in_memory(both: tuple[oc.Report, oc.Report]) -> None:
    """Accuracies, bills, choices, gaps and promises of every method at every budget, from files of odd lengths."""
    large, held = both
    assert set(LARGE_METHODS) == set(METHODS)
    assert_same(large, held)
    assert (large.about["combined"], large.about["intervals"]) == (False, "normal")
    assert {row["method"] for row in large.rows if row["budget_share"] == pytest.approx(0.02)} < set(large.methods)


def test_promises_by_tenths(both: tuple[oc.Report, oc.Report]) -> None:
    """Groups are about as large, and all queries are in one; what they reached adds up to the accuracy."""
    large, held = (report.about["calibration"] for report in both)
    assert [(one["method"], one["budget"]) for one in large] == [(one["method"], one["budget"]) for one in held]
    assert large
    for one, other in zip(large, held, strict=True):
        (row,) = (row for row in both[0].of(one["method"]) if row["budget"] == one["budget"])
        assert sum(one["count"]) == 1000
        reached = np.dot(one["count"], one["reached"]) / 1000
        assert reached == pytest.approx(row["accuracy"], abs=1e-6)
        assert np.dot(one["count"], one["estimated"]) / 1000 == pytest.approx(
            np.dot(other["count"], other["estimated"]) / 1000, abs=1e-5
        )
        assert one["estimated"] == sorted(one["estimated"])
        if len(one["count"]) == len(other["count"]):
            assert one["count"] == pytest.approx(other["count"], abs=40)


def test_other_prices_several_sets_and_seeds(tmp_path: Path) -> None:
    """Bills are at the test queries' prices; baselines look at the set asked for; seeds are averaged as in memory."""
    random = np.random.default_rng(0)

    def made(rows: int, costs: tuple[float, ...]) -> oc.Profile:
        features = random.random((rows, 3))
        success = random.random((rows, 3)) < np.stack([features[:, 0], features[:, 1], np.full(rows, 0.8)], axis=1)
        sets: dict[str, Any] = {"a": features[:, :2], "hash": features[:, 1:].astype(np.float32)}
        return oc.Profile(("a", "b", "c"), costs, sets, success, extractor="a", extractor_cost={"hash": 0.013})

    known, fresh = made(200, (0.1, 1.0, 3.0)), made(700, (0.2, 1.0, 2.5))
    place = written(fresh, tmp_path / "judged")
    options: dict[str, Any] = {
        "budgets": budgets(fresh, 700, (0.1, 0.3)), "seeds": 2, "seed": 5, "extractor": "hash", "reference": "random",
        "methods": ["random", "bagged", "forest_regularized", "single_best", "auto"],
    }  # fmt: skip
    assert_same(oc.compare(known, place, **options), oc.compare(known, fresh, **options))
    alone = tmp_path / "judged.parquet"
    oc.save(fresh, alone)
    single = oc.compare(known, alone, budgets=[500.0], methods=["single_best"])
    assert single.about["test"] == fresh.fingerprint


def test_numbers_drawn_part_by_part() -> None:
    """The same as in one draw, wherever a part begins."""
    whole = np.random.default_rng(7).uniform(size=(1000, 3))
    for start, stop in ((0, 10), (256, 512), (999, 1000)):
        assert np.array_equal(UniformValues(3, 7).part(0, start, stop), whole[start:stop])


def test_means_that_might_have_been() -> None:
    """As far apart as the covariance says, the same for columns that are alike; parts add up to the whole."""
    random = np.random.default_rng(1)
    table = (random.random((5000, 3)) < (0.3, 0.6, 0.999)).astype(float)
    table = np.column_stack([table, table[:, 0], np.ones(5000)])
    whole = Moments.of(table.copy())
    parts = Moments.of(table[:1700].copy()).joined(Moments.of(table[1700:1701].copy()))
    parts = parts.joined(Moments.of(table[1701:].copy()))
    assert parts.mean == pytest.approx(table.mean(axis=0), rel=1e-14)
    assert parts.covariance == pytest.approx(np.cov(table.T, bias=True), rel=1e-10, abs=1e-16)
    drawn = drawn_means(whole, 0)
    assert drawn.shape == (1000, 5)
    assert np.cov(drawn[:, :3].T) * 5000 == pytest.approx(np.cov(table[:, :3].T), abs=0.03)
    assert np.abs(drawn[:, 3] - drawn[:, 0]).max() < 1e-14
    assert np.abs(drawn[:, 4] - 1.0).max() < 1e-14


class StoppedError(Exception):
    """Somebody pulled the plug."""


def test_an_interrupted_comparison_goes_on(
    known: oc.Profile, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimates that were finished are not made again; at the end what was made is gone, and nothing else is."""
    work = tmp_path / "work"
    options: dict[str, Any] = {"budgets": budgets(known, shares=(0.2,)), "methods": QUICK}
    work.mkdir()
    (work / "estimate-notes").mkdir()
    wanted = oc.compare(known, folder, **options)

    def stop(done: int, total: int) -> None:
        if done >= 0.9 * total:
            raise StoppedError

    with pytest.raises(StoppedError):
        oc.compare(known, folder, **options, out=work, progress=stop)
    kept = {file: file.stat().st_mtime_ns for file in work.rglob("part-*.parquet")}
    assert len(kept) == 8  # true success and the estimates of one estimator, in four parts each
    monkeypatch.setattr(oc.BaggedNeighbors, "fit", None)
    seen: list[float] = []
    found = oc.compare(known, folder, **options, out=work, progress=lambda done, total: seen.append(done / total))
    assert found.rows == wanted.rows
    assert [path.name for path in work.iterdir()] == ["estimate-notes"]
    assert seen[-1] == 1.0
    assert seen == sorted(seen)


def test_the_same_on_ray(known: oc.Profile, folder: Path, ray_cluster: None) -> None:
    """Local and Ray give the same report, but for the seconds."""
    options: dict[str, Any] = {"budgets": budgets(known, shares=(0.1, 0.3)), "methods": (*QUICK, "kernel")}
    here = oc.compare(known, folder, **options)
    there = oc.compare(known, folder, **options, executor="ray")
    assert there.rows == here.rows
    assert {**there.about, "seconds": 0} == {**here.about, "seconds": 0}


def test_what_cannot_be_judged_gets_one_sentence(known: oc.Profile, test: oc.Profile, tmp_path: Path) -> None:
    """Groups, costs by query, files that do not go together, damaged or other files."""
    few = test.take(np.arange(60))
    grouped = written(replace(few, groups=np.arange(60) // 2), tmp_path / "grouped", (20,))
    with pytest.raises(oc.InvalidInputError, match="judged one by one, got groups that belong together"):
        oc.compare(known, grouped)
    priced = written(replace(few, costs=np.tile(few.costs, (60, 1))), tmp_path / "priced", (20,))
    with pytest.raises(oc.InvalidInputError, match="one cost for each classifier, got costs by query"):
        oc.compare(known, priced)
    mixed = written(few, tmp_path / "mixed", (20,))
    oc.save(replace(few, costs=2 * few.costs), mixed / "2.parquet")
    with pytest.raises(oc.StorageError, match=r"2\.parquet: its costs are not those of 0\.parquet"):
        oc.compare(known, mixed)
    oc.save(oc.plan(known, few.features, budget=1.0), tmp_path / "plan.parquet")
    with pytest.raises(oc.StorageError, match="it holds a plan, a saved profile is needed"):
        oc.compare(known, tmp_path / "plan.parquet")
    with pytest.raises(oc.InvalidInputError, match="the same classifiers"):
        oc.compare(known.select(known.names[:3]), written(few, tmp_path / "seven", (20,)))
    with pytest.raises(oc.BudgetTooSmallError, match="at least"):
        oc.compare(known, tmp_path / "seven", budgets=[1e-9], methods=["bagged"])
    with pytest.raises(oc.InvalidInputError, match="a name or an estimator with fit and predict"):
        oc.compare(known, tmp_path / "seven", methods={"mine": 3})
    table = pq.read_table(tmp_path / "seven" / "0.parquet")
    place = table.column_names.index(f"success:{known.names[0]}")
    pq.write_table(table.set_column(place, table.field(place), pa.array(np.full(20, 1.5))), tmp_path / "wrong.parquet")
    with pytest.raises(oc.InvalidInputError, match=r"success must lie in \[0, 1\], got 1\.5"):
        oc.compare(known, tmp_path / "wrong.parquet")
    with pytest.raises(oc.InvalidInputError, match="those of a profile are not kept"):
        oc.compare(known, few, out=tmp_path / "work")
    with pytest.raises(oc.StorageError, match="no such file"):
        oc.compare(known, tmp_path / "nowhere")


def test_from_the_command_line_to_the_page(known: oc.Profile, folder: Path, tmp_path: Path) -> None:
    """The folder after --test; the report is a file as always, with its page and its chart."""
    oc.save(known, tmp_path / "known.parquet")
    out = tmp_path / "report.parquet"
    called = ["compare", str(tmp_path / "known.parquet"), "--test", str(folder), "--share", "0.2", "--out", str(out)]
    run = CliRunner().invoke(app, [*called, "--methods", "single_best,auto"])
    assert run.exit_code == 0, run.output
    assert "on 1,000 queries" in run.stdout
    assert "(paired, normal)" in run.stdout
    assert not Path(f"{out}.estimates").exists()
    report = oc.load(out)
    assert report.chart().startswith("<svg")
    page = tmp_path / "page.html"
    made = CliRunner().invoke(app, ["report", str(out), "--out", str(page), "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["out"] == str(page)
    text = page.read_text()
    assert "draws from the normal distribution" in text
    assert "Answers were not combined" in text
    assert "resamples of the queries" not in text
    assert "paired bootstrap" not in text
