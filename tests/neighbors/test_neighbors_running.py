"""Threads, processes, blocks and memory."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from occamroute.neighbors import METRICS, GroupIndex, PoolAverages, PoolIndex


def answers(metric: str, threads: int | None, queries: slice = slice(None)) -> tuple[Any, ...]:
    """Everything the indexes answer about data with ties and near-ties."""
    rng = np.random.default_rng(0)
    rows = np.round(rng.normal(size=(2100, 24)), 1).astype(np.float32)
    asked = np.round(rng.normal(size=(700, 24)), 1).astype(np.float32)[queries]
    values, weights = rng.random((2100, 3)), np.full((2, 40), [[0.02], [0.01]])
    groups = GroupIndex(rows, np.arange(2100).reshape(7, 300), metric=metric, threads=threads)
    pool = PoolIndex(rows, metric=metric, threads=threads)
    near, average = groups.search(asked), groups.average(asked, values)
    ranked, weighted = pool.search(asked, 40), pool.average(asked, values, weights)
    means = weighted.means.transpose(1, 0, 2)
    return (
        near.distances, near.rows, near.ties, average.means, average.distance,
        ranked.distances, ranked.rows, means, weighted.distance,
    )  # fmt: skip


def assert_same(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("metric", METRICS)
def test_threads_change_nothing(metric: str) -> None:
    """One thread and five give the same bits."""
    assert_same(answers(metric, 1), answers(metric, 5))


@pytest.mark.parametrize("metric", METRICS)
def test_blocks_change_nothing(metric: str) -> None:
    """A query's answer does not depend on the queries asked with it."""
    whole = answers(metric, 2)
    for part in (slice(0, 1), slice(3, 20), slice(650, 700)):
        assert_same(tuple(array[part] for array in whole), answers(metric, 2, part))


def parts_of(average: PoolAverages, some: slice = slice(None)) -> tuple[Any, ...]:
    """All that an average says about some of its queries."""
    nearest = average.nearest
    return average.means[:, some], average.distance[some], nearest.distances[some], nearest.rows[some]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("width", [10, 300])
def test_a_decision_can_be_made_again(metric: str, width: int) -> None:
    """A query alone, among sixteen and in a large call has the same bits in its averages."""
    rng = np.random.default_rng(1)
    rows, queries = rng.normal(size=(3000, width)), rng.normal(size=(160, width))
    values, weights = rng.random((3000, 4)), np.full((1, 70), 0.01)
    index = PoolIndex(rows.astype(np.float32), metric=metric, threads=2)
    averager = index.averager(values, weights, show=8)
    whole = index.average(queries, values, weights, show=8)
    assert whole.nearest.rows.shape == (160, 8)
    for start in range(0, 160, 16):
        together = averager.average(queries[start : start + 16])
        assert_same(parts_of(whole, slice(start, start + 16)), parts_of(together))
        alone = averager.average(queries[start : start + 1])
        assert_same(parts_of(together, slice(0, 1)), parts_of(alone))


def test_an_averager_in_eight_threads() -> None:
    """Threads that share an averager do not share its memory."""
    rng = np.random.default_rng(2)
    queries = rng.normal(size=(64, 60))
    averager = PoolIndex(rng.normal(size=(3000, 60))).averager(rng.random((3000, 4)), np.full((1, 70), 0.01))
    whole = averager.average(queries)
    with ThreadPoolExecutor(8) as pool:
        for i, result in enumerate(pool.map(lambda i: averager.average(queries[i : i + 1]), range(64))):
            assert_same(parts_of(whole, slice(i, i + 1)), parts_of(result))


def test_eight_callers_at_once() -> None:
    """Eight threads may search at the same time."""
    whole = answers("l2", 2)
    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(lambda _: answers("l2", 2), range(8)):
            assert_same(whole, result)


def _in_child(metric: str) -> float:
    return float(sum(np.sum(part) for part in answers(metric, 2)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("metric", METRICS)
def test_a_forked_child(metric: str) -> None:
    """A child forked after the parent has searched can search too."""
    wanted = _in_child(metric)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_in_child, (metric,)).get(timeout=60) == wanted


def test_memory_is_bounded() -> None:
    """Neither index ever holds a distance for every query and row."""
    script = """
import resource
import numpy as np
from occamroute.neighbors import GroupIndex, PoolIndex

rng = np.random.default_rng(0)
rows, queries = rng.random((20_000, 50), dtype=np.float32), rng.random((5_000, 50), dtype=np.float32)
values, weights = rng.random((20_000, 2)), np.full((1, 100), 0.01)
few = slice(0, 8)
for metric in ("linf", "l2"):
    GroupIndex(rows[:200], np.arange(200).reshape(2, 100), metric=metric).average(queries[few], values[:200])
    PoolIndex(rows[:200], metric=metric).average(queries[few], values[:200], weights)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for metric in ("linf", "l2"):
    GroupIndex(rows, np.arange(20_000).reshape(20, 1000), metric=metric).average(queries, values)
    PoolIndex(rows, metric=metric).average(queries, values, weights)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 100  # MB; all distances at once would be 400
