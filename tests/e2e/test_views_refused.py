"""What goes wrong beside a version that serves: each a clear error with what to do, and nothing half done.

By the command line, on a real node and Spark. After every step the routing is as it was, and version 1 answers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.views import Feed, HostProcess, Reader, expected, hosted, rows_of, write_app
from support.waiting import wait_until

from suiro.views import Views

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1_800)]

SPARE_BYTES = 256 << 20
"""Of the host's disk, where it is one of its own."""
FAILING = 'flights.filter(lambda key, flight: flight["never"] > 0)'


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of the host's own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SPARE_BYTES}", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def host_on_disk(suiro_node: Any, disk: Path) -> Iterator[HostProcess]:
    with hosted(suiro_node.bootstrap_servers, disk / "views") as made:
        yield made


def test_beside_a_version_that_serves(host: HostProcess, feed: Feed, tmp_path: Path) -> None:
    view = f"delays_{uuid4().hex[:8]}"
    feed.send(200)
    app = write_app(tmp_path, 1, view=view, topic=feed.topic)
    path = Path(app.rpartition(":")[0])
    host.cli("deploy", app)
    routing = host.cli("status", view)["routing"]
    with Views(host.url, caller="me", timeout_s=120) as views, Reader(host.url, view, feed) as reader:

        def as_before() -> None:
            assert host.cli("status", view)["routing"] == routing
            feed.send(20)
            assert rows_of(views, view, feed, 1) == expected(feed, 1)

        def change(old: str, new: str) -> None:
            text = path.read_text()
            assert old in text
            path.write_text(text.replace(old, new))

        # A key of another shape.
        change('key="carrier"', 'key=("carrier", "day")')
        said = host.cli("deploy", app, ok=False)
        assert "(carrier) in version 1 and (carrier, day) in what" in said
        as_before()

        # Code that does not load, and a topology that is none.
        write_app(tmp_path, 1, view=view, topic=feed.topic)
        change("from suiro.views import view", "from suiro.views import view, nothing")
        assert "ImportError: cannot import name 'nothing'" in host.cli("deploy", app, ok=False)
        as_before()

        # A version that fails over a record while it is built.
        write_app(tmp_path, 1, view=view, topic=feed.topic)
        change("return flights.", f"return {FAILING}.")
        said = host.cli("deploy", app, ok=False)
        assert "KeyError: 'never'" in said
        assert view in said
        assert host.cli("status", view)["position"] == "alone"
        as_before()

        # Two deploys at once: one is taken, the other told why not.
        write_app(tmp_path, 2, view=view, topic=feed.topic)
        with ThreadPoolExecutor(2) as both:
            done = list(both.map(lambda _: deployed(host, app), range(2)))
        assert sorted(code for code, _ in done) == [0, 1], done
        (refused,) = (text for code, text in done if code)
        assert "somebody else changed view" in refused or "at most two versions" in refused
        assert host.cli("status", view)["position"] == "ready"

        # Switching to a version that lags.
        number = host.cli("status", view)["routing"]["candidate"]
        follower = next(
            version["follower_pid"] for version in host.cli("status", view)["versions"] if version["version"] == number
        )
        os.kill(follower, signal.SIGSTOP)
        try:
            feed.send(20)
            assert rows_of(views, view, feed, 1) == expected(feed, 1)
            wait_until(lambda: lags(host, view, number), 60, "the stopped version to be known to lag")
            said = host.cli("shift", view, "10", "--max-lag", "1ms", ok=False)
            assert f"version {number}" in said
            assert "lags behind version 1" in said
            assert host.cli("status", view)["routing"]["share"] == 0
        finally:
            os.kill(follower, signal.SIGCONT)
        assert rows_of(views, view, feed, number) == expected(feed, 2)
        assert host.cli("shift", view, "100")["routing"]["share"] == 10_000
        assert host.cli("rollback", view)["routing"]["share"] == 0
    reader.check(host.cli("history", view))


def deployed(host: HostProcess, app: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "suiro", "view", "deploy", app, "--url", host.url, "--json"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return done.returncode, done.stderr


def lags(host: HostProcess, view: str, number: int) -> bool:
    versions = {version["version"]: version for version in host.cli("status", view)["versions"]}
    return bool(versions[number]["lag_ms"])


def test_a_full_disk(host_on_disk: HostProcess, disk: Path, feed: Feed, tmp_path: Path) -> None:
    """Reads go on at the last cut that had room; the status says what is wrong; with room it goes on, exact."""
    host, view = host_on_disk, f"delays_{uuid4().hex[:8]}"
    feed.send(200)
    host.cli("deploy", write_app(tmp_path, 1, view=view, topic=feed.topic))
    with Views(host.url, caller="me", timeout_s=120) as views, Reader(host.url, view, feed) as reader:
        assert rows_of(views, view, feed, 1) == expected(feed, 1)
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file:  # buffered bytes would fail again when it is closed
            while True:
                try:
                    file.write(bytes(1 << 16))
                except OSError:
                    break
        for _ in range(40):  # what has room in the files that are there already is used up first
            feed.send(100)
        wait_until(lambda: "No space left" in told(host, view) or "no room" in told(host, view), 120, "the error")
        seen = reader.reads
        wait_until(lambda: reader.reads > seen + 50, 60, "reads to go on")
        filler.unlink()
        wait_until(lambda: is_exact(views, view, feed), 300, "the rows of all records")
    reader.check(host.cli("history", view))


def told(host: HostProcess, view: str) -> str:
    return str(host.cli("status", view)) + host.tail()


def is_exact(views: Views, view: str, feed: Feed) -> bool:
    rows = views.rows(view, version=1)["rows"]
    return {row["key"]["carrier"]: row["value"] for row in rows} == expected(feed, 1)
