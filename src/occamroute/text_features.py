"""TextFeatures: free, deterministic features of texts, fitted once and then the same in every process.

Words and short character sequences are counted and weighted (TF-IDF), each reduced by a singular value decomposition;
length and shape are added. The same text gives the same bits alone or among others: nothing is computed by BLAS, whose
sums depend on the number of rows, and no logarithm of an array, whose rounding depends on the position in it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, name_tuple, read_only, seed_number
from occamroute.errors import InvalidInputError
from occamroute.executors.local import one_thread_each
from occamroute.pool import Cost

__all__ = ["TEXT", "TextExtractor", "TextFeatures", "are_texts", "checked_texts", "of_texts"]

TEXT = "text"
# Dimensions that words and character sequences are reduced to, and the most terms of each that are counted.
WORDS, CHARACTERS = 32, 16
MOST_WORDS, MOST_SEQUENCES = 10_000, 5_000
# Words in this many characters at the beginning are counted, and character sequences in this many: the language and the
# form of a text show at its beginning, and a text of megabytes must not hold up others.
LONGEST, BEGINNING = 100_000, 200
# How much characters and shape count beside words, whose vectors have length 1. The values matter little: plans for two
# tables of prompts differed by less than 0.1 points.
CHARACTER_WEIGHT, SHAPE_WEIGHT = 0.5, 0.5
# Lengths and shares are clipped at this many standard deviations.
FARTHEST = 4.0
FORMAT = 1


@dataclass(frozen=True, eq=False)
class _Terms:
    """Terms in the order of their columns, their weights (V,), and the directions (V, d) that they are reduced to."""

    terms: tuple[str, ...]
    weights: npt.NDArray[np.float32]
    directions: npt.NDArray[np.float32]
    counting: Mapping[str, Any] = field(repr=False)

    @classmethod
    def fit(cls, texts: list[str], counting: Mapping[str, Any], most: int, dimensions: int, seed: int) -> _Terms:
        """The most frequent terms that are in two texts or more, and the directions in which they vary most."""
        from sklearn.utils.extmath import randomized_svd

        found = _counter(counting, min_df=2 if len(texts) > 1 else 1, max_features=most)
        try:
            counts = found.fit_transform(texts)
        except ValueError:  # no term is in two texts
            return cls((), np.empty(0, np.float32), np.empty((0, 0), np.float32), counting)
        terms = tuple(found.get_feature_names_out().tolist())
        documents = np.bincount(counts.indices, minlength=len(terms)).tolist()
        weights = np.array([1.0 + math.log((1 + len(texts)) / (1 + number)) for number in documents], np.float32)
        few = min(dimensions, len(terms) - 1, len(texts) - 1)
        if few < 1:
            return cls((), np.empty(0, np.float32), np.empty((0, 0), np.float32), counting)
        with one_thread_each():  # sums by several threads depend on their number
            directions = randomized_svd(_weighted(counts, weights), few, random_state=seed % 2**32)[2]
        return cls(terms, weights, read_only(directions.T.astype(np.float32)), counting)

    def __getstate__(self) -> dict[str, Any]:
        # What is made from the rest when it is needed is not sent to workers.
        return {name: value for name, value in self.__dict__.items() if name not in ("_counter", "_directions")}

    @cached_property
    def _counter(self) -> Any:
        made = _counter(self.counting, vocabulary={term: column for column, term in enumerate(self.terms)})
        made.transform([""])  # checks the vocabulary once
        return made

    @cached_property
    def _directions(self) -> npt.NDArray[np.float64]:
        return np.ascontiguousarray(self.directions, np.float64)

    def extract(self, texts: list[str]) -> npt.NDArray[np.float64]:
        """The texts in those directions (n, d), each of length 1, or 0 where no term is known."""
        if not self.terms:
            return np.zeros((len(texts), 0))
        # A product with a sparse matrix is summed row by row in the order of its terms.
        table = np.asarray(_weighted(self._counter.transform(texts), self.weights) @ self._directions)
        squares = np.zeros(len(table))
        for column in table.T:
            squares += column * column
        lengths = np.sqrt(squares)
        return table / np.where(lengths > 0.0, lengths, 1.0)[:, None]


@dataclass(frozen=True, eq=False, repr=False)
class TextFeatures:
    """Features of texts that cost nothing: words, character sequences, length and shape.

    Made by ``TextFeatures.fit(texts)``. An extractor for a ``Pool``, and what ``Profile(…, texts=…)`` and
    ``profile(…, text=True)`` keep with the profile. Every text gives the same features alone, among others, in every
    process and from any thread.

    >>> text = TextFeatures.fit(["How many cats?", "How many dogs?", "Name a cat."])
    >>> text.extract(["How many eels?"]).dtype
    dtype('float32')
    """

    words: _Terms
    characters: _Terms
    center: npt.NDArray[np.float64]
    spread: npt.NDArray[np.float64]
    name: str = TEXT
    cost: ClassVar[int] = 0

    @classmethod
    def fit(cls, texts: Iterable[str], *, seed: int | np.random.Generator = 0, name: str = TEXT) -> TextFeatures:
        """Features fitted on these texts: which words there are, and in which directions they vary."""
        listed, number = checked_texts(texts), seed_number(seed)
        name_tuple([name], "name")
        shapes = _shapes(listed)
        center, spread = shapes.mean(axis=0), shapes.std(axis=0)
        return cls(
            _Terms.fit([text[:LONGEST] for text in listed], COUNT_WORDS, MOST_WORDS, WORDS, number),
            _Terms.fit([text[:BEGINNING] for text in listed], COUNT_SEQUENCES, MOST_SEQUENCES, CHARACTERS, number),
            read_only(center),
            read_only(np.where(spread > 1e-9, spread, 1.0)),
            name,
        )

    @property
    def width(self) -> int:
        """How many numbers the features of a text are."""
        return int(self.words.directions.shape[1] + self.characters.directions.shape[1] + self.center.size)

    def extract(self, texts: Any, /) -> FloatArray:
        """Features (n, d) as float32; words that were not seen when it was fitted count only for length and shape."""
        listed = checked_texts(texts)
        shape = np.clip((_shapes(listed) - self.center) / self.spread, -FARTHEST, FARTHEST)
        return np.hstack([
            self.words.extract([text[:LONGEST] for text in listed]),
            CHARACTER_WEIGHT * self.characters.extract([text[:BEGINNING] for text in listed]),
            SHAPE_WEIGHT / math.sqrt(self.center.size) * shape,
        ]).astype(np.float32)  # fmt: skip

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that features depend on."""
        said, numbers = self.stored()
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode() + numbers.tobytes()).hexdigest()

    def stored(self) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
        """What is to be kept of it: words and numbers for JSON, and one array (k,) of all weights and directions."""
        said = {
            "format": FORMAT,
            "name": self.name,
            "center": self.center.tolist(),
            "spread": self.spread.tolist(),
            **{
                kind: {"terms": list(one.terms), "dimensions": int(one.directions.shape[1])}
                for kind, one in (("words", self.words), ("characters", self.characters))
            },
        }
        parts = [part.ravel() for one in (self.words, self.characters) for part in (one.weights, one.directions)]
        return said, np.concatenate(parts)

    @classmethod
    def from_stored(cls, said: Mapping[str, Any], numbers: npt.NDArray[Any]) -> TextFeatures:
        """What ``stored`` took apart; ``ValueError`` where it does not fit together."""
        if said["format"] != FORMAT:
            raise ValueError(f"text features of format {said['format']!r} are not known to this version")
        left, made = np.asarray(numbers, np.float32), list[_Terms]()
        for kind, counting in (("words", COUNT_WORDS), ("characters", COUNT_SEQUENCES)):
            terms, dimensions = tuple(map(str, said[kind]["terms"])), int(said[kind]["dimensions"])
            ends = len(terms), len(terms) * (1 + dimensions)
            if len(left) < ends[1] or len(set(terms)) != len(terms) or dimensions < 0:
                raise ValueError("the terms of its text features do not fit their numbers")
            directions = left[ends[0] : ends[1]].reshape(len(terms), dimensions)
            made.append(_Terms(terms, read_only(left[: ends[0]]), read_only(directions), counting))
            left = left[ends[1] :]
        center, spread = np.array(said["center"], np.float64), np.array(said["spread"], np.float64)
        if left.any() or center.shape != (SHAPES,) or spread.shape != (SHAPES,) or not (spread > 0.0).all():
            raise ValueError("the numbers of its text features do not fit together")
        return cls(made[0], made[1], read_only(center), read_only(spread), str(said["name"]))

    def __repr__(self) -> str:
        return f"TextFeatures({len(self.words.terms)} words, {self.width} features)"


