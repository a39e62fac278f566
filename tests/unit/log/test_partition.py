"""A partition log through its public face: append, duplicates, bounds of a read, look-ups, retirement."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from support.batches import patch_offset
from support.cleaning import clean_log
from support.full_disk import no_space
from support.logs import NOW_MS, batch, first_found, open_log, open_transaction, read_all, region_bytes

from suiro.clock import ManualClock
from suiro.log import LogConfig, LogError, PartitionLog, files
from suiro.log.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from suiro.log.files import FileHandle
from suiro.log.segment import Segment
from suiro.protocol.crc32c import crc32c
from suiro.protocol.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    iter_headers,
    pack_header,
    read_header,
    verify,
)
from suiro.protocol.records import Record, control_batch, decode_batch, encode_batch

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=50)


def test_batches_get_their_offsets_and_epoch_and_keep_their_crc(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.begin_epoch(4)
    first = log.append(batch(3))
    second = log.append(batch(2))
    assert (first.base_offset, first.last_offset, first.duplicate) == (0, 2, False)
    assert (second.base_offset, second.last_offset) == (3, 4)
    data = region_bytes(log.read(0, max_bytes=1 << 20, read_committed=False))
    for position, header in iter_headers(data):
        verify(data, position, header)
        assert header.partition_leader_epoch == 4
    assert [header.base_offset for _, header in iter_headers(data)] == [0, 3]
    assert log.leader_epoch == 4
    assert log.end_offset_for_epoch(4) == (4, 5)


@pytest.mark.parametrize("container", [bytes, bytearray, memoryview])
def test_any_buffer_will_do_and_is_left_as_it_is(tmp_path: Path, container: type) -> None:
    log = open_log(tmp_path / "t-0")
    data = batch(2)
    given = container(data)
    log.append(batch())
    log.append(given)
    assert bytes(given) == data
    assert read_all(log) == ["0:value", "1:value", "2:value"]


def test_several_batches_of_a_coordinator_are_one_append(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    appended = log.append(batch(2) + batch(3), origin="coordinator")
    assert (appended.base_offset, appended.last_offset) == (0, 4)
    with pytest.raises(LogError):
        log.append(
            batch(producer_id=1, epoch=0, sequence=0) + batch(producer_id=1, epoch=0, sequence=2),
        )
    assert log.log_end_offset == 5
    log.append(batch(producer_id=1, epoch=1, sequence=0))
    with pytest.raises(InvalidProducerEpochError):
        log.append(batch() + batch(producer_id=1, epoch=0, sequence=1), origin="coordinator")
    assert log.log_end_offset == 6


def _altered(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def _at_offset(data: bytes, offset: int) -> bytes:
    moved = bytearray(data)
    patch_offset(moved, 0, offset, 0)
    return bytes(moved)


def _of_codec(data: bytes, codec: int) -> bytes:
    header = replace(read_header(data), attributes=codec)
    return pack_header(header, crc_tail=crc32c(data[HEADER_SIZE:])) + data[HEADER_SIZE:]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.corrupt_message),
        (batch()[:-1], ErrorCode.corrupt_message),
        (batch()[:40], ErrorCode.corrupt_message),
        (_altered(batch(), 16), ErrorCode.corrupt_message),
        (_altered(batch(), 70), ErrorCode.corrupt_message),
        (batch() + b"x", ErrorCode.corrupt_message),
        (_at_offset(batch(), 5), ErrorCode.invalid_record),
        (batch(producer_id=1, epoch=0, sequence=-1), ErrorCode.invalid_record),
        (_of_codec(batch(), 5), ErrorCode.invalid_record),
        (batch(0), ErrorCode.invalid_record),
        (
            control_batch(commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS),
            ErrorCode.invalid_record,
        ),
        (batch(value=b"x" * 2000), ErrorCode.message_too_large),
        (batch(value=b"x" * 600), ErrorCode.record_list_too_large),
        (batch(timestamp=NOW_MS + 3_600_001), ErrorCode.invalid_timestamp),
    ],
)
def test_bad_batches_get_kafkas_error_code(tmp_path: Path, data: bytes, code: ErrorCode) -> None:
    log = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=500, max_message_bytes=1000))
    log.append(batch())
    with pytest.raises(LogError) as caught:
        log.append(data)
    assert caught.value.code is code
    assert read_all(log) == ["0:value"]


def test_a_repeated_batch_is_answered_and_not_written(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for sequence in range(6):
        log.append(batch(producer_id=0, epoch=0, sequence=sequence))
    again = log.append(batch(producer_id=0, epoch=0, sequence=1))
    assert (again.duplicate, again.base_offset, again.last_offset) == (True, 1, 1)
    with pytest.raises(LogError) as caught:
        log.append(batch(producer_id=0, epoch=0, sequence=0))
    assert caught.value.code is ErrorCode.out_of_order_sequence_number
    assert log.log_end_offset == 6


@pytest.mark.parametrize("clean", [True, False])
def test_the_last_five_are_known_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path / "t-0", config=SMALL)
    for sequence in range(12):
        log.append(batch(producer_id=9, epoch=0, sequence=sequence))
    log.close() if clean else log.abandon()
    log = open_log(tmp_path / "t-0", config=SMALL, clean=clean)
    assert [log.append(batch(producer_id=9, epoch=0, sequence=n)).base_offset for n in range(7, 12)] == [
        7,
        8,
        9,
        10,
        11,
    ]
    with pytest.raises(LogError):
        log.append(batch(producer_id=9, epoch=0, sequence=6))
    assert log.append(batch(producer_id=9, epoch=0, sequence=12)).base_offset == 12


def test_a_producers_last_batches_are_looked_for_where_it_wrote_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of days would be read through, and the node with it stand still, for one batch out of order."""
    config = LogConfig(segment_bytes=200)
    log = open_log(tmp_path / "t-0", config=config)
    for sequence in range(6):
        log.append(batch(producer_id=1, epoch=0, sequence=sequence))
    first_of_others = log.log_end_offset
    for _ in range(20):
        log.append(batch())
    log.close()
    again = open_log(tmp_path / "t-0", config=config, clean=True)
    read: list[int] = []
    headers = Segment.headers

    def counted(self: Segment, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        read.append(self.base_offset)
        return headers(self, position)

    monkeypatch.setattr(Segment, "headers", counted)
    with pytest.raises(OutOfOrderSequenceError):
        again.append(batch(producer_id=1, epoch=0, sequence=9))
    assert read
    assert max(read) < first_of_others
    assert again.append(batch(producer_id=1, epoch=0, sequence=2)).base_offset == 2


def test_a_producer_whose_batches_retention_took_goes_on_behind_a_late_repeat(tmp_path: Path) -> None:
    """After a restart only the last one is known, and its place in the log is looked at for the others."""
    config = LogConfig(segment_bytes=200)
    log = open_log(tmp_path / "t-0", config=config)
    for sequence in range(6):
        log.append(batch(producer_id=1, epoch=0, sequence=sequence))
    for _ in range(4):
        log.append(batch())
    log.close()
    again = open_log(tmp_path / "t-0", config=config, clean=True)
    again.retention.delete_records_before(-1)
    assert again.segments[0].base_offset > 5
    with pytest.raises(OutOfOrderSequenceError):
        again.append(batch(producer_id=1, epoch=0, sequence=3))
    assert again.append(batch(producer_id=1, epoch=0, sequence=6)).base_offset == 10


def test_idle_producers_are_forgotten_by_the_time_they_wrote_not_by_event_time(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    log = open_log(tmp_path / "t-0", clock=clock, config=LogConfig(retention_ms=-1))
    log.append(batch(producer_id=9, epoch=0, sequence=0, timestamp=1000))
    log.expire_producers(NOW_MS)
    assert log.append(batch(producer_id=9, epoch=0, sequence=0, timestamp=1000)).duplicate
    clock.advance(1000)
    log.append(batch(producer_id=8, epoch=0, sequence=0, transactional=True))
    log.append(batch(producer_id=7, epoch=0, sequence=0))
    log.expire_producers(NOW_MS + 1000)
    assert {entry.producer_id for entry in log.producer_states()} == {7, 8}
    log.expire_producers(NOW_MS + 1001)
    assert {entry.producer_id for entry in log.producer_states()} == {8}, "its transaction is open"


def test_a_transaction_holds_the_last_stable_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(batch(2))
    log.append(batch(2, producer_id=1, epoch=0, sequence=0, transactional=True, value=b"one"))
    log.append(batch(2, producer_id=2, epoch=0, sequence=0, transactional=True, value=b"two"))
    log.append(batch(1, value=b"plain"))
    assert log.last_stable_offset == 2
    assert log.high_watermark == 7
    assert open_transaction(log, 1) == 2
    assert read_all(log, read_committed=True) == ["0:value", "1:value"]
    assert len(read_all(log)) == 7

    assert log.append_control(False, 1, 0, 0) == 7
    assert log.last_stable_offset == 4
    assert log.read(0, max_bytes=1 << 20, read_committed=True).aborted == [(1, 2)]
    assert log.append_control(True, 2, 0, 0) == 8
    assert log.last_stable_offset == 9
    assert open_transaction(log, 2) is None
    assert log.read(0, max_bytes=1 << 20, read_committed=True).aborted == [(1, 2)]
    assert log.read(0, max_bytes=1 << 20, read_committed=False).aborted == []
    assert log.read(8, max_bytes=1 << 20, read_committed=True).aborted == []


def test_aborted_lists_reach_across_segments_and_end_with_the_region(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=SMALL)
    log.append(batch(producer_id=1, epoch=0, sequence=0, transactional=True))
    for _ in range(20):
        log.append(batch())
    log.append_control(False, 1, 0, 0)
    log.append(batch(producer_id=2, epoch=0, sequence=0, transactional=True))
    log.append_control(False, 2, 0, 0)
    assert len(log.segments) > 2
    assert log.read(0, max_bytes=1, read_committed=True).aborted == [(1, 0)]
    assert log.read(5, max_bytes=1, read_committed=True).aborted == [(1, 0)]
    assert log.read(22, max_bytes=1 << 20, read_committed=True).aborted == [(2, 22)]


@pytest.mark.parametrize("config", [LogConfig(), SMALL, LogConfig(segment_bytes=500, index_interval_bytes=0)])
def test_reads_from_any_offset_in_any_size_find_every_record(tmp_path: Path, config: LogConfig) -> None:
    log = open_log(tmp_path / "t-0", config=config)
    for number in range(30):
        log.append(batch(1 + number % 3, value=b"v" * (1 + 7 * (number % 5))))
    everything = read_all(log)
    assert len(everything) == log.log_end_offset
    for max_bytes in (1, 100, 101, 250, 499, 1000, 10_000):
        assert read_all(log, max_bytes=max_bytes) == everything
    for offset in range(log.log_end_offset):
        result = log.read(offset, max_bytes=200, read_committed=False)
        data = region_bytes(result)
        headers = list(iter_headers(data))
        assert headers[0][1].base_offset <= offset <= headers[0][1].last_offset
        assert sum(header.size for _, header in headers) == len(data) == result.size
        assert len(data) <= max(200, headers[0][1].size)


def test_a_first_batch_larger_than_asked_for(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(batch(value=b"x" * 1000))
    log.append(batch())
    assert len(list(iter_headers(region_bytes(log.read(0, max_bytes=10, read_committed=False))))) == 1
    assert log.read(0, max_bytes=10, read_committed=False, min_one_batch=False).regions == []


def test_reads_outside_the_log_are_refused_and_at_its_end_empty(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(batch(3))
    assert log.read(3, max_bytes=100, read_committed=False).regions == []
    for offset in (-1, 4):
        with pytest.raises(LogError) as caught:
            log.read(offset, max_bytes=100, read_committed=False)
        assert caught.value.code is ErrorCode.offset_out_of_range


def test_a_region_stays_readable_when_its_segment_is_gone(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=SMALL)
    for _ in range(20):
        log.append(batch())
    result = log.read(0, max_bytes=1 << 20, read_committed=False)
    before = region_bytes(result)
    log.delete()
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
    assert region_bytes(result) == before
    for descriptor in others:
        os.close(descriptor)
    assert not (tmp_path / "t-0").exists()


@pytest.mark.parametrize("config", [LogConfig(), SMALL])
@pytest.mark.parametrize("reopen", [False, True])
def test_timestamp_look_ups_agree_with_a_list(tmp_path: Path, config: LogConfig, reopen: bool) -> None:
    log = open_log(tmp_path / "t-0", config=config)
    times = [50, 40, 60, 60, 55, 90, 10, 20, 90, 95, 5, 95, 30, 97, 97, 96] * 3
    times = [time + 100 * (number // 16) for number, time in enumerate(times)]
    for number in range(0, len(times), 4):
        log.append(batch(4, timestamps=times[number : number + 4], compression=number // 4 % 2 * 4))
    if reopen:
        log.close()
        log = open_log(tmp_path / "t-0", config=config, clean=True)
    for wanted in range(0, 310, 3):
        expected = next(((n, t) for n, t in enumerate(times) if t >= wanted), None)
        assert first_found(log.lookups_by_time(wanted)) == expected, wanted
    largest = max(times)
    assert first_found(log.lookups_of_max_timestamp()) == (times.index(largest), largest)
    log.retention.delete_records_before(10)
    assert first_found(log.lookups_by_time(0)) == (10, times[10])


def test_a_look_up_by_time_goes_on_in_what_was_cleaned_meanwhile(tmp_path: Path) -> None:
    """It passed over the records of a segment that cleaning had replaced, and found a later one or none."""
    times = [900, 100, 500, 200, 600, 300]
    one = len(batch(timestamp=times[0]))
    log = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=2 * one, cleanup_policy=("compact",)))
    for number, time in enumerate(times):
        log.append(encode_batch([Record(offset=0, timestamp=time, key=b"key-%d" % number, value=b"value")]))
    log.retention.delete_records_before(1)
    lookups = log.lookups_by_time(400)
    assert next(lookups).run() is None
    before = log.segments
    clean_log(log, NOW_MS)
    assert log.segments[1] is not before[1]
    assert first_found(lookups) == (2, 500)


def test_an_empty_log_has_no_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    assert first_found(log.lookups_by_time(0)) is None
    assert first_found(log.lookups_of_max_timestamp()) is None


def test_log_append_time_is_stamped_with_a_new_crc(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=LogConfig(message_timestamp_type="LogAppendTime"))
    assert log.append(batch(2, timestamp=5)).log_append_time == NOW_MS
    data = region_bytes(log.read(0, max_bytes=1 << 20, read_committed=False))
    header = read_header(data)
    verify(data, 0, header)
    assert [record.timestamp for record in decode_batch(data)] == [NOW_MS, NOW_MS]
    assert first_found(log.lookups_by_time(NOW_MS)) == (0, NOW_MS)


@pytest.mark.parametrize(
    ("config", "batches", "segments"),
    [
        (LogConfig(segment_bytes=200), 6, 3),
        (LogConfig(segment_ms=150), 6, 3),
        (LogConfig(segment_index_bytes=24, index_interval_bytes=0), 7, 4),
    ],
)
def test_segments_roll_by_size_time_and_full_indexes(
    tmp_path: Path, config: LogConfig, batches: int, segments: int
) -> None:
    log = open_log(tmp_path / "t-0", config=config)
    for number in range(batches):
        log.append(batch(timestamp=100 * number))
    assert len(log.segments) == segments
    assert len(read_all(log)) == batches


def _filled(directory: Path, config: LogConfig) -> PartitionLog:
    log = open_log(directory, config=config)
    for number in range(8):
        log.append(batch(timestamp=NOW_MS + 1000 * number))
        log.roll()
    return log


def test_retention_by_size_keeps_what_is_asked_for(tmp_path: Path) -> None:
    size = len(batch())
    log = _filled(tmp_path / "t-0", LogConfig(retention_bytes=3 * size, retention_ms=-1))
    assert log.retention.apply() == 5
    assert (log.log_start_offset, log.log_end_offset) == (5, 8)
    assert len(read_all(log)) == 3


def test_retention_by_time_takes_the_active_segment_too(tmp_path: Path) -> None:
    log = _filled(tmp_path / "t-0", LogConfig(retention_ms=1000))
    log.append(batch(timestamp=NOW_MS + 8000))
    assert log.retention.apply(NOW_MS + 5500) == 5
    assert log.log_start_offset == 5
    assert log.retention.apply(NOW_MS + 50_000) == 4
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert log.append(batch()).base_offset == 9
    names = {path.suffix for path in (tmp_path / "t-0").iterdir()}
    assert names >= {".log", ".index"}


def test_retention_makes_room_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(batch())
    log = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=2 * size, retention_bytes=2 * size))
    for _ in range(9):
        log.append(batch())
    with monkeypatch.context() as patch:
        patch.setattr("suiro.log.checkpoints.replace_file", no_space)
        assert log.retention.apply() == 3
    assert log.log_start_offset == 6
    log.abandon()
    reopened = open_log(tmp_path / "t-0")
    assert read_all(reopened) == ["6:value", "7:value", "8:value"]
    assert reopened.epoch_of(6) == 0


def test_a_compacted_topic_keeps_everything(tmp_path: Path) -> None:
    log = _filled(tmp_path / "t-0", LogConfig(retention_ms=1, retention_bytes=0, cleanup_policy=("compact",)))
    assert log.retention.apply(NOW_MS * 2) == 0


def test_delete_records_moves_the_start_and_drops_whole_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=SMALL)
    for _ in range(20):
        log.append(batch(2))
    before = len(log.segments)
    assert log.retention.delete_records_before(21) == 21
    assert len(log.segments) < before
    assert log.retention.delete_records_before(3) == 21
    assert read_all(log)[0] == "21:value"
    with pytest.raises(LogError):
        log.retention.delete_records_before(41)
    log.close()
    reopened = open_log(tmp_path / "t-0", config=SMALL, clean=True, log_start_offset=21)
    assert read_all(reopened)[0] == "21:value"
    assert reopened.retention.delete_records_before(-1) == 40
    assert read_all(reopened) == []
    assert reopened.append(batch()).base_offset == 40


def test_snapshots_go_with_their_segments(tmp_path: Path) -> None:
    log = _filled(tmp_path / "t-0", LogConfig(retention_ms=1000))
    assert len(list((tmp_path / "t-0").glob("*.snapshot"))) == 8
    log.retention.apply(NOW_MS + 5500)
    assert sorted(int(path.stem) for path in (tmp_path / "t-0").glob("*.snapshot")) == [5, 6, 7, 8]


def test_records_deleted_in_the_middle_of_a_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(batch(5, producer_id=1, epoch=0, sequence=0, transactional=True))
    log.retention.delete_records_before(3)
    assert log.last_stable_offset == 3
    assert read_all(log, read_committed=True) == []
    log.append_control(True, 1, 0, 0)
    assert [text[:2] for text in read_all(log, read_committed=True)] == ["3:", "4:", "5:"]


def test_a_failed_write_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(batch(producer_id=1, epoch=0, sequence=0, transactional=True))
    real = os.pwritev

    def full_disk(handle: int, buffers: list[bytes], position: int) -> int:
        real(handle, [b"".join(buffers)[:30]], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full_disk)
        with pytest.raises(LogError, match="No space left") as caught:
            log.append(batch(producer_id=1, epoch=0, sequence=1, transactional=True))
        assert caught.value.code is ErrorCode.kafka_storage_error
        with pytest.raises(LogError):
            log.append_control(True, 1, 0, 0)
    assert log.segments[0].path.stat().st_size == log.size
    assert open_transaction(log, 1) == 0
    assert log.append(batch(producer_id=1, epoch=0, sequence=1, transactional=True)).base_offset == 1
    # The operator is told once, however often clients repeat the request.
    assert ["No space left" in text for text in caplog.messages] == [True, False]
    assert caplog.messages[-1].endswith("takes records again")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full_disk)
        with pytest.raises(LogError):
            log.append(batch())
    assert "No space left" in caplog.messages[-1], "the next failure is another one"


def test_a_short_write_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "t-0")
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: real(fd, [b"".join(buffers)[:20]], at))
    log.append(batch(3))
    assert len(read_all(log)) == 3


