"""Settings of a running broker: what Apache Kafka lets be altered, the node takes too, with or without effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.admin import ask
from support.waiting import wait_until
from support.wire import Wire

BROKER, SET, DELETE = 4, 0, 1
OF_BROKER, OF_CLUSTER, DEFAULT = 2, 3, 5
DECLARED = {("listeners", "1"): "none"}
"""What Kafka answers where the node refuses: a node that runs opens no other listeners, and would at its next start."""
VALUES = [
    ("follower.fetch.last.tiered.offset.enable", "true"),
    ("follower.fetch.last.tiered.offset.enable", "maybe"),
    ("group.coordinator.cached.buffer.max.bytes", "524288"),
    ("group.coordinator.cached.buffer.max.bytes", "524287"),
    ("group.share.assignment.interval.ms", "-1"),
    ("group.share.assignment.interval.ms", "15001"),
    ("group.streams.assignment.interval.ms", "15000"),
    ("group.streams.assignment.interval.ms", "soon"),
    ("log.cleaner.backoff.ms", "0"),
    ("log.cleaner.backoff.ms", "-1"),
    ("log.cleaner.threads", "2"),
    ("metric.reporters", "com.example.Reporter"),
    ("metric.reporters", ""),
    ("principal.builder.class", "com.example.Builder"),
    ("remote.log.index.file.cache.total.size.bytes", "1"),
    ("remote.log.index.file.cache.total.size.bytes", "0"),
    ("remote.log.manager.copier.thread.pool.size", "0"),
    ("remote.log.manager.expiration.thread.pool.size", "0"),
    ("remote.log.manager.follower.thread.pool.size", "3"),
    ("remote.log.reader.threads", "20"),
    ("remote.log.reader.threads", "0"),
    ("sasl.enabled.mechanisms", "PLAIN"),
    ("sasl.kerberos.min.time.before.relogin", "58000"),
    ("sasl.kerberos.min.time.before.relogin", "soon"),
    ("sasl.kerberos.principal.to.local.rules", "RULE:[1:$1],DEFAULT"),
    ("sasl.kerberos.service.name", "kafka"),
    ("sasl.kerberos.ticket.renew.jitter", "2"),
    ("sasl.kerberos.ticket.renew.window.factor", "much"),
    ("sasl.login.refresh.buffer.seconds", "40000"),
    ("sasl.login.refresh.window.factor", "0.1"),
    ("share.coordinator.cached.buffer.max.bytes", "0"),
    ("ssl.client.auth", "required"),
    ("ssl.client.auth", "sometimes"),
    ("ssl.enabled.protocols", "TLSv1.3"),
    ("ssl.engine.factory.class", "com.example.Engine"),
    ("ssl.keymanager.algorithm", "PKIX"),
    ("ssl.keystore.location", "/not/there.pem"),
    ("ssl.truststore.type", "PEM"),
    ("listener.name.plaintext.max.connections", "5"),
    ("listener.name.plaintext.max.connection.creation.rate", "5"),
    ("listener.name.plaintext.connections.max.reauth.ms", "60000"),
    ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
    (
        "listener.name.plaintext.plain.sasl.jaas.config",
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";',
    ),
    ("listener.name.plaintext.sasl.kerberos.service.name", "kafka"),
    ("listener.name.plaintext.ssl.client.auth", "none"),
    ("listener.name.plaintext.ssl.keystore.type", "PEM"),
    ("listener.name.plaintext.ssl.truststore.location", "/not/there.pem"),
    ("listener.name.plaintext.num.io.threads", "9"),
    ("listener.name.nowhere.ssl.client.auth", "none"),
]


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    with Wire(bootstrap) as connected:
        yield connected


def described(wire: Wire, broker: str = "1") -> dict[str, dict[str, Any]]:
    wanted = {"resource_type": BROKER, "resource_name": broker, "configuration_keys": None}
    answer = ask(wire, "describe_configs", 4, resources=[wanted], include_synonyms=True)
    return {config["name"]: config for config in answer["results"][0]["configs"]}


def alter(
    wire: Wire,
    name: str,
    value: str | None,
    *,
    broker: str = "1",
    operation: int = SET,
    validate_only: bool = False,
) -> tuple[str, str | None]:
    configs = [{"name": name, "config_operation": operation, "value": value}]
    wanted = {"resource_type": BROKER, "resource_name": broker, "configs": configs}
    (answer,) = ask(wire, "incremental_alter_configs", 1, resources=[wanted], validate_only=validate_only)["responses"]
    return answer["error_code"], answer["error_message"]


@pytest.mark.kafka
@pytest.mark.parametrize("broker", ["1", ""])
def test_every_setting_of_kafkas_may_be_altered_where_kafka_lets_it_be(
    suiro_node: Any, kafka: Any, broker: str
) -> None:
    """With the value that Kafka has. The code is Kafka's also for those that stay as they are."""
    with Wire(suiro_node.bootstrap_servers) as ours, Wire(kafka.bootstrap_servers) as theirs:
        found = {}
        for name, config in described(theirs).items():
            value = config["value"] or ""
            codes = tuple(alter(wire, name, value, broker=broker, validate_only=True)[0] for wire in (ours, theirs))
            if codes[0] != codes[1]:
                found[name, broker] = codes[1]
        assert len(described(theirs)) > 300
    assert found == {place: code for place, code in DECLARED.items() if place[1] == broker}


