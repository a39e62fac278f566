"""A fetch of a partition that is here and one whose records are only in the remote store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from support.admin import filled, plain
from support.tiering import TOPIC, TieredNode

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
