"""Where things stand in a TOML file."""

from __future__ import annotations

import tomllib
from typing import Any

__all__ = ["line_of"]


def line_of(text: str, place: tuple[str, ...]) -> int | None:
    """The line in which a place of a TOML file begins, or that of the nearest thing around it."""
    lines = _lines(text)
    while place:
        if place in lines:
            return lines[place]
        place = place[:-1]
    return None


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Where each key path begins.

    The parser tells no lines, so statements are cut out of the text, each as the fewest lines that parse.
    """
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    lines = text.splitlines()
    start = 0
    while start < len(lines):
        statement: dict[str, Any] = {}
        end = start
        for end in range(start, len(lines)):  # used after the loop
            try:
                statement = tomllib.loads("\n".join(lines[start : end + 1]))
                break
            except tomllib.TOMLDecodeError:
                continue
        header = lines[start].lstrip().startswith("[")
        for path in _paths(statement):
            found.setdefault(path if header else (*table, *path), start + 1)
            if header:
                table = path
        start = end + 1
    return found


def _paths(content: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(content, list) and content and isinstance(content[-1], dict):
        content = content[-1]
    if not isinstance(content, dict):
        return []
    paths = []
    for key, value in content.items():
        paths += [(*prefix, key), *_paths(value, (*prefix, key))]
    return paths
