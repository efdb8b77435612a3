"""Profile: what each classifier did on labelled queries, and what was known of them beforehand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute._arrays import (
    FloatArray,
    IntArray,
    cost_array,
    feature_matrix,
    generator,
    name_tuple,
    probability_matrix,
    row_labels,
    success_matrix,
)
from occamroute._intervals import mean_bounds
from occamroute._money import Amount, exact, from_text, money, rounded_up, units_for
from occamroute.charts.cards import card
from occamroute.charts.pictures import classifier_chart
from occamroute.charts.words import counted
from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.storage import Parts
from occamroute.text_features import TextFeatures, checked_texts

__all__ = ["FEATURES", "Profile", "beside", "exact_means", "success"]

# What a feature set is called when no classifier's call yields it.
FEATURES = "features"


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Profile:
    """What M classifiers did on n labelled queries.

    ``costs`` is one call's cost, (M,) or (n, M) where it differs by query; ``features`` (n, d) is what is known
    of a query before an answer is bought, or a mapping from extractor to such arrays; ``success`` (n, M) lies
    in [0, 1]. ``extractor`` names the classifier whose call yields the features, so that its own answer is free
    once they are paid; with several feature sets it names the one to use where none is asked for.
    ``extractor_cost`` is what extraction costs for one query: by default that classifier's cost, or 0 without one.
    ``texts`` (n) are the queries themselves: they give a free feature set "text", by ``text`` (an
    ``oc.TextFeatures``) or by one fitted on them, which is kept with the profile. Without ``features`` and texts only
    mixtures can be planned. ``made_from`` says, in words for JSON, how it was made; the fingerprint leaves it out.

    >>> profile = Profile(("small", "large"), (0.1, 1.0), features=[[0.2], [0.9]], success=[[0, 1], [1, 1]])
    >>> profile.accuracy
    array([0.5, 1. ])
    """

    names: tuple[str, ...]
    costs: FloatArray
    features: FloatArray | Mapping[str, FloatArray] | None
    success: FloatArray
    extractor: str | None
    extractor_cost: Mapping[str, Amount]
    ids: tuple[str, ...]
    labels: npt.NDArray[Any] | None
    classes: tuple[str, ...] | None
    groups: npt.NDArray[Any] | None
    probabilities: Mapping[str, FloatArray] | None
    made_from: Mapping[str, Any]
    text: TextFeatures | None

    def __init__(
        self,
        names: Iterable[str],
        costs: npt.ArrayLike,
        features: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None = None,
        success: npt.ArrayLike | None = None,
        extractor: str | None = None,
        extractor_cost: Amount | Mapping[str, Amount] | None = None,
        ids: Iterable[str] | None = None,
        labels: npt.ArrayLike | None = None,
        classes: Iterable[str] | None = None,
        groups: npt.ArrayLike | None = None,
        probabilities: Mapping[str, npt.ArrayLike] | None = None,
        made_from: Mapping[str, Any] | None = None,
        text: TextFeatures | None = None,
        texts: Iterable[str] | None = None,
    ) -> None:
        put = partial(object.__setattr__, self)
        put("names", name_tuple(names))
        if success is None:
            raise InvalidInputError("success must be given: (n, M), what each classifier did on each query.")
        put("success", success_matrix(success))
        rows, options = self.success.shape
        if options != len(self.names):
            raise InvalidInputError(
                f"success must have one column for each of the {len(self.names)} names, got {options}."
            )
        put("costs", cost_array(costs, options=options, rows=rows))
        put("extractor", extractor)
        if texts is not None:
            text, features = _with_text(features, text, texts, extractor or FEATURES)
        put("features", None if features is None else _features(features, rows))
        put("text", text)
        self._check_text()
        put("extractor_cost", self._extraction_costs(extractor_cost))
        put("labels", None if labels is None else row_labels(labels, rows, "labels"))
        put("groups", None if groups is None else row_labels(groups, rows, "groups"))
        put("classes", None if classes is None else name_tuple(classes, "classes"))
        self._check_labels()
        put("ids", _ids(ids, self.stored_sets, self.success))
        put("probabilities", None if probabilities is None else self._kept(probabilities))
        put("made_from", dict(made_from or {}))

    def _extraction_costs(self, given: Amount | Mapping[str, Amount] | None) -> dict[str, Amount]:
        sets = self.stored_sets
        if self.extractor is not None and self.extractor not in sets:
            raise UnknownNameError("extractor", self.extractor, sets)
        if isinstance(given, Mapping):
            unknown = set(given) - set(sets)
            if unknown:
                raise UnknownNameError("extractor", sorted(unknown)[0], sets)
            amounts = dict(given)
        else:
            amounts = {} if given is None else dict.fromkeys(sets, given)
        for name in sets:
            if amounts.get(name) is None:
                amounts[name] = self._own_cost(name)
            money(amounts[name], "extractor_cost")
        return {name: amounts[name] for name in sets}

    def _own_cost(self, extractor: str) -> float:
        if extractor in self.names:
            return float(self.mean_costs[self.names.index(extractor)])
        if extractor == FEATURES or self._is_text(extractor):
            return 0.0
        raise UnknownNameError("extractor", extractor, self.names)

    def _is_text(self, name: str) -> bool:
        return self.text is not None and name == self.text.name

    def _check_text(self) -> None:
        if self.text is None:
            return
        if not isinstance(self.text, TextFeatures):
            raise InvalidInputError(f"text must be made by oc.TextFeatures.fit, got {type(self.text).__name__}.")
        table = self.stored_sets.get(self.text.name)
        if table is None or table.shape[1] != self.text.width or self.text.name in self.names:
            raise InvalidInputError(
                f"text goes with a feature set {self.text.name!r} of {self.text.width} columns, made by it: give texts."
            )
        for name in self.joined:
            if name in self.stored_sets:
                raise InvalidInputError(f"feature set {name!r} has the name of one that text is part of: rename it.")

    def _check_labels(self) -> None:
        if self.labels is None or self.classes is None or self.labels.dtype.kind != "i":
            return
        if int(self.labels.min()) < 0 or int(self.labels.max()) >= len(self.classes):
            raise InvalidInputError(f"labels must be whole numbers from 0 to {len(self.classes) - 1}.")

    def _kept(self, probabilities: Mapping[str, Any]) -> dict[str, FloatArray]:
        kept = {}
        for name, table in probabilities.items():
            if name not in self.names:
                raise UnknownNameError("classifier in probabilities", name, self.names)
            kept[name] = probability_matrix(table, f"probabilities[{name!r}]")
            shape = (len(self), kept[name].shape[1] if self.classes is None else len(self.classes))
            if kept[name].shape != shape:
                raise InvalidInputError(f"probabilities[{name!r}] must be of shape {shape}, got {kept[name].shape}.")
        return kept

    def __len__(self) -> int:
        return int(self.success.shape[0])

    def __repr__(self) -> str:
        sets = self._sets_in_words()
        return f"Profile({len(self)} queries, classifiers {', '.join(self.names)}; features {sets})"

    def _sets_in_words(self) -> str:
        return ", ".join(f"{name} ({table.shape[1]})" for name, table in self.stored_sets.items()) or "none"

    def _repr_html_(self) -> str:
        bounds = mean_bounds(self.success, self.blocks)
        sets = self._sets_in_words()
        facts = [("labelled queries", f"{len(self):,}"), ("features", sets), ("fingerprint", self.fingerprint[:12])]
        picture = classifier_chart(self.names, self.mean_costs, self.accuracy, bounds)
        return card(f"Profile of {counted(len(self.names), 'classifier')}", facts, picture)

    @property
    def stored_sets(self) -> dict[str, FloatArray]:
        """The feature sets that it was given, by extractor."""
        if self.features is None:
            return {}
        if isinstance(self.features, Mapping):
            return dict(self.features)
        return {self.extractor or FEATURES: self.features}

    @property
    def feature_sets(self) -> dict[str, FloatArray]:
        """The feature sets by extractor; where there are text features, each of the others beside them, too."""
        return self.stored_sets | self._joined_sets

    @cached_property
    def joined(self) -> dict[str, str]:
        """Feature sets that are another one and the text features side by side, each with the name of that other."""
        if self.text is None:
            return {}
        return {f"{name}+{self.text.name}": name for name in self.stored_sets if name != self.text.name}

    @cached_property
    def _joined_sets(self) -> dict[str, FloatArray]:
        sets, text = self.stored_sets, "" if self.text is None else self.text.name
        return {both: beside(sets[own], sets[text]) for both, own in self.joined.items()}

    def paid_extractor(self, extractor: str | None) -> str | None:
        """Whose call a feature set needs: its own, that of the other half of a joined one, or none for texts alone."""
        if extractor is None or self._is_text(extractor):
            return None
        return self.joined.get(extractor, extractor)

    @property
    def extraction_costs(self) -> dict[str, Amount]:
        """What extracting each feature set costs for one query; text features cost nothing, alone or beside others."""
        costs = dict(self.extractor_cost)
        return costs | {both: costs[own] for both, own in self.joined.items()}

    @property
    def dearest(self) -> int:
        """The classifier that costs most; of equally dear ones the most accurate."""
        return int(np.lexsort((self.accuracy, self.mean_costs))[-1])

    @property
    def accuracy(self) -> FloatArray:
        """Each classifier's mean success, (M,)."""
        return np.asarray(self.success.mean(axis=0))

    @cached_property
    def mean_costs(self) -> FloatArray:
        """Each classifier's cost, averaged exactly (and rounded up) where it differs by query, (M,)."""
        return exact_means(self.costs)

    @property
    def blocks(self) -> IntArray:
        """A number from 0 for each row; rows with the same one must not be torn apart, (n,)."""
        return np.arange(len(self)) if self.groups is None else np.unique(self.groups, return_inverse=True)[1]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content, the same for the same content wherever it is stored."""
        digest = hashlib.sha256()

        def add(name: str, value: Any) -> None:
            array = np.asarray(value)
            if array.dtype.kind == "U":  # its width depends on where it came from
                array = np.frombuffer(json.dumps(array.reshape(-1).tolist()).encode(), np.uint8)
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).tobytes())

        for name in ("names", "costs", "success", "ids", "labels", "classes", "groups"):
            if getattr(self, name) is not None:
                add(name, getattr(self, name))
        add("extractor", self.extractor or "")
        for name, table in self.stored_sets.items():
            add(f"features {name} {exact(self.extraction_costs[name])}", table)
        for name, table in (self.probabilities or {}).items():
            add(f"probabilities {name}", table)
        if self.text is not None:
            add("text", self.text.fingerprint)
        return digest.hexdigest()

    @classmethod
    def from_parts(cls, parts: Parts) -> Profile:
        """The profile that ``parts`` was made of."""
        about, columns = parts.metadata, parts.columns
        names = about["names"]
        sets = {name: columns[f"features:{name}"] for name in about["feature_sets"]}
        several = about["several_feature_sets"]
        per_query = about["costs"] is None
        profile = cls(
            names=tuple(names),
            costs=np.column_stack([columns[f"cost:{name}"] for name in names]) if per_query
            else np.array(about["costs"], np.float64),
            features=sets if several else next(iter(sets.values()), None),
            success=np.column_stack([columns[f"success:{name}"] for name in names]),
            extractor=about["extractor"],
            extractor_cost={name: from_text(cost) for name, cost in about["extractor_cost"].items()},
            ids=tuple(columns["id"].tolist()),
            labels=columns.get("label"),
            classes=None if about["classes"] is None else tuple(about["classes"]),
            groups=columns.get("group"),
            probabilities=None if about["probabilities"] is None
            else {name: columns[f"probabilities:{name}"] for name in about["probabilities"]},
            made_from=about.get("made_from"),
            text=None if about.get("text") is None
            else TextFeatures.from_stored(about["text"], columns["text features"].reshape(-1)),
        )  # fmt: skip
        if profile.fingerprint != about["fingerprint"]:
            raise ValueError("its content has another fingerprint than it states")
        return profile

    def parts(self) -> Parts:
        """The profile as one table, a row for each query, and what is said of the table as a whole."""
        columns: dict[str, npt.NDArray[Any]] = {"id": np.array(self.ids)}
        if self.labels is not None:
            columns["label"] = self.labels
        if self.groups is not None:
            columns["group"] = self.groups
        for column, name in enumerate(self.names):
            columns[f"success:{name}"] = self.success[:, column]
            if self.costs.ndim == 2:
                columns[f"cost:{name}"] = self.costs[:, column]
        columns |= {f"features:{name}": table for name, table in self.stored_sets.items()}
        columns |= {f"probabilities:{name}": table for name, table in (self.probabilities or {}).items()}
        about = {
            "names": list(self.names),
            "costs": self.costs.tolist() if self.costs.ndim == 1 else None,
            "extractor": self.extractor,
            "extractor_cost": {name: str(cost) for name, cost in self.extractor_cost.items()},
            "feature_sets": list(self.stored_sets),
            "several_feature_sets": isinstance(self.features, Mapping),
            "classes": None if self.classes is None else list(self.classes),
            "probabilities": None if self.probabilities is None else list(self.probabilities),
            "fingerprint": self.fingerprint,
            "made_from": dict(self.made_from),
        }
        if self.text is not None:
            about["text"], numbers = self.text.stored()
            # Columns have a value for each query: the numbers go through the rows in their order, zeros at the end.
            width = max(1, -(-numbers.size // len(self)))
            columns["text features"] = np.pad(numbers, (0, width * len(self) - numbers.size)).reshape(len(self), width)
        return Parts("profile", columns, about)

    def take(self, rows: IntArray) -> Profile:
        """The profile of some of the rows, in the order given."""
        return replace(
            self,
            costs=self.costs if self.costs.ndim == 1 else self.costs[rows],
            features=self.as_given({name: table[rows] for name, table in self.stored_sets.items()}),
            success=self.success[rows],
            ids=tuple(self.ids[row] for row in rows),
            probabilities=None if self.probabilities is None
            else {name: table[rows] for name, table in self.probabilities.items()},
            labels=None if self.labels is None else self.labels[rows],
            groups=None if self.groups is None else self.groups[rows],
        )  # fmt: skip

    def as_given(self, sets: Mapping[str, Any]) -> Any:
        """Other arrays for its feature sets in the form that ``features`` has: a mapping, one array, or None."""
        return sets if isinstance(self.features, Mapping) else next(iter(sets.values()), None)

    def split(self, fraction: float = 0.5, *, seed: int | np.random.Generator = 0) -> tuple[Profile, Profile]:
        """Two profiles, the first with about ``fraction`` of the rows; rows of one group stay together."""
        if not 0.0 < fraction < 1.0:
            raise InvalidInputError(f"fraction must lie between 0 and 1, got {fraction!r}.")
        random = generator(seed)
        blocks = self.blocks
        order = random.permutation(int(blocks.max()) + 1)
        sizes = np.bincount(blocks)[order]
        first = order[: max(1, int(np.searchsorted(np.cumsum(sizes), fraction * len(self), side="right")))]
        chosen = np.isin(blocks, first)
        if chosen.all() or not chosen.any():
            raise InvalidInputError(f"a profile of {len(self)} rows cannot be split at {fraction!r}.")
        return self.take(np.flatnonzero(chosen)), self.take(np.flatnonzero(~chosen))

    def select(self, names: Iterable[str]) -> Profile:
        """The profile of some of the classifiers; its features and what they cost stay."""
        wanted = name_tuple(names)
        for name in wanted:
            if name not in self.names:
                raise UnknownNameError("classifier", name, self.names)
        columns = [self.names.index(name) for name in wanted]
        kept = self.probabilities
        return replace(
            self,
            names=wanted,
            costs=self.costs[..., columns],
            success=self.success[:, columns],
            probabilities=None if kept is None else {name: kept[name] for name in wanted if name in kept},
        )

    def pareto(self) -> Profile:
        """The core set: classifiers that no other beats in both mean cost and accuracy, and the extractors."""
        cost, accuracy = self.mean_costs, self.accuracy
        beaten = [
            any(
                cost[other] <= cost[one] and accuracy[other] >= accuracy[one]
                and (cost[other] < cost[one] or accuracy[other] > accuracy[one] or other < one)
                for other in range(len(self.names)) if other != one
            )
            for one in range(len(self.names))
        ]  # fmt: skip
        sets = self.stored_sets
        return self.select(name for name, worse in zip(self.names, beaten, strict=True) if not worse or name in sets)


def exact_means(costs: FloatArray) -> FloatArray:
    """Each classifier's cost, averaged exactly and rounded up where it differs by query, (M,)."""
    if costs.ndim == 1:
        return costs
    units = units_for(costs, queries=len(costs))
    totals = [sum(column) * units.size for column in units.cost.T.tolist()]
    return np.array([float(rounded_up(total / len(costs))) for total in totals])


