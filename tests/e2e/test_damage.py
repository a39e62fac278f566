"""A segment in the middle of a topic is damaged while the node is down: every reader stops there, and is told.

The confluent client, our own one and Spark's format "suiro" read the same topic. They get what is whole before the
damage, and nothing from behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from suiro.client import Client, NewTopic
from suiro.errors import FatalError
from suiro.node import NodeProcess
from suiro.protocol.columnar import decode, encode
from suiro.protocol.records import Record, encode_batch

TOPIC = "damaged"
RECORDS = 60_000
SEGMENT_BYTES = 1 << 20


@pytest.fixture(params=["gone", "cut"])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[NodeProcess, int]]:
    """The node, and the first offset that is lost."""
    import numpy as np
    import pyarrow as pa

    with NodeProcess.start(data=tmp_path / "data") as node, Client(node.bootstrap_servers) as client:
        client.create_topics([NewTopic(TOPIC, 1, configs={"segment.bytes": str(SEGMENT_BYTES)})])
        batches = encode(
            keys=pa.nulls(RECORDS, pa.binary()),
            values=pa.array([b"%0100d" % number for number in range(RECORDS)]),
            timestamps=np.full(RECORDS, 1_700_000_000_000),
            partitions=np.zeros(RECORDS, np.int32),
            num_partitions=1,
            max_batch_bytes=8 * 1024,
        )
        client.produce_many((TOPIC, 0, batch.data) for batch in batches)
    segments = sorted((tmp_path / "data" / f"{TOPIC}-0").glob("*.log"))
    assert len(segments) > 4
    middle = segments[len(segments) // 2]
    first_lost = int(middle.stem)
    if request.param == "gone":
        middle.unlink()
    else:
        with middle.open("r+b") as file:
            file.truncate(70)  # a batch's header, and no more
    with NodeProcess.start(data=tmp_path / "data") as node:
        yield node, first_lost


def test_every_client_stops_at_the_damage(damaged: tuple[NodeProcess, int]) -> None:
    node, first_lost = damaged
    settings = {"group.id": "readers", "auto.offset.reset": "error", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": node.bootstrap_servers, **settings})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[bytes | None] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "neither a record nor an error"
            error = message.error()
            if error is not None:
                assert error.code() != KafkaError._PARTITION_EOF, "the damage was passed over"
                break
            values.append(message.value())
    except KafkaException:
        pass
    finally:
        consumer.close()
    assert values == [b"%0100d" % number for number in range(first_lost)]

    with Client(node.bootstrap_servers) as client:
        offset = 0
        while offset < first_lost:
            fetched = client.fetch({(TOPIC, 0): offset})[TOPIC, 0]
            offset = decode(fetched.data, start_offset=offset, end_offset=RECORDS).next_offset
        assert offset == first_lost
        with pytest.raises(FatalError, match="damaged"):
            client.fetch({(TOPIC, 0): offset})
    assert str(first_lost) in node.log.read_text()


@pytest.mark.spark
def test_a_query_stops_at_the_damage(damaged: tuple[NodeProcess, int], spark: Any, tmp_path: Path) -> None:
    node, first_lost = damaged
    options = {"kafka.bootstrap.servers": node.bootstrap_servers, "subscribe": TOPIC}
    read = spark.readStream.format("suiro").options(**options, startingOffsets="earliest").load()
    query = read.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        with pytest.raises(Exception, match="damaged") as raised:
            query.processAllAvailable()
        assert str(first_lost) in str(raised.value)
    finally:
        query.stop()


@pytest.mark.spark
def test_a_query_stops_at_a_byte_that_has_changed(spark: Any, tmp_path: Path) -> None:
    """The node serves what it has: it reads no records. Who reads them compares the checksum."""
    with NodeProcess.start(data=tmp_path / "data") as node, Client(node.bootstrap_servers) as client:
        client.create_topics([NewTopic(TOPIC, 1, configs={"segment.bytes": str(SEGMENT_BYTES)})])
        records = [Record(offset=n, timestamp=1, key=None, value=b"v" * 400_000) for n in range(2)]
        client.produce_many([(TOPIC, 0, encode_batch(records))] * 3)
    first, *_ = sorted((tmp_path / "data" / f"{TOPIC}-0").glob("*.log"))
    with first.open("r+b") as file:
        file.seek(300_000)
        file.write(b"w")
    with NodeProcess.start(data=tmp_path / "data") as node:
        options = {"kafka.bootstrap.servers": node.bootstrap_servers, "subscribe": TOPIC}
        with pytest.raises(Exception, match=rf"{TOPIC}-0 is damaged: .*offset 0.*CRC"):
            spark.read.format("suiro").options(**options).load().count()
