"""Requests that cost much more than their bytes: each is bounded, and other clients are answered meanwhile."""

from __future__ import annotations

from pathlib import Path

from support.admin import ask
from support.waiting import wait_until
from support.wire import Wire

from suiro.broker.handlers.metadata import MAX_PARTITIONS_CREATED
from suiro.node import InProcessNode, NodeProcess

GUARDED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_eve="hush";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def test_a_request_creates_some_topics_and_the_next_ones_the_others() -> None:
    names = [f"t{number}" for number in range(3 * MAX_PARTITIONS_CREATED)]
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:

        def created() -> int:
            """How many names a request finds; the others are to be asked for again."""
            found = ask(wire, "metadata", 9, topics=[{"name": name} for name in names])["topics"]
            codes = {topic["name"]: topic["error_code"] for topic in found}
            assert set(codes) == set(names)
            assert set(codes.values()) <= {"none", "unknown_topic_or_partition"}
            return list(codes.values()).count("none")

        assert [created() for _ in range(3)] == [MAX_PARTITIONS_CREATED * n for n in (1, 2, 3)]


def test_a_request_with_too_many_elements_ends_its_connection_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = {"socket.request.max.elements": "1000"}
    with (
        NodeProcess.start(data=tmp_path / "data", settings=settings, log=log) as node,
        Wire(node.bootstrap_servers) as other,
    ):
        for count, is_answered in ((1000, True), (1001, False)):
            topics = [{"name": f"t{number}"} for number in range(count)]
            with Wire(node.bootstrap_servers) as wire:
                try:
                    ask(wire, "metadata", 9, topics=topics, allow_auto_topic_creation=False)
                except ConnectionError:
                    assert not is_answered
                else:
                    assert is_answered
        assert ask(other, "metadata", 9, topics=[])["topics"] == []
        wait_until(
            lambda: "more than socket.request.max.elements = 1000" in log.read_text(),
            what="the line in the log",
        )


def test_denials_of_a_request_are_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        NodeProcess.start(data=tmp_path / "data", settings=GUARDED, log=log) as node,
        Wire(node.bootstrap_servers) as wire,
    ):
        assert ask(wire, "sasl_handshake", 1, mechanism="PLAIN")["error_code"] == "none"
        assert ask(wire, "sasl_authenticate", 2, auth_bytes=b"\0eve\0hush")["error_code"] == "none"
        topics = [{"name": f"t{number}"} for number in range(20_000)]
        found = ask(wire, "metadata", 9, topics=topics)["topics"]
        assert {topic["error_code"] for topic in found} == {"topic_authorization_failed"}
        wait_until(lambda: "Denied" in log.read_text(), what="the line in the log")
    denied = [line for line in log.read_text().splitlines() if "Denied" in line]
    assert len(denied) == 1
    assert "TOPIC:LITERAL:t0, t1, t2 and 19997 more" in denied[0]
