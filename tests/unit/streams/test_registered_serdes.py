"""Serdes of a registry in a topology: which registry they ask, subjects, state without schemas, what is put aside."""

from __future__ import annotations

import datetime
import decimal
import json
import multiprocessing
import os
import pickle
import uuid
from typing import Any

import pytest

from suiro.errors import ConfigError, RegistryUnavailableError
from suiro.registry import MOCK_SCHEME, Reference, Schema, registry_client
from suiro.streams import KafkaStreams, Materialized, ProcessingError, StreamsBuilder, col, serdes
from suiro.streams.serdes.registered import AvroInside
from suiro.streams.topology.topology import Topology
from suiro.testing import TopologyTestDriver

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
    ],
}
EVERY: dict[str, Any] = {
    "type": "record",
    "name": "Every",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "time", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
    ],
}
ROW = {
    "at": datetime.datetime(2024, 1, 1, 1, 1, 1, 7, tzinfo=datetime.UTC),
    "day": datetime.date(2024, 1, 1),
    "time": datetime.time(1, 2, 3, 4),
    "local": datetime.datetime(2024, 1, 1),
    "id": uuid.UUID(int=9),
    "sum": decimal.Decimal("1.20"),
}


def flights(**sinks: Any) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("flights", key=serdes.string, value=serdes.avro)
    stream.filter(col("delay") > 15).to("late")
    stream.group_by(col("carrier")).count().to_stream().to("counts", key=serdes.string, value=serdes.long)
    return builder.build()


def test_bare_serdes_have_a_registry_of_the_drivers_own() -> None:
    with TopologyTestDriver(flights()) as driver:
        source = driver.create_input_topic("flights")
        with pytest.raises(Exception, match="subject 'flights-value' has no schema"):
            source.pipe_input("k", {"carrier": "UA"}, 0)
        for topic in ("flights", "late"):
            driver.schema_registry.register(f"{topic}-value", Schema(json.dumps(FLIGHT)))
        with TopologyTestDriver(flights()) as another:
            assert another.schema_registry.subjects() == []
    # The subject's absence was not kept: a driver with the schemas there from the start, by its name.
    url = f"{MOCK_SCHEME}{uuid.uuid4()}"
    for topic in ("flights", "late"):
        registry_client(url).register(f"{topic}-value", Schema(json.dumps(FLIGHT)))
    with TopologyTestDriver(flights(), schema_registry_url=url) as driver:
        source = driver.create_input_topic("flights")
        source.pipe_input("k", {"carrier": "UA", "delay": 16}, 0)
        source.pipe_input("k", {"carrier": "UA", "delay": None}, 1)
        late = driver.create_output_topic("late", key=serdes.string, value=serdes.avro)
        assert late.read_key_values_to_list() == [("k", {"carrier": "UA", "delay": 16})]
        assert driver.create_output_topic("counts").read_key_values_to_list() == [("UA", 1), ("UA", 2)]


def test_state_and_topics_between_tasks_register_nothing() -> None:
    builder = StreamsBuilder()
    given = serdes.avro.with_(schema=EVERY)
    rows = builder.table("rows", key=given, value=given, materialized=Materialized.as_("rows-store"))
    regrouped = rows.group_by(lambda key, value: (str(value["id"]), value), value=given)
    regrouped.reduce(lambda _, new: new, lambda _, old: old).to_stream().to("out", value=given)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("rows")
        source.pipe_input(ROW, ROW, 5)
        assert driver.get_key_value_store("rows-store").get(ROW) == ROW
        found = driver.create_output_topic("out", value=serdes.avro).read_record()
        assert found.value == ROW
        assert driver.schema_registry.subjects() == ["out-value", "rows-key", "rows-value"]


def test_bad_records_go_to_the_dead_letters_with_their_reason() -> None:
    with TopologyTestDriver(flights(), on_deserialization_error="dead-letter:dead") as driver:
        for topic in ("flights", "late"):
            driver.schema_registry.register(f"{topic}-value", Schema(json.dumps(FLIGHT)))
        source = driver.create_input_topic("flights")
        for bad in (b"text", b"\x01\0\0\0\1", b"\0\0\0\xff\xff\0", b"\0\0\0\0\1\x04U"):
            source.pipe_raw(b"k", bad, 3)
        reasons = [
            dict(one.headers)["__streams.errors.message"].decode()
            for one in driver.create_output_topic("dead").read_records_to_list()
        ]
        assert driver.dropped_records_total == 4
    for reason, expected in zip(
        reasons, ["4 bytes are too few", "magic byte 0x01", "id 65535 is not", "not of schema 1"], strict=True
    ):
        assert expected in reason


