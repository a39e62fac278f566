"""The five codecs of record batch v2: zlib, cramjam, and Zstandard of Python 3.14, which is a package for those before.
The libraries are imported on first use.

Snappy is read in both forms that exist in logs: the xerial framing of Java producers and raw blocks; raw is
written, which every client reads. LZ4 frames are written block by block with the "independent" flag, because
Kafka's Java reader refuses linked blocks, which PyArrow's frame writer makes from 64 KB on.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from suiro.errors import CorruptRecordError, UsageError
from suiro.protocol.crc32c import BytesLike
from suiro.protocol.fields import read_uvarint
from suiro.protocol.lz4_frames import lz4_frames

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES: dict[int, str] = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
CODEC_IDS: dict[str, int] = {name: codec for codec, name in CODEC_NAMES.items()}

MAX_DECOMPRESSED_BYTES = 512 * 1024 * 1024
"""One batch never becomes more than this, whatever it claims: a few crafted bytes must not fill memory."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_SNAPPY_MOST_TIMES = 22  # what a byte of a block can become: three bytes copy 64
_LZ4_BLOCK_SIZE = 64 * 1024
# Magic, FLG (version 1, independent blocks), BD (64 KB blocks) and their checksum: what Java producers write.
_LZ4_FRAME_START = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_END_MARK = bytes(4)
_LZ4_STORED = 0x80000000
_LZ4_LEAST_HIGH, _LZ4_MOST = 3, 12  # between them, LZ4 works with its other, slower compressor
_ZSTD_DEFAULT_LEVEL = 1
_PART = 256 * 1024
_PIECE = 4096
"""Given to a decompressor at a time. What is behind the end of a frame comes back as a copy: with long pieces, many
small frames would be copied over and over."""


class TooMuchError(CorruptRecordError):
    """A batch decompresses to more than the caller accepts."""


def codec_name(codec: int) -> str:
    """`compression.type`'s word for a codec id. Raises `CorruptRecordError` for ids without one (5-7)."""
    try:
        return CODEC_NAMES[codec]
    except KeyError:
        raise CorruptRecordError(f"no compression codec has the id {codec}; known: {CODEC_NAMES}") from None


def codec_id(name: str) -> int:
    """The codec id of `compression.type`'s word."""
    try:
        return CODEC_IDS[name]
    except KeyError:
        raise UsageError(f"unknown compression {name!r}; choose one of {', '.join(CODEC_IDS)}") from None


def compress(codec: int, data: BytesLike, *, level: int | None = None) -> bytes:
    """`data` in the codec's form, as the bytes after a batch's header; without a level, at the codec's own."""
    match codec:
        case 0:
            return bytes(data)
        case 1:
            compressor = zlib.compressobj(-1 if level is None else level, wbits=31)
            return compressor.compress(data) + compressor.flush()
        case 2:
            from cramjam import snappy

            return bytes(snappy.compress_raw(data))
        case 3:
            return _lz4_frame(memoryview(data), level)
        case 4:
            if level is not None:
                low, high = _zstd().CompressionParameter.compression_level.bounds()
                level = min(max(level, low), high)
            return bytes(_zstd().compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))
        case _:
            raise UsageError(f"no compression codec has the id {codec}; known: {CODEC_NAMES}")


