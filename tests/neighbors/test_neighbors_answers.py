"""Answers equal those of plain numpy, for every metric, dtype and kind of data."""

from __future__ import annotations

from typing import Any

import neighbors_brute as brute
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from occamroute.neighbors import METRICS, GroupIndex, PoolIndex
from occamroute.neighbors.coarse import Coarse
from occamroute.neighbors.levels import Levels
from occamroute.neighbors.metrics import LINF
from occamroute.neighbors.ordering import at_least, sort_within

Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def softmax(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    grown = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(grown / grown.sum(axis=1, keepdims=True))


def make(kind: str, rng: np.random.Generator, count: int, width: int, dtype: str) -> Arrays:
    """Rows and queries of one kind of data."""
    both = rng.normal(size=(count + 12, width))
    if kind == "quantised":
        both = np.round(both * 2.0) / 2.0
    elif kind == "duplicates":
        both = both[rng.integers(0, 3, size=len(both))]
    elif kind == "constant":
        both[:, : width // 2 + 1] = 7.25
    elif kind == "saturated":
        both = softmax(both * 30.0)
    elif kind == "softmax":
        both = softmax(both * 2.0)
    elif kind == "offset":
        both = both * 1e-3 + 4096.0
    elif kind == "huge":
        both = both * 1e30
    elif kind == "tiny":
        both = both * 1e-30
    elif kind == "mixed":
        both = both * 10.0 ** rng.integers(-30, 30, size=width)
    elif kind == "outlier":
        both[3] *= 1e30
    elif kind == "far queries":
        both[count:] *= 1e25
    elif kind == "zeros":
        both[:] = 0.0
    elif kind == "denormal":
        both = both * (1e-310 if dtype == "float64" else 1e-40)
    elif kind == "large norms":  # whose squares cancel to less than nothing in float32
        both = both[rng.integers(0, len(both) // 2, size=len(both))] * 1e5
    elif kind == "spread wide":
        both[rng.random(both.shape) < 0.01] *= 1e6
    both = both.astype(dtype)
    return both[:count], both[count:]


KINDS = [
    "plain", "quantised", "duplicates", "constant", "saturated", "softmax", "offset", "huge", "tiny", "mixed",
    "outlier", "far queries", "zeros", "denormal", "large norms", "spread wide",
]  # fmt: skip


def check_groups(rows: Any, queries: Any, groups: Any, metric: str) -> None:
    far = brute.distances(queries, rows, metric)
    index = GroupIndex(rows, groups, metric=metric)
    found = index.search(queries)
    for k, group in enumerate(groups):
        least = far[:, group].min(axis=1)
        np.testing.assert_array_equal(found.distances[:, k], least)
        tied = far[:, group] == least[:, np.newaxis]
        np.testing.assert_array_equal(found.ties[:, k], tied.sum(axis=1))
        lowest = np.where(tied, group, len(rows)).min(axis=1)
        np.testing.assert_array_equal(found.rows[:, k], lowest)
    values = np.random.default_rng(5).random((len(rows), 3))
    average = index.average(queries, values)
    np.testing.assert_allclose(average.means, brute.group_average(far, groups, values), rtol=1e-12)
    np.testing.assert_array_equal(average.distance, far[:, np.unique(groups)].min(axis=1))


def check_pool(rows: Any, queries: Any, k: int, metric: str) -> None:
    far = brute.distances(queries, rows, metric)
    index = PoolIndex(rows, metric=metric)
    order = np.argsort(far, axis=1, kind="stable")[:, :k]
    found = index.search(queries, k)
    np.testing.assert_array_equal(found.rows, order)
    np.testing.assert_array_equal(found.distances, np.take_along_axis(far, order, axis=1))
    rng = np.random.default_rng(5)
    values, weights = rng.random((len(rows), 3)), rng.random((2, k)) / k
    show = min(k + 2, len(rows) - 1) or 1
    averager = index.averager(values, weights, show=show)
    for exclude in [None] if k == len(rows) else [None, rng.integers(-1, len(rows), size=len(queries))]:
        average = index.average(queries, values, weights, exclude, show=show)
        wanted = brute.pool_average(far, values, weights, exclude)
        np.testing.assert_allclose(average.means, wanted, rtol=1e-11)
        left = far.copy()
        if exclude is not None:
            left[np.nonzero(exclude >= 0)[0], exclude[exclude >= 0]] = np.inf
        np.testing.assert_array_equal(average.distance, left.min(axis=1))
        order = np.argsort(left, axis=1, kind="stable")[:, :show]
        np.testing.assert_array_equal(average.nearest.rows, order)
        np.testing.assert_array_equal(average.nearest.distances, np.take_along_axis(left, order, axis=1))
        alone = averager.average(queries[1:2], None if exclude is None else exclude[1:2])
        np.testing.assert_array_equal(alone.means[:, 0], average.means[:, 1])


def dtype_of(kind: str, number: int) -> str:
    """Every kind of data comes with both types, and every number (of a metric, a width) with both types of kinds."""
    return ("float32", "float64")[(KINDS.index(kind) + number) % 2]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data(kind: str, metric: str) -> None:
    """Both indexes agree with brute force on ordinary, tied, shifted and badly scaled data."""
    dtype = dtype_of(kind, METRICS.index(metric))
    for width in (1, 5, 33):
        rng = np.random.default_rng(width)
        rows, queries = make(kind, rng, 150, width, dtype)
        check_groups(rows, queries, rng.permutation(150).reshape(3, 50), metric)
        for k in (1, 20, 150):
            check_pool(rows, queries, k, metric)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["plain", "quantised", "duplicates", "saturated", "offset", "far queries", "denormal"])
def test_many_boxes(kind: str, metric: str) -> None:
    """Narrow rows in many boxes, of which a query opens some: the same answers as brute force."""
    for width, dtype, k in ((10, "float32", 300), (16, "float64", 1), (2, "float64", 1600)):
        rows, queries = make(kind, np.random.default_rng(width), 1600, width, dtype)
        check_pool(rows, queries, k, metric)


@pytest.mark.parametrize("metric", METRICS)
def test_large_enough_for_all_shortcuts(metric: str) -> None:
    """Several tiles, blocks and chunks give the same answers as brute force."""
    rng = np.random.default_rng(0)
    for kind in ("plain", "softmax", "quantised"):
        rows, queries = make(kind, rng, 2600, 40, "float32")
        check_groups(rows, queries, np.arange(2600).reshape(2, 1300), metric)
        check_pool(rows, queries, 300, metric)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_whatever_the_data(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds in bytes hold where they are of little use, too."""
    monkeypatch.setattr(Levels, "_pays", lambda *_: True)
    for number, width in enumerate((17, 130, 600)):
        rng = np.random.default_rng(width)
        rows, queries = make(kind, rng, 150, width, dtype_of(kind, number))
        for k in (1, 20, 150):
            check_pool(rows, queries, k, "linf")


@pytest.mark.parametrize("kind", ["plain", "duplicates", "spread wide"])
def test_bytes_of_several_tiles(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds in bytes go on from tile to tile, the last of which is not full."""
    monkeypatch.setattr(Levels, "_pays", lambda *_: True)
    rows, queries = make(kind, np.random.default_rng(0), 2600, 50, "float32")
    check_pool(rows, queries, 300, "linf")


def test_bytes_are_chosen_where_they_pay() -> None:
    """All coordinates are looked at where distances concentrate, a few where these tell enough."""
    rng = np.random.default_rng(0)
    concentrated = rng.normal(size=(3000, 256)).astype(np.float32)
    told_by_few = concentrated * np.arange(1.0, 257.0, dtype=np.float32) ** -2
    for rows, chosen in ((concentrated, True), (told_by_few, False)):
        coarse = Coarse(rows, LINF, threads=1)
        assert coarse.partial
        assert (Levels.fitting(rows, coarse) is not None) == chosen


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 3000),
    spread=st.sampled_from([0.0, 1e-15, 1.0, 30.0]),
    zeros=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_at_least(seed: int, count: int, spread: float, zeros: float) -> None:
    """As many values as the rank says are at or below it, and of ordinary values few more."""
    rng = np.random.default_rng(seed)
    values = np.exp(spread * rng.standard_normal(count)) * (rng.random(count) >= zeros)
    rank = int(rng.integers(count))
    found = at_least(values.copy(), count, rank, np.empty(count + 2), np.empty(max(count, 512) + 2, np.int64))
    below, exactly = int((values <= found).sum()), int((values <= np.sort(values)[rank]).sum())
    assert below >= exactly
    if spread == 1.0 and zeros == 0.0:
        assert below <= exactly + 0.1 * count


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_wide_data(data: st.DataObject) -> None:
    """Whatever the width, the outliers and the ties, both pictures of wide rows agree with brute force."""
    count, width = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 600))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    levels = data.draw(st.sampled_from([2, 5, 10**9]))
    numbers = rng.integers(-levels, levels, size=(count + 3, width)) / levels
    numbers[:, rng.random(width) < data.draw(st.sampled_from([0.0, 0.5, 1.0]))] = 3.0
    numbers[rng.random(numbers.shape) < data.draw(st.sampled_from([0.0, 0.01]))] *= 1e30
    numbers = numbers[rng.integers(0, len(numbers), size=len(numbers))] if data.draw(st.booleans()) else numbers
    numbers *= data.draw(st.sampled_from([1e-310, 1e-30, 1.0, 1e30]))
    kind = data.draw(st.sampled_from(["float32", "float64", "int64"]))
    with np.errstate(over="ignore"):
        numbers = np.clip(numbers, -(2.0**40), 2.0**40).astype(kind) if kind == "int64" else numbers.astype(kind)
    numbers[~np.isfinite(numbers)] = 0
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(Levels, "_pays", lambda *_: True)
        check_pool(numbers[:count], numbers[count:], data.draw(st.integers(1, count)), "linf")


@settings(max_examples=200, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.sampled_from([0.0, 5e-324, 1e-300, 0.5, 0.75, 1e300, np.inf]), st.integers(0, 9))),
    plain=st.lists(st.floats(0.0, 1.0), max_size=60),
    bound=st.sampled_from([0.0, 0.6, 1e300, np.inf]),
)
def test_sorting(pairs: list[tuple[float, int]], plain: list[float], bound: float) -> None:
    """Pairs within the bound come in the order of their keys, then of their numbers."""
    pairs = pairs + [(key, number) for number, key in enumerate(plain)]
    count = len(pairs)
    given_keys, given_numbers = np.array([key for key, _ in pairs] + [0.0]), np.array([n for _, n in pairs] + [0])
    keys, numbers, ends = np.empty(count + 1), np.empty(count + 1, np.int64), np.empty(count + 2, np.int64)
    kept = sort_within(given_keys, given_numbers, count, bound, keys, numbers, ends)
    wanted = sorted(pair for pair in pairs if pair[0] <= bound)
    assert list(zip(keys[:kept].tolist(), numbers[:kept].tolist(), strict=True)) == wanted


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_small_data(data: st.DataObject) -> None:
    """Whatever the shapes, numbers and dtypes, answers agree with brute force."""
    metric = data.draw(st.sampled_from(METRICS))
    count, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 20))
    scale = data.draw(st.sampled_from([1e-30, 1.0, 1e3, 1e30]))
    kinds = st.sampled_from(["float32", "float64"])
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    levels = data.draw(st.sampled_from([2, 5, 10**9]))
    numbers = (rng.integers(0, levels, size=(count + 4, width)) / levels + data.draw(st.sampled_from([0, 50]))) * scale
    rows, queries = numbers[:count].astype(data.draw(kinds)), numbers[count:].astype(data.draw(kinds))
    groups = rng.integers(0, count, size=(data.draw(st.integers(1, 4)), data.draw(st.integers(1, count))))
    check_groups(rows, queries, groups, metric)
    check_pool(rows, queries, data.draw(st.integers(1, count)), metric)


