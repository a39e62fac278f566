"""OpenLineage events of connectors and of a capture: their datasets, and how their runs end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

from support.capturing import Capture
from support.connecting import reaches, running, state
from support.http_peer import Answer, HttpPeer
from support.openlineage import check_event, events_of, turns
from support.postgres import Postgres
from support.waiting import wait_until

from suiro.registry import RegistryProcess
from suiro.telemetry import sender_to

FAILING = """
from suiro.errors import FatalError

class Failing:
    fails = True

    def __init__(self, settings, about):
        pass

    def open(self, position):
        if Failing.fails:
            raise FatalError("the source is gone")

    def poll(self):
        import threading
        threading.Event().wait(0.01)

    def close(self):
        pass
"""


def test_runs_of_connectors(suiro_node: Any, tmp_path: Path) -> None:
    name = f"l{uuid4().hex[:6]}"
    (tmp_path / f"{name}.py").write_text(FAILING)
    (tmp_path / "in").mkdir()
    text = f"""
[source.rows]
kind = "files"
topic = "{name}"
folder = "in"

[source.failing]
kind = "{name}:Failing"
topic = "{name}.other"
"""
    file = tmp_path / "events"
    sender = sender_to(str(file))
    assert sender is not None
    with running(tmp_path, suiro_node.bootstrap_servers, text, lineage=sender) as runtime:
        reaches(runtime, "failing", lambda status: status["state"] == "FAILED", "FAILED")
        import sys

        sys.modules[name].Failing.fails = False
        runtime.restart("failing")
        runtime.pause("rows")
        reaches(runtime, "rows", lambda status: status["state"] == "PAUSED", "PAUSED")
        wait_until(lambda: state(runtime, "failing")["state"] == "RUNNING")
        runtime.resume("rows")
        wait_until(lambda: len(turns(events_of(file.read_text()))) == 6, what="six events")
    sender.close()
    events = turns(events_of(file.read_text()))
    kinds = {job: [one["eventType"] for one in events if one["job"]["name"] == job] for job in ("rows", "failing")}
    assert kinds["rows"] == ["START", "COMPLETE", "START", "COMPLETE"]
    assert kinds["failing"] == ["START", "FAIL", "START", "COMPLETE"]
    assert len({one["run"]["runId"] for one in events}) == 4
    rows = next(one for one in events if one["job"]["name"] == "rows")
    assert [(one["namespace"], one["name"]) for one in rows["inputs"]] == [("file", str(tmp_path / "in"))]
    assert [one["name"] for one in rows["outputs"]] == [name]
    failed = next(one for one in events if one["eventType"] == "FAIL")
    assert failed["run"]["facets"]["errorMessage"]["message"] == "FatalError: the source is gone"


def test_a_capture_names_its_tables_and_their_columns(
    suiro_node: Any,
    registry: RegistryProcess,
    postgres: Postgres,
    prefix: str,
    connection: Any,
    tmp_path: Path,
) -> None:
    connection.execute("create table orders (id bigint primary key, note varchar(20))")
    connection.execute("insert into orders values (1, 'x')")
    with HttpPeer(lambda asked: Answer(201)) as peer:
        capture = Capture(
            tmp_path / "capture.log",
            dsn=postgres.dsn.replace("/postgres?", f"/{prefix}?"),
            bootstrap=suiro_node.bootstrap_servers,
            registry=registry.url,
            topic_prefix=prefix,
            openlineage=peer.url,
        )
        try:
            capture.ready()
            wait_until(lambda: len(peer.asked) >= 2, what="START and RUNNING")
            os.kill(capture.process.pid, signal.SIGTERM)
            assert capture.ended() == 0, capture.said()
        finally:
            capture.process.kill()
            capture.process.wait()
        events = [check_event(json.loads(one.body)) for one in peer.asked]
    assert (events[0]["eventType"], events[-1]["eventType"]) == ("START", "COMPLETE")
    assert {one["job"]["name"] for one in events} == {f"{prefix}.suiro_{prefix}"}
    (table,), (topic,) = events[-1]["inputs"], events[-1]["outputs"]
    assert table["namespace"].startswith("postgres://")
    assert table["name"] == f"{prefix}.public.orders"
    assert [(one["name"], one["type"]) for one in table["facets"]["schema"]["fields"]] == [
        ("id", "bigint"),
        ("note", "character varying(20)"),
    ]
    assert topic["name"] == f"{prefix}.public.orders"
    origins = topic["facets"]["columnLineage"]["fields"]
    assert origins["note"]["inputFields"] == [
        {
            "namespace": table["namespace"],
            "name": table["name"],
            "field": "note",
            "transformations": [{"type": "DIRECT", "subtype": "IDENTITY"}],
        }
    ]
