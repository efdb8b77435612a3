"""Operation: one endpoint as it is declared, guarded and documented."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from occamroute.serving.admission import Caller, admitted
from occamroute.serving.keys import Scope
from occamroute.serving.problems import CODES, MEDIA_TYPE, ProblemError
from occamroute.serving.service import Service

__all__ = ["Asks", "Call", "Operation", "Uses", "body_of", "parsed", "refused"]

# A lean endpoint: from the body as it came to the body to send.
Lean: TypeAlias = Callable[[Service, Caller, bytes], Awaitable[bytes]]
Body = TypeVar("Body", bound=BaseModel)
CALLER = "occamroute.caller"
JSON = b"application/json"
EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
WITH_BODY = ("malformed_request", "too_large", "unsupported_media_type", "invalid_request")


@dataclass(frozen=True)
class Operation:
    """What a method on a path takes, gives and needs.

    ``scope`` is what a key needs ("any" key where it is None); ``guarded`` is off where no key is asked for. A ``lean``
    endpoint reads the body itself: for those that are asked thousands of times a second, or whose bodies are so
    large that another thread must read them. FastAPI only documents them. ``streams`` says that answers may come as
    server-sent events, too.
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
    family: str = "deciding"

    @property
    def codes(self) -> tuple[str, ...]:
        """Every problem that it may answer with."""
        always = ("internal", "overloaded") if self.guarded else ("internal",)
        guards = ("unauthenticated", "forbidden", "foreign_host") if self.guarded else ()
        return (*self.problems, *guards, *(WITH_BODY if self.takes is not None else ()), *always)

    def route(self, service: Service) -> APIRoute:
        """The route, guarded; ``route.app`` is the guard."""
        made = APIRoute(
            self.path,
            self.endpoint or _declared(self.takes, self.lean),
            methods=[self.method],
            summary=self.summary,
            tags=[self.family],
            response_model=self.gives,
            response_class=JSONResponse if self.media == "application/json" else _typed(self.media or None),
            responses=self._documented(),
            operation_id=_operation_id(self.method, self.path),
            openapi_extra={"x-scope": self.scope} if self.guarded else None,
        )
        made.app = Guard(self, service, made.app)
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
            found[200] = {"content": {"text/event-stream": {"itemSchema": EVENT}}}
        return found


class Guard:
    """Before an endpoint is reached: whether the caller is admitted, and the body said to be JSON and small enough."""

    def __init__(self, operation: Operation, service: Service, inner: ASGIApp) -> None:
        self._operation, self._service, self._inner = operation, service, inner

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        """Let a request through, or raise the problem."""
        operation, service = self._operation, self._service
        authorization = host = kind = length = None
        for name, value in connection["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"host":
                host = value
            elif name == b"content-type":
                kind = value
            elif name == b"content-length":
                length = value
        if operation.guarded:
            connection[CALLER] = admitted(service.keys, operation.scope, authorization, host, loopback=service.loopback)
        if operation.takes is None:
            await self._inner(connection, receive, send)
            return
        if kind is None or kind.partition(b";")[0].strip().lower() != JSON:
            raise ProblemError("unsupported_media_type")
        body = await _read(receive, length, service.limits.bulk if operation.bulk else service.limits.body)
        if body is None:
            return  # the caller hung up
        if operation.lean is None:
            await self._inner(connection, _again(body, receive), send)
            return
        await _send(send, await operation.lean(service, connection[CALLER], body))


async def _read(receive: Receive, length: bytes | None, limit: int) -> bytes | None:
    """The whole body; None where the caller hung up."""
    if length is not None and length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        return body
    parts, size = [], 0
    while True:
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return b"".join(parts)
        message = await receive()


def _too_large(limit: int) -> ProblemError:
    # What is not read cannot be told from the next request: the connection ends.
    return ProblemError("too_large", f"the body must be at most {limit} bytes.", headers={"connection": "close"})


def _again(body: bytes, receive: Receive) -> Receive:
    """A way to receive the body that was read, and then whatever else comes."""
    given = False

    async def replayed() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


async def _send(send: Send, content: bytes) -> None:
    headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def parsed(kind: type[Body], content: bytes) -> Body:
    """What a body holds, or the problem with it."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        # Without the values: they may be anything, a key even.
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise refused(found) from None


def refused(found: Any) -> ProblemError:
    """The problem for a list of errors in pydantic's form."""
    if found and found[0]["type"] == "json_invalid":
        return ProblemError("malformed_request")
    errors = [{"at": ".".join(map(str, one["loc"])), "problem": str(one["msg"])} for one in found[:20]]
    first = errors[0] if errors else {"at": "body", "problem": "it is not what it must be"}
    return ProblemError("invalid_request", f"{first['at'] or 'body'}: {first['problem']}.", errors=errors)


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


def _call(request: Request) -> Call:
    return Call(service_of(request), caller_of(request))


Asks = Annotated[Call, Depends(_call)]
Uses = Annotated[Service, Depends(service_of)]


def _declared(takes: type[BaseModel] | None, lean: Lean | None) -> Callable[..., Any]:
    """A function of which FastAPI reads the signature, for the document."""

    async def declared(body: Any) -> None:
        raise NotImplementedError

    declared.__annotations__, declared.__doc__ = {"body": takes}, lean.__doc__
    return declared


def _typed(media: str | None) -> type[Response]:
    return type("TypedResponse", (Response,), {"media_type": media})


def _operation_id(method: str, path: str) -> str:
    words = "".join(letter if letter.isalnum() else " " for letter in path).split()
    return "_".join([method.lower(), *words])


def body_of(content: Any) -> bytes:
    """JSON as it is sent."""
    return json.dumps(content, allow_nan=False).encode()
