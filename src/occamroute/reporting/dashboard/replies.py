"""Replies: from a path and its parameters to the bytes that a server sends, whichever server that is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from urllib.parse import parse_qs

from occamroute.errors import OccamError
from occamroute.reporting.dashboard.subjects import Subject, Wish

__all__ = ["API", "POLICY", "Reply", "is_foreign", "page_file", "reply"]

API = "api/"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MEDIA = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
LONGEST = 60_000


@dataclass(frozen=True)
class Reply:
    """What is sent: its status, its media type, its bytes, and a name where it is a file to keep."""

    status: int
    media: str
    content: bytes
    name: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers that make a browser take it for nothing else, load nothing from elsewhere, and keep nothing."""
        own = {
            "content-type": self.media,
            "content-length": str(len(self.content)),
            "content-security-policy": POLICY,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-store" if self.media == "application/json" else "no-cache",
        }
        if self.name is not None:
            own["content-disposition"] = f'attachment; filename="{self.name}"'
        return own


NOT_FOUND = Reply(404, "text/plain; charset=utf-8", b"There is nothing at this address.\n")
TOO_LONG = Reply(414, "text/plain; charset=utf-8", b"The address is too long.\n")
FOREIGN = Reply(403, "text/plain; charset=utf-8", b"Only the dashboard's own page may ask for this.\n")


def reply(subject: Subject, path: str, query: str) -> Reply:
    """The reply to a request for a path below the dashboard's own; what is wrong with a wish is said in one sentence.

    A sentence about a budget or a price comes with status 200: to type a wrong one is no fault of the page.
    """
    if len(query) > LONGEST:
        return TOO_LONG
    if not path.startswith(API):
        return page_file(path)
    name = path.removeprefix(API)
    wish = Wish(parse_qs(query, keep_blank_values=True))
    answer, download = subject.answer(name), subject.files(name)
    try:
        if name == "picture":
            return Reply(200, *subject.picture(wish))
        if download is not None:
            return Reply(200, MEDIA[name.rpartition(".")[2]], download(wish), name)
        if answer is None:
            return NOT_FOUND
        content = answer(wish)
    except OccamError as error:
        content = {"refused": str(error)}
    return Reply(200, "application/json", json.dumps(content, allow_nan=False).encode())


@lru_cache(maxsize=64)
def page_file(path: str) -> Reply:
    """One of the page's own files."""
    name = path or "index.html"
    suffix = name.rpartition(".")[2]
    # A name that is not among them is never looked for: it may lead elsewhere, or be none that a disk can have.
    known = {file.name: file for file in files("occamroute.reporting.dashboard").joinpath("web").iterdir()}
    if suffix not in MEDIA or name not in known:
        return NOT_FOUND
    return Reply(200, MEDIA[suffix], known[name].read_bytes())


def is_foreign(path: str, fetch_site: str | None) -> bool:
    """Whether another site's page makes the browser ask: it could read nothing, but would keep the solver busy."""
    return path.startswith(API) and fetch_site not in (None, "same-origin", "none")
