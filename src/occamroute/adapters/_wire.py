"""HTTP requests: on the background loop, or on one that has clients of its own.

Threads and event loops may call side by side; and as every request is a task that can be cancelled at any point, a
limit on its time holds for the whole of it, from the search for the address to the last byte.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
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


@dataclass(eq=False)
class _Clients:
    """Idle HTTP clients of one event loop: by whether they bypass the environment's proxies.

    Each has one connection, since a client with many checks all of them for every request.
    """

    # With the moment at which each was used last, the latest at the end.
    idle: dict[bool, deque[tuple[float, Any]]] = field(default_factory=lambda: {False: deque(), True: deque()})
    closed: bool = False
    _contexts: dict[bool, Any] = field(default_factory=dict)

    def take(self, *, direct: bool) -> Any:
        """A client for one request; the one used last, whose connection is most likely still open."""
        if self.idle[direct]:
            return self.idle[direct].pop()[1]
        httpx = require("httpx", extra="http", what="a classifier behind HTTP")
        if direct not in self._contexts:  # it takes longer to make than everything else
            self._contexts[direct] = httpx.create_ssl_context(trust_env=not direct)
        return httpx.AsyncClient(
            verify=self._contexts[direct],
            timeout=None,  # each request has a limit for the whole of it
            trust_env=not direct,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP_SECONDS),
        )

    async def give_back(self, client: Any, *, direct: bool) -> None:
        """Keep a client for the next request, and close up to two that have been idle for too long."""
        if self.closed:
            await client.aclose()
            return
        idle, now = self.idle[direct], time.monotonic()
        idle.append((now, client))
        for _ in range(2):
            if idle[0][0] < now - KEEP_SECONDS:
                await idle.popleft()[1].aclose()

    async def close(self) -> None:
        """Close all idle connections; those in use are closed when they are given back."""
        self.closed = True
        for clients in self.idle.values():
            while clients:
                await clients.pop()[1].aclose()


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = weakref.WeakKeyDictionary()


async def open_clients() -> None:
    """From now on requests of the running loop are made on it, until ``close_clients``, and not on the background's."""
    _clients.setdefault(asyncio.get_running_loop(), _Clients())


async def close_clients() -> None:
    """Let go of the running loop's connections."""
    made = _clients.pop(asyncio.get_running_loop(), None)
    if made is not None:
        await made.close()


def _loop() -> BackgroundLoop:
    made = background()
    if made.loop not in _clients:
        _clients[made.loop] = _Clients()
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
        clients = _clients.setdefault(asyncio.get_running_loop(), _Clients())
        client = clients.take(direct=self.direct)
        try:
            request = client.build_request(
                self.method, self.url, content=self.content, headers=headers, extensions={"trace": self._trace}
            )
            got = await client.send(request, stream=True)
            try:
                return got.status_code, dict(got.headers), await self._body(got)
            finally:
                await got.aclose()
        finally:
            await clients.give_back(client, direct=self.direct)

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
