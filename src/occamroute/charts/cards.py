"""A noun at a glance, for notebooks: a line of facts and a picture, with no style or id that others could meet."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["card"]

# A notebook's own ink and font, whatever its theme: nothing here names a colour.
OUTER = "--occam-ink:currentColor;max-width:760px;font-family:system-ui,sans-serif;line-height:1.45"
FACTS = "display:flex;flex-wrap:wrap;gap:.35em 2em;margin:.5em 0"
FACT = "display:flex;flex-direction:column"


def card(title: str, facts: Sequence[tuple[str, str]], picture: str = "", *, note: str = "") -> str:
    """HTML of a title, ``facts`` (what it is, its value) and a picture (SVG); everything but the picture is text."""
    shown = "".join(
        f'<div style="{FACT}"><span style="font-size:.8em;opacity:.8">{escape(name)}</span>'
        f'<span style="font-weight:600">{escape(value)}</span></div>'
        for name, value in facts
    )
    below = f'<div style="font-size:.85em;opacity:.85">{escape(note)}</div>' if note else ""
    return (
        f'<div class="occam-card" style="{OUTER}"><div style="font-weight:600;font-size:1.1em">{escape(title)}</div>'
        f'<div style="{FACTS}">{shown}</div>{picture}{below}</div>'
    )
