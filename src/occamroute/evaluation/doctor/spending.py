"""Checks of costs: whether they are in one unit, and whether classifiers and features are worth theirs."""

from __future__ import annotations

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._money import exact
from occamroute.estimation.kernel import contrasts
from occamroute.evaluation.comparing import usual_shares
from occamroute.evaluation.doctor.examination import Check, Examination, has_groups
from occamroute.evaluation.doctor.features import listed
from occamroute.evaluation.doctor.findings import Finding, Severity
from occamroute.evaluation.studies.base import percent, points
from occamroute.planning.candidates import Candidate
from occamroute.planning.choosing import trial
from occamroute.planning.combining import standard_error
from occamroute.planning.estimates import charged
from occamroute.planning.fitting import FEWEST_ROWS
from occamroute.profiles import Profile

__all__ = ["SPENDING_CHECKS"]

# A step to the next dearer cost that is hardly ever real, and one that is not where accuracy does not rise.
HUGE, LARGE = 1e5, 1e3
# Prices that are tried, from where cost hardly matters to where nothing else does.
PRICES = 60
# A classifier that is chosen less often than this at every price is never chosen.
NEVER = 0.001
# By so many standard errors must a plan with features beat the mixture.
CLEARLY = 2.0


def _units(examination: Examination, _: str) -> Finding:
    profile = examination.profile
    costs, accuracy = profile.mean_costs, profile.accuracy
    order = np.argsort(costs, kind="stable")
    paid = order[costs[order] > 0.0]
    steps = costs[paid[1:]] / costs[paid[:-1]]
    odd = [
        (float(step), profile.names[dear])
        for step, dear, place in zip(steps, paid[1:], range(paid.size - 1), strict=True)
        if step > HUGE or (step > LARGE and accuracy[paid[place + 1 :]].max() <= accuracy[paid[: place + 1]].max())
    ]
    extraction = {name: float(amount) for name, amount in profile.extraction_costs.items()}
    own = {name: amount / costs[profile.names.index(name)] for name, amount in extraction.items()
           if name in profile.names and costs[profile.names.index(name)] > 0.0}  # fmt: skip
    strange = [name for name, ratio in own.items() if ratio > LARGE or ratio < 1.0 / LARGE]
    facts = {
        "costs": dict(zip(profile.names, costs.tolist(), strict=True)), "largest_step": float(steps.max(initial=1.0)),
        "extraction_costs": extraction,
    }  # fmt: skip
    advice = "Give all costs in one unit: money, or seconds, for one call."
    if odd:
        step, name = max(odd)
        seen = f"{name} costs {step:,.0f} times as much as the next cheaper classifier."
        return Finding("cost_units", "warning", seen, advice, facts)
    if strange:
        seen = f"Extracting the features of {strange[0]} costs {own[strange[0]]:.3g} times its own call."
        return Finding("cost_units", "warning", seen, advice, facts)
    if paid.size == 0:
        return Finding("cost_units", "note", "All classifiers are free.", "Give costs: a budget limits nothing.", facts)
    return Finding("cost_units", "ok", "Costs look like one unit.", "", facts)


def _dominated(examination: Examination, _: str) -> Finding:
    """Classifiers that another beats in both cost and accuracy, and those that no price makes anyone choose."""
    profile = examination.profile
    beaten = [name for name in profile.names if name not in profile.pareto().names]
    most = np.zeros(len(profile.names))
    for extractor in (None, *profile.feature_sets):
        success = (examination.mixture if extractor is None else examination.candidate(extractor)).success
        costs = charged(profile, extractor, None, len(success))[0]
        most = np.maximum(most, _most_chosen(success, costs))
    chosen = dict(zip(profile.names, most.tolist(), strict=True))
    never = [name for name in profile.names if chosen[name] < NEVER and name not in profile.feature_sets]
    facts = {"dominated": beaten, "never_chosen": never, "largest_share_chosen": chosen}
    if never:
        return Finding(
            "dominated", "note", f"At no price is anything sent to {listed(never)}.",
            "Leave them out (profile.select) if this stays so with more rows: profiling them costs.", facts,
        )  # fmt: skip
    if beaten:
        seen = f"Others are cheaper and right more often than {listed(beaten)}, yet some queries are sent there."
        return Finding("dominated", "ok", seen, "", facts)
    return Finding("dominated", "ok", "Every classifier is worth its cost somewhere.", "", facts)


