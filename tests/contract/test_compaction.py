"""Compaction against Apache Kafka's own: the same log cleaned by both, and Kafka's tool on what we leave."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.cleaning import batches, clean_log, committed_records, latest_values
from support.kafka_tools import KafkaTools
from support.logs import NOW_MS, open_log, open_transaction
from support.transactional import wait_for_markers
from support.waiting import wait_until

from suiro.broker import import_topics
from suiro.clock import ManualClock, SystemClock
from suiro.kafka import KafkaProcess
from suiro.log import DataDirectory, LogConfig, PartitionLog
from suiro.log.checkpoints import read_checkpoint, read_partition_metadata
from suiro.log.transaction_index import TransactionIndex
from suiro.protocol.records import Record, encode_batch

pytestmark = pytest.mark.kafka

SEGMENT_BYTES = 12_000
COMPACTED = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=SEGMENT_BYTES,
    index_interval_bytes=400,
    delete_retention_ms=3_600_000,
)
_FILES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}


def test_kafkas_tool_finds_nothing_wrong_with_a_cleaned_log(tmp_path: Path, tools: KafkaTools) -> None:
    log = open_log(tmp_path / "flights-0", config=COMPACTED, clock=ManualClock(wall_ms=NOW_MS))
    for number in range(150):
        log.begin_epoch(number // 50)
        records = [
            Record(
                offset=place,
                timestamp=NOW_MS + number * 37 % 50,
                key=b"key-%d" % ((number + place * 7) % 40),
                value=None if (number + place) % 9 == 0 else b"value-%d" % number * 4,
            )
            for place in range(5)
        ]
        transactional = number % 3 == 0
        log.append(
            encode_batch(
                records,
                producer_id=6 if transactional else 5,
                producer_epoch=1,
                base_sequence=number // 3 * 5 if transactional else (number - number // 3 - 1) * 5,
                transactional=transactional,
                compression=number % 5,
            )
        )
        if number % 6 == 3:
            log.append_control(number % 4 == 1, 6, 1, 2, NOW_MS)
    if open_transaction(log, 6) is not None:
        log.append_control(True, 6, 1, 2, NOW_MS)
    table = latest_values(committed_records(log))
    log.roll()
    clean_log(log, NOW_MS)
    clean_log(log, NOW_MS + 4_000_000)  # Tombstones and markers go now.
    assert latest_values(committed_records(log)) == table
    assert sum(header.count for header, _ in batches(log)) < 100
    log.close()
    files = (path for path in log.directory.iterdir() if path.suffix in _FILES)
    assert "deleteHorizonMs" in tools.dumped(files, "--deep-iteration")


def test_both_clean_a_log_to_the_same_batches(tmp_path: Path) -> None:
    settings = {"log.retention.ms": "-1", "log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}
    with KafkaProcess.start(tmp_path / "kafka", heap="512m", settings=settings) as process:
        _write(process.bootstrap_servers)
        folder = process.data_directory / "flights-0"
        shutil.copytree(folder, tmp_path / "ours" / "flights-0")
        _configure(process.bootstrap_servers, {"min.cleanable.dirty.ratio": "0.0001"})
        cleaned_to = wait_until(lambda: _checkpoint(process.data_directory), what="Kafka's cleaner")
        process.stop()
    ours = _opened(tmp_path / "ours" / "flights-0")
    table = latest_values(committed_records(ours))
    assert clean_log(ours, SystemClock().wall_ms()) == cleaned_to
    # Their cleaned folder, taken into a node.
    (imported,) = import_topics(tmp_path / "node", [folder], configs={}, clock=SystemClock())
    directory = DataDirectory.open(tmp_path / "node")
    theirs = directory.open_partition("flights", 0, topic_id=imported.topic_id, config=COMPACTED, clock=SystemClock())
    assert theirs.cleaned_offset == cleaned_to
    assert latest_values(committed_records(theirs)) == table == latest_values(committed_records(ours))
    assert [segment.base_offset for segment in ours.segments] == [segment.base_offset for segment in theirs.segments]
    assert _comparable(ours) == _comparable(theirs)
    for segment in ours.segments[:-1]:
        path = segment.transaction_index.path
        assert segment.transaction_index.entries == TransactionIndex(folder / path.name).entries
    directory.close()
    # And Kafka goes on with the log that we have cleaned.
    ours.close()
    for path in folder.iterdir():
        if path.suffix in _FILES:
            path.unlink()
    for path in ours.directory.iterdir():
        if path.suffix in _FILES:
            shutil.copy(path, folder / path.name)
    process.restart()
    with process:
        assert _table(process.bootstrap_servers) == table


def _table(bootstrap_servers: str) -> dict[bytes, bytes]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("flights", 0, 0)])
    table: dict[bytes, bytes] = {}
    while (message := consumer.poll(30)) is not None and message.error() is None:
        table[message.key()] = message.value()
    consumer.close()
    return {key: value for key, value in table.items() if value is not None}


def _comparable(log: PartitionLog) -> list[tuple[Any, ...]]:
    """All of a batch but when it was cleaned, which is in its base timestamp, and how well it was compressed."""
    return [
        (
            header.base_offset,
            header.last_offset,
            header.attributes,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.count,
            header.max_timestamp,
            records,
        )
        for header, records in batches(log)
    ]


def _opened(folder: Path) -> PartitionLog:
    topic_id = read_partition_metadata(folder)
    assert topic_id is not None
    return PartitionLog(
        folder,
        topic="flights",
        partition=0,
        topic_id=topic_id,
        config=COMPACTED,
        clock=SystemClock(),
        clean_shutdown=False,
    )


def _checkpoint(data: Path) -> int | None:
    try:
        rows = read_checkpoint(data / "cleaner-offset-checkpoint", columns=3)
    except ValueError:
        return None
    return next((int(offset) for topic, _, offset in rows if topic == "flights" and int(offset) > 0), None)


def _configure(bootstrap_servers: str, configs: dict[str, str]) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    resource = ConfigResource(
        ResourceType.TOPIC,
        "flights",
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ],
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def _write(bootstrap_servers: str) -> None:
    """Five codecs' worth of transactions and plain batches over many small segments, dirty all of it."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    configs = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": str(SEGMENT_BYTES),
        "index.interval.bytes": "400",
        "min.cleanable.dirty.ratio": "1.0",
        "delete.retention.ms": "3600000",
    }
    for future in admin.create_topics([NewTopic("flights", 1, 1, config=configs)]).values():
        future.result(30)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        base = {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": codec,
            "linger.ms": 5,
            "log_level": 0,
        }
        plain = Producer({**base, "enable.idempotence": True})
        transactional = Producer({**base, "transactional.id": f"writer-{number % 2}"})
        transactional.init_transactions(30)
        for turn in range(6):
            transactional.begin_transaction()
            for index in range(30):
                key = b"key-%d" % ((turn * 11 + index * 3 + number) % 60)
                value = None if index % 7 == number else b"%d-%d-%d-" % (number, turn, index) * 4
                for producer in (plain, transactional):
                    producer.produce("flights", value, key=key, partition=0, headers=[("turn", b"%d" % turn)])
            plain.flush(30)
            transactional.flush(30)
            if turn % 3 == 1:
                transactional.abort_transaction(30)
            else:
                transactional.commit_transaction(30)
    wait_for_markers(bootstrap_servers, ("flights", 0))
