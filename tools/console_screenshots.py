"""Draws the pictures of the console's pages for the documentation: `python tools/console_screenshots.py`.

Against the console without a cluster that the page's tests use, in both themes, with the Chromium of this machine.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support import fake_console_cluster, fake_console_services  # noqa: E402
from support.fake_console import FakeConsole  # noqa: E402

IMAGES = ROOT / "docs" / "images" / "console"
MAX_BYTES = 150_000
SETTLING_MS = 500  # of charts, which are drawn after the page
PAGES = {
    "overview": "#/overview",
    "topic": "#/topics/flights",
    "records": "#/topics/flights/records?at=0:4990",
    "groups": "#/groups",
    "dead-letters": "#/dead-letters/flights.dead-letters",
    "view": "#/views/0/carrier_delays",
    "application": "#/applications/0",
    "store": "#/applications/0/stores/delays",
    "schema": "#/schemas/orders-value?old=1",
    "connectors": "#/connectors",
}


def main() -> None:
    # Names and texts that try to be markup are for the tests.
    fake_console_cluster.HOSTILE = fake_console_services.HOSTILE = "schedule-import"
    fake_console_cluster.HOSTILE_NAME = fake_console_services.HOSTILE_NAME = "archive"
    fake_console_services.ORDER_2["doc"] = "An order, with its total in cents"
    IMAGES.mkdir(parents=True, exist_ok=True)
    console = FakeConsole()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for theme in ("light", "dark"):
            context = browser.new_context(
                color_scheme="light" if theme == "light" else "dark",
                viewport={"width": 1180, "height": 640},
                timezone_id="UTC",
                reduced_motion="reduce",
            )
            page = context.new_page()
            for name, target in PAGES.items():
                page.goto(f"{console.url}/{target}")
                page.wait_for_function(
                    "() => document.querySelector('main h1') && !document.querySelector('main .loading')"
                )
                page.wait_for_timeout(SETTLING_MS)
                path = IMAGES / f"{name}-{theme}.png"
                page.screenshot(path=path)
                size = path.stat().st_size
                if size > MAX_BYTES:
                    raise SystemExit(f"{path} has {size} bytes, more than {MAX_BYTES}")
                print(path.relative_to(ROOT), size)
            context.close()
        browser.close()
    console.stop()


if __name__ == "__main__":
    main()
