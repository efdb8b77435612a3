"""Exact nearest neighbours against scikit-learn and FAISS, on real class probabilities and embeddings.

    python benchmarks/neighbors.py --data ../shared/data

Answers are checked against float64 brute force before anything is timed. Times include building the index;
each is the best of ``--repeats`` (scikit-learn: one), ours and the peer's in the same run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute.neighbors import GroupIndex, PoolIndex

Array = npt.NDArray[Any]
SIZE = 1000  # rows in a sample
RANKS = 550
# name, kind, data, metric, peer
CASES = [
    ("groups linf, probabilities (200)", "groups", "probabilities:resnet10-w32", "linf", "sklearn"),
    ("groups linf, embedding w32 (64)", "groups", "embedding:resnet10-w32", "linf", "sklearn"),
    ("groups linf, embedding w64 (64)", "groups", "embedding:resnet18-w64", "linf", "sklearn"),
    ("groups l1, embedding w32 (64)", "groups", "embedding:resnet10-w32", "l1", "sklearn"),
    ("groups l1, embedding w64 (64)", "groups", "embedding:resnet18-w64", "l1", "sklearn"),
    ("groups l2, embedding w32 (64)", "groups", "embedding:resnet10-w32", "l2", "faiss"),
    ("groups l2, embedding w64 (64)", "groups", "embedding:resnet18-w64", "l2", "faiss"),
    ("groups l2, probabilities (200)", "groups", "probabilities:resnet10-w32", "l2", "faiss"),
    ("pool linf, CIFAR-10 (10)", "pool", "cifar10", "linf", None),
    ("pool linf, probabilities (200)", "pool", "probabilities:resnet10-w32", "linf", None),
    ("pool linf, embedding w32 (64)", "pool", "embedding:resnet10-w32", "linf", None),
    ("pool l1, embedding w32 (64)", "pool", "embedding:resnet10-w32", "l1", None),
    ("pool l2, embedding w32 (64)", "pool", "embedding:resnet10-w32", "l2", "faiss"),
]


def softmax(logits: Array) -> Array:
    """Class probabilities in float32."""
    shifted = logits.astype(np.float32) - logits.max(axis=1, keepdims=True).astype(np.float32)
    grown = np.exp(shifted)
    return np.asarray(grown / grown.sum(axis=1, keepdims=True), dtype=np.float32)


def load(folder: Path, data: str) -> tuple[Array, Array]:
    """Rows (n, d) and queries (Q, d)."""
    if data == "cifar10":
        with np.load(folder / "cifar10.npz") as arrays:
            return softmax(arrays["logits_val"][:, 0]), softmax(arrays["logits_test"][:, 0])
    kind, name = data.split(":")
    with np.load(folder / "tiny_imagenet.npz") as arrays:
        if kind == "probabilities":
            return softmax(arrays[f"logits_{name}_val"]), softmax(arrays[f"logits_{name}_test"])
        rows, queries = arrays[f"embedding_{name}_val"], arrays[f"embedding_{name}_test"]
        return rows.astype(np.float32), queries.astype(np.float32)


def all_distances(query: Array, rows: Array, metric: str) -> Array:
    """Float64 brute force for one query."""
    apart = np.abs(query.astype(np.float64) - rows.astype(np.float64))
    if metric == "l2":
        return np.asarray(np.sqrt((apart**2).sum(axis=1)))
    return np.asarray(apart.max(axis=1) if metric == "linf" else apart.sum(axis=1))


def rank_weights(count: int) -> Array:
    """Two lines of weights by rank: how often a row is nearest in random samples of two sizes."""
    lines = []
    for size in (count // 40, count // 20):
        ratios = (count - np.arange(1, RANKS) - size + 1) / (count - np.arange(1, RANKS))
        lines.append(size / count * np.concatenate([[1.0], np.cumprod(ratios)]))
    return np.array(lines)


def search(kind: str, rows: Array, queries: Array, metric: str) -> Any:
    """What is timed: an index built and asked once."""
    values = np.random.default_rng(0).random((len(rows), 7))
    if kind == "pool":
        return PoolIndex(rows, metric=metric).average(queries, values, rank_weights(len(rows)))
    groups = np.arange(len(rows)).reshape(-1, SIZE)
    return GroupIndex(rows, groups, metric=metric).average(queries, values)


def check(kind: str, rows: Array, queries: Array, metric: str) -> None:
    """Compare distances, ties and averages with brute force for some of the queries, all rows."""
    some = queries[:: len(queries) // 50]
    found = search(kind, rows, some, metric)
    values = np.random.default_rng(0).random((len(rows), 7))
    if kind == "pool":
        weights, ranked = rank_weights(len(rows)), PoolIndex(rows, metric=metric).search(some, RANKS)
    else:
        groups = np.arange(len(rows)).reshape(-1, SIZE)
        nearest = GroupIndex(rows, groups, metric=metric).search(some)
    for i, query in enumerate(some):
        far = all_distances(query, rows, metric)
        if kind == "groups":
            lines = far.reshape(-1, SIZE)
            least = lines.min(axis=1, keepdims=True)
            tied = lines <= least * (1 + 1e-13)  # sums of another order differ in the last digits
            means = np.mean([values[g][t].mean(axis=0) for g, t in zip(groups, tied, strict=True)], axis=0)
            np.testing.assert_allclose(nearest.distances[i], least[:, 0], rtol=1e-12)
            np.testing.assert_array_equal(nearest.ties[i], tied.sum(axis=1))
            np.testing.assert_allclose(found.means[i], means, rtol=1e-9)
            continue
        order = np.argsort(far, kind="stable")
        np.testing.assert_allclose(ranked.distances[i], far[order[:RANKS]], rtol=1e-12)
        kept = order[far[order] <= far[order[RANKS - 1]] * (1 + 1e-13)]
        whole = np.zeros((len(weights), len(kept)))
        whole[:, :RANKS] = weights
        starts = np.concatenate([[True], np.diff(far[kept]) > far[kept][1:] * 1e-13])
        run = np.cumsum(starts) - 1
        shares = np.array([np.bincount(run, line)[run] for line in whole]) / np.bincount(run)[run]
        means = shares @ values[kept] + (1 - weights.sum(axis=1))[:, np.newaxis] * values.mean(axis=0)
        np.testing.assert_allclose(found.means[:, i], means, rtol=1e-9)


def seconds(function: Callable[[], Any]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def run_peer(peer: str, kind: str, rows: Array, queries: Array, metric: str, samples: int | None) -> float:
    """The peer's seconds for the same search; scaled up if only some samples are to be timed."""
    pieces = [rows] if kind == "pool" else list(rows.reshape(-1, SIZE, rows.shape[1]))
    timed = pieces[:samples]
    start = time.perf_counter()
    for piece in timed:
        if peer == "sklearn":
            from sklearn.neighbors import NearestNeighbors

            NearestNeighbors(n_neighbors=1, p=1 if metric == "l1" else np.inf).fit(piece).kneighbors(queries)
        else:
            import faiss

            index = faiss.IndexFlatL2(piece.shape[1])
            index.add(piece)
            index.search(queries, 1 if kind == "groups" else RANKS)
    return (time.perf_counter() - start) * len(pieces) / len(timed)


