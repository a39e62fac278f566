from __future__ import annotations

import gzip
import os
import random

import lz4.frame
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suiro.errors import CorruptRecordError, UsageError
from suiro.protocol import compression
from suiro.protocol.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    TooMuchError,
    compress,
    decompress,
)
from suiro.protocol.fields import read_uvarint

COMPRESSED = [GZIP, SNAPPY, LZ4, ZSTD]


def outcome(codec: int, data: bytes) -> object:
    try:
        return decompress(codec, data, limit=1 << 20)
    except TooMuchError:
        return "too much"
    except CorruptRecordError:
        return "damaged"


def of_arrow(codec: int, data: bytes) -> object:
    """What PyArrow, another reader, says of the same bytes."""
    try:
        if codec == SNAPPY:
            size, _ = read_uvarint(data, 0)
            return "too much" if size > 1 << 20 else pa.Codec("snappy").decompress(data, size, asbytes=True)
        with pa.CompressedInputStream(pa.BufferReader(data), CODEC_NAMES[codec]) as stream:
            found: bytes = stream.read((1 << 20) + 1)
            return "too much" if len(found) > 1 << 20 else found
    except (OSError, ValueError):
        return "damaged"


def packed_by_arrow(codec: int, data: bytes, level: int | None) -> bytes:
    name = CODEC_NAMES[codec]
    if codec == ZSTD and level is not None:
        low, high = pa.Codec.minimum_compression_level(name), pa.Codec.maximum_compression_level(name)
        return bytes(pa.Codec(name, compression_level=min(max(level, low), high)).compress(data, asbytes=True))
    return bytes(pa.Codec(name).compress(data, asbytes=True))


@settings(deadline=None, max_examples=150)
@given(
    codec=st.sampled_from([SNAPPY, LZ4, ZSTD]),
    data=st.binary(max_size=300) | st.binary(max_size=30).map(lambda part: part * 5000),
    level=st.none() | st.integers(-10, 30),
    frames=st.integers(1, 2),
    harm=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=2),
    cut=st.integers(0, 3),
)
def test_pyarrow_reads_writes_and_refuses_the_same(
    codec: int, data: bytes, level: int | None, frames: int, harm: list[tuple[int, int]], cut: int
) -> None:
    if codec == SNAPPY:
        frames = 1
    for one in (compress(codec, data, level=level), packed_by_arrow(codec, data, level)):
        packed = bytearray(one * frames)
        assert outcome(codec, bytes(packed)) == of_arrow(codec, bytes(packed)) == data * frames
        for place, change in harm:
            packed[place % len(packed)] ^= change
        damaged = bytes(packed[: len(packed) - cut])
        assert outcome(codec, damaged) == of_arrow(codec, damaged)


