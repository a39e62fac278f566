"""`suiro run --openlineage --otlp`: an application that is killed and comes back; each of its runs gets an end, and a
collector gets its metrics and the spans of its records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from suiro.client import Client, NewTopic
from suiro.node import NodeProcess
from suiro.protocol.records import Record, encode_batch
from tests.support.http_peer import Answer, HttpPeer
from tests.support.openlineage import check_event, turns
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PATHS = ("/api/v1/lineage", "/v1/traces", "/v1/metrics")
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
        command = [sys.executable, "-m", "suiro", "run", str(tmp_path / "copying.py")]
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
        with Client(node.bootstrap_servers) as client:
            headers = (("traceparent", f"00-{'a' * 32}-{'b' * 16}-01".encode()),)
            record = Record(offset=0, timestamp=1_700_000_000_000, key=b"k", value=b"v", headers=headers)
            client.produce({("in", 0): encode_batch([record])})
        command += ["--otlp", peer.url]
        again = subprocess.run([*command, "--until-done"], env=environment, capture_output=True, timeout=300)
        assert again.returncode == 0, again.stderr
        by_path = {path: [one.body for one in peer.asked if one.path == path] for path in PATHS}
        (traces,) = map(ExportTraceServiceRequest.FromString, by_path["/v1/traces"])
        (span,) = traces.resource_spans[0].scope_spans[0].spans
        assert (span.name, span.parent_span_id.hex()) == ("process in", "b" * 16)
        pushed = ExportMetricsServiceRequest.FromString(by_path["/v1/metrics"][-1])
        names = {metric.name for metric in pushed.resource_metrics[0].scope_metrics[0].metrics}
        assert "suiro_query_micro_batch" in names
        events = turns([check_event(json.loads(body)) for body in by_path["/api/v1/lineage"][1:]])
        assert [one["eventType"] for one in events] == ["START", "ABORT", "START", "COMPLETE"]
        first, aborted, second, completed = (one["run"]["runId"] for one in events)
        assert (first, second) == (aborted, completed)
        assert first != second
        assert {(one["job"]["namespace"], one["job"]["name"]) for one in events} == {("shop", "copying")}
