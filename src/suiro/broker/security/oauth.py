"""SASL OAUTHBEARER (RFC 7628, KIP-255, KIP-768): the client shows a signed token, a JSON Web Token.

The keys that may sign come from a JSON Web Key Set, a file; a new file content is taken up at the next login. A
token must say who it is for (the claim of `sasl.oauthbearer.sub.claim.name`), when it was issued and when it expires;
its signature must be by an asymmetric key of the set; audience and issuer are those that the settings expect. The
login holds until the token expires.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from suiro.broker.security.sasl import LoginRefusedError
from suiro.clock import Clock
from suiro.config import NodeSettings
from suiro.errors import ConfigError
from suiro.extras import require
from suiro.foundation.files import stamp_of

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_REFUSED = '{"status":"invalid_token"}'
_CLIENT_FIRST = re.compile(
    r"n,(?:a=(?P<other>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,"
    r"\x01auth=(?P<scheme>\w+) +(?P<token>[-_.+/=~a-zA-Z0-9]+)"
    r"\x01(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*\x01"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """A key of the set; `algorithm` where the set names the only one that it is for."""

    key_id: str | None
    kind: str
    algorithm: str | None
    public_key: Any

    def fits(self, key_id: str | None, algorithm: str) -> bool:
        """Whether a token that names these may be checked with it. The token's word alone would not be enough:
        a key must never be used for another algorithm than its own."""
        return (
            key_id in (None, self.key_id)
            and algorithm in ALGORITHMS
            and self.kind == _KINDS[algorithm[:2]]
            and self.algorithm in (None, algorithm)
        )


class TokenValidator:
    """Tells whose token it is. Raises `ConfigError` where the settings do not say how, or the file is no key set."""

    def __init__(self, settings: NodeSettings, *, clock: Clock, source: str) -> None:
        require("oauth")
        self._settings = settings
        self._clock = clock
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        parts = urlsplit(url)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise ConfigError(
                f"{source}: OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url=file:///PATH with the keys of "
                f"the tokens' issuer; it is {url!r}, and a node fetches nothing from elsewhere"
            )
        self._path = Path(unquote(parts.path))
        self._source = source
        self._stamp: tuple[int, ...] = ()
        self._keys: tuple[_Key, ...] = ()
        self._audiences = [part for part in settings.sasl_oauthbearer_expected_audience.split(",") if part]
        self._read()

    def validate(self, token: str) -> tuple[str, int]:
        """(user, when the token expires in wall-clock milliseconds). Raises `LoginRefusedError`."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            claims = self._claims(token, header)
        except jwt.PyJWTError as error:
            raise LoginRefusedError(f"the token is not valid: {error}", told=_REFUSED) from None
        expires_ms, issued_ms = _time(claims, "exp"), _time(claims, "iat")
        now_ms = self._clock.wall_ms()
        skew_ms = self._settings.sasl_oauthbearer_clock_skew_seconds * 1000
        if now_ms - skew_ms >= expires_ms:
            raise LoginRefusedError("the token has expired", told=_REFUSED)
        if issued_ms > expires_ms:
            raise LoginRefusedError("the token expires before it was issued", told=_REFUSED)
        if "nbf" in claims and now_ms + skew_ms < _time(claims, "nbf"):
            raise LoginRefusedError("the token is not valid yet", told=_REFUSED)
        self._check_scope(claims)
        user = claims.get(self._settings.sasl_oauthbearer_sub_claim_name)
        if not isinstance(user, str) or not user.strip():
            raise LoginRefusedError("the token names no user", told=_REFUSED)
        return user.strip(), expires_ms

    def _claims(self, token: str, header: Mapping[str, Any]) -> dict[str, Any]:
        import jwt

        self._read()
        key_id, algorithm = header.get("kid"), str(header.get("alg"))
        error: jwt.PyJWTError = jwt.InvalidKeyError(f"no key of the set fits kid {key_id!r}, alg {algorithm!r}")
        for key in self._keys:
            if not key.fits(key_id, algorithm):
                continue
            try:
                return jwt.decode(
                    token,
                    key.public_key,
                    algorithms=[algorithm],
                    audience=self._audiences or None,
                    issuer=self._settings.sasl_oauthbearer_expected_issuer or None,
                    # The caller checks the times, by the node's own clock.
                    options={
                        "require": ["exp", "iat"],
                        "verify_exp": False,
                        "verify_nbf": False,
                        "verify_iat": False,
                        "verify_sub": False,
                    },
                )
            except jwt.PyJWTError as found:
                error = found
        raise error

    def _check_scope(self, claims: Mapping[str, Any]) -> None:
        scope = claims.get(self._settings.sasl_oauthbearer_scope_claim_name, [])
        scopes = [scope] if isinstance(scope, str) else scope
        if isinstance(scopes, list):
            words = [word.strip() for word in scopes if isinstance(word, str)]
            if len(words) != len(scopes) or not all(words) or len(set(words)) != len(words):
                raise LoginRefusedError("the token's scope has an empty or doubled entry", told=_REFUSED)

    def _read(self) -> None:
        """Read the key set if the file is another one than before. A bad new file leaves the keys as they are."""
        try:
            stamp = stamp_of(self._path)
            if stamp == self._stamp:
                return
            content = json.loads(self._path.read_bytes())["keys"]
            keys = tuple(_keys_of(content))
            if not keys:
                raise ValueError("it has no key of a kind that can sign tokens")
            self._keys, self._stamp = keys, stamp
        except (OSError, ValueError, KeyError, TypeError) as error:
            if not self._keys:
                raise ConfigError(
                    f"{self._source}: {self._path} is not a JSON Web Key Set that can be read: {error}"
                ) from error


class OAuthServer:
    """One login with a token."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refusal: LoginRefusedError | None = None
        self.user: str | None = None
        self.expires_at_ms: int | None = None

    def evaluate(self, message: bytes) -> bytes:
        if self._refusal is not None:  # the client has had the reason, and says that it has read it
            raise self._refusal
        found = _CLIENT_FIRST.fullmatch(message.decode("utf-8", "replace"))
        if found is None or found["scheme"].lower() != "bearer":
            raise LoginRefusedError("not a client's first message")
        try:
            user, expires_at_ms = self._validator.validate(found["token"])
        except LoginRefusedError as refusal:
            self._refusal = refusal
            return refusal.told.encode()
        if found["other"] not in (None, user):
            told = (
                f"Authentication failed: Client requested an authorization id ({found['other']}) that is "
                f"different from the token's principal name ({user})"
            )
            raise LoginRefusedError(told, told=told)
        self.user, self.expires_at_ms = user, expires_at_ms
        return b""


def _keys_of(content: list[Any]) -> Iterator[_Key]:
    import jwt

    for item in content:
        if not isinstance(item, dict) or item.get("kty") not in _KINDS.values() or item.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK(item)
        except jwt.PyJWTError:
            continue  # of an algorithm that we do not know: tokens signed with it are refused
        yield _Key(key_id=key.key_id, kind=item["kty"], algorithm=item.get("alg"), public_key=key.key)


def _time(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e13:
        raise LoginRefusedError(f"the token's {name} is not a time", told=_REFUSED)
    return int(value * 1000)
