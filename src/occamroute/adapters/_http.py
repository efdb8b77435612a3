"""Where a classifier is asked over HTTP, and what each outcome of asking means for money.

Proxies and certificates of the environment (``HTTPS_PROXY``, ``NO_PROXY``, ``SSL_CERT_FILE``, …) count, except on the
way to this machine itself: no proxy knows what is behind another's loopback address.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, NoReturn
from urllib.parse import urlsplit

from occamroute._optional import require
from occamroute.adapters._wire import Request, UnreadableError
from occamroute.errors import CallLostError, CallRefusedError, InvalidInputError, UnavailableError

__all__ = ["Endpoint", "Reply"]

# 408, 409 and 425 may come from somewhere between here and the model: what happened behind is unknown, as with 5xx.
UNKNOWN = {408, 409, 425}
# These concern the query (its size, its words) and not the classifier: other queries may pass.
ABOUT_THE_QUERY = {400, 406, 411, 413, 414, 415, 416, 417, 418, 422, 424, 428, 431, 451}
# Somebody has to pay, or to choose another model, before 429 goes away.
OUT_OF_CREDIT = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}


@dataclass(frozen=True)
class Reply:
    """What came back, whole; ``seconds`` is how long it took."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    seconds: float

    @property
    def good(self) -> bool:
        """Whether the other side says that it answered."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """The body as JSON, or None where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True)
class Endpoint:
    """The address of the classifier ``name``; ``key_env`` names the environment variable that holds the key.

    The key is kept nowhere: it is read for each request, so that no copy, dump or traceback of this can hold it.
    """

    name: str
    base_url: str
    key_env: str | None = None
    limit: int = 1_000_000
    _direct: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require("httpx", extra="http", what=f"classifier {self.name!r}")
        _check_url(self.base_url, self.name)
        object.__setattr__(self, "base_url", self.base_url.rstrip("/"))
        object.__setattr__(self, "_direct", _is_this_machine(urlsplit(self.base_url).hostname or ""))
        self._key()

    def _key(self) -> str | None:
        if self.key_env is None:
            return None
        key = os.environ.get(self.key_env, "").strip()
        if not key:
            raise InvalidInputError(
                f"classifier {self.name!r} takes its key from the environment variable {self.key_env!r}, "
                "which is not set."
            )
        if not re.fullmatch(r"[!-~]+", key):
            raise InvalidInputError(
                f"the environment variable {self.key_env!r} must hold a key of printable ASCII characters, "
                "without spaces."
            )
        return key

    def shown(self, text: str, length: int = 200) -> str:
        """What the other side wrote as a person may see it: one short line, and never the key."""
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
        key = self._key()
        if key is not None:
            # Letters that were no letters may have stood between the key's own.
            line = "[key]" if key in line.replace(" ", "") and key not in line else line.replace(key, "[key]")
        return line if len(line) <= length else line[: length - 1] + "…"

    async def request(self, path: str, payload: Any = None, *, seconds: float, once: str = "") -> Reply:
        """The reply to one request (a POST of JSON, or a GET), or the error that says what it may have cost.

        ``once`` is an idempotency key: the other side is to bill requests of the same one once.
        """
        headers, key = {"accept": "application/json"}, self._key()
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        if payload is not None:
            headers["content-type"] = "application/json"
        if once:
            headers["idempotency-key"] = once
        request = Request(
            method="GET" if payload is None else "POST",
            url=self.base_url + path,
            headers=headers,
            content=None if payload is None else json.dumps(payload).encode(),
            direct=self._direct,
            limit=self.limit,
        )
        return await self._reply(request, seconds)

    async def _reply(self, request: Request, seconds: float) -> Reply:
        started = time.monotonic()
        httpx = require("httpx", extra="http", what=f"classifier {self.name!r}")
        try:
            async with asyncio.timeout(seconds):
                status, headers, body = await request.made()
                return Reply(status, headers, body, time.monotonic() - started)
        except TimeoutError:
            problem = f"it was not all there after {seconds:.3g} s" if request.sent else f"none after {seconds:.3g} s"
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, UnreadableError) as error:
            problem = self.shown(_root(error))
        # Raised out here: the library's exception holds the request, which holds the key, and must not hang on ours.
        if request.sent:
            self.lost(problem)
        raise CallRefusedError(f"{self.name!r} has no connection to {self.base_url}: {problem}")

    def lost(self, problem: str) -> NoReturn:
        """Says that no usable answer came, though it may have been charged."""
        raise CallLostError(f"{self.name!r} gave no usable answer: {problem}")

    def refusal(self, reply: Reply) -> str | None:
        """Why this query was turned away, uncharged; None if it was answered; an error in all other cases."""
        if reply.good:
            return None
        what, said = f"{self.name!r} answered {reply.status}", self.message(reply)
        sentence = f"{what}: {said}" if said else what
        if reply.status in UNKNOWN or reply.status >= 500:
            raise CallLostError(sentence, retry_after(reply.headers))
        if reply.status == 429 and not _is_out_of_credit(reply):
            raise CallRefusedError(sentence, retry_after(reply.headers))
        if reply.status in ABOUT_THE_QUERY:
            return sentence
        if reply.status in (401, 403):  # here servers like to quote the key, even if only in part
            variable = "no key is given" if self.key_env is None else f"look at the key in {self.key_env}"
            raise UnavailableError(f"{what}: {variable}")
        if reply.status < 400:
            raise UnavailableError(f"{what}, which sends elsewhere: give the final address as base_url")
        raise UnavailableError(sentence)

    def message(self, reply: Reply, length: int = 200) -> str:
        """What the body of a refusal says, in the forms that servers use; "" for nothing."""
        found = reply.json()
        for name in ("error", "message", "detail"):
            if isinstance(found, dict) and name in found:
                found = found[name]
        return self.shown(found, length) if isinstance(found, str) else ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """In how many seconds the other side wants to be asked again, if it says so."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "nan")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    # A date without a zone is in GMT, as HTTP says.
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


def _check_url(url: str, name: str) -> None:
    """Refuses what is no address, and what carries a secret, without repeating it."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (ValueError, AttributeError, TypeError):
        known = False
    if not known or re.search(r"[\s\x00-\x1f\\]", url):
        raise InvalidInputError(
            f"base_url of classifier {name!r} must be like 'https://host/v1': this is no such address."
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidInputError(
            f"base_url of classifier {name!r} must hold no password, query or fragment: "
            f"use {parts.scheme}://{parts.hostname}{parts.path} and name the variable with the key as key_env."
        )


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_out_of_credit(reply: Reply) -> bool:
    found = reply.json()
    problem = found.get("error") if isinstance(found, dict) else None
    return isinstance(problem, dict) and any(str(problem.get(name)) in OUT_OF_CREDIT for name in ("code", "type"))


def _root(error: BaseException) -> str:
    """What lies at the bottom: libraries wrap "connection refused" in words that say less."""
    deepest, at = error, error
    while at.__cause__ is not None or at.__context__ is not None:
        at = at.__cause__ or at.__context__  # type: ignore[assignment]  # one of them is there
        if isinstance(at, OSError) and at.strerror:
            deepest = at
    text = str(deepest)
    if isinstance(deepest, OSError) and deepest.strerror:
        # asyncio puts words of its own in the place of the system's.
        text = os.strerror(deepest.errno or 0) if isinstance(deepest, ConnectionError) else deepest.strerror
    return (text or type(deepest).__name__).rstrip(".")
