"""All versions of a host on one JVM, each process killed: the JVM, its guard, a pipeline, the host. Readers, who read
all through, get no wrong answer, and nothing is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.views import Feed, HostProcess, Reader, expected, hosted, rows_of, write_app
from support.waiting import is_running, wait_until

from suiro.errors import TransientError
from suiro.views import Views

# CI's time: five starts of Spark. `tests/spark/test_shared_jvm.py` kills what shares a JVM, without views.
pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1_800)]

DEADLINE_S = 300.0


class Story:
    def __init__(self, host: HostProcess, feed: Feed, folder: Path) -> None:
        self.host, self.feed, self.folder = host, feed, folder
        self.view = f"delays_{uuid4().hex[:8]}"
        self.views = Views(host.url, timeout_s=120)

    def deploy(self, version: int, **settings: str) -> None:
        app = write_app(self.folder, version, view=self.view, topic=self.feed.topic)
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.views.deploy(app, settings=named)
        position = "alone" if version == 1 else "ready"
        wait_until(
            lambda: self.views.status(self.view)["position"] == position,
            what=f"version {version}",
            deadline_s=DEADLINE_S,
        )

    def version(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.views.status(self.view)["versions"][number - 1]
        return found

    def jvm(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.version(1)["shared_jvm"]
        return found

    def java(self) -> int:
        """That the versions share. The host has more where another view of the test session has its own."""
        jvm = self.jvm()
        assert jvm is not None
        (found,) = javas(jvm["pid"])
        return found

    def all_is_right(self) -> None:
        """Of records that came after whatever happened before."""
        self.feed.send(40)
        for version in (1, 2):
            found = wait_until(
                lambda version=version: self._rows(version),  # type: ignore[misc]
                what=f"version {version} to go on",
                deadline_s=DEADLINE_S,
            )
            assert found == expected(self.feed, version)

    def _rows(self, version: int) -> dict[str, Any] | None:
        try:
            return rows_of(self.views, self.view, self.feed, version)
        except TransientError:  # its pipeline still starts
            return None


@pytest.fixture
def story(suiro_node: Any, feed: Feed, tmp_path: Path) -> Iterator[Story]:
    with hosted(suiro_node.bootstrap_servers, tmp_path / "views") as host:
        made = Story(host, feed, tmp_path)
        yield made
        made.views.close()


def a_pipeline(story: Story) -> None:
    """The other one's goes on, and so does the JVM."""
    before, jvm = story.version(2)["pipeline"], story.jvm()
    os.kill(story.version(1)["pipeline"]["pid"], signal.SIGKILL)
    story.all_is_right()
    assert story.version(2)["pipeline"] == before
    assert story.version(1)["pipeline"]["restarts"] == 1
    assert story.jvm() == jvm


def the_jvm(story: Story) -> None:
    """In the middle of what comes in."""
    story.feed.send(40)
    os.kill(story.java(), signal.SIGKILL)
    story.all_is_right()
    assert [story.version(number)["state"] for number in (1, 2)] == ["ready", "ready"]


def its_guard(story: Story) -> None:
    """The JVM goes with it."""
    java, jvm = story.java(), story.jvm()
    assert jvm is not None
    os.kill(jvm["pid"], signal.SIGKILL)
    story.all_is_right()
    assert not is_running(java)


def the_host(story: Story) -> None:
    """Everything goes with it."""
    left = [story.host.process.pid, *descendants(story.host.process.pid)]
    story.host.kill()
    wait_until(lambda: not [pid for pid in left if is_running(pid)], what="all to end", deadline_s=DEADLINE_S)
    story.host.start()
    story.all_is_right()


@pytest.mark.parametrize(
    "killed",
    [
        pytest.param([a_pipeline, the_jvm], id="a pipeline and the JVM"),
        pytest.param([a_pipeline, the_jvm, its_guard, the_host], id="everybody"),
    ],
)
def test_two_versions_on_one_jvm_go_on_whoever_is_killed(story: Story, killed: list[Callable[[Story], None]]) -> None:
    story.feed.send(400)
    story.deploy(1)
    with Reader(story.host.url, story.view, story.feed) as reader:
        story.deploy(2)
        assert [javas(story.version(number)["pipeline"]["pid"]) for number in (1, 2)] == [[], []]
        story.all_is_right()
        for kill in killed:
            kill(story)
    reader.check(story.views.history(story.view))
    story.views.shift(story.view, 100)
    story.views.retire(story.view, 1, yes=True)
    story.feed.send(40)
    assert rows_of(story.views, story.view, story.feed, 2) == expected(story.feed, 2)
    folder = story.folder / "views" / story.view / "v1"
    wait_until(lambda: not folder.exists(), what="version 1 to be freed")
    wait_until(lambda: not with_folder(folder), what="its daemons to be gone")


def test_a_version_that_wants_a_jvm_of_its_own(story: Story) -> None:
    story.feed.send(100)
    story.deploy(1)
    story.deploy(2, jvm="own")
    assert story.version(2)["shared_jvm"] is None
    assert [len(javas(story.version(number)["pipeline"]["pid"])) for number in (1, 2)] == [0, 1]
    os.kill(story.java(), signal.SIGKILL)
    story.all_is_right()
    assert story.version(2)["pipeline"]["restarts"] == 0


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    found, left = [], [root]
    while left:
        new = children.get(left.pop(), [])
        found += new
        left += new
    return found


def javas(root: int) -> list[int]:
    return [pid for pid in descendants(root) if name_of(pid) == "java"]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def with_folder(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            found += [int(entry.parent.name)] if os.readlink(entry).startswith(str(folder)) else []
        except OSError:
            continue
    return found
