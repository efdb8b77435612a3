"""Gate: what every request passes, whatever it asks for: it is counted, it may be one too many, and it may fail."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from occamroute.serving.problems import ProblemError, problem_for
from occamroute.serving.service import Service

__all__ = ["Gate", "send_problem"]

LOG = logging.getLogger("occamroute")
# Never refused for too many requests: whoever restarts services asks these.
HEALTH = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")


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
        except Exception as error:  # noqa: BLE001  # the last place where it can be told
            problem = problem_for(error)
            if problem is None or status:
                _log(error, scope)
            if not status:
                await send_problem(problem or ProblemError("internal"), scope, counted)
        finally:
            service.in_flight -= 1
            declared = path if lean else getattr(scope.get("route"), "path", "other")
            service.metrics.request(scope["method"], declared, status, time.perf_counter() - began)


async def send_problem(problem: ProblemError, scope: Scope, send: Send) -> None:
    """Answer with a problem."""
    content = problem.content(scope["path"])
    headers = problem.header_list(len(content))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _log(error: Exception, scope: Scope) -> None:
    """Where it happened, but not what the exception says: that may quote a query or a key."""
    where = "".join(traceback.format_tb(error.__traceback__)[-8:])
    LOG.error("%s %s failed: %s\n%s", scope["method"], scope["path"], type(error).__name__, where)
