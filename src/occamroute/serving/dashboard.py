"""The dashboard of a service: the same page as ``occamroute open`` shows, behind the service's keys."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from occamroute.reporting.dashboard.replies import API, FOREIGN, Reply, is_foreign, page_file, reply
from occamroute.reporting.dashboard.subjects import Subject, Wish
from occamroute.serving.exploring import decision, live, service_subject
from occamroute.serving.guards import Guard
from occamroute.serving.service import Service

__all__ = ["HOME", "dashboard_routes"]

HOME = "/dashboard/"


class Dashboard:
    """Everything below the dashboard's address, in plain ASGI."""

    path = HOME

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: tuple[str, Subject] | None = None

    async def __call__(self, connection: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        connection["route"] = self  # counted under one name, whatever is asked for
        path = connection["path"].removeprefix(HOME)
        made = await self._reply(path, connection)
        head = [(name.encode(), value.encode()) for name, value in made.headers.items()]
        await send({"type": "http.response.start", "status": made.status, "headers": head})
        await send({"type": "http.response.body", "body": b"" if connection["method"] == "HEAD" else made.content})

    async def _reply(self, path: str, connection: Scope) -> Reply:
        if not path.startswith(API):
            return page_file(path)
        headers = dict(connection["headers"])
        if is_foreign(path, headers.get(b"sec-fetch-site", b"none").decode("latin-1")):
            return FOREIGN
        service, query = self._service, connection["query_string"].decode("latin-1")
        if path == f"{API}live":
            return _json(await service.wait(live, service))
        if path == f"{API}decision":
            return _json(await service.wait(decision, service, Wish(parse_qs(query))))
        # The solver waits its turn among plans and changes, so that decisions need not wait for it.
        return await service.heavily(self._explored, path, query)

    def _explored(self, path: str, query: str) -> Reply:
        return reply(self._subject(), path, query)

    def _subject(self) -> Subject:
        """The router as it is now; made again when its rows or classifiers have changed."""
        stamp = self._service.router.snapshot.id
        if self._known is None or self._known[0] != stamp:
            self._known = stamp, service_subject(self._service)
        return self._known[1]


def dashboard_routes(service: Service) -> list[Route]:
    """The page and what it asks for, for whoever may read; and the ways there."""
    return [_guarded(f"{HOME}{{path:path}}", Dashboard(service), service)] + [
        _guarded(path, RedirectResponse(HOME), service) for path in ("/", HOME.rstrip("/"))
    ]


def _guarded(path: str, inner: Any, service: Service) -> Route:
    made = Route(path, inner, methods=["GET"], include_in_schema=False)
    made.app = Guard(service, inner, scope="read", guarded=True, limit=None, lean=None, browser=True)
    return made


def _json(content: Any) -> Reply:
    return Reply(200, "application/json", json.dumps(content, allow_nan=False).encode())
