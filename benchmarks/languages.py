"""The language example on texts that are nothing like its own: seven detectors paid by the second, half the budget.

Usage: ``python benchmarks/languages.py --data FILE``, a gzipped TSV of texts with the columns ``text`` and
``language``. Half of the rows are profiled, the others are classified within half of what the most expensive
detector would take. Results go to ``benchmarks/results/languages.md``.
"""

from __future__ import annotations

import argparse
import gzip
import re
import shutil
import sys
import tempfile
from pathlib import Path

import occamroute as oc

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "language_id"


def rows_of(file: Path) -> list[tuple[str, str]]:
    """Texts with their languages; the rows of the file are in no order."""
    header, *lines = gzip.decompress(file.read_bytes()).decode().rstrip("\n").split("\n")
    columns = header.split("\t")
    text, language = columns.index("text"), columns.index("language")
    return [(fields[text], fields[language]) for fields in (line.split("\t") for line in lines)]


def pool_for(languages: list[str], folder: Path) -> oc.Pool:
    """The example's pool, with the languages of the data instead of its own."""
    shutil.copy(EXAMPLE / "detectors.py", folder)
    written = (EXAMPLE / "occamroute.toml").read_text(encoding="utf-8")
    classes = f"classes = {languages!r}\n".replace("'", '"')
    place = folder / "occamroute.toml"
    place.write_text(re.sub(r"(?s)^classes = \[.*?^\]\n", classes, written, flags=re.MULTILINE), encoding="utf-8")
    return oc.read_pool(place)


def main() -> None:
    """Profile, classify, write what was reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "languages.md")
    parser.add_argument("--rows", type=int, default=4000, help="rows of each half")
    wish = parser.parse_args()
    rows = rows_of(wish.data)
    step = max(1, len(rows) // (2 * wish.rows))
    rows = rows[::step][: 2 * wish.rows]
    with tempfile.TemporaryDirectory() as place:
        sys.path.insert(0, place)
        pool = pool_for(sorted({language for _, language in rows}), Path(place))
        known, new = rows[::2], rows[1::2]
        profile = oc.profile(pool, [text for text, _ in known], [label for _, label in known], extractor="cld2")
        tested = oc.profile(pool, [text for text, _ in new], [label for _, label in new], extractor="cld2")
        budget = float(profile.mean_costs.max()) / 2 * len(new)
        run = oc.classify(pool, profile, [text for text, _ in new], budget=budget)
    right = sum(answer == label for answer, (_, label) in zip(run.answers, new, strict=True)) / len(new)
    assert run.spent <= budget, "the budget was exceeded"
    singles = zip(tested.names, tested.success.mean(axis=0), tested.mean_costs, strict=True)
    lines = [
        "# Language detectors on other texts",
        "",
        f"{len(known)} texts profiled, {len(new)} others classified; features of `cld2`; measured seconds.",
        "",
        "| answered by | accuracy | seconds |",
        "| --- | --- | --- |",
        *(f"| {name} alone | {100 * success:.2f} % | {cost * len(new):.3f} |" for name, success, cost in singles),
        f"| occamroute, budget {budget:.3f} | {100 * right:.2f} % (expected {100 * run.expected_accuracy:.2f} %) "
        f"| {run.spent:.3f} |",
        "",
    ]
    wish.out.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
