"""Records of many offsets, against those of each offset alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suiro.client import Fetched
from suiro.console.records import LogRecord, records_at
from suiro.errors import BrokerFailureError, CorruptRecordError, OffsetOutOfRangeError
from suiro.protocol.record_batch import iter_headers, read_header
from suiro.protocol.records import Record, control_batch, encode_batch


class Log:
    """A partition of these batches, from the offset `first` on. It answers with whole batches, one at least. `aborted`:
    producer, first offset and that of the marker."""

    def __init__(self, batches: list[bytes], *, first: int = 0, aborted: Sequence[tuple[int, int, int]] = ()) -> None:
        self._batches = batches
        self._first = first
        self._aborted = aborted
        self.end = read_header(batches[-1]).next_offset
        self.fetches = self.bytes = 0

    def fetch(self, offsets: Mapping[Any, int], *, max_bytes: int, **more: Any) -> dict[Any, Fetched]:
        ((place, at),) = offsets.items()
        self.fetches += 1
        if not self._first <= at <= self.end:
            raise OffsetOutOfRangeError(*place, at, self._first, self.end)
        data = b""
        for batch in self._batches:
            if data and len(data) + len(batch) > max_bytes:
                break
            data += batch if read_header(batch).next_offset > at else b""
        self.bytes += len(data)
        heads = [head for _, head in iter_headers(data)]
        begin, end = (heads[0].base_offset, heads[-1].next_offset) if heads else (at, at)
        aborted = tuple(one[:2] for one in self._aborted if one[1] < end and begin <= one[2])
        return {
            place: Fetched(
                data=memoryview(data),
                aborted=aborted,
                high_watermark=self.end,
                last_stable_offset=self.end,
                log_start_offset=self._first,
            )
        }


def batch(base: int, deltas: list[int], **more: Any) -> bytes:
    records = [Record(offset=base + delta, timestamp=1, key=None, value=b"%d" % (base + delta)) for delta in deltas]
    return encode_batch(records, base_offset=base, **more)


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def found(log: Log, offsets: list[int]) -> list[tuple[int, Any]]:
    made = records_at(log, "t", 0, offsets)  # type: ignore[arg-type]
    return [
        (offset, one.value if isinstance(one, LogRecord) else type(one) if one is not None else None)
        for offset, one in made
    ]


_batches = st.lists(
    st.tuples(
        st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True).map(sorted),
        st.sampled_from(["plain", "plain", "damaged", "committed", "aborted"]),
    ),
    min_size=1,
    max_size=8,
)


@given(_batches, st.lists(st.integers(0, 99), max_size=12), st.integers(0, 15))
def test_many_are_found_as_each_alone(drawn: list[tuple[list[int], str]], wanted: list[int], first: int) -> None:
    batches: list[bytes] = []
    aborted: list[tuple[int, int, int]] = []
    base = 0
    for deltas, kind in drawn:
        ends = {} if kind in ("plain", "damaged") else {"producer_id": 7, "producer_epoch": 0, "transactional": True}
        made = batch(base, deltas, last_offset_delta=9, **ends)
        batches.append(damaged(made) if kind == "damaged" else made)
        base += 10
        if ends:
            aborted += [(7, base - 10, base)] if kind == "aborted" else []
            is_committed = kind == "committed"
            batches.append(
                control_batch(
                    commit=is_committed, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1,
                    base_offset=base,
                )
            )  # fmt: skip
            base += 1
    together = found(Log(batches, first=first, aborted=aborted), wanted)
    alone = [found(Log(batches, first=first, aborted=aborted), [one]) for one in sorted(set(wanted))]
    assert together == [one for (one,) in alone]


def test_near_ones_take_few_fetches_and_far_ones_few_bytes() -> None:
    """Each took one. Of a log of gigabytes, those in between are not read."""
    log = Log([batch(base, list(range(10))) for base in range(0, 2_000, 10)])
    assert found(log, list(range(0, 2_000, 20))) == [(at, b"%d" % at) for at in range(0, 2_000, 20)]
    assert log.fetches == 2
    far = Log([batch(base, list(range(10))) for base in range(0, 200_000, 10)])
    assert [offset for offset, _ in found(far, [5, 60_005, 120_005, 199_999])] == [5, 60_005, 120_005, 199_999]
    assert (far.fetches, far.bytes < 1_000) == (4, True)


def test_one_that_is_damaged_stops_no_other() -> None:
    good, bad = batch(0, [0, 1]), damaged(batch(2, [0, 1]))
    log = Log([good, bad, batch(4, [0, 1])])
    assert found(log, [0, 2, 3, 5]) == [(0, b"0"), (2, CorruptRecordError), (3, CorruptRecordError), (5, b"5")]
    assert found(log, [1, 4]) == [(1, b"1"), (4, b"4")]


def test_a_damaged_batch_of_many_takes_few_bytes() -> None:
    """For each of its records a megabyte behind it was read."""
    others = [batch(base, list(range(10))) for base in range(20, 10_000, 10)]
    bad = damaged(batch(10, list(range(10))))
    log = Log([batch(0, list(range(10))), bad, *others])
    assert found(log, list(range(9, 21))) == [
        (9, b"9"), *((at, CorruptRecordError) for at in range(10, 20)), (20, b"20"),
    ]  # fmt: skip
    assert log.bytes < 2 * sum(map(len, others))


def test_a_broker_that_finds_the_damage_itself_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log([batch(0, [0]), batch(1, [0]), batch(2, [0])])
    fetch = log.fetch

    def failing(offsets: Mapping[Any, int], **more: Any) -> dict[Any, Fetched]:
        if 1 in offsets.values():
            raise BrokerFailureError("fetch", "CORRUPT_MESSAGE")
        return fetch(offsets, **{**more, "max_bytes": 1})

    monkeypatch.setattr(log, "fetch", failing)
    assert found(log, [0, 1, 2]) == [(0, b"0"), (1, BrokerFailureError), (2, b"2")]


def test_what_the_log_does_not_have_is_none() -> None:
    log = Log([batch(10, [0, 5], last_offset_delta=9)], first=10)
    assert found(log, [3, 10, 12, 15, 19, 20, 90]) == [
        (3, None), (10, b"10"), (12, None), (15, b"15"), (19, None), (20, None), (90, None),
    ]  # fmt: skip
