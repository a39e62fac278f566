"""The Metadata response that is laid out by hand, read back by kio, in every version."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from suiro.broker.apis import APIS
from suiro.broker.exchange import encode
from suiro.broker.handlers.metadata import _Described, _layout
from suiro.protocol.messages import API_KEYS, ErrorCode, read_response

KEY = API_KEYS["metadata"]
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
PARTITIONS: Any = [SimpleNamespace(index=i, log=SimpleNamespace(leader_epoch=i % 3)) for i in range(200)]
TOPICS = [
    _Described(code=ErrorCode.none, name="known", topic_id=TOPIC_ID, partitions=PARTITIONS, operations=3400),
    _Described(code=ErrorCode.none, name="__inside", topic_id=TOPIC_ID, is_internal=True),
    _Described(code=ErrorCode.unknown_topic_or_partition, name="é" * 100),
]


@pytest.mark.parametrize("throttle_ms", [0, 1234])
@pytest.mark.parametrize("version", range(APIS[KEY].min_version, APIS[KEY].max_version + 1))
def test_kio_reads_what_we_lay_out(version: int, throttle_ms: int) -> None:
    topics = list(TOPICS)
    if version >= 12:
        topics.append(_Described(code=ErrorCode.unknown_topic_id, topic_id=TOPIC_ID))
    response = _layout(version, topics, node=(7, "höst", 65_535), cluster_id="of-us", cluster_operations=-(2**31))
    (data,) = encode(response, 99, throttle_ms)
    assert isinstance(data, bytes)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    correlation_id, read = read_response(data[4:], KEY, version)
    assert correlation_id == 99
    if version >= 3:
        assert read.throttle_time == timedelta(milliseconds=throttle_ms)
    (node,) = read.brokers
    assert (node.node_id, node.host, node.port) == (7, "höst", 65_535)
    if version >= 1:
        assert (node.rack, read.controller_id) == (None, 7)
    if version >= 2:
        assert read.cluster_id == "of-us"
    if 8 <= version <= 10:
        assert read.cluster_authorized_operations == -(2**31)
    if version >= 13:
        assert read.error_code is ErrorCode.none

    known, inside, unknown, *by_id = read.topics
    assert [topic.name for topic in (known, inside, unknown)] == ["known", "__inside", "é" * 100]
    assert [topic.error_code for topic in read.topics] == [topic.code for topic in topics]
    if version >= 1:
        assert [topic.is_internal for topic in (known, inside, unknown)] == [False, True, False]
    if version >= 8:
        assert [topic.topic_authorized_operations for topic in (known, unknown)] == [3400, -(2**31)]
    if version >= 10:
        assert known.topic_id == TOPIC_ID
        assert unknown.topic_id is None or unknown.topic_id.int == 0
    for topic in by_id:
        assert (topic.name, topic.topic_id) == (None, TOPIC_ID)
    assert [part.partition_index for part in known.partitions] == list(range(200))
    for part in known.partitions:
        assert (part.error_code, part.leader_id) == (ErrorCode.none, 7)
        assert (part.replica_nodes, part.isr_nodes) == ((7,), (7,))
        if version >= 5:
            assert part.offline_replicas == ()
        if version >= 7:
            assert part.leader_epoch == part.partition_index % 3
