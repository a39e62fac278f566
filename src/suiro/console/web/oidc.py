"""Logins by an OpenID Connect provider: the redirect to it, and the verification of the user who comes back.

This is the authorization code flow with PKCE. The provider's token is verified completely: its signature with one of
the provider's keys and an algorithm of `ALGORITHMS`, issuer, audience, nonce, times. The provider's metadata is read on
the caller's thread, with limits of time and bytes, and cached. Nothing is requested before a user logs in. `authlib`
and `joserfc` are imported only here, if a provider is configured.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode, urlsplit

import httpx
import msgspec

from suiro.clock import Clock
from suiro.errors import ConfigError, SuiroError, TransientError, UsageError
from suiro.extras import require
from suiro.foundation.http import AnswerTooLargeError, Role, ask, is_loopback

if TYPE_CHECKING:
    from joserfc.jwk import Key

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Algorithms of signatures that only the provider can create: not "none", and not those with a shared secret."""
ANSWER_BYTES_MAX = 256 * 1024
TOKEN_CHARS_MAX = 64 * 1024
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 5.0
DOCUMENT_KEPT_MS = 3_600_000
KEYS_AGAIN_MS = 30_000
"""The interval after which a token with an unknown key causes the keys to be read again."""
FAILURE_KEPT_MS = 5_000
"""The time after a failure of the provider in which logins fail at once."""
MAX_KEYS = 100
RSA_BITS_MIN = 2_048
LEEWAY_S = 60
USER_CHARS_MAX = 256
EVERYBODY = "*"
_NO_SUCH_ANSWER = (ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""What the libraries raise for JSON of any shape. The errors of msgspec are values' errors."""

_Read = TypeVar("_Read")


class LoginRefusedError(SuiroError):
    """The response of the provider does not allow a login."""


class NoRoleError(LoginRefusedError):
    """The provider knows the user, but no role was given to the user here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """`roles` has values of `role_claim` and their roles; the value `EVERYBODY` applies to every user. `url` is the
    address of the console for browsers; None: the one it listens on. Raises `ConfigError`."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    roles: tuple[tuple[str, Role], ...]
    role_claim: str = "roles"
    user_claim: str = "sub"
    scope: str = "openid profile"
    url: str | None = None
    session_minutes: int = 480

    def __post_init__(self) -> None:
        _require_safe("--oidc-issuer", self.issuer)
        if self.url is not None:
            _require_safe("--oidc-url", self.url)
            if urlsplit(self.url).path not in ("", "/") or urlsplit(self.url).query:
                raise ConfigError("--oidc-url: the console is at the root of its address; leave the path out")
        if not self.client_id:
            raise ConfigError("--oidc-issuer takes --oidc-client-id, too: the name of this console there")
        if not self.roles:
            raise ConfigError(
                "--oidc-issuer takes --oidc-role, too, or nobody could do anything; "
                "--oidc-role '*=viewer' lets everybody look who can log in"
            )
        if "openid" not in self.scope.split():
            raise ConfigError("--oidc-scope must have openid, or the provider does not say who logs in")
        if self.session_minutes < 1:
            raise ConfigError("--oidc-session-minutes: expected a number from 1 on")

    @staticmethod
    def parse_roles(said: Iterable[str]) -> tuple[tuple[str, Role], ...]:
        """Parses texts VALUE=ROLE. Raises `ConfigError`."""
        found = []
        for one in said:
            value, _, name = one.rpartition("=")
            if not value or name.upper() not in Role.__members__:
                names = ", ".join(role.name.lower() for role in Role)
                raise ConfigError(f"--oidc-role {one!r}: expected VALUE=ROLE, and a role is one of {names}")
            found.append((value, Role[name.upper()]))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    user: str
    role: Role
    id_token: str = field(repr=False)


class _Document(msgspec.Struct, frozen=True):
    """The metadata of a provider (OpenID Connect Discovery)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None


class Provider:
    """Thread-safe. Methods that call the provider may take seconds, and raise `TransientError` if it does not
    answer."""

    def __init__(self, settings: OidcSettings, *, redirect_uri: str, clock: Clock) -> None:
        require("console-oidc")
        self._settings = settings
        self._redirect_uri = redirect_uri
        self._clock = clock
        self._http = httpx.Client(timeout=httpx.Timeout(CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S))
        self._http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # the client is shared by all users
        self._lock = threading.Lock()
        self._document: _Document | None = None
        self._document_at_ms = 0
        self._keys: tuple[Key, ...] = ()
        self._keys_at_ms: int | None = None
        self._failure: tuple[str, int] | None = None

    def close(self) -> None:
        self._http.close()

    def login_url(self, *, state: str, nonce: str, verifier: str) -> str:
        """Returns the address to which the browser is redirected."""
        url, _ = self._client().create_authorization_url(
            self.document().authorization_endpoint, state=state, code_verifier=verifier, nonce=nonce
        )
        return str(url)

    def logout_url(self, id_token: str, *, back_to: str) -> str | None:
        """Returns the address to which a browser is redirected after a logout; None if the provider has none, or was
        never asked."""
        document = self._document
        if document is None or document.end_session_endpoint is None:
            return None
        query = urlencode(
            {
                "id_token_hint": id_token,
                "client_id": self._settings.client_id,
                "post_logout_redirect_uri": back_to,
            }
        )
        joined = "&" if "?" in document.end_session_endpoint else "?"
        return f"{document.end_session_endpoint}{joined}{query}"

    def identify(self, *, code: str, nonce: str, verifier: str) -> Identity:
        """Returns the user for `code`. Raises `LoginRefusedError`."""
        from authlib.oauth2 import OAuth2Error

        document = self.document()
        methods = document.token_endpoint_auth_methods_supported or ()
        by_post = "client_secret_basic" not in methods and "client_secret_post" in methods
        client = self._client("client_secret_post" if by_post else None)
        try:
            answer = client.fetch_token(
                document.token_endpoint, grant_type="authorization_code", code=code, code_verifier=verifier
            )
        except OAuth2Error as error:
            raise LoginRefusedError(f"{document.token_endpoint} refuses the code: {error}") from None
        except (*_NO_SUCH_ANSWER, httpx.HTTPStatusError) as error:
            raise LoginRefusedError(f"{document.token_endpoint}: {error}") from None
        id_token = answer.get("id_token") if isinstance(answer, dict) else None
        if not isinstance(id_token, str) or len(id_token) > TOKEN_CHARS_MAX:
            raise LoginRefusedError(f"{document.token_endpoint} gives no ID token")
        access_token = answer.get("access_token")
        claims = self._verified(id_token, nonce, access_token if isinstance(access_token, str) else None)
        return Identity(user=self._user_of(claims), role=self._role_of(claims), id_token=id_token)

    def _client(self, auth_method: str | None = None) -> Any:
        from authlib.oauth2.client import OAuth2Client

        settings = self._settings
        return OAuth2Client(
            self,  # authlib calls `post`
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            token_endpoint_auth_method=auth_method if settings.client_secret else None,
            scope=settings.scope,
            redirect_uri=self._redirect_uri,
            code_challenge_method="S256",
        )

    def post(self, url: str, *, data: Mapping[str, str], headers: Mapping[str, str], auth: Any) -> httpx.Response:
        """Sends the requests of authlib's client, with the limits of this module."""
        sent = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
        url, sent, body = auth.prepare("POST", url, sent, urlencode(data))
        sent.pop("Content-Length", None)
        return self._ask("POST", url, headers=sent, content=body)

    def _verified(self, token: str, nonce: str, access_token: str | None) -> Mapping[str, Any]:
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import JoseError

        settings = self._settings
        try:
            found = jwt.decode(token, self._key_of, algorithms=list(ALGORITHMS))
            claims = CodeIDToken(
                found.claims,
                found.header,
                options={
                    "iss": {"essential": True, "value": settings.issuer},
                    "aud": {"essential": True, "value": settings.client_id},
                    "nonce": {"essential": True, "value": nonce},
                },
                params={"nonce": nonce, "client_id": settings.client_id, "access_token": access_token},
            )
            claims.validate(now=self._clock.wall_ms() // 1_000, leeway=LEEWAY_S)
        except (JoseError, *_NO_SUCH_ANSWER) as error:
            raise LoginRefusedError(f"the ID token is refused: {type(error).__name__}: {error}") from None
        return found.claims

    def _key_of(self, token: Any) -> Key:
        """Returns the key that a token names, or the only key if it names none."""
        name = token.headers().get("kid")
        for again in (False, True):
            found = [key for key in self._known_keys(again) if name is None or key.kid == name]
            if len(found) == 1:
                return found[0]
        raise LoginRefusedError(
            f"the ID token is refused: {len(found)} keys of the provider have the name {str(name)[:100]!r}"
        )

    def _user_of(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self._settings.user_claim)
        if not isinstance(name, str) or not name or len(name) > USER_CHARS_MAX or not name.isprintable():
            raise LoginRefusedError(
                f"the ID token has no name in {self._settings.user_claim!r} (--oidc-user-claim): it has "
                + ", ".join(sorted(str(one)[:80] for one in claims)[:50])
            )
        return name

    def _role_of(self, claims: Mapping[str, Any]) -> Role:
        """Returns the highest role of the user."""
        path = self._settings.role_claim
        found: Any = claims.get(path)
        if found is None:  # a nested claim such as realm_access.roles
            found = claims
            for part in path.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
        held = {one for one in (found if isinstance(found, list) else [found]) if isinstance(one, str)}
        given = [role for value, role in self._settings.roles if value in held or value == EVERYBODY]
        if not given:
            raise NoRoleError(f"{path!r} of this login has none of the values that a role was given to (--oidc-role)")
        return max(given)

    def document(self) -> _Document:
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._document is None or now_ms - self._document_at_ms >= DOCUMENT_KEPT_MS:
                self._document = self._read(self._read_document)
                self._document_at_ms = now_ms
            return self._document

    def _read_document(self) -> _Document:
        url = f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        try:
            found = msgspec.json.decode(self._get(url), type=_Document)
        except _NO_SUCH_ANSWER as error:
            raise LoginRefusedError(f"{url}: {error}") from None
        if found.issuer != self._settings.issuer:
            raise LoginRefusedError(
                f"{url} is of the issuer {found.issuer[:200]!r}; name it so with --oidc-issuer, to the last character"
            )
        for one in (
            found.authorization_endpoint,
            found.token_endpoint,
            found.jwks_uri,
            found.end_session_endpoint,
        ):
            if one is not None:
                try:
                    _require_safe(url, one)
                except ConfigError as error:
                    raise LoginRefusedError(str(error)) from None
        return found

    def _known_keys(self, again: bool) -> tuple[Key, ...]:
        url = self.document().jwks_uri
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            at_ms = self._keys_at_ms
            if at_ms is None or (again and now_ms - at_ms >= KEYS_AGAIN_MS):
                self._keys = self._read(lambda: _keys(url, self._get(url)))
                self._keys_at_ms = now_ms
            return self._keys

    def _read(self, read: Callable[[], _Read]) -> _Read:
        """The caller holds the lock, so others wait for the same result. After a failure they do not wait."""
        if self._failure is not None and self._clock.monotonic_ms() - self._failure[1] < FAILURE_KEPT_MS:
            raise TransientError(self._failure[0])
        try:
            found = read()
        except SuiroError as error:
            self._failure = str(error), self._clock.monotonic_ms()
            raise
        self._failure = None
        return found

    def _get(self, url: str) -> bytes:
        answer = self._ask("GET", url)
        if not answer.is_success:
            raise TransientError(f"{url} answers {answer.status_code}")
        return answer.content

    def _ask(self, method: str, url: str, **more: Any) -> httpx.Response:
        try:
            return ask(self._http, method, url, clock=self._clock, max_bytes=ANSWER_BYTES_MAX, **more)
        except httpx.TransportError as error:
            raise TransientError(f"no answer from {url}: {str(error) or type(error).__name__}") from None
        except (AnswerTooLargeError, httpx.DecodingError, httpx.InvalidURL, UsageError) as error:
            raise LoginRefusedError(f"{url}: {error}") from None


def _keys(url: str, content: bytes) -> tuple[Key, ...]:
    """Returns the keys for signatures. Keys of unknown types are skipped."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, JWKRegistry, RSAKey

    try:
        listed = msgspec.json.decode(content)["keys"]
        if not isinstance(listed, list):
            raise TypeError
    except _NO_SUCH_ANSWER:
        raise LoginRefusedError(f"{url} is no set of keys") from None
    found: list[Key] = []
    for one in listed[:MAX_KEYS]:
        if not isinstance(one, dict) or one.get("use", "sig") != "sig":
            continue
        try:
            key = JWKRegistry.import_key(one)
        except (JoseError, *_NO_SUCH_ANSWER):
            continue
        if isinstance(key, ECKey) or (isinstance(key, RSAKey) and key.raw_value.key_size >= RSA_BITS_MIN):
            found.append(key)
    return tuple(found)


def _require_safe(what: str, url: str) -> None:
    """Raises `ConfigError` unless the address uses TLS or is on this machine: codes and tokens must not be sent in
    clear."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if not host or parts.scheme not in ("http", "https") or parts.fragment or parts.username:
        raise ConfigError(f"{what}: {url[:200]!r} is no https://HOST[:PORT][/PATH]")
    if parts.scheme == "http" and not is_loopback(host):
        raise ConfigError(f"{what}: {url[:200]!r} must be https: logins would travel in the clear")
