"""Two brokers' answers made comparable: plain values, without what is each broker's own (ids, times, addresses)."""

from __future__ import annotations

import dataclasses
import enum
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

OWN = frozenset(
    (
        "throttle_time", "cluster_id", "host", "port", "log_dir", "total_bytes", "usable_bytes", "partition_size",
        "producer_id", "member_id", "leader_id", "session_id", "session_lifetime_ms", "error_message",
        "offset_lag", "leader_epoch", "current_leader_epoch", "committed_leader_epoch", "coordinator_epoch",
        "finalized_features_epoch", "quorum_epoch", "log_append_time", "last_timestamp", "members", "leader",
    )
)  # fmt: skip
"""Fields that say something of one broker, or in words of its own: that they are there is compared, no more."""


def plain(value: Any, *, ignore: frozenset[str] = OWN) -> Any:
    """Nested dictionaries and tuples of numbers and texts; arrays are compared in any order."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: ("..." if field.name in ignore else plain(getattr(value, field.name), ignore=ignore))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return sorted((plain(item, ignore=ignore) for item in value), key=repr)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, UUID):
        return "no id" if value.int == 0 else "id"
    if isinstance(value, datetime):
        return "time"
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two plain values differ, a line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            line
            for name in ours.keys() | theirs.keys()
            for line in differences(ours.get(name, "-"), theirs.get(name, "-"), f"{path}.{name}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            line
            for index, (one, other) in enumerate(zip(ours, theirs, strict=True))
            for line in differences(one, other, f"{path}[{index}]")
        ]
    if isinstance(ours, list) and isinstance(theirs, list):
        return [
            f"{path}: only {whose} {item!r}"
            for whose, some, others in (("node", ours, theirs), ("kafka", theirs, ours))
            for item in some
            if item not in others
        ]
    return [] if ours == theirs else [f"{path}: node {ours!r}, kafka {theirs!r}"]
