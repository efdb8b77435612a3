"""Labels and probabilities from what chat models write."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occamroute.adapters._labels import Labels, Token, tokens_of

words = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=8)
sets_of_labels = st.lists(words, min_size=2, max_size=6, unique=True).map(tuple)


def label_of(classes: tuple[str, ...], answer: str) -> str | None:
    found = Labels(classes).found(answer)
    return None if found is None else classes[found[0]]


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("cat", "cat"),
        ("  Cat.\n", "cat"),
        ('"cat"', "cat"),
        ("**CAT**", "cat"),
        ('{"label": "cat"}', "cat"),
        ('```json\n{"label": "Cat"}\n```', "cat"),
        ("sci fi", "sci-fi"),
        ("Sci_Fi!", "sci-fi"),
        ("cats", None),
        ("the cat", None),
        ("cat or dog", None),
        ("cat, dog", None),
        ("not cat", None),
        ("", None),
        ("...", None),
        ('{"label": "cat", "label": "dog"}', None),
        ('{"answer": "cat"}', None),
        ('{"label": true}', None),
        ('{"label": ["cat"]}', None),
        ("[" * 100_000, None),
        ('{"label":' * 50_000, None),
    ],
)
def test_answers_and_labels(answer: str, label: str | None) -> None:
    """Case, quotation marks and a full stop may differ; a longer text is no label."""
    assert label_of(("cat", "dog", "sci-fi"), answer) == label


@pytest.mark.parametrize(
    ("classes", "answer"),
    [
        (("c++", "java"), "C"),
        (("c", "java"), "C++"),
        (("5", "7"), "-5"),
        (("5", "7"), ".5"),
        (("<5", "10"), ">5"),
        (("<5", "10"), "5"),
        (("Yes", "yes"), "YES"),
        (("a-b", "a b"), "a_b"),
        (("ja", "nein"), "jain"),
    ],
)
def test_no_label_is_guessed(classes: tuple[str, ...], answer: str) -> None:
    """What could mean another label, or two, means none."""
    assert label_of(classes, answer) is None


def test_the_strictest_form_decides() -> None:
    """Labels that differ in case only are told apart by it; numbers in JSON are labels too."""
    assert label_of(("Yes", "yes"), "yes") == "yes"
    assert label_of(("yes", "yes!"), "YES!") == "yes!"
    assert label_of(("1", "2"), '{"label": 2}') == "2"


@given(classes=sets_of_labels, number=st.integers(0, 5))
def test_every_label_is_itself(classes: tuple[str, ...], number: int) -> None:
    """Bare and in JSON, whatever it looks like, unless it can be taken for JSON or a fence."""
    label = classes[number % len(classes)]
    assert label_of(classes, json.dumps({"label": label})) == label
    if label == label.strip() and not label.startswith(("{", "```")):
        assert label_of(classes, label) == label


@given(classes=sets_of_labels, answer=words)
def test_a_label_found_differs_in_nothing_that_counts(classes: tuple[str, ...], answer: str) -> None:
    """Letters and digits of the answer are those of the label."""
    found = label_of(classes, answer)
    if found is not None and not answer.startswith("{"):
        letters = [[one for one in text.casefold() if one.isalnum()] for text in (found, answer)]
        assert "".join(letters[0]) == "".join(letters[1])


def row_of(classes: tuple[str, ...], answer: str, *tokens: Token) -> list[float]:
    found = Labels(classes).found(answer)
    assert found is not None
    return [float(share) for share in Labels(classes).probabilities(*found, tokens)]


def test_alternatives_count_for_the_label_that_they_begin() -> None:
    """Spellings of one label add up."""
    token = Token("cat", 0.6, ((" Cat", 0.1), ("d", 0.2), ("eel", 0.05), ("The", 0.05)))
    assert row_of(("cat", "dog", "eel"), "cat", token) == pytest.approx([0.7 / 0.95, 0.2 / 0.95, 0.05 / 0.95])


def test_labels_that_are_not_listed_get_no_more_than_the_least_that_is() -> None:
    """They would have been listed otherwise."""
    listed = row_of(("cat", "dog", "eel"), "cat", Token("cat", 0.7, (("dog", 0.01),)))
    assert listed == pytest.approx([0.7 / 0.72, 0.01 / 0.72, 0.01 / 0.72])
    alone = row_of(("cat", "dog", "eel"), "cat", Token("cat", 0.7))
    assert alone == pytest.approx([0.7, 0.15, 0.15])


def test_labels_that_begin_alike_are_told_apart_where_they_part() -> None:
    """Along the answered one, each fork multiplies."""
    tokens = (Token("sci", 0.9, (("talk", 0.1),)), Token(".", 1.0), Token("med", 0.6, (("space", 0.4),)))
    assert row_of(("sci.med", "sci.space", "talk"), "sci.med", *tokens) == pytest.approx([0.54, 0.36, 0.1])


def test_a_label_inside_json_is_found() -> None:
    """Pieces before it do not count."""
    tokens = (
        Token('{"', 1.0),
        Token("label", 1.0),
        Token('":"', 0.9),
        Token("dog", 0.8, (("cat", 0.2),)),
        Token('"}', 1.0),
    )
    assert row_of(("cat", "dog"), '{"label":"dog"}', *tokens) == pytest.approx([0.2, 0.8])


def test_the_answer_has_the_highest_probability() -> None:
    """Also if it was drawn against the odds, or an alternative is spelled in several ways."""
    row = row_of(("cat", "dog"), "dog", Token("dog", 0.3, (("cat", 0.4), ("Cat", 0.3))))
    assert row[1] > row[0] > 0.49


def test_without_tokens_the_answer_is_certain() -> None:
    """Nor with tokens that are not those of the answer."""
    assert row_of(("cat", "dog"), "dog") == [0.0, 1.0]
    assert row_of(("cat", "dog"), "dog", Token("\ufffd", 0.5)) == [0.0, 1.0]
    assert row_of(("cat", "dog"), "dog", Token("dog", 0.0)) == [0.0, 1.0]


shares = st.floats(0.0, 1.0)
pieces = st.builds(
    Token, st.text("catdoge l", max_size=4), shares, st.tuples(st.tuples(st.text("catdog", max_size=3), shares))
)


@settings(max_examples=200)
@given(classes=sets_of_labels, number=st.integers(0, 5), extra=st.lists(pieces, max_size=3), share=shares)
def test_rows_are_probabilities(classes: tuple[str, ...], number: int, extra: list[Token], share: float) -> None:
    """Whatever is listed: they sum to 1, none is negative, and the answer is on top."""
    answer = number % len(classes)
    row = Labels(classes).probabilities(answer, classes[answer], (*extra, Token(classes[answer], share), *extra))
    assert row.sum() == pytest.approx(1.0)
    assert (row >= 0.0).all()
    assert int(np.argmax(row)) == answer


def test_tokens_as_servers_list_them() -> None:
    """Anything odd in the list and none of it counts."""
    entry: dict[str, Any] = {
        "token": "cat",
        "logprob": math.log(0.5),
        "top_logprobs": [{"token": "cat", "logprob": math.log(0.5)}, {"token": "dog", "logprob": -9999.0}],
    }
    (token,) = tokens_of({"content": [entry]})
    assert (token.text, token.others) == ("cat", (("dog", 0.0),))
    assert token.probability == pytest.approx(0.5)
    assert tokens_of({"content": [{"token": "cat", "logprob": 1e-9, "top_logprobs": None}]})[0].probability == 1.0
    odds: list[Any] = [None, {}, {"content": None}, {"content": [{}]}, {"content": [3]}, [], "x"]
    for odd in odds:
        assert tokens_of(odd) == ()
    for name, value in (
        ("token", 3),
        ("logprob", None),
        ("logprob", "0"),
        ("logprob", math.nan),
        ("top_logprobs", [3]),
    ):
        assert tokens_of({"content": [{**entry, name: value}]}) == ()