@pytest.mark.parametrize("metric", METRICS)
def test_wide_rows(metric: str) -> None:
    """2,000 columns are no different."""
    rows, queries = make("plain", np.random.default_rng(1), 70, 2000, "float32")
    check_groups(rows, queries, np.arange(70).reshape(2, 35), metric)
    check_pool(rows, queries, 9, metric)


@pytest.mark.parametrize("metric", METRICS)
def test_one_row(metric: str) -> None:
    """A single row is nearest to everything."""
    check_groups(np.ones((1, 3)), np.zeros((2, 3)), np.zeros((1, 1), int), metric)
    check_pool(np.ones((1, 3)), np.zeros((2, 3)), 1, metric)


@pytest.mark.parametrize("metric", METRICS)
def test_squares_out_of_range(metric: str) -> None:
    """Numbers whose squares leave the range of float64 are still ranked."""
    for scale in (1e-200, 1e200):
        rows = np.arange(1.0, 31.0)[:, np.newaxis] * np.ones(20) * scale
        found = PoolIndex(rows, metric=metric).search(rows[:1], 30)
        assert found.rows[0].tolist() == list(range(30))
        assert np.isfinite(found.distances).all()
        assert (np.diff(found.distances[0]) > 0).all()


def test_mixed_dtypes_and_layouts() -> None:
    """float32 queries against float64 rows, and arrays in any memory order, are the same numbers."""
    rows, queries = make("plain", np.random.default_rng(2), 60, 8, "float64")
    queries = queries.astype(np.float32)
    check_groups(rows, queries, np.arange(60).reshape(4, 15), "l1")
    check_groups(rows.astype(np.float32), queries.astype(np.float64) + 1e-9, np.arange(60).reshape(4, 15), "l2")
    check_pool(np.asfortranarray(rows), queries[::2], 7, "linf")


def test_a_group_that_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups too many to keep are pictured anew in portions, with the same answers."""
    monkeypatch.setattr("occamroute.neighbors.groups._KEPT", 3000)
    rng = np.random.default_rng(3)
    rows, queries = make("quantised", rng, 40, 4, "float32")
    check_groups(rows, queries, rng.integers(0, 40, size=(50, 30)), "linf")
