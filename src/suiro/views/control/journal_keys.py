"""The keys that sign a host's decisions: a file with one secret per line.

The first line signs; all lines verify. To change the key, insert a new first line and restart the host, which signs
everything again with it. Then the old line can be removed. All hosts of one log have the same file.

A signature (HMAC-SHA256) covers the topic and its id, and the record's offset, key and value. So a record that was
changed, copied to another offset, or copied from another topic does not match. Missing records are detected by the
record `head` (`journal_records`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import struct
from dataclasses import dataclass, replace
from pathlib import Path

from suiro.errors import ConfigError
from suiro.foundation.files import replace_file

KEY_FILE = ".journal-key"
"""In the host's folder, where no other file is named."""
MIN_SECRET_BYTES = 32
MAX_FILE_BYTES = 64 * 1024
SCHEME = b"1"
_KEY_ID_DIGITS = 12
_KEY_ID = re.compile(rb"[0-9a-f]{%d}" % _KEY_ID_DIGITS)
_LENGTH = struct.Struct(">q")
_NULL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Secrets by key id. The first one signs."""

    secrets: dict[str, bytes]
    where: str = "memory"

    @classmethod
    def of(cls, *given: bytes, where: str = "memory") -> Keys:
        # The id identifies a key, and reveals nothing about it.
        ids = (hmac.digest(secret, b"suiro views key id", "sha256").hex()[:_KEY_ID_DIGITS] for secret in given)
        return cls(secrets=dict(zip(ids, given, strict=True)), where=where)

    @classmethod
    def read(cls, path: Path) -> Keys:
        """Raises `ConfigError` if the file does not exist, if others may read it, or if it has no keys."""
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"the journal's key {path} cannot be read: {error.strerror or error}") from error
        # PostgreSQL has the same rule for its private key: root may share it with a group, as mounted secrets are.
        if status.st_mode & (0o037 if status.st_uid == 0 and os.geteuid() != 0 else 0o077):
            raise ConfigError(
                f"others may read the journal's key {path} (mode {status.st_mode & 0o777:04o}), and so sign what "
                f"runs code on this machine: chmod 600 {path}. Where somebody may have read it, change it, too"
            )
        if status.st_uid not in (0, os.geteuid()):
            raise ConfigError(
                f"the journal's key {path} belongs to user id {status.st_uid}, who could give another one; it must "
                "belong to the host's user, or to root"
            )
        lines = [line.strip() for line in data.splitlines() if line.strip()]
        if not lines or len(data) > MAX_FILE_BYTES or any(len(line) < MIN_SECRET_BYTES for line in lines):
            raise ConfigError(
                f"the journal's key {path}: expected lines of at least {MIN_SECRET_BYTES} characters each, the first "
                "of which signs; `openssl rand -hex 32` makes one"
            )
        return cls.of(*lines, where=str(path))

    @classmethod
    def kept(cls, path: Path) -> Keys:
        """As `read`, but creates a missing file, whole or not at all."""
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, secrets.token_hex(MIN_SECRET_BYTES) + "\n", mode=0o600)
        return cls.read(path)

    @property
    def id(self) -> str:
        """The id of the key that signs."""
        return next(iter(self.secrets))

    def signing_with(self, key_id: str) -> Keys:
        """Returns the same keys, of which `key_id` signs."""
        return replace(self, secrets={key_id: self.secrets[key_id], **self.secrets})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Signs and checks the records of one topic. `topic_id`: empty if the brokers have no topic ids."""

    keys: Keys
    topic: str
    topic_id: str

    def sign(self, offset: int, key: bytes, value: bytes | None) -> bytes:
        """Returns the record's header: scheme, key id, code."""
        key_id = self.keys.id
        return b" ".join((SCHEME, key_id.encode(), self._code(key_id, offset, key, value)))

    def fault(self, signature: bytes | None, offset: int, key: bytes, value: bytes | None) -> str | None:
        """Returns why a record is not ours, None if it is."""
        if signature is None:
            return "is not signed"
        key_id = key_id_of(signature)
        if key_id is None:
            return "has a signature that is none of ours"
        if key_id not in self.keys.secrets:
            return f"is signed with key {key_id}, which this host does not have"
        if not hmac.compare_digest(signature.split(b" ")[2], self._code(key_id, offset, key, value)):
            return "was changed, or copied from another place: its signature does not match"
        return None

    def _code(self, key_id: str, offset: int, key: bytes, value: bytes | None) -> bytes:
        made = hmac.new(self.keys.secrets[key_id], b"suiro views journal\0", hashlib.sha256)
        for part in (self.topic.encode(), self.topic_id.encode(), _LENGTH.pack(offset), key):
            made.update(_LENGTH.pack(len(part)))
            made.update(part)
        made.update(_LENGTH.pack(_NULL if value is None else len(value)))
        made.update(value or b"")
        return made.hexdigest().encode()


def key_id_of(signature: bytes) -> str | None:
    """Returns None if it is not a signature."""
    parts = signature.split(b" ")
    if len(parts) != 3 or parts[0] != SCHEME or not _KEY_ID.fullmatch(parts[1]):
        return None
    return parts[1].decode()
