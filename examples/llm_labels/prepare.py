"""Writes train.csv and test.csv: docstrings of Python's own library, each with the topic of its module as the label.

Nothing is downloaded: the texts come with the interpreter. Another part of them, which is in neither file, is what the
models of server.py learn from.
"""

from __future__ import annotations

import argparse
import ast
import csv
import sysconfig
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

TOPICS = {
    "concurrency": "asyncio concurrent contextvars multiprocessing queue sched selectors signal subprocess threading",
    "files": "bz2 dbm filecmp fileinput fnmatch genericpath glob gzip io _pyio lzma netrc ntpath os pathlib posixpath "
    "shelve shutil tarfile tempfile zipapp zipfile zipimport",
    "formats": "argparse base64 codecs configparser csv difflib encodings getopt gettext html json locale mimetypes "
    "optparse plistlib pprint quopri string textwrap tomllib xml",
    "language": "abc ast code codeop compileall copy copyreg dataclasses dis enum functools importlib inspect "
    "linecache modulefinder pickle pickletools pkgutil runpy symtable tokenize traceback types typing",
    "network": "email ftplib http imaplib ipaddress mailbox poplib smtplib socket socketserver ssl urllib webbrowser "
    "wsgiref xmlrpc",
    "numbers": "_collections_abc _pydatetime _pydecimal bisect calendar collections colorsys datetime decimal "
    "fractions heapq numbers random statistics zoneinfo",
    "testing": "bdb cProfile cmd doctest logging pdb profile pstats timeit trace unittest warnings",
}
# Shares of all texts: the first is for the models, the second for the profile, the rest for the test.
LEARN, TRAIN = 0.4, 0.3

Row = tuple[str, str]


def parts() -> tuple[list[Row], list[Row], list[Row]]:
    """Texts with their topics: to learn from, to profile with, to test with; no text is in two of them."""
    topics: defaultdict[str, set[str]] = defaultdict(set)
    for text, topic in _found():
        topics[text].add(topic)
    # A text in two topics has no label. The order by a hash is random, and the same every time.
    rows = [(text, min(labels)) for text, labels in topics.items() if len(labels) == 1]
    rows.sort(key=lambda row: sha256(row[0].encode()).digest())
    first, second = int(len(rows) * LEARN), int(len(rows) * (LEARN + TRAIN))
    return rows[:first], rows[first:second], rows[second:]


def _found() -> Iterator[Row]:
    library = Path(sysconfig.get_paths()["stdlib"])
    for topic, modules in TOPICS.items():
        for module in modules.split():
            # What this version of Python does not have is left out.
            for file in [library / f"{module}.py", *sorted((library / module).rglob("*.py"))]:
                if file.is_file():
                    yield from ((text, topic) for text in _docstrings(file))


def _docstrings(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            words = (ast.get_docstring(node) or "").split()
            if len(words) >= 8:  # "Return self." tells nothing
                yield " ".join(words)[:400]


def main() -> None:
    """Write the two files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().folder
    _, train, test = parts()
    for name, rows in (("train", train), ("test", test)):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "text", "label"])
            writer.writerows((f"{name}-{number}", *row) for number, row in enumerate(rows))
        print(f"{len(rows)} texts in {name}.csv")


if __name__ == "__main__":
    main()
