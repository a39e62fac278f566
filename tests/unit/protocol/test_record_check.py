"""What a topic refuses of single records: the compiled check finds what the decoded records say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.batches import LEAST_RECORD, TIMESTAMP, crafted_batch

from suiro.errors import CorruptRecordError
from suiro.protocol import record_check
from suiro.protocol.record_batch import HEADER_SIZE, read_header
from suiro.protocol.record_check import MOST_NAMED, Findings, check_records
from suiro.protocol.records import Record, encode_batch


def check(data: bytes, *, keyed: bool = False, between: tuple[int, int] | None = None) -> Findings:
    return check_records(data[HEADER_SIZE:], read_header(data), keyed=keyed, between=between)


def by_kernel(
    monkeypatch: pytest.MonkeyPatch, data: bytes, *, keyed: bool, between: tuple[int, int] | None
) -> Findings:
    with monkeypatch.context() as patch:
        patch.setattr(record_check, "FEW_RECORDS", -1)
        return check(data, keyed=keyed, between=between)


@settings(deadline=None, max_examples=200)
@given(
    count=st.integers(1, 8),
    harm=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=3),
    more=st.integers(-1, 1),
)
def test_both_ways_refuse_the_same_damage(count: int, harm: list[tuple[int, int]], more: int) -> None:
    records = [
        Record(
            offset=n,
            timestamp=TIMESTAMP + n,
            key=b"k" if n % 2 else None,
            value=b"v" * n,
            headers=(("h", b""),),
        )
        for n in range(count)
    ]
    payload = bytearray(encode_batch(records)[HEADER_SIZE:])
    for place, change in harm:
        payload[place % len(payload)] ^= change
    data = crafted_batch(bytes(payload), count=count + more)

    def said(by: object) -> object:
        try:
            if by == "kernel":
                return by_kernel(pytest.MonkeyPatch(), data, keyed=True, between=(TIMESTAMP, TIMESTAMP + 2))
            return check(data, keyed=True, between=(TIMESTAMP, TIMESTAMP + 2))
        except CorruptRecordError:
            return "damaged"

    assert said("kernel") == said("python")


def test_without_the_kernel_many_records_are_gone_over_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    data = crafted_batch(LEAST_RECORD * 3000, count=3000)
    expected = check(data, keyed=True)
    monkeypatch.setattr(record_check, "is_installed", lambda *_: False)
    assert check(data, keyed=True) == expected
    assert expected.count == 3000
    assert len(expected.first) == MOST_NAMED


@settings(deadline=None, max_examples=60)
@given(
    records=st.lists(
        st.tuples(st.integers(TIMESTAMP - 9, TIMESTAMP + 9), st.sampled_from([None, b"", b"k" * 70])),
        min_size=1,
        max_size=40,
    ),
    keyed=st.booleans(),
    between=st.none() | st.tuples(st.integers(TIMESTAMP - 5, TIMESTAMP), st.integers(TIMESTAMP, TIMESTAMP + 5)),
    log_append_time=st.booleans(),
)
def test_both_ways_find_the_same(
    records: list[tuple[int, bytes | None]],
    keyed: bool,
    between: tuple[int, int] | None,
    log_append_time: bool,
) -> None:
    made = [
        Record(offset=place, timestamp=time, key=key, value=key, headers=(("h", key), ("i", None)))
        for place, (time, key) in enumerate(records)
    ]
    data = encode_batch(made, log_append_time=log_append_time)
    expected = check(data, keyed=keyed, between=between)
    assert by_kernel(pytest.MonkeyPatch(), data, keyed=keyed, between=between) == expected
    largest = max(time for time, _ in records)
    blamed = [
        place
        for place, (time, key) in enumerate(records)
        if (keyed and key is None)
        or (between and not between[0] <= (largest if log_append_time else time) <= between[1])
    ]
    assert [found.place for found in expected.first] == blamed
    assert expected.count == len(blamed)


def test_the_first_are_named_and_all_are_counted() -> None:
    count = 100_000
    findings = check(crafted_batch(LEAST_RECORD * count, count=count), keyed=True)
    assert findings.count == count
    assert [found.place for found in findings.first] == list(range(MOST_NAMED))
    assert all(found.keyless and not found.misdated for found in findings.first)
    assert check(crafted_batch(LEAST_RECORD * count, count=count)).count == 0


@pytest.mark.parametrize("many", [1, 5000])
@pytest.mark.parametrize(
    ("rest", "more"),
    [
        (b"", 1),
        (b"", -1),
        (LEAST_RECORD, 0),
        (b"\0", 0),
        (LEAST_RECORD[:-1], 1),
        (b"\x0c\0\0\0\x06\1\0", 1),  # a key that leads out of its record
        (b"\x0c\0\0\0\1\1\x02", 1),  # a header that is not there
        (b"\xff\xff\xff\xff\xff\x0f" + bytes(7), 1),
    ],
)
def test_records_that_are_none(many: int, rest: bytes, more: int) -> None:
    data = crafted_batch(LEAST_RECORD * many + rest, count=many + more)
    with pytest.raises(CorruptRecordError):
        check(data)


def test_a_count_below_zero() -> None:
    with pytest.raises(CorruptRecordError):
        check(crafted_batch(LEAST_RECORD, count=-1))
