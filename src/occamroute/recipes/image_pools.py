"""train_pool(): the paper's setting on one's own images."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from occamroute._money import Amount, money
from occamroute.data_files import read_data
from occamroute.errors import InvalidInputError
from occamroute.recipes.embeddings import Backbone
from occamroute.recipes.heads import Head, train_head

__all__ = ["PAPER", "train_pool"]

# The paper's seven, from the cheapest to the dearest.
PAPER = (
    "torchvision:resnet18",
    "torchvision:resnet34",
    "torchvision:resnet50",
    "torchvision:resnet101",
    "torchvision:swin_v2_t",
    "torchvision:swin_v2_s",
    "torchvision:swin_v2_b",
)


def train_pool(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    models: Sequence[str] = PAPER,
    weights: Mapping[str, str | os.PathLike[str]] | None = None,
    per_hour: Amount = 1,
    image_size: int | None = None,
    held_out: float = 0.1,
    device: str = "cpu",
    batch_size: int = 64,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Head]:
    """Heads trained on a folder of images, by name; ``out`` then holds a pool of them in ``occamroute.toml``.

    ``data`` has one subfolder of images a class. Each of ``models`` ("torchvision:…" or "timm:…") stays as it is, with
    its own file in ``weights`` or else the library's default ones, and gets a linear head of its own, trained on its
    features. A query costs what its seconds cost at ``per_hour``. Features are kept in ``out``, so that a second run
    goes on where the first one was interrupted. ``progress`` is told the model, and how many of how many images are
    done.
    """
    price, folder, named = float(money(per_hour, "per_hour")), Path(out), _names(models)
    found = read_data(data, need_labels=True)
    classes = sorted(set(found.labels or ()))
    if len(classes) < 2:
        raise InvalidInputError(f"images of at least two classes are needed, got only {classes[0]!r} in {data}.")
    labels = np.searchsorted(np.array(classes), np.array(found.labels))
    heads: dict[str, Head] = {}
    for name, model in named.items():
        file = Path((weights or {}).get(model, "default"))
        backbone = Backbone(
            model, file, cache=folder / "features", image_size=image_size, device=device, batch_size=batch_size
        )
        features = backbone.features(found.queries, None if progress is None else _telling(progress, name))
        heads[name] = train_head(features, labels, n_classes=len(classes), held_out=held_out, seed=seed)
        heads[name].save(folder / "heads" / f"{name}.safetensors")
    shared: dict[str, str | int] = {"device": device, "batch_size": batch_size}
    shared |= {} if image_size is None else {"image_size": image_size}
    text = [f"classes = {_toml(classes)}\n"]
    for name, model in named.items():
        given = (weights or {}).get(model)
        beside = "default" if given is None else Path(os.path.relpath(given, folder)).as_posix()
        options = {"model": model, "weights": beside, "head": f"heads/{name}.safetensors", **shared}
        text.append(f'[classifiers.{_toml(name)}]\nkind = "torch"\ncost = {{ per_hour = {price!r} }}')
        text.append("".join(f"{option} = {_toml(value)}\n" for option, value in options.items()))
    (folder / "occamroute.toml").write_text("\n".join(text), encoding="utf-8")
    return heads


def _toml(value: object) -> str:
    # A string, a number or a list of strings is written the same in JSON.
    return json.dumps(value, ensure_ascii=False)


def _names(models: Sequence[str]) -> dict[str, str]:
    """Models by what they are called in the pool: without their library, unless that makes two of one name."""
    short = [model.rpartition(":")[2] for model in models]
    if len(set(short)) < len(short):
        short = [model.replace(":", "-") for model in models]
    if not models or len(set(short)) < len(short):
        raise InvalidInputError(f"models must be different ones, at least one, got {', '.join(models) or 'none'}.")
    return dict(zip(short, models, strict=True))


def _telling(progress: Callable[[str, int, int], None], name: str) -> Callable[[int, int], None]:
    return lambda done, of: progress(name, done, of)
