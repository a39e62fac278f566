"""Reading a partition to an offset: what compaction and damage leave of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from suiro.client import EARLIEST, Client, Fetched, ListedOffset
from suiro.errors import CorruptRecordError, DeadlineExceededError, OffsetOutOfRangeError
from suiro.protocol.records import Record, encode_batch
from suiro.topic_table import batches, decode_pairs, pairs, slices_from_the_end

PLACE = ("positions", 0)


class Log:
    """One record in each batch; offsets that are missing were removed."""

    def __init__(self, offsets: list[int], *, start: int = 0, end: int, gives: bool = True) -> None:
        self.offsets, self.start, self.end, self.gives = offsets, start, end, gives
        self.fetches = 0

    @property
    def client(self) -> Client:
        return cast("Client", self)

    def list_offsets(self, wanted: Any, **_: Any) -> dict[Any, ListedOffset]:
        offset = self.start if wanted[PLACE] == EARLIEST else self.end
        return {PLACE: ListedOffset(offset=offset, timestamp=-1, leader_epoch=-1)}

    def fetch(self, wanted: Any, **_: Any) -> dict[Any, Fetched]:
        self.fetches += 1
        at = wanted[PLACE]
        if at < self.start:
            raise OffsetOutOfRangeError(*PLACE, at, self.start, self.end)
        data = b"".join(
            encode_batch([Record(offset=n, timestamp=1, key=b"k", value=b"%d" % n)], base_offset=n)
            for n in self.offsets
            if n >= at and self.gives
        )
        return {
            PLACE: Fetched(
                data=memoryview(data),
                aborted=(),
                high_watermark=self.end,
                last_stable_offset=self.end if self.gives else 0,
                log_start_offset=self.start,
            )
        }


def test_a_partition_that_ends_with_removed_records_is_read_to_its_end() -> None:
    log = Log([0, 2], end=5)
    assert [value for _, value in pairs(log.client, PLACE, 0, 5)] == [b"0", b"2"]
    assert log.fetches == 2


def test_records_from_the_end_offset_on_are_left_out() -> None:
    assert [value for _, value in pairs(Log([0, 1, 2], end=3).client, PLACE, 1, 2)] == [b"1"]


def test_slices_are_read_from_the_end_and_grow() -> None:
    log = Log(list(range(10)), start=1, end=10)
    slices = list(slices_from_the_end(log.client, PLACE, 2))
    assert [[int(value or b"") for _, value in part] for part in slices] == [
        [8, 9],
        [4, 5, 6, 7],
        [1, 2, 3],
    ]


def test_a_log_start_that_moves_past_the_reader() -> None:
    log = Log([3, 4], start=3, end=5)
    assert [value for _, value in pairs(log.client, PLACE, 0, 5)] == [b"3", b"4"]
    with pytest.raises(OffsetOutOfRangeError):
        list(batches(log.client, PLACE, 0, 5, compacted=False))


def test_a_log_that_returns_nothing_is_an_error() -> None:
    log = Log([0], end=5, gives=False)
    with pytest.raises(DeadlineExceededError, match="gives nothing from offset 0 on"):
        list(pairs(log.client, PLACE, 0, 5))


def test_a_value_that_is_not_what_was_written_is_damage() -> None:
    log = Log([0, 1], end=2)
    (part,) = log.fetch({PLACE: 0}).values()
    data = bytearray(part.data)
    data[-2] ^= 4
    changed = replace(part, data=memoryview(bytes(data)))
    with pytest.raises(CorruptRecordError, match="CRC"):
        decode_pairs(changed, 0, 2)
