"""The story of a view, clicked through in Chromium: a node, a host of views and a console, each a process."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.views import fed, hosted, write_app

from suiro.node import NodeProcess
from suiro.views import Views

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; `apt-get install chromium` brings it"),
]
BUILT_MS = 300_000
"""For starts of Spark on a busy machine."""
WAIT_MS = 30_000


@contextmanager
def console(bootstrap_servers: str, views: str, log: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "suiro", "console", "--bootstrap-servers", bootstrap_servers]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--views", views, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=errors
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield json.loads(line)["url"]
    finally:
        process.kill()
        process.wait()


@contextmanager
def browsing(url: str) -> Iterator[Any]:
    """A page. What is wrong on the browser's console fails the test."""
    wrong: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.goto(f"{url}/#/views")
        yield page
        browser.close()
    assert wrong == []


def test_two_versions_from_deploy_to_retire(tmp_path: Path) -> None:
    """On a node of its own: its views would be those of other tests, too."""
    expect.set_options(timeout=WAIT_MS)
    view = f"delays_{uuid4().hex[:8]}"
    with (
        NodeProcess.start(data=tmp_path / "log") as node,
        fed(servers := node.bootstrap_servers) as feed,
        hosted(servers, tmp_path / "views") as host,
        console(servers, host.url, tmp_path / "console.log") as url,
        browsing(url) as page,
    ):
        feed.send(400)
        dialog = page.get_by_role("dialog")
        versions = {n: page.get_by_role("article", name=f"Version {n}", exact=True) for n in (1, 2)}
        callers = page.locator(".share")

        def deploy(number: int) -> None:
            app = write_app(tmp_path, number, view=view, topic=feed.topic).rpartition(":")[0]
            page.get_by_role("button", name="Deploy…").click()
            dialog.get_by_label("Python files").set_input_files(app)
            expect(dialog).to_contain_text("delays_app.py:delays")
            dialog.get_by_role("button", name="Deploy", exact=True).click()
            expect(versions[number].locator(".state").first).to_have_text("ready", timeout=BUILT_MS)

        def sure(button: str) -> None:
            page.get_by_role("button", name=button).click()
            dialog.get_by_role("button", name=button.removesuffix("…"), exact=True).click()
            expect(dialog).to_have_count(0)

        deploy(1)
        expect(page).to_have_url(re.compile(f"#/views/0/{view}$"))
        expect(callers).to_contain_text("version 1 100 %")
        deploy(2)
        with Views(host.url, caller="me") as views:
            # -- how they differ, down to a record
            page.get_by_role("link", name="Differences").click()
            page.get_by_role("button", name="Compare the versions").click()
            expect(page.get_by_text("Rows that differ", exact=True)).to_be_visible(timeout=BUILT_MS)
            expect(page.locator(".tile", has_text="Rows that differ")).to_contain_text("4 of 5")
            page.get_by_role("button", name="Why", exact=True).first.click()
            place = page.locator("pre a").first
            expect(place).to_have_text(re.compile(rf"^{feed.topic}-\d+@\d+$"), timeout=BUILT_MS)
            place.click()
            expect(page.get_by_role("complementary", name="Record")).to_contain_text(re.compile(r"delay.*null"))
            page.go_back()
            page.get_by_role("link", name="Versions").click()

            # -- a shift whose guard is broken goes back by itself
            page.get_by_role("button", name="Shift…").click()
            dialog.get_by_label("Steps").fill("50, 100")
            dialog.get_by_label("Hold").fill("10")
            dialog.get_by_label("Rows that differ, max %").fill("50")
            dialog.get_by_role("button", name="Shift", exact=True).click()
            expect(dialog).to_have_count(0)
            expect(page.get_by_role("button", name="Forward…")).to_be_visible(timeout=BUILT_MS)
            page.get_by_role("link", name="History").click()
            history = page.get_by_role("list", name="Decisions")
            expect(history).to_contain_text("80.00% of the rows of version 2 differ; the guard allows 50.00%")
            page.get_by_role("link", name="Versions").click()

            # -- one whose guard holds, step by step
            page.get_by_role("button", name="Shift…").click()
            dialog.get_by_label("Steps").fill("50, 100")
            dialog.get_by_label("Hold").fill("0.05")
            dialog.get_by_label("Rows that differ, max %").fill("90")
            dialog.get_by_role("button", name="Shift", exact=True).click()
            expect(dialog).to_have_count(0)
            expect(page.locator(".guard", has_text="Rows that differ")).to_contain_text(
                "80 % of 90 %", timeout=BUILT_MS
            )
            expect(callers).to_contain_text("version 2 100 %", timeout=BUILT_MS)
            assert views.get(view, "UA")["version"] == 2

            sure("Roll back")
            expect(callers).to_contain_text("version 2 0 %")
            assert views.get(view, "UA")["version"] == 1
            sure("Forward…")
            expect(callers).to_contain_text("version 2 100 %")
            assert views.get(view, "UA")["version"] == 2

            versions[1].get_by_role("button", name="Retire…").click()
            retire = dialog.get_by_role("button", name="Retire", exact=True)
            expect(retire).to_be_disabled()
            dialog.get_by_role("textbox").fill(view)
            retire.click()
            expect(dialog).to_have_count(0)
            expect(callers).to_contain_text("version 2 100 %")
            expect(callers).to_contain_text("no candidate")
            expect(versions[1].locator(".state").first).to_have_text("retired")
        page.get_by_role("link", name="History").click()
        expect(page.locator(".timeline b").first).to_have_text("retire serving")
        # The plan of the last shift may end before the rollback or not, which is one event more of the same kind.
        events = [one.split()[0] for one in page.locator(".timeline b").all_inner_texts()]
        told = [command for command, _ in groupby(events)]
        assert told == [
            *("retire", "forward", "rollback", "shift", "trip", "shift"),
            *("caught", "deploy", "caught", "deploy"),
        ]
