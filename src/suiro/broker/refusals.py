"""The exception that refuses a request: Kafka's error code, and a message for the client, who hears names cut to a
length."""

from __future__ import annotations

from suiro.protocol.messages import ErrorCode

CHARACTERS_SHOWN = 300
"""Of a name in a message or in the log. No topic has a longer one, and a request may have megabytes."""


class RefusedError(Exception):
    """A request, or a part of one, is refused; nothing has changed."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.code = code


def shown(name: str) -> str:
    """The client's name for something, in a message. An answer may repeat the message for each of its partitions."""
    if len(name) <= CHARACTERS_SHOWN:
        return name
    return f"{name[:CHARACTERS_SHOWN]}... ({len(name)} characters)"


def on_one_line(text: str) -> str:
    """The same for the log: without line ends, by which a client could forge lines."""
    cut = shown(text)
    return cut if cut.isprintable() else repr(cut)
