"""HTTP requests: on the background loop, or on one that has clients of its own.

Threads and event loops may call side by side; and as every request is a task that can be cancelled at any point, a
limit on its time holds for the whole of it, from the search for the address to the last byte.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from occamroute._loops import BackgroundLoop, background
from occamroute._optional import require

__all__ = ["Request", "UnreadableError", "arun", "close_clients", "open_clients", "run"]

T = TypeVar("T")

# Shorter than most servers', so that a connection is seldom closed at the moment of its use.
KEEP_SECONDS = 4.0


class UnreadableError(Exception):
    """A body that is too long, or of a form that was not asked for."""


# The clients of each event loop that requests are made on: one that minds the environment's proxies (False) and one
# that goes straight (True).
_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[bool, Any]] = weakref.WeakKeyDictionary()


def _client(*, direct: bool) -> Any:
    """The client of the running loop; only its own thread asks for it, so none is made twice."""
    known = _clients.setdefault(asyncio.get_running_loop(), {})
    if direct not in known:
        httpx = require("httpx", extra="http", what="a classifier behind HTTP")
        known[direct] = httpx.AsyncClient(
            timeout=None,  # each request has a limit for the whole of it
            trust_env=not direct,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_SECONDS),
        )
    return known[direct]


async def open_clients() -> None:
    """From now on requests of the running loop are made on it, until ``close_clients``, and not on the background's."""
    _clients.setdefault(asyncio.get_running_loop(), {})


async def close_clients() -> None:
    """Let go of the running loop's connections."""
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()


def _loop() -> BackgroundLoop:
    made = background()
    if made.loop not in _clients:
        _clients[made.loop] = {}
        made.at_the_end(close_clients)
    return made


def run(work: Coroutine[Any, Any, T]) -> T:
    """What the work gives; it is called off when the waiting is."""
    return _loop().run(work)


async def arun(work: Coroutine[Any, Any, T]) -> T:
    """The same for those who have an event loop of their own."""
    if asyncio.get_running_loop() in _clients:
        return await work
    return await asyncio.wrap_future(_loop().submit(work))


@dataclass
class Request:
    """One request; ``sent`` tells, at any time, whether any of it may have left."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    content: bytes | None
    direct: bool
    limit: int
    sent: bool = False

    async def made(self) -> tuple[int, dict[str, str], bytes]:
        """The status, the headers and the whole body."""
        # Compressed bodies are not asked for: a small one can unfold without end.
        headers = {**self.headers, "accept-encoding": "identity"}
        async with _client(direct=self.direct).stream(
            self.method, self.url, content=self.content, headers=headers, extensions={"trace": self._trace}
        ) as got:
            return got.status_code, dict(got.headers), await self._body(got)

    async def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        # Asking a proxy for a tunnel is a request too, but carries nothing of ours.
        if event.endswith("send_request_headers.started") and info["request"].method != b"CONNECT":
            self.sent = True

    async def _body(self, got: Any) -> bytes:
        if got.headers.get("content-encoding", "identity") != "identity":
            raise UnreadableError("its body is compressed, which was not asked for")
        stated = got.headers.get("content-length", "0")
        body = bytearray()
        if not stated.isdecimal() or int(stated) <= self.limit:
            async for chunk in got.aiter_raw():
                body += chunk
                if len(body) > self.limit:
                    break
            else:
                return bytes(body)
        raise UnreadableError(f"its body is longer than {self.limit} bytes")
