"""Peers: the replicas of one service, each with its own receipts, counters and answers under a key.

A proxy sends a request to any of them. Where the one that got it does not know a decision or a key, the others are
asked; what each has a part of (receipts in short, alarms, counters) is gathered from all.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from occamroute.serving.dashboard import HOME
from occamroute.serving.exploring import LATEST
from occamroute.serving.gate import send_problem
from occamroute.serving.problems import ProblemError

__all__ = ["Asked", "Heard", "Peers", "Reply", "answered"]

# Whoever asks about a decision may have come to a replica that did not make it.
ABOUT_A_DECISION = re.compile(rf"POST /v1/(settle|feedback)|GET (/v1/decisions/[^/]+|{HOME}api/decision)")
UNKNOWN, TAKEN, FOUND = 404, 409, 200
KEY = b"idempotency-key"
# How many replicas an answer that is gathered from all of them comes from.
COUNT = b"x-occam-replicas"
# Of a page of receipts, where the request does not say.
PAGE = 100


@dataclass(frozen=True)
class Asked:
    """A request as it is passed on; what its headers hold (keys!) is shown nowhere."""

    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def may_take_long(self) -> bool:
        """Whether an answer may still be under way: what is looked up is there, or not."""
        return _has_key(self.headers)


@dataclass(frozen=True)
class Reply:
    """What a replica answers, and which one it is."""

    replica: str
    status: int
    headers: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Heard:
    """What the other replicas answered; ``missing`` is how many did not."""

    replies: Sequence[Reply]
    missing: int = 0


Ask: TypeAlias = Callable[[Asked], Awaitable[Heard]]
Merge: TypeAlias = Callable[[Asked, Sequence[Reply]], bytes]


class Peers:
    """An application that answers for all replicas; ``ask`` asks the others, each for what it knows itself."""

    def __init__(self, app: ASGIApp, name: str, ask: Ask) -> None:
        self._app, self._name, self._ask = app, name, ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the beginning and end of the application."""
        wanted = _wanted(scope)
        if wanted is None:
            await self._app(scope, receive, send)
            return
        bodies: list[bytes] = []
        kept: list[Message] = []

        async def recorded() -> Message:
            message = await receive()
            bodies.append(message.get("body", b""))
            return message

        async def withheld(message: Message) -> None:
            if kept or (message["type"] == "http.response.start" and message["status"] == wanted):
                kept.append(message)
            else:
                await send(message)

        await self._app(scope, recorded, withheld)
        if kept:
            asked = _asked(scope, b"".join(bodies))
            await self._with_others(asked, _reply(self._name, kept), scope, send)

    async def _with_others(self, asked: Asked, own: Reply, scope: Scope, send: Send) -> None:
        heard = await self._ask(asked)
        merge = GATHERED.get((asked.method, asked.path))
        if merge is not None:
            # A replica whose keys are those of a second ago may refuse: its part is missing.
            parts = [own, *(one for one in heard.replies if one.status == FOUND)]
            await _send(send, _gathered(own, parts, merge(asked, parts)))
            return
        known = [one for one in heard.replies if one.status != own.status]
        best = min(known, key=lambda one: one.status, default=own)
        if own.status == TAKEN and best.status != FOUND:
            best = own
        if best.status == UNKNOWN and heard.missing:
            problem = ProblemError("not_ready", "a replica that may know it does not answer now.", retry_after=2)
            await send_problem(problem, scope, send)
            return
        await _send(send, best)


def _wanted(scope: Scope) -> int | None:
    """The status of an answer with which the others are asked, too; None where they never are."""
    if scope["type"] != "http":
        return None
    method, path = scope["method"], scope["path"]
    if (method, path) in GATHERED:
        return FOUND
    if ABOUT_A_DECISION.fullmatch(f"{method} {path}"):
        return UNKNOWN
    return TAKEN if method == "POST" and _has_key(scope["headers"]) else None


def _has_key(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == KEY for name, _ in headers)


