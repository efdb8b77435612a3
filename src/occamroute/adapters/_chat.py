"""The fields of a chat completion request that asks for a label."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from occamroute.errors import InvalidInputError

__all__ = ["further", "prompt", "sendable", "tokens", "unwanted", "wishes"]

# Fields that some servers do not take; each goes, once a server says so, with the ones that it carries along.
OPTIONAL = {
    "response_format": ("response_format",),
    "json_schema": ("response_format",),
    "top_logprobs": ("logprobs", "top_logprobs"),
    "logprobs": ("logprobs", "top_logprobs"),
    "temperature": ("temperature",),
    "max_completion_tokens": ("max_tokens",),  # newer models take this name only
}
# Fields that are not the user's to add: they are options, or would let an answer cost more than is reserved.
OURS = {
    "model",
    "messages",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "logprobs",
    "top_logprobs",
    "n",
    "best_of",
}
# More tokens than any model reads or writes.
MOST_TOKENS = 10**9


def prompt(classes: tuple[str, ...]) -> str:
    """The instructions that are sent when none are given."""
    return "Classify the user's text. Answer with one of these labels and nothing else:\n" + "\n".join(classes)


def wishes(classes: tuple[str, ...], *, logprobs: bool, structured: bool) -> dict[str, Any]:
    """The fields that a server may turn down."""
    made: dict[str, Any] = {"temperature": 0}
    if logprobs:
        made |= {"logprobs": True, "top_logprobs": min(len(classes) + 3, 20)}
    if structured:
        label = {"type": "string", "enum": list(classes)}
        schema = {
            "type": "object",
            "properties": {"label": label},
            "required": ["label"],
            "additionalProperties": False,
        }
        form = {"name": "label", "strict": True, "schema": schema}
        made["response_format"] = {"type": "json_schema", "json_schema": form}
    return made


def unwanted(message: str, query: str) -> frozenset[str]:
    """The fields that a refusal is about; what the query itself says does not count, as refusals may quote it."""
    named = [fields for word, fields in OPTIONAL.items() if word in message and word not in query]
    return frozenset(field for fields in named for field in fields)


def further(extra: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Further fields of a request, but none that would carry a key or raise what an answer can cost."""
    for field in extra:
        if field in OURS:
            raise InvalidInputError(f"extra of classifier {name!r} must not set {field!r}, which is not its to set.")
        if re.search("key|secret|password|authorization", field, re.IGNORECASE):
            raise InvalidInputError(
                f"extra of classifier {name!r} must hold no key, got {field!r}: name the variable with it as key_env."
            )
    return dict(extra)


def tokens(number: Any) -> int | None:
    """A count of tokens, or None for anything that cannot be one."""
    return number if type(number) is int and 0 <= number < MOST_TOKENS else None


def sendable(text: str) -> str:
    """The text with "?" for halves of surrogate pairs, which no UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()
