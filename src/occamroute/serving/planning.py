"""Plans of the service: the exact knapsack on the same estimates that single decisions rest on."""

from __future__ import annotations

from typing import Any

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.errors import InvalidInputError
from occamroute.planning.estimates import Estimate, charged, query_ids
from occamroute.planning.plans import Plan
from occamroute.routing.prices import Price, choose
from occamroute.routing.snapshots import Snapshot
from occamroute.serving.bodies import Packed32, PlanAnswer, PlanRequest, amount, feature_array
from occamroute.serving.parsing import parsed

__all__ = ["planned"]


def planned(snapshot: Snapshot, most: int, content: bytes) -> bytes:
    """The plan that a request asks for, from its body to the answer's: nothing of it is work for the event loop."""
    _refuse_too_many_lists(content, most)
    wish = parsed(PlanRequest, content)
    features = _features(snapshot, wish, most)
    plan = _estimate(snapshot, features).plan(amount(wish.budget), seed=snapshot.seed)
    answer = PlanAnswer(
        names=list(plan.names),
        choice=plan.choice.tolist(),
        planned_cost=plan.planned_cost,
        expected_accuracy=_expected(snapshot, plan),
        price=plan.price,
        bound=plan.bound,
        gap=plan.gap,
    )
    return answer.model_dump_json().encode()


def _refuse_too_many_lists(content: bytes, most: int) -> None:
    """To read millions of tiny lists takes many seconds, in which no other thread runs: they are counted before."""
    brackets = content.count(b"[") + content.count(b"{")
    if brackets > most + 3:  # the body, a list of all rows or what they are packed in, and each row
        raise InvalidInputError(f"a plan is for at most {most} queries, got {brackets - 2} lists: plan in parts.")


def _features(snapshot: Snapshot, wish: PlanRequest, most: int) -> FloatArray:
    width = snapshot.width
    if width == 0:
        if wish.queries is None:
            raise InvalidInputError("queries must be their number: no features are looked at.")
        return np.zeros((_checked_number(wish.queries, most), 0))
    if wish.features is None:
        raise InvalidInputError(f"features of {snapshot.guide.extractor!r} are needed to plan.")
    table = _table(wish.features, width)
    _checked_number(len(table), most)
    return snapshot.checked(table)


def _table(given: Any, width: int) -> Any:
    if isinstance(given, list):
        try:
            return np.array(given, np.float64)
        except ValueError:
            raise InvalidInputError(f"features must have {width} numbers in every row.") from None
    flat = feature_array(given)
    if flat is None or flat.size % width:
        kind = "float32" if isinstance(given, Packed32) else "float64"
        raise InvalidInputError(f"features as {kind} must be rows of {width} numbers.")
    return flat.reshape(-1, width)


def _checked_number(queries: int, most: int) -> int:
    if queries > most:
        raise InvalidInputError(f"a plan is for at most {most} queries, got {queries}: plan in parts.")
    return queries


def _estimate(snapshot: Snapshot, features: FloatArray) -> Estimate:
    guess = snapshot.guess(features)
    costs, overhead = charged(snapshot.profile, snapshot.guide.extractor, None, len(features))
    return Estimate(
        names=snapshot.names,
        costs=costs,
        success=guess.success,
        sigma=np.zeros(len(snapshot.names)),
        overhead=overhead,
        distance=guess.distances[:, 0] if guess.distances.shape[1] else np.zeros(len(features)),
        ids=query_ids(None, len(features)),
        made_from={"profile": snapshot.profile.fingerprint, "extractor": snapshot.guide.extractor},
    )


def _expected(snapshot: Snapshot, plan: Plan) -> float:
    """The mean of the chosen estimates, less what choosing the highest overstates it by on held-out rows."""
    held = snapshot.held
    chosen = choose(held.success, snapshot.costs, Price(plan.price, 0.5), np.arange(len(held.success)) % 2.0)
    rows = np.arange(len(chosen))
    overstated = float((held.success[rows, chosen] - held.truth[rows, chosen]).mean())
    return min(1.0, max(0.0, plan.expected_accuracy - overstated))
