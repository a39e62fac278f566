"""How many offsets a limit in bytes leaves, from samples of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from support.batches import crafted_batch

from suiro.clock import ManualClock
from suiro.errors import OffsetOutOfRangeError, UnknownTopicError
from suiro.protocol.records import Record, control_batch, encode_batch
from suiro.spark.offsets import evenly_limited, limited
from suiro.spark.record_sizes import FETCHED_BYTES_MAX, MAX_AGE_MS, RecordSizes, sample_of

Place = tuple[str, int]
A0, A1, A2 = ("a", 0), ("a", 1), ("a", 2)


def batch(first: int, count: int, size: int, *, codec: int = 0, time_ms: int = 0) -> bytes:
    records = [Record(offset=first + at, timestamp=time_ms, key=None, value=b"x" * size) for at in range(count)]
    return encode_batch(records, base_offset=first, compression=codec)


@dataclass
class Fetched:
    data: bytes


class Log:
    """Batches of ten records; `sizes`: of a partition's records from an offset on."""

    def __init__(self, sizes: Mapping[Place, Mapping[int, int]]) -> None:
        self.sizes = sizes
        self.asked: list[dict[Place, int]] = []
        self.failure: Exception | None = None
        self.leaves_out: set[Place] = set()
        self.starts: dict[Place, int] = {}
        self.times: dict[Place, tuple[int, int]] = {}  # of the first record, and from one to the next

    def fetch(self, offsets: Mapping[Place, int], **limits: Any) -> dict[Place, Fetched]:
        assert limits["max_wait_ms"] == 0
        self.asked.append(dict(offsets))
        if self.failure is not None:
            raise self.failure
        found: dict[Place, Fetched] = {}
        for place, offset in offsets.items():
            if offset < self.starts.get(place, 0):
                raise OffsetOutOfRangeError(*place, offset, self.starts[place], 10**6)
            data = b"" if place in self.leaves_out else self._from(place, offset)
            has_room = len(data) // 2 <= limits["partition_max_bytes"] or not any(one.data for one in found.values())
            found[place] = Fetched(data if has_room else b"")  # as brokers do
        return found

    def _from(self, place: Place, offset: int) -> bytes:
        first = offset - offset % 10
        size = max((start, size) for start, size in self.sizes[place].items() if start <= first)[1]
        start, step = self.times.get(place, (0, 0))
        return batch(first, 10, size, time_ms=start + first * step) + batch(first + 10, 10, size)


def count(sizes: RecordSizes, max_bytes: int, ends: Mapping[Place, int], max_offsets: int | None = None) -> int | None:
    return sizes.count_within(max_bytes, dict.fromkeys(ends, 0), ends, evenly_limited, max_offsets)


def made(log: Log) -> RecordSizes:
    return RecordSizes(log, ManualClock())


@pytest.mark.parametrize("codec", range(5))
def test_the_size_of_a_record_is_that_without_compression(codec: int) -> None:
    data = batch(40, 10, 1000, codec=codec) + batch(50, 10, 1000, codec=codec)
    assert 1000 < sample_of(data, 45).size < 1020


def test_offsets_without_a_record_count_and_control_records_have_no_size() -> None:
    marker = control_batch(
        commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=110
    )
    data = batch(100, 10, 1000) + marker
    whole = sample_of(data, 100).size * 11
    assert 10_000 < whole < 10_200
    assert sample_of(data, 11).size == pytest.approx(whole / 100)
    assert sample_of(marker, 110).size == 0


def test_a_crafted_batch_is_not_decompressed_to_its_end() -> None:
    bomb = crafted_batch(bytes(256 * 1024 * 1024), count=1, codec=1)
    assert FETCHED_BYTES_MAX < sample_of(bomb, 0).size < 2 * FETCHED_BYTES_MAX


def test_of_what_cannot_be_read_nothing_is_known() -> None:
    damaged = bytearray(batch(0, 10, 1000, codec=4))
    damaged[80:] = bytes(len(damaged) - 80)
    assert sample_of(bytes(damaged), 0).size == 0
    assert sample_of(b"", 0).size == 0
    assert sample_of(b"\0" * 100, 0).size == 0


def test_as_many_are_read_as_fit() -> None:
    sizes = made(Log({A0: {0: 1000}, A1: {0: 1000}}))
    found = count(sizes, 1_000_000, {A0: 10**6, A1: 10**6})
    assert found is not None
    assert 950 < found < 1000


def test_each_partition_counts_with_its_own_size() -> None:
    sizes = made(Log({A0: {0: 3000}, A1: {0: 10}}))
    found = count(sizes, 1_000_000, {A0: 10**6, A1: 10**6})
    assert found is not None
    assert 600 < found < 670  # half of them are large


