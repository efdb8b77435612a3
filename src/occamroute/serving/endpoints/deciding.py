"""Deciding: one query, many queries, and what a decision came to."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from functools import lru_cache

from occamroute._arrays import FloatArray
from occamroute.errors import BudgetExceededError, InvalidInputError
from occamroute.ledger.base import Reply, amount_of, rounded_up
from occamroute.routing.answering import LONG_TEXT
from occamroute.routing.decisions import Decision, decision_id
from occamroute.routing.repeats import Who
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
from occamroute.serving.idempotency import checked_key
from occamroute.serving.operations import Asks, Operation
from occamroute.serving.parsing import parsed
from occamroute.serving.planning import planned
from occamroute.serving.problems import ProblemError
from occamroute.serving.service import Service

__all__ = ["OPERATIONS"]

# Seconds that the ledger may take to say whether a key was used before.
PATIENCE = 10.0


async def route(service: Service, caller: Caller, content: bytes, sent_key: bytes | None) -> bytes:
    """Decide about one query: the way that is asked most, so nothing is done twice."""
    key, wish = checked_key(sent_key), parsed(RouteRequest, content)
    try:
        if key is None:
            decision = await _decided(service, caller, wish)
            return _decision_text(decision, held=wish.hold)
        return await _routed_once(service, caller, wish, key)
    except BudgetExceededError as error:
        raise await service.exhausted(error) from None


async def _decided(
    service: Service,
    caller: Caller,
    wish: RouteRequest,
    name: str | None = None,
    reply: Callable[[Decision], Reply] | None = None,
) -> Decision:
    features = await _row(service, wish)
    decision = await service.decider.decide(features, caller.client, name)
    if wish.hold:
        decision = await service.router.aheld(decision, lease_seconds=wish.lease_seconds, reply=reply)
    service.metrics.decisions[decision.name, decision.reason] += 1
    return decision


async def _row(service: Service, wish: RouteRequest) -> FloatArray:
    """The features (1, d) of a query: those that came with it, those of its text, or both."""
    if wish.query is None:
        return service.router.checked(feature_array(wish.features))
    if not service.router.snapshot.looks_at_text:
        raise InvalidInputError("query must be left out: texts of queries are not looked at.")
    if len(wish.query) <= LONG_TEXT:
        return service.router.checked(feature_array(wish.features), wish.query)
    return await service.wait(service.router.checked, feature_array(wish.features), wish.query)


async def _routed_once(service: Service, caller: Caller, wish: RouteRequest, key: str) -> bytes:
    """One decision and one hold, however often a key comes, and to whichever process."""
    await _row(service, wish)  # what is wrong with the query is said first
    said = wish.model_dump_json(exclude={"query"} if wish.query is None else None)
    who, about = (caller.client, key, "route"), hashlib.sha256(said.encode()).hexdigest()
    try:
        future, mine = service.routed.join(who, about)
        if mine:
            # On its own: a client that goes away may ask again, and gets the same.
            service.in_background(_route_for(service, caller, wish, who, about))
        answer: bytes = await asyncio.shield(asyncio.wrap_future(future))
    except InvalidInputError as error:
        raise ProblemError("repeated_key", str(error)) from None
    return answer


async def _route_for(service: Service, caller: Caller, wish: RouteRequest, who: Who, about: str) -> None:
    """Make the answer that those who came with this key wait for."""
    try:
        service.routed.keep(who, await _routed(service, caller, wish, who, about))
    except asyncio.CancelledError:
        service.routed.drop(who, ProblemError("not_ready", retry_after=1))
        raise
    except Exception as error:  # noqa: BLE001  # those who wait hear of it
        service.routed.drop(who, error)


async def _routed(service: Service, caller: Caller, wish: RouteRequest, who: Who, about: str) -> bytes:
    # The first request with the key fixes the decision's id. The answer is stored together with the hold under that id:
    # if there is no answer, no hold was made, and this request may make it.
    claims, name = service.claims, decision_id()
    claim = await claims.take(who, about, seconds=PATIENCE, content=name)
    if isinstance(claim, str):
        name = claim
        if (stored := await claims.reply(name)) is not None:
            return stored.content.encode()
    else:
        claims.end_soon(claim)

    def reply(made: Decision) -> Reply:
        return Reply(about, _decision_text(made, held=True).decode())

    decision = await _decided(service, caller, wish, name, reply)
    stored = await claims.reply(name) if wish.hold else None
    return _decision_text(decision, held=wish.hold) if stored is None else stored.content.encode()


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
        lean=route, takes=RouteRequest, gives=RouteAnswer, scope="route", keyed=True,
        problems=("repeated_key", "in_progress", "budget_exhausted", "ledger_unavailable"),
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
