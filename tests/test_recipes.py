"""The paper's setting on made images: frozen backbones, heads trained on them, and the pool that comes of it."""

from __future__ import annotations

import io
import runpy
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import as_in_a_process
from PIL import Image
from safetensors.numpy import load_file

from occamroute.adapters._torch_models import require_torchvision
from occamroute.errors import InvalidInputError
from occamroute.pool import Measured
from occamroute.pool_files.reading import read_pool
from occamroute.recipes.heads import train_head
from occamroute.recipes.image_pools import train_pool
from occamroute.testing import check_classifier

MODELS = ("torchvision:resnet18", "torchvision:swin_v2_t")
COLOURS = {"blue sky": (40, 60, 220), "grass": (40, 200, 60), "rose": (220, 30, 60)}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve noisy pictures of each of three colours, in folders named for them."""
    folder, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (folder / name).mkdir()
        for number in range(12):
            pixels = np.clip(random.normal(colour, 40, (40, 48, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random weights of the backbones, of ImageNet's thousand classes."""
    folder, made = tmp_path_factory.mktemp("weights"), {}
    torch.manual_seed(0)
    for model in MODELS:
        made[model] = folder / f"{model.partition(':')[2]}.pt"
        module = require_torchvision().models.get_model(model.partition(":")[2], weights=None)
        torch.save(module.state_dict(), made[model])
    return made


def test_from_a_folder_of_images_to_a_pool(images: Path, weights: dict[str, Path], tmp_path: Path) -> None:
    """Heads are trained, the pool file reads, and its classifiers know the colours; a second run computes nothing."""
    told: list[tuple[str, int, int]] = []
    options: dict[str, Any] = {"models": MODELS, "weights": weights, "per_hour": 3.06, "image_size": 32}
    heads = train_pool(images, tmp_path / "pool", held_out=0.25, progress=lambda *news: told.append(news), **options)
    assert told == [("resnet18", 36, 36), ("swin_v2_t", 36, 36)]
    assert all(head.accuracy > 0.8 for head in heads.values())
    pool = read_pool(tmp_path / "pool" / "occamroute.toml")
    assert pool.classes == ("blue sky", "grass", "rose")
    assert pool.names == ("resnet18", "swin_v2_t")
    assert pool["resnet18"].cost == Measured(3.06)
    queries = sorted(images.rglob("*.png"))
    truth = [pool.classes.index(query.parent.name) for query in queries]
    for name in pool.names:
        check_classifier(pool[name], queries[:4], pool.classes)
        assert (pool[name].predict_proba(queries).argmax(axis=1) == truth).mean() > 0.9

    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "pool" / "features").iterdir()}
    assert len(kept) == 2
    again = train_pool(images, tmp_path / "pool", held_out=0.25, **options)
    assert kept == {file: file.stat().st_mtime_ns for file in (tmp_path / "pool" / "features").iterdir()}
    assert np.array_equal(again["resnet18"].weight, heads["resnet18"].weight)
    assert np.array_equal(
        load_file(tmp_path / "pool" / "heads" / "resnet18.safetensors")["bias"], heads["resnet18"].bias
    )


def test_features_follow_the_content(images: Path, weights: dict[str, Path], tmp_path: Path) -> None:
    """Other pictures, or another size, are computed anew."""
    options: dict[str, Any] = {"models": MODELS[:1], "weights": weights}
    train_pool(images, tmp_path, image_size=32, **options)
    train_pool(images, tmp_path, image_size=40, **options)
    assert len(list((tmp_path / "features").iterdir())) == 2


def test_the_example_runs(images: Path, weights: dict[str, Path], tmp_path: Path) -> None:
    """The script of the example makes the same pool, with weights that it finds in a folder."""
    script = Path(__file__).parent.parent / "examples" / "paper_images" / "make_pool.py"
    options = ["--out", "made", "--models", MODELS[0], "--weights", weights[MODELS[0]].parent, "--image-size", "32"]
    words = [str(word) for word in (script, images, *options, "--device", "cpu")]
    with as_in_a_process(words, tmp_path), redirect_stdout(io.StringIO()) as said:
        runpy.run_path(str(script), run_name="__main__")
    assert "resnet18: 36 of 36 images" in said.getvalue()
    assert said.getvalue().endswith("The pool is in made/occamroute.toml.\n")
    assert read_pool(tmp_path / "made" / "occamroute.toml").names == ("resnet18",)


def test_a_head_stops_in_time() -> None:
    """On features that say it all it is right; on noise it stops early and promises nothing."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, 2000)
    features = random.normal(size=(2000, 8)).astype(np.float32) * 50.0 + 1000.0
    noise = train_head(features, labels, n_classes=4)
    assert noise.epochs < 60
    assert noise.accuracy < 0.5
    features[np.arange(2000), labels] += 400.0
    features[:, 7] = 3.0  # a feature that never changes
    head = train_head(features, labels, n_classes=4)
    assert head.accuracy > 0.98
    assert ((features @ head.weight.T + head.bias).argmax(axis=1) == labels).mean() > 0.98
    assert np.array_equal(head.weight, train_head(features, labels, n_classes=4).weight)


def test_one_sentence_errors(
    images: Path, weights: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with the images, the models or the weights."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    wrong: list[tuple[Path, dict[str, Any], str]] = [
        (images / "rose", {}, "its images have no labels"),
        (images, {"models": ("timm:a", "timm:a")}, "models must be different ones, at least one, got timm:a, timm:a"),
        (images, {"models": ()}, "at least one, got none"),
        (images, {"models": MODELS[:1]}, "the default weights of 'torchvision:resnet18' are not at"),
        (images, {"per_hour": -1}, "per_hour must be a finite number"),
        (images, {"models": MODELS[:1], "weights": weights, "held_out": 1.0}, "a held-out share between 0 and 1"),
    ]
    for data, options, words in wrong:
        with pytest.raises(InvalidInputError, match=words) as caught:
            train_pool(data, tmp_path / "out", **options)
        assert str(caught.value).endswith(".")
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "cut.png").write_bytes((images / "rose" / "0.png").read_bytes()[:99])
    with pytest.raises(InvalidInputError, match="images of at least two classes are needed, got only 'a'"):
        train_pool(tmp_path / "data", tmp_path / "out", models=MODELS[:1], weights=weights)
    (tmp_path / "data" / "b").mkdir()
    (tmp_path / "data" / "b" / "whole.png").write_bytes((images / "rose" / "0.png").read_bytes())
    with pytest.raises(InvalidInputError, match=r"cut\.png is no readable image"):
        train_pool(tmp_path / "data", tmp_path / "out", models=MODELS[:1], weights=weights)
