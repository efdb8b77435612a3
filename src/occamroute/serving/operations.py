"""Operation: one endpoint as it is declared, guarded and documented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from occamroute.serving.admission import Caller
from occamroute.serving.guards import CALLER, Guard, Lean
from occamroute.serving.idempotency import IdempotencyKey
from occamroute.serving.keys import Scope
from occamroute.serving.problems import CODES, MEDIA_TYPE
from occamroute.serving.service import Service

__all__ = ["Asks", "Call", "Operation", "Uses"]

WITH_BODY = ("malformed_request", "too_slow", "too_large", "unsupported_media_type", "invalid_request")


@dataclass(frozen=True)
class Operation:
    """What a method on a path takes, gives and needs.

    ``scope`` is what a key needs ("any" key where it is None); ``guarded`` is off where no key is asked for. A ``lean``
    endpoint reads the body itself: for those that are asked thousands of times a second, or whose bodies are so
    large that another thread must read them. FastAPI only documents them. ``streams`` says that answers may come as
    server-sent events, too, and ``keyed`` that a lean endpoint takes an idempotency key.
    """

    method: str
    path: str
    summary: str
    endpoint: Callable[..., Any] | None = None
    lean: Lean | None = None
    takes: type[BaseModel] | None = None
    gives: Any = None
    scope: Scope | None = None
    guarded: bool = True
    bulk: bool = False
    problems: tuple[str, ...] = ()
    media: str = "application/json"
    streams: bool = False
    keyed: bool = False
    family: str = "deciding"

    @property
    def codes(self) -> tuple[str, ...]:
        """Every problem that it may answer with."""
        always = ("internal", "overloaded") if self.guarded else ("internal",)
        guards = ("unauthenticated", "forbidden", "foreign_host", "forwarded") if self.guarded else ()
        return (*self.problems, *guards, *(WITH_BODY if self.takes is not None else ()), *always)

    def route(self, service: Service) -> APIRoute:
        """The route, guarded; ``route.app`` is the guard."""
        made = APIRoute(
            self.path,
            self.endpoint or _declared(self.takes, self.lean, keyed=self.keyed),
            methods=[self.method],
            summary=self.summary,
            tags=[self.family],
            response_model=self.gives,
            response_class=JSONResponse if self.media == "application/json" else _typed(self.media),
            responses=self._documented(),
            operation_id=_operation_id(self.method, self.path),
            openapi_extra={"x-scope": self.scope} if self.guarded else None,
        )
        limit = service.limits.bulk if self.bulk else service.limits.body
        made.app = Guard(
            service, made.app, scope=self.scope, guarded=self.guarded, lean=self.lean,
            limit=None if self.takes is None else limit, keyed=self.keyed,
        )  # fmt: skip
        return made

    def _documented(self) -> dict[int | str, dict[str, Any]]:
        found: dict[int | str, dict[str, Any]] = {}
        for code in self.codes:
            status = CODES[code].status
            entry = found.setdefault(
                status,
                {
                    "description": "",
                    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                },
            )
            entry["description"] += ("\n\n" if entry["description"] else "") + f"`{code}`: {CODES[code].title}"
        if self.streams:
            found[200] = {"content": {"text/event-stream": {}}}
        return found


def service_of(request: Request) -> Service:
    """The service that a request came to."""
    found: Service = request.app.state.service
    return found


def caller_of(request: Request) -> Caller:
    """Who asks, as the guard found."""
    found: Caller = request.scope[CALLER]
    return found


@dataclass(frozen=True)
class Call:
    """A request as endpoints see it."""

    service: Service
    caller: Caller


# Asynchronous, for FastAPI gives everything else to a thread.
async def _call(request: Request) -> Call:
    return Call(service_of(request), caller_of(request))


async def _service(request: Request) -> Service:
    return service_of(request)


Asks = Annotated[Call, Depends(_call)]
Uses = Annotated[Service, Depends(_service)]


def _declared(takes: type[BaseModel] | None, lean: Lean | None, *, keyed: bool) -> Callable[..., Any]:
    """A function of which FastAPI reads the signature, for the document."""

    async def declared(body: Any) -> None:
        """Nothing: it is never called."""

    async def declared_with_key(body: Any, idempotency_key: IdempotencyKey = None) -> None:
        """Nothing: it is never called."""

    made = declared_with_key if keyed else declared
    made.__annotations__["body"], made.__doc__ = takes, lean.__doc__
    return made


def _typed(media: str) -> type[Response]:
    return type("TypedResponse", (Response,), {"media_type": media})


def _operation_id(method: str, path: str) -> str:
    words = "".join(letter if letter.isalnum() else " " for letter in path).split()
    return "_".join([method.lower(), *words])
