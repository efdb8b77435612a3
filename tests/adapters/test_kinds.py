"""Kinds by name: those of the package, in pool files too, and those that other packages add."""

from __future__ import annotations

import inspect
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import skops.io
import torch
import torchvision
from sklearn.linear_model import LogisticRegression

from occamroute.adapters import BUILT_IN, Family, adapter, kinds
from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.pool_files.reading import read_pool
from occamroute.testing import check_classifier, check_extractor

OTHERS = '''
import numpy as np


class Coin:
    """A coin as a classifier."""

    def __init__(self, name, cost, *, classes, bias: float = 0.5):
        self.name, self.cost, self.classes, self.bias = name, cost, classes, bias

    def predict_proba(self, queries):
        return np.tile([self.bias, 1 - self.bias], (len(queries), 1))


class Length:
    """Lengths of texts as features."""

    def __init__(self, name, cost):
        self.name, self.cost = name, cost

    def extract(self, queries):
        return np.array([[len(query)] for query in queries])
'''


@pytest.mark.parametrize(("family", "kind"), [(family, kind) for family, known in BUILT_IN.items() for kind in known])
def test_every_kind_is_there(family: Family, kind: str) -> None:
    """Each takes a name and a cost first, and all else by keyword."""
    parameters = list(inspect.signature(adapter(family, kind)).parameters.values())
    assert [one.name for one in parameters[:2]] == ["name", "cost"]
    assert {one.kind for one in parameters[2:]} <= {inspect.Parameter.KEYWORD_ONLY}
    assert ("classes" in {one.name for one in parameters}) == (family == "classifier")


def test_extras_are_declared() -> None:
    """What the sentence about a missing library names can be installed."""
    declared = set(metadata("occamroute").get_all("Provides-Extra") or ())
    assert {"sklearn", "torch", "timm", "onnx", "transformers", "sentence-transformers", "http"} <= declared


def test_other_packages_add_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package registers kinds by entry point, and pool files can then name them."""
    (tmp_path / "other_kinds.py").write_text(OTHERS)
    about = tmp_path / "other_kinds-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other-kinds\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[occamroute.classifiers]\ncoin = other_kinds:Coin\ncallable = other_kinds:Coin\n"
        "[occamroute.extractors]\nlength = other_kinds:Length\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert kinds("classifier")[-1] == "coin"
    assert adapter("classifier", "callable").__name__ == "CallableClassifier"  # ours stay what they are
    (tmp_path / "pool.toml").write_text(
        'classes = ["heads", "tails"]\n[classifiers.coin]\nkind = "coin"\ncost = 0.1\nbias = 0.25\n'
        '[extractors.length]\nkind = "length"\ncost = 0\n'
    )
    pool = read_pool(tmp_path / "pool.toml")
    check_classifier(pool["coin"], ["a", "b"], pool.classes)
    check_extractor(pool["length"], ["a", "bcd"])
    assert pool["coin"].predict_proba(["x"]).tolist() == [[0.25, 0.75]]
    with pytest.raises(UnknownNameError, match=r"unknown kind of classifier 'dice': use one of callable, .*, coin"):
        adapter("classifier", "dice")


def test_models_in_a_pool_file(tmp_path: Path, photographs: list[Path]) -> None:
    """Files are found beside the pool file, whatever the working directory is."""
    torch.manual_seed(0)
    torch.save(torchvision.models.resnet18(num_classes=2).state_dict(), tmp_path / "resnet.pt")
    safetensors.torch.save_file({"weight": torch.randn(2, 512)}, tmp_path / "head.safetensors")
    estimator = LogisticRegression().fit(np.random.default_rng(0).random((20, 3)), ["palace", "flower"] * 10)
    skops.io.dump(estimator, tmp_path / "colours.skops")
    (tmp_path / "pool.toml").write_text(
        'classes = ["palace", "flower"]\n'
        '[classifiers.resnet]\nkind = "torch"\ncost = 1\nmodel = "torchvision:resnet18"\nweights = "resnet.pt"\n'
        "image_size = 64\nmean = [0.5, 0.5, 0.5]\n"
        '[classifiers.headed]\nkind = "torch"\ncost = { per_hour = 0.5 }\nmodel = "torchvision:resnet18"\n'
        'weights = "resnet.pt"\nhead = "head.safetensors"\nimage_size = 64\nfeatures = "embedding"\n'
        '[classifiers.colours]\nkind = "sklearn"\ncost = "measure"\npath = "colours.skops"\n'
    )
    pool = read_pool(tmp_path / "pool.toml")
    for name in ("resnet", "headed"):
        check_classifier(pool[name], photographs, pool.classes)
    check_classifier(pool["colours"], np.zeros((2, 3)), pool.classes)
    embedded: Any = pool["headed"].answer(photographs)
    assert embedded.features.shape == (2, 512)


def test_default_weights_in_a_pool_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word stands for the library's own weights, not for a file beside the pool file."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "pool.toml").write_text(
        'classes = ["a", "b"]\n[classifiers.net]\nkind = "torch"\ncost = 1\nmodel = "torchvision:resnet18"\n'
        'weights = "default"\n'
    )
    with pytest.raises(InvalidInputError, match=r"pool\.toml, line 5: .*default weights of 'torchvision:resnet18'"):
        read_pool(tmp_path / "pool.toml")
