"""The header that makes a request safe to send again."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header
from pydantic import TypeAdapter, ValidationError

from occamroute.serving.parsing import refused

__all__ = ["IdempotencyKey", "checked_key"]

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$",
        description="The same key again gives the same answer, and is not charged again.",
    ),
]  # fmt: skip
KEY: TypeAdapter[str | None] = TypeAdapter(IdempotencyKey)
WHERE = ("header", "idempotency-key")


def checked_key(sent: bytes | None) -> str | None:
    """The key of a request, or the problem with it."""
    if sent is None:
        return None
    try:
        return KEY.validate_python(sent.decode("latin-1"))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise refused([{**one, "loc": WHERE} for one in found]) from None
