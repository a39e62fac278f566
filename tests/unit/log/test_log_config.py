"""Topic settings by Kafka's names: what is taken, what is refused and in which words."""

from __future__ import annotations

import pytest

from suiro.config import TOPIC_SETTINGS
from suiro.errors import ConfigError
from suiro.log import LogConfig


def test_defaults_are_those_of_the_table() -> None:
    defaults = {name: None for name in TOPIC_SETTINGS if name != "internal.segment.bytes"}
    assert LogConfig.from_settings(defaults) == LogConfig() == LogConfig.from_settings({})


def test_settings_are_read_from_strings() -> None:
    config = LogConfig.from_settings(
        {
            "segment.bytes": "2097152",
            "retention.ms": "-1",
            "cleanup.policy": "compact,delete",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.1",
            "remote.log.delete.on.disable": "true",
        }
    )
    assert config.segment_bytes == 2 << 20
    assert config.retention_ms == -1
    assert config.compacted
    assert config.deletes_old_segments
    assert config.message_timestamp_type == "LogAppendTime"
    assert config.min_cleanable_dirty_ratio == 0.1
    assert config.remote_log_delete_on_disable is True


def test_small_segments_for_tests_have_kafkas_internal_name() -> None:
    assert LogConfig.from_settings({"internal.segment.bytes": "500"}).segment_bytes == 500


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("segment.byte", "1", "Unknown topic config name: segment.byte"),
        ("segment.bytes", "500", "at least 1048576"),
        ("segment.bytes", "many", "Not a number of type INT"),
        ("segment.bytes", "99999999999", "Not a number of type INT"),
        ("min.cleanable.dirty.ratio", "2", "no more than 1"),
        ("retention.ms", "-2", "at least -1"),
        ("cleanup.policy", "delete,", "values must not be empty"),
        ("cleanup.policy", "shred", "must be one of: compact, delete"),
        ("message.timestamp.type", "Never", "must be one of: CreateTime, LogAppendTime"),
        ("unclean.leader.election.enable", "perhaps", "true or false"),
        ("compression.type", "rar", "must be one of: uncompressed"),
        ("leader.replication.throttled.replicas", "1:x", "must match"),
    ],
)
def test_wrong_settings_name_themselves(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        LogConfig.from_settings({name: value})
    assert name in str(caught.value)


def test_settings_without_effect_are_taken() -> None:
    given = {
        "preallocate": "true",
        "leader.replication.throttled.replicas": "0:1,1:1",
    }
    assert LogConfig.from_settings(given) == LogConfig()


def test_a_word_counts_once() -> None:
    assert LogConfig.from_settings({"cleanup.policy": "compact, compact"}).cleanup_policy == ("compact",)
    assert LogConfig.from_settings({"cleanup.policy": ""}).cleanup_policy == ()


def test_compaction_lags_must_not_cross() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms"):
        LogConfig.from_settings({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
