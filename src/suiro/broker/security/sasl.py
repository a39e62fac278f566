"""The server's half of one SASL login, whatever the mechanism."""

from __future__ import annotations

from typing import Protocol


class LoginRefusedError(Exception):
    """The login failed. `told` is what the client may hear, empty where it hears only that it failed: the message
    itself may hold more (which user exists, what is wrong with a token) and is for the node's log."""

    def __init__(self, message: str, *, told: str = "") -> None:
        super().__init__(message)
        self.told = told


class SaslServer(Protocol):
    """One login. `user` is set once it has succeeded."""

    @property
    def user(self) -> str | None: ...

    @property
    def expires_at_ms(self) -> int | None:
        """Wall-clock time at which what the client showed stops to be good, if it does."""
        ...

    def evaluate(self, message: bytes) -> bytes:
        """The answer to a client's message. Raises `LoginRefusedError`."""
        ...
