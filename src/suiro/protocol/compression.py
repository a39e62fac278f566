"""The five codecs of record batch v2. The libraries (`codec_libraries`) are imported on first use.

Snappy is read in both forms that exist in logs: the xerial framing of Java producers and raw blocks; raw is
written, which every client reads. LZ4 frames are written block by block with the "independent" flag, because
Kafka's Java reader refuses linked blocks, which PyArrow's frame writer makes from 64 KB on.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from suiro.errors import CorruptRecordError, UsageError
from suiro.protocol.codec_libraries import codec_library
from suiro.protocol.crc32c import BytesLike
from suiro.protocol.fields import read_uvarint

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES: dict[int, str] = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
CODEC_IDS: dict[str, int] = {name: codec for codec, name in CODEC_NAMES.items()}

MAX_DECOMPRESSED_BYTES = 512 * 1024 * 1024
"""One batch never becomes more than this, whatever it claims: a few crafted bytes must not fill memory."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_LZ4_BLOCK_SIZE = 64 * 1024
# Magic, FLG (version 1, independent blocks), BD (64 KB blocks) and their checksum: what Java producers write.
_LZ4_FRAME_START = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_END_MARK = bytes(4)
_LZ4_STORED = 0x80000000
_CHUNK = 256 * 1024
_GZIP_STEP = 256
_GZIP_LONGEST_STEP = 4096


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
            return codec_library().snappy(data)
        case 3:
            return _lz4_frame(memoryview(data), level)
        case 4:
            return codec_library().zstd(data, level)
        case _:
            raise UsageError(f"no compression codec has the id {codec}; known: {CODEC_NAMES}")


def decompress(codec: int, data: BytesLike, *, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Returns what `compress` was given. Raises `CorruptRecordError` for garbage or for more than `limit` bytes."""
    if codec == NONE:
        return bytes(data)
    return b"".join(decompressed_parts(codec, data, limit=limit))


def decompressed_parts(codec: int, data: BytesLike, *, limit: int = MAX_DECOMPRESSED_BYTES) -> Iterator[bytes]:
    """Yields the same in parts, one at a time, because a few crafted bytes can become half a gigabyte."""
    name = codec_name(codec)
    try:
        match codec:
            case 0:
                yield bytes(data)
            case 1:
                yield from _gunzip(memoryview(data), limit)
            case 2:
                yield from _unsnappy(memoryview(data), limit)
            case _:
                yield from _read_stream(name, data, limit)
    except (OSError, ValueError, zlib.error) as error:
        raise CorruptRecordError(f"a {name} batch does not decompress: {error}") from error


def _lz4_frame(data: memoryview, level: int | None) -> bytes:
    library = codec_library()
    parts = [_LZ4_FRAME_START]
    for start in range(0, len(data), _LZ4_BLOCK_SIZE):
        block = data[start : start + _LZ4_BLOCK_SIZE]
        packed = library.lz4_block(block, level)
        if len(packed) < len(block):
            parts += (len(packed).to_bytes(4, "little"), packed)
        else:
            parts += ((len(block) | _LZ4_STORED).to_bytes(4, "little"), bytes(block))
    parts.append(_LZ4_END_MARK)
    return b"".join(parts)


def _gunzip(data: memoryview, limit: int) -> Iterator[bytes]:
    """Gives a member longer and longer pieces. The bytes behind its end come back as a copy, and with long pieces many
    small members would be copied over and over, as would the rest of a long piece whenever a part is full."""
    size = at = 0
    while True:
        member, step, piece = zlib.decompressobj(wbits=31), _GZIP_STEP, b""
        while not member.eof:
            if not piece:
                piece = bytes(data[at : at + step])
                at += len(piece)
                step = min(2 * step, _GZIP_LONGEST_STEP)
            is_end = not piece
            part = member.decompress(piece, _CHUNK)
            piece = member.unconsumed_tail
            if is_end and not part and not member.eof:
                raise CorruptRecordError("a gzip batch ends in the middle")
            size += len(part)
            _check_limit(size, limit)
            yield part
        at -= len(member.unused_data)
        if at == len(data):
            return


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
    size, _ = read_uvarint(block, 0)
    _check_limit(size, limit)
    return codec_library().unsnappy(block, size)


def _read_stream(name: str, data: BytesLike, limit: int) -> Iterator[bytes]:
    size = 0
    for part in codec_library().unpacked(name, data):
        size += len(part)
        _check_limit(size, limit)
        yield part


def _check_limit(size: int, limit: int) -> None:
    if size > limit:
        raise TooMuchError(f"a batch decompresses to more than {limit} bytes")
