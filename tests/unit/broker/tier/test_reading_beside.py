"""A fetch of a partition that is here and one whose records are only in the remote store."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from support.admin import filled, plain
from support.logs import batch
from support.tiering import DEADLINE_S, TOPIC, TieredNode

from suiro.broker.storage.topics import at_once
from suiro.log.tier import reading
from suiro.log.tier.remote_log import RemoteLog
from suiro.protocol.messages import API_KEYS, read_response, request_class, write_request
from suiro.protocol.records import Record, encode_batch

VERSION = 12


def test_records_that_are_here_may_leave_no_room_for_those_in_the_store(tmp_path: Path) -> None:
    node = TieredNode(tmp_path)
    try:
        node.create()
        node.produce(20)
        node.until_copied()
        assert node.log.retention.apply() > 0
        node.broker.create_topic("recent", partitions=1, configs={})
        recent = node.broker.topics.partition("recent", 0)
        assert recent is not None
        batch = encode_batch([Record(offset=0, timestamp=node.clock.wall_ms(), key=b"k", value=b"v")])
        recent.log.append(batch)
        answer = node.loop.run_until_complete(asyncio.wait_for(_fetch(node, "recent", TOPIC), 30))
        sizes = {
            topic["topic"]: len(topic["partitions"][0]["records"] or b"") for topic in answer["responses"]
        }
        assert sizes == {"recent": len(batch), TOPIC: 0}
    finally:
        node.stop()


def test_what_is_copied_while_a_read_waits_tells_its_aborted_transactions(tmp_path: Path) -> None:
    """A transaction is aborted in the segment behind: left out, its records would be committed ones to the reader."""
    node = TieredNode(tmp_path)
    is_asked, may_answer, may_copy = threading.Event(), threading.Event(), threading.Event()

    def before(operation: str, name: str) -> None:
        segment = int(name.rpartition("/")[2][:20])
        if operation == "put" and segment > 0:
            may_copy.wait(DEADLINE_S)
        elif operation == "get" and segment == 0 and name.endswith(".txnindex"):
            is_asked.set()
            may_answer.wait(DEADLINE_S)

    try:
        node.create()
        for producer_id in (1, 2):
            node.log.append(batch(producer_id=producer_id, epoch=0, sequence=0, transactional=True))
        node.log.append_control(False, 1, 0, 0)
        node.log.roll()
        node.log.append_control(False, 2, 0, 0)
        node.log.roll()
        end = node.log.log_end_offset
        node.clock.advance(1)
        node.store.before = before
        node.until(lambda: node.copied >= 0, "a copy of the first segment")
        node.log.retention.apply()
        reading = node.loop.create_task(
            node.tier.read(node.partition, 0, max_bytes=1 << 20, read_committed=True)
        )
        node.until(is_asked.is_set, "a read that waits for the store")
        may_copy.set()
        node.until(lambda: node.copied == end - 1, "a copy of the second segment")
        node.log.retention.apply()
        may_answer.set()
        result = node.loop.run_until_complete(asyncio.wait_for(reading, DEADLINE_S))
        assert result.aborted == [(1, 0), (2, 1)]
    finally:
        may_copy.set()
        may_answer.set()
        node.stop()


def test_a_segment_that_goes_while_a_time_is_looked_up_is_passed_over(tmp_path: Path) -> None:
    """The look-up failed, with an error after which clients do not ask again."""
    node = TieredNode(tmp_path)
    is_asked, may_answer = threading.Event(), threading.Event()

    def before(operation: str, name: str) -> None:
        if operation == "get" and int(name.rpartition("/")[2][:20]) == 0:
            is_asked.set()
            may_answer.wait(DEADLINE_S)

    try:
        node.create()
        node.produce(20)
        node.until_copied()
        assert node.log.retention.apply() > 0
        node.store.before = before
        looking = node.loop.create_task(node.tier.offset_for_timestamp(node.partition, 0))
        node.until(is_asked.is_set, "a look-up that waits for the store")
        start = node.log.retention.delete_records_before(node.log.local_log_start_offset - 1)
        node.until(lambda: not any(f"/{0:020d}-" in name for name in node.stored()), "the removal")
        may_answer.set()
        found = node.loop.run_until_complete(asyncio.wait_for(looking, DEADLINE_S))
        assert found is not None
        assert found[0] == start
    finally:
        may_answer.set()
        node.stop()


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_is_deleted_while_the_store_is_asked_is_unknown(
    tmp_path: Path, is_made_again: bool
) -> None:
    """The fetch counted the deleted topic, whose metrics then stayed, and answered UNKNOWN_SERVER_ERROR."""
    node = TieredNode(tmp_path)
    asked, may_answer = [], threading.Event()

    def before(operation: str, name: str) -> None:
        if operation == "get":
            asked.append(name)
            may_answer.wait(DEADLINE_S)

    try:
        node.create()
        node.produce(20)
        node.until_copied()
        assert node.log.retention.apply() > 0
        here = node.broker.create_topic("here", partitions=1, configs={})
        here.partitions[0].log.append(batch())
        node.store.before = before
        looking = node.loop.create_task(node.tier.offset_for_timestamp(node.partition, 0))
        reading = node.loop.create_task(_fetch(node, TOPIC, "here"))
        counts = node.broker.metrics.topic(TOPIC)
        node.until(lambda: len(asked) == 2 and counts.remote_fetch_requests, "two that wait for the store")
        topic = node.broker.topics.topic(TOPIC)
        assert topic is not None
        node.broker.delete_topic(here)
        node.broker.delete_topic(topic)
        node.until(lambda: not node.stored(), "the removal")
        if is_made_again:
            node.create()
        may_answer.set()
        assert node.loop.run_until_complete(asyncio.wait_for(looking, DEADLINE_S)) is None
        answer = node.loop.run_until_complete(asyncio.wait_for(reading, DEADLINE_S))
        for response in answer["responses"]:
            (found,) = response["partitions"]
            assert found["error_code"] == "unknown_topic_or_partition"
        shown = {values for family in node.broker.metrics.snapshot() for values, _ in family.samples}
        assert ("here",) not in shown
        assert is_made_again or (TOPIC,) not in shown
    finally:
        may_answer.set()
        node.stop()


def test_a_look_up_ends_when_its_topic_is_deleted(tmp_path: Path) -> None:
    """It ended with an IndexError while the store still had the topic's objects, which closed the connection."""
    node = TieredNode(tmp_path)
    is_asked, may_answer = threading.Event(), threading.Event()

    def before(operation: str, name: str) -> None:
        if operation == "get":
            is_asked.set()
            may_answer.wait(DEADLINE_S)

    try:
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
        node.store.before = before
        looking = node.loop.create_task(node.tier.offset_for_timestamp(node.partition, late_ms - 9_990))
        node.until(is_asked.is_set, "a look-up that waits for the store")
        topic = node.broker.topics.topic(TOPIC)
        assert topic is not None
        at_once(node.broker.topics.deleting(topic))
        may_answer.set()
        assert node.loop.run_until_complete(asyncio.wait_for(looking, DEADLINE_S)) is None
    finally:
        may_answer.set()
        node.stop()


