"""Settings of a node: names, types, ranges, and what an unknown one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.broker.settings.cluster_state import ClusterState
from suiro.broker.settings.configs import describe_topic_configs, log_config
from suiro.broker.settings.dynamic_settings import DynamicSettings
from suiro.config import NodeSettings, describe, node_setting_names, read_properties, topic_settings
from suiro.errors import ConfigError


def test_values_are_typed() -> None:
    settings = NodeSettings.from_mapping(
        {"num.partitions": "3", "auto.create.topics.enable": "FALSE", "log.cleanup.policy": "compact, delete"}
    )
    assert (settings.num_partitions, settings.auto_create_topics_enable) == (3, False)
    assert settings.value("log.cleanup.policy") == "compact,delete"


def test_coarse_units_give_way_to_fine_ones() -> None:
    assert NodeSettings.from_mapping({"log.retention.hours": "2"}).log_retention_ms == 7_200_000
    both = {"log.retention.hours": "2", "log.retention.ms": "5"}
    assert NodeSettings.from_mapping(both).log_retention_ms == 5
    assert NodeSettings.from_mapping({"log.retention.minutes": "-1"}).log_retention_ms == -1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num.partition", "1", "unknown setting; did you mean num.partitions?"),
        ("inter.broker.listener.name", "A", "Apache Kafka that a suiro node does not have"),
        ("ssl.provider", "x", "Apache Kafka that a suiro node does not have"),
        ("num.partitions", "x", "expected a whole number"),
        ("num.partitions", "0", "must be between 1 and 10000"),
        ("log.cleaner.min.cleanable.ratio", "nan", "expected a number"),
        ("log.cleaner.io.max.bytes.per.second", "NaN", "expected a number"),
        ("auto.create.topics.enable", "1", "expected true or false"),
        ("log.cleanup.policy", "shrink", "must be one of"),
        ("retention.ms", "1", "its node-wide default is log.retention.ms"),
    ],
)
def test_errors_name_the_setting_and_its_source(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NodeSettings.from_mapping({name: value}, source="here")
    assert message in str(caught.value)
    assert name in str(caught.value)
    assert "here" in str(caught.value)


def test_properties_files(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# comment\n\nnum.partitions = 3\nlog.dirs=/a=b\n")
    assert read_properties(file) == {"num.partitions": "3", "log.dirs": "/a=b"}
    file.write_text(
        'sasl.jaas.config = m required \\\n  user_a="b" \\\n\n# comment\nname=a\\\\b\\=\\u00e9\\tz\nlast=1\\\n'
    )
    assert read_properties(file) == {
        "sasl.jaas.config": 'm required user_a="b"',
        "name": "a\\b=é\tz",
        "last": "1",
    }
    # A line ends nowhere else.
    file.write_bytes("a=1\x0c2\x85\u20283\rb=4\r\nc=5".encode())
    assert read_properties(file) == {"a": "1\x0c2\x85\u20283", "b": "4", "c": "5"}
    file.write_bytes(b"name=caf\xe9\n")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        read_properties(file)
    file.write_text("no assignment\n")
    with pytest.raises(ConfigError, match="line 1"):
        read_properties(file)
    with pytest.raises(ConfigError) as refused:
        read_properties(tmp_path / "absent")
    assert str(refused.value) == f"{tmp_path / 'absent'}: cannot read it: No such file or directory"


@pytest.mark.parametrize("line", ["sasl.password: secret", "sasl.password secret", "sasl.password:secret"])
def test_a_password_in_another_form_is_not_shown(line: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{line}\n")
    with pytest.raises(ConfigError, match=r"line 1: expected NAME=VALUE, found 'sasl\.password'") as refused:
        read_properties(file)
    assert "secret" not in str(refused.value)


def test_every_setting_is_described() -> None:
    assert all(describe(name) for name in node_setting_names())
    assert all(describe(name) for name in topic_settings())


def test_a_topic_has_its_own_settings_over_the_nodes(tmp_path: Path) -> None:
    settings = NodeSettings.from_mapping({"log.retention.ms": "77", "message.max.bytes": "5000"})
    config = log_config({"retention.ms": "5"}, settings)
    assert (config.retention_ms, config.max_message_bytes, config.segment_bytes) == (5, 5000, 1 << 30)
    layers = DynamicSettings(settings, ClusterState(tmp_path))
    shown = {c.name: (c.value, c.source) for c in describe_topic_configs({"retention.ms": "5"}, layers)}
    assert shown["retention.ms"] == ("5", 1)
    assert shown["max.message.bytes"] == ("5000", 4)
    assert shown["segment.bytes"] == ("1073741824", 5)
    with pytest.raises(ConfigError, match="mss"):
        log_config({"retention.mss": "5"}, settings)


def test_defaults_agree_with_the_logs_own() -> None:
    assert log_config({}, NodeSettings()) == log_config({}, NodeSettings()).from_settings({})


def test_a_listener_has_settings_of_its_own() -> None:
    plain = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b, c";'
    settings = NodeSettings.from_mapping(
        {
            "listener.name.CLIENTS.plain.sasl.jaas.config": plain,
            "listener.name.clients.connections.max.reauth.ms": "5",
            "listener.name.clients.scram-sha-256.connections.max.reauth.ms": "6",
            "connections.max.reauth.ms": "7",
        }
    )
    assert settings.for_listener("CLIENTS", "PLAIN").sasl_jaas_config == plain
    assert settings.for_listener("CLIENTS", "PLAIN").connections_max_reauth_ms == 5
    assert settings.for_listener("clients", "SCRAM-SHA-256").connections_max_reauth_ms == 6
    assert settings.for_listener("OTHER", "PLAIN").connections_max_reauth_ms == 7
    assert settings.for_listener("OTHER", "PLAIN").sasl_jaas_config == ""
    assert "user_a" not in repr(settings)
    for wrong in ("listener.name.clients.num.partitions", "listener.name.clients", "listener.name..ssl.x"):
        with pytest.raises(ConfigError, match=r"expected listener\.name"):
            NodeSettings.from_mapping({wrong: "1"})
