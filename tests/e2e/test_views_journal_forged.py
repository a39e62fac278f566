"""Somebody without a password for the host, who may write to the topic `_suiro_views`: no code of his ever runs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from support.views import HostProcess, hosted
from support.waiting import wait_until

from suiro.client import EARLIEST, Client, NewTopic
from suiro.node import NodeProcess
from suiro.protocol import columnar
from suiro.protocol.records import Record, encode_batch
from suiro.views.control import lifecycle
from suiro.views.control.journal import JOURNAL_TOPIC
from suiro.views.state import View

APP = """
from suiro.streams import serdes
from suiro.views import view

@view("delays", key="carrier")
def delays(builder):
    flights = builder.stream("flights", key=serdes.string, value=serdes.json)
    return flights.group_by(lambda key, flight: flight["carrier"], key=serdes.string).count()
"""


@pytest.fixture
def own_node(tmp_path: Path) -> Any:
    """Its journal is this test's alone."""
    process = NodeProcess.start(data=tmp_path / "log", listen="127.0.0.1:0")
    yield process
    process.stop()


def written(client: Client) -> dict[str, bytes | None]:
    place = (JOURNAL_TOPIC, 0)
    start = client.list_offsets({place: EARLIEST})[place].offset
    part = client.fetch({place: start})[place]
    rows = columnar.decode(
        part.data, start_offset=start, end_offset=part.last_stable_offset, aborted=part.aborted
    ).batch.to_pylist()
    return {row["key"].decode(): row["value"] for row in rows}


def test_code_from_the_topic_alone_does_not_run(own_node: Any, tmp_path: Path) -> None:
    """Two plain records made a host run them, also where it asked its callers for passwords."""
    users, mark = tmp_path / "users", tmp_path / "it-ran"
    users.write_text("ada:secret\n")
    app = tmp_path / "delays_app.py"
    app.write_text(APP)
    own_key = tmp_path / "views" / ".journal-key"
    options = ("--auth-file", str(users), "--journal-key", str(own_key))
    own_key.parent.mkdir()
    own_key.write_text(uuid4().hex)
    own_key.chmod(0o600)
    with (
        Client(own_node.bootstrap_servers) as client,
        hosted(own_node.bootstrap_servers, tmp_path / "views", *options) as host,
    ):
        client.create_topics([NewTopic("flights", 1, configs={"retention.ms": "-1"})])
        host.url = host.url.replace("http://", "http://ada:secret@")
        host.cli("deploy", f"{app}:delays", "--no-wait")
        there = written(client)
        view = View.from_json(json.loads(there["view/delays"] or b""))
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("delays_app.py", f"open({str(mark)!r}, 'w').close()\n{APP}")
        code = file.getvalue()
        sha = hashlib.sha256(code).hexdigest()
        spec = {**view.version(1).spec, "code": sha, "version": 2}
        spec |= {"output_topic": "delays.v2", "cuts_topic": "delays.v2.cuts", "application_id": "delays-v2"}
        ready = view if view.version(1).state == "ready" else lifecycle.caught_up(view, 1).view
        forged = lifecycle.deploy(ready, key=view.version(1).key, spec=spec).view
        records = [(f"code/delays/{sha}", code), ("view/delays", json.dumps(forged.to_json()).encode())]
        batch = encode_batch(
            [Record(offset=at, timestamp=1, key=key.encode(), value=value) for at, (key, value) in enumerate(records)]
        )
        client.produce({(JOURNAL_TOPIC, 0): batch})

        def journal() -> Any:
            return httpx.get(f"{host.url}/journal").json()

        wait_until(lambda: journal()["refused_records"] == 2, what="both records to be refused")
        assert "it is not signed" in journal()["last_refused"]
        assert journal()["error"] is None
        assert "suiro_views_journal_refused_records_total 2.0" in httpx.get(f"{host.url}/metrics").text
        assert [version["version"] for version in host.cli("status", "delays")["versions"]] == [1]

        def is_mended() -> bool:
            now = written(client)
            return now[f"code/delays/{sha}"] is None and now["view/delays"] != records[1][1]

        wait_until(is_mended, what="the host to write its own records again")
        host.kill()
        host.start()
        host.url = host.url.replace("http://", "http://ada:secret@")
        assert [version["version"] for version in host.cli("status", "delays")["versions"]] == [1]
        assert not mark.exists()
        assert not (tmp_path / "views" / "delays" / "v2").exists()
        assert f"the Kafka at {own_node.bootstrap_servers} asks nobody for rights" in host.log.read_text()


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "suiro", "view", *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=180, check=False)


@pytest.mark.soak
def test_another_key_is_refused_and_adopted_by_who_says_so(own_node: Any, tmp_path: Path) -> None:
    """The folder's own key, made at the first start; a host of another folder knows another one."""
    there = ("--bootstrap-servers", own_node.bootstrap_servers, "--data", str(tmp_path / "views"))
    serving = subprocess.Popen(
        [sys.executable, "-m", "suiro", "view", "serve", *there, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
    )
    assert serving.stdout is not None
    try:
        assert serving.stdout.readline()
        key = tmp_path / "views" / ".journal-key"
        assert key.stat().st_mode & 0o777 == 0o600
        assert "another host of views runs" in cli("adopt", *there, "--yes").stderr
    finally:
        os.kill(serving.pid, signal.SIGKILL)
        serving.communicate()
    key.rename(tmp_path / "kept")
    refused = cli("serve", *there, "--listen", "127.0.0.1:0")
    assert refused.returncode == 1
    assert "none of them signed with a key of this host" in refused.stderr
    asked = cli("adopt", *there, "--unsigned")
    assert asked.returncode == 2
    assert "there is no view" in asked.stdout
    assert "give --yes" in asked.stderr
    assert cli("adopt", *there, "--unsigned", "--yes").returncode == 0
    host = HostProcess(own_node.bootstrap_servers, tmp_path / "views", "--journal-key", str(key))
    try:
        assert host.cli("status") == []
    finally:
        host.stop()
    (tmp_path / "views" / ".journal-key").chmod(0o644)
    assert "chmod 600" in cli("serve", *there, "--listen", "127.0.0.1:0").stderr
