"""Queries and features as they come in a request: text, numbers, or bytes in base64; never a path or an address."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from occamroute.errors import InvalidInputError, UnknownNameError
from occamroute.pool import Pool

__all__ = ["FORMS", "Form", "numbers", "query_forms", "unpacked", "unpacked_bytes"]

Form = Literal["text", "numbers", "bytes"]
FORMS: tuple[Form, ...] = get_args(Form)
# Classifiers of these kinds take a text for the name of an image's file: always, or unless their model reads texts.
OPEN_FILES = {
    "occamroute.adapters.torch": True,
    "occamroute.adapters.onnx": False,
    "occamroute.adapters.transformers": False,
}


def query_forms(wanted: Iterable[str] | None, pool: Pool) -> frozenset[Form]:
    """The forms that queries may have, so that none is ever taken for a file's name.

    By default all, but no text where a classifier might open it; asking for text is refused where one always would.
    """
    members = [type(one).__module__ for one in (*pool.classifiers, *pool.extractors)]
    if wanted is None:
        return frozenset(FORMS) - ({"text"} if any(module in OPEN_FILES for module in members) else frozenset())
    chosen = frozenset(wanted)
    for form in chosen:
        if form not in FORMS:
            raise UnknownNameError("form of queries", form, FORMS)
    if "text" in chosen and any(OPEN_FILES.get(module, False) for module in members):
        raise InvalidInputError("queries cannot be text: a classifier of kind torch takes texts for names of files.")
    return frozenset(form for form in FORMS if form in chosen)


def unpacked(words: str, kind: str) -> npt.NDArray[Any]:
    """Numbers (d,) from the base64 of little-endian floats of a kind, "float32" or "float64"."""
    content = unpacked_bytes(words)
    width = np.dtype(kind).itemsize
    if len(content) % width:
        raise InvalidInputError(f"base64 of {kind} must hold a multiple of {width} bytes, got {len(content)}.")
    return np.frombuffer(content, np.dtype(kind).newbyteorder("<"))


def unpacked_bytes(words: str) -> bytes:
    """Bytes from base64."""
    try:
        return base64.b64decode(words, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInputError("base64 must be A-Z, a-z, 0-9, + and /, filled up with =.") from None


def numbers(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Numbers (d,) from a list."""
    return np.array(values, np.float64)
