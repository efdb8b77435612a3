"""The OpenAI wire format: the last message of the user is the query, the label is the reply."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from occamroute.errors import InvalidInputError
from occamroute.serving.answers import MODEL, PROBLEMS, classified, headers_of
from occamroute.serving.bodies import FIRST, Given, Whole
from occamroute.serving.idempotency import IdempotencyKey
from occamroute.serving.operations import Asks, Operation, Uses
from occamroute.serving.problems import ProblemError

if TYPE_CHECKING:
    from occamroute.routing.answering import Answered

__all__ = ["OPERATIONS"]


# Tokens are the classifiers' affair.
USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
# One message at least is a text of the user's.
ASKED: dict[str, Any] = {
    "type": "object",
    "properties": {"role": {"const": "user"}, "content": {"type": "string"}},
    "required": ["role", "content"],
}


class Lenient(BaseModel):
    """What clients of this protocol send beside what is looked at is left alone."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class TextPart(Lenient):
    """A part of a message; images by address are refused, as is everything that would have to be fetched."""

    type: Literal["text"]
    text: str


class Message(Lenient):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Annotated[list[TextPart], FIRST] | None = None


class StreamOptions(Lenient):
    """What a stream holds beside the answer."""

    include_usage: bool | None = None


class ChatRequest(Lenient):
    """A conversation, of which the last message of the user counts; it has one answer."""

    model: str = Field(json_schema_extra={"enum": [MODEL]})
    messages: list[Message] = Field(min_length=1, fail_fast=True, json_schema_extra={"contains": ASKED})
    n: Annotated[Whole, Field(ge=1, le=1, json_schema_extra={"enum": [1]})] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class ChatReply(BaseModel):
    """The reply of the assistant: a label."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, int]


class Model(Given):
    """A model of the service."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(Given):
    """The models of the service."""

    object: Literal["list"]
    data: list[Model]


async def chat(body: ChatRequest, call: Asks, idempotency_key: IdempotencyKey = None) -> Response:
    """Answer the last message of the user."""
    if body.model != MODEL:
        raise ProblemError("unknown_name", f"there is no model {body.model!r:.120}: use {MODEL!r}.")
    answered = await classified(call.service, call.caller, "text", _query(body.messages), key=idempotency_key)
    if body.stream:
        usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        return Response(_stream(answered, usage=usage), headers=headers_of(answered), media_type="text/event-stream")
    return JSONResponse(_reply(answered), headers=headers_of(answered))


async def models(service: Uses) -> Models:
    """The one model that there is: the classifiers behind it are chosen query by query."""
    return Models(object="list", data=[await model()])


async def model() -> Model:
    """The model, for clients that look whether it is there."""
    return Model(id=MODEL, object="model", created=0, owned_by="occamroute")


def _query(messages: list[Message]) -> str:
    for message in reversed(messages):
        if message.role == "user" and message.content is not None:
            parts = message.content
            return parts if isinstance(parts, str) else "\n".join(part.text for part in parts)
    raise InvalidInputError("messages must hold one of the role 'user' with a text.")


def _reply(answered: Answered) -> dict[str, Any]:
    message = {"role": "assistant", "content": answered.label, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {**_about(answered, "chat.completion"), "choices": [choice], "usage": USAGE}


def _stream(answered: Answered, *, usage: bool) -> str:
    """The whole answer as one delta, and the end; before it the usage, which the others then lack, where asked for."""
    about = _about(answered, "chat.completion.chunk") | ({"usage": None} if usage else {})
    deltas = [({"role": "assistant", "content": answered.label}, None), ({}, "stop")]
    chunks = [{**about, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas]
    if usage:
        chunks.append({**about, "choices": [], "usage": USAGE})
    return "".join(f"data: {chunk}\n\n" for chunk in (*map(json.dumps, chunks), "[DONE]"))


def _about(answered: Answered, kind: str) -> dict[str, Any]:
    decision = answered.decision
    return {"id": f"chatcmpl-{decision.id}", "object": kind, "created": int(decision.at), "model": MODEL}


OPERATIONS = (
    Operation(
        "POST", "/v1/chat/completions", "Answer the last message of the user, in OpenAI's wire format",
        endpoint=chat, takes=ChatRequest, gives=ChatReply, scope="classify", family="answering",
        problems=("unknown_name", *PROBLEMS), streams=True,
    ),
    Operation(
        "GET", "/v1/models", "The models of the service, in OpenAI's wire format",
        endpoint=models, gives=Models, family="answering",
    ),
    Operation(
        "GET", f"/v1/models/{MODEL}", "The model, in OpenAI's wire format",
        endpoint=model, gives=Model, family="answering",
    ),
)  # fmt: skip
