"""The Open Inference Protocol, version 2 (KServe): a tensor of queries in, tensors of answers out."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from occamroute._version import __version__
from occamroute.errors import InvalidInputError
from occamroute.serving.answers import MODEL, PROBLEMS, classified
from occamroute.serving.bodies import FIRST, Given, Numbers, Whole, written
from occamroute.serving.idempotency import IdempotencyKey
from occamroute.serving.operations import Asks, Operation, Uses
from occamroute.serving.problems import ProblemError, problem_for
from occamroute.serving.queries import Form

if TYPE_CHECKING:
    from occamroute.routing.answering import Answered

__all__ = ["OPERATIONS"]

TEXTS, INPUT = "BYTES", "query"
OUTPUTS = ("label", "probabilities", "classifier", "cost", "decision", "error")


class Lenient(BaseModel):
    """Fields of the protocol that make no difference here are left alone."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


# A tensor is one list, or lists in lists as its shape says.
Flat = Annotated[list[str], FIRST] | Numbers
Rows = Annotated[list[Flat], FIRST]
Tables = Annotated[list[Rows], FIRST]


class InputTensor(Lenient):
    """Queries: n texts (BYTES), or n rows of numbers."""

    name: str
    shape: list[Annotated[Whole, Field(ge=1, le=10_000_000)]] = Field(min_length=1, max_length=4)
    datatype: Literal["BYTES", "FP32", "FP64", "INT32", "INT64"]
    data: Flat | Rows | Tables | Annotated[list[Tables], FIRST] = Field(min_length=1)


class OutputWanted(Lenient):
    """A tensor to answer with."""

    name: Literal["label", "probabilities", "classifier", "cost", "decision", "error"]


class InferRequest(Lenient):
    """Queries to answer."""

    id: str | None = Field(None, max_length=200)
    inputs: list[InputTensor] = Field(min_length=1, max_length=1)
    outputs: list[OutputWanted] = Field([], fail_fast=True, description="Which tensors to answer with; by default all.")


class OutputTensor(Given):
    """Answers: one for each query, row by row."""

    name: str
    shape: list[int]
    datatype: str
    data: list[str] | list[float]


class InferAnswer(Given):
    """Labels, probabilities (n, classes), and who answered each query for how much.

    A query without an answer has empty texts and probabilities of 0, and ``error`` says why: a code and a sentence.
    """

    model_name: str
    id: str | None = Field(None, description="That of the request, where it had one.")
    outputs: list[OutputTensor]


class TensorAbout(Given):
    """A tensor by its name, type and shape; -1 is any number."""

    name: str
    datatype: str
    shape: list[int]


class ModelAbout(Given):
    """The model in the words of the protocol."""

    name: str
    platform: str
    inputs: list[TensorAbout]
    outputs: list[TensorAbout]


class Live(Given):
    """That the process answers."""

    live: Literal[True]


class Ready(Given):
    """That requests may be sent."""

    ready: Literal[True]


class ModelReady(Ready):
    """That the model may be asked."""

    name: str


class ServerAbout(Given):
    """The server in the words of the protocol."""

    name: str
    version: str
    extensions: list[str]


async def infer(body: InferRequest, call: Asks, idempotency_key: IdempotencyKey = None) -> JSONResponse:
    """Answer every query of a tensor; the request fails only where no query has an answer.

    Under an idempotency key each query has a key of its own: sent again, only those without an answer are paid for.
    """
    tensor = body.inputs[0]
    form, queries = _queries(tensor, call.service.limits.tensors)
    keys = [None if idempotency_key is None else _key_of(idempotency_key, number) for number in range(len(queries))]
    answers = await asyncio.gather(
        *(
            classified(call.service, call.caller, form, query, key=key)
            for query, key in zip(queries, keys, strict=True)
        ),
        return_exceptions=True,
    )
    failed = [one for one in answers if isinstance(one, BaseException)]
    unknown = next((one for one in failed if problem_for(one) is None), None)
    if unknown is not None or len(failed) == len(answers):
        raise unknown or failed[0]
    wanted = {one.name for one in body.outputs} or OUTPUTS
    outputs = [one for one in _outputs(answers, call.service.classes) if one.name in wanted]
    made = InferAnswer(model_name=MODEL, id=body.id, outputs=outputs)
    return JSONResponse(made.model_dump(exclude_none=True))


async def model(service: Uses) -> ModelAbout:
    """What goes in and what comes out."""
    classes = len(service.classes)
    texts = "text" in service.forms
    return ModelAbout(
        name=MODEL,
        platform="occamroute",
        inputs=[TensorAbout(name=INPUT, datatype=TEXTS if texts else "FP64", shape=[-1] if texts else [-1, -1])],
        outputs=[
            TensorAbout(name="label", datatype=TEXTS, shape=[-1]),
            TensorAbout(name="probabilities", datatype="FP64", shape=[-1, classes]),
            TensorAbout(name="classifier", datatype=TEXTS, shape=[-1]),
            TensorAbout(name="cost", datatype=TEXTS, shape=[-1]),
            TensorAbout(name="decision", datatype=TEXTS, shape=[-1]),
            TensorAbout(name="error", datatype=TEXTS, shape=[-1]),
        ],
    )


