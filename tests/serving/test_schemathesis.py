"""Schemathesis with all of its checks: whatever the document allows is taken, whatever it forbids refused in order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from occamroute.serving.keys import KeyFile
from serving import world


@pytest.mark.parametrize("keyed", [True, False], ids=["with keys", "open"])
def test_the_document_holds(tmp_path: Path, keyed: bool) -> None:
    """Made-up requests, good and bad, find nothing."""
    headers = {}
    if keyed:
        headers = {"Authorization": f"Bearer {KeyFile(tmp_path).add('tester', scopes=['admin'])}"}
    service = world.service(tmp_path, budget=10**6, arrivals=1e6, queries=["text"], open=True)
    phases = "examples,coverage,fuzzing,stateful" if keyed else "examples,coverage"
    with world.served(service) as client:
        words = [sys.executable, "-m", "schemathesis.cli", "run", f"{client.base_url}/openapi.json", "--checks", "all"]
        words += ["--seed", "1", "--no-color", "--phases", phases, "-n", "4", "--suppress-health-check", "all"]
        words += [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
