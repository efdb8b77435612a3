"""Answering: decide, buy and settle; by the service's own way, by OpenAI's and by KServe's."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Response

from occamroute.serving.answers import PROBLEMS, classified, headers_of
from occamroute.serving.bodies import CallMade, ClassifyAnswer, ClassifyRequest, feature_array, query_value
from occamroute.serving.operations import Asks, Operation

__all__ = ["OPERATIONS"]

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$",
        description="The same key again gives the same answer, and is not charged again.",
    ),
]  # fmt: skip


async def classify(
    body: ClassifyRequest, call: Asks, response: Response, idempotency_key: Key = None
) -> ClassifyAnswer:
    """The answer to one query."""
    form, query = query_value(body.query)
    answered = await classified(call, form, query, features=feature_array(body.features), key=idempotency_key)
    response.headers.update(headers_of(answered))
    classes = call.service.classes
    return ClassifyAnswer(
        label=answered.label,
        probabilities=dict(zip(classes, answered.probabilities.tolist(), strict=True)),
        classifier=answered.classifier,
        decision=answered.decision.id,
        cost=str(answered.cost),
        calls=[
            CallMade(classifier=one.name, outcome=one.outcome, cost=str(one.cost), seconds=one.seconds)
            for one in answered.calls
        ],
    )


OPERATIONS = (
    Operation(
        "POST", "/v1/classify", "Answer one query: decide, call, settle",
        endpoint=classify, takes=ClassifyRequest, gives=ClassifyAnswer, scope="classify", family="answering",
        problems=PROBLEMS,
    ),
)  # fmt: skip
