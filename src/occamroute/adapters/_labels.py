"""From what a chat model wrote to one of the labels, and from its log-probabilities to those of all labels.

A label is never guessed: an answer counts only if it is one of them but for case, quotation marks, a full stop, or
hyphens and underscores for spaces, and only if that fits a single label.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray

__all__ = ["Labels", "Token", "tokens_of"]

# Nothing here can change what a label means, unlike a leading "-", "." or "<" before a number.
QUOTES = "\"'`*_“”‘’«» \t\r\n"
CLOSING = QUOTES + ".,;:!?"


@dataclass(frozen=True)
class Token:
    """A piece of an answer: its text, its probability, and those of the pieces that might have stood there."""

    text: str
    probability: float
    others: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Labels:
    """The labels that an answer may be."""

    classes: tuple[str, ...]

    def found(self, answer: str) -> tuple[int, str] | None:
        """Which label an answer is and the part of the answer that says so; None if it is none of them."""
        said = answer.strip()
        fenced = re.fullmatch(r"```[a-z]*\s(.*)```", said, re.DOTALL)
        said = fenced.group(1).strip() if fenced else said
        for part in (said, _in_json(said)):
            number = None if part is None else self._number(part)
            if part is not None and number is not None:
                return number, part.lstrip(QUOTES).rstrip(CLOSING) or part
        return None

    def _number(self, said: str) -> int | None:
        """The label in the strictest form in which any fits; two that fit are as bad as none."""
        for form in (str, _folded, _bare, _spaced):
            wanted = form(said)
            fitting = [number for number, label in enumerate(self.classes) if wanted and form(label) == wanted]
            if fitting:
                return fitting[0] if len(fitting) == 1 else None
        return None

    def certain(self, answer: int) -> FloatArray:
        """All probability (C,) on the answer: all that an answer without log-probabilities tells."""
        row = np.zeros(len(self.classes))
        row[answer] = 1.0
        return row

    def probabilities(self, answer: int, said: str, tokens: tuple[Token, ...]) -> FloatArray:
        """Probabilities (C,) of all labels, the answer's the highest, from the tokens that make up the answer.

        Along the answered label, each piece that might have stood there counts for the label that it would have led
        to, where that is a single one. A label that no piece leads to gets an even share of what is left, but no more
        than the least likely piece listed, as it would have been listed otherwise; then all are scaled to sum to 1.
        """
        start = "".join(token.text for token in tokens).rfind(said)
        if start < 0 or not said:
            return self.certain(answer)
        row, least = self._walked(answer, tokens, start)
        if not row[answer] > 0.0:  # said, and yet impossible: such numbers tell nothing
            return self.certain(answer)
        unnamed = row == 0.0
        if unnamed.any():
            row[unnamed] = min(max(1.0 - row.sum(), 0.0) / unnamed.sum(), least)
        if row.argmax() != answer:  # drawn at random rather than the likeliest, or spelled in several ways
            row[answer] = row.max() * (1.0 + 1e-6)
        normal: FloatArray = row / row.sum()
        return normal

    def _walked(self, answer: int, tokens: tuple[Token, ...], start: int) -> tuple[FloatArray, float]:
        row, left, least, written = np.zeros(len(self.classes)), 1.0, 1.0, ""
        for token in tokens:
            start -= len(token.text)
            if start >= 0:  # before the label begins: an opening brace, say
                continue
            for text, probability in token.others:
                least = min(least, left * probability)
                meant = self._led_to(written + text)
                if len(meant) == 1:
                    row[meant[0]] += left * probability
            written, left = written + token.text, left * token.probability
            if self._led_to(written) in ([answer], []):
                break
        row[answer] += left
        return row, least

    def _led_to(self, beginning: str) -> list[int]:
        """The labels that a text may become, or is."""
        text = unicodedata.normalize("NFC", beginning).casefold().lstrip(QUOTES + "{")
        if not text:
            return []
        become = [number for number, label in enumerate(self.classes) if _folded(label).startswith(text)]
        whole = text.rstrip(CLOSING + "}")
        return become or [number for number, label in enumerate(self.classes) if _folded(label) == whole]


def tokens_of(listed: Any) -> tuple[Token, ...]:
    """The tokens of an answer, as the chat completions API lists them; none if anything is not as it should be."""
    try:
        return tuple(
            Token(
                _text(entry["token"]),
                _probability(entry["logprob"]),
                # What was written is listed among the alternatives, too.
                tuple(
                    (_text(other["token"]), _probability(other["logprob"]))
                    for other in entry.get("top_logprobs") or ()
                    if other["token"] != entry["token"]
                ),
            )
            for entry in listed["content"]
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        return ()


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError("a token is text")
    return given


def _probability(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or math.isnan(given):
        raise TypeError("a log-probability is a number")
    # Rounding may leave it a little above 0.
    return math.exp(min(float(given), 0.0))


def _in_json(said: str) -> str | None:
    """What stands under "label" in a JSON object, if that is what was said."""
    if not said.startswith("{"):
        return None
    try:
        entries: Iterable[tuple[str, Any]] = json.loads(said, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    labels = [value for key, value in entries if key == "label"]
    if len(labels) != 1 or isinstance(labels[0], bool) or not isinstance(labels[0], str | int):
        return None
    return str(labels[0])


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold().strip()


def _bare(text: str) -> str:
    return _folded(text).lstrip(QUOTES).rstrip(CLOSING)


def _spaced(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", _bare(text))
