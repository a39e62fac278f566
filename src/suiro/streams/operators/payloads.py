"""Records in a `TimeOrderedBuffer`: value and headers as one payload, and the framing of its parts."""

from __future__ import annotations

import struct

from suiro.streams.records import Headers

_COUNT = struct.Struct(">H")
_LENGTH = struct.Struct(">i")
_NULL = -1


def pack(value: bytes, headers: Headers) -> bytes:
    parts = [_COUNT.pack(len(headers))]
    for name, content in headers:
        parts += framed(name.encode()), framed(content)
    return b"".join((*parts, value))


def unpack(payload: bytes) -> tuple[bytes, Headers]:
    (count,) = _COUNT.unpack_from(payload)
    place, headers = _COUNT.size, []
    for _ in range(count):
        name, place = read_framed(payload, place)
        content, place = read_framed(payload, place)
        headers.append(((name or b"").decode(), content))
    return payload[place:], tuple(headers)


def framed(data: bytes | None) -> bytes:
    """The length of the data, and the data."""
    return _LENGTH.pack(_NULL) if data is None else _LENGTH.pack(len(data)) + data


def read_framed(payload: bytes, place: int) -> tuple[bytes | None, int]:
    """The framed data at this place, and the place behind it."""
    (length,) = _LENGTH.unpack_from(payload, place)
    place += _LENGTH.size
    return (None, place) if length < 0 else (payload[place : place + length], place + length)
