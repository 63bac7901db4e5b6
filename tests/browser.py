"""A browser, where there is one: pages are looked at in it by playwright."""

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
    """The program that BLACKOUT_CHROMIUM names, or the first of its usual names on the path; None: there is none."""
    names = (os.environ.get("BLACKOUT_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)
