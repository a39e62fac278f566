"""Who may call a server: HTTP basic authentication against a file of users.

One user a line, `name:password`, or `name:scrypt:SALT:HASH` as `hash_password` writes it; `#` begins a comment. A line
`[viewer]`, `[operator]` or `[admin]` says what those that follow may do; users before the first such line are admins. A
file that changes counts at once.

A refusal says nothing of why, not by its time either: whatever name it has, and however that one's password is kept, it
costs one scrypt. Because scrypt takes its time, pairs that were judged are remembered as keyed hashes, right ones and
wrong ones, and `verify` is for a thread that nobody else waits for.
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

__all__ = ["REFUSED", "Role", "Users", "Verdict", "hash_password"]

_PREFIX = "scrypt:"
_COST = {"n": 1 << 14, "r": 8, "p": 1}
_REMEMBERED = 1_000  # right pairs, and as many wrong ones
_NOBODY = os.urandom(16)  # the salt of names that are not in the file


def hash_password(password: str) -> str:
    salt = os.urandom(16)
    return f"{_PREFIX}{salt.hex()}:{_scrypt(password, salt).hex()}"


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, maxmem=64 * 1024 * 1024, **_COST)


class Role(IntEnum):
    """Who has one may do what the roles before it may."""

    VIEWER = 1
    """Looks."""
    OPERATOR = 2
    """Changes what can be changed back."""
    ADMIN = 3
    """Deletes, runs code, and says who may do what."""


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str | None
    """The user; None: nobody is let in."""
    role: Role = Role.VIEWER


REFUSED = Verdict(None)
_SECTIONS = {f"[{role.name.lower()}]": role for role in Role}


@dataclass(frozen=True, slots=True)
class _User:
    password: str  # as it stands in the file
    role: Role

    @property
    def is_hashed(self) -> bool:
        return self.password.startswith(_PREFIX)


class Users:
    """Raises `ConfigError` for a file that cannot be read; later changes that cannot be read leave the old users."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._secret = os.urandom(32)
        self._judged: dict[bytes, Verdict] = {}
        self._wrong = 0  # how many of them
        self._stamp, self._users = self._read()

    def _read(self) -> tuple[tuple[int, int], dict[str, _User]]:
        try:
            stat = self._path.stat()
            lines = self._path.read_text().splitlines()
        except OSError as error:
            raise ConfigError(f"the file of users {self._path}: {error.strerror}") from None
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
            raise ConfigError(f"the file of users {self._path} names none, so nobody could call it")
        return (stat.st_mtime_ns, stat.st_size), users

    def recall(self, header: str) -> Verdict | None:
        """At once; None for a pair that only `verify` can judge. `header` is the request's Authorization."""
        pair = _pair(header)
        if pair is None:
            return REFUSED
        name, password = pair
        with self._lock:
            self._refresh()
            known = self._judged.get(self._proof(header))
            user = self._users.get(name)
        if known is None and user is not None and not user.is_hashed and _same(password, user.password):
            return Verdict(name, user.role)
        return known

    def verify(self, header: str) -> Verdict:
        """Takes as long as a scrypt, unless the pair is remembered."""
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
                self._remember(self._proof(header), verdict)
        return verdict

    def admit(self, header: str) -> bool:
        return self.verify(header).name is not None

    def _proof(self, header: str) -> bytes:
        return hmac.digest(self._secret, header.encode(), "sha256")

    def _remember(self, proof: bytes, verdict: Verdict) -> None:
        """Guesses push out guesses, and never who was let in."""
        if proof in self._judged:
            return
        is_wrong = verdict.name is None
        if (self._wrong if is_wrong else len(self._judged) - self._wrong) >= _REMEMBERED:
            self._judged = {
                other: found for other, found in self._judged.items() if (found.name is None) != is_wrong
            }
            self._wrong = 0 if is_wrong else self._wrong
        self._judged[proof] = verdict
        self._wrong += is_wrong

    def _refresh(self) -> None:
        try:
            stat = self._path.stat()
            if (stat.st_mtime_ns, stat.st_size) != self._stamp:
                self._stamp, self._users = self._read()
                self._judged, self._wrong = {}, 0
        except (OSError, ConfigError):
            pass  # being written just now


def _pair(header: str) -> tuple[str, str] | None:
    kind, _, encoded = header.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        name, found, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if found else None


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _matches(password: str, expected: str | None) -> bool:
    """One scrypt, whatever is expected."""
    salt, digest = _NOBODY, b""
    if expected is not None and expected.startswith(_PREFIX):
        salt_text, _, digest_text = expected.removeprefix(_PREFIX).partition(":")
        try:
            salt, digest = bytes.fromhex(salt_text), bytes.fromhex(digest_text)
        except ValueError:
            pass  # no hash of ours: nobody is let in by it
    # A password that stands in the file as it is was compared by `recall`.
    return hmac.compare_digest(_scrypt(password, salt), digest)
