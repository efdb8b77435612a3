"""Problems: everything that a request can be told is wrong, each with a stable code (RFC 9457)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occamroute.errors import (
    BudgetExceededError,
    BudgetTooSmallError,
    CallError,
    InvalidInputError,
    LedgerError,
    OccamError,
    OverloadedError,
    RepeatedKeyError,
    StorageError,
    UnknownNameError,
)

__all__ = ["CODES", "MEDIA_TYPE", "Code", "ProblemError", "problem_for"]

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True)
class Code:
    """What a code means: its status, and a sentence for documents."""

    status: int
    title: str


CODES: dict[str, Code] = {
    "malformed_request": Code(400, "The body is no JSON, or is cut off."),
    "unauthenticated": Code(401, "A key is needed, and none or an unknown one was shown."),
    "forbidden": Code(403, "The key lacks the scope that this takes."),
    "foreign_host": Code(403, "A service without keys answers only under a name of this machine."),
    "forwarded": Code(403, "A service without keys answers no request that a proxy forwarded."),
    "not_found": Code(404, "There is nothing at this address."),
    "unknown_decision": Code(404, "No decision of yours has this id."),
    "unknown_name": Code(404, "No row, classifier, model or hold has this name."),
    "no_pool": Code(404, "The service was started without a pool: it only routes."),
    "method_not_allowed": Code(405, "This address takes other methods."),
    "too_slow": Code(408, "The body did not come in time."),
    "in_progress": Code(409, "A request with this Idempotency-Key is still under way."),
    "repeated_key": Code(409, "This Idempotency-Key was used for another query, or paid before and is not kept."),
    "budget_too_small": Code(409, "The budget cannot pay for one answer to every query."),
    "conflict": Code(409, "It does not fit what is there: rows, classifiers, or what was answered."),
    "too_large": Code(413, "The body is larger than the service takes."),
    "unsupported_media_type": Code(415, "The body must be application/json."),
    "invalid_request": Code(422, "The body or a parameter is not what it must be."),
    "above_hold": Code(422, "The cost is above what was held for the decision; an administrator can correct it."),
    "budget_exhausted": Code(429, "What is left of the budget does not pay for an answer."),
    "headers_too_large": Code(431, "The headers or the trailers are larger than the service takes."),
    "internal": Code(500, "The service failed; its log says where."),
    "no_classifier_answered": Code(502, "Every classifier that could be afforded failed."),
    "ledger_unavailable": Code(503, "The ledger cannot be reached, so nothing may be spent."),
    "storage_unavailable": Code(503, "Receipts or the state folder cannot be read or written."),
    "overloaded": Code(503, "Too many requests or calls are waiting already."),
    "not_ready": Code(503, "The service is starting or stopping."),
}


class ProblemError(Exception):
    """A request that is not served: ``args`` holds the code and what is wrong in this case.

    ``errors`` are the places in the request, ``retry_after`` the seconds after which asking again may help.
    """

    def __init__(
        self,
        code: str,
        detail: str | None = None,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code, detail)
        self.code, self.detail, self.errors = code, detail or CODES[code].title, list(errors)
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["retry-after"] = str(max(1, math.ceil(retry_after)))
        if code == "unauthenticated":
            self.headers.setdefault("www-authenticate", "Bearer")

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"

    @property
    def status(self) -> int:
        """The HTTP status."""
        return CODES[self.code].status

    def content(self, path: str = "") -> bytes:
        """The body of the answer; clients of other protocols find the sentence where they look for it."""
        body: dict[str, Any] = {
            "type": f"urn:occamroute:problem:{self.code}",
            "title": CODES[self.code].title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }
        if self.errors:
            body["errors"] = self.errors
        if path == "/v2" or path.startswith("/v2/"):
            body["error"] = self.detail
        elif path.startswith(("/v1/chat/", "/v1/models")):
            body["error"] = {"message": self.detail, "type": self.code, "code": self.code, "param": None}
        return json.dumps(body).encode()

    def header_list(self, length: int) -> list[tuple[bytes, bytes]]:
        """Headers as a server sends them."""
        own = {"content-type": MEDIA_TYPE, "content-length": str(length), **self.headers}
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in own.items()]


def problem_for(error: BaseException) -> ProblemError | None:
    """What a caller is told about an error; None where it is a fault of the service.

    Errors about the inside (where the ledger is, what a classifier replied) are not quoted: they may name hosts,
    files or keys.
    """
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, BudgetExceededError):
        return ProblemError("budget_exhausted", str(error))
    if isinstance(error, LedgerError):
        return ProblemError("ledger_unavailable", retry_after=5)
    if isinstance(error, StorageError):
        return ProblemError("storage_unavailable", retry_after=5)
    if isinstance(error, OverloadedError):
        return ProblemError(
            "overloaded", "no classifier can answer in time: too many calls wait.", retry_after=error.retry_after
        )
    if isinstance(error, CallError):
        return ProblemError("no_classifier_answered", retry_after=error.retry_after)
    if isinstance(error, RepeatedKeyError):
        return ProblemError("in_progress", retry_after=1) if error.args[1] == "held" else ProblemError("repeated_key")
    if isinstance(error, BudgetTooSmallError):
        return ProblemError("budget_too_small", str(error))
    if isinstance(error, UnknownNameError):
        return ProblemError("unknown_name", f"there is no {error.args[0]} {error.args[1]!r:.120}.")
    if isinstance(error, InvalidInputError):
        return ProblemError("invalid_request", str(error))
    if type(error) is OccamError:  # what is closed says so by it
        return ProblemError("not_ready", retry_after=1)
    return None