def success(probabilities: Any, labels: Any, *, temperature: float = 0.001) -> FloatArray:
    """The paper's soft success (n,): the probability on the true label, sharpened by ``temperature``.

    At the default it is nearly 1 where the classifier's most likely label is the true one, and nearly 0 elsewhere.

    >>> success([[0.6, 0.4], [0.5, 0.5]], [0, 1]).round(3)
    array([1. , 0.5])
    """
    table = probability_matrix(probabilities).astype(np.float64)
    truth = row_labels(labels, table.shape[0], "labels")
    if truth.dtype.kind != "i" or int(truth.min()) < 0 or int(truth.max()) >= table.shape[1]:
        raise InvalidInputError(f"labels must be whole numbers from 0 to {table.shape[1] - 1}.")
    if not (np.isfinite(temperature) and temperature > 0.0):
        raise InvalidInputError(f"temperature must be a finite number > 0, got {temperature!r}.")
    with np.errstate(divide="ignore"):
        logits = np.log(table / table.max(axis=1, keepdims=True)) / temperature
    sharpened = np.exp(logits)
    return np.asarray(np.take_along_axis(sharpened, truth[:, None], axis=1)[:, 0] / sharpened.sum(axis=1))


def _features(value: Any, rows: int) -> FloatArray | dict[str, FloatArray]:
    if isinstance(value, Mapping):
        if not value:
            raise InvalidInputError("features must hold at least one feature set, got an empty mapping.")
        return {
            name: _one_set(table, rows, f"features[{name!r}]")
            for name, table in zip(name_tuple(value, "features"), value.values(), strict=True)
        }
    return _one_set(value, rows, "features")


