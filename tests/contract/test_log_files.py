"""The partition's files against Apache Kafka's own code: Kafka reads ours, we read Kafka's."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.admin import ask
from support.batches import batch_of
from support.kafka_tools import KafkaTools
from support.logs import NOW_MS, batch, first_found, open_log, read_all
from support.transactional import wait_for_markers
from support.wire import Wire

from suiro.broker import import_topics
from suiro.client import LATEST, Client
from suiro.clock import SystemClock
from suiro.kafka import KafkaProcess
from suiro.log import LogConfig, PartitionLog
from suiro.log.checkpoints import read_partition_metadata
from suiro.log.segment import Segment
from suiro.node import NodeProcess
from suiro.protocol.record_batch import iter_headers

pytestmark = pytest.mark.kafka


def test_dump_log_segments_finds_nothing_to_complain_about(tmp_path: Path, tools: KafkaTools) -> None:
    log = open_log(tmp_path / "flights-0", config=LogConfig(index_interval_bytes=100, segment_bytes=4000))
    for number in range(30):
        log.begin_epoch(number // 10)
        log.append(
            batch(
                3,
                producer_id=5,
                epoch=0,
                sequence=number * 3,
                timestamp=NOW_MS + (number * 37 % 50) * 10,
                compression=number % 5,
            )
        )
        log.append(batch(2, producer_id=6, epoch=1, sequence=number * 2, transactional=True))
        if number % 5 == 4:
            log.append_control(number % 2 == 0, 6, 1, 2, NOW_MS)
    log.append(batch(2, producer_id=6, epoch=1, sequence=60, transactional=True))
    log.close()
    suffixes = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    files = [path for path in log.directory.iterdir() if path.suffix in suffixes]
    assert len(files) >= 9
    printed = tools.dumped(files, "--deep-iteration")
    assert printed.count("isvalid: true") == 30 + 30 + 6 + 1
    assert printed.count("endTxnMarker: ABORT coordinatorEpoch: 2") == 3
    assert "version: 0 producerId: 6 firstOffset: 29 lastOffset: 51 lastStableOffset: 52" in printed
    assert (
        "producerId: 6 producerEpoch: 1 coordinatorEpoch: 2 currentTxnFirstOffset: OptionalLong[156] "
        f"lastTimestamp: {NOW_MS} firstSequence: 60 lastSequence: 61 lastOffset: 157 offsetDelta: 1"
    ) in printed
    assert f"timestamp: {NOW_MS + 492} offset:" in printed


def _open_copy(folder: Path, target: Path, *, clean: bool) -> PartitionLog:
    shutil.copytree(folder, target)
    topic_id = read_partition_metadata(target)
    assert topic_id is not None
    return PartitionLog(
        target,
        topic="flights",
        partition=0,
        topic_id=topic_id,
        config=LogConfig(),
        clock=SystemClock(),
        clean_shutdown=clean,
    )


@dataclass(frozen=True)
class WrittenByKafka:
    """Folders of a topic that Kafka wrote to, was started again, and wrote to again."""

    folder: Path
    as_it_ran: Path
    written: dict[str, list[tuple[int, str]]]
    before_told: Path
    told: dict[str, Any]  # then it was asked for leader epochs, and one record more was written
    producer_ids: list[int]


@pytest.fixture(scope="module")
def by_kafka(tmp_path_factory: pytest.TempPathFactory) -> WrittenByKafka:
    directory = tmp_path_factory.mktemp("by-kafka")
    # Without a limit: the records are of 1970, and a slow start gives retention the time to delete them.
    settings = {"log.retention.ms": "-1"}
    with KafkaProcess.start(directory / "kafka", heap="512m", settings=settings) as process:
        written = _produce(process.bootstrap_servers)
        process.restart()
        with Client(process.bootstrap_servers) as client, Wire(process.bootstrap_servers) as wire:
            end = client.list_offsets({("flights", 0): LATEST})[("flights", 0)].offset
            assert wire.produce("flights", batch_of("later", timestamp=3000)) == ("none", end)
            folder = process.data_directory / "flights-0"
            before = shutil.copytree(folder, directory / "before" / "flights-0")
            told = what_is_told_of_epochs(wire)
            written["all"] += [(end, "later"), (end + 1, "last")]
            topics = [{"name": "flights", "partition_indexes": [0]}]
            (topic,) = ask(wire, "describe_producers", 0, topics=topics)["topics"]
            ids = [producer["producer_id"] for producer in topic["partitions"][0]["active_producers"]]
        as_it_ran = shutil.copytree(folder, directory / "as-it-ran")
        process.stop()
    return WrittenByKafka(folder, as_it_ran, written, before, told, ids)


def what_is_told_of_epochs(wire: Wire) -> dict[str, Any]:
    """Every answer that has a leader epoch in it. Appends one record."""
    names = [{"name": "flights", "topic_id": None}]
    (described,) = ask(wire, "metadata", 12, topics=names, allow_auto_topic_creation=False)["topics"]
    epoch = described["partitions"][0]["leader_epoch"]
    (found,) = ask(wire, "describe_topic_partitions", 0, topics=[{"name": "flights"}], response_partition_limit=9)[
        "topics"
    ]

    def listed(timestamp: int, current: int = -1) -> Any:
        entry = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": current}
        topics = [{"name": "flights", "partitions": [entry]}]
        return ask(wire, "list_offsets", 9, replica_id=-1, topics=topics)["topics"][0]["partitions"]

    def ended(wanted: int, current: int = -1) -> Any:
        entry = {"partition": 0, "current_leader_epoch": current, "leader_epoch": wanted}
        topics = [{"topic": "flights", "partitions": [entry]}]
        return ask(wire, "offset_for_leader_epoch", 4, replica_id=-1, topics=topics)["topics"]

    def fetched(offset: int, current: int = -1, last: int = -1) -> Any:
        entry = {"fetch_offset": offset, "partition_max_bytes": 1 << 20, "current_leader_epoch": current}
        topics = [{"topic": "flights", "partitions": [entry | {"last_fetched_epoch": last}]}]
        (topic,) = ask(
            wire, "fetch", 12, replica_id=-1, max_bytes=1 << 20, session_epoch=-1, rack_id="", topics=topics
        )["responses"]
        (part,) = topic["partitions"]
        records = part.pop("records") or b""
        return part, [(header.base_offset, header.partition_leader_epoch) for _, header in iter_headers(records)]

    code, end = wire.produce("flights", batch_of("last", timestamp=4000))
    return {
        "current": (code, epoch, found["partitions"][0]["leader_epoch"]),
        "offsets": [listed(timestamp) for timestamp in (-1, -2, -3, -4, 0, 1003, 2500, 9000)],
        "ends": [ended(wanted) for wanted in range(-1, epoch + 2)],
        "read": fetched(0),
        "diverged": [fetched(end, last=last) for last in range(epoch + 2)],
        "current epochs": [
            (listed(-1, current), ended(0, current), fetched(end, current))
            for current in (0, epoch - 1, epoch, epoch + 1)
        ],
    }


def test_leader_epochs_of_a_topic_that_kafka_wrote(by_kafka: WrittenByKafka, tmp_path: Path) -> None:
    """A client that was told epoch 2 takes no answer of epoch 0 any more."""
    epoch = by_kafka.told["current"][1]
    assert epoch > 0
    data = tmp_path / "data"
    import_topics(data, [by_kafka.before_told], configs={"retention.ms": "-1"}, clock=SystemClock())
    with NodeProcess.start(data=data, listen="127.0.0.1:0") as node, Wire(node.bootstrap_servers) as wire:
        assert what_is_told_of_epochs(wire) == by_kafka.told
        # Nor may a new producer be taken for one that wrote to Kafka.
        producer_id, _ = wire.new_producer()
        assert producer_id > max(by_kafka.producer_ids)
        node.kill()
    with NodeProcess.start(data=data, listen="127.0.0.1:0") as node, Wire(node.bootstrap_servers) as wire:
        assert what_is_told_of_epochs(wire)["current"] == ("none", epoch + 1, epoch + 1)


def test_a_folder_that_kafka_wrote_opens_here(
    by_kafka: WrittenByKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, committed = by_kafka.folder, by_kafka.written
    crashed = _open_copy(by_kafka.as_it_ran, tmp_path / "crashed", clean=False)
    closed = _open_copy(folder, tmp_path / "closed", clean=True)
    for log in (crashed, closed):
        assert [text for text in read_all(log) if not text.endswith(("commit", "abort"))] == [
            f"{offset}:{value}" for offset, value in committed["all"]
        ]
        result = log.read(committed["aborted"][0][0], max_bytes=1 << 20, read_committed=True)
        assert result.last_stable_offset == log.log_end_offset
        assert [first for _, first in result.aborted] == [committed["aborted"][0][0]]
        assert first_found(log.lookups_by_time(0)) == (0, 1000)
    assert crashed.log_end_offset == closed.log_end_offset
    (entry,) = closed.producer_states()
    assert entry.transaction_first_offset == -1

    # And Kafka's own snapshot served: the sealed segment is not looked at again.
    def refuse(segment: Segment, position: int = 0) -> Any:
        assert segment.base_offset > 0
        return headers(segment, position)

    headers = Segment.headers
    monkeypatch.setattr(Segment, "headers", refuse)
    _open_copy(folder, tmp_path / "again", clean=True)


def _produce(bootstrap_servers: str) -> dict[str, list[tuple[int, str]]]:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": "writer",
            "linger.ms": 0,
            "allow.auto.create.topics": True,
            "log_level": 0,
        }
    )
    written: dict[str, list[tuple[int, str]]] = {"all": [], "aborted": []}
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        group: list[tuple[int, str]] = []

        def delivered(_: object, message: Any, group: list[tuple[int, str]] = group) -> None:
            group.append((message.offset(), message.value().decode()))

        for index in range(5):
            value = f"{number}-{index}"
            producer.produce("flights", value.encode(), partition=0, timestamp=1000 + number, on_delivery=delivered)
            producer.flush(30)
        if number == 2:
            producer.abort_transaction(30)
            written["aborted"] = group
        else:
            producer.commit_transaction(30)
        written["all"] += group
    wait_for_markers(bootstrap_servers, ("flights", 0))
    return written
