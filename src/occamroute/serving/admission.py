"""Who asks, and whether they may."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from functools import lru_cache

from occamroute.reporting.dashboard.hosts import means_this_machine
from occamroute.serving.keys import Key, Keys, Scope
from occamroute.serving.problems import ProblemError

__all__ = ["Caller", "admitted"]

BEARER, BASIC = b"bearer ", b"basic "
# What a browser needs to hear before it asks for a key.
ASK_FOR_KEY = {"www-authenticate": 'Basic realm="occamroute", charset="UTF-8"'}


@dataclass(frozen=True)
class Caller:
    """Who asks: the client that decisions and money are booked to (None: nobody in particular), and its scopes."""

    client: str | None
    scopes: frozenset[str]

    @property
    def admin(self) -> bool:
        """Whether everything of everybody is theirs to see and to change."""
        return "admin" in self.scopes

    def owns(self, client: str | None) -> bool:
        """Whether a decision of that client is theirs."""
        return self.admin or client == self.client


# How to go on, in the sentences of problems.
MAKE_A_KEY = "make a key with 'occamroute keys add NAME --scope {scope}' and send it as a bearer token"


def admitted(
    keys: Keys,
    scope: Scope | None,
    authorization: bytes | None,
    host: bytes | None,
    *,
    open_scopes: frozenset[str],
    forwarded: bool = False,
    browser: bool = False,
) -> Caller:
    """The caller, if the key that they show has the scope (None: any); else the problem.

    Where a ``browser`` asks, which cannot show a bearer, the key may be the password of any user: only for pages to be
    read, since browsers then show it unasked, also when another site's page makes them ask.

    Without any key a service on loopback is open to all programs of the machine, within ``open_scopes`` (empty where
    there are keys). Not to web pages in its browsers: they reach it under a name that their owner chose, which is
    refused. Nor to other machines behind a proxy on this one: what was ``forwarded`` is refused.
    """
    if open_scopes:
        if forwarded:
            wanted = MAKE_A_KEY.format(scope=scope or "read")
            raise ProblemError("forwarded", f"a service without keys answers no forwarded requests: {wanted}.")
        if host is not None and not _is_this_machine(host):
            raise ProblemError("foreign_host")
        if scope is not None and scope not in open_scopes:
            wanted = MAKE_A_KEY.format(scope=scope)
            raise ProblemError("unauthenticated", f"this needs a key: {wanted}, or start the service with --open.")
        return Caller(None, open_scopes)
    key = _shown(keys, authorization) or (_password(keys, authorization) if browser else None)
    if key is None:
        raise ProblemError("unauthenticated", headers=ASK_FOR_KEY if browser else None)
    if scope is not None and not key.allows(scope):
        raise ProblemError("forbidden", f"the key lacks the scope {scope!r}.")
    return Caller(key.client, frozenset(key.scopes))


def _shown(keys: Keys, authorization: bytes | None) -> Key | None:
    if authorization is None or authorization[:7].lower() != BEARER:
        return None
    return keys.find(authorization[7:].strip())


def _password(keys: Keys, authorization: bytes | None) -> Key | None:
    """The key that is the password of HTTP's basic authentication."""
    if authorization is None or authorization[:6].lower() != BASIC:
        return None
    try:
        pair = base64.b64decode(authorization[6:].strip(), validate=True)
    except binascii.Error:
        return None
    return keys.find(pair.partition(b":")[2])


@lru_cache(maxsize=100)
def _is_this_machine(host: bytes) -> bool:
    return means_this_machine(host.decode("latin-1"))