class TextExtractor:
    """Text features of a pool: free, fitted by ``occamroute profile`` on the labelled texts and kept in the profile."""

    def __init__(self, name: str, cost: Cost = 0) -> None:
        if cost != 0:
            raise InvalidInputError(f"cost of text features must be 0, got {cost}.")
        self.name, self.cost = name, cost

    def extract(self, queries: Any, /) -> FloatArray:
        """Nothing: it is the profile's own ``TextFeatures`` that extract."""
        raise InvalidInputError(f"extractor {self.name!r} has to be fitted: use the text features of a profile.")


def of_texts(member: Any) -> bool:
    """Whether a member of a pool is text features, which are never called nor paid for."""
    return isinstance(member, TextFeatures | TextExtractor)


def are_texts(queries: Any) -> bool:
    """Whether these are texts, from the first of them: a list, tuple, array or column of strings."""
    if isinstance(queries, np.ndarray):
        return queries.ndim == 1 and (queries.dtype.kind in "UT" or (queries.size > 0 and isinstance(queries[0], str)))
    if hasattr(queries, "to_numpy"):  # a column of a data frame
        return are_texts(np.asarray(queries.to_numpy()))
    return isinstance(queries, list | tuple) and len(queries) > 0 and isinstance(queries[0], str)


def checked_texts(texts: Any) -> list[str]:
    """The texts as a list, or one sentence about what is none."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InvalidInputError(f"text features need a sequence of texts, got {type(texts).__name__}.")
    listed = list(texts.tolist() if isinstance(texts, np.ndarray) else texts)
    if not listed:
        raise InvalidInputError("text features need at least one text, got none.")
    for row, text in enumerate(listed):
        if not isinstance(text, str):
            raise InvalidInputError(f"text features need texts, got {type(text).__name__} as query {row}.")
    return listed


COUNT_WORDS: dict[str, Any] = {"token_pattern": r"\w+"}
COUNT_SEQUENCES: dict[str, Any] = {"analyzer": "char", "ngram_range": (2, 3)}


def _counter(counting: Mapping[str, Any], **options: Any) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(dtype=np.float64, **counting, **options)


def _weighted(counts: Any, weights: FloatArray) -> Any:
    """Square roots of counts times weights, every row of length 1; a square root is rounded the same everywhere."""
    from sklearn.preprocessing import normalize

    counts.data = np.sqrt(counts.data) * weights[counts.indices].astype(np.float64)
    return normalize(counts, copy=False)


# How many numbers ``_shape`` gives.
SHAPES = 13


def _shapes(texts: list[str]) -> npt.NDArray[np.float64]:
    return np.array([_shape(text) for text in texts])


def _shape(text: str) -> tuple[float, ...]:
    """Length and shape of a text: counts as logarithms, and shares of its characters."""
    digits = upper = marks = foreign = 0
    for character, count in Counter(text).items():
        if character.isdigit():
            digits += count
        elif character.isupper():
            upper += count
        elif not character.isalnum() and not character.isspace():
            marks += count
        if character > "\x7f":
            foreign += count
    words = text.split()
    length = max(1, len(text))
    counts = (
        len(text), len(words), len(set(words)), digits, upper, marks, foreign, text.count("\n"), text.count("?"),
    )  # fmt: skip
    mean_word = math.log1p(len(text) / max(1, len(words)))
    return (*map(math.log1p, counts), mean_word, digits / length, upper / length, marks / length)
