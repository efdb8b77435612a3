"""The site as it is built: without a warning, with links that lead somewhere, and from nowhere else."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import make_site
import pytest
from documentation_words import ROOT

import occamroute as oc

PAGES = [ROOT / name for name in make_site.pages()]
OUTSIDE = re.compile(r"https?://[\w-]+(\.[\w-]+)*(:\d+)?(/\S*)?|mailto:\S+@\S+")


class Links(HTMLParser):
    """What a page links to, what it loads, and which places it has."""

    def __init__(self) -> None:
        super().__init__()
        self.to: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places.update(value for name in ("id", "name") if (value := given.get(name)))
        if tag == "a" and given.get("href"):
            self.to.append(str(given["href"]))
        elif given.get("src") or (tag == "link" and given.get("href")):
            self.loaded.append(str(given.get("src") or given["href"]))


def read(page: Path) -> Links:
    found = Links()
    found.feed(page.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``scripts/docs`` builds it: a warning is an error."""
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, str(ROOT / "scripts" / "make_site.py"), "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def links(site: Path) -> dict[Path, Links]:
    """Every page of the site with its links."""
    return {page: read(page) for page in site.rglob("*.html")}


def test_every_page_is_in_the_site(site: Path) -> None:
    """Pages of the repository, and those that are made."""
    made = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {name.replace(".md", ".html") for name in make_site.pages().values()} <= made
    assert {
        "reference-python.html",
        "reference-commands.html",
        "reference-http.html",
        "reference-pool-file.html",
    } <= made


def test_public_names_have_places(links: dict[Path, Links], site: Path) -> None:
    """Each one can be linked to, so that it was found and its docstring read."""
    places = links[site / "reference-python.html"].places
    assert [name for name in oc.__all__ if name != "__version__" and f"occamroute.{name}" not in places] == []


def test_links_of_the_site_lead_somewhere(links: dict[Path, Links]) -> None:
    """Files and places within them; what is outside is only looked at."""
    broken = []
    for page, found in links.items():
        for link in found.to + found.loaded:
            parts = urlsplit(link)
            if parts.scheme:
                if not OUTSIDE.fullmatch(link):
                    broken.append((page.name, link))
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not target.is_file() or (
                parts.fragment and target in links and unquote(parts.fragment) not in links[target].places
            ):
                broken.append((page.name, link))
    assert not broken


def test_nothing_is_loaded_from_elsewhere(links: dict[Path, Links], site: Path) -> None:
    """No script, style, font or picture has another host's address."""
    assert [(page.name, one) for page, found in links.items() for one in found.loaded if "//" in one] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style.name


def slugs(page: Path) -> set[str]:
    """The places of a page as repository browsers name them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_the_repository_lead_somewhere(page: Path) -> None:
    """Every link of a page is a file of the repository, and a heading in it; outside ones have the right form."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)\s#]*)(#[^)\s]*)?\)", text):
        if ":" in target:
            assert OUTSIDE.fullmatch(target), target
            continue
        found = (page.parent / target) if target else page
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            assert anchor[1:] in slugs(found), f"{target}{anchor}"


def test_the_contents_have_every_page() -> None:
    """The index lists each page once; one that it forgot would still come last."""
    listed = make_site.contents((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    names = [name for names in listed.values() for name in names]
    assert len(names) == len(set(names))
    assert list(listed) == ["Tutorial", "How-to", "Concepts", "Reference", "Project"]
    known = {**make_site.pages(), "docs/new-page.md": "new-page.md"}
    assert ":caption: More" in make_site._toctrees(listed, known)
    assert "new-page" in make_site._toctrees(listed, known)


def test_links_are_turned(tmp_path: Path) -> None:
    """Between docs/ and what lies beside it, in both directions; code and addresses stay."""
    known = make_site.pages()
    assert known["docs/howto/llm-bill.md"] == "howto/llm-bill.md"
    assert "](../examples/README.md)" in make_site.turned("docs/howto/llm-bill.md", known, lambda _: None)
    assert "](examples/README.md)" in make_site.turned("docs/index.md", known, lambda _: None)


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The site behind a server of its own."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name in the base class
        """Nothing."""


def test_no_request_leaves_the_site(address: str, site: Path, chromium: str) -> None:
    """Every page in a real browser: whatever it asks for, it asks the site, and nothing fails; search finds."""
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("response", lambda reply: wrong.append(reply.url) if reply.status >= 400 else None)
        for name in sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html")):
            page.goto(f"{address}/{name}")
        page.goto(f"{address}/search.html?q=frontier")
        page.wait_for_selector("#search-results li")
        browser.close()
    assert {urlsplit(url).netloc for url in asked if not url.startswith("data:")} == {urlsplit(address).netloc}
    assert not wrong
