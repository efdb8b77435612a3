"""Previews: what queries look like, where their file is at hand: texts, or small pictures."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os.path import isfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute.errors import InvalidInputError

__all__ = ["Previews", "png_of", "previews_of"]

# Kinds of files that every browser shows.
KINDS = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
# Characters of a text that are shown in a table.
SHORT = 160


@dataclass(frozen=True, eq=False)
class Previews:
    """Queries by their ids: texts, paths of images, or images as arrays."""

    queries: Mapping[str, Any]

    def of(self, name: str) -> dict[str, Any]:
        """What the page needs to know: a text, or that there is a picture; nothing where neither is there."""
        query = self.queries.get(name)
        # A text may end like the name of an image.
        if _is_picture(query) and (not isinstance(query, str) or isfile(query)):
            return {"picture": True}
        return {"text": query} if isinstance(query, str) else {}

    def short(self, name: str) -> dict[str, Any]:
        """The same for a table."""
        found = self.of(name)
        text = found.get("text", "")
        return {"text": f"{text[:SHORT]}…"} if len(text) > SHORT else found

    def picture(self, name: str) -> tuple[str, bytes]:
        """The media type and the bytes of a query's picture."""
        query: Any = self.queries.get(name)
        if not _is_picture(query):
            raise InvalidInputError(f"there is no picture of {name!r:.120}.")
        if not isinstance(query, str):
            return KINDS[".png"], png_of(query)
        try:
            return KINDS[Path(query).suffix.lower()], Path(query).read_bytes()
        except OSError as error:
            reason = (error.strerror or "it cannot be read").lower()
            raise InvalidInputError(f"there is no picture of {name!r:.120}: {reason}.") from None


def previews_of(ids: Iterable[str], queries: Any) -> Previews:
    """Previews of queries in the order of their ids; rows of numbers have none."""
    array = isinstance(queries, np.ndarray)
    if array and queries.ndim < 3:
        return Previews({})
    return Previews(dict(zip(ids, queries, strict=True)))


def png_of(image: npt.NDArray[Any]) -> bytes:
    """An image (H, W), (H, W, 1 or 3) or (1 or 3, H, W) as PNG; from 0 to 255, or to 1 where they are floats."""
    pixels = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3) and pixels.shape[2] not in (1, 3):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.dtype.kind == "f":
        pixels = 255.0 * pixels if pixels.size and float(pixels.max()) <= 1.0 else pixels
    pixels = np.clip(pixels, 0, 255).astype(np.uint8)
    height, width = pixels.shape[:2]
    lines = pixels.reshape(height, -1)
    colour = 2 if pixels.ndim == 3 and pixels.shape[2] == 3 else 0
    # Every line begins with the number of its filter, and 0 is none.
    content = zlib.compress(np.pad(lines, ((0, 0), (1, 0))).tobytes())
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", content), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part)) for kind, part in chunks
    )


def _is_picture(query: Any) -> bool:
    if isinstance(query, str):
        return len(query) < 4_000 and "\n" not in query and Path(query).suffix.lower() in KINDS
    shape = np.shape(query)
    return len(shape) == 2 or (len(shape) == 3 and (shape[2] in (1, 3) or shape[0] in (1, 3)))
