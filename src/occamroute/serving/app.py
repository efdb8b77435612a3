"""The application: every operation, guarded and documented, around one service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from occamroute._version import __version__
from occamroute.serving.endpoints import answering, changing, chat, deciding, health, inference, looking
from occamroute.serving.gate import Gate
from occamroute.serving.operations import Operation, refused
from occamroute.serving.problems import ProblemError
from occamroute.serving.service import Service

__all__ = ["OPERATIONS", "create_app"]

# The first is looked for first: it is asked most.
OPERATIONS: tuple[Operation, ...] = (
    *deciding.OPERATIONS,
    *answering.OPERATIONS,
    *chat.OPERATIONS,
    *inference.OPERATIONS,
    *looking.OPERATIONS,
    *changing.OPERATIONS,
    *health.OPERATIONS,
)


def create_app(service: Service) -> FastAPI:
    """The application of a service, which it begins and ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.begin()
        yield
        await service.end()

    app = FastAPI(
        title="occamroute",
        version=__version__,
        description="Decides, query by query, which classifier answers, so that a budget buys the most right answers.",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    routes = [operation.route(service) for operation in OPERATIONS]
    app.router.routes.extend(routes)
    pairs = zip(OPERATIONS, routes, strict=True)
    lean = {(one.method, one.path): route.app for one, route in pairs if one.lean is not None}
    app.add_middleware(Gate, service=service, lean=lean)
    for kind in (RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refuse)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    """The problem that a refusal of FastAPI is to its caller; all others come to the gate."""
    problem = _problem(request, error)
    content = problem.content(request.url.path)
    return Response(
        content, problem.status, {name.decode(): value.decode() for name, value in problem.header_list(len(content))}
    )


def _problem(request: Request, error: Exception) -> ProblemError:
    if isinstance(error, RequestValidationError):
        return refused(error.errors())
    if isinstance(error, HTTPException) and error.status_code == 405:
        return ProblemError("method_not_allowed", headers={"allow": ", ".join(_methods(request.app, request.url.path))})
    return ProblemError("not_found" if getattr(error, "status_code", 0) == 404 else "malformed_request")


def _methods(app: FastAPI, path: str) -> list[str]:
    """Every method that a path takes: several routes may share it."""
    found: set[str] = set()
    for route in app.routes:
        matcher: Any = getattr(route, "path_regex", None)
        if matcher is not None and matcher.match(path):
            found |= set(getattr(route, "methods", None) or ())
    return sorted(found)