async def answered(app: ASGIApp, name: str, asked: Asked) -> Reply:
    """What an application answers, asked from within its own process."""
    sent: list[Message] = []
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            await asyncio.Event().wait()  # nobody hangs up
        given = True
        return {"type": "http.request", "body": asked.body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": "",
        "method": asked.method, "path": asked.path, "raw_path": asked.path.encode(), "query_string": asked.query,
        "headers": list(asked.headers), "client": None, "server": None,
    }  # fmt: skip
    await app(scope, receive, send)
    return _reply(name, sent)


def _asked(scope: Scope, body: bytes) -> Asked:
    headers = tuple((bytes(name), bytes(value)) for name, value in scope["headers"])
    return Asked(scope["method"], scope["path"], scope["query_string"], headers, body)


def _reply(name: str, sent: Iterable[Message]) -> Reply:
    start, *parts = sent
    headers = tuple((bytes(header), bytes(value)) for header, value in start["headers"])
    return Reply(name, start["status"], headers, b"".join(part.get("body", b"") for part in parts))


async def _send(send: Send, reply: Reply) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": list(reply.headers)})
    await send({"type": "http.response.body", "body": reply.body})


def _gathered(own: Reply, parts: Sequence[Reply], body: bytes) -> Reply:
    headers = [(name, value) for name, value in own.headers if name != b"content-length"]
    headers += [(b"content-length", b"%d" % len(body)), (COUNT, b"%d" % len(parts))]
    return Reply(own.replica, own.status, tuple(headers), body)


def _decisions(asked: Asked, parts: Sequence[Reply]) -> bytes:
    wish = parse_qs(asked.query.decode("latin-1"))
    limit = int(wish["limit"][-1]) if "limit" in wish else PAGE
    found = _newest([json.loads(one.body)["decisions"] for one in parts], limit)
    return _json({"decisions": found, "next": found[-1]["id"] if len(found) == limit else None})


def _newest(lists: Iterable[list[dict[str, Any]]], limit: int) -> list[dict[str, Any]]:
    """The first of several lists that are each newest first, as ids that sort by time tell."""
    merged = heapq.merge(*lists, key=lambda one: str(one["id"]), reverse=True)
    return [one for one, _ in zip(merged, range(limit), strict=False)]


def _alarms(_: Asked, parts: Sequence[Reply]) -> bytes:
    return _json(_drift([json.loads(one.body) for one in parts]))


def _drift(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every replica watches its own queries: an alarm of one is an alarm, and the strongest evidence counts."""
    evidence: dict[str, float] = {}
    for one in found:
        for what, value in one["evidence"].items():
            evidence[what] = max(value, evidence.get(what, value))
    return {"alarms": [alarm for one in found for alarm in one["alarms"]], "evidence": evidence}


def _live(_: Asked, parts: Sequence[Reply]) -> bytes:
    found = [json.loads(one.body) for one in parts]
    decisions = _newest([one["decisions"] for one in found], LATEST)
    return _json({**found[0], "drift": _drift([one["drift"] for one in found]), "decisions": decisions})


def _metrics(_: Asked, parts: Sequence[Reply]) -> bytes:
    """The samples of all replicas, family by family, each with the replica's name."""
    families: dict[str, list[str]] = {}
    name = ""
    for one in parts:
        for line in one.body.decode().splitlines():
            if line.startswith("# "):
                name = line.split(" ")[2]
                words = families.setdefault(name, [])
                if line not in words:
                    words.append(line)
            else:
                families[name].append(_labelled(line, one.replica))
    return "".join(f"{line}\n" for lines in families.values() for line in lines).encode()


def _labelled(sample: str, replica: str) -> str:
    name, mark, rest = sample.partition("{")
    if mark:
        return f'{name}{{replica="{replica}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{replica="{replica}"}} {value}'


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False).encode()


GATHERED: dict[tuple[str, str], Merge] = {
    ("GET", "/v1/decisions"): _decisions,
    ("GET", "/v1/alarms"): _alarms,
    ("GET", "/metrics"): _metrics,
    ("GET", f"{HOME}api/live"): _live,
}
