"""What becomes of the options of Spark's own Kafka connector: every one of them has an answer."""

from __future__ import annotations

import pytest

from suiro.client.settings import ClientSettings
from suiro.errors import ConfigError
from suiro.spark.connector import OPTIONS, SETTINGS, Fate, client_settings
from suiro.spark.options import SinkOptions, SourceOptions

SOURCE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
SINK = {"kafka.bootstrap.servers": "h:1"}
VALUES = {
    "fetch.from.files": "false",
    "security.protocol": "SSL",
    "sasl.mechanism": "PLAIN",
    "acks": "all",
    "enable.idempotence": "true",
    "compression.type": "zstd",
    "batch.size": "20000",
    "ssl.truststore.type": "PEM",
    "ssl.keystore.type": "PEM",
    "ssl.endpoint.identification.algorithm": "https",
    "max.in.flight.requests.per.connection": "5",
}


def test_no_name_stands_twice() -> None:
    for table in (OPTIONS, SETTINGS):
        names = [entry.name.lower() for entry in table]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("entry", SETTINGS, ids=lambda entry: f"{entry.name}")
def test_every_setting_of_kafka_has_the_fate_that_the_table_tells(entry: object) -> None:
    name, fate = entry.name, entry.fate  # type: ignore[attr-defined]
    value = VALUES.get(name, "1000" if name.endswith(("ms", "bytes", "size", "memory")) else "x")
    sides = {"read": [SourceOptions], "write": [SinkOptions]}.get(entry.side, [SourceOptions, SinkOptions])  # type: ignore[attr-defined]
    for side in sides:
        given = (SOURCE if side is SourceOptions else SINK) | {f"kafka.{name}": value}
        if name.endswith("store.location"):
            given[f"kafka.{name.removesuffix('location')}type"] = "PEM"
        if fate is Fate.REFUSED:
            with pytest.raises(ConfigError, match=rf"option kafka\.{name} cannot be carried over: \w"):
                side.parse(given)
            continue
        settings = side.parse(given).client_settings  # type: ignore[attr-defined]
        ClientSettings.from_mapping(settings)  # it knows them all
        if fate is Fate.NO_EFFECT:
            assert not settings


@pytest.mark.parametrize("entry", [entry for entry in OPTIONS if entry.fate is Fate.NO_EFFECT], ids=lambda e: e.name)
def test_options_without_effect_are_taken(entry: object) -> None:
    assert SourceOptions.parse(SOURCE | {entry.name: "3"}) == SourceOptions.parse(SOURCE)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name",
    [
        "config.providers",
        "sasl.login.read.timeout.ms",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.client.credentials.client.secret",
    ],
)
def test_what_kafka_has_added_since_is_in_the_table(name: str) -> None:
    assert name in {entry.name for entry in SETTINGS}


def test_a_setting_that_nobody_knows_is_left_to_the_client_to_refuse() -> None:
    assert client_settings({"request.timeout.msec": "1"}) == {"request.timeout.msec": "1"}


def test_pem_stores_under_javas_names_are_the_clients_files() -> None:
    given = {
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
        "ssl.keystore.type": "pem",
    }
    assert client_settings(given) == {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
    }


def test_a_store_of_java_is_refused_with_the_way_to_pem() -> None:
    with pytest.raises(ConfigError, match=r"'/trust.jks' is a store of type JKS; only PEM.*ssl\.truststore\.type=PEM"):
        client_settings({"ssl.truststore.location": "/trust.jks"})


def test_waiting_for_more_and_finer_tasks() -> None:
    options = SourceOptions.parse(
        SOURCE
        | {
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "5s",
            "maxRecordsPerPartition": "7",
            "kafka.group.id": "lag",
        }
    )
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_ms) == (10, 5_000)
    assert (options.max_records_per_partition, options.group_id) == (7, "lag")
    assert SourceOptions.parse(SOURCE).max_trigger_delay_ms == 15 * 60_000
    with pytest.raises(ConfigError, match=r"minOffsetsPerTrigger \(11\) is above maxOffsetsPerTrigger \(10\)"):
        SourceOptions.parse(SOURCE | {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"})
    for delay in ("soon", "٣s", "9" * 5_000 + "s"):
        with pytest.raises(ConfigError, match="maxTriggerDelay is not a time like"):
            SourceOptions.parse(SOURCE | {"maxTriggerDelay": delay})


def test_what_to_do_with_a_time_in_the_future_is_one_of_two() -> None:
    with pytest.raises(ConfigError, match="neither error nor latest"):
        SourceOptions.parse(SOURCE | {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "earliest"})
