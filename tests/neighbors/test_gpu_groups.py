"""What a GPU finds has the processor's bits; here its kernels run in Triton's interpreter, which needs no GPU."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton's wheels are for Linux alone")

import torch
from test_neighbors_answers import KINDS, make

import occamroute as oc
from occamroute.neighbors import METRICS, GroupIndex, gpu, gpu_groups, gpu_products
from occamroute.neighbors.coarse import Coarse
from occamroute.neighbors.gpu_groups import DeviceGroups
from occamroute.neighbors.gpu_margins import Margins
from occamroute.neighbors.gpu_products import Products
from occamroute.neighbors.metrics import L2


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Go to torch's processor where a GPU is asked for; the numbers of pairs that float32 could not settle."""
    unsettled: list[int] = []
    fetched = DeviceGroups._fetched

    def counted(self: Any, *given: Any) -> Any:
        found = fetched(self, *given)
        unsettled.append(int((found.listed >= 0).sum()))
        return found

    monkeypatch.setattr(DeviceGroups, "_fetched", counted)
    monkeypatch.setattr(gpu, "_WHERE", "cpu")
    monkeypatch.setattr(gpu, "_require_device", lambda: None)
    monkeypatch.setattr(gpu, "_device_is_there", lambda: True)
    monkeypatch.setattr(gpu, "_room", lambda: 1 << 30)
    monkeypatch.setattr(gpu, "_multiplies", lambda: True)
    return unsettled


def answers(index: GroupIndex, queries: Any, rows: int) -> list[Any]:
    near = index.search(queries)
    average = index.average(queries, np.random.default_rng(5).random((rows, 3)))
    return [near.distances, near.rows, near.ties, average.means, average.distance]


def check(rows: Any, queries: Any, groups: Any, metric: str) -> GroupIndex:
    """Compare all answers, bit by bit."""
    wanted = answers(GroupIndex(rows, groups, metric=metric, device="cpu"), queries, len(rows))
    index = GroupIndex(rows, groups, metric=metric, device="cuda")
    for one, other in zip(answers(index, queries, len(rows)), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    return index


# Ordinary and repeated rows with every metric, every other kind of data with one of them.
PAIRS = [
    (kind, metric)
    for number, kind in enumerate(KINDS)
    for metric in (METRICS if kind in ("plain", "duplicates") else [METRICS[number % 3]])
]


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("kind", "metric"), PAIRS)
def test_the_same_bits(kind: str, metric: str) -> None:
    """Whatever the data, with ties, duplicates and numbers of all sizes."""
    dtype = ("float32", "float64")[(KINDS.index(kind) + METRICS.index(metric)) % 2]
    rng = np.random.default_rng(KINDS.index(kind))
    for width in (7, 17) if metric == "l2" else (7,):  # from 17 on, products of matrices give the distances
        rows, queries = make(kind, rng, 60, width, dtype)
        check(rows, queries[:5], rng.integers(0, 60, size=(3, 40)), metric)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("metric", METRICS)
def test_wide_rows(metric: str) -> None:
    """300 columns are no different, an odd one more neither."""
    rows, queries = make("plain", np.random.default_rng(8), 40, 301, "float32")
    check(rows, queries[:3], np.arange(40).reshape(1, 40), metric)


@pytest.mark.parametrize("metric", METRICS)
def test_closer_than_float32_can_tell(metric: str, device: list[int]) -> None:
    """Rows that differ in the tenth digit are settled in float64, and only they."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(64, 9))
    rows[32:] = rows[:32] + 1e-10 * rng.normal(size=(32, 9))
    check(rows, rows[:4] + 0.01, np.arange(64)[np.newaxis], metric)
    assert device[0] == 4
    device.clear()
    check(rows, rows[:4] + 0.01, np.arange(64).reshape(2, 32), metric)
    assert device[0] == 0


def test_the_margin_is_needed(device: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, float32 would name wrong rows: the comparison above is able to fail."""
    monkeypatch.setattr(Margins, "limits", lambda self, reach, floor=None: torch.full_like(reach, -1e9).float())
    rows = 1.0 + np.random.default_rng(1).normal(size=(64, 9)) * 1e-9
    with pytest.raises(AssertionError):
        check(rows, rows[:8] + 1e-9, np.arange(64)[np.newaxis], "l1")
    assert device[0] == 0


