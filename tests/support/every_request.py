"""A request of every API in every version, filled by its fields' names: for checks that go over the whole protocol.

`fill(message_class, world)` gives a message in which every array has one element and every field a value that means
something in the `World` (a topic that exists, a group, a transactional id); `bare(message_class)` one with empty
arrays, nulls and defaults.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

from suiro.protocol import messages
from support.batches import batch_of


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the requests speak of. The topic exists, with one partition."""

    topic: str
    topic_id: UUID
    group: str = "wire-check"
    transactional_id: str = "wire-check"
    broker: str = "1"


def bare(message_class: Any) -> Any:
    """Defaults, empty arrays, nulls where they may be."""
    return _message(message_class, lambda name, kind: None)


def fill(message_class: Any, world: World) -> Any:
    api = messages.API_NAMES[message_class.__api_key__]
    values = _values(world) | _values_of(api, world)
    return _message(message_class, lambda name, kind: values.get(name), full=True)


def _values(world: World) -> dict[str, Any]:
    topics = dict.fromkeys(("topic", "name", "topic_name", "topic_names", "resource_name"), world.topic)
    groups = dict.fromkeys(("group_id", "group_ids", "groups", "groups_names", "coordinator_keys"), world.group)
    transactions = dict.fromkeys(("transactional_id", "transactional_ids"), world.transactional_id)
    return {
        **topics,
        **groups,
        **transactions,
        "subscribed_topic_names": world.topic,
        "resource_name_filter": world.topic,
        "topic_id": world.topic_id,
        "acks": -1,
        "records": batch_of("a", "b"),
        "max_bytes": 1 << 20,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "leader_epoch": 0,
        "replica_id": -1,
        "replica_epoch": -1,
        "high_watermark": -1,
        "log_start_offset": -1,
        "timestamp": -1,
        "committed_leader_epoch": -1,
        "generation_id": -1,
        "generation_id_or_member_epoch": -1,
        "member_epoch": -1,
        "protocol_type": "consumer",
        "resource_type": 2,
        "resource_types": 2,
        "resource_type_filter": 1,
        "resource_pattern_type": 3,
        "pattern_type_filter": 1,
        "operation": 3,
        "permission_type": 3,
        "principal": "User:alice",
        "host": "*",
        "client_software_name": "wire-check",
        "client_software_version": "1",
        "response_partition_limit": 10,
        "session_epoch": -1,
        "broker_ids": 1,
        "replicas": 1,
        "principal_type": "User",
        "entity_type": "client-id",
        "entity_name": "somebody",
        "mechanism": 1,
        "iterations": 4096,
        "subscribed_topic_regex": None,
        "server_assignor": "uniform",
        "topic_partitions": None,
    }


def _values_of(api: str, world: World) -> dict[str, Any]:
    """Where one API gives a name another meaning, or the general value would be a refusal and nothing more."""
    match api:
        case "create_topics":
            made = {"name": f"made-{world.topic}", "num_partitions": 1, "replication_factor": 1}
            return {**made, "value": "60000", "broker_ids": None, "assignments": ()}
        case "create_partitions":
            return {"count": 3, "broker_ids": 1}
        case "delete_topics":
            return {
                "name": f"made-{world.topic}",
                "topic_names": f"made-{world.topic}",
                "topic_id": UUID(int=0),
            }
        case "alter_configs" | "incremental_alter_configs" | "describe_configs":
            return {"name": "retention.ms", "value": "-1", "configuration_keys": "retention.ms"}
        case "join_group":
            return {"name": "range", "session_timeout": timedelta(seconds=10)}
        case "consumer_group_heartbeat":
            return {"member_epoch": 0, "group_id": "consumers", "member_id": str(UUID(int=7))}
        case "consumer_group_describe":
            return {"group_ids": "consumers"}
        case "alter_client_quotas":
            return {"key": "producer_byte_rate", "value": 1e9}
        case "describe_client_quotas":
            return {"match_type": 2, "match": None}
        case "alter_user_scram_credentials" | "describe_user_scram_credentials":
            return {"name": "alice"}
        case "update_features":
            return {"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 1}
        case "list_transactions":
            return {"state_filters": "Ongoing", "producer_id_filters": 0, "transactional_id_pattern": None}
        case "list_groups":
            return {"states_filter": "Stable", "types_filter": "classic"}
        case "sasl_handshake":
            return {"mechanism": "PLAIN"}
        case "sasl_authenticate":
            return {"auth_bytes": b"\0alice\0secret"}
        case "init_producer_id":
            return {"transaction_timeout": timedelta(minutes=1), "producer_id": -1, "producer_epoch": -1}
        case "alter_replica_log_dirs":
            return {"path": "/nowhere"}
        case "delete_records":
            return {"offset": 0}
        case "describe_quorum":
            return {"topic_name": "__cluster_metadata"}
        case "describe_topic_partitions":
            return {"cursor": None}
    return {}


def _message(message_class: Any, value_of: Any, *, full: bool = False) -> Any:
    fields: dict[str, Any] = {}
    for field, kind, many, optional, nested in _layout(message_class):
        value = value_of(field.name, kind)
        if value is not None and (nested is None or isinstance(value, tuple)):
            alone = not many or isinstance(value, tuple)
            fields[field.name] = _typed(value, kind) if alone else (_typed(value, kind),)
            continue
        if many:
            item = _message(nested, value_of, full=full) if nested is not None else _default(kind)
            fields[field.name] = (item,) if full else None if optional else ()
        elif nested is not None:
            fields[field.name] = None if optional else _message(nested, value_of, full=full)
        elif field.default is dataclasses.MISSING:
            fields[field.name] = None if optional else _default(kind)
    return message_class(**fields)


def _typed(value: Any, kind: str) -> Any:
    return timedelta(milliseconds=value) if kind.startswith("timedelta") and isinstance(value, int) else value


def _default(kind: str) -> Any:
    if kind.startswith("timedelta"):
        return timedelta(milliseconds=1000 if kind.endswith("i32") else 0)
    empty = {"string": "", "bool": False, "bytes": b"", "uuid": UUID(int=0), "float64": 0.0, "records": b""}
    return empty.get(kind, 0)


@cache
def _layout(message_class: Any) -> list[tuple[Any, str, bool, bool, Any]]:
    """Each field with its kind on the wire, whether it is an array, may be null, and the class nested in it."""
    hints = typing.get_type_hints(message_class, vars(sys.modules[message_class.__module__]))
    rows = []
    for field in dataclasses.fields(message_class):
        hint = hints[field.name]
        parts = typing.get_args(hint)
        optional = type(None) in parts
        inner = next((p for p in parts if p is not type(None)), hint) if optional else hint
        many = typing.get_origin(inner) is tuple
        element = typing.get_args(inner)[0] if many else inner
        nested = element if dataclasses.is_dataclass(element) else None
        rows.append((field, field.metadata.get("kafka_type") or "", many, optional, nested))
    return rows
