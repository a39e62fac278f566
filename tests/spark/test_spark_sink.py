"""Format "suiro" as a sink, in real Spark, on the node and on Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

import suiro.spark
from suiro.client import LATEST, Client
from suiro.protocol.murmur2 import partition_for_key

pytestmark = pytest.mark.spark


def rows(frame: Any) -> list[tuple[str | None, str]]:
    found = frame.orderBy("topic", "partition", "offset").select("key", "value").collect()
    return [(None if row.key is None else bytes(row.key).decode(), bytes(row.value).decode()) for row in found]


def test_a_batch_write_puts_rows_where_they_belong(
    spark: Any, bootstrap: str, rows_of: Callable[..., Any], new_topic: Callable[..., str]
) -> None:
    keyed, placed = new_topic(3), new_topic(3)
    frame = spark.createDataFrame(
        [(keyed, f"k{n}", f"v{n}", None) for n in range(20)] + [(placed, None, "here", 2)],
        "topic string, key string, value string, partition int",
    ).selectExpr("*", "timestamp_millis(1700000000123) timestamp")
    frame.write.format("suiro").mode("append").option("kafka.bootstrap.servers", bootstrap).save()
    found = rows_of(keyed, placed).collect()
    assert len(found) == 21
    for row in found:
        assert row.timestamp.microsecond == 123_000
        if row.topic == placed:
            assert (row.partition, row.key, bytes(row.value)) == (2, None, b"here")
        else:
            assert row.partition == partition_for_key(bytes(row.key), 3)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(
    spark: Any, bootstrap: str, rows_of: Callable[..., Any], new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic()
    frame = spark.range(1000).selectExpr(
        "cast(id as string) key",
        "repeat('x', 100) value",
        "array(named_struct('key', 'h', 'value', cast('1' as binary))) headers",
    )
    writer = frame.write.format("suiro").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).option("kafka.compression.type", codec).save()
    found = rows_of(topic, includeHeaders="true")
    assert found.filter("headers[0].key = 'h'").select("key").distinct().count() == 1000


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("id", "column 'id' is none of them"),
        ("cast(id as string) key", "needs a column named value"),
        ("id value", "column 'value' is bigint"),
        ("'x' value, 9 partition", "has partitions 0 to 0"),
        ("'x' value, 'no-such-topic' topic", "'no-such-topic' does not exist"),
        ("repeat('x', 2000000) value", "MESSAGE_TOO_LARGE|larger|too large"),
    ],
)
def test_what_cannot_be_written_is_named(
    spark: Any, bootstrap: str, new_topic: Callable[..., str], columns: str, message: str
) -> None:
    writer = spark.range(1).selectExpr(*split(columns)).write.format("suiro").mode("append")
    writer = writer.option("kafka.bootstrap.servers", bootstrap)
    if "no-such-topic" not in columns:
        writer = writer.option("topic", new_topic())
    with pytest.raises(Exception, match=message):
        writer.save()


def test_a_topic_is_not_overwritten(spark: Any, bootstrap: str, new_topic: Callable[..., str]) -> None:
    """Spark's own connector refuses it as well; to append instead would be a surprise."""
    writer = spark.range(1).selectExpr("'x' value").write.format("suiro").mode("overwrite")
    with pytest.raises(Exception, match="cannot overwrite a topic"):
        writer.options(**{"kafka.bootstrap.servers": bootstrap, "topic": new_topic()}).save()


def split(columns: str) -> list[str]:
    return columns.split(", ") if "repeat" not in columns else [columns]


def is_decided(client: Client, *topics: str) -> bool:
    """Whether no transaction is open. Apache Kafka answers EndTxn before it has written the markers."""
    latest = {(topic, 0): LATEST for topic in topics}
    readable, ends = (client.list_offsets(latest, read_committed=committed) for committed in (True, False))
    return all(0 < ends[place].offset == readable[place].offset for place in latest)


def test_several_topics_and_the_source_offsets_in_one_transaction(
    stream_of: Callable[..., Any],
    rows_of: Callable[..., Any],
    produce: Callable[..., None],
    new_topic: Callable[..., str],
    run_stream: Callable[..., Any],
    client: Client,
    tmp_path: Path,
    unique: str,
) -> None:
    source, even, odd = new_topic(2), new_topic(), new_topic()
    produce(source, *(str(n) for n in range(10)), partition=1, key="k")
    frame = stream_of(source).selectExpr(
        "key",
        "value",
        f"if(cast(cast(value as string) as int) % 2 = 0, '{even}', '{odd}') topic",
        "timestamp",
    )
    run_stream(frame, checkpoint=tmp_path, application=unique)
    wait_until(lambda: is_decided(client, even, odd), what="the markers of the transaction")
    assert [value for _, value in rows(rows_of(even))] == ["0", "2", "4", "6", "8"]
    assert [value for _, value in rows(rows_of(odd))] == ["1", "3", "5", "7", "9"]
    committed = client.offset_fetch(unique)
    assert committed[source, 1] is not None
    assert committed[source, 1].offset == 10
    marker = committed["__txn_markers", 0]
    assert marker is not None
    last = max(int(path.name) for path in (tmp_path / "commits").iterdir() if path.name.isdigit())
    assert json.loads(marker.metadata)["b"] == last


