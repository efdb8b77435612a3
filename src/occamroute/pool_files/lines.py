"""Where things stand in a TOML file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

__all__ = ["line_of"]

# What must not be looked into for the end of a statement: strings of four sorts, and comments.
PIECE = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\])*"|'[^']*'|\#[^\n]*|[\[\]{}\n]|[^"'\#\[\]{}\n]+''',
    re.DOTALL,
)


def line_of(text: str, place: tuple[str, ...]) -> int | None:
    """The line in which a place of a TOML file begins, or that of the nearest thing around it."""
    lines = _lines(text)
    while place:
        if place in lines:
            return lines[place]
        place = place[:-1]
    return None


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Where each key path begins; the parser tells no lines, so each statement is parsed by itself."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for line, statement in _statements(text):
        header = statement.startswith("[")
        for path in _paths(tomllib.loads(statement)):
            found.setdefault(path if header else (*table, *path), line)
            if header:
                table = path
    return found


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """The statements of a file that is good TOML, and the line in which each begins."""
    line, begun, depth, statement = 1, 1, 0, ""
    for piece in PIECE.findall(text.replace("\r\n", "\n") + "\n"):
        if piece == "\n" and depth == 0:
            if statement.strip():
                yield begun, statement.strip()
            begun, statement = line + 1, ""
        else:
            depth += (piece in ("[", "{")) - (piece in ("]", "}"))
            statement += piece
        line += piece.count("\n")


def _paths(content: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(content, list) and content and isinstance(content[-1], dict):
        content = content[-1]
    if not isinstance(content, dict):
        return []
    paths = []
    for key, value in content.items():
        paths += [(*prefix, key), *_paths(value, (*prefix, key))]
    return paths
