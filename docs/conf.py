"""Settings of the site; ``scripts/docs`` builds it."""

from __future__ import annotations

import inspect
from typing import Any

from sphinx.util.inspect import TypeAliasForwardRef

from occamroute import __version__

project = "occamroute"
author = "The occamroute authors"
version = release = __version__
html_title = f"occamroute {__version__}"
root_doc = "index"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
suppress_warnings = [
    "misc.highlighting_failure",  # examples of requests and answers leave things out with an ellipsis
]

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
# Properties say the names that the source has, too.
autodoc_type_aliases = {name: name for name in ("FloatArray", "IntArray", "BoolArray")}
python_maximum_signature_line_length = 100

html_theme = "furo"
html_favicon = "icon.svg"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
templates_path: list[str] = []


class _Text(str):
    """A text that is shown without quotes."""

    __slots__ = ()

    __repr__ = str.__str__


def _as_written(
    app: Any, what: str, name: str, found: Any, options: Any, signature: str | None, gives: str | None
) -> tuple[str, str | None] | None:
    """The signature with its types as the source has them: what numpy's names stand for takes ten lines."""
    if signature is None or what not in ("class", "function", "method"):
        return None
    read = inspect.signature(found)
    unbound = what == "method" and not inspect.ismethod(found)
    parameters = [
        one.replace(
            annotation=one.annotation if one.annotation is one.empty else _Text(one.annotation),
            default=_Text("...") if "factory" in repr(one.default) else one.default,
        )
        for one in list(read.parameters.values())[unbound:]
        if not one.name.startswith("_")
    ]
    shown = str(read.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return shown, None if what == "class" else str(read.return_annotation)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    TypeAliasForwardRef.__repr__ = lambda self: str(self.name)
    app.connect("autodoc-process-signature", _as_written)
