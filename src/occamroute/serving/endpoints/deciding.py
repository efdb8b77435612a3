"""Deciding: one query, many queries, and what a decision came to."""

from __future__ import annotations

import json
from functools import lru_cache

from occamroute.errors import BudgetExceededError
from occamroute.ledger.base import amount_of, rounded_up
from occamroute.routing.decisions import Decision
from occamroute.serving.admission import Caller
from occamroute.serving.bodies import (
    PlanAnswer,
    PlanRequest,
    RouteAnswer,
    RouteRequest,
    SettleAnswer,
    SettleRequest,
    amount,
    feature_array,
    written,
)
from occamroute.serving.operations import Asks, Operation
from occamroute.serving.parsing import parsed
from occamroute.serving.planning import planned
from occamroute.serving.problems import ProblemError
from occamroute.serving.service import Service

__all__ = ["OPERATIONS"]


async def route(service: Service, caller: Caller, content: bytes) -> bytes:
    """Decide about one query: the way that is asked most, so nothing is done twice."""
    wish = parsed(RouteRequest, content)
    router = service.router
    features = router.checked(feature_array(wish.features))
    try:
        decision = await service.decider.decide(features, caller.client)
        if wish.hold:
            decision = await router.aheld(decision, lease_seconds=wish.lease_seconds)
    except BudgetExceededError as error:
        raise await service.exhausted(error) from None
    service.metrics.decisions[decision.name, decision.reason] += 1
    return _decision_text(decision, held=wish.hold)


def _decision_text(decision: Decision, *, held: bool) -> bytes:
    success = float(decision.success[decision.choice])
    return (
        f'{{"decision":"{decision.id}","classifier":{_quoted(decision.name)},"cost":"{decision.cost:f}",'
        f'"success":{success!r},"reason":"{decision.reason}","held":{"true" if held else "false"}}}'
    ).encode()


@lru_cache(maxsize=1000)
def _quoted(name: str) -> str:
    return json.dumps(name)


async def settle(body: SettleRequest, call: Asks) -> SettleAnswer:
    """Say what a decision whose cost was held really cost."""
    # The hold itself knows its client and amount, so any process that shares the ledger can settle it.
    hold = await call.service.hold(body.decision)
    if hold is None or not call.caller.owns(hold.client):
        raise ProblemError("unknown_decision", "there is no such decision of yours, or its cost was not held.")
    cost = amount_of(rounded_up(amount(body.cost)))
    if cost > hold.amount:
        raise ProblemError(
            "above_hold",
            f"the cost {written(cost)} is above the {written(hold.amount)} held for this decision: "
            "settle at most that, or have an administrator correct it (POST /v1/correct).",
        )
    await call.service.router.wallet.asettle(hold, cost)
    return SettleAnswer(decision=hold.key, cost=written(cost))


async def plan(service: Service, caller: Caller, content: bytes) -> bytes:
    """Decide about many queries together."""
    return await service.heavily(planned, service.router.snapshot, service.limits.rows, content)


OPERATIONS = (
    Operation(
        "POST", "/v1/route", "Decide which classifier one query goes to",
        lean=route, takes=RouteRequest, gives=RouteAnswer, scope="route",
        problems=("budget_exhausted", "ledger_unavailable"),
    ),
    Operation(
        "POST", "/v1/settle", "Say what a held decision really cost",
        endpoint=settle, takes=SettleRequest, gives=SettleAnswer, scope="route",
        problems=("unknown_decision", "above_hold", "ledger_unavailable", "storage_unavailable"),
    ),
    Operation(
        "POST", "/v1/plan", "Decide about many queries within one budget",
        lean=plan, takes=PlanRequest, gives=PlanAnswer, scope="route", bulk=True,
        problems=("budget_too_small",),
    ),
)  # fmt: skip
