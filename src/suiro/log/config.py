"""The settings of one topic's logs.

`LogConfig.from_settings` reads the strings that CreateTopics and `--set` carry, by their rows in `TOPIC_SETTINGS`. A
name that Kafka does not know is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from suiro.config import AS_RETENTION, DAY_MS, MAX_INT, MAX_LONG, TOPIC_SETTINGS, WEEK_MS, TopicSetting
from suiro.errors import ConfigError
from suiro.numerals import number, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of a partition log. Sizes are in bytes, times in milliseconds.

    Settings that are accepted and have no effect here: `min.insync.replicas`,
    `unclean.leader.election.enable` and the throttled replicas (one replica), and `preallocate`.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = WEEK_MS
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    retention_bytes: int = -1
    retention_ms: int = WEEK_MS
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = 3_600_000
    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    min_cleanable_dirty_ratio: float = 0.5
    local_retention_bytes: int = AS_RETENTION
    local_retention_ms: int = AS_RETENTION
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is rolled. Records can be compacted only after their segment was rolled."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def copies_to_remote(self) -> bool:
        return self.remote_storage_enable and not self.remote_log_copy_disable

    @property
    def tombstones_ms(self) -> int:
        """How long tombstones are kept. The end of that time must be a timestamp, too."""
        return min(self.delete_retention_ms, MAX_LONG // 2)

    @property
    def retention(self) -> tuple[int, int]:
        """The (milliseconds, bytes) that the log keeps. -1: no limit, as for a topic that is only compacted."""
        return (self.retention_ms, self.retention_bytes) if self.deletes_old_segments else (-1, -1)

    @property
    def local_retention(self) -> tuple[int, int]:
        """The (milliseconds, bytes) of a tiered log that stay on the local disk. -1: no limit."""
        keep_ms, keep_bytes = self.retention
        return (
            keep_ms if self.local_retention_ms == AS_RETENTION else self.local_retention_ms,
            keep_bytes if self.local_retention_bytes == AS_RETENTION else self.local_retention_bytes,
        )

    @classmethod
    def from_settings(cls, settings: Mapping[str, str | None]) -> LogConfig:
        """From Kafka's names and strings; None means the default. Raises ConfigError, naming the setting."""
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in settings.items():
            value = parse_topic_setting(name, text)
            field_name = name.replace(".", "_")
            if field_name in known:
                values[field_name] = value
        if settings.get("internal.segment.bytes") is not None:
            values["segment_bytes"] = parse_topic_setting("internal.segment.bytes", settings["internal.segment.bytes"])
        config = cls(**values)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
            )
        if config.remote_storage_enable:
            _check_local_retention(config, "ms", config.local_retention_ms, config.retention_ms)
            _check_local_retention(config, "bytes", config.local_retention_bytes, config.retention_bytes)
        return config


def _check_local_retention(config: LogConfig, unit: str, local: int, total: int) -> None:
    """The local part must not be larger than the whole log. If nothing is copied any more, it must be the whole log."""
    if local == AS_RETENTION:
        return
    if total >= 0 and (local == -1 or local > total):
        raise ConfigError(f"local.retention.{unit}={local}: must not be more than retention.{unit}={total}")
    if config.remote_log_copy_disable and local != total:
        raise ConfigError(
            f"local.retention.{unit}={local}: with remote.log.copy.disable=true it must be -2 or the same as "
            f"retention.{unit}={total}, because nothing is copied any more"
        )


def parse_topic_setting(name: str, text: str | None) -> Any:
    """Returns the value of one setting. Raises ConfigError if its row in `TOPIC_SETTINGS` does not allow it."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    text = setting.default if text is None else text.strip()
    match setting.type:
        case "BOOLEAN":
            if text.lower() not in ("true", "false"):
                raise _invalid(name, text, "Expected value to be either true or false")
            return text.lower() == "true"
        case "LIST" | "STRING":
            return _words(name, setting, text)
        case "INT" | "LONG" | "DOUBLE":
            return _number(name, setting, text)


def _words(name: str, setting: TopicSetting, text: str) -> str | tuple[str, ...]:
    if setting.type == "STRING":
        words: tuple[str, ...] = (text,)
    else:
        words = tuple(dict.fromkeys(word.strip() for word in text.split(","))) if text else ()
        if "" in words:
            raise ConfigError(f"Configuration '{name}' values must not be empty.")
    for word in words:
        if setting.pattern and not re.fullmatch(setting.pattern, word):
            raise _invalid(name, word, f"Every element must match {setting.pattern}")
        if setting.choices and word not in setting.choices:
            raise _invalid(name, word, f"String must be one of: {', '.join(setting.choices)}")
    return words if setting.type == "LIST" else words[0]


def _invalid(name: str, text: str, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {text} for configuration {name}: {why}")


def _number(name: str, setting: TopicSetting, text: str) -> float | int:
    try:
        value = number(text) if setting.type == "DOUBLE" else whole_number(text)
    except ValueError:
        raise _invalid(name, text, f"Not a number of type {setting.type}") from None
    if setting.low is not None and value < setting.low:
        raise _invalid(name, text, f"Value must be at least {setting.low}")
    if setting.high is not None and value > setting.high:
        beyond_type = setting.type != "DOUBLE" and setting.high in (MAX_INT, MAX_LONG)
        most = f"Value must be no more than {setting.high}"
        raise _invalid(name, text, f"Not a number of type {setting.type}" if beyond_type else most)
    return value
