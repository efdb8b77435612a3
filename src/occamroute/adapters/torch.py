"""torch modules as classifiers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

from occamroute.adapters._files import exactly_one
from occamroute.adapters._images import Interpolation, Preparation, prepared
from occamroute.adapters._local import Block, LocalClassifier
from occamroute.adapters._tables import columns_of, in_columns, softmax, with_columns
from occamroute.adapters._torch_models import built, last_linear, require_torch, torch_device, with_head
from occamroute.errors import InvalidInputError
from occamroute.pool import Cost

__all__ = ["TorchClassifier"]

LIBRARIES = ("torchvision:", "timm:")


class TorchClassifier(LocalClassifier):
    """A torch module that gives logits, as a classifier of images or of arrays.

    Exactly one of ``module`` (it is put into evaluation mode) and ``model``: "torchvision:resnet18", "timm:resnet18",
    or "package.module:function", which gives the module. ``weights`` is a file of weights (.safetensors, .pt, .pth)
    or "default", the library's own from its cache; nothing is downloaded. ``head`` is a .safetensors file with the
    ``weight`` and ``bias`` of a linear layer that takes the place of the last one. ``labels`` name the outputs where
    they are not the pool's classes in the pool's order.

    Queries are arrays of numbers as the module wants them, or images: paths, PIL images or uint8 arrays (H, W, 3).
    Images are resized, cropped and normalised as the model's library says, unless the options say otherwise.
    With ``features="embedding"`` an answer carries, as its features, what went into the last linear layer.
    """

    def __init__(
        self,
        name: str,
        cost: Cost,
        *,
        classes: tuple[str, ...],
        module: Any = None,
        model: str | None = None,
        weights: Path | str | None = None,
        head: Path | None = None,
        labels: tuple[str, ...] = (),
        image_size: int | None = None,
        resize: int | None = None,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
        interpolation: Interpolation | None = None,
        features: Literal["probabilities", "embedding"] = "probabilities",
        device: str = "cpu",
        batch_size: int = 64,
        folder: Path | None = None,
    ) -> None:
        super().__init__(name, cost, classes=classes, batch_size=batch_size)
        self._torch = require_torch()
        if exactly_one(name, {"module": module, "model": model}) == "model":
            module, how = built(str(model), weights, folder, backbone=head is not None)
        elif weights is not None:
            raise InvalidInputError(f"classifier {name!r} takes weights only with a model: the module has its own.")
        else:
            how = Preparation()
        self._how = how.changed(image_size=image_size, resize=resize, mean=mean, std=std, interpolation=interpolation)
        self._columns = columns_of(name, labels or classes, classes)
        self._device = torch_device(device)
        module = module if head is None else with_head(module, Path(head))
        if head is not None or str(model).startswith(LIBRARIES):
            _check_outputs(name, module, self._columns.size)
        self._module = module.to(self._device).eval()
        self._seen = threading.local()
        if features == "embedding":
            last_linear(module)[1].register_forward_hook(self._remember)

    def block(self, queries: Any, /) -> Block:
        """The answers to at most ``batch_size`` queries, from one pass."""
        given, failures = prepared(queries, self._how)
        with self._torch.inference_mode():
            scores = self._module(self._torch.from_numpy(given).to(self._device))
        if not isinstance(scores, self._torch.Tensor):
            raise InvalidInputError(f"the module of {self.name!r} must give a tensor, got {type(scores).__name__}.")
        table = softmax(with_columns(self.name, scores.float().cpu().numpy(), self._columns.size))
        table = in_columns(self.name, table, self._columns, len(self.classes))
        return Block(table, failures, getattr(self._seen, "embedding", None))

    def _remember(self, _layer: Any, inputs: tuple[Any, ...], _output: Any) -> None:
        # By thread: two calls at the same time must not get each other's features.
        self._seen.embedding = inputs[0].flatten(1).float().cpu().numpy()


def _check_outputs(name: str, module: Any, number: int) -> None:
    """Where the last linear layer is the output, it is known before anything is bought whether it fits the pool."""
    layers = [part for part in module.modules() if isinstance(part, require_torch().nn.Linear)]
    if layers and layers[-1].out_features != number:
        raise InvalidInputError(
            f"classifier {name!r} must give one output for each of {number} classes, got {layers[-1].out_features}: "
            "give the labels of its outputs, weights that were trained for these classes, or a head."
        )
