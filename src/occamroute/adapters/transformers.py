"""Models of transformers as classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.adapters._hugging_face import from_here, library
from occamroute.adapters._images import opened
from occamroute.adapters._local import Block, LocalClassifier
from occamroute.adapters._tables import columns_of, in_columns, mapped, softmax
from occamroute.adapters._torch_models import require_torch, torch_device
from occamroute.errors import InvalidInputError
from occamroute.pool import Cost

__all__ = ["TransformersClassifier"]

LONGEST = 512


class TransformersClassifier(LocalClassifier):
    """A model of transformers as a classifier of texts or images.

    ``model`` is a folder, or the name of a model in the cache of Hugging Face. ``task``: "text" and "image" answer
    with the model's own labels, which ``labels`` maps to the pool's classes where they are called otherwise (a model
    that only has LABEL_0, LABEL_1, … answers in the pool's order). "zero_shot" takes a model of textual entailment and
    asks for each class whether ``hypothesis`` with its name follows; there ``labels`` maps words to classes.
    Texts are cut at ``max_tokens``, by default what the model can read.
    """

    def __init__(
        self,
        name: str,
        cost: Cost,
        *,
        classes: tuple[str, ...],
        model: str,
        task: Literal["text", "image", "zero_shot"] = "text",
        labels: dict[str, str] | None = None,
        hypothesis: str = "This example is {}.",
        max_tokens: int | None = None,
        device: str = "cpu",
        batch_size: int = 32,
        folder: Path | None = None,
    ) -> None:
        super().__init__(name, cost, classes=classes, batch_size=batch_size)
        transformers = library("transformers", extra="transformers", what="a classifier of kind transformers")
        if "{}" not in hypothesis:
            raise InvalidInputError(f"hypothesis must have a place {{}} for the class, got {hypothesis!r}.")
        image = task == "image"
        kind = (
            transformers.AutoModelForImageClassification if image else transformers.AutoModelForSequenceClassification
        )
        reader = transformers.AutoImageProcessor if image else transformers.AutoTokenizer
        self._reader = from_here(reader.from_pretrained, model, folder)
        self._device = torch_device(device)
        self._model = from_here(kind.from_pretrained, model, folder).to(self._device).eval()
        self._longest = 0 if image else max_tokens or _longest(self._reader, self._model.config)
        self._answer = {"text": self._texts, "image": self._images, "zero_shot": self._zero_shot}[task]
        if task == "zero_shot":
            self._entails = _entailment(name, self._model.config.id2label)
            words = {label: word for word, label in (labels or {}).items()}
            columns_of(name, words, classes)
            self._hypotheses = [hypothesis.replace("{}", words.get(label, label)) for label in classes]
        else:
            self._columns = columns_of(name, _labels(self._model.config.id2label, labels, classes), classes)

    def block(self, queries: Any, /) -> Block:
        """The answers to at most ``batch_size`` queries."""
        return self._answer(queries)

    def _texts(self, queries: Sequence[Any]) -> Block:
        scores = self._scores(self._tokens([str(query) for query in queries]))
        return Block(in_columns(self.name, softmax(scores), self._columns, len(self.classes)), {})

    def _images(self, queries: Any) -> Block:
        images, failures = opened(queries)
        table = np.full((len(images), len(self.classes)), 1.0 / len(self.classes))
        rows = [row for row in range(len(images)) if row not in failures]
        if rows:
            given = self._reader(images=[images[row] for row in rows], return_tensors="pt")
            table[rows] = in_columns(self.name, softmax(self._scores(given)), self._columns, len(self.classes))
        return Block(table, failures)

    def _zero_shot(self, queries: Sequence[Any]) -> Block:
        # One pass for each class: as many texts at a time as for any other task.
        texts = [str(query) for query in queries]
        scores = [
            self._scores(self._tokens(texts, [hypothesis] * len(texts)))[:, self._entails]
            for hypothesis in self._hypotheses
        ]
        return Block(softmax(np.column_stack(scores)), {})

    def _tokens(self, *texts: list[str]) -> Any:
        cut = "only_first" if len(texts) > 1 else True
        return self._reader(*texts, padding=True, truncation=cut, max_length=self._longest, return_tensors="pt")

    def _scores(self, given: Any) -> FloatArray:
        with require_torch().inference_mode():
            scores: FloatArray = self._model(**given.to(self._device)).logits.float().cpu().numpy()
        return scores


def _labels(own: dict[int, str], labels: dict[str, str] | None, classes: tuple[str, ...]) -> Sequence[str]:
    names = [own[number] for number in sorted(own)]
    if not labels and len(names) == len(classes) and names == [f"LABEL_{number}" for number in range(len(names))]:
        return classes
    return mapped(names, labels)


def _longest(tokenizer: Any, config: Any) -> int:
    """The most tokens that the model reads; a tokenizer that was told no limit says some huge number."""
    limits = [tokenizer.model_max_length, getattr(config, "max_position_embeddings", None) or LONGEST]
    return int(min(limits))


def _entailment(name: str, own: dict[int, str]) -> int:
    for number, label in own.items():
        if label.lower().startswith("entail"):
            return int(number)
    raise InvalidInputError(
        f"classifier {name!r} needs a model of textual entailment for zero_shot, "
        f"got one with the labels {', '.join(own.values())}."
    )
