"""A real browser for the tests of the page."""

import os
import shutil

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def chromium_path() -> str | None:
    """BLACKOUT_CHROMIUM, or the first Chromium on the PATH."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return os.environ.get("BLACKOUT_CHROMIUM") or next((path for path in found if path), None)
