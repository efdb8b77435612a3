"""Writes train.csv and test.csv: texts of user interfaces in 80 languages, from Django's translation catalogues.

Every row is a real translated message, or one or two words of it, since short texts are what detectors differ on. No
text is in both files.
"""

from __future__ import annotations

import argparse
import csv
import gettext
import random
import re
import tomllib
from pathlib import Path

import django

HERE = Path(__file__).parent
# Catalogues by their folder, where that is not the code of a language alone.
SAME = {"zh_Hans": "zh", "zh_Hant": "zh", "pt_BR": "pt", "sr_Latn": "sr"}
PLACEHOLDER = re.compile(r"%\([^)]*\)\w|%\w|\{[^}]*\}|<[^>]*>|&\w+;|https?://\S+")
FEWEST_LETTERS = 3


def messages() -> dict[str, dict[str, str]]:
    """Translations by language and message."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted(Path(django.__file__).parent.rglob("locale/*/LC_MESSAGES/django.mo")):
        language = SAME.get(file.parts[-3], file.parts[-3])
        with file.open("rb") as content:
            catalogue = gettext.GNUTranslations(content)._catalog  # type: ignore[attr-defined]
        for message, translation in catalogue.items():
            if isinstance(message, str) and message and isinstance(translation, str):
                text = " ".join(PLACEHOLDER.sub(" ", translation).split())
                if _is_word(text) and text != message:
                    found.setdefault(language, {}).setdefault(message, text)
    return found


def piece(text: str, draw: random.Random) -> str:
    """The text, or one or two of its words."""
    words = list(filter(_is_word, text.split()))
    count = draw.choice((1, 2, len(words)))
    if count >= len(words):
        return text
    start = draw.randrange(len(words) - count + 1)
    return " ".join(words[start : start + count])


def _is_word(text: str) -> bool:
    return sum(map(str.isalpha, text)) >= FEWEST_LETTERS


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=HERE)
    parser.add_argument("--rows", type=int, default=4000, help="rows of each file")
    wish = parser.parse_args()
    languages = tomllib.loads((HERE / "occamroute.toml").read_text(encoding="utf-8"))["classes"]
    found = messages()
    draw = random.Random(0)  # noqa: S311  # a split, not a secret
    labelled = {piece(text, draw): language for language in languages for text in found.get(language, {}).values()}
    rows = sorted(labelled.items())
    draw.shuffle(rows)
    for name, part in (("train", rows[: wish.rows]), ("test", rows[wish.rows : 2 * wish.rows])):
        with (wish.folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "text", "label"])
            writer.writerows((f"{name}-{number}", *row) for number, row in enumerate(part))
        print(f"{len(part)} texts in {name}.csv")


if __name__ == "__main__":
    main()
