"""scikit-learn estimators as classifiers."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from sklearn.base import is_classifier

from occamroute._arrays import FloatArray
from occamroute._optional import require
from occamroute.adapters._files import exactly_one, model_file
from occamroute.adapters._tables import columns_of, in_columns, sigmoid_pair, softmax, with_columns
from occamroute.adapters.callable import found, table_of_labels
from occamroute.errors import InvalidInputError, StorageError
from occamroute.pool import Cost

__all__ = ["SklearnClassifier"]


class SklearnClassifier:
    """A fitted estimator or pipeline as a classifier.

    Exactly one of ``estimator``, ``path`` (a .skops file; types that skops does not know as safe must be listed in
    ``trusted``) and ``function`` ("package.module:name", which gives the estimator). Its ``classes_`` are compared
    with the pool's as text; classes that it does not know get 0. Without ``predict_proba`` its decision function
    becomes probabilities by softmax, and without that its labels do.
    """

    def __init__(
        self,
        name: str,
        cost: Cost,
        *,
        classes: tuple[str, ...],
        estimator: Any = None,
        path: Path | None = None,
        function: str | None = None,
        trusted: tuple[str, ...] = (),
        batch_size: int = 256,
        folder: Path | None = None,
    ) -> None:
        self.name, self.cost, self.classes, self.batch_size = name, cost, classes, batch_size
        given = exactly_one(name, {"estimator": estimator, "path": path, "function": function})
        if given == "path":
            estimator = _loaded(model_file(str(path), (".skops",), advice=ADVICE, look_inside=True), trusted)
        elif given == "function":
            estimator = found(str(function), folder)()
        self._estimator = estimator
        own = _labels(name, estimator)
        self._columns = None if own is None else columns_of(name, own, classes)

    def predict_proba(self, queries: Any, /) -> FloatArray:
        """Probabilities (n, classes)."""
        estimator = self._estimator
        if hasattr(estimator, "predict_proba"):
            table = estimator.predict_proba(queries)
        elif hasattr(estimator, "decision_function"):
            scores = estimator.decision_function(queries)
            table = softmax(scores) if scores.ndim == 2 else sigmoid_pair(scores)
        else:
            return table_of_labels([str(label) for label in estimator.predict(queries)], self.classes)
        if self._columns is None:  # it says nothing of its classes: they must be the pool's
            return with_columns(self.name, table, len(self.classes))
        return in_columns(self.name, table, self._columns, len(self.classes))


ADVICE = "save the estimator with skops.io.dump(estimator, 'model.skops')"


def _loaded(path: Path, trusted: tuple[str, ...]) -> Any:
    skops = require("skops.io", extra="sklearn", what="a .skops file")
    try:
        unknown = skops.get_untrusted_types(file=path)
        left = sorted(set(unknown) - set(trusted))
        if not left:
            return skops.load(path, trusted=unknown)
    except (BadZipFile, KeyError, ValueError, OSError) as error:
        raise StorageError(path, f"skops cannot read it ({' '.join(str(error).split()) or 'broken'})") from error
    raise InvalidInputError(
        f"{path} holds types that skops does not know as safe: {', '.join(left)}; "
        "list them as trusted if you know where the file is from."
    )


def _labels(name: str, estimator: Any) -> list[Any] | None:
    if not any(hasattr(estimator, method) for method in ("predict_proba", "decision_function", "predict")):
        raise InvalidInputError(
            f"classifier {name!r} needs a fitted estimator with predict_proba, got {type(estimator).__name__}."
        )
    labels = getattr(estimator, "classes_", None)
    if labels is not None:
        if isinstance(labels, list) and labels and not isinstance(labels[0], str | int):
            raise InvalidInputError(f"classifier {name!r} must answer one question, got {len(labels)} outputs.")
        return list(labels)
    try:
        unfitted = is_classifier(estimator)
    except (AttributeError, TypeError):  # somebody's own class, which scikit-learn knows nothing of
        unfitted = False
    if unfitted:
        raise InvalidInputError(
            f"classifier {name!r} needs a fitted estimator: call fit of {type(estimator).__name__}."
        )
    return None