def test_flush_moves_the_recovery_point(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=LogConfig(flush_messages=5))
    log.append(batch(4))
    assert log.recovery_point == 0
    log.append(batch(2))
    assert log.recovery_point == 6
    log.append(batch())
    job = log.flush_job()
    log.append(batch())
    job.run()
    log.flushed(job.end_offset)
    assert (log.recovery_point, log.log_end_offset) == (7, 8)


def test_records_are_due_for_a_flush_after_flush_ms(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    log = open_log(tmp_path / "t-0", clock=clock, config=LogConfig(flush_ms=100))
    clock.advance(100)
    assert not log.is_flush_due(clock.monotonic_ms()), "there is nothing to sync"
    log.append(batch())
    assert log.is_flush_due(clock.monotonic_ms())
    log.flush()
    log.append(batch())
    clock.advance(99)
    assert not log.is_flush_due(clock.monotonic_ms())
    clock.advance(1)
    assert log.is_flush_due(clock.monotonic_ms())


def test_a_flush_of_many_segments_opens_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of 400 GB that was imported has more segments than a process may open files."""
    log = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=100, index_interval_bytes=0))
    for _ in range(100):
        log.append(batch())
    assert len(log.flush_job().handles) < 64
    synced: set[str] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    log.flush()
    assert log.recovery_point == 100
    assert {f"{base:020d}.log" for base in range(100)} <= synced
    assert len(log.flush_job().handles) < 8


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.close()
    with pytest.raises(LogError, match="closed"):
        log.append(batch())
    with pytest.raises(LogError, match="closed"):
        log.append_control(True, 1, 0, 0)


def test_a_disk_full_for_indexes_only_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = LogConfig(index_interval_bytes=0)
    log = open_log(tmp_path / "t-0", config=config)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", no_space)
        patch.setattr("suiro.log.transaction_index.write_all", no_space)
        for sequence in range(600):
            log.append(batch(producer_id=1, epoch=0, sequence=sequence, transactional=True))
        log.append_control(False, 1, 0, 0)
    assert log.read(300, max_bytes=100, read_committed=True).aborted == [(1, 0)]
    assert len(read_all(log)) == 601
    log.close()
    reopened = open_log(tmp_path / "t-0", config=config, clean=True)
    assert reopened.read(300, max_bytes=100, read_committed=True).aborted == [(1, 0)]
    assert reopened.segments[0].offset_index.count == 600


def test_a_disk_full_for_a_new_epoch_or_segment_refuses_the_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=100))
    log.append(batch())
    log.begin_epoch(1)
    with monkeypatch.context() as patch:
        patch.setattr("suiro.log.checkpoints.replace_file", no_space)
        with pytest.raises(LogError, match="leader epoch"):
            log.append(batch())
    assert log.leader_epochs.entries == [(0, 0)]
    with monkeypatch.context() as patch:
        patch.setattr("suiro.log.files.open_handle", no_space)
        log.roll()
        with pytest.raises(LogError):
            log.append(batch())
    assert log.append(batch()).base_offset == 1
    assert log.leader_epochs.entries == [(0, 0), (1, 1)]
    assert read_all(log) == ["0:value", "1:value"]


def test_epochs_that_cannot_be_corrected_at_a_start_are_before_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node starts. But records of an epoch whose rows are wrong on the disk would be taken for those of another."""
    log = open_log(tmp_path / "t-0")
    for epoch in (0, 0, 1):
        log.begin_epoch(epoch)
        log.append(batch())
    log.abandon()
    (path,) = (tmp_path / "t-0").glob("*.log")
    os.truncate(path, path.stat().st_size // 3 + 1)
    rows = tmp_path / "t-0" / "leader-epoch-checkpoint"
    before = rows.read_text()
    with monkeypatch.context() as patch:
        patch.setattr("suiro.log.checkpoints.replace_file", no_space)
        log = open_log(tmp_path / "t-0")
        assert log.leader_epochs.entries == [(0, 0)]
        with pytest.raises(LogError, match="leader epoch"):
            log.append(batch())
    assert rows.read_text() == before
    assert log.append(batch()).base_offset == 1
    log.abandon()
    assert open_log(tmp_path / "t-0").leader_epochs.entries == [(0, 0)]


def test_epochs_that_cannot_be_corrected_at_a_start_are_written_at_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start looks for no epochs in the batches: it went on in epoch 0, and clients that know a later one
    were refused."""
    log = open_log(tmp_path / "t-0")
    for epoch in range(3):
        log.begin_epoch(epoch)
        log.append(batch())
    log.abandon()
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr("suiro.log.checkpoints.replace_file", no_space)
        log = open_log(tmp_path / "t-0")
        log.found_in_tier(0, 2, [(0, 0), (1, 1)])
        log.lead_anew(7)
    log.close()
    log = open_log(tmp_path / "t-0", clean=True)
    assert log.leader_epochs.entries == [(0, 0), (1, 1), (2, 2), (7, 3)]
    assert log.leader_epoch == 7


@pytest.mark.parametrize("clean", [True, False])
def test_a_segment_that_could_not_be_made_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    """Its empty file would stand in front of what a smaller append still writes to the segment before."""
    size = len(batch())
    log = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=3 * size))
    log.append(batch())
    log.append(batch())
    real = files.open_handle

    def no_descriptor_left(path: str | Path, *, create: bool = False) -> FileHandle:
        if Path(path).name == f"{2:020d}.index":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, create=create)

    with monkeypatch.context() as patch:
        patch.setattr("suiro.log.files.open_handle", no_descriptor_left)
        with pytest.raises(LogError):
            log.append(batch(value=b"x" * (size + 20)))
    for _ in range(4):
        log.append(batch())
    expected = [f"{offset}:value" for offset in range(6)]
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert read_all(log) == expected
    if clean:
        log.close()
    else:
        log.abandon()
    reopened = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=3 * size), clean=clean)
    assert read_all(reopened) == expected
    assert read_all(reopened, max_bytes=1) == expected


def test_a_segment_that_could_not_be_sealed_leaves_no_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(batch())
    config = LogConfig(segment_bytes=4 * size, index_interval_bytes=0)
    log = open_log(tmp_path / "t-0", config=config)
    for _ in range(3):
        log.append(batch())
    log.flush()

    def unreadable(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", unreadable)
        with pytest.raises(LogError, match="cannot seal"):
            log.append(batch(value=b"x" * (size + 20)))
    log.append(batch())
    log.abandon()
    reopened = open_log(tmp_path / "t-0", config=config)
    assert [segment.base_offset for segment in reopened.segments] == [0]
    assert read_all(reopened) == ["0:value", "1:value", "2:value", "3:value"]


def test_a_partition_nobody_uses_keeps_no_file_open(tmp_path: Path) -> None:
    def descriptors() -> int:
        links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
        return sum(str(tmp_path) in os.readlink(link) for link in links if os.path.islink(link))

    log = open_log(tmp_path / "t-0", config=SMALL)
    assert descriptors() == 0
    for _ in range(40):
        log.append(batch())
    for offset in range(40):
        log.read(offset, max_bytes=10, read_committed=False)
    assert descriptors() <= 3 * 6
    log.close()
    reopened = open_log(tmp_path / "t-0", config=SMALL, clean=True)
    del log
    assert descriptors() == 0
    assert reopened.log_end_offset == 40


def test_new_settings_count_from_the_next_append_and_retention_on(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    log = open_log(tmp_path / "t-0", clock=clock)
    for _ in range(3):
        log.append(batch(3))
    assert len(log.segments) == 1
    assert log.retention.apply() == 0
    log.update_config(replace(SMALL, segment_bytes=200, retention_ms=1000))
    log.append(batch(3))
    assert len(log.segments) == 2
    clock.advance(5000)
    assert log.retention.apply() == 2
    assert log.log_start_offset == log.log_end_offset == 12


def test_partitions_beyond_the_limit_let_go_of_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.OPEN_FILES, "_limit", 12)
    logs = [open_log(tmp_path / f"t-{number}", config=SMALL) for number in range(20)]
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(12):
        for log in logs:
            assert log.append(batch()).base_offset == turn
    assert len(os.listdir("/proc/self/fd")) - before <= 12
    for log in logs:
        assert len(read_all(log)) == 12
    assert len(os.listdir("/proc/self/fd")) - before <= 12