def test_segments_without_aborted_transactions_are_gone_over_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition may have thousands, and the list of those behind was made anew for each."""
    node = TieredNode(tmp_path)
    try:
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
        read = node.tier.read(node.partition, 0, max_bytes=1 << 20, read_committed=True)
        result = node.loop.run_until_complete(asyncio.wait_for(read, DEADLINE_S))
        assert result.size > 0
        assert len(looks) < 5
    finally:
        node.stop()


def test_of_small_segments_only_some_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is an open file: those of a cache of 256 MB were more than a process may have."""
    monkeypatch.setattr(reading, "MOST_CHUNKS", 2)
    node = TieredNode(tmp_path)
    try:
        node.create()
        node.produce(20)
        node.until_copied()
        assert node.log.retention.apply() > 3
        for offset in range(node.log.local_log_start_offset):
            read = node.tier.read(node.partition, offset, max_bytes=1, read_committed=False)
            assert node.loop.run_until_complete(asyncio.wait_for(read, DEADLINE_S)).size > 0
        assert len(node.tier._reader._chunks) == 2
    finally:
        node.stop()


async def _fetch(node: TieredNode, *topics: str) -> Any:
    """From offset 0 of each topic, with room for one byte."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "log_start_offset": -1}
    part |= {"current_leader_epoch": -1, "last_fetched_epoch": -1}
    fields: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1}
    fields |= {"isolation_level": 0, "session_id": 0, "session_epoch": -1, "rack_id": ""}
    fields |= {"topics": [{"topic": topic, "partitions": [part]} for topic in topics]}
    request = filled(request_class(API_KEYS["fetch"], VERSION), {**fields, "forgotten_topics_data": []})
    reader, writer = await asyncio.open_connection(node.broker.host, node.broker.port)
    frame = write_request(request, correlation_id=1, client_id="c")
    writer.write(len(frame).to_bytes(4, "big") + frame)
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    writer.close()
    return plain(read_response(answer, API_KEYS["fetch"], VERSION)[1])
