"""Hashes of source modules, so that a kept result says which code it was measured with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["hash_of", "source_files", "source_hashes"]


def hash_of(files: Mapping[str, bytes]) -> str:
    """One hash of files by path: it changes with any byte, any path, and any file that is added or removed."""
    digest = hashlib.sha256()
    for path in sorted(files):
        name = path.encode()
        digest.update(b"%d %d " % (len(name), len(files[path])) + name + files[path])
    return digest.hexdigest()


def source_files(package: Path, module: str) -> dict[str, bytes]:
    """The Python files of a module (``_money.py``) or of all modules in a folder (``knapsack``), by path."""
    place = package / module
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.is_file() else []
    return {file.relative_to(package).as_posix(): file.read_bytes() for file in files}


def source_hashes(package: Path, modules: Iterable[str]) -> dict[str, str]:
    """The hash of each module of a package; a module that does not exist has the hash of no files."""
    return {module: hash_of(source_files(package, module)) for module in modules}
