"""Connection: HTTP as uvicorn reads it, for callers who mean harm before they have asked for anything."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from occamroute.serving.problems import ProblemError

__all__ = ["Connection"]

# Bytes that the headers of a request may have.
MOST = 65_536


class Connection(HttpToolsProtocol):
    """Headers must come within ``seconds`` and be small; what is no HTTP is answered by a problem, like all else."""

    seconds = 20.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._heading, self._came = True, 0
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there: they have so many seconds to ask."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; between requests uvicorn itself closes what is idle."""
        super().data_received(data)
        if not self._heading:
            self._stop_waiting()
            return
        self._came += len(data)
        if self._came > MOST and not self.transport.is_closing():
            self._refuse(f"the headers must be at most {MOST} bytes.")
        elif self._waiting is None:
            self._wait()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._heading, self._came = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        self._heading = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read."""
        self._refuse("the request is not HTTP as it must be.")

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _refuse(self, detail: str) -> None:
        problem = ProblemError("malformed_request", detail, headers={"connection": "close"})
        content = problem.content()
        lines = [b"HTTP/1.1 400 Bad Request", *map(b": ".join, problem.header_list(len(content))), b"", content]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()
