"""The application: every operation, guarded and documented, around one service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from occamroute._version import __version__
from occamroute.errors import OccamError
from occamroute.serving.endpoints import answering, changing, chat, deciding, health, inference, looking
from occamroute.serving.gate import Gate
from occamroute.serving.operations import Operation, refused
from occamroute.serving.problems import ProblemError, problem_for
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
    app.router.routes.extend(operation.route() for operation in OPERATIONS)
    app.add_middleware(Gate, service=service)
    for kind in (ProblemError, OccamError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refuse)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    """The problem that an error is to its caller."""
    problem = _problem(request, error)
    if problem is None:
        raise error
    content = problem.content(request.url.path)
    return Response(
        content, problem.status, {name.decode(): value.decode() for name, value in problem.header_list(len(content))}
    )


def _problem(request: Request, error: Exception) -> ProblemError | None:
    if isinstance(error, RequestValidationError):
        return refused([one for one in error.errors() if isinstance(one, dict)])
    if isinstance(error, HTTPException):
        return _of_http(request, error)
    return problem_for(error)


def _of_http(request: Request, error: HTTPException) -> ProblemError:
    if error.status_code == 405:
        return ProblemError("method_not_allowed", headers={"allow": ", ".join(_methods(request.app, request.url.path))})
    if error.status_code == 404:
        return ProblemError("not_found")
    return ProblemError("malformed_request" if error.status_code < 500 else "internal")


def _methods(app: FastAPI, path: str) -> list[str]:
    """Every method that a path takes: several routes may share it."""
    found: set[str] = set()
    for route in app.routes:
        matcher: Any = getattr(route, "path_regex", None)
        if matcher is not None and matcher.match(path):
            found |= set(getattr(route, "methods", None) or ())
    return sorted(found)
