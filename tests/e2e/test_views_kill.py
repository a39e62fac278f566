"""Kill -9 of host, pipelines and followers at drawn moments of every command: each ends as one of two defined states.
Readers, who read all through, get no wrong answer and no error that a retry does not cure."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.views import CARRIERS, Feed, HostProcess, Reader, write_app
from support.waiting import wait_until

from suiro.errors import SuiroError
from suiro.views import Views
from suiro.views.state import UnknownViewError

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3_600)]

LATEST_KILL_S = 0.6
"""After a command was sent: it is done by then, or what it set off is under way."""
DEPLOY_KILL_S = 6.0  # its check takes seconds
DEADLINE_S = 600


@pytest.fixture
def story(suiro_node: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Story]:
    made = Story(suiro_node.bootstrap_servers, tmp_path, seed=request.param)
    yield made
    made.close()


class Story:
    def __init__(self, bootstrap_servers: str, folder: Path, *, seed: int) -> None:
        self.view = f"delays_{uuid4().hex[:8]}"
        self.feed = Feed(bootstrap_servers, f"flights-{uuid4().hex[:8]}", seed=seed)
        self.host = HostProcess(bootstrap_servers, folder / "views")
        self.views = Views(self.host.url, timeout_s=60)
        self.kills: list[str] = []
        self._folder = folder
        self._random = random.Random(seed)
        print(f"seed {seed}", file=sys.stderr)

    def close(self) -> None:
        print(f"killed: {self.kills}\n{self.host.tail()}", file=sys.stderr)
        self.views.close()
        if self.host.process.poll() is None:
            self.host.stop()
        self.feed.close()

    def deploy(self, version: int) -> None:
        self.views.deploy(write_app(self._folder, version, view=self.view, topic=self.feed.topic))

    def stands(self) -> str:
        """The position, and the share of callers on the candidate where there is one."""
        try:
            status = self._status()
        except UnknownViewError:
            return "none"
        share = status["routing"]["share"]
        return f"{status['position']} {share / 100:g}" if share else str(status["position"])

    def _status(self) -> dict[str, Any]:
        """Asked again while the host is away."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self.views.status(self.view)
            except UnknownViewError:
                raise
            except SuiroError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def under_fire(
        self,
        command: Callable[[], Any],
        *,
        before: Sequence[str],
        after: Sequence[str],
        latest_s: float = LATEST_KILL_S,
    ) -> None:
        """Gives the command while something is killed; the view is as before, or as after it; then it is given again,
        if need be, until it is done."""
        while True:
            assert self.stands() in before
            self._fire(command, latest_s)
            found = self.stands()
            assert found in (*before, *after), found
            if found in after:
                return

    def _fire(self, command: Callable[[], Any], latest_s: float = DEPLOY_KILL_S) -> None:
        def run() -> None:
            try:
                command()
            except SuiroError as error:
                print(f"refused, or lost its answer: {error}", file=sys.stderr)

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(self._random.uniform(0, latest_s))
        self._kill(self._random.choice(["host", "host", "pipeline", "follower"]))
        thread.join()

    def _kill(self, what: str) -> None:
        self.kills.append(what)
        if what == "host":
            self.host.kill()
            self.host.start()
            return
        try:
            versions = self._status()["versions"]
        except UnknownViewError:
            return  # nothing runs yet
        pids = [
            version["pipeline"]["pid"] if what == "pipeline" else version["follower_pid"]
            for version in versions
            if "pipeline" in version
        ]
        for pid in self._random.sample([pid for pid in pids if pid], k=min(1, len(pids))):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def waits_for(self, *positions: str) -> None:
        """While the host builds; it is killed once more on the way."""
        time.sleep(self._random.uniform(0, 10))
        self._kill("host")
        wait_until(lambda: self.stands() in positions, deadline_s=DEADLINE_S, what=f"{positions}")

    def rows(self, version: int) -> dict[str, Any]:
        """Once the version reflects all that was fed."""
        places = ",".join(f"{self.feed.topic}:{partition}:{end - 1}" for partition, end in self.feed.ends.items())

        def read() -> Any:
            try:
                return self.views.rows(self.view, version=version, min_offset=places, timeout_ms=5_000)
            except SuiroError:
                return None

        answer = wait_until(read, deadline_s=DEADLINE_S, what=f"version {version} to reflect all")
        return {row["key"]["carrier"]: row["value"] for row in answer["rows"]}

    def expected(self, version: int) -> dict[str, Any]:
        return {carrier: self.feed.expected(version, carrier, self.feed.ends) for carrier in CARRIERS}


@pytest.mark.parametrize("story", [random.randrange(1 << 30)], indirect=True)
def test_every_command_under_fire(story: Story) -> None:
    views, view = story.views, story.view
    story.feed.send(400)
    story.under_fire(lambda: story.deploy(1), before=["none"], after=["first", "alone"], latest_s=DEPLOY_KILL_S)
    story.waits_for("alone")
    assert story.rows(1) == story.expected(1)
    with Reader(story.host.url, view, story.feed) as reader:
        story.under_fire(lambda: story.deploy(2), before=["alone"], after=["building", "ready"], latest_s=DEPLOY_KILL_S)
        story.feed.send(200)
        story.waits_for("ready")
        assert story.rows(2) == story.expected(2)
        assert story.rows(1) == story.expected(1)
        story._fire(lambda: views.compare(view))
        compared = wait_until(lambda: _compared(views, view), deadline_s=DEADLINE_S, what="a comparison")
        assert (compared["equal"], compared["differing"]) == (1, len(CARRIERS) - 1)
        lag = 3_600_000  # a pipeline that was killed just now is minutes behind on a busy machine
        stood = "ready"
        for percent, then in ((1, "shifting 1"), (50, "shifting 50"), (100, "shifted 100")):
            shift = partial(views.shift, view, percent, max_lag_ms=lag)
            story.under_fire(shift, before=[stood], after=[then])
            stood = then
            story.feed.send(20)
        story.under_fire(partial(views.rollback, view), before=[stood], after=["rolled back"])
        story.under_fire(partial(views.forward, view, max_lag_ms=lag), before=["rolled back"], after=[stood])
        story.under_fire(partial(views.retire, view, 1, yes=True), before=[stood], after=["alone"])
        wait_until(
            lambda: not (story.host.data / view / "v1").exists(),
            deadline_s=DEADLINE_S,
            what="version 1 to be freed",
        )
        story.feed.send(20)
        assert story.rows(2) == story.expected(2)
    reader.check(views.history(view))
    assert reader.reads > 100


def _compared(views: Views, view: str) -> Any:
    try:
        return views.compare(view)["result"]
    except SuiroError:
        return None
