"""Snappy, LZ4 and Zstandard, with PyArrow if it is installed, otherwise with small libraries.

Always true: both read what the other writes, and refuse the same bytes (the tests hold them to it). PyArrow is 140 MB,
which a node can do without. Every error is an `OSError` or a `ValueError`, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol

from suiro.extras import is_installed
from suiro.protocol.crc32c import BytesLike
from suiro.protocol.lz4_frames import check_frames, lz4_frames

_CHUNK = 256 * 1024
_STEP = 256
_LONGEST_STEP = 4096
_ZSTD_DEFAULT_LEVEL = 1  # PyArrow's
_LZ4_LEAST_HIGH = 3  # from here on LZ4 works with its other, slower compressor
_LZ4_MOST = 12


class CodecLibrary(Protocol):
    def snappy(self, data: BytesLike) -> bytes:
        """One raw block."""

    def unsnappy(self, block: BytesLike, size: int) -> bytes:
        """A raw block that says it becomes `size` bytes."""

    def lz4_block(self, data: BytesLike, level: int | None) -> bytes: ...

    def zstd(self, data: BytesLike, level: int | None) -> bytes: ...

    def unpacked(self, name: str, data: BytesLike) -> Iterator[bytes]:
        """Frames of "lz4" or "zstd", one after another, in parts of at most 256 KB."""


@cache
def codec_library() -> CodecLibrary:
    return ArrowLibrary() if is_installed("pyarrow") else SmallLibraries()


class ArrowLibrary:
    def snappy(self, data: BytesLike) -> bytes:
        return _arrow("snappy").compress(data, asbytes=True)  # type: ignore[no-any-return]

    def unsnappy(self, block: BytesLike, size: int) -> bytes:
        return _arrow("snappy").decompress(block, size, asbytes=True)  # type: ignore[no-any-return]

    def lz4_block(self, data: BytesLike, level: int | None) -> bytes:
        return _arrow("lz4_raw", level).compress(data, asbytes=True)  # type: ignore[no-any-return]

    def zstd(self, data: BytesLike, level: int | None) -> bytes:
        return _arrow("zstd", level).compress(data, asbytes=True)  # type: ignore[no-any-return]

    def unpacked(self, name: str, data: BytesLike) -> Iterator[bytes]:
        import pyarrow as pa

        if name == "lz4":
            check_frames(memoryview(data))
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
            while part := stream.read(_CHUNK):
                yield part


@cache
def _arrow(name: str, level: int | None = None) -> Any:
    import pyarrow as pa

    if level is None:
        return pa.Codec(name)
    low, high = pa.Codec.minimum_compression_level(name), pa.Codec.maximum_compression_level(name)
    return pa.Codec(name, compression_level=min(max(level, low), high))


class SmallLibraries:
    """cramjam, and what Python 3.14 has of Zstandard, which is a package for those before."""

    def snappy(self, data: BytesLike) -> bytes:
        from cramjam import snappy

        return bytes(snappy.compress_raw(data))

    def unsnappy(self, block: BytesLike, size: int) -> bytes:
        from cramjam import DecompressionError, snappy

        out = bytearray(size)
        try:
            snappy.decompress_raw_into(block, out)
        except DecompressionError as error:
            raise ValueError(error) from None
        return bytes(out)

    def lz4_block(self, data: BytesLike, level: int | None) -> bytes:
        from cramjam import lz4

        if level is None or level < _LZ4_LEAST_HIGH:
            return bytes(lz4.compress_block(data, store_size=False))
        level = min(level, _LZ4_MOST)
        return bytes(lz4.compress_block(data, mode="high_compression", compression=level, store_size=False))

    def zstd(self, data: BytesLike, level: int | None) -> bytes:
        zstd = _zstd()
        if level is None:
            return zstd.compress(data, _ZSTD_DEFAULT_LEVEL)  # type: ignore[no-any-return]
        low, high = zstd.CompressionParameter.compression_level.bounds()
        return zstd.compress(data, min(max(level, low), high))  # type: ignore[no-any-return]

    def unpacked(self, name: str, data: BytesLike) -> Iterator[bytes]:
        if name == "lz4":
            yield from lz4_frames(memoryview(data))
        else:
            yield from _zstd_frames(memoryview(data))


def _zstd_frames(data: memoryview) -> Iterator[bytes]:
    """Gives a frame longer and longer pieces. The bytes behind its end come back as a copy, and with long pieces many
    small frames would be copied over and over."""
    zstd = _zstd()
    at = 0
    while at < len(data):
        frame, step = zstd.ZstdDecompressor(), _STEP
        while not frame.eof:
            piece = b""
            if frame.needs_input:
                piece = bytes(data[at : at + step])
                if not piece:
                    raise ValueError("the last zstd frame ends in the middle")
                at += len(piece)
                step = min(2 * step, _LONGEST_STEP)
            try:
                part = frame.decompress(piece, _CHUNK)
            except zstd.ZstdError as error:
                raise ValueError(error) from None
            if part:
                yield part
        at -= len(frame.unused_data)


def _zstd() -> Any:
    try:
        from compression import zstd
    except ModuleNotFoundError:
        from backports import zstd
    return zstd
