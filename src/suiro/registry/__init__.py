"""A schema registry with Confluent's REST API, its client, and serdes that use it.

- `schemas`: `Schema`, `Reference`, `RegisteredSchema`. `client`: `RegistryClient`, for any registry with this API.
- `process`: the registry as a child process, also beside a node.
- `server`, `app`, `endpoints`, `users`: HTTP. They load Starlette and are imported when a registry is served.
- `registration`, `deletion`, `settings`, `compatibility`, `queries`, `merging`, `associations`: the rules, pure.
- `state`: the topic folded. `records`: its bytes. `storage`: reads and writes it, one registry at a time.
- `formats`: Avro, JSON Schema and Protobuf, each its parser, its canonical form and its rules of compatibility.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from suiro.registry.process import RegistryBeside, RegistryProcess, listen_on
from suiro.registry.schemas import Reference, RegisteredSchema, Schema, SchemaType

if TYPE_CHECKING:
    from suiro.registry.client import RegistryClient
    from suiro.registry.server import InProcessRegistry, RegistryConfig, serve
    from suiro.registry.users import hash_password

__all__ = [
    "InProcessRegistry",
    "Reference",
    "RegisteredSchema",
    "RegistryBeside",
    "RegistryClient",
    "RegistryConfig",
    "RegistryProcess",
    "Schema",
    "SchemaType",
    "hash_password",
    "listen_on",
    "serve",
]

# A node that starts a registry loads no HTTP client, and a client that encodes records no web server.
_MODULES = {
    "InProcessRegistry": "server",
    "RegistryClient": "client",
    "RegistryConfig": "server",
    "hash_password": "users",
    "serve": "server",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