def test_a_micro_batch_that_spark_runs_again_is_written_once(
    stream_of: Callable[..., Any],
    rows_of: Callable[..., Any],
    produce: Callable[..., None],
    new_topic: Callable[..., str],
    run_stream: Callable[..., Any],
    tmp_path: Path,
    unique: str,
) -> None:
    """Row 10: committed in Kafka, unknown to Spark. Row 18: a checkpoint older than what Kafka holds."""
    source, sink = new_topic(), new_topic()
    produce(source, *"abcdef")
    frame = stream_of(source, maxOffsetsPerTrigger="2").select("value")
    run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    commits = sorted(
        (path for path in (tmp_path / "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    assert len(commits) >= 3
    commits[-1].unlink()
    run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    assert [value for _, value in rows(rows_of(sink))] == list("abcdef")
    for path in commits[1:]:
        path.unlink(missing_ok=True)
        (tmp_path / "offsets" / path.name).unlink(missing_ok=True)
    with pytest.raises(Exception, match="rolled back"):
        run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    assert [value for _, value in rows(rows_of(sink))] == list("abcdef")


def test_two_queries_with_one_application_need_names(
    stream_of: Callable[..., Any],
    rows_of: Callable[..., Any],
    produce: Callable[..., None],
    new_topic: Callable[..., str],
    run_stream: Callable[..., Any],
    tmp_path: Path,
    unique: str,
) -> None:
    source, one, two = new_topic(), new_topic(), new_topic()
    produce(source, "x")
    frame = stream_of(source).select("value")
    for name, topic in (("one", one), ("two", two)):
        run_stream(frame, checkpoint=tmp_path / name, application=unique, topic=topic, **{"sink.name": name})
    assert rows(rows_of(one)) == rows(rows_of(two)) == [(None, "x")]


def test_a_stream_without_a_name_for_its_application_is_refused(
    stream_of: Callable[..., Any], new_topic: Callable[..., str], bootstrap: str, tmp_path: Path
) -> None:
    writer = stream_of(new_topic()).select("value").writeStream.format("suiro")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", "x")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    with pytest.raises(Exception, match=r"application\.id"):
        query.awaitTermination(60)


@pytest.mark.soak
def test_complete_mode_writes_the_whole_result_with_each_micro_batch(
    stream_of: Callable[..., Any],
    rows_of: Callable[..., Any],
    produce: Callable[..., None],
    new_topic: Callable[..., str],
    bootstrap: str,
    tmp_path: Path,
    unique: str,
) -> None:
    """As with Spark's own connector."""
    source, sink = new_topic(), new_topic()
    counts = stream_of(source).groupBy("value").count().selectExpr("value key", "cast(count as string) value")
    writer = counts.coalesce(1).writeStream.format("suiro").outputMode("complete").trigger(availableNow=True)
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", sink)
    writer = writer.option("application.id", unique).option("checkpointLocation", str(tmp_path))
    for values in ("ab", "b"):
        produce(source, *values)
        assert writer.start().awaitTermination(120)
    found = rows(rows_of(sink))
    assert sorted(found) == [("a", "1"), ("a", "1"), ("b", "1"), ("b", "2")]


def test_foreach_batch(
    stream_of: Callable[..., Any],
    rows_of: Callable[..., Any],
    produce: Callable[..., None],
    new_topic: Callable[..., str],
    bootstrap: str,
    client: Client,
    tmp_path: Path,
    unique: str,
) -> None:
    source, sink = new_topic(), new_topic()
    produce(source, *"abcdef")
    write = suiro.spark.exactly_once(
        {
            "kafka.bootstrap.servers": bootstrap,
            "application.id": unique,
            "checkpointLocation": str(tmp_path),
            "topic": sink,
        }
    )
    stream = stream_of(source, maxOffsetsPerTrigger="2").select("value").writeStream.foreachBatch(write)
    query = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert [value for _, value in rows(rows_of(sink))] == list("abcdef")
    committed = client.offset_fetch(unique)
    assert committed[source, 0] is not None
    assert committed[source, 0].offset == 6


def test_nothing_is_left_in_the_staging_directory(
    stream_of: Callable[..., Any],
    produce: Callable[..., None],
    new_topic: Callable[..., str],
    run_stream: Callable[..., Any],
    tmp_path: Path,
    unique: str,
) -> None:
    source, sink = new_topic(), new_topic()
    produce(source, *"abc")
    staging = tmp_path / "staging"
    options = {"topic": sink, "staging.dir": str(staging)}
    run_stream(stream_of(source).select("value"), checkpoint=tmp_path / "c", application=unique, **options)
    assert staging.is_dir()
    assert list(staging.iterdir()) == []


def test_java_has_stack_for_what_spark_looks_for_in_a_long_error_of_foreach_batch(spark: Any) -> None:
    pattern = r"py4j.protocol.Py4JJavaError: An error occurred while calling((.|\r\n|\r|\n)*)(InterruptedException)"
    text = "py4j.protocol.Py4JJavaError: An error occurred while calling o1." + "why " * 5_000
    assert not spark._jvm.java.util.regex.Pattern.compile(pattern).matcher(text).find()
