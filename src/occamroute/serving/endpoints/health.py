"""Health, metrics, and the documents that a service gives of itself."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query, Request, Response

from occamroute._version import __version__
from occamroute.serving.bodies import Given
from occamroute.serving.documents import document_bytes, page
from occamroute.serving.gauges import gauges
from occamroute.serving.metrics import exposition
from occamroute.serving.operations import Operation, Uses
from occamroute.serving.problems import ProblemError
from occamroute.serving.sharing import COUNT, metric_families, others

__all__ = ["OPERATIONS"]

METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Health(Given):
    """That the process answers, and what it is."""

    status: Literal["ok"]
    version: str


async def healthz() -> Health:
    """Whether the process answers."""
    return Health(status="ok", version=__version__)


async def readyz(service: Uses) -> Health:
    """Whether requests may be sent."""
    if not service.ready:
        raise ProblemError("not_ready", retry_after=1)
    return Health(status="ok", version=__version__)


async def metrics(
    service: Uses,
    replicas: Annotated[
        Literal["own", "all"] | None,
        Query(description="own: of the process that answers; all: of all that share the ledger, by replica."),
    ] = None,
) -> Response:
    """Everything that is counted."""
    families = [*service.metrics.families(), *await service.wait(gauges, service)]
    headers = {"content-type": METRICS}
    # A replica on Ray Serve cannot be asked alone, while every other process is a target of its own.
    if service.records is not None and (replicas or ("all" if service.replicated else "own")) == "all":
        records = await service.wait(others, service)
        headers[COUNT] = str(1 + len(records))
        families = metric_families(service.records.name, families, records)
    return Response(exposition(families), headers=headers)


async def openapi(request: Request, service: Uses) -> Response:
    """The OpenAPI document."""
    return Response(await service.wait(document_bytes, request.app), media_type="application/json")


async def docs() -> Response:
    """A page that shows the OpenAPI document; nothing on it comes from elsewhere."""
    content, policy = page()
    return Response(content, media_type="text/html", headers={"content-security-policy": policy})


OPERATIONS = (
    Operation(
        "GET", "/healthz", "Whether the process answers",
        endpoint=healthz, gives=Health, guarded=False, family="health",
    ),
    Operation(
        "GET", "/readyz", "Whether requests may be sent",
        endpoint=readyz, gives=Health, guarded=False, family="health", problems=("not_ready",),
    ),
    Operation(
        "GET", "/metrics", "Counters for Prometheus",
        endpoint=metrics, scope="read", media="text/plain", family="health", problems=("invalid_request",),
    ),
    Operation(
        "GET", "/openapi.json", "The OpenAPI document",
        endpoint=openapi, gives=dict[str, object], guarded=False, family="health",
    ),
    Operation(
        "GET", "/docs", "This document as a page",
        endpoint=docs, guarded=False, media="text/html", family="health",
    ),
)  # fmt: skip
