"""Pool: the classifiers at hand, what a call of each costs, and who else can extract features."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray, IntArray, name_tuple
from occamroute._money import Amount, exact, money
from occamroute.errors import InvalidInputError, UnknownNameError

__all__ = ["Answers", "Classifier", "Cost", "Extractor", "Measured", "PerToken", "Pool", "selected"]


@dataclass(frozen=True)
class Measured:
    """A cost that is measured: the seconds that a call takes, at a price per hour (by default 1 a second)."""

    per_hour: Amount = 3600

    def __post_init__(self) -> None:
        money(self.per_hour, "per_hour")

    def __str__(self) -> str:
        return f"measured at {self.per_hour} an hour"

    def of(self, seconds: float) -> Fraction:
        """What so many seconds cost; a nanosecond that has begun counts whole."""
        return Fraction(math.ceil(seconds * 1e9), 10**9) * exact(self.per_hour) / 3600


@dataclass(frozen=True)
class PerToken:
    """A cost by tokens read and written, each at a price per million."""

    per_million_input: Amount
    per_million_output: Amount

    def __post_init__(self) -> None:
        money(self.per_million_input, "per_million_input")
        money(self.per_million_output, "per_million_output")

    def __str__(self) -> str:
        return f"{self.per_million_input} per million tokens read, {self.per_million_output} per million written"

    def of(self, read: int, written: int) -> Fraction:
        """What so many tokens cost."""
        return (read * exact(self.per_million_input) + written * exact(self.per_million_output)) / 10**6


Cost: TypeAlias = Amount | Measured | PerToken


@dataclass(frozen=True, eq=False)
class Answers:
    """What one call gave for n queries.

    ``probabilities`` (n, C); ``cost`` (n,) is what each query was charged; ``failures`` says why a query has no
    answer, by its row: such rows' probabilities do not count. ``features`` (n, d), where the call yields them
    (an embedding, say), are what the classifier extracts; otherwise its probabilities are.
    """

    probabilities: FloatArray
    cost: npt.ArrayLike | Sequence[Amount]
    failures: Mapping[int, str] = field(default_factory=dict)
    features: FloatArray | None = None


@runtime_checkable
class Classifier(Protocol):
    """Anything with a name, the cost of one query, and ``predict_proba(queries)`` → (n, classes).

    Richer ones may offer ``answer(queries, timeout=None)`` → ``Answers`` in place of ``predict_proba``, its async
    twin ``aanswer``, and ``max_cost(queries)`` → (n,): what is reserved before a call. An attribute ``concurrency``
    above 0 says that calls go elsewhere, so many side by side; then ``timeout`` (seconds), ``retries`` and
    ``per_minute`` (calls) count too. ``batch_size`` is the most queries that one call takes. One that is ``idempotent``
    takes a ``key`` with ``answer``, and charges calls of the same key once.
    """

    @property
    def name(self) -> str:
        """What it is called in profiles and plans."""
        ...

    @property
    def cost(self) -> Cost:
        """What one query costs."""
        ...

    def predict_proba(self, queries: Any, /) -> Any:
        """Probabilities (n, classes) for n queries."""
        ...


@runtime_checkable
class Extractor(Protocol):
    """Anything with a name, the cost of one query, and ``extract(queries)`` → (n, d)."""

    @property
    def name(self) -> str:
        """What the feature set is called in profiles and plans."""
        ...

    @property
    def cost(self) -> Cost:
        """What one query costs."""
        ...

    def extract(self, queries: Any, /) -> Any:
        """Features (n, d) of n queries."""
        ...


@dataclass(frozen=True, eq=False, init=False)
class Pool:
    """Classifiers that answer with the same classes, and extractors that see the same queries.

    Every classifier is an extractor too: of its probabilities, or of what its answers carry as ``features``.
    """

    classifiers: tuple[Any, ...]
    classes: tuple[str, ...]
    extractors: tuple[Any, ...]
    # The file that it was read from: other processes read it again, and are sent no models.
    file: str | None

    def __init__(self, classifiers: Iterable[Any], classes: Iterable[Any], extractors: Iterable[Any] = ()) -> None:
        object.__setattr__(self, "classifiers", tuple(classifiers))
        object.__setattr__(self, "classes", name_tuple(map(str, classes), "classes"))
        object.__setattr__(self, "extractors", tuple(extractors))
        object.__setattr__(self, "file", None)
        if not self.classifiers:
            raise InvalidInputError("a pool needs at least one classifier.")
        for one in self.classifiers:
            _check(one, ("predict_proba", "answer", "aanswer"), "classifier")
            known = getattr(one, "classes", None)
            if isinstance(known, tuple) and tuple(map(str, known)) != self.classes:
                raise InvalidInputError(
                    f"classifier {one.name!r} answers with {len(known)} classes that are not the pool's "
                    f"{len(self.classes)}, or in another order."
                )
        for one in self.extractors:
            _check(one, ("extract",), "extractor")
        name_tuple((one.name for one in (*self.classifiers, *self.extractors)), "names of classifiers and extractors")

    @property
    def names(self) -> tuple[str, ...]:
        """The classifiers' names."""
        return tuple(one.name for one in self.classifiers)

    def __getitem__(self, name: str) -> Any:
        for one in (*self.classifiers, *self.extractors):
            if one.name == name:
                return one
        raise UnknownNameError("classifier", name, [one.name for one in (*self.classifiers, *self.extractors)])

    def select(self, names: Iterable[str]) -> Pool:
        """The pool with only these classifiers, in this order; extractors stay."""
        made = Pool([self[name] for name in names], self.classes, self.extractors)
        object.__setattr__(made, "file", self.file)
        return made

    @property
    def prices(self) -> dict[str, str]:
        """What each member asks, in words that change when the price does."""
        return {one.name: str(one.cost) for one in (*self.classifiers, *self.extractors)}


def _check(one: Any, methods: tuple[str, ...], kind: str) -> None:
    name = getattr(one, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidInputError(f"a {kind} needs a name, got {name!r} from {type(one).__name__}.")
    if not any(callable(getattr(one, method, None)) for method in methods):
        raise InvalidInputError(f"{kind} {name!r} needs {' or '.join(methods)}, got {type(one).__name__}.")
    cost = getattr(one, "cost", None)
    if not isinstance(cost, Measured | PerToken):
        money(cost, f"cost of {kind} {name!r}")


def selected(queries: Any, rows: IntArray) -> Any:
    """Some of the queries, in the form that they came in: an array, a list, or anything that takes such rows."""
    if isinstance(queries, np.ndarray):
        # A run of consecutive rows needs no copy.
        if rows.size and int(rows[-1]) - int(rows[0]) + 1 == rows.size and bool((np.diff(rows) == 1).all()):
            return queries[int(rows[0]) : int(rows[-1]) + 1]
        return queries[rows]
    return [queries[int(row)] for row in rows]
