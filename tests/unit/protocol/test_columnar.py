"""What readers must not see, where fetching goes on, and how rows are cut into batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from suiro.errors import CorruptRecordError, UsageError
from suiro.protocol import columnar
from suiro.protocol.columnar import HEADERS_TYPE, EncodedBatch, decode, encode
from suiro.protocol.compression import LZ4
from suiro.protocol.record_batch import read_header, verify
from suiro.protocol.records import Record, control_batch, decode_batch, encode_batch

END = 1 << 62


def data(base_offset: int, count: int, *, producer_id: int = -1, transactional: bool = False) -> bytes:
    records = [Record(offset=base_offset + n, timestamp=n, key=None, value=b"v") for n in range(count)]
    return encode_batch(
        records,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def marker(base_offset: int, producer_id: int, *, commit: bool) -> bytes:
    return control_batch(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=base_offset,
    )


def offsets(log: bytes, start: int = 0, end: int = END, **options: object) -> tuple[list[int], int]:
    decoded = decode(log, start_offset=start, end_offset=end, **options)  # type: ignore[arg-type]
    return decoded.batch["offset"].to_pylist(), decoded.next_offset


TWO_PRODUCERS = (
    data(0, 2, producer_id=1, transactional=True)  # aborted at 6
    + data(2, 2, producer_id=2, transactional=True)  # committed at 7
    + data(4, 2, producer_id=1, transactional=True)
    + marker(6, 1, commit=False)
    + marker(7, 2, commit=True)
    + data(8, 1, producer_id=1, transactional=True)  # the same producer's next transaction
    + marker(9, 1, commit=True)
    + data(10, 1)
)


def test_aborted_records_and_control_batches_are_left_out() -> None:
    assert offsets(TWO_PRODUCERS, aborted=[(1, 0)]) == ([2, 3, 8, 10], 11)


def test_read_uncommitted_leaves_out_control_batches_alone() -> None:
    assert offsets(TWO_PRODUCERS, aborted=[(1, 0)], read_committed=False) == ([0, 1, 2, 3, 4, 5, 8, 10], 11)


def test_a_transaction_aborted_before_the_fetch_began() -> None:
    log = data(20, 2, producer_id=1, transactional=True) + marker(22, 1, commit=False) + data(23, 1)
    assert offsets(log, 20, aborted=[(1, 3)]) == ([23], 24)


def test_aborted_lists_need_no_order_and_hold_several_of_one_producer() -> None:
    log = (
        data(0, 1, producer_id=1, transactional=True)
        + marker(1, 1, commit=False)
        + data(2, 1, producer_id=1, transactional=True)
        + marker(3, 1, commit=True)
        + data(4, 1, producer_id=1, transactional=True)
        + marker(5, 1, commit=False)
    )
    assert offsets(log, aborted=[(1, 4), (1, 0)]) == ([2], 6)


def test_only_transactional_batches_of_an_aborted_producer_are_left_out() -> None:
    assert offsets(data(0, 1, producer_id=1), aborted=[(1, 0)]) == ([0], 1)


def test_a_range_may_hold_nothing() -> None:
    log = marker(5, 1, commit=True) + encode_batch([], base_offset=6, last_offset_delta=3)
    assert offsets(log, 5) == ([], 10)
    assert offsets(b"", 5) == ([], 5)
    assert offsets(data(5, 3)[:-1], 5) == ([], 5)


def test_start_and_end_trim() -> None:
    log = data(0, 5) + data(5, 5) + data(10, 5)
    assert offsets(log, 3, 7) == ([3, 4, 5, 6], 7)
    assert offsets(log, 5, 10) == ([5, 6, 7, 8, 9], 10)
    assert offsets(log, 12, 100) == ([12, 13, 14], 15)
    assert offsets(log[:-1], 3, 100) == ([3, 4, 5, 6, 7, 8, 9], 10)
    assert offsets(data(20, 1), 3, 10) == ([], 10)  # everything before 20 was compacted away


def test_offsets_after_compaction() -> None:
    kept = [Record(offset=n, timestamp=n, key=b"k", value=b"v") for n in (12, 17)]
    log = encode_batch(kept, base_offset=10, last_offset_delta=9)
    assert offsets(log, 10) == ([12, 17], 20)


def test_log_append_time_and_compression() -> None:
    records = [Record(offset=n, timestamp=100 + n, key=None, value=b"v%d" % n) for n in range(4)]
    log = encode_batch(records, log_append_time=True, compression=LZ4)
    batch = decode(log, start_offset=0, end_offset=END).batch
    assert batch["timestamp"].to_pylist() == [103] * 4
    assert batch["value"].to_pylist() == [b"v0", b"v1", b"v2", b"v3"]
    assert batch["key"].null_count == 4


def test_aborted_batches_are_not_even_decompressed() -> None:
    log = bytearray(data(0, 3, producer_id=1, transactional=True))
    log[22] |= LZ4  # its payload is no lz4 frame
    assert offsets(bytes(log), aborted=[(1, 0)]) == ([], 3)
    with pytest.raises(CorruptRecordError, match="lz4"):
        offsets(bytes(log), check_crc=False)


def test_a_decode_stops_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "MAX_DECODED_BYTES", 40)
    for codec in (0, LZ4):
        log = b"".join(
            encode_batch([Record(offset=n, timestamp=0, key=None, value=bytes(20))], base_offset=n, compression=codec)
            for n in range(4)
        )
        assert offsets(log) == ([0], 1)
        assert offsets(log, 1) == ([1], 2)


def test_crcs_are_checked() -> None:
    log = bytearray(data(0, 3) + data(3, 3) + data(6, 3))
    log[2 * len(log) // 3 - 2] ^= 1  # the last value's byte of the second batch
    assert offsets(bytes(log), check_crc=False) == (list(range(9)), 9)
    with pytest.raises(CorruptRecordError, match=r"offset 3, .*CRC"):
        offsets(bytes(log))
    # Batches that are not read are not looked at.
    assert offsets(bytes(log), 6) == ([6, 7, 8], 9)


@pytest.mark.parametrize("count", [-1, 2, 4, 1 << 30])
def test_a_count_that_lies(count: int) -> None:
    log = bytearray(data(0, 3))
    log[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecordError):
        offsets(bytes(log), check_crc=False)


def test_header_names_that_are_not_utf_8_read_as_in_java() -> None:
    record = Record(offset=0, timestamp=0, key=None, value=None, headers=(("xx", b"1"), ("ü", None)))
    log = encode_batch([record]).replace(b"\x04xx", b"\x04\xff\xfe")
    found = decode(log, start_offset=0, end_offset=END, headers=True, check_crc=False)
    headers = found.batch["headers"].to_pylist()
    assert headers == [[{"key": "��", "value": b"1"}, {"key": "ü", "value": None}]]
    assert decode_batch(log)[0].headers == (("��", b"1"), ("ü", None))


def encode_values(rows_of: list[bytes | None], **options: object) -> list[EncodedBatch]:
    rows = len(rows_of)
    arguments: dict[str, object] = {
        "keys": None,
        "values": pa.array(rows_of, pa.binary()),
        "timestamps": np.arange(rows, dtype=np.int64),
        "partitions": np.zeros(rows, np.int32),
        "num_partitions": 1,
    }
    return encode(**{**arguments, **options})  # type: ignore[arg-type]


def test_batches_are_cut_at_their_limit() -> None:
    batches = encode_values([bytes(100)] * 50, max_batch_bytes=500)
    assert sum(batch.count for batch in batches) == 50
    assert all(400 < len(batch.data) <= 500 for batch in batches[:-1])
    for batch in batches:
        header = read_header(batch.data)
        verify(batch.data, 0, header)
        assert header.count == batch.count == header.last_offset_delta + 1


def test_a_record_over_the_limit_has_a_batch_of_its_own() -> None:
    batches = encode_values([b"a", bytes(1000), bytes(1000), b"b", b"c"], max_batch_bytes=200)
    assert [batch.count for batch in batches] == [1, 1, 1, 2]
    assert [batch.count for batch in encode_values([b"a"] * 4, max_batch_bytes=1)] == [1] * 4


def test_partitions_come_in_order_and_keep_theirs() -> None:
    partitions = np.array([2, 0, 2, 5, 0], np.int32)
    batches = encode_values([b"a", b"b", b"c", b"d", b"e"], partitions=partitions, num_partitions=6)
    got = [(batch.partition, [record.value for record in decode_batch(batch.data)]) for batch in batches]
    assert got == [(0, [b"b", b"e"]), (2, [b"a", b"c"]), (5, [b"d"])]
    assert [batch.max_timestamp for batch in batches] == [4, 2, 3]


def test_nothing_to_encode() -> None:
    assert encode_values([]) == []
    assert encode_values([], headers=pa.array([], HEADERS_TYPE), num_partitions=4) == []


def test_sliced_chunked_string_and_null_columns() -> None:
    values = pa.chunked_array([pa.array(["x", None])[1:], pa.array(["ü", "z"])])
    keys = pa.nulls(4)[1:]
    headers = pa.array([[{"key": "gone", "value": b"1"}], None, [{"key": "h", "value": None}], []], HEADERS_TYPE)
    (batch,) = encode_values([b""] * 3, values=values, keys=keys, headers=headers[1:], timestamps=pa.array([5, 6, 7]))
    assert decode_batch(batch.data) == (
        Record(offset=0, timestamp=5, key=None, value=None),
        Record(offset=1, timestamp=6, key=None, value="ü".encode(), headers=(("h", None),)),
        Record(offset=2, timestamp=7, key=None, value=b"z"),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitions": np.array([0, -1], np.int32)}, "without a key"),
        ({"partitions": np.array([0, 1], np.int32)}, "partitions must lie"),
        ({"keys": pa.array([b"one"])}, "keys has 1 rows"),
        ({"values": pa.array([1, 2])}, "binary or string"),
        ({"timestamps": np.zeros(1, np.int64)}, "timestamps"),
        ({"timestamps": pa.array([1, None])}, "null"),
        ({"headers": pa.array([b"a", b"b"])}, "headers must be lists"),
        ({"headers": pa.array([[{"key": None, "value": b""}], []], HEADERS_TYPE)}, "null"),
        ({"headers": pa.array([[]], HEADERS_TYPE)}, "headers has 1 rows"),
    ],
)
def test_columns_of_other_shapes(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        encode_values([b"a", b"b"], **options)
