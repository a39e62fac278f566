"""What a registry makes of the bytes of its topic."""

from __future__ import annotations

import pytest

from suiro.client import Fetched
from suiro.errors import CorruptRecordError
from suiro.protocol.records import Record, encode_batch
from suiro.registry.storage import _decode


def test_a_schema_that_is_not_what_was_written_is_damage() -> None:
    data = bytearray(encode_batch([Record(offset=0, timestamp=1, key=b"{}", value=b'{"schema": "int"}')]))
    place = data.index(b"int")
    data[place] ^= 1
    fetched = Fetched(
        data=memoryview(bytes(data)), aborted=(), high_watermark=1, last_stable_offset=1, log_start_offset=0
    )
    with pytest.raises(CorruptRecordError, match="CRC"):
        _decode(fetched, 0)
