"""A decision in words: who else was there, and what would have changed it."""

from __future__ import annotations

from typing import Any

from occamroute.routing.decisions import Decision, Terms, next_best
from occamroute.routing.prices import HIGHEST, Price
from occamroute.routing.stored_decisions import StoredDecision

__all__ = ["explained", "explained_without_rows", "flips", "runner_up"]

REASONS = {
    "best_value": "It has the highest estimated success less price times cost.",
    "no_features": "No features are looked at: overall accuracies and the price decide.",
    "unlike_profile": "No labelled row is near: the most reliable classifier that can be afforded.",
    "second_choice": "The first choice could not be had: money for it was not there, or it gave no answer.",
}


def explained(decision: Decision) -> dict[str, Any]:
    """Everything about a decision, for JSON."""
    snapshot, terms = decision.snapshot, decision.terms
    ids = snapshot.profile.ids
    other = runner_up(decision)
    priced = decision.price < HIGHEST
    return {
        "id": decision.id,
        "at": decision.at,
        "client": decision.client,
        "classifier": decision.name,
        "reason": decision.reason,
        "sentence": REASONS[decision.reason],
        "cost": f"{decision.cost:f}",
        "price": decision.price if priced else None,
        "features": decision.features.tolist(),
        "extractor": snapshot.guide.extractor,
        "snapshot": snapshot.id,
        "estimates": [
            {
                "classifier": name,
                "success": float(decision.success[option]),
                "spread": float(decision.spread[option]),
                "cost": f"{snapshot.totals[option]:f}",
                "score": float(decision.scores[option]) if priced else None,
                "barred": name in terms.barred,
            }
            for option, name in enumerate(snapshot.names)
        ],
        "neighbours": [
            {"id": ids[row], "distance": float(distance)}
            for row, distance in zip(decision.rows, decision.distances, strict=True)
        ],
        "familiarity": familiarity(decision),
        "runner_up": None if other is None else snapshot.names[other],
        "flips": flips(decision),
        "budget": _budget(terms),
    }


def explained_without_rows(stored: StoredDecision) -> dict[str, Any]:
    """The same where the labelled rows are not known: nothing about neighbours, and about what would flip it."""
    terms = stored.terms
    return {
        "id": stored.id,
        "at": stored.at,
        "client": stored.client,
        "classifier": stored.classifier,
        "reason": stored.reason,
        "sentence": REASONS[stored.reason],
        "cost": None if stored.cost is None else f"{stored.cost:f}",
        "price": terms.price.value if terms.price.value < HIGHEST else None,
        "features": stored.features.tolist(),
        "extractor": None,
        "snapshot": stored.snapshot,
        "estimates": [
            {
                "classifier": name,
                "success": float(success),
                "spread": None,
                "cost": f"{cost:f}",
                "score": None,
                "barred": name in terms.barred,
            }
            for (name, cost), success in zip(stored.costs.items(), stored.success, strict=False)
        ],
        "neighbours": [],
        "familiarity": None,
        "runner_up": None,
        "flips": [],
        "budget": _budget(terms),
    }


def _budget(terms: Terms) -> dict[str, float]:
    return {
        "cap": terms.cap,
        "available": terms.available,
        "expected_queries": terms.remaining,
        "costs_more_than_profile": terms.off,
    }


def runner_up(decision: Decision) -> int | None:
    """The classifier that would have been asked next."""
    order = next_best(decision, [decision.choice])
    return order[0] if order else None


def familiarity(decision: Decision) -> float | None:
    """The share of labelled rows that are at least as far from their nearest other: small is unlike all of them."""
    novelty = decision.snapshot.novelty
    if novelty is None or decision.distances.size == 0:  # its features could not be had
        return None
    return float(novelty.p_value(decision.distances[:1])[0])


def flips(decision: Decision) -> list[dict[str, Any]]:
    """What would have sent the query elsewhere: more money, a lower cost, a higher estimate."""
    if decision.reason == "unlike_profile":
        novelty = decision.snapshot.novelty
        limit = float(novelty.threshold) if novelty is not None else 0.0
        sentence = f"With a labelled row within {limit:.6g} its neighbours would have decided."
        return [{"classifier": None, "kind": "distance", "below": limit, "sentence": sentence}]
    return [
        {"classifier": decision.snapshot.names[option], **flip}
        for option in next_best(decision, [decision.choice])
        for flip in (_by_budget(decision, option), _by_cost(decision, option), _by_success(decision, option))
        if flip is not None
    ]


def _by_budget(decision: Decision, option: int) -> dict[str, Any] | None:
    """More money lowers the price, at which a better and dearer classifier wins."""
    snapshot, terms = decision.snapshot, decision.terms
    better = float(decision.success[option] - decision.success[decision.choice])
    dearer = float(snapshot.costs[option] - snapshot.costs[decision.choice])
    if better <= 0.0 or dearer <= 0.0:
        return None
    price = Price(better / dearer, 0.0)
    if _best_at(decision, price.value) != option:
        return None  # a third one would win first
    rate = snapshot.overhead + terms.off * snapshot.prices.cost_at(price)
    more = rate * terms.remaining - terms.available
    if more <= 0.0:
        return None
    budget = terms.cap + more
    name = snapshot.names[option]
    return {"kind": "budget", "above": budget, "sentence": f"With a budget above {budget:.6g}: {name}."}


def _best_at(decision: Decision, price: float) -> int:
    """The dearest of the best at a price."""
    snapshot = decision.snapshot
    scores = decision.success - price * snapshot.costs
    allowed = [option for option, name in enumerate(snapshot.names) if name not in decision.terms.barred]
    best = max(scores[option] for option in allowed)
    return max((option for option in allowed if scores[option] >= best - 1e-9), key=lambda one: snapshot.costs[one])


def _by_cost(decision: Decision, option: int) -> dict[str, Any] | None:
    if not 0.0 < decision.price < HIGHEST:
        return None
    score = float(decision.scores[decision.choice])
    limit = (float(decision.success[option]) - score) / decision.price
    if not 0.0 < limit < decision.snapshot.costs[option]:
        return None
    name = decision.snapshot.names[option]
    return {"kind": "cost", "below": limit, "sentence": f"If {name} cost less than {limit:.6g} a call."}


def _by_success(decision: Decision, option: int) -> dict[str, Any] | None:
    if not decision.price < HIGHEST:
        return None
    limit = float(decision.scores[decision.choice] + decision.price * decision.snapshot.costs[option])
    if not decision.success[option] < limit <= 1.0:
        return None
    name = decision.snapshot.names[option]
    return {
        "kind": "success",
        "above": limit,
        "sentence": f"If {name} were right on such queries with a chance above {100 * limit:.4g} %.",
    }
