"""What a task of the source makes of what it fetches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from suiro.client import Fetched
from suiro.clock import ManualClock
from suiro.errors import CorruptRecordError, DataLossError, UnknownTopicError
from suiro.protocol.records import Record, encode_batch
from suiro.spark.planning import OffsetRange
from suiro.spark.reading import ReadSettings, read_columns, read_range

PLACE = ("flights", 3)
WANTED = OffsetRange(topic="flights", partition=3, start=0, end=4)


class Log:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def fetch(self, offsets: Mapping[tuple[str, int], int], **limits: Any) -> dict[tuple[str, int], Fetched]:
        return {
            PLACE: Fetched(
                data=memoryview(self._data),
                aborted=(),
                high_watermark=4,
                last_stable_offset=4,
                log_start_offset=0,
            )
        }


@pytest.mark.parametrize("read", [read_range, read_columns])
def test_a_value_that_is_not_what_was_written_ends_the_read(read: Any) -> None:
    records = [Record(offset=n, timestamp=n, key=b"k", value=b"%08d" % n) for n in range(4)]
    log = bytearray(encode_batch(records[:2]) + encode_batch(records[2:], base_offset=2))
    place = log.index(b"00000003")
    log[place] ^= 4  # a bit of a disk, or of a memory
    with pytest.raises(CorruptRecordError, match=r"flights-3 is damaged: .*offset 2.*CRC"):
        list(read(Log(bytes(log)), WANTED, ReadSettings(), ManualClock()))


class LogOfAnotherTopic:
    """The topic was deleted and made again after the range was planned."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def fetch(self, offsets: Mapping[tuple[str, int], int], *, topic_ids: Any, **limits: Any) -> Any:
        self.asked.append(topic_ids)
        raise UnknownTopicError("flights is another topic", "UNKNOWN_TOPIC_ID")


@pytest.mark.parametrize("read", [read_range, read_columns])
def test_a_topic_made_again_after_its_range_was_planned_is_not_read(read: Any) -> None:
    log, topic_id = LogOfAnotherTopic(), UUID(int=7)
    wanted = replace(WANTED, topic_id=topic_id.hex)
    with pytest.raises(DataLossError, match="flights is another topic"):
        list(read(log, wanted, ReadSettings(), ManualClock()))
    assert log.asked == [{"flights": topic_id}]
    found = list(read(log, wanted, ReadSettings(fail_on_data_loss=False), ManualClock()))
    assert sum(len(rows) for rows in found) == 0
