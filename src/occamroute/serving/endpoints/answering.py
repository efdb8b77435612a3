"""Answering: decide, buy and settle; by the service's own way, by OpenAI's and by KServe's."""

from __future__ import annotations

import json

from occamroute.serving.admission import Caller
from occamroute.serving.answers import PROBLEMS, classified, headers_of
from occamroute.serving.bodies import ClassifyAnswer, ClassifyRequest, feature_array, query_value, written
from occamroute.serving.guards import LeanAnswer
from occamroute.serving.idempotency import checked_key
from occamroute.serving.operations import Operation
from occamroute.serving.parsing import parsed
from occamroute.serving.service import Service

__all__ = ["OPERATIONS"]


async def classify(service: Service, caller: Caller, content: bytes, sent_key: bytes | None) -> LeanAnswer:
    """The answer to one query."""
    key, wish = checked_key(sent_key), parsed(ClassifyRequest, content)
    form, query = query_value(wish.query)
    answered = await classified(service, caller, form, query, features=feature_array(wish.features), key=key)
    answer = {
        "label": answered.label,
        "probabilities": dict(zip(service.classes, answered.probabilities.tolist(), strict=True)),
        "classifier": answered.classifier,
        "decision": answered.decision.id,
        "cost": written(answered.cost),
        "calls": [
            {"classifier": one.name, "outcome": one.outcome, "cost": written(one.cost), "seconds": one.seconds}
            for one in answered.calls
        ],
    }
    return LeanAnswer(json.dumps(answer, allow_nan=False, ensure_ascii=False).encode(), headers_of(answered))


OPERATIONS = (
    Operation(
        "POST", "/v1/classify", "Answer one query: decide, call, settle",
        lean=classify, takes=ClassifyRequest, gives=ClassifyAnswer, scope="classify", family="answering",
        problems=PROBLEMS, keyed=True,
    ),
)  # fmt: skip
