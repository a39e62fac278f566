"""`suiro run --openlineage`: an application that is killed and comes back; each of its runs gets an end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from suiro.client import Client, NewTopic
from suiro.node import NodeProcess
from tests.support.http_peer import Answer, HttpPeer
from tests.support.openlineage import check_event
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.soak]

APP = """
from suiro.streams import serdes

def build(builder):
    builder.stream("in", key=serdes.string, value=serdes.string).to("out")
"""


def test_a_killed_run_is_ended_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "copying.py").write_text(APP)
    with NodeProcess.start(data=tmp_path / "log") as node, HttpPeer(lambda asked: Answer(201)) as peer:
        peer.faults.append(Answer(503))
        with Client(node.bootstrap_servers) as client:
            client.create_topics([NewTopic(name, 1) for name in ("in", "out")])
        command = [sys.executable, "-m", "suiro.cli", "run", str(tmp_path / "copying.py")]
        command += ["--bootstrap-servers", node.bootstrap_servers, "--state-dir", str(tmp_path / "state")]
        environment = {**os.environ, "OPENLINEAGE_NAMESPACE": "shop"}
        with (tmp_path / "run.log").open("wb") as output:
            killed = subprocess.Popen([*command, "--openlineage", peer.url], stderr=output, env=environment)
        try:
            wait_until(lambda: len(peer.asked) >= 2 or killed.poll() is not None, 200, "START, refused once")
            assert len(peer.asked) >= 2, (tmp_path / "run.log").read_text()
        finally:
            killed.kill()
            killed.wait()
        environment["OPENLINEAGE_URL"] = peer.url
        again = subprocess.run([*command, "--until-done"], env=environment, capture_output=True, timeout=300)
        assert again.returncode == 0, again.stderr
        events = [check_event(json.loads(one.body)) for one in peer.asked[1:]]
        assert [one["eventType"] for one in events] == ["START", "ABORT", "START", "COMPLETE"]
        first, aborted, second, completed = (one["run"]["runId"] for one in events)
        assert (first, second) == (aborted, completed)
        assert first != second
        assert {(one["job"]["namespace"], one["job"]["name"]) for one in events} == {("shop", "copying")}
