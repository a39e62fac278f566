"""A fetch of a partition that is here and one whose records are only in the remote store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.admin import filled, plain
from support.logs import batch
from support.tiering import TOPIC, TieredNode, base_of

from suiro.broker.storage.topics import at_once
from suiro.log.tier import reading
from suiro.log.tier.remote_log import RemoteLog
from suiro.protocol.messages import API_KEYS, read_response, request_class, write_request
from suiro.protocol.records import Record, encode_batch

VERSION = 12


def test_records_that_are_here_may_leave_no_room_for_those_in_the_store(node: TieredNode) -> None:
    node.only_in_store()
    node.broker.create_topic("recent", partitions=1, configs={})
    recent = node.broker.topics.partition("recent", 0)
    assert recent is not None
    batch = encode_batch([Record(offset=0, timestamp=node.clock.wall_ms(), key=b"k", value=b"v")])
    recent.log.append(batch)
    answer = node.result(_fetch(node, "recent", TOPIC))
    sizes = {topic["topic"]: len(topic["partitions"][0]["records"] or b"") for topic in answer["responses"]}
    assert sizes == {"recent": len(batch), TOPIC: 0}


def test_what_is_copied_while_a_read_waits_tells_its_aborted_transactions(node: TieredNode) -> None:
    """A transaction is aborted in the segment behind: left out, its records would be committed ones to the reader."""
    copies = node.store.hold("put", lambda name: base_of(name) > 0)
    reads = node.store.hold("get", lambda name: base_of(name) == 0 and name.endswith(".txnindex"))
    node.create()
    for producer_id in (1, 2):
        node.log.append(batch(producer_id=producer_id, epoch=0, sequence=0, transactional=True))
    node.log.append_control(False, 1, 0, 0)
    node.log.roll()
    node.log.append_control(False, 2, 0, 0)
    node.log.roll()
    end = node.log.log_end_offset
    node.clock.advance(1)
    node.until(lambda: node.copied >= 0, "a copy of the first segment")
    node.log.retention.apply()
    reading = node.loop.create_task(node.tier.read(node.partition, 0, max_bytes=1 << 20, read_committed=True))
    node.until(lambda: reads.names, "a read that waits for the store")
    copies.release()
    node.until(lambda: node.copied == end - 1, "a copy of the second segment")
    node.log.retention.apply()
    reads.release()
    result = node.result(reading)
    assert result.aborted == [(1, 0), (2, 1)]


def test_a_segment_that_goes_while_a_time_is_looked_up_is_passed_over(node: TieredNode) -> None:
    """The look-up failed, with an error after which clients do not ask again."""
    node.only_in_store()
    reads = node.store.hold("get")
    looking = node.loop.create_task(node.tier.offset_for_timestamp(node.partition, 0))
    node.until(lambda: reads.names, "a look-up that waits for the store")
    start = node.log.retention.delete_records_before(node.log.local_log_start_offset - 1)
    node.until(lambda: not any(f"/{0:020d}-" in name for name in node.stored()), "the removal")
    reads.release()
    found = node.result(looking)
    assert found is not None
    assert found[0] == start


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_is_deleted_while_the_store_is_asked_is_unknown(node: TieredNode, is_made_again: bool) -> None:
    """The fetch counted the deleted topic, whose metrics then stayed, and answered UNKNOWN_SERVER_ERROR."""
    node.only_in_store()
    here = node.broker.create_topic("here", partitions=1, configs={})
    here.partitions[0].log.append(batch())
    reads = node.store.hold("get")
    looking = node.loop.create_task(node.tier.offset_for_timestamp(node.partition, 0))
    reading = node.loop.create_task(_fetch(node, TOPIC, "here"))
    counts = node.broker.metrics.topic(TOPIC)
    node.until(lambda: len(reads.names) == 2 and counts.remote_fetch_requests, "two that wait for the store")
    node.broker.delete_topic(here)
    node.broker.delete_topic(node.topic)
    node.until(lambda: not node.stored(), "the removal")
    if is_made_again:
        node.create()
    reads.release()
    assert node.result(looking) is None
    answer = node.result(reading)
    for response in answer["responses"]:
        (found,) = response["partitions"]
        assert found["error_code"] == "unknown_topic_or_partition"
    shown = {values for _, samples in node.broker.metrics.snapshot() for values, _ in samples}
    assert ("here",) not in shown
    assert is_made_again or (TOPIC,) not in shown


def test_a_look_up_ends_when_its_topic_is_deleted(node: TieredNode) -> None:
    """It ended with an IndexError while the store still had the topic's objects, which closed the connection."""
    node.create()
    late_ms = node.clock.wall_ms()
    node.produce(1, timestamp=late_ms)
    node.produce(20)
    node.clock.advance(1)
    node.until_copied()
    assert node.log.retention.apply() > 0
    node.log.retention.delete_records_before(1)
    node.until_idle()
    for tiered in node.tier._tiered.values():
        tiered.pausing = True
    reads = node.store.hold("get")
    looking = node.loop.create_task(node.tier.offset_for_timestamp(node.partition, late_ms - 9_990))
    node.until(lambda: reads.names, "a look-up that waits for the store")
    at_once(node.broker.topics.deleting(node.topic))
    reads.release()
    assert node.result(looking) is None


def test_segments_without_aborted_transactions_are_gone_over_once(
    node: TieredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition may have thousands, and the list of those behind was made anew for each."""
    node.create()
    for _ in range(10):
        node.log.append(batch())
        node.log.roll()
    node.clock.advance(1)
    node.until(lambda: node.copied == 9, "copies")
    node.log.retention.apply()
    looks: list[int] = []
    from_offset = RemoteLog.from_offset

    def counted(remote: RemoteLog, offset: int) -> Any:
        looks.append(offset)
        return from_offset(remote, offset)

    monkeypatch.setattr(RemoteLog, "from_offset", counted)
    assert node.read(0, read_committed=True).size > 0
    assert len(looks) < 5


def test_of_small_segments_only_some_are_kept(node: TieredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is an open file: those of a cache of 256 MB were more than a process may have."""
    monkeypatch.setattr(reading, "MOST_CHUNKS", 2)
    node.fill()
    assert node.log.retention.apply() > 3
    for offset in range(node.log.local_log_start_offset):
        assert node.read(offset, max_bytes=1).size > 0
    assert len(node.tier._reader._chunks) == 2


async def _fetch(node: TieredNode, *topics: str) -> Any:
    """From offset 0 of each topic, with room for one byte."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "log_start_offset": -1}
    part |= {"current_leader_epoch": -1, "last_fetched_epoch": -1}
    fields: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1}
    fields |= {"isolation_level": 0, "session_id": 0, "session_epoch": -1, "rack_id": ""}
    fields |= {"topics": [{"topic": topic, "partitions": [part]} for topic in topics]}
    request = filled(request_class(API_KEYS["fetch"], VERSION), {**fields, "forgotten_topics_data": []})
    reader, writer = await asyncio.open_connection("127.0.0.1", node.broker.port)
    frame = write_request(request, correlation_id=1, client_id="c")
    writer.write(len(frame).to_bytes(4, "big") + frame)
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    writer.close()
    return plain(read_response(answer, API_KEYS["fetch"], VERSION)[1])
