"""Guard: before an endpoint is reached, whether its caller is admitted, and its body JSON and small enough."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from pydantic_core import from_json
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from occamroute.serving.admission import admitted
from occamroute.serving.keys import Scope
from occamroute.serving.problems import ProblemError
from occamroute.serving.service import Service

__all__ = ["CALLER", "Guard", "Lean", "LeanAnswer"]

# A lean endpoint: from the service, the caller, the body as it came, and for some the idempotency key as it was sent,
# to the answer.
Lean: TypeAlias = Callable[..., Awaitable["bytes | LeanAnswer"]]
CALLER = "occamroute.caller"
JSON = b"application/json"
# Headers that proxies add, beside those that begin with ``x-forwarded``.
OF_PROXIES = frozenset({b"forwarded", b"via", b"x-real-ip"})


class LeanAnswer(NamedTuple):
    """The body to send, with headers beside those that every answer has."""

    content: bytes
    headers: Mapping[str, str]


class Guard:
    """An endpoint in plain ASGI, guarded: ``scope`` is what a key needs, ``limit`` the most bytes of a body.

    Without a limit no body is looked at; where it is not ``guarded``, no key is. A ``browser`` may show it
    as a password. A ``keyed`` endpoint is told the idempotency key.
    """

    def __init__(
        self,
        service: Service,
        inner: ASGIApp,
        *,
        scope: Scope | None,
        guarded: bool,
        limit: int | None,
        lean: Lean | None,
        keyed: bool = False,
        browser: bool = False,
    ) -> None:
        self._service, self._inner, self._lean, self._browser = service, inner, lean, browser
        self._scope, self._guarded, self._limit, self._keyed = scope, guarded, limit, keyed

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        """Let a request through, or raise the problem."""
        service = self._service
        authorization = host = kind = length = origin = key = None
        for name, value in connection["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"host":
                host = value
            elif name == b"content-type":
                kind = value
            elif name == b"content-length":
                length = value
            elif name == b"origin":
                origin = value
            elif name == b"idempotency-key":
                key = value
        if self._guarded:
            open_scopes = service.open_scopes
            caller = admitted(
                service.keys, self._scope, authorization, host, open_scopes=open_scopes, browser=self._browser,
                forwarded=bool(open_scopes) and _was_forwarded(connection["headers"]),
            )  # fmt: skip
            connection[CALLER] = caller
        if self._limit is None:
            await self._inner(connection, receive, send)
            return
        if not _is_json(kind, origin):
            raise ProblemError("unsupported_media_type")
        body = await _read(receive, length, self._limit, service.limits.patience)
        if body is None:
            return  # the caller hung up
        if self._lean is None:
            _refuse_other_texts(body)
            if kind is None:  # FastAPI wants it said
                connection["headers"] = [*connection["headers"], (b"content-type", JSON)]
            await self._inner(connection, _again(body, receive), send)
        else:
            keys = (key,) if self._keyed else ()
            await _send(send, await self._lean(service, caller, body, *keys))


def _was_forwarded(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name in OF_PROXIES or name.startswith(b"x-forwarded") for name, _ in headers)


def _is_json(kind: bytes | None, origin: bytes | None) -> bool:
    """Whether a body is said to be JSON; some programs say nothing, but web pages must, for then browsers ask first."""
    return origin is None if kind is None else kind.partition(b";")[0].strip().lower() == JSON


async def _read(receive: Receive, length: bytes | None, limit: int, seconds: float) -> bytes | None:
    """The whole body; None where the caller hung up."""
    if length is not None and length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            parts, size, more = [], 0, True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise _too_large(limit)
                more = message.get("more_body", False)
    except TimeoutError:
        raise ProblemError("too_slow", headers={"connection": "close"}) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _refuse_other_texts(body: bytes) -> None:
    """Python's own reader lets UTF-16 pass, and halves of surrogate pairs, which no file and no database takes."""
    try:
        from_json(body)
    except ValueError:
        raise ProblemError("malformed_request") from None


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


async def _send(send: Send, answer: bytes | LeanAnswer) -> None:
    content, more = answer if isinstance(answer, LeanAnswer) else (answer, {})
    headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(content))]
    headers += [(name.encode(), value.encode()) for name, value in more.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})
