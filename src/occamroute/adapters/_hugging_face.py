"""Models of Hugging Face on this machine: a folder, or in its cache; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from occamroute._optional import require
from occamroute.adapters._torch_models import require_torchvision
from occamroute.errors import InvalidInputError

__all__ = ["from_here", "library"]


def library(name: str, *, extra: str, what: str) -> Any:
    """The library, if it and torch are there."""
    require("torch", extra=extra, what=what)
    if find_spec("torchvision") is not None:  # it imports that in passing, and fails where torchvision would
        require_torchvision()
    return require(name, extra=extra, what=what)


def from_here(load: Callable[..., Any], model: str, folder: Path | None, **options: Any) -> Any:
    """What ``load`` makes of a model in a folder, or of one by its name in the cache."""
    local = Path(folder or ".") / model
    source = str(local) if local.is_dir() else model
    try:
        return load(source, local_files_only=True, **options)
    except (OSError, ValueError) as error:
        if local.is_dir():
            detail = " ".join(str(error).split()).rstrip(".")
            raise InvalidInputError(f"the folder {local} holds no such model: {detail[:300]}.") from error
        raise InvalidInputError(
            f"model {model!r} is neither a folder nor in the cache of Hugging Face, and occamroute downloads nothing: "
            "fetch it once with the library itself, or give its folder."
        ) from error
