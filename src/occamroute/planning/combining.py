"""Combined answers: an extractor that is paid has probabilities, which may be averaged into any other answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray
from occamroute.profiles import Profile, success

__all__ = [
    "Combination",
    "answers_by_label",
    "can_combine",
    "combined_success",
    "mixed",
    "standard_error",
    "tuned_combination",
]

# The extractor's share in an answer.
SHARES = tuple(tenth / 10 for tenth in range(10))
# So many standard errors better must a share be than none: the best of nine is often better by one.
CLEARLY = 2.5
BLOCK = 4096
# The recorded success of a classifier must be that of its own most likely label on all but this share of the rows.
DIFFERENT = 0.01


@dataclass(frozen=True, eq=False)
class Combination:
    """The extractor's share in the answer after each classifier, and the success of such answers.

    ``success`` (n, M) has shares that were tuned on all rows but each row's own fold; ``final`` (n, M) has
    ``weights``, those tuned on all rows.
    """

    weights: FloatArray
    success: FloatArray = field(repr=False)
    final: FloatArray = field(repr=False)


def can_combine(profile: Profile, extractor: str | None) -> bool:
    """Whether there are labels, the extractor's probabilities, and those of another classifier."""
    kept = profile.probabilities or {}
    return profile.paid_extractor(extractor) in kept and len(kept) > 1 and _truth(profile) is not None


def combined_success(profile: Profile, extractor: str, weights: FloatArray, rows: IntArray | None = None) -> FloatArray:
    """Success (n, M) of answers in which the extractor has a share; where that is 0 or unknown, the recorded one.

    ``rows`` are those to look at, by default all.
    """
    extractor = profile.paid_extractor(extractor) or extractor
    chosen: Any = slice(None) if rows is None else rows
    made = np.array(profile.success[chosen])
    kept, truth = profile.probabilities or {}, _truth(profile)
    if truth is None or (np.any(weights) and extractor not in kept):
        return made
    for column in np.flatnonzero(weights):
        if profile.names[column] not in kept:
            continue
        own = kept[profile.names[column]][chosen]
        made[:, column] = success(mixed(kept[extractor][chosen], own, float(weights[column])), truth[chosen])
    return made


def tuned_combination(profile: Profile, extractor: str, folds: Sequence[IntArray]) -> Combination | None:
    """Shares that make each classifier's answers right most often, or None where nothing can be combined.

    ``folds`` are the rows of each fold, all rows together.
    """
    extractor = profile.paid_extractor(extractor) or extractor
    if not can_combine(profile, extractor):
        return None
    hits = _hits(profile, extractor, _truth(profile))  # (shares, n, M)
    weights = _tuned(hits, profile.blocks)
    if not weights.any():
        return None
    honest = np.array(profile.success)
    for rows in folds:
        others = np.setdiff1d(np.arange(len(profile)), rows)
        honest[rows] = combined_success(profile, extractor, _tuned(hits[:, others], profile.blocks[others]), rows)
    return Combination(weights, honest, combined_success(profile, extractor, weights))


def _tuned(hits: FloatArray, blocks: IntArray) -> FloatArray:
    """For each classifier the share with the most right answers, (M,); 0 unless that is clearly better."""
    best = hits.mean(axis=1).argmax(axis=0)
    gain = np.take_along_axis(hits, best[None, None], axis=0)[0] - hits[0]
    errors = np.array([standard_error(column, blocks) for column in gain.T])
    clear = gain.mean(axis=0) > CLEARLY * errors
    return np.where(clear, np.array(SHARES)[best], 0.0)


def _hits(profile: Profile, extractor: str, truth: Any) -> FloatArray:
    """Which answers are right at each share, (shares, n, M); nothing but share 0 for what cannot be combined."""
    kept = profile.probabilities or {}
    hits = np.zeros((len(SHARES), len(profile), len(profile.names)), np.float32)
    for column, name in enumerate(profile.names):
        hits[0, :, column] = profile.success[:, column]
        if name == extractor or name not in kept or not answers_by_label(profile, name):
            continue
        for start in range(0, len(profile), BLOCK):
            block = slice(start, start + BLOCK)
            own, other = kept[name][block], kept[extractor][block]
            for index, share in enumerate(SHARES[1:], start=1):
                hits[index, block, column] = mixed(other, own, share).argmax(axis=1) == truth[block]
    return hits


def mixed(extractor: FloatArray, own: FloatArray, share: float) -> FloatArray:
    """The weighted average of two classifiers' probabilities, each row of either adding up to 1."""
    first, second = (table / table.sum(axis=1, keepdims=True) for table in (extractor, own))
    return np.asarray(share * first + (1.0 - share) * second)


def answers_by_label(profile: Profile, name: str) -> bool:
    """Whether recorded success is that of the most likely label: some other success cannot be combined."""
    right = (profile.probabilities or {})[name].argmax(axis=1) == _truth(profile)
    recorded = profile.success[:, profile.names.index(name)]
    return float((np.abs(recorded - right) > 0.5).mean()) <= DIFFERENT


def _truth(profile: Profile) -> npt.NDArray[Any] | None:
    """True labels as column numbers of the probabilities."""
    if profile.labels is None or not profile.probabilities:
        return None
    columns = {table.shape[1] for table in profile.probabilities.values()}
    if len(columns) != 1:
        return None
    if profile.labels.dtype.kind == "i":
        return profile.labels if profile.labels.min() >= 0 and profile.labels.max() < columns.pop() else None
    if profile.classes is None:
        return None
    numbers = {name: number for number, name in enumerate(profile.classes)}
    if not set(profile.labels.tolist()) <= set(numbers):
        return None
    return np.array([numbers[label] for label in profile.labels.tolist()])


def standard_error(values: FloatArray, blocks: IntArray) -> float:
    """The standard error of a mean over rows of which those in one block belong together."""
    deviations = np.bincount(blocks, weights=values - values.mean())
    return float(np.sqrt((deviations**2).sum())) / values.size
