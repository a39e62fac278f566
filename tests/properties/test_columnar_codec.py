"""The compiled codec says what the plain one says, for any records and for any damage to them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.batches import patch_offset
from support.share import examples

from suiro.errors import CorruptRecordError
from suiro.protocol.columnar import HEADERS_TYPE, decode, encode, partitions_of
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.record_batch import iter_headers, read_header, verify
from suiro.protocol.records import Record, control_batch, control_type, decode_batch, encode_batch

END = 1 << 62
CODECS = st.integers(0, 4)
FIELDS = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=70) | st.just(bytes(9000))
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)
TIMESTAMPS = st.integers(0, 2_000) | st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.lists(st.tuples(TIMESTAMPS, FIELDS, FIELDS, HEADERS, st.integers(0, 3)), max_size=12)


def read(log: bytes, **options: object) -> tuple[tuple[Record, ...], int]:
    decoded = decode(log, headers=True, **options)  # type: ignore[arg-type]
    decoded.batch.validate(full=True)
    records = tuple(
        Record(
            offset=row["offset"],
            timestamp=row["timestamp"],
            key=row["key"],
            value=row["value"],
            headers=tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in decoded.batch.to_pylist()
    )
    return records, decoded.next_offset


@given(rows=ROWS, codec=CODECS, max_batch_bytes=st.integers(1, 400) | st.just(1_000_000))
@settings(deadline=None)
def test_encoded_columns_read_back_by_both(
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]],
    codec: int,
    max_batch_bytes: int,
) -> None:
    headers = [[{"key": name, "value": value} for name, value in row[3]] for row in rows]
    batches = encode(
        keys=pa.array([row[1] for row in rows], pa.binary()),
        values=pa.array([row[2] for row in rows], pa.binary()),
        timestamps=np.array([row[0] for row in rows], np.int64),
        partitions=np.array([row[4] for row in rows], np.int32),
        num_partitions=4,
        headers=pa.array(headers, HEADERS_TYPE),
        compression=codec,
        max_batch_bytes=max_batch_bytes,
    )
    for partition in range(4):
        wanted = tuple(
            Record(offset=offset, timestamp=row[0], key=row[1], value=row[2], headers=row[3])
            for offset, row in enumerate(row for row in rows if row[4] == partition)
        )
        log = bytearray()
        offset = 0
        for batch in batches:
            if batch.partition != partition:
                continue
            placed = bytearray(batch.data)
            patch_offset(placed, 0, offset, 0)
            verify(placed, 0, read_header(placed))
            # The same bytes as the plain encoder's, but for the place in the log and the codec's choices.
            plain = encode_batch(
                [
                    Record(offset=n, timestamp=r.timestamp, key=r.key, value=r.value, headers=r.headers)
                    for n, r in enumerate(wanted[offset : offset + batch.count])
                ],
                compression=codec,
            )
            assert batch.data == plain
            assert batch.max_timestamp == read_header(plain).max_timestamp
            assert batch.count == 1 or codec or len(batch.data) <= max_batch_bytes
            offset += batch.count
            log += placed
        assert offset == len(wanted)
        assert read(bytes(log), start_offset=0, end_offset=END) == (wanted, len(wanted))


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """A log of transactions of three producers, with gaps and control batches, and its aborted list."""
    log = b""
    offset = draw(st.integers(0, 100))
    first_offsets: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(0, 10))):
        producer_id = draw(st.integers(1, 3))
        if producer_id in first_offsets and draw(st.booleans()):
            commit = draw(st.booleans())
            log += control_batch(
                commit=commit,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=0,
                base_offset=offset,
            )
            first = first_offsets.pop(producer_id)
            if not commit:
                aborted.append((producer_id, first))
            offset += 1
            continue
        transactional = draw(st.booleans())
        if transactional:
            first_offsets.setdefault(producer_id, offset)
        deltas = sorted(draw(st.sets(st.integers(0, 6), max_size=4)))
        last = max([*deltas, draw(st.integers(0, 6))])
        log += encode_batch(
            [
                Record(
                    offset=offset + delta,
                    timestamp=draw(TIMESTAMPS),
                    key=draw(FIELDS),
                    value=draw(FIELDS),
                    headers=draw(HEADERS),
                )
                for delta in deltas
            ],
            base_offset=offset,
            last_offset_delta=last,
            compression=draw(CODECS),
            producer_id=producer_id if transactional else draw(st.sampled_from([-1, producer_id])),
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
            log_append_time=draw(st.booleans()),
        )
        offset += last + 1
    return log, aborted


def plainly(
    log: bytes, start: int, end: int, aborted: list[tuple[int, int]], read_committed: bool
) -> tuple[tuple[Record, ...], int]:
    """What `decode` should answer, as Kafka's CompletedFetch does it, with the plain decoder."""
    pending = sorted(aborted, key=lambda entry: entry[1])
    active: set[int] = set()
    wanted: list[Record] = []
    next_offset = start
    for position, header in iter_headers(log):
        if header.base_offset >= end:
            return tuple(wanted), end
        next_offset = max(next_offset, min(header.next_offset, end))
        if read_committed and header.producer_id >= 0:
            while pending and pending[0][1] <= header.last_offset:
                active.add(pending.pop(0)[0])
            if header.is_control and control_type(decode_batch(log, position)[0]) == "abort":
                active.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in active:
                continue
        if not header.is_control:
            wanted += [r for r in decode_batch(log, position) if start <= r.offset < end]
    return tuple(wanted), next_offset


