"""A real Chromium, and pages that complain about everything that should not happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

# The page shows its numbers.
READY = "#numbers[data-budget]"


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    """Chromium as the machine has it, closed before other tests open theirs: a thread can run one Playwright."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page; at the end there was no error, no message and no request to anywhere else."""
    contexts, complaints = [], []

    def open_page(address: str, *, ready: str = READY, script: str = "", timed: bool = False, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        origin = "/".join(address.split("/")[:3])
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
        page.on(
            "request",
            lambda request: None if request.url.startswith((origin, "data:")) else complaints.append(request.url),
        )
        page.add_init_script(script)
        if timed:  # its clock can be put forward
            page.clock.install()
        page.goto(address)
        page.wait_for_selector(ready)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
