"""ONNX files as classifiers: converted from scikit-learn, exported from torch's layers, or put together by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import StringTensorType
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from occamroute.adapters.onnx import OnnxClassifier
from occamroute.errors import InvalidInputError, MissingExtraError
from occamroute.testing import check_classifier

DIGITS = tuple("0123456789")


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any, Any]:
    """A classifier of digits, its pixels and labels."""
    pixels, labels = load_digits(return_X_y=True)
    pixels = (pixels / 16.0).astype(np.float32)
    return LogisticRegression(max_iter=300).fit(pixels[:1000], labels[:1000]), pixels, labels


def written(path: Path, model: Any) -> Path:
    """The model in a file."""
    onnx.save(model, path)
    return path


def image_model(path: Path, *, batch: int | str = "n", last: bool = False, outputs: int = 3) -> Path:
    """A network that averages an image by channel and multiplies that by a matrix; logits (n, outputs)."""
    weight = np.random.default_rng(0).normal(size=(3, outputs)).astype(np.float32)
    shape = [batch, 16, 16, 3] if last else [batch, 3, 16, 16]
    axes = numpy_helper.from_array(np.array([1, 2] if last else [2, 3], np.int64), "axes")
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["pixels", "axes"], ["mean"], keepdims=0),
            helper.make_node("MatMul", ["mean", "weight"], ["logits"]),
        ],
        "image",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, outputs])],
        [axes, numpy_helper.from_array(weight, "weight")],
    )
    return written(path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


@pytest.mark.parametrize("mapped", [True, False], ids=["mappings", "table"])
def test_a_converted_estimator(mapped: bool, digits: tuple[Any, Any, Any], tmp_path: Path) -> None:
    """Both forms that sklearn-onnx writes give what the estimator gives."""
    model = to_onnx(digits[0], digits[1][:1], options=None if mapped else {"zipmap": False})
    path = written(tmp_path / "digits.onnx", model)
    made = OnnxClassifier("digits", 1, classes=DIGITS, path=path, output="logits" if mapped else "probabilities")
    check_classifier(made, digits[1][1000:1020], DIGITS)
    assert np.allclose(made.predict_proba(digits[1]), digits[0].predict_proba(digits[1]), atol=1e-5)
    only = OnnxClassifier("digits", 1, classes=DIGITS, path=path, output_name=model.graph.output[0].name)
    assert np.array_equal(only.predict_proba(digits[1]).argmax(axis=1), digits[0].predict(digits[1]))


def test_classes_by_name(digits: tuple[Any, Any, Any], tmp_path: Path) -> None:
    """Mappings find the pool's columns, tables need labels, and what the pool lacks is said."""
    path = written(tmp_path / "m.onnx", to_onnx(digits[0], digits[1][:1]))
    order = (*reversed(DIGITS), "ten")
    table = OnnxClassifier("d", 1, classes=order, path=path).predict_proba(digits[1][:5])
    assert np.allclose(table[:, 9::-1], digits[0].predict_proba(digits[1][:5]), atol=1e-5)
    with pytest.raises(InvalidInputError, match="classes that the pool lacks: '9'"):
        OnnxClassifier("d", 1, classes=DIGITS[:9], path=path).predict_proba(digits[1][:5])
    path = written(tmp_path / "t.onnx", to_onnx(digits[0], digits[1][:1], options={"zipmap": False}))
    made = OnnxClassifier("d", 1, classes=order, path=path, output="probabilities", labels=DIGITS)
    assert np.allclose(made.predict_proba(digits[1][:5]), table, atol=1e-5)


def test_texts(tmp_path: Path) -> None:
    """A model of strings takes a list of texts."""
    texts, animals = ["purr", "bark", "meow", "growl"] * 3, ["cat", "dog", "cat", "dog"] * 3
    column = np.array(texts, object).reshape(-1, 1)
    pipeline = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(column, animals)
    model = to_onnx(pipeline, initial_types=[("text", StringTensorType([None, 1]))])
    made = OnnxClassifier("texts", 1, classes=("dog", "cat"), path=written(tmp_path / "texts.onnx", model))
    check_classifier(made, texts[:4], ("dog", "cat"))
    assert np.allclose(made.predict_proba(texts)[:, ::-1], pipeline.predict_proba(column), atol=1e-5)


@pytest.mark.parametrize("batch", ["n", 1, 4])
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_images(batch: int | str, last: bool, photographs: list[Path], tmp_path: Path) -> None:
    """Photographs are cut to the model's size, in its layout, as many at a time as it takes."""
    path = image_model(tmp_path / "image.onnx", batch=batch, last=last)
    made = OnnxClassifier("image", 0.5, classes=("a", "b", "c"), path=path, batch_size=5)
    check_classifier(made, photographs * 2, ("a", "b", "c"))
    plain = OnnxClassifier("image", 0.5, classes=("a", "b", "c"), path=image_model(tmp_path / "plain.onnx"))
    assert np.allclose(made.predict_proba(photographs * 3), plain.predict_proba(photographs * 3), atol=1e-6)
    answers = made.answer([tmp_path / "none.png", *photographs])
    assert list(answers.failures) == [0]
    assert np.allclose(answers.probabilities[1:], plain.predict_proba(photographs), atol=1e-6)


def test_one_output_for_two_classes(photographs: list[Path], tmp_path: Path) -> None:
    """A single logit is that of the second class."""
    path = image_model(tmp_path / "one.onnx", outputs=1)
    made = OnnxClassifier("one", 1, classes=("no", "yes"), path=path)
    check_classifier(made, photographs, ("no", "yes"))
    assert np.allclose(made.predict_proba(photographs).sum(axis=1), 1.0)


def test_one_sentence_errors(digits: tuple[Any, Any, Any], photographs: list[Path], tmp_path: Path) -> None:
    """What is wrong is said when the classifier is made, or at its first answer."""
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    (tmp_path / "m.pkl").write_bytes(b"junk")
    image = image_model(tmp_path / "image.onnx")
    table = written(tmp_path / "t.onnx", to_onnx(digits[0], digits[1][:1], options={"zipmap": False}))
    wrong: list[tuple[dict[str, Any], Any, str]] = [
        ({"path": tmp_path / "none.onnx"}, [], "there is no such file"),
        ({"path": tmp_path / "junk.onnx"}, [], r"onnxruntime cannot load it \(.*Protobuf parsing failed\)"),
        ({"path": tmp_path / "m.pkl"}, [], "is a pickle, and a pickle can run any code when it is read: export"),
        ({"path": image, "input_name": "text"}, [], "needs the input_name of one input: the model has pixels"),
        ({"path": table, "output_name": "x"}, [], "the output_name of one output: the model has label, probabilities"),
        ({"path": image, "device": "cuda"}, [], "onnxruntime has here, 'cpu' or 'auto', got 'cuda'"),
        ({"path": table, "classes": DIGITS}, digits[1][:3], "looks like probabilities, not logits: set output ="),
        ({"path": image, "output": "probabilities"}, photographs, "looks like logits, not probabilities"),
        ({"path": image, "classes": tuple("abcd")}, photographs, r"must give \(n, 4\), one output for each class"),
    ]
    for options, queries, words in wrong:
        with pytest.raises(InvalidInputError, match=words) as caught:
            OnnxClassifier("net", 1, **{"classes": tuple("abc"), **options}).predict_proba(queries)
        assert str(caught.value).endswith(".")


def test_the_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without onnxruntime, one sentence says what to install."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'occamroute\[onnx\]'\.$"):
        OnnxClassifier("o", 1, classes=("a", "b"), path=image_model(tmp_path / "m.onnx"))
