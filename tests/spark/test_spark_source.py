"""Format "suiro" as a source, in real Spark, on the node and on Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.protocol.records import Record, encode_batch
from suiro.spark import query_metrics

pytestmark = pytest.mark.spark


def values(frame: Any) -> list[str | None]:
    found = frame.orderBy("topic", "partition", "offset").select("value").collect()
    return [None if row.value is None else bytes(row.value).decode() for row in found]


def test_columns(rows_of: Callable[..., Any], client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    record = Record(offset=0, timestamp=1_700_000_000_123, key=b"k", value=b"v", headers=(("h", b"x"), ("h", None)))
    bare = Record(offset=1, timestamp=1_700_000_000_124, key=None, value=None)
    client.produce({(topic, 1): encode_batch([record, bare])})
    frame = rows_of(topic, includeHeaders="true")
    assert frame.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    first, second = frame.orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition, first.offset) == (
        b"k",
        b"v",
        topic,
        1,
        0,
    )
    assert first.timestamp.astimezone(UTC) == datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert first.timestampType == 0
    assert [(header.key, header.value) for header in first.headers] == [("h", b"x"), ("h", None)]
    assert (second.key, second.value, second.headers) == (None, None, None)
    assert rows_of(topic).columns == frame.columns[:-1]


def test_aborted_and_control_records_are_never_seen(
    rows_of: Callable[..., Any], client: Client, new_topic: Callable[..., str], unique: str
) -> None:
    topic = new_topic()
    transactions = client.transaction(unique)
    for number in range(4):
        transactions.init()
        transactions.add_partitions([(topic, 0)])
        batch = encode_batch([Record(offset=0, timestamp=1_700_000_000_000, key=None, value=f"{number}".encode())])
        transactions.produce([(topic, 0, batch, 1)])
        transactions.end(commit=number % 2 == 0)
    assert values(rows_of(topic)) == ["0", "2"]
    everything = rows_of(topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert values(everything) == ["0", "1", "2", "3"]


def test_a_batch_read_between_offsets_and_times(
    rows_of: Callable[..., Any], produce: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    for number in range(6):
        produce(topic, f"a{number}", partition=0, timestamp=1_700_000_000_000 + 1000 * number)
    produce(topic, "b0", "b1", partition=1, timestamp=1_700_000_000_000)
    some = rows_of(
        topic,
        startingOffsets=f'{{"{topic}": {{"0": 2, "1": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 4, "1": -1}}}}',
    )
    assert values(some) == ["a2", "a3", "b0", "b1"]
    since = {"startingTimestamp": "1700000003000", "startingOffsetsByTimestampStrategy": "latest"}
    assert values(rows_of(topic, **since)) == ["a3", "a4", "a5"]
    assert sorted(values(rows_of(topic, minPartitions="5"))) == sorted(values(rows_of(topic)))
    with pytest.raises(Exception, match=f"missing: {topic}-1"):
        rows_of(topic, startingOffsets=f'{{"{topic}": {{"0": 2}}}}').count()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "no-such-topic"}, "'no-such-topic' does not exist"),
        ({"kafka.fetch.max.bites": "1"}, "fetch.max.bites"),
    ],
)
def test_a_wrong_option_is_named(
    spark: Any, bootstrap: str, options: dict[str, str], message: str, new_topic: Callable[..., str]
) -> None:
    reader = spark.read.format("suiro").option("kafka.bootstrap.servers", bootstrap)
    with pytest.raises(Exception, match=message):
        reader.options(**({"subscribe": new_topic()} | options)).load().count()


def test_a_limited_stream_reads_every_record_once_over_restarts(
    stream_of: Callable[..., Any],
    rows_of: Callable[..., Any],
    produce: Callable[..., None],
    new_topic: Callable[..., str],
    run_stream: Callable[..., Any],
    tmp_path: Path,
    unique: str,
) -> None:
    source, sink = new_topic(3), new_topic(2)
    for partition in range(3):
        produce(source, *(f"{partition}-{n}" for n in range(40)), partition=partition)
    frame = stream_of(source, maxOffsetsPerTrigger="50").select("key", "value")
    first = run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    sizes = [progress["numInputRows"] for progress in first.recentProgress]
    assert len(sizes) >= 3
    assert max(sizes) <= 53
    told = first.recentProgress[0]["sources"][0]
    assert sum(json.loads(told["latestOffset"])[source].values()) == 120
    metrics = query_metrics(first)
    assert metrics.lag == {(source, partition): 0 for partition in range(3)}
    (counts,) = metrics.sinks
    assert (counts.records, counts.micro_batches, counts.aborts) == (120, len(sizes), 0)
    assert counts.bytes > 120
    assert 0 < counts.last_commit_seconds <= counts.commit_seconds
    produce(source, "new", partition=1)
    run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    expected = [f"{partition}-{n}" for partition in range(3) for n in range(40)]
    assert sorted(values(rows_of(sink))) == sorted([*expected, "new"])


def test_new_topics_of_a_pattern_are_read_and_progress_is_in_the_readers_group(
    spark: Any, client: Client, produce: Callable[..., None], bootstrap: str, unique: str, tmp_path: Path
) -> None:
    """Both while the query runs. Nothing but the group tells here where the query is: the sink is Spark's own."""

    def make(name: str) -> None:
        client.create_topics([NewTopic(name, 1, configs={"retention.ms": "-1"})])
        produce(name, "a", "b", "c")

    def done(name: str) -> bool:
        place = (f"{unique}-{name}", 0)
        found = client.offset_fetch(unique, [place])[place]
        return found is not None and found.offset == 3

    make(f"{unique}-one")
    options = {"subscribePattern": f"{unique}-.*", "startingOffsets": "earliest", "kafka.group.id": unique}
    reader = spark.readStream.format("suiro").option("kafka.bootstrap.servers", bootstrap).options(**options)
    query = reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        make(f"{unique}-two")
        for name in ("one", "two"):
            wait_until(partial(done, name), what=f"{name}, read and committed,")
    finally:
        query.stop()


def test_a_topic_made_again_is_data_loss(
    stream_of: Callable[..., Any],
    rows_of: Callable[..., Any],
    produce: Callable[..., None],
    client: Client,
    new_topic: Callable[..., str],
    run_stream: Callable[..., Any],
    tmp_path: Path,
    unique: str,
) -> None:
    source, sink = new_topic(), new_topic()
    produce(source, "old")
    run_stream(stream_of(source).select("value"), checkpoint=tmp_path, application=unique, topic=sink)
    client.delete_topics([source])
    client.create_topics([NewTopic(source, 1)])
    produce(source, "young", "younger")
    with pytest.raises(Exception, match="deleted and made again"):
        run_stream(stream_of(source).select("value"), checkpoint=tmp_path, application=unique, topic=sink)
    careless = stream_of(source, failOnDataLoss="false").select("value")
    run_stream(careless, checkpoint=tmp_path, application=unique, topic=sink)
    assert values(rows_of(sink)) == ["old", "young", "younger"]
