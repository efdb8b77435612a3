"""The example with language models: its service learns, tells its models apart, and bills by the token."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from occamroute.adapters.openai import ChatClassifier
from occamroute.pool import PerToken

EXAMPLE = Path(__file__).parents[2] / "examples" / "llm_labels"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, str(EXAMPLE / "server.py"), "--port", "0"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            yield found.group()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    folder = tmp_path_factory.mktemp("texts")
    subprocess.run([sys.executable, str(EXAMPLE / "prepare.py"), "--folder", str(folder)], check=True)
    with (folder / "test.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_models_differ_in_accuracy_and_price(
    url: str, rows: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dearer ones are better; costs are below the worst case; probabilities come from the model."""
    monkeypatch.setenv("LLM_KEY", "any")
    pool = tomllib.loads((EXAMPLE / "occamroute.toml").read_text(encoding="utf-8"))
    assert pool["classes"] == sorted({row["label"] for row in rows})
    rows = rows[:150]
    right, costs = [], []
    for name, entry in pool["classifiers"].items():
        model = ChatClassifier(
            name,
            PerToken(**entry["cost"]),
            classes=tuple(pool["classes"]),
            base_url=url,
            model=entry["model"],
            key_env=entry["key_env"],
        )
        answers = [model.answer([row["text"]]) for row in rows]
        found = [pool["classes"][int(answer.probabilities.argmax())] for answer in answers]
        right.append(np.mean([label == row["label"] for label, row in zip(found, rows, strict=True)]))
        charged = [np.asarray(answer.cost, object)[0] for answer in answers]
        assert all(a <= b for a, b in zip(charged, model.max_cost([row["text"] for row in rows]), strict=True))
        assert 0.2 < np.mean([answer.probabilities.max() for answer in answers]) < 0.95
        costs.append(sum(charged))
    assert 0.4 < right[0] < right[1] - 0.05 < right[2] - 0.05 < 0.9
    assert costs[2] > 4 * costs[1] > 36 * costs[0]
