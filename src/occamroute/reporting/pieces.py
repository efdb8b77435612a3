"""What pages are put together from: tables, facts, pictures, sections. Whatever is given as text is shown as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from re import compile as pattern

from occamroute.charts import NARROW, Canvas

__all__ = [
    "Cell",
    "Draw",
    "Section",
    "bullets",
    "command",
    "details",
    "facts",
    "notice",
    "paragraph",
    "shown",
    "table",
    "unbroken",
]

# As wide as the page, so that letters keep their size.
PAGE = Canvas(width=920, height=440)
QUOTED = pattern(r"`([^`]+)`")
# A chart, drawn once for a wide page and once for a phone.
Draw = Callable[[Canvas], str]


@dataclass(frozen=True)
class Cell:
    """A number in a table, with what belongs below it (its interval) and whether it is better or worse."""

    text: str
    below: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page: its place in the address, its heading and its HTML."""

    name: str
    title: str
    body: str

    def html(self) -> str:
        """The section as it stands in the page."""
        return f'<section id="{escape(self.name)}"><h2>{escape(self.title)}</h2>{self.body}</section>'


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of text."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{_inline(text)}</p>"


def notice(text: str) -> str:
    """A text that must not be overlooked."""
    return f'<p class="notice" role="note">{_inline(text)}</p>'


def unbroken(text: str) -> str:
    """Text whose numbers keep their percent signs beside them."""
    return escape(text).replace(" %", "\N{NO-BREAK SPACE}%")


def _inline(text: str) -> str:
    """Text with what is between backquotes set as code."""
    return QUOTED.sub(r"<code>\1</code>", unbroken(text))


def bullets(texts: Iterable[str]) -> str:
    """A list of sentences."""
    return "<ul>" + "".join(f"<li>{_inline(text)}</li>" for text in texts) + "</ul>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """What is known, each with its name before it."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs) + "</dl>"


def command(text: str) -> str:
    """What to type in a shell."""
    return f"<pre><code>{escape(text)}</code></pre>"


def details(summary: str, body: str) -> str:
    """HTML that is folded away until it is wanted."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def shown(draw: Draw, caption: str = "") -> str:
    """A chart with its caption, for wide pages and for phones."""
    below = f"<figcaption>{unbroken(caption)}</figcaption>" if caption else ""
    wide, narrow = draw(PAGE), draw(NARROW)
    return f'<figure><div class="wide">{wide}</div><div class="narrow">{narrow}</div>{below}</figure>'


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    *,
    caption: str,
    text: Sequence[int] = (),
    strong: Iterable[int] = (),
) -> str:
    """A table whose first column names its rows; columns in ``text`` are words, rows in ``strong`` stand out."""
    named = "".join(
        f'<th scope="col"{_kind("text" if place == 0 or place in text else "")}>{escape(heading)}</th>'
        for place, heading in enumerate(headings)
    )
    stressed = set(strong)
    body = "".join(
        f"<tr{_kind('strong' if number in stressed else '')}>{_cells(row, text)}</tr>"
        for number, row in enumerate(rows)
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{named}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(row: Sequence[str | Cell], text: Sequence[int]) -> str:
    made = []
    for place, value in enumerate(row):
        cell = value if isinstance(value, Cell) else Cell(value)
        below = f"<small>{escape(cell.below)}</small>" if cell.below else ""
        if place == 0:
            made.append(f'<th scope="row">{escape(cell.text)}{below}</th>')
        else:
            kind = "text" if place in text else cell.kind
            made.append(f"<td{_kind(kind)}>{escape(cell.text)}{below}</td>")
    return "".join(made)


def _kind(name: str) -> str:
    return f' class="{name}"' if name else ""
