"""Connection: HTTP as uvicorn reads it, with limits on what a client may send before and after a body."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from occamroute.serving.problems import ProblemError

__all__ = ["MOST", "Connection"]

# Bytes that the request line and headers of a request may have, and those that its trailers may have.
MOST = 65_536
# Bytes that the parser is given at a time: it keeps incomplete headers, and must not get far beyond the limit.
PIECE = 16_384
CLOSE = {"connection": "close"}


class Connection(HttpToolsProtocol):
    """Headers must arrive within ``seconds`` and be small; what is not HTTP is answered by a problem, too.

    Trailers are read and dropped. They never become headers, which have been acted upon when trailers arrive.
    """

    seconds = 20.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Bytes of the header section or the trailers so far, and bytes since the parser last reported anything.
        self._heading, self._section, self._unreported = True, 0, 0
        self._too_large = False
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock for the headers."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, piece by piece; between requests uvicorn itself closes idle connections."""
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            self._unreported += len(piece)
            super().data_received(piece)
            if self._unreported > MOST and not self.transport.is_closing():
                self._refuse_size()
            if self.transport.is_closing():
                return
        if not self._heading:
            self._stop_waiting()
        elif self._waiting is None:
            self._wait()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._heading, self._section, self._unreported = True, 0, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Part of the address arrived."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is complete, or a trailer, which is dropped."""
        self._count(len(name) + len(value) + len(b": \r\n"))
        if self._heading:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers are complete; trailers are counted anew."""
        self._heading, self._section, self._unreported = False, 0, 0
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """The size of a chunk is known."""
        self._unreported = 0

    def on_body(self, body: bytes) -> None:
        """Part of the body arrived."""
        self._unreported = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._unreported = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser stopped at."""
        if self._too_large:
            self._refuse_size()
        else:
            self._refuse(ProblemError("malformed_request", "the request is not valid HTTP.", headers=CLOSE))

    def _count(self, size: int) -> None:
        self._unreported = 0
        self._section += size
        if self._section > MOST:
            self._too_large = True
            raise ValueError("too large")  # the parser stops, and ``send_400_response`` is called

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _refuse_size(self) -> None:
        what = "headers" if self._heading else "trailers"
        self._refuse(ProblemError("headers_too_large", f"the {what} must be at most {MOST} bytes.", headers=CLOSE))

    def _refuse(self, problem: ProblemError) -> None:
        """Answer, unless the request has an answer already or another is being sent, and close the connection."""
        cycle = self.cycle
        answering = cycle is not None and cycle.response_started and not (self._heading and cycle.response_complete)
        if not answering:
            content = problem.content()
            lines = [*map(b": ".join, problem.header_list(len(content))), b"", content]
            self.transport.write(STATUS_LINE[problem.status] + b"\r\n".join(lines))
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # what the application still sends is dropped
            cycle.message_event.set()
        self.transport.close()
