"""A version's follower is a process of its own: killed it goes on, and it ends with whoever started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.view_output import Output, spec_of
from support.waiting import is_running, wait_until

from suiro.client import Client
from suiro.testing import node
from suiro.views.pipeline.archive import archive_of
from suiro.views.pipeline.follower import Follower
from suiro.views.store import open_store

APP = """
from suiro.streams import serdes
from suiro.views import view

@view("flights", key=("carrier", "day"))
def flights(builder):
    print("what a user's code prints is no word of the follower")
    return builder.table("in", key=serdes.json, value=serdes.json)
"""
UA, DL = ("UA", "1"), ("DL", "1")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with node() as log, Client(log.bootstrap_servers) as made:
        made.address = log.bootstrap_servers  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    app = tmp_path / "app.py"
    app.write_text(APP)
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "code.zip").write_bytes(archive_of(app))
    return tmp_path / "v1"


def test_it_follows_goes_on_after_kill_9_and_says_what_is_wrong(client: Client, unique: str, folder: Path) -> None:
    spec = spec_of(unique.replace("-", "_"))
    output = Output(client, spec)
    address: str = client.address  # type: ignore[attr-defined]
    output.write({UA: {"n": 0}})
    follower = Follower(spec, folder, folder, bootstrap_servers=address)
    heard: list[int] = []
    follower.listen(lambda: heard.append(1))
    follower.start()
    with open_store(spec, folder) as store:
        wait_until(lambda: follower.cut == output.cuts[0], 60, "the first cut")
        assert store.newest() == output.cuts[0]
        assert heard
        killed = follower.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        output.write({UA: {"n": 1}, DL: {"n": 1}})
        wait_until(lambda: follower.cut == output.cuts[1], 60, "the second cut")
        assert follower.pid not in (killed, None)
        assert follower.error is None
        assert [json.loads(row.value) for row in store.rows().rows] == [{"n": 1}, {"n": 1}]
        # Its code is gone: it says so, for as long as it cannot go on.
        pid = follower.pid
        (folder / "code.zip").rename(folder / "code.away")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: "code.zip" in (follower.error or ""), 60, "the error to be told")
        (folder / "code.away").rename(folder / "code.zip")
        wait_until(lambda: follower.error is None, 60, "the follower to be well again")
        last = follower.pid
        follower.stop()
        follower.stop()
        assert last is not None
        assert not is_running(last)
    assert "what a user's code prints" in (folder / "follower.log").read_text()


HOST = """
import json, sys, threading
from pathlib import Path
from suiro.views.definition import VersionSpec
from suiro.views.pipeline.follower import Follower

follower = Follower(
    VersionSpec.from_json(json.loads(sys.argv[1])), Path(sys.argv[2]), sys.argv[2], bootstrap_servers=sys.argv[3]
)
heard = threading.Event()
follower.listen(heard.set)
follower.start()
heard.wait(60)
print(follower.pid, flush=True)
threading.Event().wait(600)
"""


@pytest.mark.soak  # CI's time
def test_it_ends_with_a_host_that_is_killed(client: Client, unique: str, folder: Path) -> None:
    spec = spec_of(unique.replace("-", "_"))
    Output(client, spec).write({UA: {"n": 0}})
    address: str = client.address  # type: ignore[attr-defined]
    command = [sys.executable, "-c", HOST, json.dumps(spec.to_json()), str(folder), address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        assert is_running(pid)
        host.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_running(pid), 30, "the follower's end")
