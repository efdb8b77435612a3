"""Text in CSV cells that no spreadsheet runs as a formula, and the way back."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["to_cell", "to_text"]

# What makes a spreadsheet run a cell; the full-width signs count as their plain forms.
SIGNS = r"[=+\-@\t\r\n＝＋－＠]"
# Quotes before a formula get one more, so that reading can take exactly one away.
FORMULA, QUOTED_FORMULA = re.compile(f"'*{SIGNS}"), re.compile(f"'+{SIGNS}")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def to_cell(value: Any) -> Any:
    """What is written for a value: text that would be run gets a single quote in front, all else stays."""
    if isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def to_text(cell: str) -> str:
    """The text that was written as this cell."""
    return cell[1:] if QUOTED_FORMULA.match(cell) else cell
