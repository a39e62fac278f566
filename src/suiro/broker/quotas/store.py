"""The quotas that are set, by entity (KIP-546): kept in the cluster's state, altered and found by their parts.

An entity is a user, a client id, both, or an IP address; a name of None is the default for everybody of that type.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Self

from suiro.broker.settings.cluster_state import QUOTAS, ClusterState
from suiro.protocol.messages import ErrorCode

USER, CLIENT_ID, IP = "user", "client-id", "ip"

_LONG, _INT = (2**63 - 1, "a LONG"), (2**31 - 1, "an INT")
_OF_CLIENTS: Mapping[str, tuple[int, str] | None] = MappingProxyType(
    {
        "producer_byte_rate": _LONG,
        "consumer_byte_rate": _LONG,
        "request_percentage": None,
        "controller_mutation_rate": None,
    }
)
"""The largest value, and Kafka's word for its type, of those that must be whole numbers."""
_OF_ADDRESSES: Mapping[str, tuple[int, str] | None] = MappingProxyType({"connection_creation_rate": _INT})
_NEARLY = 1e-6
_COMBINED = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """`parts` are (type, name) in the order of the types; a name of None is the default of its type."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> Self:
        return cls(tuple(sorted(parts.items())))


class Alteration(NamedTuple):
    """New values of one entity's quotas, in the order they were sent; None takes one away."""

    entity: QuotaEntity
    values: tuple[tuple[str, float | None], ...]


Problem = tuple[ErrorCode, str]


class QuotaStore:
    """Entity to its quotas by Kafka's names. A change is on disk before it holds."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._quotas: dict[QuotaEntity, dict[str, float]] = {
            QuotaEntity.of(item["entity"]): dict(item["values"]) for item in state.read(QUOTAS, [])
        }
        self._listeners: list[Callable[[], None]] = []

    @property
    def quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return self._quotas

    def on_change(self, callback: Callable[[], None]) -> None:
        self._listeners.append(callback)

    def alter(self, alterations: Iterable[Alteration], *, validate_only: bool) -> dict[QuotaEntity, Problem | None]:
        """Every entity with what is wrong with it, None where it was altered. An entity is altered whole."""
        results: dict[QuotaEntity, Problem | None] = {}
        quotas = {entity: dict(values) for entity, values in self._quotas.items()}
        for alteration in alterations:
            entity = alteration.entity
            keys = [key for key, _ in alteration.values]
            if entity in results or len(set(keys)) < len(keys):
                results[entity] = ErrorCode.invalid_request, f"Ignoring duplicate entity {_shown(entity)}"
                continue
            results[entity] = problem = _problem(alteration)
            if problem is not None:
                continue
            values = quotas.setdefault(entity, {})
            for key, value in alteration.values:
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value
        quotas = {entity: values for entity, values in quotas.items() if values}
        if not validate_only and quotas != self._quotas:
            content = [{"entity": dict(entity.parts), "values": values} for entity, values in quotas.items()]
            self._state.write(QUOTAS, content)
            self._quotas = quotas
            for callback in self._listeners:
                callback()
        return results

    def matching(
        self, exact: Mapping[str, str | None], of_type: Iterable[str], *, strict: bool
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Entities with all these parts, whatever the name for those of `of_type`; strict: and no others."""
        types = set(of_type)
        found = {}
        for entity, values in self._quotas.items():
            parts = dict(entity.parts)
            if not all(key in parts and parts[key] == name for key, name in exact.items()):
                continue
            if types <= parts.keys() and not (strict and len(parts) != len(exact) + len(types)):
                found[entity] = values
        return found


def _problem(alteration: Alteration) -> Problem | None:
    parts = dict(alteration.entity.parts)
    if not parts:
        return ErrorCode.invalid_request, "Invalid empty client quota entity"
    for kind, name in parts.items():
        if kind not in (USER, CLIENT_ID, IP):
            return ErrorCode.invalid_request, f"Unhandled client quota entity type: {kind}"
        if name == "":
            return ErrorCode.invalid_request, f"Empty {kind} not supported"
    if IP in parts and len(parts) > 1:
        return ErrorCode.invalid_request, _COMBINED
    address = parts.get(IP)
    if address is not None and not _is_address(address):
        return ErrorCode.invalid_request, f"{address} is not a valid IP or resolvable host."
    keys = _OF_ADDRESSES if IP in parts else _OF_CLIENTS
    for key, value in alteration.values:
        problem = None if value is None else _problem_of_value(keys, key, value)
        if problem is not None:
            return ErrorCode.invalid_request, problem
    return None


def _problem_of_value(keys: Mapping[str, tuple[int, str] | None], key: str, value: float) -> str | None:
    if key not in keys:
        return f"Invalid configuration key {key}"
    if not value > 0:
        return f"Quota {key} must be greater than 0"
    whole = keys[key]
    if whole is None:
        return None
    largest, called = whole
    if value > largest:
        return f"Proposed value for {key} is too large for {called}."
    return f"{key} cannot be a fractional value." if value % 1.0 > _NEARLY else None


def _is_address(text: str) -> bool:
    """Kafka asks the name service too; a node must not wait for one."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return text == "localhost"
    return True


def _shown(entity: QuotaEntity) -> str:
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity.parts)
    return f"ClientQuotaEntity(entries={{{parts}}})"