def in_clusters(spread: float) -> GroupIndex:
    """Compare answers about rows in two clusters that are far from their common mean."""
    rows = np.sign(np.arange(192) % 2 - 0.5)[:, np.newaxis]
    rows = (rows + spread * np.random.default_rng(0).normal(size=(192, 20))).astype(np.float32)
    return check(rows[:128], rows[128:], np.arange(128)[np.newaxis], "l2")


def test_products_of_matrices(device: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """They tell rows apart that are not too close; where they leave too much open, differences take their place."""
    monkeypatch.setattr(gpu_groups, "_FEW", 0)
    there = in_clusters(0.3)._gpu._groups_there
    assert there is not None
    assert there._products is not None
    assert device[0] <= 2
    there = in_clusters(1e-3)._gpu._groups_there
    assert there is not None
    assert there._products is None
    assert device[-1] <= 2


@pytest.mark.usefixtures("device")
def test_what_products_lose_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a margin for it, wrong rows would be named."""
    monkeypatch.setattr(gpu_products, "ROUNDING", 0.0)
    with pytest.raises(AssertionError):
        in_clusters(1e-3)


def test_what_products_may_lose() -> None:
    """The true distances are within the bounds, whatever the sizes of rows and queries."""
    rng = np.random.default_rng(9)
    both = (rng.normal(size=(96, 300)) * 2.0 ** rng.integers(-60, 15, size=(96, 1))).astype(np.float32)
    both[:4] = 0.0
    both[4:8] *= 2.0 ** rng.integers(-30, 0, size=300)
    rows, queries = torch.tensor(both[::2]), torch.tensor(both[1::2])
    margins = Margins(Coarse(rows.numpy(), L2, threads=1), torch, "cpu")
    products = Products(300, 48, 32, torch=torch)
    split, pictured, picture = products.rows(1, "cpu"), margins.of(queries), margins.picture(rows)
    products.fill(split, 0, picture)
    near = products.nearest(pictured, split)
    true = (pictured.picture.double()[:, None] - picture.double()).square().sum(dim=2)
    assert bool((true.gather(1, near.position.long()) <= near.most).all())
    for part in range(2):
        least = true[:, 32 * part : 32 * part + 32].amin(dim=1, keepdim=True)
        assert bool((near.parts[part] + near.floor <= least).all())


def test_units() -> None:
    """Squares are scaled as on the processor, for numbers of all sizes."""
    queries = np.array([[0.0, 0.0], [3.0, -4.0], [1e-320, 0.0], [-1e308, 1.0], [2.0, 1.0], [0.99999999, 0.5]])
    for rows in (np.zeros((2, 2)), np.array([[1e-3, 2.0], [3.0, 1.0]])):
        coarse = Coarse(rows, L2, threads=1)
        units = Margins(coarse, torch, "cpu").units(torch.tensor(queries))
        np.testing.assert_array_equal(units.numpy(), coarse.unit(queries))


@pytest.mark.usefixtures("device")
def test_blocks_portions_and_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries in blocks, groups in portions, and a group that several programs share change nothing."""
    monkeypatch.setattr(gpu_groups, "_COORDINATES", 12)
    monkeypatch.setattr(gpu, "_room", lambda: 4 * 1536 * 4 + 8 * 1300 * 3)
    rng = np.random.default_rng(2)
    rows, queries = np.round(rng.normal(size=(1300, 3)), 2), np.round(rng.normal(size=(7, 3)), 1)
    index = check(rows, queries, rng.integers(0, 1300, size=(2, 1300)), "linf")
    there = index._gpu._groups_there
    assert there is not None
    assert there._portion == 1
    assert there._tiles == 3


@pytest.mark.parametrize("metric", METRICS)
def test_more_candidates_than_are_listed(metric: str, device: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of such groups are looked at, in the processor's order."""
    monkeypatch.setattr(gpu_groups, "_MANY", 3)
    monkeypatch.setattr(gpu_groups, "_MASK", 100)
    rng = np.random.default_rng(3)
    rows, queries = make("duplicates", rng, 50, 4, "float32")
    check(rows, queries[:4], rng.integers(0, 50, size=(2, 45)), metric)
    assert device[0] == 8


@pytest.mark.usefixtures("device")
def test_rows_that_float32_does_not_hold() -> None:
    """Numbers that begin to lose digits in float64 itself are left to the processor."""
    rows, queries = make("denormal", np.random.default_rng(4), 40, 4, "float64")
    assert check(rows, queries[:3], np.arange(40).reshape(2, 20), "l2")._gpu._groups_there is None


ROWS, QUERIES = make("quantised", np.random.default_rng(6), 40, 4, "float32")
GROUPS = np.arange(40).reshape(2, 20)


def test_large_jobs_go_to_the_device(device: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """None stays on the processor until an index has been asked enough, and for calls that are too small to send."""
    monkeypatch.setattr(gpu, "_WORTH_SENDING", 2 * 160)
    monkeypatch.setattr(gpu, "_WORTH_STARTING", 5 * 160)
    index = GroupIndex(ROWS, GROUPS)
    searches = []
    for count in (3, 2, 1, 2):
        index.search(QUERIES[:count])
        searches.append(len(device))
    assert searches == [0, 1, 1, 2]
    everything = GroupIndex(ROWS, GROUPS, device="cpu")
    everything.search(QUERIES)
    assert len(device) == 2


def test_a_copy_finds_its_own_device(device: list[int]) -> None:
    """Copies and pickles take the rows along, and nothing of the device."""
    index = GroupIndex(ROWS, GROUPS, device="cuda")
    wanted = index.search(QUERIES)
    for another in (copy.deepcopy(index), pickle.loads(pickle.dumps(index))):  # noqa: S301  # made here
        assert another._gpu._groups_there is None
        np.testing.assert_array_equal(another.search(QUERIES).rows, wanted.rows)
    assert len(device) == 3


@pytest.mark.usefixtures("device")
def test_a_device_that_others_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory the processor does it all; who asked for the device is told."""
    wanted = answers(GroupIndex(ROWS, GROUPS, device="cpu"), QUERIES, 40)

    def full(self: Any, queries: Any, values: Any, sums: Any, *_: Any, **__: Any) -> None:
        sums += 1.0  # some of the groups were done
        raise torch.cuda.OutOfMemoryError("full")

    monkeypatch.setattr(DeviceGroups, "run", full)
    monkeypatch.setattr(gpu, "_WORTH_SENDING", 0)
    monkeypatch.setattr(gpu, "_WORTH_STARTING", 0)
    average = GroupIndex(ROWS, GROUPS).average(QUERIES, np.random.default_rng(5).random((40, 3)))
    np.testing.assert_array_equal(average.means, wanted[3])
    with pytest.raises(torch.cuda.OutOfMemoryError):
        GroupIndex(ROWS, GROUPS, device="cuda").search(QUERIES)
    monkeypatch.setattr(gpu, "_room", lambda: 100)
    np.testing.assert_array_equal(GroupIndex(ROWS, GROUPS).search(QUERIES).rows, wanted[1])
    with pytest.raises(oc.InvalidInputError, match="groups must fit the memory of the device one by one, got 20 rows"):
        GroupIndex(ROWS, GROUPS, device="cuda").search(QUERIES)


def test_the_estimator(device: list[int]) -> None:
    """The paper's estimator takes a device, and so does what is shrunk from it."""
    success = np.random.default_rng(7).integers(0, 2, size=(40, 3))
    plain = oc.SampledNeighbors(4, device="cpu").fit(ROWS, success).predict_with_distance(QUERIES)
    estimator = oc.SampledNeighbors(4, device="cuda")
    for one, other in zip(estimator.fit(ROWS, success).predict_with_distance(QUERIES), plain, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(device) == 1
    assert estimator.shrunk(0.5).device == "cuda"
    assert repr(estimator) == "SampledNeighbors(n_samples=4, sample_size=None, metric='linf')"


def test_no_device() -> None:
    """A device that is not there, or not known, is refused in one sentence."""
    with pytest.raises(oc.InvalidInputError) as refused:
        GroupIndex(ROWS, GROUPS, device="tpu")
    assert str(refused.value) == "device must be None, 'cpu' or 'cuda', got 'tpu'."
    with pytest.raises(oc.InvalidInputError) as refused:
        oc.SampledNeighbors(4, device="cuda").fit(ROWS, np.ones((40, 1)))
    assert str(refused.value) == "device must be None or 'cpu' here, as torch finds no CUDA device, got 'cuda'."


def test_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch or Triton, who asked for the device is told what to install; others are not troubled."""
    monkeypatch.setattr(gpu, "_WORTH_SENDING", 0)
    monkeypatch.setattr(gpu, "_WORTH_STARTING", 0)
    for missing in ("triton", "torch"):
        monkeypatch.setitem(sys.modules, missing, None)
        with pytest.raises(oc.MissingExtraError, match=r"device 'cuda' needs .* pip install 'occamroute\[torch\]'"):
            GroupIndex(ROWS, GROUPS, device="cuda")
        assert GroupIndex(ROWS, GROUPS).search(QUERIES).rows.shape == (12, 2)


def run_python(script: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**kept, **environment}, check=True, capture_output=True, text=True
    )
    return done.stdout


def test_torch_is_not_imported_in_vain() -> None:
    """A large job on a machine that has no driver of a GPU does not pay for torch."""
    script = """
import sys
from occamroute.neighbors import GroupIndex, gpu
gpu._WORTH_SENDING = gpu._WORTH_STARTING = 0
gpu._DRIVERS = ("/dev/nothing",)
GroupIndex([[0.0], [1.0]], [[0, 1]]).search([[0.2]])
print("torch" in sys.modules)
"""
    assert run_python(script) == "False\n"


def test_the_kernels_compile(tmp_path: Path) -> None:
    """The interpreter takes more than the compiler does, which needs no GPU to make code for one."""
    script = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from occamroute.neighbors.gpu_kernels import kernels

ready = kernels()
types = {"position": "*i32", "pairs": "*i64", "wanted": "*u8", "mask": "*u8"}
types |= dict.fromkeys(("queries", "rows", "best", "second", "limits"), "*fp32")
types |= dict.fromkeys(("query_scales", "row_scales", "norms"), "*fp32")
types |= dict.fromkeys(("units", "distances"), "*fp64")
numbers = "count", "groups", "size", "height", "tiles", "tiles_each", "parts", "panels", "width"
types |= dict.fromkeys(numbers, "i32")


def code(kernel, options, **constants):
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm


for metric in (1, 2, 3):
    tiles = {"metric": metric, "query_tile": 8, "row_tile": 512, "step": 2}
    print("cubin" in code(ready.nearest_two, ready.options, **tiles))
    print("cubin" in code(ready.within, ready.options, **tiles, part_size=128))
    print("fma.rn.f64" not in code(ready.exact, ready.exact_options, metric=metric, pairs=32)["ptx"])
types |= dict.fromkeys(("queries", "rows"), "*fp16")
tiles = {"query_tile": 128, "row_tile": 128, "step": 64, "stretch": 256, "band": 16}
print("wgmma" in code(ready.nearest_by_product, ready.product_options, **tiles)["ptx"])
"""
    assert run_python(script, TRITON_CACHE_DIR=str(tmp_path)) == "True\n" * 10
