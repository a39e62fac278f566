"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677), the server's half, without channel binding.

The node keeps no password: only a salt, the iterations, and two keys from which a login can be checked but not made.
A name that is not there gets a salt and iterations too, always the same ones and such as a real user here has, and
fails with the proof as a wrong password does, so that nobody learns which users exist.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType

from suiro.broker.security.sasl import LoginRefusedError

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
"""Kafka's: a login costs the client that many hashes."""
HASHES: Mapping[str, str] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
MECHANISM_NUMBERS: Mapping[int, str] = MappingProxyType({1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"})
"""As DescribeUserScramCredentials and AlterUserScramCredentials number them."""

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_BASE64 = r"[A-Za-z0-9/+]+={0,2}"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<other>{_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<signed>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_MOST_BYTES = 8192
"""Of a client's message. What the first one says is kept until the final one comes, and strangers may send both."""
_ANOTHER_NAME = "Authentication failed: Client requested an authorization id that is different from username"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScramCredential:
    """The keys that are kept instead of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of_salted_password(
        cls, salted_password: bytes, *, salt: bytes, iterations: int, hash_name: str
    ) -> ScramCredential:
        client_key = hmac.digest(salted_password, b"Client Key", hash_name)
        return cls(
            salt=salt,
            iterations=iterations,
            stored_key=hashlib.new(hash_name, client_key).digest(),
            server_key=hmac.digest(salted_password, b"Server Key", hash_name),
        )

    @classmethod
    def of_password(
        cls, password: str, *, hash_name: str, iterations: int = MIN_ITERATIONS, salt: bytes = b""
    ) -> ScramCredential:
        salt = salt or os.urandom(24)
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
        return cls.of_salted_password(salted, salt=salt, iterations=iterations, hash_name=hash_name)

    def decoy(self, name: str, *, secret: bytes, hash_name: str) -> ScramCredential:
        """For a name that does not exist: like this credential, the same at each try, and without a password."""
        seed = f"{name}\0{len(self.salt)}\0{self.iterations}".encode()
        stream = hashlib.shake_256(secret + b"salt" + seed)
        if _is_javas(self.salt):
            salt = _base36(int.from_bytes(stream.digest(_JAVAS_BITS // 8 + 1), "big") % (1 << _JAVAS_BITS))
        else:
            salt = stream.digest(len(self.salt))
        salted = hmac.digest(secret, b"password" + seed, hash_name)
        return self.of_salted_password(salted, salt=salt, iterations=self.iterations, hash_name=hash_name)


# Kafka's Java tools make salts that are texts: a number of 130 random bits, written with 36 digits.
_JAVAS_BITS = 130
_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"


def _is_javas(salt: bytes) -> bool:
    return 20 <= len(salt) <= 26 and all(byte in _DIGITS for byte in salt)


def _base36(number: int) -> bytes:
    text = bytearray()
    while number:
        number, digit = divmod(number, 36)
        text.append(_DIGITS[digit])
    return bytes(reversed(text)) or b"0"


def _random_nonce() -> str:
    return base64.b64encode(os.urandom(24)).decode()


@dataclass(slots=True, eq=False)
class ScramServer:
    """One login: the client's first message, its final message, done. `find` gives a name's credential."""

    find: Callable[[str], ScramCredential]
    _: KW_ONLY
    hash_name: str
    nonce: Callable[[], str] = _random_nonce
    user: str | None = None
    expires_at_ms: None = None
    _name: str = ""
    _header: bytes = b""
    _nonce: str = ""
    _so_far: str = ""
    _credential: ScramCredential | None = None

    def evaluate(self, message: bytes) -> bytes:
        if len(message) > _MOST_BYTES:
            raise LoginRefusedError(f"a message of {len(message)} bytes, the most is {_MOST_BYTES}")
        text = message.decode("utf-8", "replace")
        return self._first(text) if self._credential is None else self._final(text, self._credential)

    def _first(self, text: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise LoginRefusedError("not a client's first message")
        if ",tokenauth=true" in found["extensions"].lower():
            raise LoginRefusedError("delegation tokens are not offered")
        self._name = found["name"].replace("=2C", ",").replace("=3D", "=")
        if found["other"] not in (None, found["name"]):
            raise LoginRefusedError(_ANOTHER_NAME, told=_ANOTHER_NAME)
        self._credential = credential = self.find(self._name)
        self._nonce = found["nonce"] + self.nonce()
        self._header = found["header"].encode()
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._so_far = f"{found['bare']},{answer}"
        return answer.encode()

    def _final(self, text: str, credential: ScramCredential) -> bytes:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None:
            raise LoginRefusedError("not a client's final message")
        if found["nonce"] != self._nonce:
            raise LoginRefusedError("the nonce is another one")
        if _decoded(found["binding"]) != self._header:
            raise LoginRefusedError("the channel binding is another one")
        signed = f"{self._so_far},{found['signed']}".encode()
        signature = hmac.digest(credential.stored_key, signed, self.hash_name)
        proof = _decoded(found["proof"])
        if len(proof) != len(signature):
            raise LoginRefusedError("the proof has another length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self.hash_name, client_key).digest(), credential.stored_key):
            raise LoginRefusedError(f"there is no user {self._name!r}, or the password is wrong")
        self.user = self._name
        server_signature = hmac.digest(credential.server_key, signed, self.hash_name)
        return b"v=" + base64.b64encode(server_signature)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise LoginRefusedError(f"not Base64: {error}") from None
