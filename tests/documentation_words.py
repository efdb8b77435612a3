"""The words of a Markdown page that a reader reads: no code, no addresses, no names of files."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
WORDS = ROOT / "docs" / "words.txt"
CODE = re.compile(r"^```.*?^```|<!--.*?-->|`[^`]*`|\]\([^)]*\)|https?://\S+", re.MULTILINE | re.DOTALL)
# Letters with an apostrophe inside; what stands next to a digit, an underscore or a mathematical letter is a symbol.
WORD = re.compile(r"(?<![\w.\-/])[A-Za-z]+(?:[’'][a-z]+)?(?![\w/]|\.\w)")


def words_of(page: Path) -> set[str]:
    """The words of a page in small letters, without the s of a genitive."""
    text = CODE.sub(" ", page.read_text(encoding="utf-8")).replace("’", "'")
    return {re.sub(r"'s?$", "", word.lower()) for word in WORD.findall(text)}


def allowed_words() -> set[str]:
    """Words that no dictionary has and that are right."""
    return set(WORDS.read_text(encoding="utf-8").split())
