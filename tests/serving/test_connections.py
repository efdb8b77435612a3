"""What a client may send around a body: limits on headers and trailers, over real sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from occamroute.serving.connections import MOST
from occamroute.serving.keys import KeyFile
from serving import world

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = GET + b"Transfer-Encoding: chunked\r\n\r\n"
# What the systems on both sides may keep before the service reads it.
BUFFERS = 8_000_000


def connected(client: httpx.Client) -> socket.socket:
    address = (client.base_url.host, client.base_url.port or 0)
    made = socket.create_connection(address, timeout=10)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    return made


def heard(connection: socket.socket) -> bytes:
    said = b""
    with suppress(ConnectionError):
        while more := connection.recv(65_536):
            said += more
    return said


def accepted(client: httpx.Client, start: bytes, piece: bytes, most: int = 4 * BUFFERS) -> tuple[int, bytes]:
    """Bytes that were taken before the connection was closed, and the answer as far as it got through."""
    with connected(client) as connection:
        sent = 0
        with suppress(ConnectionError):
            connection.sendall(start)
            while sent < most:
                connection.sendall(piece)
                sent += len(piece)
        return sent, heard(connection)


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (GET, b"X-Again: and again\r\n" * 1000),
        (GET + b"X-Long: ", b"a" * 20_000),
        (b"GET /", b"a" * 20_000),
        (CHUNKED + b"0\r\n", b"X-Again: and again\r\n" * 1000),
        (CHUNKED + b"0\r\nX-Long: ", b"a" * 20_000),
        (CHUNKED + b"3\r\nabc\r\n0\r\nX-Long: ", b"a" * 20_000),
        (CHUNKED + b"3;", b"a" * 20_000),
        (b"", b"\r\n" * 10_000),
    ],
    ids=[
        "headers",
        "a header",
        "an address",
        "trailers",
        "a trailer",
        "a trailer after a body",
        "an extension",
        "lines",
    ],
)
def test_endless_headers_and_trailers_end_the_connection(
    open_service: httpx.Client, start: bytes, piece: bytes
) -> None:
    """The service closes the connection after 64 kB, so that one client cannot fill its memory."""
    sent, _ = accepted(open_service, start, piece)
    assert sent < BUFFERS
    assert open_service.get("/healthz").status_code == 200


@pytest.mark.parametrize("start", [GET, CHUNKED + b"0\r\n"], ids=["headers", "trailers"])
@pytest.mark.parametrize(("size", "taken"), [(60_000, True), (100_000, False)])
@pytest.mark.parametrize("pieces", [1, 20])
def test_a_large_header_in_one_packet_or_many(
    open_service: httpx.Client, start: bytes, size: int, taken: bool, pieces: int
) -> None:
    """What is refused depends on the size, and not on how it is cut into packets."""
    request = start + b"X-Long: " + b"a" * size + b"\r\nConnection: close\r\n\r\n"
    length = -(-len(request) // pieces)
    with connected(open_service) as connection:
        with suppress(OSError):  # the other side may have closed by now
            for begin in range(0, len(request), length):
                connection.sendall(request[begin : begin + length])
            connection.shutdown(socket.SHUT_WR)
        said = heard(connection)
    if taken:
        assert said.startswith(b"HTTP/1.1 200 ")
    elif said and start == GET:  # where bytes are still under way when it closes, the answer may not get through
        head, _, body = said.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 ")
        assert json.loads(body)["code"] == "headers_too_large"
    else:
        assert said.count(b"HTTP/1.1") <= 1


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, bytes]]:
    """A service, and a key that may route."""
    state: Path = tmp_path_factory.mktemp("keyed")
    token = KeyFile(state).add("app", scopes=["route"])
    with world.served(world.service(state, with_pool=False)) as client:
        yield client, token.encode()


def test_a_trailer_is_no_header(keyed: tuple[httpx.Client, bytes]) -> None:
    """A key counts in a header only, and other trailers change nothing."""
    client, token = keyed
    key = b"Authorization: Bearer " + token + b"\r\n"
    body = json.dumps({"features": [0.9, 0.05, 0.05]}).encode()
    start = b"POST /v1/route HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    chunk = b"%x\r\n%s\r\n0\r\n" % (len(body), body)
    for header, trailer, status in ((b"", key, 401), (key, b"Authorization: Bearer x\r\n", 200)):
        with connected(client) as connection:
            connection.sendall(start + header + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + trailer + b"\r\n")
            assert heard(connection).startswith(b"HTTP/1.1 %d " % status)


def test_requests_after_trailers_are_answered(open_service: httpx.Client) -> None:
    """Each request has limits of its own."""
    one = CHUNKED + b"0\r\nX-Long: " + b"a" * 40_000 + b"\r\n\r\n" + GET + b"X-Long: " + b"a" * 40_000 + b"\r\n\r\n"
    with connected(open_service) as connection:
        connection.sendall(one * 2)
        said = b""
        while said.count(b"HTTP/1.1 200 ") < 4:
            more = connection.recv(65_536)
            assert more, said
            said += more
    assert len(one) > MOST
