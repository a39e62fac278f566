"""Topologies on Spark whose values are Avro by a registry: as the interpreter has them, bad ones apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.spark_streams import Outputs, by_key

import suiro.spark
from suiro.client import Client, NewTopic
from suiro.errors import ConfigError
from suiro.protocol.records import Record, encode_batch
from suiro.registry import InProcessRegistry, RegistryClient, RegistryConfig
from suiro.streams import KafkaStreams, StreamsBuilder, col, serdes
from suiro.streams.dsl.registries import with_registry
from suiro.streams.explanation import explain
from suiro.streams.interpreter import Interpreter
from suiro.streams.topology.topology import Topology

pytestmark = pytest.mark.spark

OLD: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
    ],
}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "tail", "type": "string", "default": "?"}]}


@pytest.fixture(scope="module")
def registry(suiro_node: Any) -> Iterator[InProcessRegistry]:
    configuration = RegistryConfig(
        bootstrap_servers=suiro_node.bootstrap_servers, port=0, topic=f"_schemas-{uuid4().hex[:8]}"
    )
    with InProcessRegistry(configuration) as started:
        yield started


def build(name: str) -> Topology:
    builder = StreamsBuilder()
    flights = builder.stream(f"{name}-flights", key=serdes.string, value=serdes.avro.with_(schema=NEW))
    late = flights.filter(col("delay") > 15)
    late.to(f"{name}-late")
    late.group_by(col("carrier"), key=serdes.string).count().to_stream().to(f"{name}-counts", value=serdes.long)
    flights.map_values(lambda it: {**it, "tail": it["tail"].lower()}).to(
        f"{name}-lower", value=serdes.avro.with_(schema=NEW)
    )
    return builder.build()


def test_as_the_interpreter_has_it(spark: Any, suiro_node: Any, registry: InProcessRegistry, tmp_path: Path) -> None:
    name = f"avro{uuid4().hex[:6]}"
    topology = build(name)
    assert "reads values one by one" not in explain(topology)
    bound = with_registry(topology, registry.url)
    old = serdes.avro.with_(registry=registry.url, schema=OLD)
    new = serdes.avro.with_(registry=registry.url, schema=NEW)
    source = f"{name}-flights"
    values: list[bytes] = []
    for n in range(60):
        flight = {"carrier": f"C{n % 3}", "delay": None if n % 5 == 0 else n}
        if n % 2:
            values.append(new.serialize(source, {**flight, "tail": f"N{n}"}))
        else:
            values.append(old.serialize(source, flight))
    good = values[7]
    values[7] = b"not avro"
    values[30] = b"\0\0\0\xff\xff" + good[5:]
    records = [(source, 1_000 + n, f"k{n % 4}".encode(), value) for n, value in enumerate(values)]

    dead = f"{name}-dead"
    interpreter = Interpreter(bound, on_deserialization_error=f"dead-letter:{dead}")
    for record in records:
        interpreter.pipe(record[0], record[1], record[2], record[3])
    expected: dict[str, dict[Any, list[Any]]] = {}
    for item in interpreter.outputs:
        expected.setdefault(item.topic, {}).setdefault(item.key, []).append((item.value, item.record.timestamp))

    with Client(suiro_node.bootstrap_servers) as client:
        sinks = [*topology.sink_topics, dead]
        client.create_topics([NewTopic(topic, 1) for topic in (*topology.source_topics, *sinks)])
        for topic in topology.source_topics:
            batch = [record for record in records if record[0] == topic]
            made = [Record(offset=n, timestamp=at, key=key, value=value) for n, (_, at, key, value) in enumerate(batch)]
            client.produce({(topic, 0): encode_batch(made)})
        streams = KafkaStreams(
            topology,
            application_id=name,
            bootstrap_servers=suiro_node.bootstrap_servers,
            spark=spark,
            state_dir=tmp_path,
            emit="every",
            on_deserialization_error=f"dead-letter:{dead}",
            schema_registry_url=registry.url,
        )
        with streams:
            streams.process_all_available()
            assert streams.dropped_records == {"deserialization error": 2}
        found = {topic: by_key(got) for topic, got in Outputs(client, sinks).read().items()}
    assert found == expected
    assert {one for of_key in found[dead].values() for one, _ in of_key} == {values[7], values[30]}
    with RegistryClient(registry.url) as asked:
        mine = {subject for subject in asked.subjects() if subject.startswith(name)}
    assert mine == {f"{name}-{topic}-value" for topic in ("flights", "lower", "late")}


def test_a_registry_must_be_named_and_be_everybodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUIRO_REGISTRY", raising=False)
    topology = build("app")
    for url, why in [
        (None, "has no registry: give schema_registry_url="),
        ("mock://x", "one process's memory"),
    ]:
        with pytest.raises(ConfigError, match=why):
            KafkaStreams(topology, application_id="app", bootstrap_servers="x:1", schema_registry_url=url)


def test_columns_of_data_frames(spark: Any, registry: InProcessRegistry) -> None:
    from pyspark.sql.functions import struct

    subject = f"frames-{uuid4().hex[:6]}-value"
    kinds: dict[str, Any] = {
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "tags": {"type": "map", "values": "int"},
        "list": {"type": "array", "items": "string"},
        "money": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
    }
    schema = {
        **NEW,
        "fields": [*NEW["fields"], *({"name": name, "type": kind} for name, kind in kinds.items())],
    }
    rows = spark.sql(
        "select 'UA' carrier, 5 delay, 'N1' tail, timestamp '2024-01-01 00:00:00.5Z' at, map('a', 1) tags, "
        "array('x') list, 1.25bd money union all select 'AA', null, 'N2', timestamp '1969-12-31 23:59:59Z', map(), "
        "array(), null"
    )
    names = rows.columns
    packed = rows.select(
        suiro.spark.to_avro(struct(*names), registry=registry.url, subject=subject, schema=schema).alias("value")
    )
    read = suiro.spark.from_avro("value", registry=registry.url, subject=subject)
    again = packed.select(read.alias("it")).select("it.*")
    assert [one.asDict() for one in again.collect()] == [one.asDict() | {"money": one.money} for one in rows.collect()]
    assert dict(again.dtypes)["at"] == "timestamp"
    with_bad = packed.union(spark.sql("select cast('bad bytes' as binary)"))
    older = suiro.spark.from_avro("value", registry=registry.url, schema=OLD, mode="PERMISSIVE")
    assert with_bad.select(older.alias("it")).select("it.carrier").collect() == [("UA",), ("AA",), (None,)]
    with pytest.raises(Exception, match="unknown magic byte 0x62"):
        with_bad.select(read).collect()
