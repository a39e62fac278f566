"""Finds the schema registry of a topology's serdes, and serdes without one.

`with_serdes_placed` is done when a topology is built: serdes of a registry learn whether they are a key's, and where
nobody but the topology reads (stores, topics between tasks) they give way to forms that need no schema.
`with_registry` is done when a topology is run: serdes that were given no registry get the run's. `check_schemas` finds
before the first record what would be wrong with each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

from suiro.errors import ConfigError, TransientError, UsageError
from suiro.registry import MOCK_SCHEME
from suiro.streams.serdes import AvroSerde, Serde, tagged
from suiro.streams.serdes.registered import ENVIRONMENT, AvroInside, RegisteredSerde
from suiro.streams.topology.nodes import Node, Repartition, Sink, Source
from suiro.streams.topology.topology import Topology

Change = Callable[[RegisteredSerde], Any]


def with_serdes_placed(topology: Topology) -> Topology:
    nodes = tuple(placed(node) for node in topology.nodes)
    stores = tuple(_changed(spec, lambda _: tagged) for spec in topology.stores)
    return Topology(nodes, stores)


def with_registry(topology: Topology, url: str | None) -> Topology:
    """Raises `ConfigError` where a serde is left without a registry."""

    def bound(serde: RegisteredSerde) -> RegisteredSerde:
        if serde.registry is not None:
            return serde
        if url is None:
            raise ConfigError(
                f"serdes.{serde.name} has no registry: give schema_registry_url= (suiro run --registry), or set "
                f"{ENVIRONMENT}, or give the serde its own, serdes.{serde.name}.with_(registry=...)"
            )
        return replace(serde, registry=url)

    nodes = tuple(replace(node, operator=_changed(node.operator, bound)) for node in topology.nodes)
    return Topology(nodes, tuple(_changed(spec, bound) for spec in topology.stores))


def with_registry_of(serde: Serde, url: str, *, is_key: bool) -> Serde:
    """Returns a serde with this registry, unless it has one of its own."""
    found: Serde = _changed(serde, lambda it: replace(it, registry=it.registry or url, is_key=is_key or it.is_key))
    return found


def registry_for_run(topology: Topology, url: str | None) -> Topology:
    """Returns the topology with a registry for workers in other processes, which cannot use `mock://`. Raises
    `ConfigError`."""
    made = with_registry(topology, url or os.environ.get(ENVIRONMENT) or None)

    def check(serde: RegisteredSerde) -> RegisteredSerde:
        if serde.registry is not None and serde.registry.startswith(MOCK_SCHEME):
            raise ConfigError(
                f"{serde.registry} is a registry in one process's memory, and Spark's workers are others: start one, "
                "`suiro registry` or `suiro node --registry`"
            )
        return serde

    for node in made.nodes:
        _changed(node.operator, check)
    return made


def check_schemas(topology: Topology) -> None:
    """Raises `ConfigError` if a given schema is none, or there is none to write a topic with. Asks the registries; once
    one does not answer, which takes a minute if it is silent, first values are the check."""
    with suppress(TransientError):
        for node in topology.nodes:
            if isinstance(node.operator, Source | Sink | Repartition):
                _changed(node.operator, partial(_with_schema, node))


def _with_schema(node: Node, serde: RegisteredSerde) -> RegisteredSerde:
    topic = node.operator.topic if isinstance(node.operator, Sink) else None
    try:
        if isinstance(topic, str):
            serde.codec().check(topic)
        elif serde.schema is not None:
            serde.codec().check(None)
    except UsageError as error:
        raise ConfigError(f"serdes.{serde.name} of {node.name}: {error}") from None
    return serde


def placed(node: Node) -> Node:
    operator: Any = node.operator
    match operator:
        case Source() | Sink():
            key, value = _changed(operator.key, _as_key), operator.value
        case Repartition():
            key, value = _changed(operator.key, _as_key), operator.value
            if not operator.asked_for:
                value = AvroInside(value) if isinstance(value, AvroSerde) else _changed(value, lambda _: tagged)
        case _:
            return replace(node, operator=_changed(operator, lambda _: tagged))
    return replace(node, operator=replace(operator, key=key, value=value))


def _as_key(serde: RegisteredSerde) -> RegisteredSerde:
    return replace(serde, is_key=True)


def _changed(value: Any, change: Change) -> Any:
    """Returns the value with every serde of a registry in it changed; the same object if there is none."""
    if isinstance(value, RegisteredSerde):
        return change(value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    new = {
        field.name: made
        for field in fields(value)
        if field.init and (made := _changed(found := getattr(value, field.name), change)) is not found
    }
    return replace(value, **new) if new else value
