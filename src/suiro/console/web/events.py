"""Server-sent events as bytes."""

from __future__ import annotations

from typing import Any

import msgspec

KEEP_ALIVE = b": keep-alive\n\n"
_encode = msgspec.json.Encoder().encode


def event(name: str, data: Any) -> bytes:
    """Encoded JSON has no line ends, so an event is one line of data."""
    return b"event: " + name.encode() + b"\ndata: " + _encode(data) + b"\n\n"
