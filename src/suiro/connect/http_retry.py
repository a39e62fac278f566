"""When an HTTP request is worth repeating, and when the other side asks to be asked again."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

__all__ = ["is_temporary", "retry_after_ms", "said"]

_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
_SAID_CHARS = 300


def is_temporary(response: httpx.Response) -> bool:
    return response.status_code in _TEMPORARY


def retry_after_ms(response: httpx.Response, now_ms: int) -> int | None:
    """What `Retry-After` says, in seconds or as a date (RFC 9110, 10.2.3); None where it says nothing."""
    text = response.headers.get("retry-after", "").strip()
    if text.isdigit():
        return int(text) * 1_000
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0, int((at - datetime.fromtimestamp(now_ms / 1_000, UTC)).total_seconds() * 1_000))


def said(response: httpx.Response) -> str:
    """Status and the beginning of the body, for messages."""
    body = response.text[:_SAID_CHARS].strip()
    return f"{response.status_code} {response.reason_phrase}" + (f": {body}" if body else "")