def test_what_fits_is_not_limited() -> None:
    assert count(made(Log({A0: {0: 10}})), 1_000_000, {A0: 1_000}) is None


def test_records_in_the_middle_may_be_larger_than_the_first_ones() -> None:
    log = Log({A0: {0: 10, 200: 5000}})
    found = count(made(log), 1_000_000, {A0: 10**6}, 1_000)
    assert log.asked == [{A0: 0}, {A0: 500}]
    assert found is not None
    assert found < 200


def test_one_record_is_read_however_large_it_is() -> None:
    assert count(made(Log({A0: {0: 100_000}})), 1, {A0: 10**6}) == 1


def test_a_partition_that_did_not_fit_into_the_answer_counts_as_the_others() -> None:
    log = Log({A0: {0: 1000}, A1: {0: 1000}})
    log.leaves_out = {A1}
    found = count(made(log), 1_000_000, {A0: 10**6, A1: 10**6})
    assert found is not None
    assert 950 < found < 1000


def test_partitions_with_large_batches_are_asked_for_again() -> None:
    log, clock = Log({A0: {0: 10}, A1: {0: 20_000}, A2: {0: 30_000}}), ManualClock()
    sizes, ends = RecordSizes(log, clock), {A0: 2_000_000, A1: 1_000_000, A2: 1_000_000}
    found = count(sizes, 1_000_000, ends)
    assert found is not None
    assert 57 < found <= 60  # a third of each
    assert [list(asked) for asked in log.asked] == [[A0, A1, A2], [A1, A2]] * 2
    # What is known of them is looked at again in turn.
    log.asked.clear()
    log.sizes = {A0: {0: 10}, A1: {0: 20}, A2: {0: 30_000}}
    clock.advance(MAX_AGE_MS)
    found = count(sizes, 1_000_000, ends)
    assert found is not None
    assert 95 < found <= 100
    assert [list(asked) for asked in log.asked] == [[A1, A2, A0]] * 2


def test_few_records_are_read_without_a_look() -> None:
    log = Log({A0: {0: 1000}})
    assert count(made(log), 10, {A0: 99}) is None
    assert log.asked == []


def test_a_log_that_cannot_be_sampled_does_not_stop_the_plan() -> None:
    log = Log({A0: {0: 1000}})
    log.failure = UnknownTopicError("gone", "UNKNOWN_TOPIC_OR_PARTITION")
    assert count(made(log), 10, {A0: 10**6}) is None


def test_what_retention_has_removed_is_not_sampled() -> None:
    """With failOnDataLoss=false the query goes on behind it, with a long backlog."""
    log = Log({A0: {0: 1000}, A1: {0: 1000}})
    log.starts = {A0: 900_000, A1: 10}
    found = count(made(log), 1_000_000, {A0: 10**6, A1: 10**6})
    assert found is not None
    assert 950 < found < 1000


def test_samples_are_taken_once_a_second_and_kept_where_one_fails() -> None:
    log, clock = Log({A0: {0: 1000}}), ManualClock()
    sizes = RecordSizes(log, clock)
    found = count(sizes, 1_000_000, {A0: 10**6})
    assert count(sizes, 1_000_000, {A0: 10**6}) == found
    assert len(log.asked) == 2
    clock.advance(MAX_AGE_MS)
    log.failure = UnknownTopicError("gone", "UNKNOWN_TOPIC_OR_PARTITION")
    assert count(sizes, 1_000_000, {A0: 10**6}) == found
    assert len(log.asked) == 4


@pytest.mark.parametrize(
    ("times", "best"),
    [
        pytest.param({A0: (0, 20), A1: (0, 1)}, limited, id="both cover the same time"),
        pytest.param({A0: (0, 1), A1: (10**6, 1)}, evenly_limited, id="the short one is older"),
        pytest.param({A0: (10**6, 1), A1: (0, 1)}, limited, id="the short one is younger"),
        pytest.param({}, evenly_limited, id="all records have the same time"),
        pytest.param({A0: (0, 10)}, evenly_limited, id="the time of one is not known"),
        pytest.param({A1: (0, 1), A2: (9, 1)}, evenly_limited, id="the time of the short one is not known"),
    ],
)
def test_the_share_after_which_the_fewest_records_wait(times: Mapping[Place, tuple[int, int]], best: object) -> None:
    ends = {A0: 5_000, A1: 100_000, **{place: 100_000 for place in times if place == A2}}
    log = Log({place: {0: 1000} for place in ends})
    log.times.update(times)
    begins = dict.fromkeys(ends, 0)
    found, count = made(log).best_share(22_000_000, begins, ends, (evenly_limited, limited), None)
    assert found is best
    assert count is not None
    assert 20_000 < count < 22_000
