"""A blocking client for any registry with Confluent's REST API, and the same for asyncio.

Connections are pooled. Immutable results are cached: the schema of an id, and the id of a schema in a subject. The
latest version and compatibility results are not cached. Threads may share a client.

Reads are repeated after a lost connection or if the registry is not ready. So is `register`: registering the same
schema again returns the same id. A deletion is repeated only if no registry was reached: a second one may find nothing
left, or another latest version.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx
import msgspec

from suiro.clock import SystemClock, sleep_s
from suiro.errors import (
    ConfigError,
    IncompatibleSchemaError,
    RegistryError,
    RegistryRefusedError,
    RegistryUnavailableError,
    SchemaNotFoundError,
    UsageError,
)
from suiro.foundation.http import AnswerTooLargeError, ask, segment
from suiro.foundation.threads import InThreads
from suiro.registry.lru import Lru
from suiro.registry.schemas import RegisteredSchema, Schema, SchemaJson

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
DEFAULT_TIMEOUT_S = 10.0
DEFAULT_RETRIES = 5
DEFAULT_CACHE_SIZE = 10_000
CACHE_CHARS_MAX = 64 << 20
"""Of the texts of schemas in each cache. Writers to a topic choose the schemas."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""The largest response, uncompressed. A registry cannot use up the memory of its clients."""
_CLOCK = SystemClock()

_INCOMPATIBLE = 409
_NOT_FOUND = 404
_LAST_ID = 2**31 - 1
_UNAVAILABLE = frozenset({408, 429, 500, 502, 503, 504})

V = TypeVar("V")


class _IdAnswer(msgspec.Struct):
    id: int


class _VersionAnswer(SchemaJson):
    id: int
    subject: str
    version: int

    def registered(self) -> RegisteredSchema:
        return RegisteredSchema(id=self.id, subject=self.subject, version=self.version, schema=self.value())


class _ConfigAnswer(msgspec.Struct):
    level: str = msgspec.field(name="compatibilityLevel")


class _VerdictAnswer(msgspec.Struct):
    is_compatible: bool
    messages: list[str] | None = None


