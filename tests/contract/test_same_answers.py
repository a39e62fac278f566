"""The same request of every API and version to the node and to Apache Kafka: the same answer, field by field.

Full requests of flexible versions end with a tagged field that neither broker knows; both pass over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import kafka_archive
from support.comparison import OWN, differences, plain
from support.every_request import World, bare, fill
from support.waiting import wait_until
from support.wire import Wire

from suiro.broker.apis import APIS
from suiro.client import LATEST, Client, NewTopic
from suiro.node import NodeProcess
from suiro.protocol import messages
from suiro.protocol.fields import uvarint
from suiro.protocol.messages import read_response, request_class, write_request

pytestmark = pytest.mark.kafka

NOT_COMPARED = {
    "api_versions": "the node has no share groups, Streams groups, delegation tokens, telemetry",
    "add_partitions_to_txn 4 bare": "Apache Kafka never answers a request without transactions",
    "add_partitions_to_txn 5 bare": "the same",
}
"""API, or request, and why."""

OF_THE_QUORUM = {"log_end_offset", "high_watermark", "last_caught_up_timestamp", "last_fetch_timestamp"}
"""Where Apache Kafka's metadata log stands, which the node does not have."""


def world_of(bootstrap_servers: str) -> World:
    with Client(bootstrap_servers) as client:
        client.create_topics([NewTopic("same-answers", 1, configs={"retention.ms": "-1"})])
        client.list_offsets({("same-answers", 0): LATEST})
    with Wire(bootstrap_servers) as wire:
        for kind, key in ((0, "group"), (1, "transaction")):
            _await_coordinators(wire, kind, key)
        topics = wire.call(bare(request_class(messages.API_KEYS["metadata"], 12))).topics
    (topic,) = (topic for topic in topics if topic.name == "same-answers")
    return World(topic=topic.name, topic_id=topic.topic_id)


def _await_coordinators(wire: Wire, kind: int, key: str) -> None:
    """Until every partition of the coordinators' topic is loaded: Kafka makes it when first asked."""
    find = request_class(messages.API_KEYS["find_coordinator"], 4)
    keys = tuple(f"{key}-{number}" for number in range(20))
    wait_until(
        lambda: all(c.error_code == 0 for c in wire.call(find(key_type=kind, coordinator_keys=keys)).coordinators)
    )
    for each in keys:
        if kind == 0:
            request = request_class(messages.API_KEYS["offset_fetch"], 5)(group_id=each, topics=())
            wait_until(lambda request=request: wire.call(request).error_code == 0)
        else:
            wait_until(lambda each=each: wire.init_producer_id(each)[0] == "none")


def ask(bootstrap_servers: str, request: Any, *, from_later: bool) -> Any:
    sent = write_request(request, correlation_id=1, client_id="same")
    if from_later and request.__flexible__ and sent.endswith(b"\0"):
        sent = sent[:-1] + b"\1" + uvarint(9_999) + b"\3new"
    with Wire(bootstrap_servers, timeout_s=20) as wire:
        wire.send_bytes(sent)
        try:
            frame = wire.receive_bytes()
        except OSError as error:
            return f"closed: {type(error).__name__}"
        response = read_response(frame, request.__api_key__, request.__version__)[1]
        quorum = request.__api_key__ == messages.API_KEYS["describe_quorum"]
        return plain(response, ignore=OWN | OF_THE_QUORUM if quorum else OWN)


def requests(world: World) -> Iterator[tuple[str, Any]]:
    for api in APIS.values():
        least, _ = messages.known_versions(api.key)
        for version in range(max(api.min_version, least), api.max_version + 1):
            message_class = request_class(api.key, version)
            here = replace(world, group=f"group-{api.key}-{version}", transactional_id=f"tx-{api.key}-{version}")
            for which, request in (("bare", bare(message_class)), ("full", fill(message_class, here))):
                if getattr(request, "acks", -1) != 0:
                    yield f"{api.name} {version} {which}", request


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A node and an Apache Kafka that nobody else has talked to: many answers list all there is."""
    with kafka_archive.killed(tmp_path / "kafka") as theirs:
        ours = NodeProcess.start(data=tmp_path / "node", listen="127.0.0.1:0")
        try:
            yield ours.bootstrap_servers, theirs.bootstrap_servers
        finally:
            ours.stop()


def test_the_same_answers(both: tuple[str, str]) -> None:
    ours, theirs = both
    found = {}
    for (name, mine), (_, other) in zip(requests(world_of(ours)), requests(world_of(theirs)), strict=True):
        if name in NOT_COMPARED or name.split()[0] in NOT_COMPARED:
            continue
        from_later = name.endswith("full")
        different = differences(ask(ours, mine, from_later=from_later), ask(theirs, other, from_later=from_later))
        if different:
            found[name] = different
    assert not found, "\n".join(f"{name}: {'; '.join(lines[:6])[:500]}" for name, lines in found.items())
