"""The columns of a topic's values, for OpenLineage: those of the latest schema of the topic's subject."""

from __future__ import annotations

from suiro.errors import SuiroError
from suiro.registry.client import RegistryClient
from suiro.registry.in_memory import registry_client
from suiro.registry.schemas import MOCK_SCHEME, Schema
from suiro.telemetry import Column, columns_of

__all__ = ["columns_of_topic", "schema_of_topic"]

TIMEOUT_S = 5.0


def columns_of_topic(registry: str | None, topic: str) -> tuple[Column, ...]:
    """Empty where they are not known, or the registry does not give them."""
    schema = schema_of_topic(registry, topic)
    return () if schema is None else columns_of(schema.type, schema.text)


def schema_of_topic(registry: str | None, topic: str) -> Schema | None:
    """`registry`: its URL. None where it does not give one. Asks once, with a short limit of time."""
    if registry is None:
        return None
    subject = f"{topic}-value"
    try:
        if registry.startswith(MOCK_SCHEME):
            return registry_client(registry).latest(subject).schema
        with RegistryClient(registry, timeout_s=TIMEOUT_S, retries=0) as client:
            return client.latest(subject).schema
    except SuiroError:
        return None
