"""One event loop for all HTTP of a process, in a thread of its own, and single requests on it.

Threads and event loops may call side by side; and as every request is a task that can be cancelled at any point, a
limit on its time holds for the whole of it, from the search for the address to the last byte.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from occamroute._optional import require

__all__ = ["Request", "UnreadableError", "arun", "run"]

T = TypeVar("T")

# Shorter than most servers', so that a connection is seldom closed at the moment of its use.
KEEP_SECONDS = 4.0


class UnreadableError(Exception):
    """A body that is too long, or of a form that was not asked for."""


class _Wire:
    """The loop, its thread, and two clients: one that minds the environment's proxies, one that goes straight."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._clients: dict[bool, Any] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="occamroute-http", daemon=True)
        self._thread.start()
        atexit.register(self._stop)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def client(self, *, direct: bool) -> Any:
        """The client; only the loop's own thread asks for it, so none is made twice."""
        if direct not in self._clients:
            httpx = require("httpx", extra="http", what="a classifier behind HTTP")
            self._clients[direct] = httpx.AsyncClient(
                timeout=None,  # each request has a limit for the whole of it
                trust_env=not direct,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=KEEP_SECONDS),
            )
        return self._clients[direct]

    def _stop(self) -> None:
        if self.process != os.getpid():  # a fork: the thread is the parent's
            return
        with suppress(TimeoutError):
            self.submit(self._close()).result(timeout=5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    async def _close(self) -> None:
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for task in under_way:  # nobody is left to hear of them
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for client in self._clients.values():
            await client.aclose()


class _Shared:
    """The process's one wire, made when it is first needed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wire: _Wire | None = None

    def get(self) -> _Wire:
        with self.lock:
            if self.wire is None:
                self.wire = _Wire()
            return self.wire


_shared = _Shared()
if hasattr(os, "register_at_fork"):
    # Neither the thread nor whoever held the lock is there in a fork.
    os.register_at_fork(after_in_child=_shared.__init__)  # type: ignore[misc]  # it begins anew


def run(work: Coroutine[Any, Any, T]) -> T:
    """What the work gives; it is called off when the waiting is."""
    future = _shared.get().submit(work)
    try:
        return future.result()
    finally:
        future.cancel()


async def arun(work: Coroutine[Any, Any, T]) -> T:
    """The same for those who have an event loop of their own."""
    return await asyncio.wrap_future(_shared.get().submit(work))


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
        async with (
            _shared.get()
            .client(direct=self.direct)
            .stream(
                self.method, self.url, content=self.content, headers=headers, extensions={"trace": self._trace}
            ) as got
        ):
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
