"""HTTP basic authentication against a file of users.

The file has one user per line, `name:password` or `name:scrypt:SALT:HASH` (see `hash_password`); `#` begins a comment.
A line `[viewer]`, `[operator]` or `[admin]` sets the role of the users after it; users before the first such line are
admins. Changes of the file take effect at once.

A refusal does not reveal its reason, also not by its duration: it always costs one scrypt, for known and unknown names
and for both kinds of passwords. Since scrypt is slow, results are cached as keyed hashes, positive and negative, and
`verify` must run on a thread that may block.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import threading
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from suiro.errors import ConfigError
from suiro.foundation.files import stamp_of

_PREFIX = "scrypt:"
_COST = {"n": 1 << 14, "r": 8, "p": 1}
_CACHED = 1_000  # accepted pairs, and as many refused ones
_NOBODY = os.urandom(16)  # salt for names that are not in the file


def hash_password(password: str) -> str:
    salt = os.urandom(16)
    return f"{_PREFIX}{salt.hex()}:{_scrypt(password, salt).hex()}"


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, maxmem=64 * 1024 * 1024, **_COST)


class Role(IntEnum):
    """Each role includes those before it."""

    VIEWER = 1
    """Reads."""
    OPERATOR = 2
    """Makes daily changes."""
    ADMIN = 3
    """Deletes, runs code, and changes permissions."""


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str | None
    """The user, or None if the login is refused."""
    role: Role = Role.VIEWER


REFUSED = Verdict(None)
_SECTIONS = {f"[{role.name.lower()}]": role for role in Role}


@dataclass(frozen=True, slots=True)
class _User:
    password: str  # as written in the file
    role: Role


class Users:
    """The users of a file. Raises `ConfigError` if it cannot be read; later, the last readable version stays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._secret = os.urandom(32)
        # Apart, so that guesses cannot evict users.
        self._accepted: dict[bytes, Verdict] = {}
        self._refused: dict[bytes, Verdict] = {}
        self._stamp, self._users = self._read()

    def _read(self) -> tuple[tuple[int, ...], dict[str, _User]]:
        try:
            stamp = stamp_of(self._path)
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ConfigError(f"cannot read the file of users {self._path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"the file of users {self._path} is not UTF-8: {error}") from None
        users: dict[str, _User] = {}
        role = Role.ADMIN
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            if text in _SECTIONS:
                role = _SECTIONS[text]
                continue
            name, found, password = text.partition(":")
            if not found or not name or not password.strip():
                raise ConfigError(
                    f"the file of users {self._path}, line {number}: expected name:password, or a line "
                    f"{', '.join(_SECTIONS)}"
                )
            users[name.strip()] = _User(password.strip(), role)
        if not users:
            raise ConfigError(f"the file of users {self._path} has no users, so nobody could log in")
        return stamp, users

    def recall(self, header: str) -> Verdict | None:
        """Return the cached verdict at once, or None if only `verify` can tell. `header` is the Authorization."""
        pair = _pair(header)
        if pair is None:
            return REFUSED
        name, password = pair
        with self._lock:
            self._refresh()
            proof = self._proof(header)
            known = self._accepted.get(proof) or self._refused.get(proof)
            user = self._users.get(name)
        if known is not None or user is None or user.password.startswith(_PREFIX):
            return known
        return Verdict(name, user.role) if hmac.compare_digest(password.encode(), user.password.encode()) else None

    def verify(self, header: str) -> Verdict:
        """Check a login. Takes one scrypt (about 50 ms) unless the result is cached."""
        known, pair = self.recall(header), _pair(header)
        if known is not None or pair is None:
            return known or REFUSED
        name, password = pair
        with self._lock:
            stamp = self._stamp
            user = self._users.get(name)
        is_right = _matches(password, None if user is None else user.password)
        verdict = Verdict(name, user.role) if user is not None and is_right else REFUSED
        with self._lock:
            if stamp == self._stamp:
                judged = self._refused if verdict.name is None else self._accepted
                if len(judged) >= _CACHED:
                    judged.clear()
                judged[self._proof(header)] = verdict
        return verdict

    def _proof(self, header: str) -> bytes:
        return hmac.digest(self._secret, header.encode(), "sha256")

    def _refresh(self) -> None:
        try:
            if stamp_of(self._path) != self._stamp:
                self._stamp, self._users = self._read()
                self._accepted, self._refused = {}, {}
        except (OSError, ConfigError):
            pass  # it may be in the middle of being written


def _pair(header: str) -> tuple[str, str] | None:
    kind, _, encoded = header.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        name, found, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if found else None


def _matches(password: str, expected: str | None) -> bool:
    """Costs one scrypt in all cases."""
    salt, digest = _NOBODY, b""
    if expected is not None and expected.startswith(_PREFIX):
        salt_text, _, digest_text = expected.removeprefix(_PREFIX).partition(":")
        try:
            salt, digest = bytes.fromhex(salt_text), bytes.fromhex(digest_text)
        except ValueError:
            pass  # not a valid hash: it matches no password
    # `recall` has compared a plain-text password already.
    return hmac.compare_digest(_scrypt(password, salt), digest)
