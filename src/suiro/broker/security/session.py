"""Who is at the other end of a connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """`principal` is Kafka's text, `User:name`; `host` the peer's address; `listener` the name it came in by."""

    principal: str
    host: str
    listener: str


ANONYMOUS = "User:ANONYMOUS"
