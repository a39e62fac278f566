"""Declares settings: those of topics, with the defaults that they have in Kafka, and the fields of the node's table.

`suiro.log` parses the values of topics. A node has defaults of its own for most of them, under other names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308
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


_OFF = TopicSetting(type="BOOLEAN", default="false")
_REPLICAS = TopicSetting(type="LIST", default="", pattern=r"\*|[0-9]+:[0-9]+")

TOPIC_SETTINGS: dict[str, TopicSetting] = {
    "cleanup.policy": TopicSetting(type="LIST", default="delete", choices=("compact", "delete")),
    "compression.gzip.level": _int(-1, -1, 9),
    "compression.lz4.level": _int(9, 1, 17),
    "compression.type": TopicSetting(
        type="STRING", default="producer", choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    ),
    "compression.zstd.level": _int(3, -131_072, 22),
    "delete.retention.ms": _long(DAY_MS, 0),
    "file.delete.delay.ms": _long(60_000, 0),
    "flush.messages": _long(MAX_LONG, 1),
    "flush.ms": _long(MAX_LONG, 0),
    "follower.replication.throttled.replicas": _REPLICAS,
    "index.interval.bytes": _int(4096, 0),
    "internal.segment.bytes": TopicSetting(type="INT", default="", low=61, high=MAX_INT),
    "leader.replication.throttled.replicas": _REPLICAS,
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
    "preallocate": _OFF,
    "remote.log.copy.disable": _OFF,
    "remote.log.delete.on.disable": _OFF,
    "remote.storage.enable": _OFF,
    "retention.bytes": _long(-1),
    "retention.ms": _long(WEEK_MS, -1),
    "segment.bytes": _int(1 << 30, 1 << 20),
    "segment.index.bytes": _int(10 << 20, 4),
    "segment.jitter.ms": _long(0, 0),
    "segment.ms": _long(WEEK_MS, 1),
    "unclean.leader.election.enable": _OFF,
}


def setting(
    default: Any,
    doc: str,
    *,
    low: int | None = 1,
    high: float | None = MAX_INT,
    choices: tuple[str, ...] = (),
    topic: str | None = None,
    dynamic: bool = False,
    sensitive: bool = False,
    verbatim: bool = False,
    of_kafka: bool = True,
    kind: str | None = None,
) -> Any:
    """Returns a dataclass field for one setting.

    low: of a number. high: a whole number that may be above `MAX_INT` is a LONG. topic: the topic setting whose default
    this is; such a setting can always be altered. dynamic: it can be altered while the node runs. sensitive: its value
    is never shown. kind: Kafka's type, unless the default implies it. verbatim: the value is not a list, so spaces
    around commas are kept. of_kafka: Kafka has the setting, too.
    """
    return field(
        default=default,
        repr=not sensitive,
        metadata={
            "doc": doc if of_kafka else f"{doc} (Not a Kafka setting.)",
            "low": low if type(default) in (int, float) else None,
            "high": high,
            "choices": choices,
            "topic": topic,
            "dynamic": dynamic or topic is not None,
            "sensitive": sensitive,
            "verbatim": sensitive or verbatim,
            "of_kafka": of_kafka,
            "kind": kind or _kind(default, high, sensitive=sensitive),
        },
    )


def _kind(default: Any, high: float | None, *, sensitive: bool) -> str:
    if isinstance(default, bool):
        return "BOOLEAN"
    if isinstance(default, int):
        return "INT" if high is None or high <= MAX_INT else "LONG"
    if isinstance(default, float):
        return "DOUBLE"
    return "PASSWORD" if sensitive else "STRING"


def without_effect(
    default: Any, why: str, *, low: int | None = None, kind: str | None = None, dynamic: bool = False
) -> Any:
    """A setting of Kafka that is accepted, so that files written for Kafka can be used, but has no effect."""
    doc = f"Accepted without effect: {why}."
    return setting(default, doc, low=low, kind=kind, dynamic=dynamic)


def topic_default(topic: str, doc: str, **options: Any) -> Any:
    """Returns a dataclass field for the node's default of a topic setting, with its default and range.

    `options` of `setting` take precedence over these.
    """
    row = TOPIC_SETTINGS[topic]
    default = row.default if row.type in ("STRING", "LIST") else json.loads(row.default)
    ranges: dict[str, Any] = {"low": row.low, "high": row.high, "choices": row.choices}
    return setting(default, doc, topic=topic, **(ranges | options))
