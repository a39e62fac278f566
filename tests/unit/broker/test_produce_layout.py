"""The Produce response that is laid out by hand, read back by kio, in every version."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from suiro.broker.exchange import encode
from suiro.broker.handlers.produce import _layout, _RefusedError, _Write
from suiro.log import Appended
from suiro.protocol.messages import API_KEYS, ErrorCode, read_response

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
OTHER_ID = UUID("10112233-4455-6677-8899-aabbccddeeff")
TIME_MS = 1_700_000_000_123


def written(base_offset: int, *, time: int) -> _Write:
    outcome = Appended(base_offset=base_offset, last_offset=base_offset + 9, log_append_time=time, log_start_offset=3)
    return _Write(partition=None, records=b"", outcome=outcome)  # type: ignore[arg-type]


def framed(version: int, answers: Any, throttle_ms: int = 0) -> bytes:
    (data,) = encode(_layout(version, answers), 99, throttle_ms)
    assert isinstance(data, bytes)
    return data


@pytest.mark.parametrize("throttle_ms", [0, 1234])
@pytest.mark.parametrize("version", range(3, 14))
def test_kio_reads_what_we_lay_out(version: int, throttle_ms: int) -> None:
    blamed = _RefusedError(
        ErrorCode.invalid_record, "two records é", log_start_offset=7, records={0: "no key", 200: "late"}
    )
    refused = _Write(partition=None, records=b"", outcome=blamed)  # type: ignore[arg-type]
    unknown = _RefusedError(ErrorCode.unknown_topic_or_partition, "n" * 200)
    topic: Any = TOPIC_ID if version >= 13 else "topic"
    other: Any = OTHER_ID if version >= 13 else "other"
    answers: Any = {
        topic: {0: written(2**40, time=-1), 300: written(5, time=TIME_MS), 7: refused},
        other: {1: unknown},
    }

    data = framed(version, answers, throttle_ms)
    correlation_id, response = read_response(data[4:], API_KEYS["produce"], version)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert correlation_id == 99
    assert response.throttle_time == timedelta(milliseconds=throttle_ms)

    first, second = response.responses
    assert [getattr(t, "topic_id", None) or t.name for t in (first, second)] == [topic, other]
    plain, timed, bad = first.partition_responses
    (gone,) = second.partition_responses
    assert (plain.index, plain.error_code, plain.base_offset) == (0, ErrorCode.none, 2**40)
    assert (timed.index, timed.base_offset) == (300, 5)
    assert plain.log_append_time is None
    assert timed.log_append_time == datetime.fromtimestamp(TIME_MS / 1000, UTC)
    assert (bad.index, bad.error_code, bad.base_offset) == (7, ErrorCode.invalid_record, -1)
    assert (gone.index, gone.error_code) == (1, ErrorCode.unknown_topic_or_partition)
    if version >= 5:
        assert [p.log_start_offset for p in (plain, bad, gone)] == [3, 7, -1]
    if version >= 8:
        assert (plain.error_message, plain.record_errors) == (None, ())
        assert (bad.error_message, gone.error_message) == ("two records é", "n" * 200)
        errors = [(e.batch_index, e.batch_index_error_message) for e in bad.record_errors]
        assert errors == [(0, "no key"), (200, "late")]


def test_nothing_to_answer() -> None:
    data = framed(9, {})
    assert read_response(data[4:], API_KEYS["produce"], 9)[1].responses == ()
