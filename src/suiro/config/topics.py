"""The settings of one topic by Kafka's names: types, defaults and ranges. `suiro.log` parses their values.

A node has defaults of its own for most of them, under other names: `topic_default` declares one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from suiro.config.declare import MAX_INT, MAX_LONG, setting

DAY_MS = 24 * 60 * 60 * 1000
WEEK_MS = 7 * DAY_MS
AS_RETENTION = -2
"""`local.retention.*`: keep as long, or as much, as `retention.*` say."""

SettingType = Literal["BOOLEAN", "STRING", "INT", "LONG", "DOUBLE", "LIST"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """One row: `low` is the least number accepted, `choices` the words, `pattern` what each word must match."""

    type: SettingType
    default: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str | None = None


def _int(default: int, low: int, high: int = MAX_INT) -> TopicSetting:
    return TopicSetting(type="INT", default=str(default), low=low, high=high)


def _long(default: int, low: int = -MAX_LONG) -> TopicSetting:
    return TopicSetting(type="LONG", default=str(default), low=low, high=MAX_LONG)


def _throttled_replicas() -> TopicSetting:
    return TopicSetting(type="LIST", default="", pattern=r"\*|[0-9]+:[0-9]+")


TOPIC_SETTINGS: dict[str, TopicSetting] = {
    "cleanup.policy": TopicSetting(type="LIST", default="delete", choices=("compact", "delete")),
    "compression.gzip.level": _int(-1, -1, 9),
    "compression.lz4.level": _int(9, 1, 17),
    "compression.type": TopicSetting(
        type="STRING",
        default="producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    "compression.zstd.level": _int(3, -131_072, 22),
    "delete.retention.ms": _long(DAY_MS, 0),
    "file.delete.delay.ms": _long(60_000, 0),
    "flush.messages": _long(MAX_LONG, 1),
    "flush.ms": _long(MAX_LONG, 0),
    "follower.replication.throttled.replicas": _throttled_replicas(),
    "index.interval.bytes": _int(4096, 0),
    "internal.segment.bytes": TopicSetting(type="INT", default="", low=61, high=MAX_INT),
    "leader.replication.throttled.replicas": _throttled_replicas(),
    "local.retention.bytes": _long(AS_RETENTION, AS_RETENTION),
    "local.retention.ms": _long(AS_RETENTION, AS_RETENTION),
    "max.compaction.lag.ms": _long(MAX_LONG, 1),
    "max.message.bytes": _int(1_048_588, 0),
    "message.timestamp.after.max.ms": _long(3_600_000, 0),
    "message.timestamp.before.max.ms": _long(MAX_LONG, 0),
    "message.timestamp.type": TopicSetting(
        type="STRING", default="CreateTime", choices=("CreateTime", "LogAppendTime")
    ),
    "min.cleanable.dirty.ratio": TopicSetting(type="DOUBLE", default="0.5", low=0, high=1),
    "min.compaction.lag.ms": _long(0, 0),
    "min.insync.replicas": _int(1, 1),
    "preallocate": TopicSetting(type="BOOLEAN", default="false"),
    "remote.log.copy.disable": TopicSetting(type="BOOLEAN", default="false"),
    "remote.log.delete.on.disable": TopicSetting(type="BOOLEAN", default="false"),
    "remote.storage.enable": TopicSetting(type="BOOLEAN", default="false"),
    "retention.bytes": _long(-1),
    "retention.ms": _long(WEEK_MS, -1),
    "segment.bytes": _int(1 << 30, 1 << 20),
    "segment.index.bytes": _int(10 << 20, 4),
    "segment.jitter.ms": _long(0, 0),
    "segment.ms": _long(WEEK_MS, 1),
    "unclean.leader.election.enable": TopicSetting(type="BOOLEAN", default="false"),
}


def topic_default(topic: str, doc: str, **options: Any) -> Any:
    """Returns a dataclass field for the node's default of a topic setting, with its default and range.

    `options` of `setting` take precedence over these.
    """
    row = TOPIC_SETTINGS[topic]
    default: Any = row.default
    match row.type:
        case "BOOLEAN":
            default = row.default == "true"
        case "INT" | "LONG":
            default = int(row.default)
        case "DOUBLE":
            default = float(row.default)
    ranges: dict[str, Any] = {"low": row.low, "high": row.high, "choices": row.choices}
    return setting(default, doc, topic=topic, **(ranges | options))
