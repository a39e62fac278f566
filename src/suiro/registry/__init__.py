"""A schema registry with Confluent's REST API, its client, and serdes that use it.

- `schemas`: `Schema`, `Reference`, `RegisteredSchema`. `client`: `RegistryClient`, for any registry with this API.
- `server`, `app`, `endpoints`, `users`: HTTP. They load Starlette and are imported when a registry is served.
- `registration`, `deletion`, `settings`, `compatibility`, `queries`, `merging`, `associations`: the rules, pure.
- `state`: the topic folded. `records`: its bytes. `storage`: reads and writes it, one registry at a time.
- `formats`: Avro, JSON Schema and Protobuf, each its parser, its canonical form and its rules of compatibility.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.registry.client import RegistryClient
from suiro.registry.schemas import Reference, RegisteredSchema, Schema, SchemaType

if TYPE_CHECKING:
    from suiro.registry.server import RegistryConfig, listen_on, serve, url_of
    from suiro.registry.users import hash_password

__all__ = [
    "Reference",
    "RegisteredSchema",
    "RegistryClient",
    "RegistryConfig",
    "Schema",
    "SchemaType",
    "hash_password",
    "listen_on",
    "serve",
    "url_of",
]

_SERVER = ("RegistryConfig", "listen_on", "serve", "url_of")


def __getattr__(name: str) -> Any:
    # A client that only encodes records does not load a web server.
    if name in _SERVER:
        from suiro.registry import server

        return getattr(server, name)
    if name == "hash_password":
        from suiro.registry.users import hash_password

        return hash_password
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
