"""ONNX models as classifiers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._optional import require
from occamroute.adapters._files import model_file
from occamroute.adapters._images import Interpolation, Preparation, prepared
from occamroute.adapters._local import Block, LocalClassifier
from occamroute.adapters._tables import columns_of, in_columns, sigmoid_pair, softmax
from occamroute.adapters.callable import table_of_labels
from occamroute.errors import InvalidInputError, StorageError
from occamroute.pool import Cost

__all__ = ["OnnxClassifier"]

TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
}


class OnnxClassifier(LocalClassifier):
    """An .onnx file as a classifier of images, arrays or texts.

    ``input_name`` and ``output_name`` are needed where a model has several and none is plainly meant. ``output``
    says whether a table of numbers holds "logits" or "probabilities"; mappings from label to probability, as
    converted scikit-learn models give them, and plain labels are understood as they are. ``labels`` name the columns
    where they are not the pool's classes in the pool's order.

    Images are resized, cropped and normalised like ImageNet's, to the size that the model wants, unless the options
    say otherwise; arrays of numbers go in as they are, and texts into an input of strings.
    """

    def __init__(
        self,
        name: str,
        cost: Cost,
        *,
        classes: tuple[str, ...],
        path: Path,
        input_name: str | None = None,
        output_name: str | None = None,
        output: Literal["logits", "probabilities"] = "logits",
        labels: tuple[str, ...] = (),
        image_size: int | None = None,
        resize: int | None = None,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
        interpolation: Interpolation | None = None,
        device: Literal["cpu", "cuda", "auto"] = "cpu",
        batch_size: int = 64,
    ) -> None:
        super().__init__(name, cost, classes=classes, batch_size=batch_size)
        self._session = _session(model_file(path, (".onnx", ".ort"), advice="export the model as ONNX"), device)
        self._input = _one(name, "input", self._session.get_inputs(), input_name)
        self._output = _output(name, self._session.get_outputs(), output_name)
        self._logits = output == "logits"
        self._columns = columns_of(name, labels or classes, classes)
        size = image_size or next((side for side in self._input.shape[2:4] if isinstance(side, int) and side > 3), None)
        self._how = Preparation().changed(
            image_size=size, resize=resize, mean=mean, std=std, interpolation=interpolation
        )
        fixed = self._input.shape[0] if self._input.shape else None
        self._fixed = fixed if isinstance(fixed, int) and fixed > 0 else None

    def block(self, queries: Any, /) -> Block:
        """The answers to at most ``batch_size`` queries."""
        given, failures = self._prepared(queries)
        if self._fixed is None:
            return Block(self._table(self._run(given)), failures)
        # The model takes so many at a time and no other number: the last ones are filled up, and cut off again.
        tables = []
        for start in range(0, len(given), self._fixed):
            part = given[start : start + self._fixed]
            filled = np.concatenate([part, np.repeat(part[-1:], self._fixed - len(part), axis=0)])
            tables.append(self._table(self._run(filled))[: len(part)])
        return Block(np.concatenate(tables), failures)

    def _run(self, given: Any) -> Any:
        return self._session.run([self._output.name], {self._input.name: given})[0]

    def _prepared(self, queries: Any) -> tuple[Any, dict[int, str]]:
        rank = len(self._input.shape)
        if self._input.type == "tensor(string)":
            texts = np.array([str(query) for query in queries], object)
            return texts.reshape((-1, *[1] * (rank - 1))), {}
        if self._input.type not in TYPES:
            raise InvalidInputError(
                f"the input of {self.name!r} must be of numbers or strings, got {self._input.type}."
            )
        given, failures = prepared(queries, self._how)
        if rank == 4 and self._input.shape[3] == 3 and given.shape[1] == 3:
            given = given.transpose(0, 2, 3, 1)  # channels last
        return np.ascontiguousarray(given, TYPES[self._input.type]), failures

    def _table(self, given: Any) -> FloatArray:
        if isinstance(given, list) or np.asarray(given).ndim == 1:
            entries = [entry if isinstance(entry, Mapping) else str(entry) for entry in given]
            if entries and isinstance(entries[0], Mapping):
                columns_of(self.name, entries[0], self.classes)  # labels that the pool lacks would be lost
            return table_of_labels(entries, self.classes)
        scores: FloatArray = np.asarray(given, np.float64)
        scores = scores.reshape(len(scores), -1)
        if scores.shape[1] == 1 and self._columns.size == 2:
            scores = sigmoid_pair(scores) if self._logits else np.column_stack([1.0 - scores, scores])
        else:
            self._check(scores)
            scores = softmax(scores) if self._logits else scores
        return in_columns(self.name, scores, self._columns, len(self.classes))

    def _check(self, scores: FloatArray) -> None:
        """Taken for the other, probabilities would turn into flat ones, and logits into nonsense."""
        likely = bool((scores >= 0.0).all()) and bool(np.allclose(scores.sum(axis=1), 1.0, atol=1e-3))
        if likely == self._logits and scores.size:
            seen, wanted = ("probabilities", "logits") if self._logits else ("logits", "probabilities")
            raise InvalidInputError(
                f"the output of {self.name!r} looks like {seen}, not {wanted}: set output = '{seen}'."
            )


def _session(path: Path, device: str) -> Any:
    runtime = require("onnxruntime", extra="onnx", what="a classifier of kind onnx")
    gpu = "CUDAExecutionProvider"
    there = gpu in runtime.get_available_providers()
    if device == "cuda" and not there:
        raise InvalidInputError("device must be one that onnxruntime has here, 'cpu' or 'auto', got 'cuda'.")
    providers = ["CPUExecutionProvider"] if device == "cpu" or not there else [gpu, "CPUExecutionProvider"]
    try:
        return runtime.InferenceSession(str(path), providers=providers)
    except Exception as error:  # its errors have no common parent but this
        detail = " ".join(str(error).rpartition(" : ")[2].split()).rstrip(".")
        raise StorageError(path, f"onnxruntime cannot load it ({detail[:300]})") from error


def _one(name: str, what: str, parts: list[Any], wanted: str | None) -> Any:
    found = [part for part in parts if wanted is None or part.name == wanted]
    if len(found) == 1:
        return found[0]
    names = ", ".join(part.name for part in parts)
    raise InvalidInputError(f"classifier {name!r} needs the {what}_name of one {what}: the model has {names}.")


def _output(name: str, parts: list[Any], wanted: str | None) -> Any:
    """The output that is asked for; or the only one, or the only one that is more than a label."""
    richer = [part for part in parts if part.type.startswith("seq") or len(part.shape) > 1]
    return _one(name, "output", richer if wanted is None and len(richer) == 1 else parts, wanted)