def _one_set(value: Any, rows: int, name: str) -> FloatArray:
    table = feature_matrix(value, name, copy=True)
    if table.shape[0] != rows:
        raise InvalidInputError(f"{name} must have one row for each of the {rows} of success, got {table.shape[0]}.")
    return table


def beside(own: FloatArray, text: FloatArray) -> FloatArray:
    """Features of an extractor and those of the texts side by side, as both are: probabilities and texts are alike."""
    table = np.hstack([own, text])
    table.flags.writeable = False
    return table


def _with_text(
    features: Any, text: TextFeatures | None, texts: Iterable[str], name: str
) -> tuple[TextFeatures, dict[str, Any]]:
    """Text features, fitted where none are given, and the feature sets with theirs."""
    listed = checked_texts(texts)
    text = TextFeatures.fit(listed) if text is None else text
    sets = dict(features) if isinstance(features, Mapping) else {} if features is None else {name: features}
    if text.name in sets:
        raise InvalidInputError(f"features hold a set {text.name!r} already: leave it out, or texts.")
    return text, {**sets, text.name: text.extract(listed)}


def _ids(given: Any, sets: Mapping[str, FloatArray], success: FloatArray) -> tuple[str, ...]:
    """The rows' ids, by default a hash of each row's features, numbered where rows repeat."""
    rows = len(success)
    if given is not None:
        ids = tuple(str(entry) for entry in given)
        if len(ids) != rows:
            raise InvalidInputError(f"ids must be of length {rows}, got {len(ids)}.")
        return name_tuple(ids, "ids") if ids else ids
    if not sets:  # rows of another table must not pass for these
        name = hashlib.blake2b(success.tobytes(), digest_size=10).hexdigest()
        return tuple(f"{name}-{row}" for row in range(rows))
    seen: dict[str, int] = {}
    made = []
    for row in range(rows):
        digest = hashlib.blake2b(digest_size=10)
        for table in sets.values():
            digest.update(table[row].tobytes())
        name = digest.hexdigest()
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return tuple(made)
