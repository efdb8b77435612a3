"""A page read the way a person does: its tables by caption, its text, its commands."""

from __future__ import annotations

from html.parser import HTMLParser

__all__ = ["ReadPage"]

VOID = {"meta", "br", "img", "link"}


class ReadPage(HTMLParser):
    """What a page says: ``tables`` (caption to rows of cells), ``text``, ``commands``, and every tag and id in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.commands: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.figures: list[list[str]] = []
        self.text = ""
        self._open: list[str] = []
        self._caption = ""
        self._rows: list[list[str]] = []
        self.feed(page)
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what is open, and begin tables and rows."""
        self.tags.add(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag in VOID:
            return
        self._open.append(tag)
        if tag == "table":
            self._caption, self._rows = "", []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "small":
            self._rows[-1][-1] += " | "
        elif tag == "pre":
            self.commands.append("")
        elif tag == "li" and "figures" in self._classes:
            self.figures.append([])
        self._classes = [*self._classes, *(value or "" for name, value in attrs if name == "class" and tag == "ul")]

    _classes: list[str] = []  # noqa: RUF012  # replaced, never changed

    def handle_endtag(self, tag: str) -> None:
        """Close it, and keep a finished table."""
        assert self._open, f"closed without being open: {tag}"
        assert self._open.pop() == tag
        if tag == "table":
            self.tables[self._caption] = self._rows
        elif tag == "ul":
            self._classes = []

    def handle_data(self, data: str) -> None:
        """Text goes where it stands."""
        data = data.replace("\N{NO-BREAK SPACE}", " ")
        if "style" in self._open:
            return
        self.text += data
        if "caption" in self._open:
            self._caption += data
        elif self._rows and {"td", "th"} & set(self._open):
            self._rows[-1][-1] += data
        elif "pre" in self._open:
            self.commands[-1] += data
        elif self.figures and "figures" in self._classes and "span" in self._open:
            self.figures[-1].append(data)

    def table(self, start: str) -> list[list[str]]:
        """The table whose caption starts so."""
        (found,) = [rows for caption, rows in self.tables.items() if caption.startswith(start)]
        return found
