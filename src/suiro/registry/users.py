"""Who may call the registry, or a host of views: HTTP basic authentication against a file of users.

One user a line, `name:password`, or `name:scrypt:SALT:HASH` as `hash_password` writes it; `#` begins a comment. A file
that changes counts at once. Passwords are compared in constant time; a pair that was right is remembered as a keyed
hash, because scrypt takes its time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import threading
from pathlib import Path

from suiro.errors import ConfigError

__all__ = ["Users", "hash_password"]

_PREFIX = "scrypt:"
_COST = {"n": 1 << 14, "r": 8, "p": 1}
_REMEMBERED = 1_000


def hash_password(password: str) -> str:
    salt = os.urandom(16)
    return f"{_PREFIX}{salt.hex()}:{_scrypt(password, salt).hex()}"


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, maxmem=64 * 1024 * 1024, **_COST)


class Users:
    """Raises `ConfigError` for a file that cannot be read; later changes that cannot be read leave the old users."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._secret = os.urandom(32)
        self._right: set[bytes] = set()
        self._stamp, self._passwords = self._read()

    def _read(self) -> tuple[tuple[int, int], dict[str, str]]:
        try:
            stat = self._path.stat()
            lines = self._path.read_text().splitlines()
        except OSError as error:
            raise ConfigError(f"the file of users {self._path}: {error.strerror}") from None
        passwords = {}
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            name, found, password = text.partition(":")
            if not found or not name or not password.strip():
                raise ConfigError(f"the file of users {self._path}, line {number}: expected name:password")
            passwords[name.strip()] = password.strip()
        if not passwords:
            raise ConfigError(f"the file of users {self._path} names none, so nobody could call it")
        return (stat.st_mtime_ns, stat.st_size), passwords

    def admit(self, header: str) -> bool:
        """`header` is the request's Authorization."""
        kind, _, encoded = header.partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            name, found, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        with self._lock:
            self._refresh()
            proof = hmac.digest(self._secret, header.encode(), "sha256")
            if proof in self._right:
                return True
            expected = self._passwords.get(name)
        if not found or not _matches(password, expected):
            return False
        with self._lock:
            if self._passwords.get(name) == expected:
                if len(self._right) >= _REMEMBERED:
                    self._right.clear()
                self._right.add(proof)
        return True

    def _refresh(self) -> None:
        try:
            stat = self._path.stat()
            if (stat.st_mtime_ns, stat.st_size) != self._stamp:
                self._stamp, self._passwords = self._read()
                self._right.clear()
        except (OSError, ConfigError):
            pass  # being written just now


def _matches(password: str, expected: str | None) -> bool:
    if expected is None:
        hmac.compare_digest(password.encode(), b"")
        return False
    if expected.startswith(_PREFIX):
        salt, _, digest = expected.removeprefix(_PREFIX).partition(":")
        try:
            return hmac.compare_digest(_scrypt(password, bytes.fromhex(salt)), bytes.fromhex(digest))
        except ValueError:
            return False
    return hmac.compare_digest(password.encode(), expected.encode())
