"""A real browser for the tests of the page."""

import os
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def chromium_path() -> str | None:
    """BLACKOUT_CHROMIUM, or the first Chromium on the PATH, or the one that Playwright has fetched."""
    named = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    found = os.environ.get("BLACKOUT_CHROMIUM") or next((path for path in named if path), None)
    if found is None:
        with sync_playwright() as playwright:
            found = playwright.chromium.executable_path
    return found if Path(found).exists() else None
