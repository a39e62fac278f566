"""Answers of other people's servers: read under limits, and what they say of when to ask again.

An answer may unpack to a thousand times what was sent, or come a byte at a time for ever. So it is unpacked here, piece
by piece, up to a number of bytes, and all of it has a time. Only gzip is asked for.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from suiro.clock import Clock
from suiro.errors import UsageError

__all__ = ["AnswerTooLargeError", "ask", "is_temporary", "retry_after_ms", "said"]

TIMEOUTS_IN_ALL = 10
"""All of an answer may take so many times what a part of it may."""
SAID_BYTES = 64 * 1024  # of answers that are for people to read
_PIECE_BYTES = 64 * 1024
_GZIP = zlib.MAX_WBITS | 16
_PACKED = ("gzip", "x-gzip")
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
_SECONDS = re.compile(r"[0-9]{1,12}")
_SAID_CHARS = 300


class AnswerTooLargeError(UsageError):
    """An answer unpacks to more than it may."""


def ask(
    http: httpx.Client,
    method: str,
    url: str,
    *,
    clock: Clock,
    max_bytes: int | None,
    headers: Mapping[str, str] | None = None,
    **request: Any,
) -> httpx.Response:
    """The answer with its content. With `max_bytes` None only the beginning of that, for people. Raises
    `httpx.TransportError`, also where it takes too long, and `AnswerTooLargeError`."""
    timeout_ms = (http.timeout.read or 0.0) * 1_000 * TIMEOUTS_IN_ALL
    ends_ms = clock.monotonic_ms() + timeout_ms
    content = bytearray()
    accepted = {"Accept-Encoding": "gzip", **(headers or {})}
    with http.stream(method, url, headers=accepted, **request) as response:
        for piece in _unpacked(response):
            content += piece
            if max_bytes is None and len(content) >= SAID_BYTES:
                break
            if max_bytes is not None and len(content) > max_bytes:
                raise AnswerTooLargeError(f"{response.url} answers with more than {max_bytes} bytes")
            if timeout_ms and clock.monotonic_ms() > ends_ms:
                raise httpx.ReadTimeout(f"the answer did not end in {timeout_ms / 1_000:g} s")
        rest = [
            (name, value)
            for name, value in response.headers.raw  # of any bytes
            if name.lower() not in (b"content-encoding", b"content-length", b"transfer-encoding")
        ]
        return httpx.Response(
            response.status_code, headers=rest, content=bytes(content), request=response.request
        )


def _unpacked(response: httpx.Response) -> Iterator[bytes]:
    if response.is_stream_consumed:  # of a server in this process, which gave all of it at once
        yield response.content
        return
    kind = response.headers.get("content-encoding", "identity").strip().lower()
    if kind == "identity":
        yield from response.iter_raw(_PIECE_BYTES)
        return
    if kind not in _PACKED:
        raise httpx.DecodingError(f"it is packed with {kind[:100]!r}, which was not asked for")
    unpacker, began = zlib.decompressobj(_GZIP), False
    for packed in response.iter_raw(_PIECE_BYTES):
        began = began or bool(packed)
        while packed and not unpacker.eof:
            try:
                yield unpacker.decompress(packed, _PIECE_BYTES)
            except zlib.error as error:
                raise httpx.DecodingError(f"it is no {kind}: {error}") from None
            packed = unpacker.unconsumed_tail
    if began and not unpacker.eof:  # a 304 has none
        raise httpx.DecodingError(f"its {kind} has no end")


def is_temporary(response: httpx.Response) -> bool:
    return response.status_code in _TEMPORARY


def retry_after_ms(response: httpx.Response, now_ms: int) -> int | None:
    """What `Retry-After` says, in seconds or as a date (RFC 9110, 10.2.3); None where it says nothing. It may be any
    time: whoever waits has a limit."""
    text = response.headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(text):
        return int(text) * 1_000
    try:
        at = parsedate_to_datetime(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        return max(0, int((at - datetime.fromtimestamp(now_ms / 1_000, UTC)).total_seconds() * 1_000))
    except (ValueError, TypeError, IndexError, OverflowError):  # not a date, in the ways of that module
        return None


def said(response: httpx.Response) -> str:
    """Status and the beginning of the body, for messages."""
    body = response.text[:_SAID_CHARS].strip()
    return f"{response.status_code} {response.reason_phrase}" + (f": {body}" if body else "")
