"""The nearest row in each sample on a GPU: against the ceiling of its arithmetic, torch.cdist, and the processor.

    python benchmarks/gpu/neighbors.py --out benchmarks/gpu

Answers are compared with the processor's, bit by bit, before anything is timed. The ceiling is what the same device
does in the same run when it computes differences of coordinates in registers and reads no memory; for l2, a third of
what torch multiplies float16 matrices with, as three such products make the distances.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from occamroute.neighbors import GroupIndex

Array = npt.NDArray[Any]
METRICS = {"linf": float("inf"), "l1": 1.0, "l2": 2.0}
CODES = {"l1": 1, "l2": 2, "linf": 3}
LOOPS = 4000
KINDS = (
    "normal", "probabilities", "saturated", "quantised", "duplicates", "offset",
    "huge", "mixed", "far", "clusters", "tails",
)  # fmt: skip


def ceiling_kernel(out, loops, metric: tl.constexpr, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """Differences in registers, accumulated as the metric says."""
    i = tl.arange(0, size)
    a, far, b = i.to(tl.float32) * 0.1, tl.zeros([size], tl.float32), 0.3
    for _ in range(loops):
        for _ in tl.static_range(8):
            apart = a - b
            if metric == 3:
                far = tl.maximum(far, tl.abs(apart))
            elif metric == 1:
                far += tl.abs(apart)
            else:
                far += apart * apart
            b = b + 0.37
    tl.store(out + i, far, mask=far == 12345.0)


def seconds(function: Callable[[], Any], repeats: int) -> float:
    """The least time on the device's clock."""
    function()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        stop.record()
        torch.cuda.synchronize()
        times.append(float(start.elapsed_time(stop)) / 1e3)
    return min(times)


