"""Gate: what every request passes, whatever it asks for: it is counted, it may be one too many, and it may fail."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from occamroute.serving.answers import MODEL
from occamroute.serving.problems import ProblemError, problem_for
from occamroute.serving.service import Service

__all__ = ["Gate", "log_failure", "send_problem"]

LOG = logging.getLogger("occamroute")
# Frames of a traceback that are logged.
DEEP = 8
# Never refused for too many requests: whoever restarts services asks these.
HEALTH = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", f"/v2/models/{MODEL}/ready")


class Gate:
    """A middleware in plain ASGI: the others that Starlette offers cost more than an endpoint.

    ``lean`` are endpoints by method and path that need no router, and are reached past it.
    """

    def __init__(self, app: ASGIApp, service: Service, lean: Mapping[tuple[str, str], ASGIApp]) -> None:
        self._app, self._service, self._lean = app, service, lean

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, and see what becomes of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service, began, status, path = self._service, time.perf_counter(), 0, scope["path"]
        lean = self._lean.get((scope["method"], path))

        async def counted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        service.in_flight += 1
        try:
            if service.in_flight > service.limits.in_flight and path not in HEALTH:
                await send_problem(ProblemError("overloaded", retry_after=1), scope, counted)
                return
            await (lean or self._app)(scope, receive, counted)
        except asyncio.CancelledError:
            # The server does so to whatever outlasts its patience when it stops.
            if not status:
                await send_problem(ProblemError("not_ready", retry_after=1), scope, counted)
        except Exception as error:  # noqa: BLE001  # the last place where it can be told
            problem = problem_for(error) or ProblemError("internal")
            if status != 500 and (status or problem.code == "internal"):
                log_failure(error, scope)
            if not status:
                await send_problem(problem, scope, counted)
        finally:
            service.in_flight -= 1
            declared = path if lean else _route(scope)
            service.metrics.request(scope["method"], declared, status, time.perf_counter() - began)


async def send_problem(problem: ProblemError, scope: Scope, send: Send) -> None:
    """Answer with a problem."""
    content = problem.content(scope["path"])
    headers = problem.header_list(len(content))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def log_failure(error: Exception, scope: Scope) -> None:
    """Where it happened, but not what the exception says: that may quote a query or a key."""
    frames = traceback.extract_tb(error.__traceback__)[-DEEP:]
    where = "\n".join(f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    LOG.error("%s %s failed: %s\n%s", scope["method"], _route(scope), type(error).__name__, where)


def _route(scope: Scope) -> str:
    """The path as it is declared: what a caller put into one may be anything."""
    return str(getattr(scope.get("route"), "path", "other"))
