"""Every API and version that the node advertises: answered, and decoded by Kafka's own classes to the last byte."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.every_request import World, bare, fill
from support.wire import Wire

from suiro.client import LATEST, Client, NewTopic
from suiro.kafka import java_command, kafka_classpath
from suiro.node import InProcessNode
from suiro.protocol import messages
from suiro.protocol.messages import request_class, write_request

CHECKER = Path(__file__).parent.parent / "support" / "WireCheck.java"

CLOSES = {("sasl_authenticate", "bare"), ("sasl_authenticate", "full"), ("describe_acls", "bare")}
"""Not answered, but closed, as Apache Kafka does: an authentication nobody asked for, a filter of unknown kinds."""


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[str, World]]:
    with InProcessNode.start(settings={"log.retention.ms": "-1"}) as node:
        with Client(node.bootstrap_servers) as client:
            client.create_topics([NewTopic("wire-check", 1)])
            client.list_offsets({("wire-check", 0): LATEST})
        request = request_class(messages.API_KEYS["metadata"], 12)
        with Wire(node.bootstrap_servers) as wire:
            (topic,) = wire.call(bare(request)).topics
        yield node.bootstrap_servers, World(topic=topic.name, topic_id=topic.topic_id)


def answers(bootstrap_servers: str, world: World) -> Iterator[tuple[int, int, str, bytes | None]]:
    """(api, version, which request, frame or None where the connection was closed)."""
    with Wire(bootstrap_servers) as wire:
        ours = [
            (api.api_key, api.min_version, api.max_version) for api in wire.call(bare(request_class(18, 3))).api_keys
        ]
    for api, low, high in ours:
        least, _ = messages.known_versions(api)
        for version in range(max(low, least), high + 1):
            message_class = request_class(api, version)
            # A group of its own for each: in a common one, JoinGroup would wait for members that never come again.
            here = replace(world, group=f"group-{api}-{version}")
            for which, request in (("bare", bare(message_class)), ("full", fill(message_class, here))):
                if getattr(request, "acks", -1) == 0:
                    continue  # the one request that has no answer
                with Wire(bootstrap_servers, timeout_s=5) as wire:
                    wire.send_bytes(write_request(request, correlation_id=1, client_id="wire"))
                    try:
                        yield api, version, which, wire.receive_bytes()
                    except (OSError, EOFError, AssertionError):
                        yield api, version, which, None


def test_kafkas_own_classes_decode_every_answer(world: tuple[str, World]) -> None:
    command = [java_command(), "-cp", kafka_classpath(), str(CHECKER)]
    found = list(answers(*world))
    silent = {
        (messages.API_NAMES[api], version, which)
        for api, version, which, frame in found
        if frame is None and (messages.API_NAMES[api], which) not in CLOSES
    }
    assert silent == set()
    lines = [f"{api} {version} {frame.hex()}" for api, version, _, frame in found if frame is not None]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=120, check=False
    )
    said = done.stdout.splitlines()
    assert [line for line in said if not line.startswith("ok ")] == [], done.stderr[-2000:]
    assert len(said) == len(lines)