@given(made=logs(), start=st.integers(0, 130), span=st.integers(1, 100), committed=st.booleans())
@settings(deadline=None)
def test_any_log_reads_as_the_plain_codec_reads_it(
    made: tuple[bytes, list[tuple[int, int]]], start: int, span: int, committed: bool
) -> None:
    log, aborted = made
    got = read(log, start_offset=start, end_offset=start + span, aborted=aborted, read_committed=committed)
    assert got == plainly(log, start, start + span, aborted, committed)


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    """Passed over in silence, its records would be lost."""
    log = bytearray(encode_batch([Record(offset=n, timestamp=1, key=None, value=b"v") for n in range(3)]))
    log[23] = 0x80  # the sign of the last offset's delta
    with pytest.raises(CorruptRecordError):
        read(bytes(log), start_offset=0, end_offset=END, aborted=[], check_crc=False)


@given(made=logs(), cut=st.integers(0, 1 << 20), damage=st.lists(st.tuples(st.integers(0), st.integers(0, 255))))
@settings(deadline=None, max_examples=examples(300))
def test_damage_is_told_alike_and_never_read_past(
    made: tuple[bytes, list[tuple[int, int]]], cut: int, damage: list[tuple[int, int]]
) -> None:
    """Both decoders read the damaged bytes alike or both refuse them; what stands behind is never read."""
    log, aborted = made
    broken = bytearray(log[: len(log) - cut % (len(log) + 1)])
    for place, byte in damage:
        if broken:
            broken[place % len(broken)] = byte
    # A number torn at the buffer's end would go on into these bytes, if any were read.
    answers = []
    for behind in (b"\x00", b"\xff"):
        guarded = memoryview(bytes(broken) + behind * 4096)[: len(broken)]
        try:
            answers.append(
                read(guarded, start_offset=0, end_offset=END, aborted=aborted, check_crc=False)  # type: ignore[arg-type]
            )
        except CorruptRecordError:
            answers.append(((), -1))
    assert answers[0] == answers[1]
    try:
        wanted = plainly(bytes(broken), 0, END, aborted, True)
    except (CorruptRecordError, IndexError):  # IndexError: a control batch without a record
        return
    if wanted != answers[0]:
        # The compiled one alone refuses: records outside what is asked for, control batches in a codec.
        assert answers[0] == ((), -1)


@given(keys=st.lists(st.none() | st.binary(max_size=40)), count=st.integers(1, 1000))
@settings(deadline=None)
def test_partitions(keys: list[bytes | None], count: int) -> None:
    wanted = [-1 if key is None else partition_for_key(key, count) for key in keys]
    assert partitions_of(pa.array(keys, pa.binary()), count).tolist() == wanted