def wall(function: Callable[[], Any], repeats: int) -> float:
    """The least time that a caller waits."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def ceiling(metric: str) -> float:
    """Differences of coordinates a second, at the best of a few sizes."""
    if metric == "l2":
        matrix = torch.randn((8192, 8192), dtype=torch.float16, device="cuda")
        return 8192**3 / 3 / seconds(lambda: matrix @ matrix, 10)
    kernel, out = triton.jit(ceiling_kernel), torch.zeros(1 << 14, device="cuda")
    blocks = 8 * torch.cuda.get_device_properties(0).multi_processor_count
    best = 0.0
    for size, warps in ((1024, 4), (2048, 4), (4096, 8), (8192, 8)):

        def launch(size: int = size, warps: int = warps) -> None:
            kernel[(blocks,)](out, LOOPS, CODES[metric], size, num_warps=warps, enable_fp_fusion=True)

        best = max(best, blocks * size * LOOPS * 8 / seconds(launch, 3))
    return best


def make(kind: str, count: int, width: int, rng: np.random.Generator) -> Array:
    """Rows of one kind of data."""
    both = rng.normal(size=(count, width))
    if kind in ("probabilities", "saturated"):
        grown = np.exp(both * (2.0 if kind == "probabilities" else 60.0))
        both = grown / grown.sum(axis=1, keepdims=True)
    elif kind == "quantised":
        both = np.round(both)
    elif kind == "duplicates":
        both = both[rng.integers(0, count // 10, size=count)]
    elif kind == "offset":
        both = both * 1e-3 + 4096.0
    elif kind == "huge":
        both = both * 1e30
    elif kind == "mixed":
        both = both * 10.0 ** rng.integers(-20, 20, size=width)
    elif kind == "far":
        both[:: count // 7] *= 1e25
    elif kind == "clusters":
        both = both[rng.integers(0, 20, size=count)] + both * 1e-4
    elif kind == "tails":
        both *= np.exp(rng.normal(size=(count, 1)))
    return both


def check(kind: str, metric: str, dtype: str, rng: np.random.Generator) -> dict[str, Any]:
    """Compare every bit of what both answer about one kind of data; with the share of pairs that had to be settled."""
    width = int(rng.integers(3, 130))
    both = make(kind, 9000, width, rng).astype(dtype)
    rows, queries, values = both[:8000], both[8000:], rng.random((8000, 4))
    groups = rng.permutation(8000)[: 7 * int(rng.integers(20, 1100))].reshape(7, -1)
    here = GroupIndex(rows, groups, metric=metric, device="cpu")
    there = GroupIndex(rows, groups, metric=metric, device="cuda")
    near, found = here.search(queries), there.search(queries)
    average, also = here.average(queries, values), there.average(queries, values)
    same = all(
        np.array_equal(one, other)
        for one, other in (
            (near.distances, found.distances), (near.rows, found.rows), (near.ties, found.ties),
            (average.means, also.means), (average.distance, also.distance),
        )
    )  # fmt: skip
    assert same, (kind, metric, dtype, width, groups.shape)
    return {"kind": kind, "metric": metric, "dtype": dtype, "width": width, "size": groups.shape[1],
            "margin used": margin_used(there, queries),
            "pairs with ties": float((near.ties > 1).mean())}  # fmt: skip


def margin_used(index: GroupIndex, queries: Array) -> float | None:
    """How much of what products of matrices may lose they do lose, at most; None where differences are computed."""
    device = index._gpu._groups_there
    if device is None or device._products is None or device._kept is None:
        return None
    _, pictured, _, near = device._search(torch.tensor(queries, device="cuda"), device._kept)
    rows = device._margins.picture(device._kept.exact).double()
    nearest = rows[torch.arange(len(rows), device="cuda"), near.position.long()]
    true = (pictured.picture.double()[:, None] - nearest).square().sum(dim=2)
    least = near.best.double() + near.floor
    return float(((2.0 * true - near.most - least) / (near.most - least)).abs().max())


def cdist(queries: Any, rows: Any, groups: int, p: float, block: int) -> None:
    """What torch has: distances in blocks, then the least of each sample."""
    for part in queries.split(block):
        torch.cdist(part, rows, p=p).view(len(part), groups, -1).min(dim=2)


def from_arrays(queries: Array, rows: Array, groups: int, block: int) -> tuple[Array, Array]:
    """The same for l2, from arrays to arrays."""
    there = torch.tensor(rows, device="cuda")
    parts = [torch.tensor(queries[start : start + block], device="cuda") for start in range(0, len(queries), block)]
    found = [torch.cdist(part, there).view(len(part), groups, -1).min(dim=2) for part in parts]
    values, indices = (torch.cat([one[i] for one in found]).cpu().numpy() for i in range(2))
    return values, indices


def measure(metric: str, queries: Array, rows: Array, groups: Array, few: int) -> dict[str, Any]:
    """Times of one metric, after a look at the answers for the first few queries."""
    values = np.random.default_rng(1).random((len(rows), 8))
    here = GroupIndex(rows, groups, metric=metric, device="cpu")
    there = GroupIndex(rows, groups, metric=metric)
    near, found = here.search(queries[:few]), there.search(queries)
    assert np.array_equal(near.distances, found.distances[:few])
    assert np.array_equal(near.rows, found.rows[:few])
    assert np.array_equal(near.ties, found.ties[:few])
    assert np.array_equal(here.average(queries[:few], values).means, there.average(queries[:few], values).means)
    device = there._gpu._groups_there
    assert device is not None  # a job of this size goes there by itself
    kept = device._kept
    assert kept is not None
    asked, on_device = torch.tensor(queries, device="cuda"), torch.tensor(rows, device="cuda")
    length = (1 << 23) // device._height

    def searched() -> list[Any]:
        return [device._search(part, kept) for part in asked.split(length)]

    def fetched() -> list[Any]:
        return [device._fetched(one, kept, True) for one in searched()]

    unsettled = sum(int((one.listed >= 0).sum()) for one in fetched())
    differences = queries.size * groups.size
    most = ceiling(metric)
    times = {
        "device": seconds(searched, 5),
        "device and lists": seconds(fetched, 5),
        "search": wall(lambda: there.search(queries), 3),
        "average": wall(lambda: there.average(queries, values), 3),
        "processor search": wall(lambda: here.search(queries[:few]), 2) * len(queries) / few,
    }
    peer = asked[: len(asked) // (10 if metric == "l1" else 1)]

    def by_torch(queries: Any, block: int) -> float:
        return seconds(lambda: cdist(queries, on_device, len(groups), METRICS[metric], block), 1)

    block = min((500, 1000, 4000), key=lambda block: by_torch(peer[:8000], block))
    whole = by_torch(peer, block)
    times["torch.cdist"] = whole * len(asked) / len(peer)
    if metric == "l2":
        times["torch.cdist from arrays"] = wall(lambda: from_arrays(queries, rows, len(groups), block), 3)
    return {
        "metric": metric,
        "ceiling": most,
        "differences": differences,
        "share of ceiling": differences / times["device"] / most,
        "seconds": times,
        "torch.cdist block": block,
        "unsettled pairs": unsettled / found.rows.size,
        "margin used": margin_used(there, queries[:few]),
    }


def tied(rng: np.random.Generator) -> dict[str, Any]:
    """Times for rows of whole numbers, where nearly every nearest distance is a tie and must be settled."""
    both = np.round(rng.normal(size=(60_000, 64))).astype(np.float32)
    rows, queries, values = both[:40_000], both[40_000:], rng.random((40_000, 8))
    groups = np.arange(40_000).reshape(40, -1)
    here, there = (GroupIndex(rows, groups, device=device) for device in ("cpu", "cuda"))
    average, also = here.average(queries, values), there.average(queries, values)
    assert np.array_equal(average.means, also.means)
    return {
        "pairs with ties": float((there.search(queries).ties > 1).mean()),
        "average": wall(lambda: there.average(queries, values), 2),
        "processor average": wall(lambda: here.average(queries, values), 2),
    }


def as_markdown(result: dict[str, Any]) -> str:
    """The table of times."""
    q, n, d, k = (result[name] for name in ("queries", "rows", "dimensions", "samples"))
    lines = [
        "# Neighbours on a GPU",
        "",
        f"{q:,} queries, {n:,} rows of {d} dimensions in {k} samples, float32; {result['device']}, torch "
        f"{result['torch']}, Triton {result['triton']}, {result['cores']} processor cores. Written by "
        "`benchmarks/gpu/neighbors.py`, after comparing every bit of the answers with the processor's: "
        f"{len(result['checks'])} sets of data, and the first {result['compared']:,} queries of this one.",
        "",
        "| | " + " | ".join(f"`{one['metric']}`" for one in result["measured"]) + " |",
        "| --- |" + " ---: |" * len(result["measured"]),
    ]

    def line(name: str, cell: Callable[[dict[str, Any]], str]) -> None:
        lines.append(f"| {name} | " + " | ".join(cell(one) for one in result["measured"]) + " |")

    def faster(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda one: f"{one['seconds']['torch.cdist'] / one['seconds'][name]:.1f} ×"

    line("ceiling, 10¹² differences a second", lambda one: f"{one['ceiling'] / 1e12:.1f}")
    line("search on the device alone, seconds", lambda one: f"{one['seconds']['device']:.3f}")
    line("the same with lists and exact distances", lambda one: f"{one['seconds']['device and lists']:.3f}")
    line("share of the ceiling", lambda one: f"{one['share of ceiling']:.0%}")
    line("`torch.cdist` in blocks and `min`, seconds", lambda one: f"{one['seconds']['torch.cdist']:.2f}")
    line("the device alone is faster by", faster("device"))
    line("`search`, arrays in and answers out, seconds", lambda one: f"{one['seconds']['search']:.3f}")
    line("`search` is faster than `torch.cdist` by", faster("search"))
    line("`average`, arrays in and answers out, seconds", lambda one: f"{one['seconds']['average']:.3f}")
    line("`average` is faster than `torch.cdist` by", faster("average"))
    line(
        "`torch.cdist`, arrays in and answers out, seconds",
        lambda one: f"{one['seconds']['torch.cdist from arrays']:.3f}" if one["metric"] == "l2" else "",
    )
    line("`search` on the processor, seconds", lambda one: f"{one['seconds']['processor search']:.1f}")
    line("pairs settled by the processor", lambda one: f"{one['unsettled pairs']:.2%}")
    ties, l2 = result["ties"], next(one for one in result["measured"] if one["metric"] == "l2")
    floor, moved = l2["differences"] / l2["ceiling"], 4 * (q + n) * d + 12 * q * k
    multiplied = [one["margin used"] for one in (*result["checks"], l2) if one["margin used"] is not None]
    used = max(multiplied)
    lines += [
        "",
        "For l1 and l∞ the ceiling is that of differences in registers. For l2, three products of float16 matrices "
        "make the distances, and a third of what torch does with such matrices is the ceiling: "
        f"{floor:.3f} seconds for this job. The bytes that must be moved, {moved / 1e9:.1f} GB, take far less. Of what "
        f"such products may lose by the margin, they lost {used:.0%} at most, in {len(multiplied)} of the sets of "
        "data; in the others of l2, rows have few dimensions or are too close to each other, and differences are "
        "computed.",
        "",
        f"20,000 queries and 40,000 rows of 64 whole numbers, where {ties['pairs with ties']:.0%} of the nearest "
        f"distances are ties and have to be settled: `average` takes {ties['average']:.2f} seconds, "
        f"on the processor alone {ties['processor average']:.1f}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compare, time, and write a JSON file and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--few", type=int, default=4000, help="queries compared with the processor")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "benchmarks/gpu")))
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    dtypes = "float32", "float64"
    checks = [check(kind, metric, dtype, rng) for kind in KINDS for metric in METRICS for dtype in dtypes]
    for one in checks:
        print(one, flush=True)
    queries = rng.standard_normal((options.queries, options.dimensions), dtype=np.float32)
    rows = rng.standard_normal((options.rows, options.dimensions), dtype=np.float32)
    groups = np.arange(options.rows).reshape(options.samples, -1)
    measured = []
    for metric in METRICS:
        measured.append(measure(metric, queries, rows, groups, min(options.few, len(queries))))
        print(json.dumps(measured[-1]), flush=True)
    result = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "cores": len(os.sched_getaffinity(0)), "queries": options.queries, "rows": options.rows,
        "dimensions": options.dimensions, "samples": options.samples, "compared": min(options.few, len(queries)),
        "measured": measured, "ties": tied(rng), "checks": checks,
    }  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (options.out / "results.md").write_text(as_markdown(result), encoding="utf-8")
    print(as_markdown(result))


if __name__ == "__main__":
    main()