class RegistryClient:
    """`RegistryClient("http://127.0.0.1:8081")`; several addresses of one registry are separated by commas.

    `basic_auth` is (user, password); so is `user:password@` in the URL. `ca` is a file of certificates to trust instead
    of the system's, `certificate` the client's own (file, key file).
    """

    def __init__(
        self,
        url: str,
        basic_auth: tuple[str, str] | None = None,
        *,
        ca: str | None = None,
        certificate: tuple[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retries: int = DEFAULT_RETRIES,
        cache_size: int = DEFAULT_CACHE_SIZE,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._urls: tuple[str, ...] = ()
        for one in url.split(","):
            base, userinfo = _split_userinfo(one.strip())
            if userinfo is not None and basic_auth is not None and userinfo != basic_auth:
                raise ConfigError(f"registry {base}: basic_auth and the URL name different users; give one")
            basic_auth = userinfo or basic_auth
            self._urls += (base,)
        self._retries = retries
        verify: ssl.SSLContext | bool = True
        if ca is not None:
            try:
                verify = ssl.create_default_context(cafile=ca)
            except OSError as error:  # includes ssl.SSLError
                raise ConfigError(f"registry {base}: the certificates in {ca} cannot be used: {error}") from None
        elif not any(base.startswith("https:") for base in self._urls):
            # A context that trusts nobody: reading the system's certificates takes as long as a few requests.
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if certificate is not None:
            context = verify if isinstance(verify, ssl.SSLContext) else ssl.create_default_context()
            context.load_cert_chain(*certificate)
            verify = context
        self._http = httpx.Client(
            auth=basic_auth,
            verify=verify,
            timeout=timeout_s,
            transport=transport,
            headers={"Accept": CONTENT_TYPE, "Content-Type": CONTENT_TYPE},
        )

        def cache(text: Callable[[Any, Any], str]) -> Lru[Any, Any]:
            return Lru(cache_size, weight=CACHE_CHARS_MAX, weigh=lambda key, value: len(text(key, value)))

        self._schemas: Lru[int, Schema] = cache(lambda _, schema: schema.text)
        self._ids: Lru[tuple[str, Schema, bool], int] = cache(lambda key, _: key[1].text)
        self._versions: Lru[tuple[str, int], RegisteredSchema] = cache(lambda _, found: found.schema.text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Registers the schema in the subject and returns its id. Raises `IncompatibleSchemaError`."""
        path = f"subjects/{segment(subject)}/versions{_asking(normalize=normalize)}"
        key = (subject, schema, normalize)
        return self._ids.get_or(key, lambda: self._call("POST", path, _IdAnswer, schema.to_json()).id)

    def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Returns the version of the subject with this schema. Raises `SchemaNotFoundError`."""
        try:
            path = f"subjects/{segment(subject)}{_asking(normalize=normalize)}"
            return self._call("POST", path, _VersionAnswer, schema.to_json()).registered()
        except SchemaNotFoundError:
            self._ids.forget((subject, schema, normalize))  # it was deleted, so `register` must ask again
            raise

    def schema(self, schema_id: int) -> Schema:
        """Raises `SchemaNotFoundError`."""
        if schema_id > _LAST_ID:  # Confluent's registry answers as if the path were wrong
            raise SchemaNotFoundError(f"there is no schema {schema_id}: an id has 31 bits", _NOT_FOUND, 40403)
        path = f"schemas/ids/{schema_id}"
        return self._schemas.get_or(schema_id, lambda: self._call("GET", path, SchemaJson).value())

    def latest(self, subject: str) -> RegisteredSchema:
        """Returns the latest version. Raises `SchemaNotFoundError` if the subject has no version."""
        path = f"subjects/{segment(subject)}/versions/latest"
        return self._call("GET", path, _VersionAnswer).registered()

    def version(self, subject: str, version: int, *, fresh: bool = False) -> RegisteredSchema:
        """Returns a version, also a soft-deleted one, because others may reference it. `fresh`: not from the cache, as
        the number of a version that was deleted permanently may be used again. Raises `SchemaNotFoundError`."""
        if fresh:
            self._versions.forget((subject, version))
        path = f"subjects/{segment(subject)}/versions/{version}?deleted=true"
        return self._versions.get_or((subject, version), lambda: self._call("GET", path, _VersionAnswer).registered())

    def subjects(self) -> list[str]:
        return self._call("GET", "subjects", list[str])

    def versions(self, subject: str) -> list[int]:
        """Raises `SchemaNotFoundError`."""
        return self._call("GET", f"subjects/{segment(subject)}/versions", list[int])

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Soft-deletes the subject: its schemas can still be read by id. `permanent` deletes what was soft-deleted."""
        return self._call("DELETE", f"subjects/{segment(subject)}{_asking(permanent=permanent)}", list[int])

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        path = f"subjects/{segment(subject)}/versions/{version}{_asking(permanent=permanent)}"
        return self._call("DELETE", path, int)

    def compatibility(self, subject: str) -> str:
        """Returns the compatibility level of a subject, or the global one."""
        return self._call("GET", f"config/{segment(subject)}?defaultToGlobal=true", _ConfigAnswer).level

    def compatible(self, subject: str, schema: Schema) -> list[str]:
        """Returns the incompatibilities with the subject by its level; empty if there are none."""
        path = f"compatibility/subjects/{segment(subject)}/versions?verbose=true"
        try:
            answer = self._call("POST", path, _VerdictAnswer, schema.to_json())
        except SchemaNotFoundError:
            return []  # it is the first schema of the subject
        if answer.is_compatible:
            return []
        return answer.messages or ["the registry gives no reason"]

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Sets one of the seven levels, for one subject or globally."""
        if subject == "":
            raise UsageError("a subject is empty; give its name, or None for the level of all subjects")
        path = "config" if subject is None else f"config/{segment(subject)}"
        self._call("PUT", path, dict[str, Any], {"compatibility": level})

    def _call(self, method: str, path: str, kind: type[V], body: Any = None) -> V:
        pause_s = FIRST_PAUSE_S
        for attempt in range(self._retries + 1):
            url = f"{self._urls[attempt % len(self._urls)]}/{path}"
            try:
                response = ask(self._http, method, url, clock=_CLOCK, max_bytes=ANSWER_BYTES_MAX, json=body)
            except httpx.TransportError as error:
                failure: RegistryError = RegistryUnavailableError(
                    f"{method} {url}: {type(error).__name__}: {error}; is the registry running?", 0, 0
                )
                was_reached = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            except httpx.InvalidURL as error:
                raise ConfigError(f"registry {url!r}: {error}") from None
            except (AnswerTooLargeError, httpx.DecodingError) as error:
                raise RegistryRefusedError(f"{method} {url}: {error}", 0, 0) from None
            else:
                if response.is_success:
                    return _answer(method, url, response, kind)
                failure = _error(method, url, response)
                if not isinstance(failure, RegistryUnavailableError):
                    raise failure
                was_reached = True
            if method == "DELETE" and was_reached:
                raise failure
            if attempt < self._retries:
                sleep_s(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        raise failure


class AsyncRegistryClient(InThreads):
    """A `RegistryClient`, with its pool, cache and retries, for programs on asyncio. Closing it also closes the client:
    `AsyncRegistryClient(RegistryClient(url))`."""

    def __init__(self, client: RegistryClient) -> None:
        super().__init__("registry", client.close)
        self._client = client

    async def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Like `RegistryClient.register`; the other methods are alike."""
        return await self._call(self._client.register, subject, schema, normalize=normalize)

    async def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        return await self._call(self._client.lookup, subject, schema, normalize=normalize)

    async def schema(self, schema_id: int) -> Schema:
        return await self._call(self._client.schema, schema_id)

    async def latest(self, subject: str) -> RegisteredSchema:
        return await self._call(self._client.latest, subject)

    async def version(self, subject: str, version: int, *, fresh: bool = False) -> RegisteredSchema:
        return await self._call(self._client.version, subject, version, fresh=fresh)

    async def subjects(self) -> list[str]:
        return await self._call(self._client.subjects)

    async def versions(self, subject: str) -> list[int]:
        return await self._call(self._client.versions, subject)

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        return await self._call(self._client.delete_subject, subject, permanent=permanent)

    async def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        return await self._call(self._client.delete_version, subject, version, permanent=permanent)

    async def compatibility(self, subject: str) -> str:
        return await self._call(self._client.compatibility, subject)

    async def compatible(self, subject: str, schema: Schema) -> list[str]:
        return await self._call(self._client.compatible, subject, schema)

    async def set_compatibility(self, level: str, subject: str | None = None) -> None:
        await self._call(self._client.set_compatibility, level, subject)


def _answer(method: str, url: str, response: httpx.Response, kind: type[V]) -> V:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (ValueError, RecursionError) as error:
        raise RegistryRefusedError(
            f"{method} {url}: the answer is not that of a schema registry: {error}", response.status_code, 0
        ) from None


def _error(method: str, url: str, response: httpx.Response) -> RegistryError:
    try:
        answer = response.json()
        code, message = int(answer["error_code"]), str(answer["message"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        code, message = response.status_code, response.text[:500] or response.reason_phrase
    status = response.status_code
    kind: type[RegistryError] = RegistryRefusedError
    if status in _UNAVAILABLE:
        kind = RegistryUnavailableError
    elif status == _NOT_FOUND and code != _NOT_FOUND:  # otherwise the path, or who answers, is not of a registry
        kind = SchemaNotFoundError
    elif status == _INCOMPATIBLE:
        kind = IncompatibleSchemaError
    return kind(f"{method} {url}: {message}", status, code)


def _asking(**flags: bool) -> str:
    return "".join(f"?{name}=true" for name, is_asked in flags.items() if is_asked)


def _split_userinfo(url: str) -> tuple[str, tuple[str, str] | None]:
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")  # raises if no host can have this name
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        named = url.rpartition("@")[2]  # without a password
        raise ConfigError(f"registry {named!r}: expected http://HOST:PORT or https://HOST:PORT")
    userinfo = None
    if parts.username is not None:
        userinfo = (unquote(parts.username), unquote(parts.password or ""))
    netloc = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", "")), userinfo
