"""Estimates to look at: a few queries, many queries, and names that would be markup if anybody read them as such."""

from __future__ import annotations

import numpy as np

import occamroute as oc
from occamroute.reporting.exploring.exploration import Exploration

HOSTILE = "<script>document.title='taken'</script>"
BOLD = "<b onclick=alert(1)>&amp;\"large'"


def estimate(queries: int, classifiers: int, *, seed: int = 0, by_query: bool = False) -> oc.Estimate:
    """Better classifiers cost more, and queries differ in how hard they are; the first yields the features."""
    random = np.random.default_rng(seed)
    skill = np.linspace(0.55, 0.97, classifiers)
    hard = random.normal(0.0, 0.3, (queries, 1)) * (1.0 - skill)
    success = np.clip(skill + hard + random.normal(0.0, 0.05, (queries, classifiers)), 0.0, 1.0)
    costs = np.round(0.1 * 1.6 ** np.arange(classifiers), 4)
    if by_query:
        costs = np.round(costs * random.uniform(0.5, 1.5, (queries, classifiers)), 4)
    costs[..., 0] = 0.0
    return oc.Estimate(
        names=tuple(f"model {number}" for number in range(classifiers)),
        costs=costs,
        success=success,
        sigma=np.full(classifiers, 0.1),
        overhead=0.1,
        made_from={"extractor": "model 0", "estimator": "made up", "profile": "none"},
    )


def exploration(queries: int, classifiers: int, *, seed: int = 0, by_query: bool = False) -> Exploration:
    """The same, with what really happens."""
    made = estimate(queries, classifiers, seed=seed, by_query=by_query)
    truth = (np.random.default_rng(seed + 1).random(made.success.shape) < made.success).astype(np.float64)
    return Exploration(made, truth=truth, about={"estimator": "made up"})


def profile(rows: int = 240, *, names: tuple[str, ...] = ("small", "middle", "large")) -> oc.Profile:
    """Three classifiers on labelled rows, with classes and probabilities as features."""
    random = np.random.default_rng(3)
    labels = random.integers(0, 3, rows)
    features = random.dirichlet(np.ones(3), rows)
    features[np.arange(rows), labels] += 0.7
    features /= features.sum(axis=1, keepdims=True)
    sure = features.max(axis=1)
    success = np.column_stack([random.random(rows) < chance for chance in (sure, 0.5 + 0.5 * sure, 0.95 + 0 * sure)])
    return oc.Profile(
        names=names,
        costs=(0.1, 0.4, 1.0),
        features=features,
        success=success.astype(np.float64),
        extractor=names[0],
        ids=[f"row {number}" for number in range(rows - 1)] + [HOSTILE],
        labels=labels,
        classes=("cat", "<i>dog</i>", "eel"),
    )
