"""The contract of estimators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["check_estimator"]


def check_estimator(make: Callable[[], Any], *, seed: int = 0) -> None:
    """Raise ``AssertionError`` unless what ``make`` builds behaves as an estimator must.

    It fits features (n, d) and success (n, M), predicts (N, M) finite numbers, does not depend on how queries are
    batched, leaves its inputs alone, and gives the same answer when fitted again.
    """
    random = np.random.default_rng(seed)
    features, queries = random.random((200, 3)), random.random((50, 3))
    success = random.integers(0, 2, (200, 4)).astype(np.float64)
    before = features.copy(), success.copy(), queries.copy()
    estimator = make()
    estimator.fit(features, success)
    table = np.asarray(estimator.predict(queries))
    problems = {
        "predict must give one row a query and one column a classifier": table.shape == (50, 4),
        "predictions must be finite": bool(np.isfinite(table).all()),
        "predictions must lie in [0, 1] up to rounding": table.min() >= -1e-9 and table.max() <= 1 + 1e-9,
        "a query's prediction must not depend on its neighbours in the batch": np.allclose(
            table[10:11], estimator.predict(queries[10:11]), atol=1e-12
        ),
        "inputs must be left alone": all(
            np.array_equal(now, then) for now, then in zip((features, success, queries), before, strict=True)
        ),
    }
    again = make()
    again.fit(features, success)
    problems["a second fit must give the same"] = bool(np.allclose(table, again.predict(queries), atol=1e-12))
    broken = [sentence for sentence, holds in problems.items() if not holds]
    if broken:
        raise AssertionError("; ".join(broken))
