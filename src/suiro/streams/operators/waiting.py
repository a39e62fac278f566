"""Records in a `TimeOrderedBuffer`: value and headers as one payload."""

from __future__ import annotations

import struct

from suiro.streams.records import Headers

_COUNT = struct.Struct(">H")
_LENGTH = struct.Struct(">i")
_NULL = -1


def pack(value: bytes, headers: Headers) -> bytes:
    parts = [_COUNT.pack(len(headers))]
    for name, content in headers:
        raw = name.encode()
        parts += (_LENGTH.pack(len(raw)), raw)
        parts += (_LENGTH.pack(_NULL),) if content is None else (_LENGTH.pack(len(content)), content)
    return b"".join((*parts, value))


def unpack(payload: bytes) -> tuple[bytes, Headers]:
    (count,) = _COUNT.unpack_from(payload)
    place, headers = _COUNT.size, []
    for _ in range(count):
        name, place = _read(payload, place)
        content, place = _read(payload, place)
        headers.append(((name or b"").decode(), content))
    return payload[place:], tuple(headers)


def _read(payload: bytes, place: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(payload, place)
    place += _LENGTH.size
    return (None, place) if length == _NULL else (payload[place : place + length], place + length)
