"""Reads LZ4 frames in parts.

cramjam only reads whole frames, and a small one can become half a gigabyte. So it gets a few blocks at a time, as a
frame of their own. Blocks of a linked frame refer to the 64 KB before them: these come first, as a block that is not
compressed. cramjam checks the header, the blocks and their checksums; the length and the checksum of all are checked
here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_MAGIC = b"\x04\x22\x4d\x18"
_SKIPPED = range(0x184D2A50, 0x184D2A60)  # the magic numbers of frames to skip
_END_MARK = bytes(4)
_STORED = 0x80000000  # in the size of a block that is not compressed
_INDEPENDENT, _BLOCK_SUMS, _LENGTH, _CONTENT_SUM, _DICTIONARY = 0x20, 0x10, 0x08, 0x04, 0x01
_HISTORY = 64 * 1024
_AT_ONCE = 16 * 1024  # compressed bytes, which become 4 MB at most, as one block does, or more that become less
_MOST_TIMES = 255  # what a byte of a block can become
_PART = 256 * 1024
_FRAMES_MOST = 16  # clients write one, and the bytes of many small ones take a hundred times as long
_BLOCKS_AT_FIRST = 1024  # of any size; the blocks of clients become 64 KB or more
_BLOCK_LEAST = 16  # bytes of all further ones, on the average


def lz4_frames(data: memoryview) -> Iterator[bytes]:
    """Yields what the frames contain, in parts of at most 256 KB. Raises `ValueError`."""
    source, frames = _Source(data), 0
    while source.at < len(data):
        frames += 1
        if frames > _FRAMES_MOST:
            raise ValueError(f"it has more than {_FRAMES_MOST} lz4 frames")
        magic = source.take(4)
        if int.from_bytes(magic, "little") in _SKIPPED:
            source.take(source.number(4))
        elif magic == _MAGIC:
            yield from _frame(source)
        else:
            raise ValueError("an lz4 frame starts with other bytes")


class _Source:
    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0
        self.blocks = 0

    def take(self, size: int) -> memoryview:
        self.at += size
        if self.at > len(self.data):
            raise ValueError("the last lz4 frame ends in the middle")
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")


def _frame(source: _Source) -> Iterator[bytes]:
    begin = source.at
    flags, sizes = source.take(2)
    length = source.number(8) if flags & _LENGTH else 0
    source.take(4 if flags & _DICTIONARY else 0)
    header = bytes(source.data[begin : source.at])
    if source.take(1) != _header_sum(header):
        raise ValueError("the header of an lz4 frame is damaged")
    header = bytes((flags & ~(_LENGTH | _CONTENT_SUM | _DICTIONARY), sizes))
    start = _MAGIC + header + _header_sum(header)
    content_sum = _compressor() if flags & _CONTENT_SUM else None
    done, before, is_end = 0, b"", False
    while not is_end:
        blocks, most, is_end = _blocks(source, flags, largest=1 << (8 + 2 * (sizes >> 4 & 7)))
        unpacked = _unpacked(b"".join((start, _stored(before, flags), blocks, _END_MARK)), len(before) + most)
        for at in range(len(before), len(unpacked), _PART):
            part = bytes(unpacked[at : at + _PART])
            done += len(part)
            if content_sum is not None:
                content_sum.compress(part)
                content_sum.flush()
            yield part
        if not flags & _INDEPENDENT:
            before = bytes(unpacked[-_HISTORY:])
    if length not in (0, done):
        raise ValueError(f"the header of an lz4 frame says {length} bytes, and there are {done}")
    if content_sum is not None and source.take(4) != bytes(content_sum.finish())[-4:]:
        raise ValueError("the content of an lz4 frame does not have its checksum")


def _blocks(source: _Source, flags: int, *, largest: int) -> tuple[memoryview, int, bool]:
    """Returns the next blocks, how many bytes they become at most, and whether the frame ends after them."""
    begin, most = source.at, 0
    while source.at - begin < _AT_ONCE or most < _PART:
        size = source.number(4)
        if size == 0:
            return source.data[begin : source.at - 4], most, True
        source.blocks += 1
        if source.blocks > _BLOCKS_AT_FIRST + source.at // _BLOCK_LEAST:
            raise ValueError(f"the blocks of its lz4 frames have fewer than {_BLOCK_LEAST} bytes")
        size &= ~_STORED
        if size > largest:
            raise ValueError(f"a block of an lz4 frame has {size} bytes; at most {largest} are allowed")
        source.take(size + (4 if flags & _BLOCK_SUMS else 0))
        most += min(largest, size * _MOST_TIMES)
    return source.data[begin : source.at], most, False


def _stored(data: bytes, flags: int) -> bytes:
    if not data:
        return b""
    block = (len(data) | _STORED).to_bytes(4, "little") + data
    return block + _checksum(data) if flags & _BLOCK_SUMS else block


def _unpacked(frame: bytes, most: int) -> memoryview:
    from cramjam import DecompressionError, lz4

    out = bytearray(most)
    try:
        size = lz4.decompress_into(frame, out)
    except DecompressionError as error:
        raise ValueError(error) from None
    return memoryview(out)[:size]


@lru_cache(64)
def _header_sum(header: bytes) -> bytes:
    return _checksum(header)[1:2]


def _checksum(data: bytes) -> bytes:
    compressor = _compressor()
    compressor.compress(data)
    return bytes(compressor.finish())[-4:]


def _compressor() -> Any:
    """What it gives at its end has the checksum of all at its end, which cramjam has nowhere else."""
    from cramjam import lz4

    return lz4.Compressor(level=0, content_checksum=True, block_linked=False)
