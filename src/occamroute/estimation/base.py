"""What an estimator is: anything with scikit-learn's ``fit`` and ``predict`` for several outputs."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from occamroute.errors import InvalidInputError

__all__ = ["Estimator", "whole_number"]


class Estimator(Protocol):
    """Learns success (n, M) from features (n, d), and predicts it for others.

    Optional: ``looks_at_features = False`` (nothing is extracted for it), ``predict_with_distance``, and
    ``shrunk(share)``, the same for a pool that has only a share of the rows.
    """

    def fit(self, features: Any, success: Any) -> Any:
        """Learn from labelled rows."""
        ...

    def predict(self, features: Any) -> Any:
        """Estimated success, (N, M)."""
        ...


def whole_number(value: Any, name: str) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidInputError(f"{name} must be a whole number ≥ 1, got {value!r}.")
    return int(value)
