"""What a frozen image model makes of images, kept on disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.adapters._images import Preparation, prepared
from occamroute.adapters._torch_models import built, last_linear, require_torch, torch_device
from occamroute.errors import InvalidInputError

__all__ = ["Backbone"]

# So many images are kept in one file: what an interruption loses at most.
BLOCK = 256
FORMAT = b"occamroute embeddings 1"


class Backbone:
    """A model without its last linear layer: images in, features (n, d) out.

    ``model``, ``weights`` and ``image_size`` are those of a classifier of kind torch. Features are kept in the folder
    ``cache``, by the content of images and weights: what was computed once is read the next time, whatever the files
    are called.
    """

    def __init__(
        self,
        model: str,
        weights: Path | str,
        *,
        cache: Path,
        image_size: int | None = None,
        device: str = "cpu",
        batch_size: int = 64,
    ) -> None:
        torch = require_torch()
        module, how = built(model, weights, None, backbone=True)
        name, linear = last_linear(module)
        module.set_submodule(name, torch.nn.Identity())
        self.n_features = int(linear.in_features)
        self._device = torch_device(device)
        self._module = module.to(self._device).eval()
        self._how: Preparation = how.changed(image_size=image_size)
        self._cache, self._batch_size = cache, batch_size
        self._digest = _digest(module, f"{model} {self._how}")
        cache.mkdir(parents=True, exist_ok=True)

    def features(self, images: Sequence[Path | str], progress: Callable[[int, int], None] | None = None) -> FloatArray:
        """Features (n, d) of image files; ``progress`` is told how many of how many are done."""
        blocks = []
        for start in range(0, len(images), BLOCK):
            blocks.append(self._block(images[start : start + BLOCK]))
            if progress is not None:
                progress(min(start + BLOCK, len(images)), len(images))
        return np.concatenate(blocks) if blocks else np.zeros((0, self.n_features), np.float32)

    def _block(self, images: Sequence[Path | str]) -> FloatArray:
        content = hashlib.sha256(self._digest)
        for image in images:
            content.update(hashlib.sha256(_bytes(image)).digest())
        kept = self._cache / f"{content.hexdigest()[:40]}.npy"
        if kept.is_file():
            features: FloatArray = np.load(kept, allow_pickle=False)
            return features
        features = np.concatenate(
            [self._embed(images[start : start + self._batch_size]) for start in range(0, len(images), self._batch_size)]
        )
        # Renamed when whole, so that an interrupted run leaves no half of a file.
        half = kept.with_name(f"{kept.stem}-{os.getpid()}.part")
        with half.open("wb") as file:
            np.save(file, features)
        half.replace(kept)
        return features

    def _embed(self, images: Sequence[Path | str]) -> FloatArray:
        torch = require_torch()
        given, failures = prepared(images, self._how)
        for row, reason in failures.items():
            raise InvalidInputError(f"{images[row]} is {reason.removesuffix('.')}.")
        with torch.inference_mode():
            made = self._module(torch.from_numpy(given).to(self._device)).flatten(1)
        features: FloatArray = made.float().cpu().numpy()
        return features


def _bytes(image: Path | str) -> bytes:
    try:
        return Path(image).read_bytes()
    except OSError as error:
        raise InvalidInputError(f"cannot read {image}: {(error.strerror or 'it cannot be opened').lower()}.") from None


def _digest(module: Any, about: str) -> bytes:
    content = hashlib.sha256(FORMAT + about.encode())
    for name, tensor in sorted(module.state_dict().items()):
        content.update(name.encode())
        content.update(tensor.cpu().contiguous().numpy().tobytes())
    return content.digest()
