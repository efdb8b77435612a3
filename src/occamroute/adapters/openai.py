"""Chat models behind the OpenAI wire format as classifiers: one request a query, one attempt a call.

Nothing is retried here, since only the caller knows what it may still spend. Each attempt says what it means for
money: an answer carries its cost, ``CallRefusedError`` says that nothing was charged, ``CallLostError`` that nobody
knows, ``UnavailableError`` that no attempt can succeed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray, name_tuple
from occamroute._money import exact, money
from occamroute.adapters import _chat
from occamroute.adapters._http import Endpoint, Reply, limits_of_calls
from occamroute.adapters._labels import Labels, tokens_of
from occamroute.adapters._wire import arun, run
from occamroute.errors import CallError, InvalidInputError
from occamroute.pool import Answers, Cost, Measured, PerToken

__all__ = ["ChatClassifier"]


class ChatClassifier:
    """A chat model that is asked for one of the labels.

    ``base_url`` is the part before ``/chat/completions``. ``key_env`` names the environment variable with the key: a
    key cannot be given otherwise. ``instructions`` replace the short default prompt, which lists the labels.
    ``structured`` asks for JSON under a schema that allows the labels only; a server that does not know such schemas,
    ``logprobs`` or a fixed temperature is asked without them from then on. ``extra`` are further fields of the request.
    ``max_tokens`` limits an answer, ``overhead_tokens`` is what the model's own chat template may add to the messages.

    With ``logprobs``, probabilities are those of the tokens that led, or would have led, to each label; without, all
    probability is on the answer. ``timeout`` is for the whole of a call. ``retries``, ``concurrency`` and
    ``per_minute`` are kept for whoever makes the calls.
    """

    batch_size = 1

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
        extra: dict[str, Any] | None = None,
    ) -> None:
        self.name, self.cost, self.model = name, cost, model
        self.classes = name_tuple(map(str, classes), "classes")
        self.max_tokens, self.overhead_tokens, self.timeout = max_tokens, overhead_tokens, timeout
        self.retries, self.concurrency, self.per_minute = retries, concurrency, per_minute
        limits_of_calls(
            name,
            max_tokens=max_tokens,
            overhead_tokens=overhead_tokens,
            timeout=timeout,
            retries=retries,
            concurrency=concurrency,
            per_minute=per_minute,
        )
        if not isinstance(cost, Measured | PerToken):
            money(cost, f"cost of classifier {name!r}")
        self.endpoint = Endpoint(name, base_url, key_env)
        self._labels = Labels(self.classes)
        self._instructions = _chat.sendable(_chat.prompt(self.classes) if instructions is None else instructions)
        self._wishes = _chat.wishes(self.classes, logprobs=logprobs, structured=structured)
        self._extra = _chat.further(extra or {}, name)
        self._given_up: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, model={self.model!r}, base_url={self.endpoint.base_url!r})"

    def max_cost(self, queries: Sequence[str]) -> list[Fraction]:
        """The most (n,) that one attempt at each query can cost.

        No token is shorter than one byte of UTF-8, so a model reads no more tokens than the messages, the schema of a
        structured answer and the extra fields have bytes, and what its chat template adds.
        """
        if isinstance(self.cost, Measured):
            return [self.cost.of(self.timeout)] * len(queries)
        if not isinstance(self.cost, PerToken):
            return [exact(self.cost)] * len(queries)
        # A schema, or tools among the extra fields, become a part of the prompt.
        added = json.dumps([self._wishes.get("response_format"), self._extra])
        fixed = len((added + self._instructions).encode()) + self.overhead_tokens
        return [self.cost.of(fixed + len(_text(query).encode()), self.max_tokens) for query in queries]

    def answer(self, queries: Sequence[str], timeout: float | None = None) -> Answers:
        """The answer to one query, from one attempt; ``timeout`` can only shorten the classifier's own."""
        return run(self._attempt(_only(queries), self._seconds(timeout)))

    async def aanswer(self, queries: Sequence[str], timeout: float | None = None) -> Answers:
        """The same, for event loops."""
        return await arun(self._attempt(_only(queries), self._seconds(timeout)))

    def predict_proba(self, queries: Sequence[str], /) -> FloatArray:
        """Probabilities (n, classes), one query after the other; ``CallError`` at the first without an answer."""
        rows = np.empty((len(queries), len(self.classes)))
        for row, query in enumerate(queries):
            answers = self.answer([query])
            if answers.failures:
                raise CallError(answers.failures[0])
            rows[row] = answers.probabilities[0]
        return rows

    def _seconds(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else min(max(timeout, 0.0), self.timeout)

    async def _attempt(self, query: str, seconds: float) -> Answers:
        end = time.monotonic() + seconds
        while True:
            reply = await self.endpoint.request(
                "/chat/completions", self._body(query), seconds=max(end - time.monotonic(), 0.0)
            )
            refusal = self.endpoint.refusal(reply)
            if refusal is None:
                return self._read(reply, query)
            # Refused requests are not charged, so a server may be asked again, for less.
            unknown = _chat.unwanted(self.endpoint.message(reply, 2000), query) - self._given_up
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
        return self.max_cost([query])[0]

    def _failed(self, why: str, cost: Fraction) -> Answers:
        return Answers(np.full((1, len(self.classes)), 1.0 / len(self.classes)), [cost], {0: why})


def _only(queries: Sequence[str]) -> str:
    if len(queries) != 1:
        raise InvalidInputError(f"a chat classifier takes one query a call, got {len(queries)}.")
    return _text(queries[0])


def _text(query: Any) -> str:
    if not isinstance(query, str):
        raise InvalidInputError(f"a chat classifier takes texts, got {type(query).__name__}.")
    return _chat.sendable(query)
