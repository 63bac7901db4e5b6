"""A headless Chromium for the tests of the page."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def chromium_path() -> str | None:
    """BLACKOUT_CHROMIUM, or the first Chromium on the PATH, or the one that Playwright downloaded."""
    named = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    found = os.environ.get("BLACKOUT_CHROMIUM") or next((path for path in named if path), None)
    if found is None:
        with sync_playwright() as playwright:
            found = playwright.chromium.executable_path
    return found if Path(found).exists() else None


def require_chromium() -> None:
    """Skip the module where there is no Chromium, unless BLACKOUT_BROWSER=required."""
    if chromium_path() is None and os.environ.get("BLACKOUT_BROWSER") != "required":
        pytest.skip("no Chromium: put one on the PATH, or its path into BLACKOUT_CHROMIUM", allow_module_level=True)


@contextmanager
def chromium() -> Iterator[Browser]:
    path = chromium_path()
    assert path is not None, "BLACKOUT_BROWSER=required, but there is no Chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGS)
        yield browser
        browser.close()


class Log:
    """The errors and requests of a page."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.urls: list[str] = []

    def watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: self.urls.append(request.url))

    def check(self, host: str) -> None:
        """Assert that no request went to another host, and that there was no error; Chromium logs status 400 as one."""
        assert {url.split("/")[2] for url in self.urls if not url.startswith(("blob:", "data:"))} == {host}
        assert [error for error in self.errors if "Failed to load resource" not in error] == []