def peak_memory(folder: Path, number: int) -> float:
    """Megabytes above the inputs, measured in a process of its own."""
    command = [sys.executable, __file__, "--data", str(folder), "--peak", str(number)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(folder: Path, number: int) -> None:
    """Run one case and print how far memory rose while it ran."""
    _, kind, data, metric, _ = CASES[number]
    rows, queries = load(folder, data)
    search(kind, rows[: 2 * SIZE], queries[:8], metric)  # compiles
    with open("/proc/self/statm") as pages:
        before = int(pages.read().split()[1]) * resource.getpagesize() / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    search(kind, rows, queries, metric)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    print(max(0.0, peak - before))


def measure(folder: Path, number: int, repeats: int, samples: int | None) -> dict[str, Any]:
    """One line of the table."""
    name, kind, data, metric, peer = CASES[number]
    rows, queries = load(folder, data)
    check(kind, rows, queries, metric)
    ours, theirs = [], []
    for repeat in range(repeats):  # by turns, so that a busy machine slows both
        ours.append(seconds(lambda: search(kind, rows, queries, metric)))
        if peer == "faiss" or (peer == "sklearn" and repeat == 0):
            theirs.append(run_peer(peer, kind, rows, queries, metric, samples))
    peer_seconds = min(theirs) if theirs else None
    return {
        "case": name,
        "ours_s": round(min(ours), 3),
        "peer": peer,
        "peer_s": peer_seconds and round(peer_seconds, 3),
        "ratio": peer_seconds and round(peer_seconds / min(ours), 2),
        "peer_samples": samples,
        "peak_mb": round(peak_memory(folder, number), 1),
    }


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of tiny_imagenet.npz and cifar10.npz")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-samples", type=int, help="time the peer on so many samples only and scale up")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak is not None:
        print_peak(options.data, options.peak)
        return
    chosen = [number for number, case in enumerate(CASES) if options.only in case[0]]
    lines = [measure(options.data, number, options.repeats, options.peer_samples) for number in chosen]
    if options.json:
        print(json.dumps(lines, indent=2))
        return
    print(f"{'case':<36}{'ours':>9}{'peer':>10}{'':>10}{'ratio':>8}{'peak MB':>9}")
    for line in lines:
        theirs = "" if line["peer_s"] is None else f"{line['peer_s']:.2f} s"
        ratio = "" if line["ratio"] is None else f"{line['ratio']:.1f}x"
        peer = line["peer"] or ""
        print(f"{line['case']:<36}{line['ours_s']:>7.3f} s{peer:>10}{theirs:>10}{ratio:>8}{line['peak_mb']:>9}")
    if options.peer_samples:
        print(f"(peers timed on {options.peer_samples} of the samples and scaled up)")


if __name__ == "__main__":
    main()
