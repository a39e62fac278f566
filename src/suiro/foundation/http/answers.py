"""Requests to other servers, with limits on the response, and their `Retry-After`.

A response may decompress to a thousand times its size, or arrive one byte at a time forever. This module decompresses
it piece by piece, up to a maximum size, and limits the total time. It accepts gzip only.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import httpx

from suiro.clock import Clock
from suiro.errors import UsageError

TIMEOUTS_IN_ALL = 10
"""Limit for the whole response, as a multiple of the read timeout."""
SUMMARY_BYTES = 64 * 1024  # read of a response that is only shown to people
_PIECE_BYTES = 64 * 1024
_GZIP = zlib.MAX_WBITS | 16
_PACKED = ("gzip", "x-gzip")
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
_SECONDS = re.compile(r"[0-9]{1,12}")
_SUMMARY_CHARS = 300


class AnswerTooLargeError(UsageError):
    """A response decompresses to more than the maximum size."""


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
    """Send a request and return the response with its content, decompressed.

    `max_bytes` limits the content; with None, only the first `SUMMARY_BYTES` are read and the rest is dropped. Raises
    `httpx.TransportError` if the server cannot be reached or takes too long, and `AnswerTooLargeError`.
    """
    timeout_ms = (http.timeout.read or 0.0) * 1_000 * TIMEOUTS_IN_ALL
    ends_ms = clock.monotonic_ms() + timeout_ms
    content = bytearray()
    accepted = {"Accept-Encoding": "gzip", **(headers or {})}
    with http.stream(method, url, headers=accepted, **request) as response:
        for piece in _unpacked(response):
            content += piece
            if max_bytes is None and len(content) >= SUMMARY_BYTES:
                break
            if max_bytes is not None and len(content) > max_bytes:
                # Without path and parameters, which may be secret.
                server = f"{response.url.scheme}://{response.url.netloc.decode()}"
                raise AnswerTooLargeError(f"{server} sent more than {max_bytes} bytes")
            if timeout_ms and clock.monotonic_ms() > ends_ms:
                raise httpx.ReadTimeout(f"the response did not end within {timeout_ms / 1_000:g} s")
        rest = [
            (name, value)
            for name, value in response.headers.raw  # may contain any bytes
            if name.lower() not in (b"content-encoding", b"content-length", b"transfer-encoding")
        ]
        return httpx.Response(response.status_code, headers=rest, content=bytes(content), request=response.request)


def _unpacked(response: httpx.Response) -> Iterator[bytes]:
    if response.is_stream_consumed:  # a server in this process returns it as a whole
        yield response.content
        return
    kind = response.headers.get("content-encoding", "identity").strip().lower()
    # As they come: to wait until a piece of some size is there would let a slow server pass the limit of time.
    if kind == "identity":
        yield from response.iter_raw()
        return
    if kind not in _PACKED:
        raise httpx.DecodingError(f"the response has Content-Encoding {kind[:100]!r}; only gzip was accepted")
    unpacker, began = zlib.decompressobj(_GZIP), False
    for packed in response.iter_raw():
        began = began or bool(packed)
        while packed and not unpacker.eof:
            try:
                yield unpacker.decompress(packed, _PIECE_BYTES)
            except zlib.error as error:
                raise httpx.DecodingError(f"the response is not valid {kind}: {error}") from None
            packed = unpacker.unconsumed_tail
    if began and not unpacker.eof:  # a 304 has none
        raise httpx.DecodingError(f"the {kind} data of the response ends early")


def segment(name: str) -> str:
    """Return a name as one segment of a path. "." and ".." are quoted, too: httpx takes them for folders."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def is_temporary(response: httpx.Response) -> bool:
    return response.status_code in _TEMPORARY


def retry_after_ms(response: httpx.Response, now_ms: int) -> int | None:
    """Return the wait in ms that `Retry-After` asks for, in seconds or as a date (RFC 9110, 10.2.3), or None.

    The server chooses the value: the caller must limit it.
    """
    text = response.headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(text):
        return int(text) * 1_000
    try:
        at = parsedate_to_datetime(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        return max(0, int((at - datetime.fromtimestamp(now_ms / 1_000, UTC)).total_seconds() * 1_000))
    except (ValueError, TypeError, IndexError, OverflowError):  # the ways in which `email.utils` refuses a date
        return None


def summary_of(response: httpx.Response) -> str:
    """Return the status and the first characters of the body, for messages."""
    body = response.text[:_SUMMARY_CHARS].strip()
    return f"{response.status_code} {response.reason_phrase}" + (f": {body}" if body else "")
