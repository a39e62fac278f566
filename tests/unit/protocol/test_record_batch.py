from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.batches import patch_offset

from suiro.errors import CorruptRecordError, UsageError
from suiro.protocol import columnar
from suiro.protocol.compression import GZIP, ZSTD, codec_name, decompress
from suiro.protocol.crc32c import combine, crc32c
from suiro.protocol.record_batch import iter_headers, next_sequence, read_header, verify, with_producer
from suiro.protocol.records import (
    Record,
    control_batch,
    control_type,
    decode_batch,
    encode_batch,
    iter_batch,
)

VECTORS = Path(__file__).parents[2] / "vectors" / "protocol" / "record-batch-v2.json"
BATCHES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["batches"]


def records(count: int, *, base_offset: int = 0) -> list[Record]:
    return [
        Record(offset=base_offset + n, timestamp=1000 - n, key=b"k%d" % n, value=b"v" * n, headers=(("h", None),))
        for n in range(count)
    ]


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in BATCHES])
def test_recorded_batch(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    expect = vector["expect"]
    header = read_header(data)
    verify(data, 0, header)
    assert header.size == len(data)
    if vector["name"] == "kafkajs: zstd batch":
        # Recorded with a zstd payload under attributes that say "none": a reader must not trust it.
        assert decompress(ZSTD, data[61:])
        with pytest.raises(CorruptRecordError):
            decode_batch(data)
        with pytest.raises(CorruptRecordError):
            columnar.decode(data, start_offset=0, end_offset=10)
        return
    for name in ("base_offset", "producer_id", "producer_epoch", "base_sequence", "magic", "is_control"):
        if name in expect:
            assert getattr(header, name) == expect[name], name
    if "codec" in expect:
        assert expect["codec"].startswith(codec_name(header.compression))
    if "first_timestamp_ms" in expect:
        assert header.base_timestamp == expect["first_timestamp_ms"]
    if "timestamp_type" in expect:
        assert header.is_log_append_time == bool(expect["timestamp_type"])
    got = decode_batch(data)
    assert len(got) == len(expect["records"])
    for record, wanted in zip(got, expect["records"], strict=True):
        if "key_hex" in wanted:
            assert record.key == bytes.fromhex(wanted["key_hex"])
            assert record.value == bytes.fromhex(wanted["value_hex"])
            assert record.timestamp == header.base_timestamp + wanted["timestamp_delta_ms"]
            assert record.offset == wanted["offset_delta"]
        else:
            assert record.offset == wanted["offset"]
            assert record.timestamp == wanted["timestamp"]
            assert record.key == bytes.fromhex(wanted["key"])
            assert record.value == bytes.fromhex(wanted["value"])
    columns = columnar.decode(data, start_offset=0, end_offset=10).batch
    delivered = () if header.is_control else got
    assert columns["value"].to_pylist() == [record.value for record in delivered]
    assert columns["timestamp"].to_pylist() == [record.timestamp for record in delivered]


def test_a_batch_written_and_read() -> None:
    wanted = tuple(records(5, base_offset=40))
    data = encode_batch(
        wanted,
        base_offset=40,
        compression=GZIP,
        producer_id=9,
        producer_epoch=2,
        base_sequence=7,
        leader_epoch=3,
    )
    header = read_header(data)
    verify(data, 0, header)
    assert decode_batch(data) == wanted
    assert (header.size, header.last_offset, header.next_offset) == (len(data), 44, 45)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (
        9,
        2,
        7,
        11,
    )
    assert (header.base_timestamp, header.max_timestamp, header.partition_leader_epoch) == (1000, 1000, 3)
    assert not header.is_control
    assert not header.is_transactional
    assert not header.has_delete_horizon


def test_records_are_read_one_by_one() -> None:
    """Those before what is corrupt are there, and it is told of where it is met."""
    records = [Record(offset=at, timestamp=1, key=None, value=b"value") for at in range(3)]
    batch = bytearray(encode_batch(records))
    assert tuple(iter_batch(batch)) == decode_batch(batch)
    last = batch.rindex(b"value")
    batch[last - 1] = 0x7E  # the length of the last value
    found = iter_batch(batch)
    assert [next(found).offset, next(found).offset] == [0, 1]
    with pytest.raises(CorruptRecordError, match="the batch at offset 0 is corrupt"):
        next(found)
    with pytest.raises(CorruptRecordError, match="the batch at offset 0 is corrupt"):
        decode_batch(batch)


def test_sequences_wrap() -> None:
    assert next_sequence(2**31 - 1, 1) == 0
    data = encode_batch(records(3), base_sequence=2**31 - 2)
    assert read_header(data).last_sequence == 0
    assert read_header(encode_batch(records(3))).last_sequence == -1


def test_gaps_and_empty_batches() -> None:
    first, _, third = records(3)
    data = encode_batch([first, third], last_offset_delta=9)
    assert [record.offset for record in decode_batch(data)] == [0, 2]
    assert read_header(data).next_offset == 10
    empty = encode_batch([], base_offset=10, last_offset_delta=4)
    assert decode_batch(empty) == ()
    assert read_header(empty).next_offset == 15
    with pytest.raises(UsageError, match="rise"):
        encode_batch([third, first])
    with pytest.raises(UsageError, match="last_offset_delta"):
        encode_batch([first, third], last_offset_delta=1)


def test_log_append_time() -> None:
    data = encode_batch(records(3), log_append_time=True)
    assert {record.timestamp for record in decode_batch(data)} == {1000}


@pytest.mark.parametrize("commit", [True, False])
def test_control_batches(commit: bool) -> None:
    data = control_batch(
        commit=commit, producer_id=5, producer_epoch=1, coordinator_epoch=8, timestamp=77, base_offset=30
    )
    header = read_header(data)
    verify(data, 0, header)
    assert header.is_control
    assert header.is_transactional
    (record,) = decode_batch(data)
    assert control_type(record) == ("commit" if commit else "abort")
    assert record.value == bytes(2) + (8).to_bytes(4, "big")
    assert (record.offset, record.timestamp) == (30, 77)


def test_other_control_types_end_no_transaction() -> None:
    for key in (None, b"\x00", b"\x00\x00\x00\x05"):
        assert control_type(Record(offset=0, timestamp=0, key=key, value=b"")) is None


def test_torn_tails_end_the_walk_and_garbage_raises() -> None:
    one, two = encode_batch(records(3)), encode_batch(records(2, base_offset=3), base_offset=3)
    log = one + two
    for cut in range(len(log) + 1):
        whole = [place for place, end in ((0, len(one)), (len(one), len(log))) if end <= cut]
        assert [place for place, _ in iter_headers(log[:cut])] == whole
    with pytest.raises(CorruptRecordError, match="magic 0"):
        list(iter_headers(log + bytes(61)))
    with pytest.raises(CorruptRecordError, match="length of 48"):
        read_header(one[:8] + (48).to_bytes(4, "big") + one[12:])
    with pytest.raises(CorruptRecordError, match="no batch header"):
        read_header(one[:60])
    with pytest.raises(CorruptRecordError, match="cut"):
        verify(one[:-1], 0, read_header(one))
    with pytest.raises(CorruptRecordError, match="cut"):
        decode_batch(one[:-1])


def test_the_crc_covers_everything_from_the_attributes_on() -> None:
    data = encode_batch(records(3))
    for place in range(21, len(data)):
        broken = bytearray(data)
        broken[place] ^= 1
        with pytest.raises(CorruptRecordError, match="CRC"):
            verify(broken, 0, read_header(data))
    moved = bytearray(data)
    patch_offset(moved, 0, 1234, 5)
    header = read_header(moved)
    verify(moved, 0, header)
    assert (header.base_offset, header.partition_leader_epoch) == (1234, 5)


@pytest.mark.parametrize("give_tail", [True, False])
def test_a_producer_takes_a_batch(give_tail: bool) -> None:
    data = encode_batch(records(4))
    owned = with_producer(
        data,
        producer_id=77,
        producer_epoch=3,
        base_sequence=12,
        transactional=True,
        crc_tail=crc32c(data[61:]) if give_tail else None,
    )
    assert owned == encode_batch(records(4), producer_id=77, producer_epoch=3, base_sequence=12, transactional=True)
    again = with_producer(
        owned, producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False, crc_tail=None
    )
    assert again == data
    with pytest.raises(UsageError, match="one whole batch"):
        with_producer(data + data, producer_id=1, producer_epoch=0, base_sequence=0, transactional=False)


def test_combined_crcs() -> None:
    head = b"suiro"
    for size in (0, 1, 61, 70_000):
        tail = os.urandom(size)
        assert combine(crc32c(head), crc32c(tail), size) == crc32c(head + tail) == crc32c(tail, crc32c(head))
    assert crc32c(b"123456789") == 0xE3069283
