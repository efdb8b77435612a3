"""A few queries at a time against 40,000 rows, as a router asks: ours beside FAISS and scikit-learn, one thread.

    python benchmarks/neighbors_serving.py --data ../shared/data

Ours averages values over the ``k`` nearest rows, ties shared, in float64, and names the eight nearest; the peers
only find the ``k`` nearest, FAISS in float32. Answers are checked against float64 brute force first, and that a
query has the same bits alone, among others and in a large call. Times are medians over batches, ours and the
peers' by turns in the same run; each index is built beforehand.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute.estimation.bagged import rank_weights
from occamroute.executors.local import one_thread_each
from occamroute.neighbors import Averager, PoolIndex

Array = npt.NDArray[Any]
Search = Callable[[Array, int], Any]
ROWS = 40_000
QUERIES = 96
BATCHES = (1, 4, 16)
SMOOTHINGS = (40, 160)  # how many rows an estimate is spread over, about: 272 and 1,087 of them have weight
DATA = {
    "class probabilities (10)": lambda folder: probabilities(folder),
    "embedding (64)": lambda folder: embedding(folder),
    "embedding, rotated into 512": lambda folder: rotated(folder),
    "clusters, not negative (512)": lambda folder: clusters(),
    "standard normal (512)": lambda folder: split(np.random.default_rng(1).standard_normal((ROWS + QUERIES, 512))),
}


def split(numbers: Array) -> tuple[Array, Array]:
    """Rows and queries in float32."""
    numbers = numbers.astype(np.float32)
    return numbers[:ROWS], numbers[ROWS : ROWS + QUERIES]


def probabilities(folder: Path) -> tuple[Array, Array]:
    """CIFAR-10 class probabilities by two networks."""
    with np.load(folder / "cifar10.npz") as arrays:
        logits = [*arrays["logits_val"][:, :2].transpose(1, 0, 2), arrays["logits_test"][:QUERIES, 0]]
    grown = np.concatenate(logits).astype(np.float64)
    grown = np.exp(grown - grown.max(axis=1, keepdims=True))
    return split(grown / grown.sum(axis=1, keepdims=True))


def embedding(folder: Path) -> tuple[Array, Array]:
    """Tiny ImageNet embeddings."""
    with np.load(folder / "tiny_imagenet.npz") as arrays:
        name = "embedding_resnet18-w64"
        return split(np.concatenate([arrays[f"{name}_val"][:ROWS], arrays[f"{name}_test"][:QUERIES]]))


def rotated(folder: Path) -> tuple[Array, Array]:
    """The same in 512 columns, with a little noise in each."""
    rng = np.random.default_rng(3)
    numbers = np.concatenate(embedding(folder))
    wide = numbers @ rng.standard_normal((numbers.shape[1], 512)) / 8.0
    return split(wide + 0.1 * rng.standard_normal(wide.shape))


def clusters() -> tuple[Array, Array]:
    """200 clusters with everything below 0 cut off, as the last layers of networks do."""
    rng = np.random.default_rng(0)
    centers, label = rng.standard_normal((200, 512)), rng.integers(0, 200, ROWS + QUERIES)
    return split(np.maximum(centers[label] + rng.standard_normal((len(label), 512)), 0.0))


def check(averager: Averager, rows: Array, queries: Array, values: Array, weights: Array) -> None:
    """Compare with float64 brute force, and the bits of each query in batches of every size."""
    whole = averager.average(queries)
    k = weights.shape[1]
    for i, query in enumerate(queries[:16].astype(np.float64)):
        far = np.abs(query - rows.astype(np.float64)).max(axis=1)
        order = np.argsort(far, kind="stable")
        np.testing.assert_array_equal(whole.nearest.rows[i], order[: averager.show])
        np.testing.assert_array_equal(whole.nearest.distances[i], far[order[: averager.show]])
        near = order[far[order] <= far[order[k - 1]]]
        by_rank = np.zeros(len(near))
        by_rank[:k] = weights[0]
        _, run = np.unique(far[near], return_inverse=True)
        shares = (np.bincount(run, by_rank) / np.bincount(run))[run]
        mean = shares @ values[near] + (1.0 - weights.sum()) * values.mean(axis=0)
        np.testing.assert_allclose(whole.means[0, i], mean, rtol=1e-9)
    for batch in BATCHES:
        for start in range(0, len(queries), batch):
            some = slice(start, start + batch)
            np.testing.assert_array_equal(averager.average(queries[some]).means, whole.means[:, some])


def peers(rows: Array) -> dict[str, Search]:
    """What else finds the nearest rows under linf."""
    import faiss
    from sklearn.neighbors import BallTree, NearestNeighbors

    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlat(rows.shape[1], faiss.METRIC_Linf)
    flat.add(rows)
    brute = NearestNeighbors(metric="chebyshev", algorithm="brute", n_jobs=1).fit(rows)
    tree = BallTree(rows, metric="chebyshev")
    return {
        "faiss": lambda queries, k: flat.search(queries, k)[0],
        "sklearn brute": lambda queries, k: brute.kneighbors(queries, k)[0],
        "sklearn BallTree": lambda queries, k: tree.query(queries, k)[0],
    }


def check_peers(found: dict[str, Search], index: PoolIndex, queries: Array, k: int) -> None:
    """The peers find the same distances, as far as float32 goes."""
    wanted = index.search(queries[:8], k).distances
    for search in found.values():
        np.testing.assert_allclose(search(queries[:8], k), wanted, rtol=1e-5, atol=1e-6)


def milliseconds(function: Callable[..., Any], *arguments: Any) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    function(*arguments)
    return 1e3 * (time.perf_counter() - start)


def measure(name: str, folder: Path, repeats: int) -> list[dict[str, Any]]:
    """The lines of one kind of data."""
    rows, queries = DATA[name](folder)
    values = np.random.default_rng(0).random((len(rows), 7))
    index, others = PoolIndex(rows, threads=1), peers(rows)
    lines = []
    for smoothing in SMOOTHINGS:
        weights = rank_weights(len(rows), len(rows) // smoothing, tail=1e-3)[np.newaxis]
        k = weights.shape[1]
        averager = index.averager(values, weights, show=8)
        check(averager, rows, queries, values, weights)
        check_peers(others, index, queries, k)
        for batch in BATCHES:
            taken: dict[str, list[float]] = {"ours": [], **{peer: [] for peer in others}}
            for repeat in range(repeats):
                for start in range(0, len(queries), batch):
                    some = queries[start : start + batch]
                    taken["ours"].append(milliseconds(averager.average, some) / batch)
                some = queries[repeat * batch % len(queries) :][:batch]
                for peer, search in others.items():
                    taken[peer].append(milliseconds(search, some, k) / len(some))
            medians = {who: round(float(np.median(times)), 3) for who, times in taken.items()}
            lines.append({"data": name, "k": k, "batch": batch, **medians})
    return lines


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of tiny_imagenet.npz and cifar10.npz")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="data whose name contains this")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with one_thread_each():
        lines = [line for name in DATA if options.only in name for line in measure(name, options.data, options.repeats)]
    if options.json:
        print(json.dumps(lines, indent=2))
        return
    print("milliseconds a query, and how many times as long the peers take")
    for line in lines:
        ours = line["ours"]
        theirs = "".join(f"  {peer} {line[peer]:8.3f} ({line[peer] / ours:5.1f}x)" for peer in list(line)[4:])
        print(f"{line['data']:<30} k {line['k']:>4} batch {line['batch']:>2}  ours {ours:6.3f}{theirs}")


if __name__ == "__main__":
    main()
