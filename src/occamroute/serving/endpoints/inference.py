"""The Open Inference Protocol, version 2 (KServe): a tensor of queries in, tensors of answers out."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from occamroute._version import __version__
from occamroute.errors import InvalidInputError
from occamroute.serving.answers import MODEL, PROBLEMS, classified
from occamroute.serving.bodies import Given, Number, Whole
from occamroute.serving.operations import Asks, Operation, Uses
from occamroute.serving.problems import ProblemError
from occamroute.serving.queries import Form

if TYPE_CHECKING:
    from occamroute.routing.answering import Answered

__all__ = ["OPERATIONS"]

TEXTS, INPUT = "BYTES", "query"


class Lenient(BaseModel):
    """Fields of the protocol that make no difference here are left alone."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class InputTensor(Lenient):
    """Queries: n texts (BYTES), or n rows of numbers."""

    name: str
    shape: list[Annotated[Whole, Field(ge=1, le=10_000_000)]] = Field(min_length=1, max_length=4)
    datatype: Literal["BYTES", "FP32", "FP64", "INT32", "INT64"]
    data: list[str] | list[Number] | list[list[Number]] = Field(min_length=1)


class InferRequest(Lenient):
    """Queries to answer."""

    id: str | None = Field(None, max_length=200)
    inputs: list[InputTensor] = Field(min_length=1, max_length=1)


class OutputTensor(Given):
    """Answers: one for each query, row by row."""

    name: str
    shape: list[int]
    datatype: str
    data: list[str] | list[float]


class InferAnswer(Given):
    """Labels, probabilities (n, classes), and who answered each query for how much."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[OutputTensor]


class TensorAbout(Given):
    """A tensor by its name, type and shape; -1 is any number."""

    name: str
    datatype: str
    shape: list[int]


class ModelAbout(Given):
    """The model in the words of the protocol."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorAbout]
    outputs: list[TensorAbout]


class ServerAbout(Given):
    """The server in the words of the protocol."""

    name: str
    version: str
    extensions: list[str]


async def infer(body: InferRequest, call: Asks) -> InferAnswer:
    """Answer every query of a tensor; one that finds no answer fails the request, what it had cost is spent."""
    tensor = body.inputs[0]
    form, queries = _queries(tensor, call.service.limits.tensors)
    answers = await asyncio.gather(*(classified(call, form, query) for query in queries), return_exceptions=True)
    failed = next((one for one in answers if isinstance(one, BaseException)), None)
    if failed is not None:
        raise failed
    return InferAnswer(
        model_name=MODEL,
        model_version=__version__,
        id=body.id,
        outputs=_outputs(answers, call.service.classes),  # type: ignore[arg-type]
    )


async def model(service: Uses) -> ModelAbout:
    """What goes in and what comes out."""
    classes = len(service.classes)
    texts = "text" in service.forms
    return ModelAbout(
        name=MODEL,
        versions=[__version__],
        platform="occamroute",
        inputs=[TensorAbout(name=INPUT, datatype=TEXTS if texts else "FP64", shape=[-1] if texts else [-1, -1])],
        outputs=[
            TensorAbout(name="label", datatype=TEXTS, shape=[-1]),
            TensorAbout(name="probabilities", datatype="FP64", shape=[-1, classes]),
            TensorAbout(name="classifier", datatype=TEXTS, shape=[-1]),
            TensorAbout(name="cost", datatype=TEXTS, shape=[-1]),
            TensorAbout(name="decision", datatype=TEXTS, shape=[-1]),
        ],
    )


async def server(service: Uses) -> ServerAbout:
    """Who this is."""
    return ServerAbout(name="occamroute", version=__version__, extensions=[])


async def live() -> Response:
    """Whether the process answers."""
    return Response(status_code=200)


async def ready(service: Uses) -> Response:
    """Whether requests may be sent."""
    if not service.ready:
        raise ProblemError("not_ready", retry_after=1)
    return Response(status_code=200)


def _queries(tensor: InputTensor, most: int) -> tuple[Form, list[Any]]:
    rows = tensor.shape[0]
    if rows > most:
        raise InvalidInputError(f"a request answers at most {most} queries, got {rows}.")
    texts = tensor.datatype == TEXTS
    flat = [value for part in tensor.data for value in (part if isinstance(part, list) else [part])]
    if len(flat) != math.prod(tensor.shape) or any(isinstance(value, str) is not texts for value in flat):
        raise InvalidInputError(
            f"data must be {math.prod(tensor.shape)} values of {tensor.datatype}, as the shape says."
        )
    if texts:
        if len(flat) != rows or len(tensor.shape) > 2:
            raise InvalidInputError(f"texts must be of shape [{rows}] or [{rows}, 1], got {tensor.shape}.")
        return "text", flat
    return "numbers", list(np.array(flat, np.float64).reshape(tensor.shape if len(tensor.shape) > 1 else (rows, 1)))


def _outputs(answers: list[Answered], classes: tuple[str, ...]) -> list[OutputTensor]:
    rows = len(answers)
    columns = {
        "label": [one.label for one in answers],
        "classifier": [one.classifier for one in answers],
        "cost": [str(one.cost) for one in answers],
        "decision": [one.decision.id for one in answers],
    }
    table = [float(value) for one in answers for value in one.probabilities]
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
        endpoint=ready, guarded=False, media="", family="health", problems=("not_ready",),
    ),
    Operation("GET", "/v2", "Who this is", endpoint=server, gives=ServerAbout, family="answering"),
    Operation(
        "GET", "/v2/health/live", "Whether the process answers",
        endpoint=live, guarded=False, media="", family="health",
    ),
    Operation(
        "GET", "/v2/health/ready", "Whether requests may be sent",
        endpoint=ready, guarded=False, media="", family="health", problems=("not_ready",),
    ),
)  # fmt: skip
