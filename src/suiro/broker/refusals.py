"""The exception that refuses a request: Kafka's error code, and a message for the client."""

from __future__ import annotations

from suiro.protocol.messages import ErrorCode


class RefusedError(Exception):
    """A request, or a part of one, is refused; nothing has changed."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.code = code