async def server(service: Uses) -> ServerAbout:
    """Who this is."""
    return ServerAbout(name="occamroute", version=__version__, extensions=[])


async def live() -> Live:
    """Whether the process answers."""
    return Live(live=True)


async def ready(service: Uses) -> Ready:
    """Whether requests may be sent."""
    if not service.ready:
        raise ProblemError("not_ready", retry_after=1)
    return Ready(ready=True)


async def model_ready(service: Uses) -> ModelReady:
    """Whether the model may be asked."""
    await ready(service)
    return ModelReady(name=MODEL, ready=True)


def _queries(tensor: InputTensor, most: int) -> tuple[Form, list[Any]]:
    rows = tensor.shape[0]
    if rows > most:
        raise InvalidInputError(f"a request answers at most {most} queries, got {rows}.")
    texts = tensor.datatype == TEXTS
    flat = _flat(tensor.data, tensor.shape)
    if len(flat) != math.prod(tensor.shape) or any(isinstance(value, str) is not texts for value in flat):
        raise InvalidInputError(
            f"data must be {math.prod(tensor.shape)} values of {tensor.datatype}, as the shape says."
        )
    if texts:
        if len(flat) != rows or len(tensor.shape) > 2:
            raise InvalidInputError(f"texts must be of shape [{rows}] or [{rows}, 1], got {tensor.shape}.")
        return "text", flat
    return "numbers", list(np.array(flat, np.float64).reshape(tensor.shape if len(tensor.shape) > 1 else (rows, 1)))


def _flat(data: list[Any], shape: list[int]) -> list[Any]:
    """The values of a tensor in one row; none where lists in lists are not as the shape says."""
    if not any(isinstance(part, list) for part in data):
        return data
    if len(data) != shape[0] or len(shape) == 1:
        return []
    parts = [_flat(part, shape[1:]) for part in data if isinstance(part, list)]
    fits = len(parts) == len(data) and all(len(part) == math.prod(shape[1:]) for part in parts)
    return [value for part in parts for value in part] if fits else []


def _key_of(key: str, number: int) -> str:
    """The key of one query of a request."""
    return hashlib.sha256(f"{key} {number}".encode()).hexdigest()


def _error(problem: ProblemError | None) -> str:
    return "" if problem is None else str(problem)


def _outputs(answers: Sequence[Answered | BaseException], classes: tuple[str, ...]) -> list[OutputTensor]:
    rows = len(answers)
    given = [None if isinstance(one, BaseException) else one for one in answers]
    columns = {
        "label": ["" if one is None else one.label for one in given],
        "classifier": ["" if one is None else one.classifier for one in given],
        "cost": ["" if one is None else written(one.cost) for one in given],
        "decision": ["" if one is None else one.decision.id for one in given],
        "error": [_error(problem_for(one)) if isinstance(one, BaseException) else "" for one in answers],
    }
    nothing = [0.0] * len(classes)
    table = [float(value) for one in given for value in (nothing if one is None else one.probabilities)]
    named = {name: OutputTensor(name=name, shape=[rows], datatype=TEXTS, data=data) for name, data in columns.items()}
    chances = OutputTensor(name="probabilities", shape=[rows, len(classes)], datatype="FP64", data=table)
    return [named.pop("label"), chances, *named.values()]


OPERATIONS = (
    Operation(
        "POST", f"/v2/models/{MODEL}/infer", "Answer queries, in the Open Inference Protocol",
        endpoint=infer, takes=InferRequest, gives=InferAnswer, scope="classify", family="answering", problems=PROBLEMS,
    ),
    Operation(
        "GET", f"/v2/models/{MODEL}", "What goes in and comes out",
        endpoint=model, gives=ModelAbout, family="answering",
    ),
    Operation(
        "GET", f"/v2/models/{MODEL}/ready", "Whether the model may be asked",
        endpoint=model_ready, gives=ModelReady, guarded=False, family="health", problems=("not_ready",),
    ),
    Operation("GET", "/v2", "Who this is", endpoint=server, gives=ServerAbout, family="answering"),
    Operation(
        "GET", "/v2/health/live", "Whether the process answers",
        endpoint=live, gives=Live, guarded=False, family="health",
    ),
    Operation(
        "GET", "/v2/health/ready", "Whether requests may be sent",
        endpoint=ready, gives=Ready, guarded=False, family="health", problems=("not_ready",),
    ),
)  # fmt: skip
