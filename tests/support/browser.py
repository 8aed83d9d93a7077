"""Chromium for the tests of the report, which are skipped with a message if it is missing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Page:
    """A page that records errors, and requests for anything but its own file."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def open(self, path: Path) -> Any:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("body[data-ready]", timeout=120_000)
        assert self.errors == []
        assert [url for url in self.requests if not url.startswith("blob:")] == [path.as_uri()]
        return self.page


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser; call it for a new page."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium on this machine: the report is not tried in a browser")
    with playwright.sync_playwright() as driver:
        # Software WebGL, since test machines have no graphics card; no sandbox, since they may
        # run as root.
        options = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        browser = driver.chromium.launch(executable_path=program, args=options)
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(60_000)
        yield lambda: Page(context.new_page())
        browser.close()