def test_a_registry_that_is_down_is_no_records_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suiro.registry.client.FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("suiro.registry.client.LONGEST_PAUSE_S", 0.0)
    policies: dict[str, Any] = {"on_deserialization_error": "skip", "on_processing_error": "skip"}
    down = "http://127.0.0.1:1"
    with TopologyTestDriver(flights(), schema_registry_url=down, **policies) as driver:
        source = driver.create_input_topic("flights")
        with pytest.raises(RegistryUnavailableError, match="is the registry running"):
            source.pipe_raw(b"k", b"\0\0\0\0\1\4UA\0", 0)
        assert driver.dropped_records_total == 0
    builder = StreamsBuilder()
    builder.stream("in", value=serdes.json).to("out", value=serdes.avro.with_(schema=FLIGHT))
    with (
        TopologyTestDriver(builder.build(), schema_registry_url=down, **policies) as driver,
        pytest.raises(ProcessingError, match="is the registry running"),
    ):
        driver.create_input_topic("in").pipe_input(None, {"carrier": "UA"}, 0)


def test_what_cannot_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUIRO_REGISTRY", raising=False)
    with pytest.raises(ConfigError, match=r"serdes\.avro has no registry: give schema_registry_url="):
        KafkaStreams(flights(), application_id="a", bootstrap_servers="x:1")
    with pytest.raises(ConfigError, match="one process's memory"):
        KafkaStreams(flights(), application_id="a", bootstrap_servers="x:1", schema_registry_url="mock://x")
    monkeypatch.setenv("SUIRO_REGISTRY", "http://env:1")
    KafkaStreams(flights(), application_id="a", bootstrap_servers="x:1")
    with pytest.raises(ConfigError, match="subject_strategy='name'"):
        serdes.avro.with_(subject_strategy="name")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="of type AVRO, not JSON"):
        serdes.avro.with_(schema=Schema("{}", "JSON"))
    with pytest.raises(ConfigError, match="not int"):
        serdes.protobuf.with_(schema=5)
    with pytest.raises(ConfigError, match="references"):
        serdes.avro.with_(references=[Reference(name="a", subject="a", version=1)])


def test_a_serde_travels_and_keeps_its_password_to_itself() -> None:
    serde = serdes.avro.with_(registry=f"{MOCK_SCHEME}{uuid.uuid4()}", schema=FLIGHT)
    data = serde.serialize("t", {"carrier": "UA"})
    there = pickle.loads(pickle.dumps(serde))
    assert there == serde
    assert there.deserialize("t", data) == {"carrier": "UA", "delay": None}
    assert pickle.loads(pickle.dumps(flights())).source_topics == ("flights",)
    assert "secret" not in repr(serdes.avro.with_(registry="http://me:secret@host"))


def test_a_forked_process_opens_connections_of_its_own() -> None:
    serde = serdes.avro.with_(registry="mock://forked", schema=FLIGHT)
    codec = serde.codec()
    assert serde.codec() is codec
    reader, writer = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            writer.send(serde.codec() is codec)
        finally:
            os._exit(0)
    assert reader.poll(60)
    assert reader.recv() is False
    os.waitpid(child, 0)


@pytest.mark.parametrize("values", [[{"a": 1}, None, {"a": 2}], ["x", decimal.Decimal("1.5"), {"a": b"x"}]], ids=repr)
def test_values_between_tasks_travel_in_blocks(values: list[Any]) -> None:
    """Also beside bytes that no task had to read."""
    avro = serdes.avro.with_(registry="mock://between", schema=FLIGHT)
    inside = AvroInside(avro)
    written = [None if one is None else inside.serialize("t", one) for one in values]
    assert serdes.encode_block(inside, values, "t") == written
    assert serdes.decode_block(inside, written, "t") == values
    flight = {"carrier": "UA", "delay": 5}
    raw = avro.serialize("t", flight)
    assert serdes.decode_block(inside, [raw, None, raw], "t") == [flight, None, flight]
    assert serdes.decode_block(inside, [raw, *written], "t") == [flight, *values]
