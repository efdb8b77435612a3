"""Answering: decide, buy and settle; by the service's own way, by OpenAI's and by KServe's."""

from __future__ import annotations

from fastapi import Response

from occamroute.serving.answers import PROBLEMS, IdempotencyKey, classified, headers_of
from occamroute.serving.bodies import CallMade, ClassifyAnswer, ClassifyRequest, feature_array, query_value, written
from occamroute.serving.operations import Asks, Operation

__all__ = ["OPERATIONS"]


async def classify(
    body: ClassifyRequest, call: Asks, response: Response, idempotency_key: IdempotencyKey = None
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
        cost=written(answered.cost),
        calls=[
            CallMade(classifier=one.name, outcome=one.outcome, cost=written(one.cost), seconds=one.seconds)
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
