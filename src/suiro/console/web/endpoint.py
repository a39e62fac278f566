"""The definition of an endpoint: a method, a path, a role, and a function that runs on a thread.

Every change is a POST with a JSON body, so that `suiro.foundation.http.origins` checks it. The return value of an
endpoint is encoded as JSON by msgspec; `Events` and `Download` are streamed.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec

from suiro import __version__
from suiro.errors import (
    IncompatibleSchemaError,
    OffsetOutOfRangeError,
    RefusedError,
    RegistryRefusedError,
    SchemaNotFoundError,
    SuiroError,
    TransientError,
    UnknownTopicError,
    UsageError,
)
from suiro.foundation.http import Role
from suiro.numerals import natural

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from suiro.console.web.console import Console

MAX_NUMBER = (1 << 63) - 1
_FORBIDDEN = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }
)
_NOT_FOUND = frozenset({"GROUP_ID_NOT_FOUND", "RESOURCE_NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION"})


Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)


class NotFoundError(UsageError):
    """Nothing has this name."""


class ConflictError(UsageError):
    """The current state does not allow it."""


class ForbiddenError(UsageError):
    """The user may not do it."""


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request. Unknown fields are refused."""


class NothingBody(Body):
    """The request has no fields."""


class ConfirmBody(Body):
    """For changes that cannot be undone: repeats the name (`require_confirmed`)."""

    confirm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Server-sent events: `parts` yields framed bytes (`streams`). Each step may take half a second at most, so that a
    stream ends soon after its reader has disconnected."""

    parts: Iterator[bytes] | AsyncIterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file that is sent while it is made. For the steps see `Events`."""

    name: str
    media_type: str
    parts: Iterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, after the checks of login, role and body. `gone` is set when the client has disconnected.
    `can_log_out`: the user has a session. `action` is what the path of the endpoint has behind its last name, such as
    "/shift"."""

    console: Console
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    user: str | None
    role: Role
    gone: threading.Event
    can_log_out: bool = False
    action: str = ""

    @property
    def is_masked(self) -> bool:
        """Whether fields are masked for this user."""
        return self.role < Role.ADMIN and bool(self.console.settings.masks.rules)

    def require_unmasked(self, what: str) -> None:
        """For responses with values of records that masks do not cover. Raises `ForbiddenError`."""
        if self.is_masked:
            raise ForbiddenError(f"this console masks fields of records (--mask), so {what} are for admins")

    def number(self, name: str, default: int | None = None, *, most: int = MAX_NUMBER) -> int | None:
        """Returns a parameter of the query that is a number from 0 on. Raises `UsageError`."""
        text = self.query.get(name)
        return default if text is None else number_of(name, text, most=most)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`path` has names in braces; each stands for one segment, which is split off before it is decoded. `handle` takes
    the call, and may take a client, which it borrows. Parameters that are not in `query` are refused. The OpenAPI
    document has the docstring and the return type of `handle`. `from_memory`: it never waits, so it runs on the event
    loop, and works even while all threads wait for an unreachable cluster."""

    method: str
    path: str
    role: Role
    handle: Handler
    _: KW_ONLY
    body: type[Body] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    from_memory: bool = False

    def __post_init__(self) -> None:
        if not self.summary:
            said = inspect.cleandoc(self.handle.__doc__ or "").partition("\n\n")[0]
            object.__setattr__(self, "summary", said.replace("\n", " ").removesuffix("."))

    def answer_to(self, call: Call) -> Any:
        if len(inspect.signature(self.handle).parameters) == 1:
            return self.handle(call)
        with call.console.client() as client:
            return self.handle(call, client)

    @property
    def answer(self) -> Any:
        """The type of the JSON response; None if it has no type of its own, or is a stream."""
        found = get_type_hints(self.handle)["return"]
        is_open = found in (bytes, Events, Download) or get_origin(found) in (dict, Mapping)
        return None if is_open else found


ENDPOINTS: list[Endpoint] = []


def get(path: str, role: Role = Role.VIEWER, **more: Any) -> Callable[[H], H]:
    """Makes a function an endpoint. `more`: the other fields of `Endpoint`."""
    return _registering("GET", path, role, **more)


def post(path: str, role: Role, body: type[Body] = NothingBody, **more: Any) -> Callable[[H], H]:
    """The same for a change, or for what takes a body."""
    return _registering("POST", path, role, body=body, **more)


def _registering(method: str, path: str, role: Role, **more: Any) -> Callable[[H], H]:
    def register(handle: H) -> H:
        ENDPOINTS.append(Endpoint(method, path, role, handle, **more))
        return handle

    return register


