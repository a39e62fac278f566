"""Records of the metadata topic: there and back, as Kafka's own tool reads them, and refused where they are torn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from support.kafka_tools import KafkaTools
from support.tiering import TieredNode

from suiro.log.errors import CorruptBatchError
from suiro.log.tier import RemoteSegment, SegmentState, StoredObject, decode, encode

SEGMENT = RemoteSegment(
    topic="flights",
    topic_id=UUID("00112233-4455-6677-8899-aabbccddeeff"),
    partition=3,
    segment_id=UUID("ffeeddcc-bbaa-9988-7766-554433221100"),
    start_offset=100,
    end_offset=199,
    broker_id=1,
    max_timestamp=1_000_000_000_123,
    event_timestamp=1_000_000_000_456,
    leader_epochs=((0, 100), (7, 150)),
    size=4096,
    state=SegmentState.COPY_FINISHED,
    transaction_index_empty=True,
    objects=(("log", StoredObject(4096, 0xFFFFFFFF)), ("index", StoredObject(16, 1))),
)


@pytest.mark.parametrize("state", SegmentState)
@pytest.mark.parametrize("objects", [SEGMENT.objects, ()])
@pytest.mark.parametrize("empty", [True, False])
def test_there_and_back(state: SegmentState, objects: tuple[()], empty: bool) -> None:
    segment = replace(SEGMENT, state=state, objects=objects, transaction_index_empty=empty)
    assert decode(encode(segment)) == segment


def test_every_torn_record_is_refused() -> None:
    data = encode(SEGMENT)
    for size in range(len(data)):
        with pytest.raises(CorruptBatchError):
            decode(data[:size])


def test_a_foreign_record_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="known are"):
        decode(b"\x01\x02\x00" + encode(SEGMENT)[3:])


@pytest.mark.kafka
def test_kafkas_tool_reads_the_metadata_topic(tmp_path: Path, tools: KafkaTools) -> None:
    node = TieredNode(tmp_path)
    node.fill(8)
    count = len(node.stored(".log"))
    node.stop()
    log = node.data / "__remote_log_metadata-0" / f"{0:020d}.log"
    printed = tools.dumped([log], "--remote-log-metadata-decoder")
    assert printed.count("state=COPY_SEGMENT_STARTED") == count
    assert printed.count("state=COPY_SEGMENT_FINISHED") == count
    assert "startOffset=0, endOffset=2, brokerId=1" in printed
    assert "segmentLeaderEpochs={0=0}" in printed
