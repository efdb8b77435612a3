"""Looking: decisions and why they were made, the budget, the frontier, alarms; and what was true in the end."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from occamroute.errors import InvalidInputError
from occamroute.serving.bodies import (
    DECISION,
    AlarmRaised,
    Alarms,
    Budget,
    Decisions,
    FeedbackAnswer,
    Frontier,
    FrontierPoint,
    LabelRequest,
    Receipt,
    SuccessRequest,
    written,
)
from occamroute.serving.operations import Asks, Operation, Uses
from occamroute.serving.problems import ProblemError
from occamroute.serving.sharing import COUNT, drift, others

__all__ = ["OPERATIONS"]

Moment = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e11)]


class Search(BaseModel):
    """Which receipts; times are seconds since 1970."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    since: Moment | None = None
    until: Moment | None = None
    classifier: str | None = Field(None, max_length=200)
    reason: str | None = Field(None, max_length=40)
    client: str | None = Field(None, max_length=200)
    limit: int = Field(100, ge=1, le=1000)
    before: str | None = Field(None, pattern=DECISION, description="The id of the last one already seen.")


async def frontier(service: Uses) -> Frontier:
    """What accuracy is expected at which mean cost of a query."""
    points = await service.wait(service.router.frontier)
    return Frontier(points=[FrontierPoint(**point) for point in points])


async def budget(
    service: Uses,
    client: Annotated[
        str | None, Query(min_length=1, max_length=200, description="Whose; by default everybody's.")
    ] = None,
) -> Budget:
    """How the budget stands."""
    balance = await service.router.wallet.balance(client)
    amounts = {name: written(getattr(balance, name)) for name in ("cap", "held", "spent", "available")}
    return Budget(**amounts, since=balance.since, until=balance.until, now=balance.now, client=client)


async def alarms(service: Uses, response: Response) -> Alarms:
    """What has changed since the labelled rows were gathered."""
    records = await service.wait(others, service)
    if service.records is not None:
        response.headers[COUNT] = str(1 + len(records))
    found = await service.wait(drift, service, records)
    return Alarms(alarms=[AlarmRaised(**one) for one in found["alarms"]], evidence=found["evidence"])


async def decision(id: Annotated[str, Path(pattern=DECISION)], service: Uses) -> Receipt:  # noqa: A002  # the field's name
    """A receipt."""
    receipts = service.router.receipts
    found = None if receipts is None else await service.wait(receipts.get, id)
    if found is None:
        raise ProblemError("unknown_decision")
    return Receipt(**found)


async def decisions(wish: Annotated[Search, Query()], service: Uses) -> Decisions:
    """Receipts in short."""
    receipts = service.router.receipts
    found = [] if receipts is None else await service.wait(receipts.search, **wish.model_dump())
    following = found[-1]["id"] if len(found) == wish.limit else None
    return Decisions(decisions=[Receipt(**one) for one in found], next=following)


async def feedback(body: LabelRequest | SuccessRequest, call: Asks) -> FeedbackAnswer:
    """Say what was true."""
    owned = await call.service.owned(body.decision, call.caller)
    truth = {"label": body.label} if isinstance(body, LabelRequest) else {"success": body.success}
    try:
        success = await call.service.wait(call.service.router.feedback, owned.id, **truth)
    except InvalidInputError as error:
        raise ProblemError("conflict", str(error)) from None
    return FeedbackAnswer(decision=owned.id, success=success)


OPERATIONS = (
    Operation(
        "POST", "/v1/feedback", "Say what was true of a query",
        endpoint=feedback, takes=LabelRequest, gives=FeedbackAnswer, scope="feedback", family="looking",
        problems=("unknown_decision", "conflict", "storage_unavailable"),
    ),
    Operation(
        "GET", "/v1/frontier", "The expected accuracy at every mean cost of a query",
        endpoint=frontier, gives=Frontier, scope="read", family="looking",
    ),
    Operation(
        "GET", "/v1/budget", "How the budget stands",
        endpoint=budget, gives=Budget, scope="read", family="looking",
        problems=("invalid_request", "ledger_unavailable"),
    ),
    Operation(
        "GET", "/v1/alarms", "What has changed since the labelled rows were gathered",
        endpoint=alarms, gives=Alarms, scope="read", family="looking",
    ),
    Operation(
        "GET", "/v1/decisions", "Receipts in short, newest first",
        endpoint=decisions, gives=Decisions, scope="read", family="looking",
        problems=("invalid_request", "storage_unavailable"),
    ),
    Operation(
        "GET", "/v1/decisions/{id}", "A decision with all that it followed from",
        endpoint=decision, gives=Receipt, scope="read", family="looking",
        problems=("unknown_decision", "invalid_request", "storage_unavailable"),
    ),
)  # fmt: skip
