"""Writes train.csv and test.csv: interface texts in some 80 languages, from Django's translation catalogues.

Every row is a real translated message, or one or two words of it, since short texts are what detectors differ on. No
text is in both files.
"""

from __future__ import annotations

import argparse
import csv
import gettext
import random
import re
from pathlib import Path

import django

# One code a language, as ISO 639-1 has it; languages without a two-letter code are left out.
SAME = {"nb": "no", "zh_Hans": "zh", "zh_Hant": "zh", "pt_BR": "pt", "sr_Latn": "sr"}
PLACEHOLDER = re.compile(r"%\([^)]*\)\w|%\w|\{[^}]*\}|<[^>]*>|&\w+;|https?://\S+")
KINDS = ("word", "pair", "sentence")


def messages() -> dict[str, dict[str, str]]:
    """Translations by language and message."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted(Path(django.__file__).parent.rglob("locale/*/LC_MESSAGES/django.mo")):
        language = SAME.get(file.parts[-3], file.parts[-3])
        if len(language) != 2:
            continue
        with file.open("rb") as content:
            catalogue = gettext.GNUTranslations(content)._catalog  # type: ignore[attr-defined]
        for message, translation in catalogue.items():
            if isinstance(message, str) and message and isinstance(translation, str):
                text = " ".join(PLACEHOLDER.sub(" ", translation).split())
                if sum(map(str.isalpha, text)) >= 3 and (language == "en" or text != message):
                    found.setdefault(language, {}).setdefault(message, text)
    return found


def piece(text: str, draw: random.Random) -> str:
    """The text, or one or two of its words."""
    words = [word for word in text.split() if sum(map(str.isalpha, word)) >= 3]
    count = {"word": 1, "pair": 2, "sentence": len(words)}[draw.choice(KINDS)]
    if count >= len(words):
        return text
    start = draw.randrange(len(words) - count + 1)
    return " ".join(words[start : start + count])


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--rows", type=int, default=6000, help="rows of each file")
    parser.add_argument("--seed", type=int, default=0)
    wish = parser.parse_args()
    draw = random.Random(wish.seed)  # noqa: S311  # a split, not a secret
    found = messages()
    languages = sorted(language for language in found if len(found[language]) >= 100)
    labelled = {piece(text, draw): language for language in languages for text in found[language].values()}
    rows = sorted(labelled.items())
    draw.shuffle(rows)
    for name, part in (("train", rows[: wish.rows]), ("test", rows[wish.rows : 2 * wish.rows])):
        with (wish.out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "text", "label"])
            writer.writerows((f"{name}-{number}", *row) for number, row in enumerate(part))
    classes = ", ".join(f'"{language}"' for language in languages)
    pool = (Path(__file__).parent / "pool.toml").read_text(encoding="utf-8")
    (wish.out / "occamroute.toml").write_text(f"classes = [{classes}]\n\n{pool}", encoding="utf-8")


if __name__ == "__main__":
    main()
