"""A linear head: the last layer of a classifier, trained on features of a frozen model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from occamroute._arrays import FloatArray, IntArray
from occamroute._optional import require
from occamroute.adapters._torch_models import require_torch
from occamroute.errors import InvalidInputError

__all__ = ["Head", "train_head"]

BATCH = 256
RATE = 1e-3
DECAY = 1e-4


@dataclass(frozen=True, eq=False)
class Head:
    """Logits are ``features @ weight.T + bias``: weight (C, d), bias (C,).

    ``accuracy`` is that on the held-out rows, after so many ``epochs`` of training.
    """

    weight: FloatArray
    bias: FloatArray
    accuracy: float
    epochs: int

    def save(self, path: Path) -> None:
        """Write weight and bias into a .safetensors file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        library = require("safetensors.numpy", extra="torch", what="writing a head")
        library.save_file({"weight": self.weight, "bias": self.bias}, str(path))


def train_head(
    features: FloatArray,
    labels: IntArray,
    *,
    n_classes: int,
    held_out: float = 0.1,
    patience: int = 5,
    max_epochs: int = 200,
    seed: int = 0,
) -> Head:
    """The head that does best on held-out rows: Adam on the cross-entropy, stopped when that no longer falls.

    ``labels`` (n,) are column numbers. ``held_out`` is the share of rows that is not trained on; training stops after
    ``patience`` epochs without a better cross-entropy on them.
    """
    if not 0.0 < held_out < 1.0 or len(labels) < 2:
        raise InvalidInputError(
            f"a head needs at least 2 images and a held-out share between 0 and 1, got {len(labels)} and {held_out}."
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    cut = min(max(1, round(held_out * len(labels))), len(labels) - 1)
    check, train = order[:cut], order[cut:]
    mean, scale = features[train].mean(axis=0), features[train].std(axis=0)
    scale = np.where(scale > 1e-6, scale, 1.0)  # a feature that never changes says nothing
    inputs = ((features - mean) / scale).astype(np.float32)
    weight, bias, epochs = _fitted(inputs, labels, train, check, (n_classes, patience, max_epochs, seed))
    accuracy = float(((inputs[check] @ weight.T + bias).argmax(axis=1) == labels[check]).mean())
    weight = weight / scale  # so that it takes the features as they come
    return Head(weight.astype(np.float32), (bias - weight @ mean).astype(np.float32), accuracy, epochs)


def _fitted(
    inputs: FloatArray, labels: IntArray, train: IntArray, check: IntArray, knobs: tuple[int, int, int, int]
) -> tuple[FloatArray, FloatArray, int]:
    """The best weight and bias on the rows ``check``, and after how many epochs training stopped."""
    n_classes, patience, max_epochs, seed = knobs
    torch = require_torch()
    loss_of = torch.nn.functional.cross_entropy
    given, truth = torch.from_numpy(inputs), torch.from_numpy(np.asarray(labels, np.int64))
    # From zeros: no draw is needed, and no global seed.
    weight = torch.zeros((n_classes, inputs.shape[1]), requires_grad=True)
    bias = torch.zeros(n_classes, requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], lr=RATE, weight_decay=DECAY)
    random = np.random.default_rng(seed)
    best, best_loss, best_epoch, epoch = (weight.detach().numpy(), bias.detach().numpy()), np.inf, 0, 0
    for epoch in range(1, max_epochs + 1):
        for rows in torch.from_numpy(random.permutation(train)).split(BATCH):
            optimizer.zero_grad()
            loss_of(given[rows] @ weight.T + bias, truth[rows]).backward()
            optimizer.step()
        with torch.inference_mode():
            loss = float(loss_of(given[check] @ weight.T + bias, truth[check]))
        if loss < best_loss:
            best, best_loss, best_epoch = (weight.detach().numpy().copy(), bias.detach().numpy().copy()), loss, epoch
        elif epoch - best_epoch >= patience:
            break
    return *best, epoch
