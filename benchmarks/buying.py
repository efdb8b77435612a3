"""What buying adds to the calls themselves: oc.execute against the same batches called in a bare loop.

    python benchmarks/buying.py

scikit-learn and (if it is installed) torch classifiers of a realistic weight, typed costs, with a journal on disk. The
answers are compared before anything is timed; the ratio is the median over alternating repetitions.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

import occamroute as oc

REPETITIONS = 7


def sklearn_pool(X: Any, y: Any) -> oc.Pool:
    """Three estimators."""
    models = {
        "mlp": (1, MLPClassifier((4096,), max_iter=20, random_state=0, early_stopping=True)),
        "trees": (10, ExtraTreesClassifier(1000, random_state=0, n_jobs=1)),
        "svm": (20, SVC(C=5)),
    }
    made = [
        oc.classifier(name, model.fit(X, y), classes=range(10), cost=cost) for name, (cost, model) in models.items()
    ]
    return oc.Pool(made, range(10))


def torch_pool(X: Any, y: Any) -> oc.Pool | None:
    """Two convolutional networks, untrained: only their speed counts here."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    torch.manual_seed(0)

    def net(width: int) -> Any:
        layers = [torch.nn.Unflatten(1, (1, 8, 8)), torch.nn.Conv2d(1, width, 3, padding=1), torch.nn.ReLU()]
        layers += [torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(64 * width, 10))

    made = [
        oc.classifier(name, net(width), classes=range(10), cost=cost)
        for name, width, cost in (("narrow", 64, 1), ("wide", 192, 10))
    ]
    return oc.Pool(made, range(10))


def bare(pool: oc.Pool, plan: oc.Plan, queries: Any) -> Callable[[], np.ndarray]:
    """The same batches in a loop; the extractor on everything first."""

    def run() -> np.ndarray:
        answers = np.zeros(len(queries), np.int64)
        extractor = plan.made_from["extractor"]
        for column, name in enumerate(plan.names):
            member = pool[name]
            rows = np.arange(len(queries)) if name == extractor else np.flatnonzero(plan.choice == column)
            for start in range(0, rows.size, member.batch_size):
                some = rows[start : start + member.batch_size]
                table = member.predict_proba(queries[some])
                mine = plan.choice[some] == column
                answers[some[mine]] = table[mine].argmax(axis=1)
        return answers

    return run


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result."""
    begun = time.perf_counter()
    result = function()
    return time.perf_counter() - begun, result


def main() -> None:
    """Print one line for each kind."""
    X, y = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    X = X / 16 + random.normal(size=X.shape) * 0.2
    X = X.astype(np.float32)
    queries = np.concatenate([X[1100:]] * 24)
    for kind, make in (("scikit-learn", sklearn_pool), ("torch", torch_pool)):
        pool = make(X[:500], y[:500])
        if pool is None:
            print(f"{kind}: not installed")
            continue
        profile = oc.profile(pool, X[500:1100], y[500:1100], extractor=pool.names[0])
        features = pool.classifiers[0].predict_proba(queries).astype(np.float32)
        dearest = float(profile.mean_costs.max())
        plan = oc.estimate(profile, features).plan(0.5 * dearest * len(queries))
        loop = bare(pool, plan, queries)
        ratios = []
        with tempfile.TemporaryDirectory() as folder:
            for number in range(REPETITIONS):
                journal = Path(folder) / f"{number}.journal"
                bought, run = timed(lambda: oc.execute(plan, pool, queries, journal=journal))  # noqa: B023
                called, answers = timed(loop)
                assert (run.answers == np.array(pool.classes)[answers]).all()
                ratios.append(bought / called)
        print(
            f"{kind}: {len(queries):,} queries, {called:.2f} s in a bare loop; buying takes "
            f"{statistics.median(ratios):.3f} × as long ({min(ratios):.3f} to {max(ratios):.3f})"
        )


if __name__ == "__main__":
    main()
