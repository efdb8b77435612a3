"""Model files: there, and none that would run code when it is read."""

from __future__ import annotations

from pathlib import Path

from occamroute.errors import InvalidInputError, StorageError

__all__ = ["exactly_one", "model_file"]

PICKLES = {".pkl", ".pickle", ".p", ".joblib", ".sav", ".dill"}
# A pickle since protocol 2, and what joblib writes when it compresses: zlib, gzip, bzip2, xz, lzma, lz4.
MAGIC = (
    b"\x80",
    b"\x78\x01",
    b"\x78\x5e",
    b"\x78\x9c",
    b"\x78\xda",
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ",
    b"\x5d\x00",
    b"\x04\x22",
)


def model_file(path: Path | str, suffixes: tuple[str, ...], *, advice: str, look_inside: bool = False) -> Path:
    """The path of a file that exists and is of one of these kinds; a pickle is refused with the ``advice``.

    With ``look_inside`` it is also known by how it begins, for kinds that cannot begin like that.
    """
    path = Path(path)
    if not path.is_file():
        raise StorageError(path, "there is no such file")
    if path.suffix.lower() in PICKLES or (look_inside and _begin(path).startswith(MAGIC)):
        raise InvalidInputError(f"{path} is a pickle, and a pickle can run any code when it is read: {advice}.")
    if path.suffix.lower() not in suffixes:
        raise StorageError(path, f"it must be a {' or '.join(suffixes)} file")
    return path


def _begin(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)


def exactly_one(name: str, options: dict[str, object]) -> str:
    """Which one of the options is given; a sentence if none or several are."""
    given = [option for option, value in options.items() if value is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"classifier {name!r} needs exactly one of {', '.join(options)}, got {' and '.join(given) or 'none'}."
        )
    return given[0]
