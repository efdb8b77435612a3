"""Schemathesis with all of its checks against services of several kinds, for longer than the tests have time for.

    python benchmarks/reliability/openapi.py [--examples 200] [--seeds 1 2 3]

Each service is a process of its own: with keys and a pool, without keys, without a pool, and one that looks at no
features. Whatever the OpenAPI document allows must be taken, and whatever it forbids refused as it says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import occamroute as oc
from occamroute.serving.keys import KeyFile

POOL = """
classes = ["cat", "dog", "eel"]
[classifiers.small]
kind = "callable"
function = "rules:small"
cost = 0.1
[classifiers.large]
kind = "callable"
function = "rules:large"
cost = 1.0
"""
RULES = """
def small(texts):
    return [["cat", "dog", "eel"][len(text) % 3] for text in texts]

def large(texts):
    return [["cat", "dog", "eel"][sum(map(ord, text)) % 3] for text in texts]
"""
KINDS: dict[str, list[str]] = {
    "keys and a pool": ["--pool", "occamroute.toml", "--extractor", "small", "--queries", "text"],
    "no keys": ["--pool", "occamroute.toml", "--extractor", "small", "--queries", "text", "--open"],
    "no pool": ["--extractor", "small", "--open"],
    "no features": ["--pool", "occamroute.toml", "--extractor", "none", "--queries", "text", "--open"],
}


def prepared(folder: Path) -> None:
    """A profile of random probabilities, and the pool file."""
    draw = np.random.default_rng(0)
    probabilities = draw.dirichlet(np.ones(3), 200)
    success = (draw.random((200, 2)) < [0.6, 0.9]).astype(np.float64)
    made = oc.Profile(
        ("small", "large"), (0.1, 1.0), probabilities, success, extractor="small", classes=("cat", "dog", "eel"),
        labels=draw.integers(0, 3, 200),
    )  # fmt: skip
    oc.save(made, folder / "profile.parquet")
    (folder / "occamroute.toml").write_text(POOL, encoding="utf-8")
    (folder / "rules.py").write_text(RULES, encoding="utf-8")


@contextmanager
def serving(folder: Path, kind: str, seed: int) -> Iterator[tuple[str, list[str]]]:
    """The address of a service of a kind, and the header that its callers show."""
    state = folder / f"{kind}-{seed}".replace(" ", "-")
    shown = []
    if kind == "keys and a pool":
        shown = ["-H", f"Authorization: Bearer {KeyFile(state).add('tester', scopes=['admin'])}"]
    words = ["serve", "--profile", "profile.parquet", "--budget", "1000000", "--window", "day", "--arrivals", "1000000"]
    words += ["--state", str(state), "--port", "0", "--json", *KINDS[kind]]
    process = subprocess.Popen(
        [sys.executable, "-m", "occamroute", *words], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"], shown
    finally:
        process.terminate()
        process.communicate(timeout=60)


def main() -> None:
    """Run all of them; the exit code says whether anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    wish = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(folder)
        for seed in wish.seeds:
            for kind in KINDS:
                with serving(folder, kind, seed) as (address, shown):
                    words = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json", *shown]
                    words += ["--checks", "all", "--seed", str(seed), "-n", str(wish.examples)]
                    words += ["--no-color", "--suppress-health-check", "all"]
                    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
                print(f"{kind}, seed {seed}: {done.stdout.rstrip().splitlines()[-1]}", flush=True)
                if done.returncode:
                    print(done.stdout)
                    failed.append(kind)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
