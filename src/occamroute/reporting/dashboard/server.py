"""A dashboard by itself: Python's own server, for this machine alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from occamroute.errors import InvalidInputError
from occamroute.reporting.dashboard.hosts import means_this_machine
from occamroute.reporting.dashboard.replies import FOREIGN, NOT_FOUND, Reply, is_foreign, reply
from occamroute.reporting.dashboard.subjects import Subject

__all__ = ["make_server", "serving"]

LOOPBACK = "127.0.0.1"
HOME = "/dashboard/"


def make_server(subject: Subject, *, port: int = 0) -> ThreadingHTTPServer:
    """A server that listens; ``serve_forever`` answers until ``shutdown``."""

    class Handler(_Handler):
        shown = subject

    try:
        server = _Server((LOOPBACK, port), Handler)
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InvalidInputError(f"cannot listen on {LOOPBACK}:{port}: {reason}.") from None
    return server


@contextmanager
def serving(subject: Subject, *, port: int = 0) -> Iterator[str]:
    """The address of the page while it is served in the background."""
    server = make_server(subject, port=port)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}{HOME}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    shown: Subject
    protocol_version = "HTTP/1.1"
    # Headers and body leave in one piece, at once.
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 60

    def do_GET(self) -> None:  # the server's word
        """Answer a request."""
        self._send(self._reply())

    do_HEAD = do_GET  # noqa: N815  # the server's word

    def _reply(self) -> Reply:
        if not means_this_machine(self.headers.get("host", LOOPBACK)):
            return FOREIGN  # a name that somebody else chose for this machine
        path, _, query = self.path.partition("?")
        if path == "/" or path == HOME.rstrip("/"):
            return Reply(307, "text/plain", b"")
        if not path.startswith(HOME):
            return NOT_FOUND
        inner = path.removeprefix(HOME)
        if is_foreign(inner, self.headers.get("sec-fetch-site")):
            return FOREIGN
        return reply(self.shown, inner, query)

    def _send(self, made: Reply) -> None:
        self.send_response(made.status)
        for name, value in made.headers.items():
            self.send_header(name, value)
        if made.status == 307:
            self.send_header("location", HOME)
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(made.content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request that is answered here, under the same policy as everything else."""
        self.close_connection = True  # what is not read cannot be told from the next request
        self._send(Reply(code, "text/plain; charset=utf-8", b"This is no request that is answered here.\n"))

    def version_string(self) -> str:
        """Who answers; not which version of Python."""
        return "occamroute"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the server's word
        """Nothing: it is a page for one person."""