def decompress(codec: int, data: BytesLike, *, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Returns what `compress` was given. Raises `CorruptRecordError` for garbage or for more than `limit` bytes."""
    if codec == NONE:
        return bytes(data)
    return b"".join(decompressed_parts(codec, data, limit=limit))


def decompressed_parts(codec: int, data: BytesLike, *, limit: int = MAX_DECOMPRESSED_BYTES) -> Iterator[bytes]:
    """Yields the same in parts, one at a time, because a few crafted bytes can become half a gigabyte."""
    name, view = codec_name(codec), memoryview(data)
    try:
        match codec:
            case 0:
                yield bytes(data)
            case 1:
                yield from _limited(_gunzip(view), limit)
            case 2:
                yield from _unsnappy(view, limit)
            case 3:
                yield from _limited(lz4_frames(view), limit)
            case _:
                yield from _limited(_zstd_frames(view), limit)
    except (OSError, ValueError, zlib.error) as error:
        raise CorruptRecordError(f"a {name} batch does not decompress: {error}") from error


def _lz4_frame(data: memoryview, level: int | None) -> bytes:
    from cramjam import lz4

    is_high = level is not None and level >= _LZ4_LEAST_HIGH
    how: dict[str, Any] = {"mode": "high_compression", "compression": min(level or 0, _LZ4_MOST)} if is_high else {}
    parts = [_LZ4_FRAME_START]
    for start in range(0, len(data), _LZ4_BLOCK_SIZE):
        block = data[start : start + _LZ4_BLOCK_SIZE]
        packed = bytes(lz4.compress_block(block, store_size=False, **how))
        if len(packed) < len(block):
            parts += (len(packed).to_bytes(4, "little"), packed)
        else:
            parts += ((len(block) | _LZ4_STORED).to_bytes(4, "little"), bytes(block))
    parts.append(_LZ4_END_MARK)
    return b"".join(parts)


def _gunzip(data: memoryview) -> Iterator[bytes]:
    at = 0
    while True:
        member, piece = zlib.decompressobj(wbits=31), b""
        while not member.eof:
            if not piece:
                piece = bytes(data[at : at + _PIECE])
                at += len(piece)
            is_end = not piece
            part = member.decompress(piece, _PART)
            piece = member.unconsumed_tail
            if is_end and not part and not member.eof:
                raise CorruptRecordError("a gzip batch ends in the middle")
            yield part
        at -= len(member.unused_data)
        if at == len(data):
            return


def _zstd_frames(data: memoryview) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        frame = _zstd().ZstdDecompressor()
        while not frame.eof:
            piece = b""
            if frame.needs_input:
                piece = bytes(data[at : at + _PIECE])
                at += len(piece)
                if not piece:
                    raise CorruptRecordError("a zstd batch ends in the middle")
            try:
                yield frame.decompress(piece, _PART)
            except _zstd().ZstdError as error:
                raise ValueError(error) from None
        at -= len(frame.unused_data)


def _unsnappy(data: memoryview, limit: int) -> Iterator[bytes]:
    """A part is a block, which is never more than some twenty times its compressed size."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield _unsnappy_block(data, limit)
        return
    if len(data) < _XERIAL_HEADER_SIZE:
        raise CorruptRecordError("a snappy batch ends inside its xerial header")
    at = _XERIAL_HEADER_SIZE
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        block = data[at + 4 : at + 4 + size]
        if at + 4 + size > len(data):
            raise CorruptRecordError(f"a snappy block claims {size} bytes, {max(len(block), 0)} are left")
        part = _unsnappy_block(block, limit)
        limit -= len(part)
        yield part
        at += 4 + size


def _unsnappy_block(block: memoryview, limit: int) -> bytes:
    from cramjam import DecompressionError, snappy

    size, _ = read_uvarint(block, 0)
    _check_limit(size, limit)
    if size > len(block) * _SNAPPY_MOST_TIMES:
        raise CorruptRecordError(f"a snappy block of {len(block)} bytes claims to become {size}")
    out = bytearray(size)
    try:
        snappy.decompress_raw_into(block, out)
    except DecompressionError as error:
        raise ValueError(error) from None
    return bytes(out)


def _limited(parts: Iterator[bytes], limit: int) -> Iterator[bytes]:
    size = 0
    for part in parts:
        size += len(part)
        _check_limit(size, limit)
        yield part


def _check_limit(size: int, limit: int) -> None:
    if size > limit:
        raise TooMuchError(f"a batch decompresses to more than {limit} bytes")


@cache
def _zstd() -> Any:
    try:
        from compression import zstd
    except ModuleNotFoundError:
        from backports import zstd
    return zstd
