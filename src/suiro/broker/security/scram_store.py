"""The SCRAM credentials of a node, kept in the cluster's state. They check passwords and do not contain them."""

from __future__ import annotations

import base64
import bisect
import contextlib
import hmac
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from suiro.broker.security.scram import HASHES, MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential
from suiro.broker.settings.cluster_state import ClusterState
from suiro.errors import ConfigError
from suiro.log import StorageError
from suiro.numerals import whole_number

SECTION = "scram"
_USUAL = ScramCredential(salt=bytes(24), iterations=MIN_ITERATIONS, stored_key=b"", server_key=b"")
"""The model of decoys while there is no user."""

_ADD_SCRAM = re.compile(r"\s*(?P<mechanism>SCRAM-SHA-(?:256|512))\s*=\s*\[(?P<fields>.*)\]\s*", re.DOTALL)
_FIELD = re.compile(r'\s*(?P<name>\w+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^,"]*))\s*(?:,|$)')


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUser:
    """A user with which a node begins. The password is made into keys before anything is kept."""

    name: str
    mechanism: str
    credential: ScramCredential

    @classmethod
    def parse(cls, text: str) -> ScramUser:
        """`SCRAM-SHA-256=[name=alice,password=secret,iterations=8192]`, as Kafka's `--add-scram` takes it; for
        the password, `salt` and `saltedpassword` in Base64. Raises `ConfigError`, which shows no password."""
        found = _ADD_SCRAM.fullmatch(text)
        fields = _fields_of(found["fields"]) if found else {}
        known = {"name", "password", "iterations", "salt", "saltedpassword"}
        if found is None or not fields.get("name") or not set(fields) <= known:
            raise ConfigError(
                "--add-scram: expected SCRAM-SHA-256=[name=NAME,password=PASSWORD] or SCRAM-SHA-512=[...]"
            )
        if ("password" in fields) == ("saltedpassword" in fields):
            raise ConfigError(f"--add-scram, {fields['name']}: give one of password and saltedpassword")
        try:
            iterations = whole_number(fields.get("iterations", str(MIN_ITERATIONS)))
        except ValueError:
            iterations = 0
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ConfigError(
                f"--add-scram, {fields['name']}: iterations is between {MIN_ITERATIONS} and {MAX_ITERATIONS}"
            )
        if "saltedpassword" in fields and "salt" not in fields:
            raise ConfigError(f"--add-scram, {fields['name']}: saltedpassword needs its salt")
        salt, hash_name = base64.b64decode(fields.get("salt", "")), HASHES[found["mechanism"]]
        if "password" in fields:
            credential = ScramCredential.of_password(
                fields["password"], hash_name=hash_name, iterations=iterations, salt=salt
            )
        else:
            salted = base64.b64decode(fields["saltedpassword"])
            credential = ScramCredential.of_salted_password(
                salted, salt=salt, iterations=iterations, hash_name=hash_name
            )
        return cls(name=fields["name"], mechanism=found["mechanism"], credential=credential)


class ScramStore:
    """Credentials by user and mechanism. A change is on disk before it holds."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._circles: dict[str, list[tuple[bytes, str]]] = {}
        content = state.read(SECTION, {})
        self._decoy_secret = base64.b64decode(content.get("decoySecret", ""))
        self._users: dict[str, dict[str, ScramCredential]] = {
            name: {mechanism: _from_json(item) for mechanism, item in credentials.items()}
            for name, credentials in content.get("users", {}).items()
        }

    @property
    def users(self) -> Mapping[str, Mapping[str, ScramCredential]]:
        """User to mechanism to credential."""
        return self._users

    def find(self, mechanism: str, name: str) -> ScramCredential:
        """Finds the credential of a name for a login by this mechanism; a decoy for a name that does not exist.

        A decoy has the iterations and the kind of salt of some user. Which one, the secret decides: names and users
        have places on a circle, and the next user is the one. So of many names that are not there as many have a kind
        of salt as of the users, and a change of the users changes the decoys of few names.
        """
        if not self._decoy_secret:
            self._keep_secret(os.urandom(32))
        circle = self._circle(mechanism)
        at = bisect.bisect(circle, (self._place(name), ""))
        like = self._users[circle[at % len(circle)][1]][mechanism] if circle else _USUAL
        # Made for every name, so that a known name takes as long as an unknown one.
        decoy = like.decoy(name, secret=self._decoy_secret, hash_name=HASHES[mechanism])
        return self._users.get(name, {}).get(mechanism, decoy)

    def _circle(self, mechanism: str) -> list[tuple[bytes, str]]:
        """The users by their places."""
        found = self._circles.get(mechanism)
        if found is None:
            names = (name for name, credentials in self._users.items() if mechanism in credentials)
            found = self._circles[mechanism] = sorted((self._place(name), name) for name in names)
        return found

    def _place(self, name: str) -> bytes:
        return hmac.digest(self._decoy_secret, b"place" + name.encode(), "sha256")

    def _keep_secret(self, secret: bytes) -> None:
        # A full disk must not prevent logins; the next start makes another secret.
        with contextlib.suppress(StorageError):
            self._save(self._users, secret)
        self._decoy_secret = secret

    def change(
        self,
        *,
        remove: Iterable[tuple[str, str]] = (),
        put: Mapping[tuple[str, str], ScramCredential] | None = None,
    ) -> None:
        """Keys are (user, mechanism). Raises `StorageError`, and then nothing has changed."""
        users = {name: dict(credentials) for name, credentials in self._users.items()}
        for name, mechanism in remove:
            users[name].pop(mechanism)
        for (name, mechanism), credential in (put or {}).items():
            users.setdefault(name, {})[mechanism] = credential
        self._save({name: kept for name, kept in users.items() if kept}, self._decoy_secret)

    def add_missing(self, users: Iterable[ScramUser]) -> None:
        """Add the users that a node starts with. An existing user stays: its password may have changed."""
        new = {
            (user.name, user.mechanism): user.credential
            for user in users
            if user.mechanism not in self._users.get(user.name, {})
        }
        if new:
            self.change(put=new)

    def _save(self, users: dict[str, dict[str, ScramCredential]], decoy_secret: bytes) -> None:
        content = {
            "decoySecret": base64.b64encode(decoy_secret).decode(),
            "users": {
                name: {mechanism: _to_json(credential) for mechanism, credential in credentials.items()}
                for name, credentials in users.items()
            },
        }
        self._state.write(SECTION, content)
        self._users, self._decoy_secret = users, decoy_secret
        self._circles.clear()


def _fields_of(text: str) -> dict[str, str]:
    """`name=value` separated by commas; a value with commas is in quotes. Empty where it is anything else."""
    fields, position = {}, 0
    while position < len(text):
        found = _FIELD.match(text, position)
        if found is None or found.end() == position:
            return {}
        quoted = found["quoted"]
        value = found["plain"].strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        fields[found["name"]] = value
        position = found.end()
    return fields


def _to_json(credential: ScramCredential) -> dict[str, Any]:
    return {
        "salt": base64.b64encode(credential.salt).decode(),
        "iterations": credential.iterations,
        "storedKey": base64.b64encode(credential.stored_key).decode(),
        "serverKey": base64.b64encode(credential.server_key).decode(),
    }


def _from_json(item: dict[str, Any]) -> ScramCredential:
    return ScramCredential(
        salt=base64.b64decode(item["salt"]),
        iterations=item["iterations"],
        stored_key=base64.b64decode(item["storedKey"]),
        server_key=base64.b64decode(item["serverKey"]),
    )