def _most_chosen(success: FloatArray, costs: FloatArray) -> FloatArray:
    """The largest share of rows that each classifier gets at any price, (M,)."""
    scale = float(costs.max()) or 1.0
    least = float(costs[costs > 0.0].min(initial=scale)) / scale
    prices = np.append(0.0, np.geomspace(1e-4, 10.0 / least, PRICES)) / scale
    shares = [
        np.bincount((success - price * costs).argmax(axis=1), minlength=success.shape[1]) / len(success)
        for price in prices
    ]
    return np.asarray(np.max(shares, axis=0))


def _worth(examination: Examination, extractor: str) -> Finding:
    """Whether paying for features beats the mixture on held-out rows, at any budget."""
    profile, folds = examination.profile, examination.folds
    candidate, blocks = examination.candidate(extractor), folds.blocks[folds.rows]
    dearest = float(profile.mean_costs.max())
    gains: dict[float, tuple[float, float]] = {}
    for share in usual_shares(profile):
        amount = exact(share * dearest)
        plain = trial(profile, folds, examination.mixture, 0.0, amount, seed=examination.seed)
        made = trial(profile, folds, candidate, 0.0, amount, seed=examination.seed)
        if plain is not None and made is not None:
            more = made.outcome - plain.outcome
            gains[share] = float(more.mean()), standard_error(more, blocks)
    cost = float(profile.extraction_costs[extractor])
    telling, cheap = _tells_apart(examination, candidate), cost < _best_cost(profile, extractor)
    facts = {
        "cost": cost, "cost_share_of_dearest": cost / dearest, "tell_classifiers_apart": telling,
        "cheaper_than_the_best": cheap,
        "gains": {f"{share:g}": {"gain": gain, "error": error} for share, (gain, error) in gains.items()},
    }  # fmt: skip
    if not gains:
        return Finding(
            "worthless_features", "warning", "No usual budget pays for these features and an answer.",
            "Look for cheaper features: these cost about what answers do.", facts, extractor,
        )  # fmt: skip
    share, (gain, error) = max(gains.items(), key=lambda item: item[1][0] - CLEARLY * item[1][1])
    seen = (
        f"On held-out rows plans with features gain at most {points(gain)} ± {100 * error:.2f} on the best mixture "
        f"without any, at {percent(share, 0)} of the dearest's bill."
    )
    if gain > CLEARLY * error:
        return Finding("worthless_features", "ok", seen, "", facts, extractor)
    if not telling:
        advice = "Do not pay for these features: they do not tell the classifiers apart."
    elif not cheap:
        advice = "Look for cheaper features: these cost as much as an answer of the best classifier."
    else:
        advice = (
            "Look for cheaper or more telling features; `occamroute compare` says what every estimator makes of these."
        )
    severity: Severity = "note" if telling and cheap else "warning"
    return Finding("worthless_features", severity, seen, advice, facts, extractor)


def _tells_apart(examination: Examination, candidate: Candidate) -> bool:
    """Whether held-out estimates are closer to the differences between classifiers than no features are."""
    truth, mean = candidate.truth, candidate.truth.mean(axis=0)
    explained = (contrasts(truth - mean) ** 2 - contrasts(truth - candidate.success) ** 2).sum(axis=1)
    blocks = examination.folds.blocks[examination.folds.rows]
    return bool(explained.mean() > CLEARLY * standard_error(explained, blocks))


def _best_cost(profile: Profile, extractor: str) -> float:
    """What the most accurate classifier besides the extractor costs."""
    others = [column for column, name in enumerate(profile.names) if name != extractor]
    return float(profile.mean_costs[max(others, key=lambda one: profile.accuracy[one])]) if others else np.inf


def _has_enough(examination: Examination) -> str | None:
    return None if len(examination.profile) >= FEWEST_ROWS else f"there are fewer than {FEWEST_ROWS} rows"


def _costs_something(examination: Examination) -> str | None:
    return None if float(examination.profile.mean_costs.max()) > 0.0 else "all classifiers are free"


SPENDING_CHECKS = (
    Check("cost_units", _units),
    Check("dominated", _dominated, (has_groups, _has_enough)),
    Check("worthless_features", _worth, (has_groups, _has_enough, _costs_something), each_set=True),
)