class Router:
    """Finds endpoints by the segments of a path. Raises `ValueError` if two have the same path and method."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.endpoints = endpoints
        self._by_shape: dict[tuple[str, ...], dict[str, Endpoint]] = {}
        for one in endpoints:
            shape = tuple("{}" if part.startswith("{") else part for part in one.path.split("/"))
            methods = self._by_shape.setdefault(shape, {})
            if one.method in methods:
                raise ValueError(f"{one.method} {one.path} is there twice")
            methods[one.method] = one

    def find(self, raw_path: str) -> tuple[Mapping[str, Endpoint], tuple[str, ...]]:
        """Returns the endpoints of a path by method, and its segments. The mapping may be empty."""
        segments = tuple(raw_path.split("/"))
        found: tuple[int, Mapping[str, Endpoint]] | None = None
        for shape, methods in self._by_shape.items():
            if len(shape) != len(segments):
                continue
            if any(part not in ("{}", said) for part, said in zip(shape, segments, strict=True)):
                continue
            names = shape.count("{}")
            if found is None or names < found[0]:  # a literal segment takes precedence over a name in braces
                found = names, methods
        return (found[1], segments) if found is not None else ({}, segments)


def names_in(endpoint: Endpoint, segments: tuple[str, ...]) -> dict[str, str]:
    """Returns the names of the path. Raises `NotFoundError` for bytes that are not UTF-8."""
    found = {}
    for part, said in zip(endpoint.path.split("/"), segments, strict=True):
        if part.startswith("{"):
            try:
                found[part[1:-1]] = unquote(said, errors="strict")
            except UnicodeDecodeError:
                raise NotFoundError("the path is not UTF-8") from None
    return found


def fields_of(value: DataclassInstance) -> dict[str, Any]:
    """Returns the fields of a dataclass by name, for a response that has them and more."""
    return {one.name: getattr(value, one.name) for one in fields(value)}


def number_of(name: str, text: str, *, most: int = MAX_NUMBER) -> int:
    number = natural(text, most)
    if number is None:
        raise UsageError(f"{name}={text[:80]!r}: expected a number from 0 to {most}")
    return number


def require_confirmed(said: str, name: str) -> None:
    """A change that cannot be undone requires the repeated name."""
    if said != name:
        raise UsageError(f'"confirm" must be the name, {name!r}')


def status_of(error: SuiroError) -> int:
    match error:
        case NotFoundError() | UnknownTopicError() | SchemaNotFoundError() | OffsetOutOfRangeError():
            return 404
        case ForbiddenError() | RegistryRefusedError(status=403):
            return 403
        case RegistryRefusedError(status=401):
            return 500  # the console has no login there
        case ConflictError() | IncompatibleSchemaError():
            return 409
        case RefusedError(code_name=code) if code in _FORBIDDEN:
            return 403
        case RefusedError(code_name=code) if code in _NOT_FOUND:
            return 404
        case RefusedError():
            return 409
        case UsageError():
            return 400
        case TransientError():
            return 503
    return 500


_ERROR = {"$ref": "#/components/responses/Error"}


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    types = [one.body for one in endpoints if one.body is not None]
    types += [one.answer for one in endpoints if one.answer is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(map(str, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        operation: dict[str, Any] = {
            "summary": one.summary,
            "operationId": _name(one),
            "description": f"For the role {one.role.name.lower()} and those above it.",
            "parameters": [
                *(
                    {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
                    for part in one.path.split("/")
                    if part.startswith("{")
                ),
                *(
                    {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
                    for name, text in one.query.items()
                ),
            ],
            "responses": {
                "200": {
                    "description": "what was asked for",
                    "content": {"application/json": {"schema": by_type.get(str(one.answer), {})}},
                },
                "default": _ERROR,
            },
        }
        if one.body is not None:
            content = {"application/json": {"schema": by_type[str(one.body)]}}
            operation["requestBody"] = {"required": True, "content": content}
        paths.setdefault(one.path, {})[one.method.lower()] = operation
    components["Error"] = {
        "type": "object",
        "required": ["error_code", "message"],
        "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "suiro console", "version": __version__},
        "servers": [{"url": "/api/v1"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                "Error": {
                    "description": "why not: 400 a wrong request, 401 who are you, 403 not with this role, 404 no such "
                    "thing, 409 not as it stands, 503 try again",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
            },
        },
    }


def _name(endpoint: Endpoint) -> str:
    parts = [part.strip("{}").replace("-", "_") for part in endpoint.path.split("/") if part]
    return "_".join([endpoint.method.lower(), *parts])
