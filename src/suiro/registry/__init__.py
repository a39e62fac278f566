"""A schema registry with Confluent's REST API, its client, and serdes that use it.

- `schemas`: `Schema`, `Reference`, `RegisteredSchema`. `client`: `RegistryClient`, for any registry with this API.
"""

from suiro.registry.client import RegistryClient
from suiro.registry.schemas import Reference, RegisteredSchema, Schema, SchemaType

__all__ = ["Reference", "RegisteredSchema", "RegistryClient", "Schema", "SchemaType"]
