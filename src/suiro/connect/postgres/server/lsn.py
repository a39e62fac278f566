"""Log sequence numbers (LSNs) as integers. Postgres prints them as `16/B374D848`."""

from __future__ import annotations

from suiro.errors import FatalError


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    high, found, low = text.partition("/")
    try:
        if not found:
            raise ValueError
        return (int(high, 16) << 32) | int(low, 16)
    except ValueError:
        raise FatalError(f"{text!r} is not a place in Postgres's log, such as 16/B374D848") from None
