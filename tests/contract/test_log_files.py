"""The partition's files against Apache Kafka's own code: Kafka reads ours, we read Kafka's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.logs import NOW_MS, batch, open_log, read_all
from support.waiting import wait_until

from suiro.client import LATEST, Client
from suiro.clock import SystemClock
from suiro.log import LogConfig, PartitionLog
from suiro.log.checkpoints import read_partition_metadata
from suiro.log.segment import Segment

pytestmark = pytest.mark.kafka

_COMPLAINTS = (
    "Mismatches",
    "mismatch",
    "out of order",
    "isvalid: false",
    "not found",
    "Exception",
    "corrupt",
)


def test_dump_log_segments_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    from suiro.kafka import KafkaUnavailable, kafka_tool

    log = open_log(tmp_path / "flights-0", config=LogConfig(index_interval_bytes=100, segment_bytes=4000))
    for number in range(30):
        log.append(
            batch(
                3,
                producer_id=5,
                epoch=0,
                sequence=number * 3,
                timestamp=NOW_MS + (number * 37 % 50) * 10,
                compression=number % 5,
            ),
            leader_epoch=number // 10,
        )
        log.append(
            batch(2, producer_id=6, epoch=1, sequence=number * 2, transactional=True),
            leader_epoch=number // 10,
        )
        if number % 5 == 4:
            log.append_control(number % 2 == 0, 6, 1, 2, NOW_MS, leader_epoch=number // 10)
    log.append(batch(2, producer_id=6, epoch=1, sequence=60, transactional=True), leader_epoch=2)
    log.close()
    suffixes = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    files = sorted(str(path) for path in log.directory.iterdir() if path.suffix in suffixes)
    assert len(files) >= 9
    try:
        command = kafka_tool(
            "org.apache.kafka.tools.DumpLogSegments", ["--deep-iteration", "--files", ",".join(files)]
        )
    except KafkaUnavailable as error:
        pytest.skip(f"no Apache Kafka here: {error}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    for complaint in _COMPLAINTS:
        assert complaint not in done.stdout + done.stderr, done.stderr
    assert done.stdout.count("isvalid: true") == 30 + 30 + 6 + 1
    assert done.stdout.count("endTxnMarker: ABORT coordinatorEpoch: 2") == 3
    assert "version: 0 producerId: 6 firstOffset: 29 lastOffset: 51 lastStableOffset: 52" in done.stdout
    assert (
        "producerId: 6 producerEpoch: 1 coordinatorEpoch: 2 currentTxnFirstOffset: OptionalLong[156] "
        f"lastTimestamp: {NOW_MS} firstSequence: 60 lastSequence: 61 lastOffset: 157 offsetDelta: 1"
    ) in done.stdout
    assert f"timestamp: {NOW_MS + 492} offset:" in done.stdout


def _open_copy(folder: Path, target: Path, *, clean: bool) -> PartitionLog:
    shutil.copytree(folder, target)
    topic_id = read_partition_metadata(target)
    assert topic_id is not None
    return PartitionLog.open(
        target,
        topic="flights",
        partition=0,
        topic_id=topic_id,
        config=LogConfig(),
        clock=SystemClock(),
        clean_shutdown=clean,
    )


def test_a_folder_that_kafka_wrote_opens_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from suiro.kafka import KafkaProcess, KafkaUnavailable

    try:
        # Without a limit: the records are of 1970, and a slow start gives retention the time to delete them.
        process = KafkaProcess.start(tmp_path / "kafka", heap="512m", settings={"log.retention.ms": "-1"})
    except KafkaUnavailable as error:
        pytest.skip(f"no Apache Kafka here: {error}")
    with process:
        committed = _produce(process.bootstrap_servers)
        folder = process.data_directory / "flights-0"
        crashed = _open_copy(folder, tmp_path / "crashed", clean=False)
        process.stop()
    closed = _open_copy(folder, tmp_path / "closed", clean=True)
    for log in (crashed, closed):
        assert [text for text in read_all(log) if not text.endswith(("commit", "abort"))] == [
            f"{offset}:{value}" for offset, value in committed["all"]
        ]
        result = log.read(committed["aborted"][0][0], max_bytes=1 << 20, read_committed=True)
        assert result.last_stable_offset == log.log_end_offset
        assert [first for _, first in result.aborted] == [committed["aborted"][0][0]]
        assert log.offset_for_timestamp(0) == (0, 1000)
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
            producer.produce(
                "flights", value.encode(), partition=0, timestamp=1000 + number, on_delivery=delivered
            )
            producer.flush(30)
        if number == 2:
            producer.abort_transaction(30)
            written["aborted"] = group
        else:
            producer.commit_transaction(30)
        written["all"] += group
    # Kafka answers a commit before its marker is in the partition.
    place = ("flights", 0)
    with Client(bootstrap_servers) as client:
        wait_until(
            lambda: (
                client.list_offsets({place: LATEST}, read_committed=True)
                == client.list_offsets({place: LATEST}, read_committed=False)
            ),
            what="the last transaction's marker",
        )
    return written
