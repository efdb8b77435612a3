"""The one sentence about a missing extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from occamroute.errors import MissingExtraError

__all__ = ["require"]


def require(module: str, *, extra: str, what: str) -> Any:
    """The module, imported; or the sentence that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not module.startswith(error.name.partition(".")[0]):
            raise  # the library is there; something that it needs is not
        raise MissingExtraError(what, extra) from error