@settings(deadline=None, max_examples=150)
@given(
    chance=st.randoms(use_true_random=False),
    unit=st.integers(1, 70_000),
    size=st.sampled_from([0, 1, 1000, 70_000, 300_000]),
    form=st.fixed_dictionaries(
        {name: st.booleans() for name in ("block_linked", "block_checksum", "content_checksum", "store_size")}
        | {"block_size": st.integers(4, 7), "compression_level": st.sampled_from([-3, 0, 9])}
    ),
    before=st.sampled_from([b"", b"\x5f\x2a\x4d\x18\x02\x00\x00\x00no"]),
    frames=st.integers(1, 2),
    harm=st.lists(st.tuples(st.integers(0, 30) | st.integers(0, 1 << 20), st.integers(1, 255)), max_size=2),
    cut=st.sampled_from([0, 0, 0, 1, 5]),
)
def test_lz4_frames_of_all_forms(
    chance: random.Random,
    unit: int,
    size: int,
    form: dict[str, int],
    before: bytes,
    frames: int,
    harm: list[tuple[int, int]],
    cut: int,
) -> None:
    """Clients link blocks, add checksums and lengths, and skip frames; blocks repeat what is up to 64 KB before."""
    data = (chance.randbytes(unit) * (size // unit + 1))[:size]
    packed = bytearray((before + lz4.frame.compress(data, **form)) * frames)
    assert outcome(LZ4, bytes(packed)) == of_arrow(LZ4, bytes(packed)) == data * frames
    for place, change in harm:
        packed[place % len(packed)] ^= change
    damaged = bytes(packed[: len(packed) - cut])
    assert outcome(LZ4, damaged) == of_arrow(LZ4, damaged)


def test_many_small_frames_take_no_time_to_read() -> None:
    assert decompress(ZSTD, compress(ZSTD, b"a") * 20_000) == b"a" * 20_000
    # A megabyte of them took more than a second.
    packed = compress(LZ4, b"a")
    assert outcome(LZ4, packed * 16) == b"a" * 16
    assert outcome(LZ4, packed * 17) == "damaged"


def test_many_small_blocks_of_a_frame_take_no_time_to_read() -> None:
    """A megabyte of them took an eighth of a second of Python, a hundred times as long as blocks that clients write."""

    def frame(blocks: int, size: int) -> bytes:
        block = (0x8000_0000 | size).to_bytes(4, "little") + bytes(size)
        return lz4.frame.compress(b"", store_size=False)[:-4] + block * blocks + bytes(4)

    for blocks, size in ((1024, 1), (50_000, 12)):
        assert outcome(LZ4, frame(blocks, size)) == bytes(blocks * size)
    for blocks, size in ((1500, 1), (50_000, 11)):
        assert outcome(LZ4, frame(blocks, size)) == "damaged"


@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 300_000])
def test_there_and_back(codec: int, size: int) -> None:
    data = os.urandom(size // 2) + bytes(size - size // 2)
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data)))) == data


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    frame = compress(LZ4, b"suiro " * 50_000)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0b0010_0000, "the frame's blocks are linked"
    assert pa.CompressedInputStream(pa.py_buffer(frame), "lz4").read() == b"suiro " * 50_000


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_parts_stay_small(codec: int) -> None:
    """Also those of a block that becomes 4 MB."""
    packed = lz4.frame.compress(bytes(9 << 20), block_size=7) if codec == LZ4 else compress(ZSTD, bytes(9 << 20))
    sizes = [len(part) for part in compression.decompressed_parts(codec, packed)]
    assert (sum(sizes), max(sizes)) == (9 << 20, 256 * 1024)


def test_xerial_snappy_of_several_blocks() -> None:
    codec = pa.Codec("snappy")
    blocks = [codec.compress(part, asbytes=True) for part in (b"one " * 100, b"two " * 100)]
    framed = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
    framed += b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    assert decompress(SNAPPY, framed) == b"one " * 100 + b"two " * 100
    for cut in range(17, len(framed)):
        if cut != 16 + 4 + len(blocks[0]):  # between two blocks nothing shows that one is missing
            with pytest.raises(CorruptRecordError):
                decompress(SNAPPY, framed[:cut])


def test_gzip_members_are_joined() -> None:
    assert decompress(GZIP, gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"
    assert decompress(GZIP, gzip.compress(b"") * 200_000) == b"", "in time that grows as their number does"
    long = random.Random(7).randbytes(100_000)
    assert decompress(GZIP, gzip.compress(long) + gzip.compress(b"") + gzip.compress(long)) == long + long


@pytest.mark.parametrize("codec", COMPRESSED)
def test_garbage(codec: int) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(codec, b"\xff\xfe\xfdnot compressed at all")


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused(codec: int) -> None:
    with pytest.raises(CorruptRecordError, match="more than 1000 bytes"):
        decompress(codec, compress(codec, bytes(1001)), limit=1000)
    assert decompress(codec, compress(codec, bytes(1000)), limit=1000) == bytes(1000)


def test_a_snappy_block_that_claims_more_than_it_can_become_takes_no_memory() -> None:
    """Seven bytes made room for half a gigabyte."""
    assert decompress(SNAPPY, compress(SNAPPY, bytes(1 << 20))) == bytes(1 << 20)
    with pytest.raises(CorruptRecordError, match="7 bytes claims to become 536870912"):
        decompress(SNAPPY, b"\x80\x80\x80\x80\x02\x00a")


def test_names() -> None:
    assert compression.codec_id("zstd") == ZSTD
    assert compression.codec_name(LZ4) == "lz4"
    with pytest.raises(UsageError, match="brotli"):
        compression.codec_id("brotli")
    with pytest.raises(CorruptRecordError, match="id 5"):
        decompress(5, b"")
    with pytest.raises(UsageError, match="id 5"):
        compress(5, b"")