@pytest.mark.kafka
@pytest.mark.parametrize("broker", ["1", ""])
def test_other_values_are_taken_and_refused_as_by_kafka(suiro_node: Any, kafka: Any, broker: str) -> None:
    with Wire(suiro_node.bootstrap_servers) as ours, Wire(kafka.bootstrap_servers) as theirs:
        for name, value in VALUES:
            found, expected = (alter(wire, name, value, broker=broker, validate_only=True) for wire in (ours, theirs))
            assert found[0] == expected[0], (name, value, found, expected)
            if expected[1] is not None and expected[1].endswith(f": [{name}]"):
                assert found[1] == expected[1]


@pytest.mark.parametrize(
    ("broker", "name", "value", "kind", "default", "source"),
    [
        ("1", "sasl.kerberos.min.time.before.relogin", "58000", 5, "60000", OF_BROKER),
        ("1", "sasl.login.refresh.window.factor", "0.7", 6, "0.8", OF_BROKER),
        ("", "group.share.assignment.interval.ms", "1200", 3, "1000", OF_CLUSTER),
        ("", "follower.fetch.last.tiered.offset.enable", "true", 1, "false", OF_CLUSTER),
    ],
)
def test_what_is_taken_is_kept_and_shown_with_its_source(
    wire: Wire, broker: str, name: str, value: str, kind: int, default: str, source: int
) -> None:
    shown: Callable[[], dict[str, Any]] = lambda: described(wire).get(name, {})  # noqa: E731
    assert alter(wire, name, value, broker=broker) == ("none", None)
    try:
        found = wait_until(lambda: (config := shown()).get("value") == value and config)
        assert (found["config_source"], found["config_type"]) == (source, kind)
        assert not found["read_only"]
        assert not found["is_sensitive"]
        assert found["synonyms"] == [
            {"name": name, "value": value, "source": source},
            {"name": name, "value": default, "source": DEFAULT},
        ]
        assert (name in described(wire, "")) == (broker == "")
    finally:
        assert alter(wire, name, None, broker=broker, operation=DELETE)[0] == "none"
    wait_until(lambda: shown().get("value") in (None, default))


def test_what_is_set_for_a_listener_is_shown_before_what_is_set_for_all(wire: Wire) -> None:
    name = "listener.name.plaintext.ssl.client.auth"
    assert alter(wire, name, "none") == ("none", None)
    try:
        found = wait_until(lambda: described(wire).get(name))
        assert (found["value"], found["config_source"], found["config_type"]) == ("none", OF_BROKER, 2)
        assert found["read_only"]
        assert found["synonyms"] == [
            {"name": name, "value": "none", "source": OF_BROKER},
            {"name": "ssl.client.auth", "value": "none", "source": DEFAULT},
        ]
    finally:
        assert alter(wire, name, None, operation=DELETE)[0] == "none"


def test_a_node_says_that_it_has_no_client_metrics(suiro_node: Any) -> None:
    configs = [{"name": "interval.ms", "config_operation": SET, "value": "15000"}]
    wanted = {"resource_type": 16, "resource_name": "all", "configs": configs}
    with Wire(suiro_node.bootstrap_servers) as wire:
        (answer,) = ask(wire, "incremental_alter_configs", 1, resources=[wanted], validate_only=True)["responses"]
    assert (answer["error_code"], "client metrics" in answer["error_message"]) == ("invalid_request", True)
