"""The first record of a batch that is late enough: the compiled search finds what the decoded records say."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.batches import LEAST_RECORD, TIMESTAMP, crafted_batch

from suiro.errors import CorruptRecordError
from suiro.protocol import time_search
from suiro.protocol.compression import CODEC_NAMES, GZIP, MAX_DECOMPRESSED_BYTES, NONE, ZSTD, TooMuchError
from suiro.protocol.record_batch import HEADER_SIZE, read_header
from suiro.protocol.records import Record, decode_batch, encode_batch

NOW = TIMESTAMP
BIG = b"x" * 700_000


def by_records(data: bytes, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    found = (r for r in decode_batch(data) if r.timestamp >= timestamp and r.offset >= from_offset)
    return next(((record.offset, record.timestamp) for record in found), None)


def by_kernel(data: bytes, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    return time_search.first_at_or_after(data, timestamp, from_offset=from_offset, compiled=True)


def by_python(data: bytes, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    return time_search.first_at_or_after(data, timestamp, from_offset=from_offset, compiled=False)


def outcome(find: Any, *arguments: Any) -> object:
    try:
        return find(*arguments)
    except CorruptRecordError as error:
        return str(error)


@settings(deadline=None, max_examples=60)
@given(
    times=st.lists(st.integers(NOW - 100, NOW + 100), min_size=1, max_size=60),
    sizes=st.lists(st.sampled_from([None, 0, 1, 63, 64, 8_200, 300_000]), min_size=1, max_size=4),
    codec=st.sampled_from(list(CODEC_NAMES)),
    log_append_time=st.booleans(),
    timestamp=st.integers(NOW - 120, NOW + 120),
    from_offset=st.integers(90, 170),
)
def test_it_finds_what_the_records_say(
    times: list[int],
    sizes: list[int | None],
    codec: int,
    log_append_time: bool,
    timestamp: int,
    from_offset: int,
) -> None:
    def value(place: int) -> bytes | None:
        size = sizes[place % len(sizes)]
        return None if size is None else bytes(size)

    records = [
        Record(offset=100 + n, timestamp=time, key=b"k", value=value(n), headers=(("h", b"v"),))
        for n, time in enumerate(times)
    ]
    data = encode_batch(records, base_offset=100, compression=codec, log_append_time=log_append_time)
    if read_header(data).max_timestamp < timestamp:
        timestamp = read_header(data).max_timestamp  # such a batch is not looked into
    expected = by_records(data, timestamp, from_offset)
    assert by_kernel(data, timestamp, from_offset) == expected
    assert by_python(data, timestamp, from_offset) == expected
    assert time_search.first_at_or_after(data, timestamp, from_offset=from_offset) == expected


@settings(deadline=None, max_examples=200)
@given(
    times=st.lists(st.integers(NOW - 100, NOW + 100), min_size=1, max_size=12),
    harm=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=3),
    more=st.integers(-1, 1),
    timestamp=st.sampled_from([NOW - 120, NOW, NOW + 101]),
)
def test_both_loops_say_the_same_of_damage(
    times: list[int], harm: list[tuple[int, int]], more: int, timestamp: int
) -> None:
    records = [
        Record(offset=n, timestamp=time, key=b"k", value=b"v" * n, headers=(("h", None),))
        for n, time in enumerate(times)
    ]
    payload = bytearray(encode_batch(records)[HEADER_SIZE:])
    for place, change in harm:
        payload[place % len(payload)] ^= change
    data = crafted_batch(bytes(payload), count=len(times) + more, latest=NOW + 1000)
    assert outcome(by_python, data, timestamp, 0) == outcome(by_kernel, data, timestamp, 0)


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
def test_millions_of_records_in_a_few_bytes_take_no_memory(codec: int) -> None:
    """Its header promises a time that no record has, so that all of them are gone over."""
    count = 2_000_000
    data = crafted_batch(LEAST_RECORD * count, count=count, codec=codec, latest=NOW + 1000)
    by_kernel(crafted_batch(LEAST_RECORD, count=1), NOW + 1, 0)  # loads what it needs
    tracemalloc.start()
    try:
        assert time_search.first_at_or_after(data, NOW + 1, from_offset=0) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (4 << 20) + (2 * len(data) if codec == NONE else 0)
    assert time_search.first_at_or_after(data, NOW, from_offset=0) == (0, NOW)


def test_few_records_that_become_much_are_passed_over_in_parts() -> None:
    record = encode_batch([Record(offset=0, timestamp=NOW, key=None, value=BIG)])[HEADER_SIZE:]
    data = crafted_batch(record * 20, count=20, codec=ZSTD, latest=NOW + 1000)
    assert time_search.first_at_or_after(data, NOW + 1, from_offset=0) is None
    assert time_search.first_at_or_after(data, NOW, from_offset=0) == (0, NOW)


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (LEAST_RECORD * 5000, 5001),
        (LEAST_RECORD * 5000 + b"\x0c", 5001),
        (LEAST_RECORD * 5000 + b"\xff\xff\xff\xff\x0f", 5001),
        (LEAST_RECORD * 5000 + b"\x01", 5001),
        (b"\xff" * 100_000, 5000),
        (b"", 5000),
        (LEAST_RECORD, 2**31 - 1),
        (LEAST_RECORD[:-1], 1),
    ],
)
@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
def test_records_that_are_none(payload: bytes, count: int, codec: int) -> None:
    data = crafted_batch(payload, count=count, codec=codec, latest=NOW + 1000)
    with pytest.raises(CorruptRecordError):
        time_search.first_at_or_after(data, NOW + 1, from_offset=0)


def test_garbage_does_not_decompress() -> None:
    data = crafted_batch(b"", count=3, codec=GZIP, packed=b"xxxx")
    with pytest.raises(CorruptRecordError, match="gzip"):
        time_search.first_at_or_after(data, NOW, from_offset=0)


def test_a_batch_never_becomes_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: Any = time_search.decompressed_parts
    monkeypatch.setattr(time_search, "decompressed_parts", lambda codec, data: parts(codec, data, limit=1 << 20))
    data = crafted_batch(LEAST_RECORD * 200_000, count=200_000, codec=ZSTD, latest=NOW + 1000)
    with pytest.raises(TooMuchError):
        time_search.first_at_or_after(data, NOW + 1, from_offset=0)
    assert MAX_DECOMPRESSED_BYTES == 512 << 20
