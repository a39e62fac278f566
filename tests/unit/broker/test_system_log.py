"""Where a group or a transactional id lives, as Apache Kafka 4.3.1 computes it; a coordinator's log at a start."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from support import brokers
from support.full_disk import no_space
from support.logs import NOW_MS, batch, open_log

from suiro.broker.coordination.groups import records
from suiro.broker.coordination.transactions import records as transaction_records
from suiro.broker.handover.coordinator_topics import highest_producer_id
from suiro.broker.storage import system_log
from suiro.broker.storage.system_log import partition_for
from suiro.broker.storage.topics import Partition
from suiro.clock import ManualClock
from suiro.log import DamagedLogError, LogConfig, PartitionLog, StorageError
from suiro.protocol.records import Record, encode_batch


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("group", 47),
        ("a-transactional-id", 27),  # its hash is negative, as the next two are
        ("my-consumer-group-1", 7),
        ("polygenelubricants", 0),  # the least int there is
        ("naïve", 25),
        ("水路", 35),
        ("😀", 49),  # two chars in Java
        ("", 0),
    ],
)
def test_the_partition_is_kafkas(key: str, partition: int) -> None:
    assert partition_for(key, 50) == partition


def test_a_changed_bit_is_damage_and_no_other_value(tmp_path: Path) -> None:
    """A committed offset, for one, would be another one: records were left out, or read twice."""
    log = open_log(tmp_path / "__consumer_offsets-0")
    log.append(batch(2), origin="coordinator")
    first = log.segments[0].size
    log.append(batch(1), origin="coordinator")
    (path,) = (tmp_path / "__consumer_offsets-0").glob("*.log")
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    assert first < len(content) - 2
    replayed = system_log.replay(log)
    assert next(replayed)[0].next_offset == 2
    with pytest.raises(DamagedLogError, match=r"__consumer_offsets-0 is damaged at offset 2.* CRC"):
        next(replayed)


def test_a_disk_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node did not start, and said no more than "Input/output error"."""
    log = open_log(tmp_path / "__consumer_offsets-0")
    log.append(batch(2, value=bytes(10_000)), origin="coordinator")
    real = os.pread

    def fails_behind_the_header(fd: int, length: int, position: int) -> bytes:
        if length > 10_000:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, length, position)

    monkeypatch.setattr(os, "pread", fails_behind_the_header)
    with pytest.raises(StorageError, match=r"__consumer_offsets-0 from offset 0 on: Input/output error"):
        next(system_log.replay(log))


def partition_of(log: PartitionLog) -> Partition:
    return cast(Partition, SimpleNamespace(log=log, topic="__consumer_offsets", index=0, grown=lambda: None))


def test_a_full_disk_puts_the_compaction_off_and_not_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "__transaction_state-0")
    for _ in range(11):
        log.append(batch(1000), origin="coordinator")
    partition = partition_of(log)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", no_space)
        system_log.compact(partition, [(b"key", b"value")], timestamp=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (0, 11_000)
    system_log.compact(partition, [(b"key", b"value")], timestamp=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (11_000, 11_001)


@pytest.mark.parametrize("fails", ["fsync", "rename"])
def test_a_disk_that_fails_when_all_is_written_puts_the_compaction_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """The start ended with this error, and so did each that came after it."""
    log = open_log(tmp_path / "__consumer_offsets-0", config=LogConfig(segment_bytes=1 << 16))
    for _ in range(11):
        log.append(batch(1000), origin="coordinator")

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, no_space)
        system_log.compact(partition_of(log), [(b"key", b"value")], timestamp=NOW_MS)
    assert (log.offline is not None) == (fails == "fsync")  # what a failed sync left on the disk nobody knows


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (b"\0\1\0\1\xff\0\1t\0\0\0\0", None, "utf-8"),
        (records.encode_offset_key("g", "t", 0), b"\0\x63", "version 99"),
        (records.encode_offset_key("g", "t", 0), b"\0\4\0", "too early"),
    ],
    ids=["group", "version", "cut"],
)
def test_a_record_that_makes_no_sense_is_damage_with_its_place(
    tmp_path: Path, key: bytes, value: bytes | None, why: str
) -> None:
    with brokers.started(tmp_path, ManualClock(), offsets_topic_num_partitions=1) as broker:
        log = broker.groups.partition_of("g").log
        for number in range(3):
            log.append(
                encode_batch((Record(offset=0, timestamp=number, key=b"\0\x63", value=b""),)), origin="coordinator"
            )
        log.append(encode_batch((Record(offset=0, timestamp=0, key=key, value=value),)), origin="coordinator")
    with (
        pytest.raises(DamagedLogError, match=rf"__consumer_offsets-0 is damaged at offset 3: .*{why}.*bring"),
        brokers.started(tmp_path, ManualClock()),
    ):
        pass


def test_a_transaction_that_makes_no_sense_is_damage_with_its_place(tmp_path: Path) -> None:
    log = open_log(tmp_path / "__transaction_state-0")
    record = Record(offset=0, timestamp=0, key=transaction_records.encode_key("id"), value=b"\0\x63")
    log.append(encode_batch((record,)), origin="coordinator")
    with pytest.raises(DamagedLogError, match=r"__transaction_state-0 is damaged at offset 0: .*version 99"):
        highest_producer_id([log])


def test_records_that_one_segment_cannot_hold_are_compacted_in_several_batches(tmp_path: Path) -> None:
    """The node would not start any more: 500 groups with 220 KB of members each are enough at the default."""
    log = open_log(tmp_path / "__consumer_offsets-0", config=LogConfig(segment_bytes=1 << 20))
    for _ in range(12):
        log.append(batch(1000), origin="coordinator")
    partition = partition_of(log)
    live = [(b"%d" % index, bytes(4000)) for index in range(700)]
    system_log.compact(partition, live, timestamp=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (12_000, 12_700)
    read = [record for _, records in system_log.replay(log) for record in records]
    assert [(record.key, record.value) for record in read] == live


def test_a_record_that_no_segment_can_hold_puts_the_compaction_off(tmp_path: Path) -> None:
    log = open_log(tmp_path / "__consumer_offsets-0", config=LogConfig(segment_bytes=1 << 20))
    for _ in range(11):
        log.append(batch(1000), origin="coordinator")
    partition = partition_of(log)
    system_log.compact(partition, [(b"key", bytes(2 << 20))], timestamp=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (0, 11_000)
