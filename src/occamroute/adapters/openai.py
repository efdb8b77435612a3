"""Chat models behind the OpenAI wire format as classifiers, one query a call."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._money import exact
from occamroute.adapters import _chat
from occamroute.adapters._http import Endpoint, Reply
from occamroute.adapters._labels import Labels, tokens_of
from occamroute.adapters._remote import RemoteClassifier, check_limits
from occamroute.errors import InvalidInputError
from occamroute.pool import Answers, Cost, Measured, PerToken

__all__ = ["ChatClassifier"]


class ChatClassifier(RemoteClassifier):
    """A chat model that is asked for one of the labels.

    ``base_url`` is the part before ``/chat/completions``. ``key_env`` names the environment variable with the key: a
    key cannot be given otherwise. ``instructions`` replace the short default prompt, which lists the labels.
    ``structured`` asks for JSON under a schema that allows the labels only; a server that does not know such schemas,
    ``logprobs`` or a fixed temperature is asked without them from then on. ``extra`` are further fields of the request.
    ``max_tokens`` limits an answer, ``overhead_tokens`` is what the model's own chat template may add to the messages.
    ``idempotent`` says that the server bills requests of the same ``Idempotency-Key`` once, and gives the same answer:
    then a call whose end nobody knows is made again.

    With ``logprobs``, probabilities are those of the tokens that led, or would have led, to each label; without, all
    probability is on the answer.
    """

    def __init__(
        self,
        name: str,
        cost: Cost,
        *,
        classes: tuple[str, ...],
        base_url: str,
        model: str,
        key_env: str | None = None,
        instructions: str | None = None,
        max_tokens: int = 16,
        overhead_tokens: int = 64,
        timeout: float = 20,
        retries: int = 4,
        concurrency: int = 8,
        per_minute: int | None = None,
        logprobs: bool = True,
        structured: bool = False,
        idempotent: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            Endpoint(name, base_url, key_env),
            cost,
            classes=classes,
            batch_size=1,
            timeout=timeout,
            retries=retries,
            concurrency=concurrency,
            per_minute=per_minute,
        )
        check_limits(name, 1, max_tokens=max_tokens)
        check_limits(name, 0, overhead_tokens=overhead_tokens)
        self.model, self.max_tokens, self.overhead_tokens = model, max_tokens, overhead_tokens
        self._labels = Labels(self.classes)
        self._instructions = _chat.sendable(_chat.prompt(self.classes) if instructions is None else instructions)
        self._wishes = _chat.wishes(self.classes, logprobs=logprobs, structured=structured)
        self._extra = _chat.further(extra or {}, name)
        # A schema, or tools among the extra fields, become a part of the prompt.
        added = json.dumps([self._wishes.get("response_format"), self._extra])
        self._fixed = len((added + self._instructions).encode()) + overhead_tokens
        self._given_up: frozenset[str] = frozenset()
        self.idempotent = idempotent

    @property
    def max_cost(self) -> Callable[[Sequence[str]], list[Fraction]]:
        """A function that gives the most (n,) that one attempt at each query can cost; none where cost is measured.

        No token is shorter than one byte of UTF-8, so a model reads no more tokens than the messages, the schema of a
        structured answer and the extra fields have bytes, and what its chat template adds.
        """
        if isinstance(self.cost, Measured):
            raise AttributeError("only time tells what a call costs whose cost is measured")
        return self._most

    def _most(self, queries: Sequence[str]) -> list[Fraction]:
        if not isinstance(self.cost, PerToken):
            return [exact(self.cost)] * len(queries)
        return [self.cost.of(self._fixed + len(_text(query).encode()), self.max_tokens) for query in queries]

    async def _attempt(self, queries: Sequence[str], seconds: float, key: str) -> Answers:
        query = _text(queries[0])
        end = time.monotonic() + seconds
        while True:
            body, left = self._body(query), max(end - time.monotonic(), 0.0)
            # Another body under the same key would be refused: one that asks for less has a key of its own.
            once = "-".join([key, *sorted(self._given_up)]) if key else ""
            reply = await self.endpoint.request("/chat/completions", body, seconds=left, once=once)
            refusal = self.endpoint.refusal(reply)
            if refusal is None:
                return self._read(reply, query)
            # Refused requests are not charged, so a server may be asked again, for less.
            unknown = _chat.unwanted(self.endpoint.message(reply, 2000), query) & body.keys()
            if not unknown:
                return self._failed(refusal, Fraction(0))
            self._given_up |= unknown

    def _body(self, query: str) -> dict[str, Any]:
        wishes = {name: value for name, value in self._wishes.items() if name not in self._given_up}
        most = "max_completion_tokens" if "max_tokens" in self._given_up else "max_tokens"
        messages = [
            {"role": "system", "content": self._instructions},
            {"role": "user", "content": query},
        ]
        return {
            **wishes,
            **self._extra,
            "model": self.model,
            "messages": messages,
            most: self.max_tokens,
            "stream": False,
        }

    def _read(self, reply: Reply, query: str) -> Answers:
        try:
            body = reply.json()
            choice = body["choices"][0]
            content = choice["message"].get("content")
        except (TypeError, KeyError, IndexError, AttributeError):
            choice = content = None
        if choice is None:
            said = self.endpoint.message(reply)
            self.endpoint.lost(f"{reply.status}, but no chat completion" + (f": {said}" if said else ""))
        cost = self._charged(body.get("usage"), reply.seconds, query)
        if not isinstance(content, str) or not content.strip():
            return self._failed(f"{self.name!r} answered with no text", cost)
        found = self._labels.found(content)
        if found is None:
            cut = f" (cut off after {self.max_tokens} tokens)" if choice.get("finish_reason") == "length" else ""
            said = self.endpoint.shown(content, 60)
            return self._failed(f"{self.name!r} answered {said!r}{cut}, which is none of the labels", cost)
        row = self._labels.probabilities(*found, tokens_of(choice.get("logprobs")))
        return Answers(row[None, :], [cost])

    def _charged(self, usage: Any, seconds: float, query: str) -> Fraction:
        """What an answer cost: what it says it used, even above the worst case, or else the worst case."""
        if isinstance(self.cost, Measured):
            return self.cost.of(min(seconds, self.timeout))
        if isinstance(self.cost, PerToken) and isinstance(usage, Mapping):
            read, written = _chat.tokens(usage.get("prompt_tokens")), _chat.tokens(usage.get("completion_tokens"))
            # Some servers report zeros; no prompt of ours is empty.
            if read and written is not None:
                return self.cost.of(read, written)
        return self._most([query])[0]

    def _failed(self, why: str, cost: Fraction) -> Answers:
        return Answers(np.full((1, len(self.classes)), 1.0 / len(self.classes)), [cost], {0: why})


def _text(query: Any) -> str:
    if not isinstance(query, str):
        raise InvalidInputError(f"a chat classifier takes texts, got {type(query).__name__}.")
    return _chat.sendable(query)
