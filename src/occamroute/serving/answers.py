"""Answers that are bought for requests, whichever protocol they came by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from occamroute.errors import BudgetExceededError, InvalidInputError
from occamroute.serving.admission import Caller
from occamroute.serving.bodies import written
from occamroute.serving.problems import ProblemError
from occamroute.serving.queries import Form
from occamroute.serving.service import Service

if TYPE_CHECKING:
    from occamroute.routing.answering import Answered

__all__ = ["MODEL", "PROBLEMS", "classified", "headers_of"]

MODEL = "occam-auto"
PROBLEMS = (
    "no_pool",
    "in_progress",
    "repeated_key",
    "budget_exhausted",
    "no_classifier_answered",
    "ledger_unavailable",
)


async def classified(
    service: Service, caller: Caller, form: Form, query: Any, *, features: Any = None, key: str | None = None
) -> Answered:
    """The answer to a query of the caller."""
    if service.answerer is None:
        raise ProblemError("no_pool")
    if form not in service.forms:
        allowed = ", ".join(sorted(service.forms))
        raise InvalidInputError(f"queries of this service are {allowed}, got {form}.")
    row = _given(service, features)
    try:
        answered = await service.answerer.classify(query, features=row, client=caller.client, key=key)
    except BudgetExceededError as error:
        raise await service.exhausted(error) from None
    except InvalidInputError as error:
        if key is None:
            raise
        raise ProblemError("repeated_key", str(error)) from None
    service.count(answered)
    return answered


def _given(service: Service, features: Any) -> Any:
    """Features (d,) that came with a query; None where the pool extracts them, without which they must come."""
    snapshot = service.router.snapshot
    extractor = snapshot.paid_extractor
    if features is None and (extractor is None or extractor in service.extracts):
        return None
    return features if snapshot.looks_at_text and features is not None else service.router.checked(features)[0]


def headers_of(answered: Answered) -> dict[str, str]:
    """Who answered, for how much, by which decision."""
    return {
        "x-occam-model": quote(answered.classifier, safe=" !#$&'()*+,-./:;<=>?@[]^_`{|}~"),
        "x-occam-cost": written(answered.cost),
        "x-occam-decision": answered.decision.id,
    }
