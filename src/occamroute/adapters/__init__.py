"""Things that become a classifier or an extractor, one kind a file; each is loaded when it is first asked for.

A kind is a class whose constructor takes ``name``, ``cost`` and keyword options with annotations; a classifier's
takes ``classes`` too. Other packages add kinds through the entry points ``occamroute.classifiers`` and
``occamroute.extractors``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

from occamroute.errors import UnknownNameError
from occamroute.pool import Cost, Measured

__all__ = ["Family", "adapter", "classifier", "kinds"]

Family = Literal["classifier", "extractor"]

BUILT_IN: dict[Family, dict[str, str]] = {
    "classifier": {
        "callable": "occamroute.adapters.callable:CallableClassifier",
        "sklearn": "occamroute.adapters.sklearn:SklearnClassifier",
        "torch": "occamroute.adapters.torch:TorchClassifier",
        "onnx": "occamroute.adapters.onnx:OnnxClassifier",
        "transformers": "occamroute.adapters.transformers:TransformersClassifier",
        "openai": "occamroute.adapters.openai:ChatClassifier",
        "kserve": "occamroute.adapters.kserve:KServeClassifier",
    },
    "extractor": {
        "callable": "occamroute.adapters.callable:CallableExtractor",
        "sentence_transformers": "occamroute.adapters.sentence_transformers:SentenceExtractor",
        "text": "occamroute.text_features:TextExtractor",
    },
}


def kinds(family: Family) -> list[str]:
    """The names of all kinds, those of other packages included."""
    return [*BUILT_IN[family], *(entry.name for entry in _others(family))]


def adapter(family: Family, kind: str) -> type[Any]:
    """The class of a kind."""
    if kind in BUILT_IN[family]:
        module, _, name = BUILT_IN[family][kind].partition(":")
        found: type[Any] = getattr(import_module(module), name)
        return found
    for entry in _others(family):
        if entry.name == kind:
            other: type[Any] = entry.load()
            return other
    raise UnknownNameError(f"kind of {family}", kind, kinds(family))


def _others(family: Family) -> list[Any]:
    return [entry for entry in entry_points(group=f"occamroute.{family}s") if entry.name not in BUILT_IN[family]]


def classifier(name: str, model: Any, *, classes: Any, cost: Cost | None = None, **options: Any) -> Any:
    """A classifier from what people have: a fitted scikit-learn estimator, a torch module, or a function.

    ``classes`` are the pool's. Without a ``cost`` it is measured, in seconds. A function gets a list of queries and
    gives probabilities (n, classes) or n labels. ``options`` are those of the kind.

    >>> detector = classifier("rule", lambda texts: ["dog"] * len(texts), classes=("cat", "dog"), cost=0.1)
    >>> detector.predict_proba(["a", "b"])
    array([[0., 1.],
           [0., 1.]])
    """
    ancestors = {f"{base.__module__}.{base.__qualname__}" for base in type(model).__mro__}
    if "torch.nn.modules.module.Module" in ancestors:
        kind, argument = "torch", "module"
    elif hasattr(model, "predict_proba") or hasattr(model, "predict"):
        kind, argument = "sklearn", "estimator"
    else:
        kind, argument = "callable", "function"
    made = adapter("classifier", kind)
    return made(
        name, Measured() if cost is None else cost, classes=tuple(map(str, classes)), **{argument: model}, **options
    )
