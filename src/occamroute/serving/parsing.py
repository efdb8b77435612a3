"""Bodies as pydantic reads them, and what it finds wrong as a problem."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from occamroute.serving.problems import ProblemError

__all__ = ["parsed", "refused"]

Body = TypeVar("Body", bound=BaseModel)


def parsed(kind: type[Body], content: bytes) -> Body:
    """What a body holds, or the problem with it."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        # Without the values: they may be anything, a key even.
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise refused(found) from None


def refused(found: Any) -> ProblemError:
    """The problem for a list of errors in pydantic's form."""
    if found and found[0]["type"] == "json_invalid":
        return ProblemError("malformed_request")
    errors = [{"at": ".".join(map(str, one["loc"])), "problem": str(one["msg"])} for one in found[:20]]
    first = errors[0] if errors else {"at": "body", "problem": "it is not what it must be"}
    return ProblemError("invalid_request", f"{first['at'] or 'body'}: {first['problem']}.", errors=errors)
