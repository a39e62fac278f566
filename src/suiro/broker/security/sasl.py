"""The server's half of one SASL login, whatever the mechanism; and PLAIN (RFC 4616), which has name and password in one
message. Its users come from the JAAS line of the listener.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Protocol

from suiro.errors import ConfigError
from suiro.foundation.jaas import LoginModule


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


LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USER_OPTION = "user_"
_ANOTHER_NAME = "Authentication failed: Client requested an authorization id that is different from username"


def plain_users(modules: Iterable[LoginModule], *, source: str) -> dict[str, str]:
    """Name to password, from the options `user_NAME="password"`."""
    users = {
        option.removeprefix(_USER_OPTION): value
        for module in modules
        if module.name == LOGIN_MODULE
        for option, value in module.options.items()
        if option.startswith(_USER_OPTION)
    }
    if not users:
        raise ConfigError(f'{source}: expected {LOGIN_MODULE} required user_NAME="PASSWORD" ...;')
    return users


class PlainServer:
    """One login by name and password."""

    expires_at_ms = None

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.user: str | None = None

    def evaluate(self, message: bytes) -> bytes:
        parts = message.decode("utf-8", "replace").split("\0")
        if len(parts) != 3:
            raise _refusal(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        asked_for, name, password = parts
        if not name:
            raise _refusal("Authentication failed: username not specified")
        if not password:
            raise _refusal("Authentication failed: password not specified")
        expected = self._users.get(name)
        # An unknown name is compared too, so that it takes as long as a wrong password.
        same = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not same:
            raise _refusal("Authentication failed: Invalid username or password")
        if asked_for not in ("", name):
            raise _refusal(_ANOTHER_NAME)
        self.user = name
        return b""


def _refusal(message: str) -> LoginRefusedError:
    return LoginRefusedError(message, told=message)
