"""What goes wrong in operation, in real Spark: each has one outcome, which docs/guides/operations.md promises."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.spark import MARKER_TOPIC

pytestmark = [pytest.mark.spark, pytest.mark.soak]

Make = Callable[..., Any]


def values(frame: Any) -> list[str]:
    rows = frame.orderBy("topic", "partition", "offset").select("value").collect()
    return [bytes(row.value).decode() for row in rows]


def administer(bootstrap: str, call: Callable[[AdminClient], dict[Any, Any]]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for result in call(admin).values():
        result.result(60)


def test_of_two_drivers_with_one_application_id_one_stops_and_says_why(
    stream_of: Make,
    rows_of: Make,
    produce: Make,
    new_topic: Callable[..., str],
    bootstrap: str,
    tmp_path: Path,
    unique: str,
) -> None:
    source, one, two = new_topic(), new_topic(), new_topic()
    produce(source, "a")

    def start(checkpoint: str, topic: str, **more: str) -> Any:
        writer = stream_of(source).select("value").writeStream.format("suiro")
        options = {"kafka.bootstrap.servers": bootstrap, "application.id": unique, "topic": topic} | more
        return writer.options(**options).option("checkpointLocation", str(tmp_path / checkpoint)).start()

    first = start("one", one)
    first.processAllAvailable()
    newcomer = start("two", two)
    with pytest.raises(Exception, match="this checkpoint is new, and Kafka holds micro-batch 0"):
        assert not newcomer.awaitTermination(120), "it ended without an error"
    produce(source, "b")
    first.processAllAvailable()
    second = start("three", two, **{"checkpoint.missing": "begin"})
    try:
        second.processAllAvailable()
        produce(source, "c")
        with pytest.raises(Exception, match=r"another driver took over|another query uses this application\.id"):
            assert not first.awaitTermination(120), "it ended without an error"
        second.processAllAvailable()
    finally:
        first.stop()
        second.stop()
    assert values(rows_of(one)) == ["a", "b"]
    assert values(rows_of(two)) == ["a", "b", "c"]


def test_a_copied_checkpoint_is_refused_where_the_original_went_on_and_a_new_one_begins_only_if_told_to(
    stream_of: Make,
    rows_of: Make,
    produce: Make,
    new_topic: Callable[..., str],
    run_stream: Make,
    tmp_path: Path,
    unique: str,
) -> None:
    source, sink = new_topic(), new_topic()
    frame = stream_of(source).select("value")
    original, copy = tmp_path / "original", tmp_path / "copy"

    def run(checkpoint: Path, **more: str) -> None:
        run_stream(frame, checkpoint=checkpoint, application=unique, topic=sink, **more)

    produce(source, "a")
    run(original)
    shutil.copytree(original, copy)
    for value in "bc":
        produce(source, value)
        run(original)
    with pytest.raises(Exception, match="rolled back, restored or edited"):
        run(copy)
    assert values(rows_of(sink)) == ["a", "b", "c"]
    shutil.rmtree(original)
    for _ in range(2):
        with pytest.raises(Exception, match=r"this checkpoint is new.*checkpoint\.missing"):
            run(original)
    assert values(rows_of(sink)) == ["a", "b", "c"]
    run(original, **{"checkpoint.missing": "begin"})
    assert values(rows_of(sink)) == ["a", "b", "c", "a", "b", "c"]


def test_partitions_added_are_read_from_their_beginning(
    stream_of: Make,
    rows_of: Make,
    produce: Make,
    bootstrap: str,
    new_topic: Callable[..., str],
    run_stream: Make,
    tmp_path: Path,
    unique: str,
) -> None:
    source, sink = new_topic(), new_topic()
    frame = stream_of(source).select("value")
    produce(source, "a")
    run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    administer(bootstrap, lambda admin: admin.create_partitions([NewPartitions(source, 3)]))
    for partition, value in enumerate("bcd"):
        produce(source, value, partition=partition)
    run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    assert sorted(values(rows_of(sink))) == ["a", "b", "c", "d"]


def test_retention_that_overtakes_the_reader_is_data_loss(
    stream_of: Make,
    rows_of: Make,
    produce: Make,
    bootstrap: str,
    new_topic: Callable[..., str],
    run_stream: Make,
    tmp_path: Path,
    unique: str,
) -> None:
    source, sink = new_topic(), new_topic()
    produce(source, "a", "b")
    run_stream(stream_of(source).select("value"), checkpoint=tmp_path, application=unique, topic=sink)
    produce(source, "c", "d")
    administer(bootstrap, lambda admin: admin.delete_records([TopicPartition(source, 0, 3)]))
    with pytest.raises(Exception, match="begins at 3 now"):
        run_stream(stream_of(source).select("value"), checkpoint=tmp_path, application=unique, topic=sink)
    careless = stream_of(source, failOnDataLoss="false").select("value")
    run_stream(careless, checkpoint=tmp_path, application=unique, topic=sink)
    assert values(rows_of(sink)) == ["a", "b", "d"]


def test_a_sink_topic_deleted_midway_stops_the_query_until_it_is_there_again(
    stream_of: Make,
    rows_of: Make,
    produce: Make,
    client: Client,
    new_topic: Callable[..., str],
    run_stream: Make,
    tmp_path: Path,
    unique: str,
) -> None:
    source, sink = new_topic(), new_topic()
    frame = stream_of(source).select("value")
    produce(source, "a")
    run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    client.delete_topics([sink])
    wait_until(lambda: sink not in client.metadata([sink]), what="the deletion")
    produce(source, "b")
    with pytest.raises(Exception, match=r"does not exist|UNKNOWN_TOPIC"):
        run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    client.create_topics([NewTopic(sink, 1)])
    run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    assert values(rows_of(sink)) == ["b"]


def test_markers_deleted_between_runs_stop_the_query_until_it_is_told_what_they_said(
    stream_of: Make,
    rows_of: Make,
    produce: Make,
    client: Client,
    new_topic: Callable[..., str],
    run_stream: Make,
    tmp_path: Path,
    unique: str,
) -> None:
    """All of one session, whose commit worker has seen the topic."""
    source, sink = new_topic(), new_topic()
    frame = stream_of(source).select("value")
    for value in ("a", "b"):
        produce(source, value)
        run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    client.delete_topics([MARKER_TOPIC])
    produce(source, "c")
    with pytest.raises(Exception, match=r"no marker.*marker\.missing"):
        run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    assert MARKER_TOPIC in client.metadata([MARKER_TOPIC])
    run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink, **{"marker.missing": "produce"})
    produce(source, "d")
    run_stream(frame, checkpoint=tmp_path, application=unique, topic=sink)
    assert values(rows_of(sink)) == ["a", "b", "c", "d"]
