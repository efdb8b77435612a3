"""The application: every operation, guarded and documented, around one service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from occamroute._version import __version__
from occamroute.errors import OccamError
from occamroute.serving.dashboard import dashboard_routes
from occamroute.serving.endpoints import answering, changing, chat, deciding, health, inference, looking
from occamroute.serving.gate import Gate, log_failure
from occamroute.serving.operations import Operation
from occamroute.serving.parsing import refused
from occamroute.serving.problems import ProblemError, problem_for
from occamroute.serving.service import Service
from occamroute.serving.sharing import shared

__all__ = ["OPERATIONS", "Application", "create_app"]

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


class Application(FastAPI):
    """FastAPI behind a gate, so that what is asked most passes by all that FastAPI puts around a request."""

    gate: Gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the beginning and end of the application."""
        await self.gate(scope, receive, send)


def create_app(service: Service) -> Application:
    """The application of a service, which it begins and ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.begin()
        async with shared(service):
            yield
        await service.end()

    app = Application(
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
    app.router.routes.extend([*routes, *dashboard_routes(service)])
    pairs = zip(OPERATIONS, routes, strict=True)
    lean = {(one.method, one.path): route.app for one, route in pairs if one.lean is not None}
    app.gate = Gate(super(Application, app).__call__, service, lean)
    for kind in (ProblemError, OccamError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refuse)
    app.add_exception_handler(Exception, _fail)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    """The problem that an error is to its caller."""
    problem = _problem(request, error)
    if problem is None:
        raise error
    return _answer(request, problem)


async def _fail(request: Request, error: Exception) -> Response:
    """The answer where the service is to blame."""
    log_failure(error, request.scope)
    return _answer(request, ProblemError("internal"))


def _answer(request: Request, problem: ProblemError) -> Response:
    content = problem.content(request.url.path)
    headers = {name.decode(): value.decode() for name, value in problem.header_list(len(content))}
    return Response(content, problem.status, headers)


def _problem(request: Request, error: Exception) -> ProblemError | None:
    if isinstance(error, RequestValidationError):
        return refused(error.errors())
    if not isinstance(error, HTTPException):
        return problem_for(error)
    if error.status_code == 405:
        return ProblemError("method_not_allowed", headers={"allow": ", ".join(_methods(request.app, request.url.path))})
    return ProblemError("not_found" if error.status_code == 404 else "malformed_request")


def _methods(app: FastAPI, path: str) -> list[str]:
    """Every method that a path takes: several routes may share it."""
    found: set[str] = set()
    for route in app.routes:
        matcher: Any = getattr(route, "path_regex", None)
        if matcher is not None and matcher.match(path):
            found |= set(getattr(route, "methods", None) or ())
    return sorted(found)
