"""The Fetch response that is laid out by hand, read back by kio, in every version."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest

from suiro.broker.coordination.fetch_sessions import Wanted
from suiro.broker.exchange import encode
from suiro.broker.handlers.fetch import _layout
from suiro.log import FileHandle, ReadResult
from suiro.protocol.messages import API_KEYS, ErrorCode, read_response

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
OTHER_ID = UUID("10112233-4455-6677-8899-aabbccddeeff")
RECORDS = b"r" * 300


@pytest.fixture
def file(tmp_path: Path) -> FileHandle:
    (tmp_path / "log").write_bytes(b"....." + RECORDS)
    return FileHandle(os.open(tmp_path / "log", os.O_RDONLY))


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("read_committed", [False, True])
def test_kio_reads_what_we_lay_out(file: FileHandle, version: int, read_committed: bool) -> None:
    full = ReadResult(
        regions=[(file, 5, 200), (file, 205, 100)],
        size=300,
        high_watermark=40,
        last_stable_offset=30,
        log_start_offset=3,
        aborted=[(7, 11), (8, 12)] if read_committed else [],
    )
    empty = ReadResult(regions=[], size=0, high_watermark=1, last_stable_offset=1, log_start_offset=0, aborted=[])

    def wanted(topic: str | UUID, index: int, result: ReadResult | None, code: ErrorCode) -> Wanted:
        return Wanted(key=(topic, index), offset=0, max_bytes=0, code=code, result=result)

    topic: str | UUID = TOPIC_ID if version >= 13 else "topic"
    other: str | UUID = OTHER_ID if version >= 13 else "other"
    diverged = wanted(other, 7, empty, ErrorCode.none)
    diverged.diverging = (3, 1234) if version >= 12 else None
    parts = [
        wanted(topic, 0, full, ErrorCode.none),
        wanted(topic, 1, empty, ErrorCode.none),
        wanted(topic, 200, None, ErrorCode.offset_out_of_range),
        diverged,
    ]
    layout = _layout(version, parts, session_id=4711, read_committed=read_committed)
    pieces = encode(layout, 99)
    data = b"".join(p if isinstance(p, bytes) else os.pread(p[0], p[2], p[1]) for p in pieces)
    assert int.from_bytes(data[:4], "big") == len(data) - 4

    correlation_id, response = read_response(data[4:], API_KEYS["fetch"], version)
    assert correlation_id == 99
    first, second = response.responses
    assert [getattr(t, "topic_id", None) or t.topic for t in (first, second)] == [topic, other]
    (last,) = second.partitions
    assert last.partition_index == 7
    if version >= 12:
        assert (last.diverging_epoch.epoch, last.diverging_epoch.end_offset) == (3, 1234)
        assert first.partitions[0].diverging_epoch.epoch == -1
    whole, nothing, failed = first.partitions
    assert (whole.partition_index, whole.records, whole.high_watermark) == (0, RECORDS, 40)
    assert (whole.last_stable_offset, nothing.records or b"") == (30, b"")
    assert (failed.partition_index, failed.error_code) == (200, ErrorCode.offset_out_of_range)
    if read_committed:
        assert [(a.producer_id, a.first_offset) for a in whole.aborted_transactions] == [(7, 11), (8, 12)]
    else:
        assert whole.aborted_transactions is None
    if version >= 5:
        assert whole.log_start_offset == 3
    if version >= 7:
        assert (response.error_code, response.session_id) == (ErrorCode.none, 4711)
