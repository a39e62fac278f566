"""What a registry makes of the bytes of its topic."""

from __future__ import annotations

import pytest

from suiro.client import Fetched
from suiro.errors import CorruptRecordError
from suiro.protocol.records import Record, encode_batch
from suiro.registry.records import Key
from suiro.registry.storage import Storage, _decode, _Log


def fetched(data: bytes) -> Fetched:
    return Fetched(data=memoryview(data), aborted=(), high_watermark=1, last_stable_offset=1, log_start_offset=0)


def test_a_schema_that_is_not_what_was_written_is_damage() -> None:
    data = bytearray(encode_batch([Record(offset=0, timestamp=1, key=b"{}", value=b'{"schema": "int"}')]))
    place = data.index(b"int")
    data[place] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        _decode(fetched(bytes(data)), 0)


@pytest.mark.parametrize("version", ["1099511627776", "1e400"])
def test_a_record_that_cannot_be_understood_is_skipped(version: str) -> None:
    reference = f'{{"name": "n", "subject": "o", "version": {version}}}'
    value = f'{{"subject": "s", "version": 1, "id": 1, "schema": "int", "references": [{reference}]}}'
    record = Record(offset=0, timestamp=1, key=Key.schema("s", 1).encode(), value=value.encode())
    rows, following = _decode(fetched(encode_batch([record])), 0)
    assert following == 1
    log = _Log()
    Storage("127.0.0.1:1")._apply(log, 0, rows)
    assert not log.schemas.subjects
